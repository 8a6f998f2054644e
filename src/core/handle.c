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

static bool provide_locked(spw_manager *manager)
{
    struct spw__handles *handles = &manager->handles;
    if (handles->free_first)
        return true;
    struct spw__handle_chunk *chunk = spw__meta_alloc(&manager->meta, sizeof *chunk);
    if (!chunk)
        return false;
    chunk->next = handles->chunks;
    handles->chunks = chunk;
    for (unsigned i = 0; i < HANDLES_PER_CHUNK; i++)
        push_free_locked(handles, &chunk->handles[i]);
    return true;
}

int spw__handle_create(spw_manager *manager, struct spw__payload *payload, const char *tag, spw_buffer **out)
{
    struct spw__handles *handles = &manager->handles;
    *out = NULL;
    spw__mutex_lock(&handles->lock); /* until it is live: who looks for payloads finds none by half */
    if (provide_locked(manager)) {
        spw_buffer *buffer = handles->free_first;
        handles->free_first = buffer->next_free;
        handles->live++;
        buffer->manager = manager;
        buffer->payload = payload;
        memset(buffer->tag, 0, sizeof buffer->tag);
        if (tag)
            memcpy(buffer->tag, tag, strnlen(tag, SPW__TAG_BYTES - 1));
        atomic_store_explicit(&buffer->refs, 1, memory_order_relaxed);
        atomic_store_explicit(&buffer->magic, SPW__HANDLE_LIVE, memory_order_release);
        *out = buffer;
    }
    spw__mutex_unlock(&handles->lock);
    return *out ? SPW_OK : spw__fail(SPW_ENOMETA, "no metadata memory for a handle; raise meta=");
}

void spw__handle_destroy(spw_buffer *buffer)
{
    struct spw__handles *handles = &buffer->manager->handles;
    spw__meta_free(&buffer->manager->meta, buffer->head, sizeof *buffer->head);
    spw__mutex_lock(&handles->lock);
    buffer->head = NULL;
    buffer->payload = NULL;
    atomic_store_explicit(&buffer->magic, SPW__HANDLE_DEAD, memory_order_release);
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

void spw__handles_look(spw_manager *manager, bool (*visit)(const spw_buffer *buffer, void *arg), void *arg)
{
    bool more = true;
    spw__mutex_lock(&manager->handles.lock);
    for (struct spw__handle_chunk *chunk = manager->handles.chunks; chunk && more; chunk = chunk->next)
        for (unsigned i = 0; i < HANDLES_PER_CHUNK && more; i++)
            if (atomic_load(&chunk->handles[i].magic) == SPW__HANDLE_LIVE)
                more = visit(&chunk->handles[i], arg);
    spw__mutex_unlock(&manager->handles.lock);
}

unsigned spw__handles_take(spw_manager *manager, struct spw__handles_cursor *cursor, const struct spw__group *group,
                           struct spw__payload **out, unsigned max)
{
    unsigned n = 0;
    spw__mutex_lock(&manager->handles.lock);
    if (!cursor->begun)
        *cursor = (struct spw__handles_cursor){.chunk = manager->handles.chunks, .begun = true};
    while (cursor->chunk && n < max) {
        if (cursor->at == HANDLES_PER_CHUNK) {
            *cursor = (struct spw__handles_cursor){.chunk = cursor->chunk->next, .begun = true};
            continue;
        }
        const spw_buffer *buffer = &cursor->chunk->handles[cursor->at++];
        if (atomic_load(&buffer->magic) == SPW__HANDLE_LIVE && spw__group_is_below(buffer->payload->group, group) &&
            spw__payload_try_ref(buffer->payload))
            out[n++] = buffer->payload;
    }
    spw__mutex_unlock(&manager->handles.lock);
    return n;
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

int spw__handle_name(int rc, const char *tag)
{
    switch (rc) {
    case SPW_EDEVICE:
    case SPW_ECORRUPT:
    case SPW_EIO:
    case SPW_ESEALED:
    case SPW_EMAPPED:
    case SPW_EWRONGTIER:
    case SPW_EAGAIN:
    case SPW_ETIMEDOUT:
    case SPW_ECANCELED: break;
    default: return rc;
    }
    const spw_error_info why = *spw_error_detail();
    return spw__fail_info(&why, rc, "buffer \"%s\": %s", tag, why.message);
}
