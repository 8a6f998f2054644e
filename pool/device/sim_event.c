/* Events of a simulated device. Neighbours: sim_stream.c (the queues), sim_run.c (what completes a mark).
 *
 * Each record of an event makes a mark; a wait holds the mark that was the event's latest when it was enqueued, so that
 * recording the event again changes nothing for it. A wait only ever refers to an earlier record, hence no cycles.
 */
#include <stdlib.h>

#include "pool/device/sim.h"

struct CUevent_st {
    struct CUctx_st *sim;
    struct spw__sim_mark *mark; /* of the latest record, NULL: never recorded; one reference; guarded by sim->lock */
};

spw__cu_result spw__sim_event_create(spw__cu_event *out, unsigned flags)
{
    struct CUctx_st *sim;
    (void)flags; /* no timing here at all */
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    spw__mutex_unlock(&sim->lock);
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (!event)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    event->sim = sim;
    (void)atomic_fetch_add(&sim->events, 1);
    *out = event;
    return SPW__CU_SUCCESS;
}

/* The event may be pending: what waits for it has the mark. Frees even after a sticky error. */
spw__cu_result spw__sim_event_destroy(spw__cu_event event)
{
    if (!event)
        return SPW__CU_ERROR_INVALID_HANDLE;
    if (spw__sim_in_function())
        return SPW__CU_ERROR_NOT_PERMITTED;
    struct CUctx_st *sim = event->sim;
    spw__mutex_lock(&sim->lock);
    const spw__cu_result sticky = sim->sticky;
    spw__sim_put_mark_locked(event->mark);
    spw__mutex_unlock(&sim->lock);
    (void)atomic_fetch_sub(&sim->events, 1);
    free(event);
    return sticky;
}

static spw__cu_result record_locked(struct CUctx_st *sim, struct CUevent_st *event, struct CUstream_st *stream)
{
    const spw__cu_result result = spw__sim_resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS)
        return result;
    struct spw__sim_mark *mark = calloc(1, sizeof *mark);
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!mark || !op) {
        free(mark);
        free(op);
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    }
    mark->refs = 2;
    mark->stream = stream;
    spw__sim_put_mark_locked(event->mark);
    event->mark = mark;
    op->kind = SPW__SIM_SIGNAL;
    op->mark = mark;
    spw__sim_enqueue_locked(stream, op);
    spw__sim_called_locked(sim);
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_event_record(spw__cu_event event, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = event && event->sim == sim ? record_locked(sim, event, stream) : SPW__CU_ERROR_INVALID_HANDLE;
    spw__mutex_unlock(&sim->lock);
    return result;
}

static spw__cu_result wait_locked(struct CUctx_st *sim, struct CUevent_st *event, struct CUstream_st *stream)
{
    const spw__cu_result result = spw__sim_resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS || !event->mark || event->mark->done)
        return result;
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!op)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    op->kind = SPW__SIM_WAIT;
    op->mark = event->mark;
    op->mark->refs++;
    spw__sim_enqueue_locked(stream, op);
    spw__sim_called_locked(sim);
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_stream_wait_event(spw__cu_stream stream, spw__cu_event event, unsigned flags)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = flags == 0 && event && event->sim == sim ? wait_locked(sim, event, stream) : SPW__CU_ERROR_INVALID_HANDLE;
    spw__mutex_unlock(&sim->lock);
    return result;
}

static spw__cu_result query_locked(struct CUctx_st *sim, const struct CUevent_st *event)
{
    struct spw__sim_mark *mark = event->mark;
    if (!mark)
        return SPW__CU_SUCCESS;
    mark->refs++; /* another thread may record the event meanwhile */
    if (mark->done)
        spw__sim_called_locked(sim);
    else if (spw__sim_schedule_is_on(sim))
        spw__sim_schedule_queried_locked(sim, mark);
    const bool done = mark->done;
    spw__sim_put_mark_locked(mark);
    return done ? SPW__CU_SUCCESS : SPW__CU_ERROR_NOT_READY;
}

spw__cu_result spw__sim_event_query(spw__cu_event event)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    if (!event || event->sim != sim)
        result = SPW__CU_ERROR_INVALID_HANDLE;
    else
        result = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_EVENT);
    if (result == SPW__CU_SUCCESS)
        result = query_locked(sim, event);
    spw__mutex_unlock(&sim->lock);
    return result;
}
