/* Copies at the model's pace: three engines, each serving one copy after another in the order in which the streams make
 * them ready. Neighbours: sim_model.c (the arithmetic), sim_run.c (the streams' threads, which are what waits here).
 *
 * The bytes are copied at the beginning of the copy's time, the rest of it is slept. All times are the model's: a copy
 * is ready when the model says that the stream's work before it ended, not when a thread woke up, so that lateness of
 * wake-ups does not add up. Where the machine copies more slowly than the model, the model cannot be kept to: that is
 * counted, and said once it is no accident any more.
 */
#include <string.h>
#include <sys/prctl.h>

#include "pool/base/clock.h"
#include "pool/device/sim.h"

#define TIMER_SLACK_NS 1000ul

/* Fewer are late because memory was touched for the first time, or a thread had to wait for a processor. */
enum { LATE_SAID = 8 };

void spw__sim_pacing_init(struct CUctx_st *sim, const struct spw__sim_config *config)
{
    const struct spw__sim_model *model = &config->model;
    struct spw__sim_pacing *pacing = &sim->pacing;
    pacing->log = config->log;
    pacing->on =
        !spw__sim_schedule_is_on(sim) && (model->h2d_bytes_per_s || model->d2h_bytes_per_s || model->d2d_bytes_per_s ||
                                          model->duplex_bytes_per_s || model->latency_ns);
    spw__sim_link_init(&pacing->link, model, spw__clock_monotonic_ns());
}

void spw__sim_pacing_finish(const struct CUctx_st *sim)
{
    const struct spw__sim_pacing *pacing = &sim->pacing;
    if (pacing->copies)
        spw__logf(pacing->log, SPW__LOG_INFO,
                  "simulated device %d: %llu of %llu copies took longer than the model's time", sim->ordinal,
                  (unsigned long long)pacing->late, (unsigned long long)pacing->copies);
}

/* The default slack of 50 us would be a good part of a small copy's time. */
void spw__sim_pacing_enter_worker(const struct CUctx_st *sim)
{
    if (sim->pacing.on)
        (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
}

/* The stream's copy is first in its engine's line when this returns. */
static void line_up_locked(struct CUctx_st *sim, struct CUstream_st *stream, enum spw__sim_engine engine)
{
    struct CUstream_st **link = &sim->pacing.lines[engine];
    stream->behind = NULL;
    while (*link)
        link = &(*link)->behind;
    *link = stream;
    while (sim->pacing.lines[engine] != stream)
        (void)spw__cond_wait(&stream->work, &sim->lock, -1);
}

static void wake_locked(struct CUstream_st *stream)
{
    if (stream)
        spw__cond_signal(&stream->work);
}

/* What a copy to or from the device begins or ends, the one in the other direction ends earlier or later by. */
static void wake_other_locked(struct CUctx_st *sim, enum spw__sim_engine engine)
{
    if (engine != SPW__SIM_D2D)
        wake_locked(sim->pacing.lines[engine == SPW__SIM_H2D ? SPW__SIM_D2H : SPW__SIM_H2D]);
}

static void wait_until_due_locked(struct CUctx_st *sim, struct CUstream_st *stream, enum spw__sim_engine engine)
{
    struct spw__sim_link *link = &sim->pacing.link;
    spw__sim_link_advance(link, spw__clock_monotonic_ns());
    while (spw__sim_link_is_busy(link, engine)) {
        const uint64_t due_ns = spw__sim_link_due_ns(link, engine), now_ns = spw__clock_monotonic_ns();
        if (due_ns > now_ns)
            (void)spw__cond_wait(&stream->work, &sim->lock, (long long)(due_ns - now_ns));
        spw__sim_link_advance(link, spw__clock_monotonic_ns());
    }
}

/* took_ns is the machine's time for the copy's bytes, model_ns the whole copy's. */
static void judge(struct CUctx_st *sim, uint64_t bytes, uint64_t took_ns, uint64_t model_ns)
{
    struct spw__sim_pacing *pacing = &sim->pacing;
    pacing->copies++;
    if (took_ns <= model_ns || ++pacing->late != LATE_SAID)
        return;
    spw__mutex_unlock(&sim->lock);
    spw__logf(pacing->log, SPW__LOG_WARN,
              "simulated device %d: %llu bytes are copied in %.3f ms by this machine and in %.3f ms in the model: the "
              "model's times cannot be met; a larger scale makes them longer",
              sim->ordinal, (unsigned long long)bytes, (double)took_ns / 1e6, (double)model_ns / 1e6);
    spw__mutex_lock(&sim->lock);
}

void spw__sim_pace_copy_locked(struct CUctx_st *sim, struct CUstream_st *stream, const struct spw__sim_op *op)
{
    struct spw__sim_link *link = &sim->pacing.link;
    line_up_locked(sim, stream, op->engine);
    const uint64_t ready_ns = stream->at_ns > op->enqueued_ns ? stream->at_ns : op->enqueued_ns;
    const uint64_t free_ns = link->lanes[op->engine].free_ns;
    const uint64_t start_ns = ready_ns > free_ns ? ready_ns : free_ns;
    spw__sim_link_start(link, op->engine, ready_ns, op->bytes);
    wake_other_locked(sim, op->engine);
    const bool lost = sim->sticky != SPW__CU_SUCCESS; /* while it was in line */
    sim->copying++;
    spw__mutex_unlock(&sim->lock);
    const uint64_t before_ns = spw__clock_monotonic_ns();
    if (!lost)
        memcpy(op->dst, op->src, op->bytes);
    const uint64_t took_ns = spw__clock_monotonic_ns() - before_ns;
    spw__mutex_lock(&sim->lock);
    sim->copying--;
    spw__cond_broadcast(&sim->progress);
    wait_until_due_locked(sim, stream, op->engine);
    stream->at_ns = link->lanes[op->engine].free_ns;
    sim->pacing.lines[op->engine] = stream->behind;
    wake_locked(sim->pacing.lines[op->engine]);
    wake_other_locked(sim, op->engine);
    judge(sim, op->bytes, took_ns, stream->at_ns - start_ns);
}
