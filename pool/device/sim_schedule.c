/* The adversarial schedule of a simulated device: each stream runs as late, as early and as interleaved as the API
 * permits. Neighbours: sim_stream.c (queues), sim_run.c (threads).
 *
 * A program may only rely on what it has waited for. So an operation runs when somebody waits for it, or when the dice
 * say so. Two things are kept apart:
 *
 *     queued --grant_locked--> granted a turn --start_locked--> running --(its thread)--> complete
 *
 * - Granting decides the order. It happens inside calls of the API only, from the state that the calls so far have
 *   made: no clock is asked, so that a program with one thread gets the same order from the same seed each time.
 *   A wait (synchronize, destroy, free) is granted what it depends on and nothing else. A query is answered NOT_READY
 *   a drawn number of times, then its record is granted what it depends on. Besides, some calls draw a burst: a few
 *   operations of ready streams, chosen at random, go first; this is how work that lacks a wait comes too early, and
 *   how the pieces of copies of two streams mix. How eager a seed is, how long its bursts are, in how many pieces it
 *   cuts copies and for how long it says NOT_READY is drawn once: some seeds do only what is forced.
 * - Running follows the order granted, one operation after another: whatever runs holds the turn. The threads of the
 *   streams do it, never the caller, who may hold locks. A call waits for the copies that were granted, which need no
 *   lock of anybody's, but not for functions: they may need what the caller holds.
 *
 * A function that runs for longer than STALL_NS loses the turn and goes on beside the others, as a long kernel does: it
 * may be waiting for one of them. Nothing starves: every HELP_CALLS calls the oldest operation that can is granted a
 * turn, whatever was drawn; as long as a long function runs and nothing else completes, so it is every STALL_NS; and
 * when nobody has called for IDLE_NS, everything is (an application may wait for a function without the API).
 */
#include "pool/base/clock.h"
#include "pool/device/sim.h"

#define STALL_NS   UINT64_C(20000000)
#define IDLE_NS    UINT64_C(500000000)
#define HELP_CALLS 256u

long long spw__sim_schedule_stall_ns(void)
{
    return STALL_NS;
}

long long spw__sim_schedule_idle_ns(void)
{
    return IDLE_NS;
}

/* splitmix64 */
uint64_t spw__sim_draw_locked(struct CUctx_st *sim, uint64_t n)
{
    uint64_t x = sim->schedule.random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % n;
}

void spw__sim_schedule_init(struct CUctx_st *sim, uint64_t seed)
{
    static const unsigned eagerness[] = {0, 1, 2, 4, 16}, bursts[] = {1, 4, 16}, pieces[] = {1, 2, 4, 8},
                          patience[] = {0, 1, 4, 16};
    struct spw__sim_schedule *schedule = &sim->schedule;
    schedule->seed = schedule->random = seed;
    schedule->turns_tail = &schedule->turns;
    schedule->eagerness = eagerness[spw__sim_draw_locked(sim, 5)];
    schedule->burst_max = bursts[spw__sim_draw_locked(sim, 3)];
    schedule->pieces_max = pieces[spw__sim_draw_locked(sim, 4)];
    schedule->patience_max = patience[spw__sim_draw_locked(sim, 4)];
}

size_t spw__sim_schedule_piece_locked(struct CUctx_st *sim, size_t left)
{
    const uint64_t n = sim->schedule.pieces_max;
    if (n == 1 || spw__sim_draw_locked(sim, n) == 0)
        return left;
    return 1 + (size_t)spw__sim_draw_locked(sim, left);
}

/* Its next operation can be granted a turn: in a wait, what it waits for has been. */
static bool is_ready(const struct CUstream_st *stream)
{
    const struct spw__sim_op *op = stream->undecided;
    return op && (op->kind != SPW__SIM_WAIT || op->mark->granted || op->mark->done);
}

static void grant_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    struct spw__sim_op *op = stream->undecided;
    stream->undecided = op->next;
    op->granted = true;
    if (op->kind == SPW__SIM_SIGNAL)
        op->mark->granted = true;
    *sim->schedule.turns_tail = op;
    sim->schedule.turns_tail = &op->next_turn;
}

/* Grants one turn on the way to the stream's next operation. */
static void grant_toward_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    while (!is_ready(stream))
        stream = stream->undecided->mark->stream;
    grant_locked(sim, stream);
}

void spw__sim_schedule_force_locked(struct CUctx_st *sim, struct spw__sim_op *op)
{
    while (!op->granted)
        grant_toward_locked(sim, op->stream);
}

void spw__sim_schedule_force_stream_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    while (stream->undecided)
        grant_toward_locked(sim, stream);
}

/* Grants a turn to the oldest operation that can have one; false: there is none. */
static bool help_oldest_locked(struct CUctx_st *sim)
{
    struct CUstream_st *oldest = NULL;
    for (struct CUstream_st *stream = sim->streams; stream; stream = stream->next)
        if (is_ready(stream) && (!oldest || stream->undecided->seq < oldest->undecided->seq))
            oldest = stream;
    if (oldest)
        grant_locked(sim, oldest);
    return oldest != NULL;
}

static struct CUstream_st *any_ready_locked(struct CUctx_st *sim)
{
    uint64_t n = 0;
    for (const struct CUstream_st *stream = sim->streams; stream; stream = stream->next)
        n += is_ready(stream);
    if (n == 0)
        return NULL;
    n = spw__sim_draw_locked(sim, n);
    for (struct CUstream_st *stream = sim->streams;; stream = stream->next)
        if (is_ready(stream) && n-- == 0)
            return stream;
}

/* A burst stays with its stream for a while: a whole copy comes early more often than a piece of each. */
static void draw_burst_locked(struct CUctx_st *sim)
{
    const struct spw__sim_schedule *schedule = &sim->schedule;
    if (schedule->eagerness == 0 || spw__sim_draw_locked(sim, schedule->eagerness) != 0)
        return;
    struct CUstream_st *stream = NULL;
    for (uint64_t left = 1 + spw__sim_draw_locked(sim, schedule->burst_max); left > 0; left--) {
        if (!stream || !is_ready(stream) || spw__sim_draw_locked(sim, 4) == 0)
            stream = any_ready_locked(sim);
        if (!stream)
            return;
        grant_locked(sim, stream);
    }
}

/* The first in the order granted that can start: functions that lost the turn hold their own streams up only. */
static struct spw__sim_op *take_turn_locked(struct spw__sim_schedule *schedule)
{
    for (struct spw__sim_op **link = &schedule->turns; *link; link = &(*link)->next_turn) {
        struct spw__sim_op *op = *link;
        if (op != op->stream->head || (op->kind == SPW__SIM_WAIT && !op->mark->done))
            continue;
        *link = op->next_turn;
        if (!*link)
            schedule->turns_tail = link;
        return op;
    }
    return NULL;
}

static void start_locked(struct CUctx_st *sim, struct spw__sim_op *op)
{
    if (op->kind == SPW__SIM_SIGNAL || op->kind == SPW__SIM_WAIT) {
        spw__sim_complete_locked(sim, op->stream);
        return;
    }
    sim->schedule.holder = op;
    sim->schedule.held_since_ns = spw__clock_monotonic_ns();
    op->stream->turn = op;
    spw__cond_signal(&op->stream->work);
}

void spw__sim_schedule_pump_locked(struct CUctx_st *sim)
{
    struct spw__sim_schedule *schedule = &sim->schedule;
    const struct spw__sim_op *holder = schedule->holder;
    struct spw__sim_op *op;
    if (holder && holder->kind == SPW__SIM_FUNCTION &&
        spw__clock_monotonic_ns() - schedule->held_since_ns >= STALL_NS) {
        schedule->holder = NULL;
        schedule->n_long++;
    }
    while (!schedule->holder && (op = take_turn_locked(schedule)) != NULL)
        start_locked(sim, op);
}

void spw__sim_schedule_ended_locked(struct CUctx_st *sim, struct spw__sim_op *op)
{
    struct spw__sim_schedule *schedule = &sim->schedule;
    op->stream->turn = NULL;
    if (schedule->holder == op)
        schedule->holder = NULL;
    else
        schedule->n_long--;
    schedule->progress_ns = spw__clock_monotonic_ns();
}

void spw__sim_schedule_stalled_locked(struct CUctx_st *sim)
{
    struct spw__sim_schedule *schedule = &sim->schedule;
    const uint64_t now = spw__clock_monotonic_ns();
    spw__sim_schedule_pump_locked(sim);
    if (schedule->holder || schedule->n_long == 0 || now - schedule->progress_ns < STALL_NS)
        return;
    schedule->progress_ns = now;
    (void)help_oldest_locked(sim);
    spw__sim_schedule_pump_locked(sim);
}

void spw__sim_schedule_idle_locked(struct CUctx_st *sim)
{
    spw__sim_schedule_stalled_locked(sim);
    if (spw__clock_monotonic_ns() - sim->schedule.called_ns < IDLE_NS)
        return;
    while (help_oldest_locked(sim)) {
    }
    spw__sim_schedule_pump_locked(sim);
}

/* Lets the copies that were granted happen. */
static void settle_locked(struct CUctx_st *sim)
{
    spw__sim_schedule_stalled_locked(sim);
    while (sim->schedule.holder && sim->schedule.holder->kind == SPW__SIM_COPY)
        (void)spw__cond_wait(&sim->progress, &sim->lock, -1);
}

static void count_call_locked(struct CUctx_st *sim)
{
    if (++sim->schedule.calls % HELP_CALLS == 0)
        (void)help_oldest_locked(sim);
    draw_burst_locked(sim);
}

void spw__sim_schedule_called_locked(struct CUctx_st *sim)
{
    sim->schedule.called_ns = spw__clock_monotonic_ns();
    count_call_locked(sim);
    settle_locked(sim);
}

/* How often a record is asked for after it was granted depends on how long functions run: nothing is drawn then. */
void spw__sim_schedule_queried_locked(struct CUctx_st *sim, struct spw__sim_mark *mark)
{
    sim->schedule.called_ns = spw__clock_monotonic_ns();
    if (!mark->granted) {
        if (!mark->asked)
            mark->patience = (unsigned)spw__sim_draw_locked(sim, sim->schedule.patience_max + UINT64_C(1));
        mark->asked = true;
        count_call_locked(sim);
        if (mark->patience > 0)
            mark->patience--;
        else
            while (!mark->granted)
                grant_toward_locked(sim, mark->stream);
    }
    settle_locked(sim);
}
