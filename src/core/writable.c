/* make_writable: the sole owner of content gets it back for writing, anybody else a copy. Neighbours: map.c, admit.c. */
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/map.h"

#include "pool/base/error.h"
#include "spill/copy.h"

/* A pinned payload with no move in flight belongs to its pins alone: content on disk is a copy, and may go. */
static int unseal_pinned(struct spw__payload *payload)
{
    struct spw_manager *manager = payload->manager;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        const int rc = spw__payload_await_piece(piece);
        if (rc != SPW_OK)
            return rc;
        spw__mutex_lock(&payload->lock);
        const struct spw__extent copy = piece->disk;
        piece->disk = (struct spw__extent){.bytes = 0};
        spw__mutex_unlock(&payload->lock);
        if (copy.bytes)
            spw__store_free(manager->store, &copy);
    }
    spw__mutex_lock(&payload->lock);
    payload->sealed = false;
    spw__mutex_unlock(&payload->lock);
    return SPW_OK;
}

static int copy_bytes(spw_manager *manager, const spw_view *from, const spw_view *to)
{
    if (from->place != SPW_DEVICE) {
        spw__copy_streaming(to->data, from->data, from->size);
        return SPW_OK;
    }
    const int rc = spw__device_copy_within(manager->device, NULL, (uint64_t)(uintptr_t)to->data,
                                           (uint64_t)(uintptr_t)from->data, from->size);
    return rc == SPW_OK ? spw__device_synchronize(manager->device, NULL) : rc;
}

static int copy_head(const spw_buffer *from, spw_buffer *to)
{
    spw_head head;
    spw__mutex_lock(&from->payload->lock);
    const bool set = from->head != NULL;
    if (set)
        head = *from->head;
    spw__mutex_unlock(&from->payload->lock);
    return set ? spw_buffer_set_meta(to, &head) : SPW_OK;
}

/* A new buffer in the place of view, with its content, head and tag. */
static int copy_buffer(spw_buffer *buffer, const spw_view *view, const spw_alloc_options *given, spw_buffer **out)
{
    spw_view to;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    if (given)
        options = *given;
    options.tag = options.tag ? options.tag : buffer->tag;
    int rc = spw_alloc(buffer->manager, view->place, view->size, &options, out);
    if (rc != SPW_OK)
        return rc;
    rc = copy_head(buffer, *out);
    if (rc == SPW_OK)
        rc = spw_map(*out, view->place, SPW_MAP_WRITE, NULL, &to);
    if (rc == SPW_OK) {
        rc = copy_bytes(buffer->manager, view, &to);
        const int unmapped = spw_unmap(*out, &to, NULL);
        rc = rc == SPW_OK ? unmapped : rc;
    }
    if (rc != SPW_OK) {
        (void)spw_buffer_release(*out);
        *out = NULL;
    }
    return rc;
}

/* Whether the caller's is the only reference; SPW_EMAPPED when it is, and views other than ours are open: their reader
 * relies on the content, and the reference could not be given back for a copy. */
static int look_for_others(const spw_buffer *buffer, bool *sole)
{
    struct spw__payload *payload = buffer->payload;
    spw__mutex_lock(&payload->lock);
    *sole = atomic_load(&buffer->refs) == 1;
    const bool mapped = payload->views > 1;
    spw__mutex_unlock(&payload->lock);
    if (*sole && mapped)
        return spw__fail(SPW_EMAPPED, "spw_buffer_make_writable: the buffer \"%s\" is mapped; unmap it first", buffer->tag);
    return SPW_OK;
}

static int make_writable(spw_buffer **buffer, spw_place place, const spw_alloc_options *options)
{
    spw_map_options map_options;
    spw_view view;
    spw_buffer *copy = NULL;
    int rc = SPW_OK;
    spw_buffer *old = *buffer;
    spw__mutex_lock(&old->payload->lock);
    const bool sealed = old->payload->sealed;
    spw__mutex_unlock(&old->payload->lock);
    if (!sealed)
        return SPW_OK;
    spw_map_options_init(&map_options);
    if (options)
        map_options.wait = options->wait;
    const uint32_t flags = SPW_MAP_READ | SPW_MAP_HERE | (options && (options->flags & SPW_NOWAIT) ? SPW_MAP_NOWAIT : 0);
    rc = spw_map(old, place, flags, &map_options, &view);
    if (rc != SPW_OK)
        return rc;
    bool sole;
    rc = look_for_others(old, &sole);
    if (rc == SPW_OK)
        rc = sole ? unseal_pinned(old->payload) : copy_buffer(old, &view, options, &copy);
    const int unmapped = spw_unmap(old, &view, NULL);
    rc = rc == SPW_OK ? unmapped : rc;
    if (rc != SPW_OK || sole)
        return rc;
    *buffer = copy;
    return spw_buffer_release(old);
}

int spw_buffer_make_writable(spw_buffer **buffer, spw_place place, const spw_alloc_options *options)
{
    int rc = buffer ? spw__handle_check(*buffer, "spw_buffer_make_writable")
                    : spw__fail(SPW_EINVAL, "spw_buffer_make_writable: buffer is NULL");
    if (rc != SPW_OK)
        return rc;
    struct spw__waitset *waits = &(*buffer)->manager->waits;
    spw__waitset_enter(waits); /* it touches the buffer between waits: a forced destroy lets it leave first */
    rc = make_writable(buffer, place, options);
    spw__waitset_leave(waits);
    return rc;
}
