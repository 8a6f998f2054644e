/* What runs a simulated device's operations: a thread per stream. Neighbours: sim_stream.c queues the operations,
 * sim_schedule.c says with a seed which one runs next; without one each thread runs its stream's as they come, and
 * sim_engine.c paces the copies of a modelled device.
 *
 *     operation: queued --(the thread: at the head, and with a seed when its turn has come)--> running
 *                running --spw__sim_complete_locked--> freed
 *     mark:      made by event_record --(its SIGNAL operation)--> done
 *
 * With a seed, SIGNAL and WAIT need no thread: the schedule completes them where their turns come.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/base/thread.h"
#include "pool/device/sim.h"

static _Thread_local struct CUctx_st *function_of; /* the device whose function the thread is running */

bool spw__sim_in_function(void)
{
    return function_of != NULL;
}

void *spw__sim_translate(uint64_t address, uint64_t bytes)
{
    struct CUctx_st *sim = function_of;
    if (!sim)
        return NULL;
    spw__mutex_lock(&sim->lock);
    void *bytes_at = spw__sim_translate_locked(sim, address, bytes);
    spw__mutex_unlock(&sim->lock);
    return bytes_at;
}

void spw__sim_put_mark_locked(struct spw__sim_mark *mark)
{
    if (mark && --mark->refs == 0)
        free(mark);
}

void spw__sim_complete_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    struct spw__sim_op *op = stream->head;
    if (op->kind == SPW__SIM_SIGNAL) {
        op->mark->done = true;
        op->mark->done_ns = stream->at_ns;
    }
    stream->head = op->next;
    if (!stream->head)
        stream->tail = &stream->head;
    stream->completed++;
    spw__sim_put_mark_locked(op->mark);
    free(op);
    if (stream->closing)
        spw__cond_signal(&stream->work);
    spw__cond_broadcast(&sim->progress);
}

void spw__sim_wait_locked(struct CUctx_st *sim)
{
    if (!spw__sim_schedule_is_on(sim))
        (void)spw__cond_wait(&sim->progress, &sim->lock, -1);
    else if (spw__cond_wait(&sim->progress, &sim->lock, spw__sim_schedule_stall_ns()) != 0)
        spw__sim_schedule_stalled_locked(sim);
}

static void run_unlocked(struct CUctx_st *sim, struct CUstream_st *stream, const struct spw__sim_op *op)
{
    sim->copying += op->kind == SPW__SIM_COPY;
    spw__mutex_unlock(&sim->lock);
    if (op->kind == SPW__SIM_COPY) {
        memcpy(op->dst, op->src, op->bytes);
    } else {
        function_of = sim;
        op->fn(op->arg);
        function_of = NULL;
    }
    const uint64_t now_ns = sim->pacing.on ? spw__clock_monotonic_ns() : 0;
    spw__mutex_lock(&sim->lock);
    sim->copying -= op->kind == SPW__SIM_COPY;
    stream->at_ns = now_ns;
}

static void wait_for_mark_locked(struct CUctx_st *sim, struct CUstream_st *stream, const struct spw__sim_mark *mark)
{
    while (!mark->done)
        spw__sim_wait_locked(sim);
    if (mark->done_ns > stream->at_ns)
        stream->at_ns = mark->done_ns;
}

static void run_locked(struct CUctx_st *sim, struct CUstream_st *stream, const struct spw__sim_op *op)
{
    if (op->kind == SPW__SIM_WAIT)
        wait_for_mark_locked(sim, stream, op->mark);
    if (op->kind == SPW__SIM_WAIT || op->kind == SPW__SIM_SIGNAL || sim->sticky != SPW__CU_SUCCESS)
        return; /* a broken device moves nothing any more, and calls nobody */
    stream->running = true;
    if (op->kind == SPW__SIM_COPY && sim->pacing.on)
        spw__sim_pace_copy_locked(sim, stream, op);
    else
        run_unlocked(sim, stream, op);
    stream->running = false;
}

/* The operation that the thread is to run now; NULL: the stream ends. */
static struct spw__sim_op *next_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    const bool scheduled = spw__sim_schedule_is_on(sim);
    for (;;) {
        struct spw__sim_op *op = scheduled ? stream->turn : stream->head;
        if (op || (stream->closing && !stream->head))
            return op;
        const long long timeout_ns = stream->head ? spw__sim_schedule_idle_ns() : -1;
        if (spw__cond_wait(&stream->work, &sim->lock, timeout_ns) != 0)
            spw__sim_schedule_idle_locked(sim);
    }
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;
    struct CUctx_st *sim = stream->sim;
    struct spw__sim_op *op;
    spw__sim_pacing_enter_worker(sim);
    spw__mutex_lock(&sim->lock);
    while ((op = next_locked(sim, stream)) != NULL) {
        run_locked(sim, stream, op);
        if (spw__sim_schedule_is_on(sim))
            spw__sim_schedule_ended_locked(sim, op);
        spw__sim_complete_locked(sim, stream);
        if (spw__sim_schedule_is_on(sim))
            spw__sim_schedule_pump_locked(sim);
    }
    spw__mutex_unlock(&sim->lock);
    return NULL;
}

int spw__sim_start_worker(struct CUstream_st *stream)
{
    return spw__thread_create(&stream->thread, stream_main, stream);
}
