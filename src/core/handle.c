/* Handles and their chunks. Neighbours: buffer.c. */
#include "src/core/handle.h"

#include <string.h>

#include "pool/base/error.h"
#include "src/core/manager.h"

enum { HANDLES_PER_CHUNK = 128 };

struct spw__handle_chunk {
    struct spw__handle_chunk *next;
    struct spw_buffer handles[HANDLES_PER_CHUNK];
};

static void push_free_locked(struct spw__handles *handles, spw_buffer *buffer)
{
    buffer->next_free = NULL;
    if (handles->free_first)
        handles->free_last->next_free = buffer;
    else
        handles->free_first = buffer;
    handles->free_last = buffer;
}

static spw_buffer *take_handle(spw_manager *manager)
{
    struct spw__handles *handles = &manager->handles;
    spw__mutex_lock(&handles->lock);
    if (!handles->free_first) {
        struct spw__handle_chunk *chunk = spw__meta_alloc(&manager->meta, sizeof *chunk);
        if (chunk) {
            chunk->next = handles->chunks;
            handles->chunks = chunk;
            for (unsigned i = 0; i < HANDLES_PER_CHUNK; i++)
                push_free_locked(handles, &chunk->handles[i]);
        }
    }
    spw_buffer *buffer = handles->free_first;
    if (buffer) {
        handles->free_first = buffer->next_free;
        handles->live++;
    }
    spw__mutex_unlock(&handles->lock);
    return buffer;
}

int spw__handle_create(spw_manager *manager, struct spw__payload *payload, const char *tag, spw_buffer **out)
{
    spw_buffer *buffer = take_handle(manager);
    *out = buffer;
    if (!buffer)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a handle; raise meta=");
    buffer->manager = manager;
    buffer->payload = payload;
    memset(buffer->tag, 0, sizeof buffer->tag);
    if (tag)
        memcpy(buffer->tag, tag, strnlen(tag, SPW__TAG_BYTES - 1));
    atomic_store_explicit(&buffer->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&buffer->magic, SPW__HANDLE_LIVE, memory_order_release);
    return SPW_OK;
}

void spw__handle_destroy(spw_buffer *buffer)
{
    struct spw__handles *handles = &buffer->manager->handles;
    spw__meta_free(&buffer->manager->meta, buffer->head, sizeof *buffer->head);
    buffer->head = NULL;
    buffer->payload = NULL;
    atomic_store_explicit(&buffer->magic, SPW__HANDLE_DEAD, memory_order_release);
    spw__mutex_lock(&handles->lock);
    push_free_locked(handles, buffer);
    handles->live--;
    spw__mutex_unlock(&handles->lock);
}

void spw__handles_visit(spw_manager *manager, bool (*visit)(spw_buffer *buffer, void *arg), void *arg)
{
    for (struct spw__handle_chunk *chunk = manager->handles.chunks; chunk; chunk = chunk->next)
        for (unsigned i = 0; i < HANDLES_PER_CHUNK; i++)
            if (atomic_load(&chunk->handles[i].magic) == SPW__HANDLE_LIVE && !visit(&chunk->handles[i], arg))
                return;
}

void spw__handles_finish(spw_manager *manager)
{
    while (manager->handles.chunks) {
        struct spw__handle_chunk *chunk = manager->handles.chunks;
        manager->handles.chunks = chunk->next;
        spw__meta_free(&manager->meta, chunk, sizeof *chunk);
    }
    spw__mutex_finish(&manager->handles.lock);
}

int spw__handle_check(const spw_buffer *buffer, const char *call)
{
    if (!buffer)
        return spw__fail(SPW_EBADHANDLE, "%s: buffer is NULL", call);
    const uint64_t magic = atomic_load(&buffer->magic);
    if (magic == SPW__HANDLE_LIVE)
        return spw__check_process(buffer->manager);
    return spw__fail(SPW_EBADHANDLE, magic == SPW__HANDLE_DEAD ? "%s: the buffer was released already"
                                                               : "%s: not a buffer of this library", call);
}
