/* Streams, events and copies of a simulated device.
 *
 * A stream is a queue and a thread: nothing has happened when an enqueueing call returns, whatever the host memory is.
 * Each record of an event makes a mark; a wait holds the mark that was the event's latest when it was enqueued, so that
 * recording the event again changes nothing for it. A wait only ever refers to an earlier record, hence no cycles.
 *
 *     operation: queued --(worker: at the head)--> running --(worker)--> complete, freed
 *     mark:      made by event_record --(worker: its signal operation)--> done
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/sim.h"

static void put_mark_locked(struct spw__sim_mark *mark)
{
    if (mark && --mark->refs == 0)
        free(mark);
}

static void run_locked(struct CUctx_st *sim, const struct spw__sim_op *op)
{
    switch (op->kind) {
    case SPW__SIM_COPY:
        if (sim->sticky != SPW__CU_SUCCESS)
            break; /* a broken device moves nothing any more */
        spw__mutex_unlock(&sim->lock);
        memcpy(op->dst, op->src, op->bytes);
        spw__mutex_lock(&sim->lock);
        break;
    case SPW__SIM_SIGNAL: op->mark->done = true; break;
    case SPW__SIM_WAIT:
        while (!op->mark->done)
            (void)spw__cond_wait(&sim->progress, &sim->lock, -1);
        break;
    }
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;
    struct CUctx_st *sim = stream->sim;
    spw__mutex_lock(&sim->lock);
    for (;;) {
        while (!stream->head && !stream->closing)
            (void)spw__cond_wait(&stream->work, &sim->lock, -1);
        struct spw__sim_op *op = stream->head;
        if (!op)
            break;
        run_locked(sim, op);
        stream->head = op->next;
        if (!stream->head)
            stream->tail = &stream->head;
        stream->completed++;
        put_mark_locked(op->mark);
        free(op);
        spw__cond_broadcast(&sim->progress);
    }
    spw__mutex_unlock(&sim->lock);
    return NULL;
}

/* The thread must take no signal that is meant for the application. */
static int start_thread(struct CUstream_st *stream)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&stream->thread, NULL, stream_main, stream);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static spw__cu_result start_stream_locked(struct CUctx_st *sim, struct CUstream_st **out)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    stream->sim = sim;
    stream->tail = &stream->head;
    spw__cond_init(&stream->work);
    spw__cu_result result = spw__sim_fault_locked(sim, SPW__FAULT_THREAD);
    if (result == SPW__CU_SUCCESS && start_thread(stream) != 0)
        result = SPW__CU_ERROR_OPERATING_SYSTEM;
    if (result != SPW__CU_SUCCESS) {
        spw__cond_finish(&stream->work);
        free(stream);
        return result;
    }
    stream->next = sim->streams;
    sim->streams = stream;
    *out = stream;
    return SPW__CU_SUCCESS;
}

static bool is_live_locked(const struct CUctx_st *sim, const struct CUstream_st *stream)
{
    const struct CUstream_st *each = sim->streams;
    while (each && each != stream)
        each = each->next;
    return each && !each->closing;
}

/* Checks a stream handle; NULL becomes the default stream, started when it is first needed. */
static spw__cu_result resolve_locked(struct CUctx_st *sim, struct CUstream_st **stream)
{
    if (*stream)
        return is_live_locked(sim, *stream) ? SPW__CU_SUCCESS : SPW__CU_ERROR_INVALID_HANDLE;
    if (!sim->default_stream) {
        const spw__cu_result result = start_stream_locked(sim, &sim->default_stream);
        if (result != SPW__CU_SUCCESS)
            return result;
    }
    *stream = sim->default_stream;
    return SPW__CU_SUCCESS;
}

static void enqueue_locked(struct CUstream_st *stream, struct spw__sim_op *op)
{
    *stream->tail = op;
    stream->tail = &op->next;
    stream->enqueued++;
    spw__cond_signal(&stream->work);
}

/* Runs what is queued, ends the thread and frees the stream, which nobody else may use any more. */
static void end_stream(struct CUctx_st *sim, struct CUstream_st *stream)
{
    spw__mutex_lock(&sim->lock);
    stream->closing = true;
    spw__cond_signal(&stream->work);
    spw__mutex_unlock(&sim->lock);
    (void)pthread_join(stream->thread, NULL);
    spw__mutex_lock(&sim->lock);
    struct CUstream_st **link = &sim->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    spw__mutex_unlock(&sim->lock);
    spw__cond_finish(&stream->work);
    free(stream);
}

void spw__sim_streams_finish(struct CUctx_st *sim)
{
    while (sim->streams)
        end_stream(sim, sim->streams);
}

static bool overlaps(const void *base, size_t bytes, const char *start, uint64_t length)
{
    return (uintptr_t)base < (uintptr_t)start + length && (uintptr_t)start < (uintptr_t)base + bytes;
}

bool spw__sim_in_use_locked(const struct CUctx_st *sim, const char *start, uint64_t bytes)
{
    for (const struct CUstream_st *stream = sim->streams; stream; stream = stream->next)
        for (const struct spw__sim_op *op = stream->head; op; op = op->next)
            if (op->kind == SPW__SIM_COPY &&
                (overlaps(op->dst, op->bytes, start, bytes) || overlaps(op->src, op->bytes, start, bytes)))
                return true;
    return false;
}

spw__cu_result spw__sim_stream_create(spw__cu_stream *stream, unsigned flags)
{
    struct CUctx_st *sim;
    if (flags & ~(unsigned)SPW__CU_STREAM_NON_BLOCKING)
        return SPW__CU_ERROR_INVALID_VALUE;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = start_stream_locked(sim, stream);
    spw__mutex_unlock(&sim->lock);
    return result;
}

/* Ends the stream even after a sticky error. */
spw__cu_result spw__sim_stream_destroy(spw__cu_stream stream)
{
    struct CUctx_st *sim;
    if (spw__sim_ctx_get_current(&sim) != SPW__CU_SUCCESS || !sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    spw__mutex_lock(&sim->lock);
    const bool live = is_live_locked(sim, stream);
    const spw__cu_result sticky = sim->sticky;
    spw__mutex_unlock(&sim->lock);
    if (!live)
        return SPW__CU_ERROR_INVALID_HANDLE;
    end_stream(sim, stream);
    return sticky;
}

spw__cu_result spw__sim_stream_synchronize(spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = resolve_locked(sim, &stream);
    if (result == SPW__CU_SUCCESS) {
        const uint64_t until = stream->enqueued;
        while (stream->completed < until)
            (void)spw__cond_wait(&sim->progress, &sim->lock, -1);
        result = sim->sticky;
    }
    spw__mutex_unlock(&sim->lock);
    return result;
}

/* Device operands were translated by the caller: NULL means they are not inside one live allocation. */
static spw__cu_result copy_locked(struct CUctx_st *sim, struct CUstream_st *stream, void *dst, const void *src,
                                  size_t bytes)
{
    spw__cu_result result = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_COPY);
    if (result == SPW__CU_SUCCESS)
        result = resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS || bytes == 0)
        return result;
    if (!dst || !src || overlaps(dst, bytes, src, bytes))
        return SPW__CU_ERROR_INVALID_VALUE;
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!op)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    *op = (struct spw__sim_op){.kind = SPW__SIM_COPY, .dst = dst, .src = src, .bytes = bytes};
    enqueue_locked(stream, op);
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_memcpy_h_to_d_async(spw__cu_deviceptr dst, const void *src, size_t bytes, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = copy_locked(sim, stream, spw__sim_translate_locked(sim, dst, bytes),
                         spw__sim_is_host_locked(sim, src, bytes) ? src : NULL, bytes);
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_memcpy_d_to_h_async(void *dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = copy_locked(sim, stream, spw__sim_is_host_locked(sim, dst, bytes) ? dst : NULL,
                         spw__sim_translate_locked(sim, src, bytes), bytes);
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_memcpy_d_to_d_async(spw__cu_deviceptr dst, spw__cu_deviceptr src, size_t bytes,
                                            spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = copy_locked(sim, stream, spw__sim_translate_locked(sim, dst, bytes),
                         spw__sim_translate_locked(sim, src, bytes), bytes);
    spw__mutex_unlock(&sim->lock);
    return result;
}

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
    *out = event;
    return SPW__CU_SUCCESS;
}

/* The event may be pending: what waits for it has the mark. Frees even after a sticky error. */
spw__cu_result spw__sim_event_destroy(spw__cu_event event)
{
    if (!event)
        return SPW__CU_ERROR_INVALID_HANDLE;
    struct CUctx_st *sim = event->sim;
    spw__mutex_lock(&sim->lock);
    const spw__cu_result sticky = sim->sticky;
    put_mark_locked(event->mark);
    spw__mutex_unlock(&sim->lock);
    free(event);
    return sticky;
}

static spw__cu_result record_locked(struct CUctx_st *sim, struct CUevent_st *event, struct CUstream_st *stream)
{
    const spw__cu_result result = resolve_locked(sim, &stream);
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
    put_mark_locked(event->mark);
    event->mark = mark;
    op->kind = SPW__SIM_SIGNAL;
    op->mark = mark;
    enqueue_locked(stream, op);
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
    const spw__cu_result result = resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS || !event->mark || event->mark->done)
        return result;
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!op)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    op->kind = SPW__SIM_WAIT;
    op->mark = event->mark;
    op->mark->refs++;
    enqueue_locked(stream, op);
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
    if (result == SPW__CU_SUCCESS && event->mark && !event->mark->done)
        result = SPW__CU_ERROR_NOT_READY;
    spw__mutex_unlock(&sim->lock);
    return result;
}
