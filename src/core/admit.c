/* New buffers: admission wherever there is room, and allocation in one place, blocking or by a ticket. Neighbours:
 * pressure.c finds the room, payload.c and handle.c make a buffer of it, ticket.c goes on without a thread. */
#include "src/core/group.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"

static const spw_admit_options admit_defaults = {.struct_size = sizeof(spw_admit_options),
                                                 .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};
static const spw_alloc_options alloc_defaults = {.struct_size = sizeof(spw_alloc_options),
                                                 .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};

void spw_admit_options_init_sized(spw_admit_options *options, size_t size)
{
    spw__sized_give(options, size, &admit_defaults);
}

void spw_alloc_options_init_sized(spw_alloc_options *options, size_t size)
{
    spw__sized_give(options, size, &alloc_defaults);
}

int spw__alloc_options_take(spw_alloc_options *options, const spw_alloc_options *given, const char *what)
{
    *options = alloc_defaults;
    return spw__sized_take(options, SPW__SIZED_FIRST(spw_alloc_options, wait), given, what);
}

static int check_options(spw_manager *manager, const char *call, uint32_t flags, const char *tag,
                         const spw_wait_options *wait)
{
    if (flags & ~SPW_NOWAIT)
        return spw__fail(SPW_EINVAL, "%s: unknown flags 0x%x; SPW_NOWAIT is the only one", call, flags);
    if (tag && strnlen(tag, SPW__TAG_BYTES) == SPW__TAG_BYTES)
        return spw__fail(SPW_EINVAL, "%s: the tag is longer than %d bytes", call, SPW__TAG_BYTES - 1);
    return spw__check_wait(manager, wait);
}

/* What was allocated is charged to its group from now on, unless that was cancelled. A cancel frees what a handle names
 * under the payload's lock, after its flag was set: either it meets the charge, or the caller gives the bytes back. */
static int take_over_charge(struct spw__payload *payload, const struct spw__request *request)
{
    if (!request->reservation)
        return spw__group_check(request->group);
    spw__mutex_lock(&payload->lock);
    const int rc = spw__group_check(request->group);
    if (rc == SPW_OK)
        spw__payload_set_paid_locked(payload, request->reservation);
    spw__mutex_unlock(&payload->lock);
    return rc;
}

int spw__buffer_wrap(struct spw__request *request, const char *tag, spw_buffer **out)
{
    struct spw_manager *manager = request->manager;
    struct spw__payload *payload = NULL;
    const struct spw__block granted = request->block;
    int rc = spw__payload_create(manager, request->group, request->bytes, &request->block, &payload);
    if (spw__block_is(&request->block)) /* not taken over, or the uncut rest of it */
        spw__tier_free(spw__tier_of(manager, (spw_tier)request->block.tier), &request->block);
    if (rc == SPW_OK)
        rc = spw__handle_create(manager, payload, tag, out);
    if (rc == SPW_OK && (rc = take_over_charge(payload, request)) != SPW_OK) { /* see group_cancel.c */
        spw__handle_destroy(*out);
        *out = NULL;
    }
    if (rc != SPW_OK) {
        if (payload)
            spw__payload_unref(payload);
        if (request->reservation && spw__block_is(&granted))
            spw__reservation_put_back(request->reservation, granted.bytes);
        spw__pressure_kick(manager, SPW_TIER_HOST);
        return rc;
    }
    if (request->admission && request->bytes) {
        spw__core_count(manager, SPW__CORE_ADMITS + granted.tier, 1);
        spw__core_count(manager, SPW__CORE_ADMIT_BYTES + granted.tier, granted.bytes);
    }
    return SPW_OK;
}

static int create_buffer(struct spw__request *request, const spw_wait_options *wait, const char *tag, spw_buffer **out)
{
    int rc = request->bytes ? spw__request_run(request, wait) : SPW_OK;
    rc = rc == SPW_OK ? spw__buffer_wrap(request, tag, out) : rc;
    spw__request_over(request);
    return rc;
}

/* Starts the request for a ticket. */
static int start_buffer(const struct spw__request *request, const spw_wait_options *wait, const char *tag,
                        const char *call, spw_ticket **out)
{
    spw_ticket *ticket;
    if (request->nowait)
        return spw__ticket_refuse_nowait(call);
    const int rc = spw__ticket_create(request->manager, SPW__TICKET_BUFFER, wait, request->group, &ticket);
    if (rc != SPW_OK)
        return rc;
    ticket->request = *request;
    if (tag)
        memcpy(ticket->tag, tag, strlen(tag));
    *out = spw__ticket_begin_request(ticket);
    return SPW_OK;
}

static spw_tier best_tier(const spw_manager *manager)
{
    spw_tier tier = SPW_TIER_DEVICE;
    while (!manager->tiers[tier].present)
        tier++;
    return tier;
}

static spw_tier lowest_tier(const spw_manager *manager)
{
    spw_tier tier = SPW_TIER_HOST;
    while (!manager->tiers[tier].present)
        tier--;
    return tier;
}

/* Checks an admission's arguments and makes a request of them; *taken: the options as this version knows them. */
static int prepare_admit(spw_manager *manager, size_t bytes, const spw_admit_options *options,
                         spw_admit_options *taken, struct spw__request *request)
{
    struct spw__group *group;
    *taken = admit_defaults;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__sized_take(taken, SPW__SIZED_FIRST(spw_admit_options, wait), options, "spw_admit: options");
    options = taken;
    if (rc == SPW_OK)
        rc = check_options(manager, "spw_admit", options->flags, options->tag, &options->wait);
    if (rc == SPW_OK)
        rc = spw__group_charged(manager, options->group, &options->wait, "spw_admit", &group);
    if (rc == SPW_OK && options->prefer)
        rc = spw__check_place(manager, options->prefer, "spw_admit: options.prefer");
    if (rc == SPW_OK && options->lowest)
        rc = spw__check_place(manager, options->lowest, "spw_admit: options.lowest");
    if (rc != SPW_OK)
        return rc;
    *request = (struct spw__request){
        .manager = manager, .group = group, .bytes = bytes, .admission = true,
        .nowait = (options->flags & SPW_NOWAIT) != 0, .reservation = options->reservation,
        .first = options->prefer ? SPW_PLACE_TIER(options->prefer) : best_tier(manager),
        .lowest = options->lowest ? SPW_PLACE_TIER(options->lowest) : lowest_tier(manager)};
    if (request->first > request->lowest)
        return spw__fail(SPW_EINVAL, "spw_admit: options.prefer (%s) lies below options.lowest (%s)",
                         spw_tier_name(request->first), spw_tier_name(request->lowest));
    rc = spw__reservation_check(request->reservation, manager, request->first, request->lowest, "spw_admit");
    if (rc != SPW_OK)
        return rc;
    if (request->reservation) {
        request->group = request->reservation->group;
        request->first = request->lowest = spw__reservation_tier(request->reservation);
    }
    /* Where the lowest could never hold it, the one above is the lowest that counts. */
    while (request->lowest > request->first && bytes > spw__tier_of(manager, request->lowest)->largest_request)
        request->lowest--;
    return SPW_OK;
}

int spw_admit(spw_manager *manager, size_t bytes, const spw_admit_options *options, spw_buffer **out)
{
    spw_admit_options taken;
    struct spw__request request;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_admit: manager or out is NULL");
    *out = NULL;
    const int rc = prepare_admit(manager, bytes, options, &taken, &request);
    return rc == SPW_OK ? create_buffer(&request, &taken.wait, taken.tag, out) : rc;
}

int spw_admit_start(spw_manager *manager, size_t bytes, const spw_admit_options *options, spw_ticket **out)
{
    spw_admit_options taken;
    struct spw__request request;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_admit_start: manager or out is NULL");
    *out = NULL;
    const int rc = prepare_admit(manager, bytes, options, &taken, &request);
    return rc == SPW_OK ? start_buffer(&request, &taken.wait, taken.tag, "spw_admit_start", out) : rc;
}

int spw__alloc_options_check(spw_manager *manager, const char *call, const spw_alloc_options *options)
{
    return check_options(manager, call, options->flags, options->tag, &options->wait);
}

int spw__alloc_request(spw_manager *manager, struct spw__group *group, spw_place place, size_t bytes,
                       const spw_alloc_options *options, struct spw__request *request)
{
    const int rc = spw__reservation_check(options->reservation, manager, SPW_PLACE_TIER(place), SPW_PLACE_TIER(place),
                                          "spw_alloc");
    if (rc != SPW_OK)
        return rc;
    *request = (struct spw__request){.manager = manager, .bytes = bytes,
                                     .nowait = (options->flags & SPW_NOWAIT) != 0,
                                     .reservation = options->reservation,
                                     .group = options->reservation ? options->reservation->group : group,
                                     .first = SPW_PLACE_TIER(place), .lowest = SPW_PLACE_TIER(place)};
    return SPW_OK;
}

int spw__alloc_in(spw_manager *manager, struct spw__group *group, spw_place place, size_t bytes,
                  const spw_alloc_options *options, spw_buffer **out)
{
    struct spw__request request;
    int rc = spw__alloc_options_check(manager, "spw_alloc", options);
    if (rc == SPW_OK)
        rc = spw__alloc_request(manager, group, place, bytes, options, &request);
    return rc == SPW_OK ? create_buffer(&request, &options->wait, options->tag, out) : rc;
}

/* As prepare_admit. */
static int prepare_alloc(spw_manager *manager, spw_place place, size_t bytes, const spw_alloc_options *options,
                         spw_alloc_options *taken, struct spw__request *request)
{
    struct spw__group *group;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__alloc_options_take(taken, options, "spw_alloc: options");
    if (rc == SPW_OK)
        rc = spw__alloc_options_check(manager, "spw_alloc", taken);
    if (rc == SPW_OK)
        rc = spw__group_charged(manager, taken->group, &taken->wait, "spw_alloc", &group);
    if (rc != SPW_OK)
        return rc;
    rc = spw__check_place(manager, place, "spw_alloc");
    return rc == SPW_OK ? spw__alloc_request(manager, group, place, bytes, taken, request) : rc;
}

int spw_alloc(spw_manager *manager, spw_place place, size_t bytes, const spw_alloc_options *options, spw_buffer **out)
{
    spw_alloc_options taken;
    struct spw__request request;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_alloc: manager or out is NULL");
    *out = NULL;
    const int rc = prepare_alloc(manager, place, bytes, options, &taken, &request);
    return rc == SPW_OK ? create_buffer(&request, &taken.wait, taken.tag, out) : rc;
}

int spw_alloc_start(spw_manager *manager, spw_place place, size_t bytes, const spw_alloc_options *options,
                    spw_ticket **out)
{
    spw_alloc_options taken;
    struct spw__request request;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_alloc_start: manager or out is NULL");
    *out = NULL;
    const int rc = prepare_alloc(manager, place, bytes, options, &taken, &request);
    return rc == SPW_OK ? start_buffer(&request, &taken.wait, taken.tag, "spw_alloc_start", out) : rc;
}
