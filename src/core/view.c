/* Views: the public face of maps, and writing through one. Neighbours: map.c does the work. */
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/map.h"
#include "src/core/pressure.h"
#include "src/core/use.h"
#include "src/core/view.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"

static const spw_map_options map_defaults = {.struct_size = sizeof(spw_map_options),
                                             .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};

void spw_map_options_init_sized(spw_map_options *options, size_t size)
{
    spw__sized_give(options, size, &map_defaults);
}

#define ALL_FLAGS                                                                                                      \
    (SPW_MAP_READ | SPW_MAP_WRITE | SPW_MAP_DISCARD | SPW_MAP_NOMOVE | SPW_MAP_HERE | SPW_MAP_NOWAIT)

static int check_arguments(spw_buffer *buffer, spw_place place, uint32_t flags)
{
    if (flags & ~ALL_FLAGS || !(flags & (SPW_MAP_READ | SPW_MAP_WRITE)))
        return spw__fail(SPW_EINVAL, "spw_map: flags 0x%x: READ or WRITE must be given, and nothing unknown", flags);
    if ((flags & SPW_MAP_DISCARD) && !(flags & SPW_MAP_WRITE))
        return spw__fail(SPW_EINVAL, "spw_map: DISCARD goes with WRITE");
    return spw__check_place(buffer->manager, place, "spw_map");
}

int spw__map_check(spw_buffer *buffer, spw_place place, uint32_t flags, const spw_map_options *options,
                   spw_map_options *taken)
{
    *taken = map_defaults;
    int rc = spw__handle_check(buffer, "spw_map");
    if (rc == SPW_OK)
        rc = check_arguments(buffer, place, flags);
    if (rc == SPW_OK)
        rc = spw__sized_take(taken, SPW__SIZED_FIRST(spw_map_options, wait), options, "spw_map: options");
    if (rc == SPW_OK)
        rc = spw__check_wait(buffer->manager, &taken->wait);
    if (rc == SPW_OK)
        rc = spw__reservation_check(taken->reservation, buffer->manager, SPW_PLACE_TIER(place), SPW_PLACE_TIER(place),
                                     "spw_map");
    return rc;
}

spw_view spw__view_of(struct spw__payload *payload, const struct spw__mapped *mapped, uint32_t flags)
{
    return (spw_view){.data = (void *)(uintptr_t)mapped->address, .size = payload->size,
                      .place = SPW_PLACE(mapped->tier, 0), .flags = flags,
                      .reserved = {payload, (void *)(uintptr_t)mapped->view_id}};
}

/* Orders what will use an open view after earlier uses of the buffer, and fills it in. */
static int hand_over(struct spw__payload *payload, const struct spw__mapped *mapped, uint32_t flags,
                     const spw_map_options *options, spw_view *view)
{
    const bool write = (flags & SPW_MAP_WRITE) != 0;
    struct spw__waitset *waits = &payload->manager->waits;
    int rc = SPW_OK;
    if (mapped->used) {
        spw__waitset_enter(waits); /* a forced destroy that ends the wait lets the view be closed first */
        rc = spw__use_order(payload, write, options->stream, &options->wait);
    }
    if (rc == SPW_OK)
        *view = spw__view_of(payload, mapped, flags);
    else
        (void)spw__payload_unmap(payload, mapped->view_id, write, NULL);
    if (mapped->used)
        spw__waitset_leave(waits);
    return rc;
}

int spw_map(spw_buffer *buffer, spw_place place, uint32_t flags, const spw_map_options *options, spw_view *view)
{
    spw_map_options taken;
    struct spw__mapped mapped;
    if (!view)
        return spw__fail(SPW_EINVAL, "spw_map: view is NULL");
    *view = (spw_view){.data = NULL};
    int rc = spw__map_check(buffer, place, flags, options, &taken);
    if (rc != SPW_OK)
        return rc;
    rc = spw__payload_map(buffer->payload, place, flags, &taken, &mapped);
    if (rc == SPW_OK)
        rc = hand_over(buffer->payload, &mapped, flags, &taken, view);
    if (mapped.inside)
        spw__waitset_leave(&buffer->manager->waits);
    return spw__handle_name(rc, buffer->tag);
}

int spw_unmap(spw_buffer *buffer, spw_view *view, spw_stream *stream)
{
    const int rc = spw__handle_check(buffer, "spw_unmap");
    if (rc != SPW_OK)
        return rc;
    if (!view || view->reserved[0] != buffer->payload)
        return spw__fail(SPW_EBADHANDLE, "spw_unmap: the view is not open on the buffer \"%s\"", buffer->tag);
    const bool write = (view->flags & SPW_MAP_WRITE) != 0;
    const uint32_t view_id = (uint32_t)(uintptr_t)view->reserved[1];
    *view = (spw_view){.data = NULL};
    return spw__payload_unmap(buffer->payload, view_id, write, stream);
}

/* Where the buffer is written if it does not lie together in memory: the lowest tier, from where its lowest piece is
 * upward, that can hold it as a whole. One can, since it was made in one. */
static spw_place place_to_write(const spw_buffer *buffer)
{
    const spw_place at = spw_buffer_place(buffer);
    spw_tier tier = at == SPW_PLACE_NONE || at == SPW_DISK ? SPW_TIER_HOST : SPW_PLACE_TIER(at);
    while (tier > SPW_TIER_DEVICE && buffer->payload->size > spw__tier_of(buffer->manager, tier)->largest_request)
        tier--;
    return SPW_PLACE(tier, 0);
}

static int write_through_map(spw_buffer *buffer, size_t offset, const void *src, size_t bytes)
{
    spw_view view;
    const uint32_t flags = SPW_MAP_WRITE | SPW_MAP_HERE | (bytes == buffer->payload->size ? SPW_MAP_DISCARD : 0);
    int rc = spw_map(buffer, place_to_write(buffer), flags, NULL, &view);
    if (rc != SPW_OK)
        return rc;
    if (view.place == SPW_DEVICE) {
        struct spw__device *device = buffer->manager->device;
        rc = spw__device_copy_to(device, NULL, (uint64_t)(uintptr_t)view.data + offset, src, bytes);
        const int settled = spw__device_settle(device, NULL); /* src is the caller's again, in failure too */
        rc = spw__handle_name(rc != SPW_OK ? rc : settled, buffer->tag);
    } else {
        memcpy((char *)view.data + offset, src, bytes);
    }
    const int unmapped = spw_unmap(buffer, &view, NULL);
    return rc != SPW_OK ? rc : unmapped;
}

int spw_buffer_write(spw_buffer *buffer, size_t offset, const void *src, size_t bytes)
{
    int rc = spw__handle_check(buffer, "spw_buffer_write");
    if (rc != SPW_OK)
        return rc;
    struct spw__payload *payload = buffer->payload;
    if (bytes > payload->size || offset > payload->size - bytes)
        return spw__fail(SPW_EINVAL, "spw_buffer_write: %zu bytes at offset %zu lie beyond the buffer's %llu", bytes,
                         offset, (unsigned long long)payload->size);
    if (bytes == 0)
        return SPW_OK;
    if (!src)
        return spw__fail(SPW_EINVAL, "spw_buffer_write: src is NULL");
    spw__mutex_lock(&payload->lock);
    const bool sealed = payload->sealed;
    rc = spw__payload_check_locked(payload);
    spw__mutex_unlock(&payload->lock);
    if (rc != SPW_OK)
        return rc;
    if (sealed)
        return spw__fail(SPW_ESEALED, "spw_buffer_write: the buffer \"%s\" is sealed: its content is immutable",
                         buffer->tag);
    struct spw__waitset *waits = &buffer->manager->waits;
    spw__waitset_enter(waits); /* what it does once its waits are over comes before a forced destroy */
    rc = write_through_map(buffer, offset, src, bytes);
    spw__waitset_leave(waits);
    return rc;
}
