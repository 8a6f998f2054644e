/* Maps without a thread: the steps of spw_map_start. Neighbours: map.c has what a map does between its waits, ticket.c
 * runs the steps.
 *
 *     LOOK  --pinned where it lies--> USE
 *       | \-another fetch is at work: await its end--> LOOK
 *       \--a fetch of our own--> ROOM --granted--> MOVES --done--> LOOK
 *     USE   --no stream uses it any more, or the view's stream comes after; a writer: no spill reads it--> done
 */
#include "src/core/ticket.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/use.h"
#include "src/core/view.h"

static bool writes(const spw_ticket *ticket)
{
    return (ticket->map.flags & SPW_MAP_WRITE) != 0;
}

void spw__ticket_map_close(spw_ticket *ticket, bool open)
{
    struct spw__payload *payload = ticket->map.payload;
    if (open)
        (void)spw__payload_unmap(payload, ticket->map.mapped.view_id, writes(ticket), NULL);
    ticket->map.payload = NULL;
    spw__payload_unref(payload);
    spw__pressure_kick(ticket->manager, SPW_TIER_HOST);
}

/* The map is at its end, with rc. */
static int conclude(spw_ticket *ticket, int rc)
{
    struct spw__ticket_map *map = &ticket->map;
    spw_error_info kept;
    (void)spw__handle_name(rc, ticket->tag);
    spw__error_save(&kept);
    if (map->fetched)
        spw__map_fetched(map->payload);
    if (rc == SPW_OK && ticket->kind == SPW__TICKET_VIEW)
        ticket->got.view = spw__view_of(map->payload, &map->mapped, map->flags);
    else if (rc != SPW_OK)
        spw__ticket_map_close(ticket, map->phase == SPW__MAP_USE);
    (void)spw__error_restore(&kept);
    return rc;
}

/* Orders what will use the view after earlier uses, or waits for those. */
static int use(spw_ticket *ticket)
{
    struct spw__ticket_map *map = &ticket->map;
    struct spw__payload *payload = map->payload;
    map->phase = SPW__MAP_USE;
    spw__mutex_lock(&payload->lock);
    const int rc = spw__use_look_locked(payload, writes(ticket), map->options.stream);
    if (rc == SPW_EAGAIN)
        return spw__ticket_await_change(ticket);
    spw__mutex_unlock(&payload->lock);
    return conclude(ticket, rc);
}

static int look(spw_ticket *ticket);

/* Does what the fetch can do now. rc: what the last wait gave. */
static int carry(spw_ticket *ticket, int rc)
{
    struct spw__ticket_map *map = &ticket->map;
    struct spw__payload *payload = map->payload;
    spw__mutex_lock(&payload->lock);
    if (map->phase == SPW__MAP_ROOM && rc == SPW_OK)
        spw__fetch_settle_locked(map->fetch);
    map->phase = SPW__MAP_MOVES;
    if (rc == SPW_OK)
        rc = spw__fetch_step_locked(map->fetch);
    if (rc == SPW_EAGAIN)
        return spw__ticket_await_change(ticket);
    rc = spw__fetch_end_locked(map->fetch, rc);
    map->fetch = NULL;
    map->fetched = true;
    spw__mutex_unlock(&payload->lock);
    return rc == SPW_OK ? look(ticket) : conclude(ticket, rc);
}

static int look(spw_ticket *ticket)
{
    struct spw__ticket_map *map = &ticket->map;
    struct spw__payload *payload = map->payload;
    map->phase = SPW__MAP_LOOK;
    map->mapped = (struct spw__mapped){.tier = SPW_PLACE_TIER(map->place)};
    spw__mutex_lock(&payload->lock);
    int rc = spw__map_look_locked(payload, map->place, map->flags, &map->options, &map->mapped, &map->fetch);
    if (rc == SPW_EAGAIN && !map->fetch)
        return spw__ticket_await_change(ticket);
    spw__mutex_unlock(&payload->lock);
    if (rc == SPW_OK)
        return map->mapped.used ? use(ticket) : conclude(ticket, rc);
    if (rc != SPW_EAGAIN)
        return conclude(ticket, rc);
    map->phase = SPW__MAP_ROOM;
    rc = spw__ticket_start_request(ticket, spw__fetch_request(map->fetch));
    return rc == SPW__REQUEST_WAITS ? rc : carry(ticket, rc);
}

int spw__ticket_map_begin(spw_ticket *ticket)
{
    return look(ticket);
}

int spw__ticket_map_step(spw_ticket *ticket, int woken)
{
    struct spw__ticket_map *map = &ticket->map;
    switch (map->phase) {
    case SPW__MAP_ROOM: return carry(ticket, spw__request_finish(spw__fetch_request(map->fetch), woken));
    case SPW__MAP_MOVES: return carry(ticket, woken == SPW_OK ? woken : spw__use_fail_wait(map->payload, woken));
    case SPW__MAP_USE: return woken == SPW_OK ? use(ticket) : conclude(ticket, spw__use_fail_wait(map->payload, woken));
    default: return woken == SPW_OK ? look(ticket) : conclude(ticket, spw__use_fail_wait(map->payload, woken));
    }
}

int spw_map_start(spw_buffer *buffer, spw_place place, uint32_t flags, const spw_map_options *options,
                  spw_ticket **out)
{
    spw_map_options taken;
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_map_start: out is NULL");
    *out = NULL;
    int rc = spw__map_check(buffer, place, flags, options, &taken);
    if (rc == SPW_OK && (flags & SPW_MAP_NOWAIT))
        rc = spw__ticket_refuse_nowait("spw_map_start");
    if (rc == SPW_OK)
        rc = spw__ticket_create(buffer->manager, SPW__TICKET_VIEW, &taken.wait, NULL, &ticket);
    if (rc != SPW_OK)
        return rc;
    ticket->map = (struct spw__ticket_map){.payload = buffer->payload, .place = place, .flags = flags,
                                           .options = taken};
    memcpy(ticket->tag, buffer->tag, sizeof ticket->tag);
    spw__payload_ref(buffer->payload);
    rc = look(ticket);
    if (rc != SPW__REQUEST_WAITS)
        spw__ticket_end(ticket, rc);
    *out = ticket;
    return SPW_OK;
}
