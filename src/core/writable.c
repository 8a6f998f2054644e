/* make_writable: the sole owner of content gets it back for writing, anybody else a copy. Neighbours: map.c, admit.c;
 * ticket_writable.c does the same without a thread. */
#include "src/core/writable.h"

#include "src/core/group.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/map.h"
#include "src/core/pressure.h"
#include "src/core/use.h"

#include "pool/base/error.h"
#include "spill/copy.h"

void spw__writable_unseal_locked(struct spw__payload *payload)
{
    if (!payload->sealed)
        return;
    payload->sealed = payload->spillable = false;
    spw__payload_drop_disk_locked(payload); /* it would differ from now on */
}

int spw__writable_look_locked(const spw_buffer *buffer, const struct spw__payload *payload, const char *tag, bool held,
                              bool *sole)
{
    const struct spw__views *views = &payload->views;
    *sole = !payload->sealed || atomic_load(&buffer->refs) == 1;
    if (!payload->sealed || !*sole)
        return SPW_OK;
    if (views->n - views->held > (held ? 0u : 1u))
        return spw__fail(SPW_EMAPPED, "spw_buffer_make_writable: the buffer \"%s\" is mapped; unmap it first",
                         tag);
    /* A move in flight would leave a copy of the old content; a ticket that was destroyed may still read it. */
    return views->held == (held ? 1u : 0u) && spw__payload_idle_locked(payload) ? SPW_OK : SPW_EAGAIN;
}

/* Unseals the buffer if the caller's is the only reference and its view the only one: *sole says whether it is. */
static int unseal_if_sole(spw_buffer *buffer, const spw_wait_options *wait, bool *sole)
{
    struct spw__payload *payload = buffer->payload;
    const uint64_t deadline_ns = spw__deadline_ns(buffer->manager, wait);
    int rc;
    spw__mutex_lock(&payload->lock);
    while ((rc = spw__writable_look_locked(buffer, payload, buffer->tag, false, sole)) == SPW_EAGAIN) {
        rc = spw__handle_name(spw__payload_wait_unlock(payload, wait, deadline_ns), buffer->tag);
        spw__mutex_lock(&payload->lock);
        if (rc != SPW_OK)
            break;
    }
    if (rc == SPW_OK && *sole)
        spw__writable_unseal_locked(payload);
    spw__mutex_unlock(&payload->lock);
    return rc;
}

int spw__writable_charged(struct spw__payload *payload, const spw_alloc_options *options, struct spw__group **out)
{
    const int rc = spw__group_charged(payload->manager, options->group, &options->wait, "spw_buffer_make_writable",
                                      out);
    if (rc == SPW_OK && *out == &payload->manager->root)
        *out = spw__group_of(payload->group);
    return rc;
}

static int copy_bytes(spw_manager *manager, const spw_view *from, const spw_view *to)
{
    if (from->place != SPW_DEVICE) {
        spw__copy_streaming(to->data, from->data, from->size);
        return SPW_OK;
    }
    const int rc = spw__device_copy_within(manager->device, NULL, (uint64_t)(uintptr_t)to->data,
                                           (uint64_t)(uintptr_t)from->data, from->size);
    const int settled = spw__device_settle(manager->device, NULL); /* in failure too: both are about to be let go */
    return rc != SPW_OK ? rc : settled;
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
    spw_alloc_options options = *given;
    options.tag = options.tag ? options.tag : buffer->tag;
    struct spw__group *group;
    int rc = spw__writable_charged(buffer->payload, &options, &group);
    if (rc == SPW_OK)
        rc = spw__alloc_in(buffer->manager, group, view->place, view->size, &options, out);
    if (rc != SPW_OK)
        return rc;
    rc = copy_head(buffer, *out);
    if (rc == SPW_OK)
        rc = spw_map(*out, view->place, SPW_MAP_WRITE, NULL, &to);
    if (rc == SPW_OK) {
        rc = spw__handle_name(copy_bytes(buffer->manager, view, &to), buffer->tag);
        const int unmapped = spw_unmap(*out, &to, NULL);
        rc = rc == SPW_OK ? unmapped : rc;
    }
    if (rc != SPW_OK) {
        (void)spw_buffer_release(*out);
        *out = NULL;
    }
    return rc;
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
    map_options.wait = options->wait;
    const uint32_t flags = SPW_MAP_READ | SPW_MAP_HERE | ((options->flags & SPW_NOWAIT) ? SPW_MAP_NOWAIT : 0);
    rc = spw_map(old, place, flags, &map_options, &view);
    if (rc != SPW_OK)
        return rc;
    bool sole;
    rc = unseal_if_sole(old, &map_options.wait, &sole);
    if (rc == SPW_OK && !sole)
        rc = copy_buffer(old, &view, options, &copy);
    const int unmapped = spw_unmap(old, &view, NULL);
    rc = rc == SPW_OK ? unmapped : rc;
    if (rc == SPW_OK && !sole)
        rc = spw_buffer_release(old); /* fails when the others are gone, and left a view open */
    if (rc == SPW_OK && !sole)
        *buffer = copy;
    else if (copy)
        (void)spw_buffer_release(copy);
    return rc;
}

int spw_buffer_make_writable(spw_buffer **buffer, spw_place place, const spw_alloc_options *options)
{
    spw_alloc_options taken;
    int rc = buffer ? spw__handle_check(*buffer, "spw_buffer_make_writable")
                    : spw__fail(SPW_EINVAL, "spw_buffer_make_writable: buffer is NULL");
    if (rc == SPW_OK)
        rc = spw__alloc_options_take(&taken, options, "spw_buffer_make_writable: options");
    if (rc != SPW_OK)
        return rc;
    struct spw__waitset *waits = &(*buffer)->manager->waits;
    spw__waitset_enter(waits); /* it touches the buffer between waits: a forced destroy lets it leave first */
    rc = make_writable(buffer, place, &taken);
    spw__waitset_leave(waits);
    return rc;
}
