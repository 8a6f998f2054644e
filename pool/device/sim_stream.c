/* Streams of a simulated device, and what is enqueued on them: copies and launched functions. Neighbours: sim_event.c
 * (events), sim_run.c (the thread of each stream), sim_schedule.c (the order that a seed gives).
 *
 * A stream is a queue and a thread: nothing needs to have happened when an enqueueing call returns, whatever the host
 * memory is.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/device/sim.h"

static spw__cu_result start_stream_locked(struct CUctx_st *sim, struct CUstream_st **out)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    stream->sim = sim;
    stream->tail = &stream->head;
    spw__cond_init(&stream->work);
    if (spw__sim_start_worker(stream) != 0) {
        spw__cond_finish(&stream->work);
        free(stream);
        return SPW__CU_ERROR_OPERATING_SYSTEM;
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

spw__cu_result spw__sim_resolve_locked(struct CUctx_st *sim, struct CUstream_st **stream)
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

void spw__sim_enqueue_locked(struct CUstream_st *stream, struct spw__sim_op *op)
{
    op->stream = stream;
    op->seq = ++stream->sim->ops;
    if (stream->sim->pacing.on)
        op->enqueued_ns = spw__clock_monotonic_ns();
    *stream->tail = op;
    stream->tail = &op->next;
    if (spw__sim_schedule_is_on(stream->sim) && !stream->undecided)
        stream->undecided = op;
    stream->enqueued++;
    spw__cond_signal(&stream->work);
}

void spw__sim_called_locked(struct CUctx_st *sim)
{
    if (spw__sim_schedule_is_on(sim))
        spw__sim_schedule_called_locked(sim);
}

/* Sees to it that all that is on the stream is run, now or soon. */
static void hurry_locked(struct CUctx_st *sim, struct CUstream_st *stream)
{
    if (!spw__sim_schedule_is_on(sim))
        return;
    spw__sim_schedule_force_stream_locked(sim, stream);
    spw__sim_schedule_pump_locked(sim);
}

/* Runs what is queued, ends the thread and frees the stream, which nobody else may use any more. */
static void end_stream(struct CUctx_st *sim, struct CUstream_st *stream)
{
    spw__mutex_lock(&sim->lock);
    stream->closing = true;
    hurry_locked(sim, stream);
    while (stream->head)
        spw__sim_wait_locked(sim);
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

/* What a function touches is not known: it uses everything. */
static bool uses(const struct spw__sim_op *op, const void *start, uint64_t bytes)
{
    return op->kind == SPW__SIM_FUNCTION || (op->kind == SPW__SIM_COPY && (overlaps(op->dst, op->bytes, start, bytes) ||
                                                                           overlaps(op->src, op->bytes, start, bytes)));
}

/* The stream's latest operation up to the device's until-th that uses the memory, NULL: none does. */
static struct spw__sim_op *last_use_locked(const struct CUstream_st *stream, uint64_t until, const void *start,
                                           uint64_t bytes)
{
    struct spw__sim_op *last = NULL;
    for (struct spw__sim_op *op = stream->head; op && op->seq <= until; op = op->next)
        if (uses(op, start, bytes))
            last = op;
    return last;
}

static bool in_use_locked(const struct CUctx_st *sim, uint64_t until, const void *start, uint64_t bytes)
{
    for (const struct CUstream_st *stream = sim->streams; stream; stream = stream->next)
        if (last_use_locked(stream, until, start, bytes))
            return true;
    return false;
}

void spw__sim_wait_unused_locked(struct CUctx_st *sim, const void *start, uint64_t bytes)
{
    const uint64_t until = sim->ops; /* functions that are launched meanwhile cannot have the address */
    for (struct CUstream_st *stream = sim->streams; spw__sim_schedule_is_on(sim) && stream; stream = stream->next) {
        struct spw__sim_op *last = last_use_locked(stream, until, start, bytes);
        if (last)
            spw__sim_schedule_force_locked(sim, last);
    }
    spw__sim_called_locked(sim);
    while (in_use_locked(sim, until, start, bytes))
        spw__sim_wait_locked(sim);
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
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    const bool live = is_live_locked(sim, stream);
    const spw__cu_result sticky = sim->sticky;
    spw__mutex_unlock(&sim->lock);
    if (!live)
        return SPW__CU_ERROR_INVALID_HANDLE;
    end_stream(sim, stream);
    return sticky;
}

/* After a sticky error what is queued does nothing any more, but what is under way may still touch its memory. */
static void wait_for_running(struct CUstream_st *stream)
{
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return;
    if (!stream)
        stream = sim->default_stream;
    while (stream && is_live_locked(sim, stream) && stream->running)
        spw__sim_wait_locked(sim);
    spw__mutex_unlock(&sim->lock);
}

spw__cu_result spw__sim_stream_synchronize(spw__cu_stream stream)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS) {
        wait_for_running(stream);
        return result;
    }
    result = spw__sim_resolve_locked(sim, &stream);
    if (result == SPW__CU_SUCCESS) {
        const uint64_t until = stream->enqueued;
        spw__sim_called_locked(sim);
        hurry_locked(sim, stream);
        while (stream->completed < until)
            spw__sim_wait_locked(sim);
        result = sim->sticky;
    }
    spw__mutex_unlock(&sim->lock);
    return result;
}

static struct spw__sim_op *make_copy(void *dst, const void *src, size_t bytes)
{
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->kind = SPW__SIM_COPY;
    op->dst = dst;
    op->src = src;
    op->bytes = bytes;
    return op;
}

static void free_list(struct spw__sim_op *op)
{
    while (op) {
        struct spw__sim_op *next = op->next;
        free(op);
        op = next;
    }
}

/* With a seed a copy goes in pieces, from its beginning or from its end: nobody is promised an order of bytes. The list
 * is NULL if there is no memory for all of it. */
static struct spw__sim_op *make_pieces_locked(struct CUctx_st *sim, char *dst, const char *src, size_t bytes)
{
    const bool backwards = spw__sim_draw_locked(sim, 2) != 0;
    struct spw__sim_op *first = NULL, **tail = &first;
    for (size_t done = 0; done < bytes; tail = &(*tail)->next) {
        const size_t piece = spw__sim_schedule_piece_locked(sim, bytes - done);
        const size_t at = backwards ? bytes - done - piece : done;
        *tail = make_copy(dst + at, src + at, piece);
        if (!*tail) {
            free_list(first);
            return NULL;
        }
        done += piece;
    }
    return first;
}

spw__cu_result spw__sim_copy_locked(struct CUctx_st *sim, struct CUstream_st *stream, enum spw__sim_engine engine,
                                    void *dst, const void *src, size_t bytes)
{
    spw__cu_result result = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_COPY);
    if (result == SPW__CU_SUCCESS)
        result = spw__sim_resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS || bytes == 0)
        return result;
    if (!dst || !src || overlaps(dst, bytes, src, bytes))
        return SPW__CU_ERROR_INVALID_VALUE;
    struct spw__sim_op *op =
        spw__sim_schedule_is_on(sim) ? make_pieces_locked(sim, dst, src, bytes) : make_copy(dst, src, bytes);
    if (!op)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    while (op) {
        struct spw__sim_op *next = op->next;
        op->next = NULL;
        op->engine = engine;
        spw__sim_enqueue_locked(stream, op);
        op = next;
    }
    return SPW__CU_SUCCESS;
}

/* The end of the three entry points that copy. */
static spw__cu_result copy_unlock(struct CUctx_st *sim, struct CUstream_st *stream, enum spw__sim_engine engine,
                                  void *dst, const void *src, size_t bytes)
{
    const spw__cu_result result = spw__sim_copy_locked(sim, stream, engine, dst, src, bytes);
    if (result == SPW__CU_SUCCESS)
        spw__sim_called_locked(sim);
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_memcpy_h_to_d_async(spw__cu_deviceptr dst, const void *src, size_t bytes, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    const spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    return copy_unlock(sim, stream, SPW__SIM_H2D, spw__sim_translate_locked(sim, dst, bytes),
                       spw__sim_is_host_locked(sim, src, bytes) ? src : NULL, bytes);
}

spw__cu_result spw__sim_memcpy_d_to_h_async(void *dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream)
{
    struct CUctx_st *sim;
    const spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    return copy_unlock(sim, stream, SPW__SIM_D2H, spw__sim_is_host_locked(sim, dst, bytes) ? dst : NULL,
                       spw__sim_translate_locked(sim, src, bytes), bytes);
}

spw__cu_result spw__sim_memcpy_d_to_d_async(spw__cu_deviceptr dst, spw__cu_deviceptr src, size_t bytes,
                                            spw__cu_stream stream)
{
    struct CUctx_st *sim;
    const spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    return copy_unlock(sim, stream, SPW__SIM_D2D, spw__sim_translate_locked(sim, dst, bytes),
                       spw__sim_translate_locked(sim, src, bytes), bytes);
}

static spw__cu_result launch_locked(struct CUctx_st *sim, struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    const spw__cu_result result = spw__sim_resolve_locked(sim, &stream);
    if (result != SPW__CU_SUCCESS)
        return result;
    struct spw__sim_op *op = calloc(1, sizeof *op);
    if (!op)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    op->kind = SPW__SIM_FUNCTION;
    op->fn = fn;
    op->arg = arg;
    spw__sim_enqueue_locked(stream, op);
    spw__sim_called_locked(sim);
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_launch(spw__cu_stream stream, void (*fn)(void *arg), void *arg)
{
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = launch_locked(sim, stream, fn, arg);
    spw__mutex_unlock(&sim->lock);
    return result;
}
