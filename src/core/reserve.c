/* Reservations: see reserve.h. Neighbours: pressure.c finds room for them, pool/ledger counts their bytes. */
#include "src/core/reserve.h"

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

static const spw_reserve_options reserve_defaults = {.struct_size = sizeof(spw_reserve_options),
                                                     .net_bytes = SPW_NET_BYTES_DEFAULT,
                                                     .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};

void spw_reserve_options_init_sized(spw_reserve_options *options, size_t size)
{
    spw__sized_give(options, size, &reserve_defaults);
}

static int check_live(const spw_reservation *reservation, const char *call)
{
    if (!reservation)
        return spw__fail(SPW_EBADHANDLE, "%s: the reservation is NULL", call);
    const uint64_t magic = atomic_load_explicit(&reservation->magic, memory_order_acquire);
    if (magic == SPW__SLOT_LIVE)
        return spw__check_process(reservation->manager);
    return spw__fail(SPW_EBADHANDLE, magic == SPW__SLOT_DEAD || magic == SPW__SLOT_CLAIMED
                                         ? "%s: the reservation was released already"
                                         : "%s: not a reservation of this library", call);
}

int spw__reservation_check(const spw_reservation *reservation, const spw_manager *manager, spw_tier first,
                           spw_tier lowest, const char *call)
{
    const int rc = reservation ? check_live(reservation, call) : SPW_OK;
    if (rc != SPW_OK || !reservation)
        return rc;
    if (reservation->manager != manager)
        return spw__fail(SPW_EINVAL, "%s: options.reservation is of another manager", call);
    const spw_tier tier = spw__reservation_tier(reservation);
    if (tier < first || tier > lowest)
        return spw__fail(SPW_EINVAL, "%s: options.reservation is of %s, and the places asked for are %s to %s", call,
                         spw_tier_name(tier), spw_tier_name(first), spw_tier_name(lowest));
    return SPW_OK;
}

/* Takes bytes out of what a reservation holds. */
static int take_bytes(spw_reservation *reservation, uint64_t bytes, const char *what)
{
    uint64_t held = atomic_load(&reservation->bytes);
    do {
        if (held < bytes)
            return spw__fail(SPW_EINVAL, "%s %llu bytes, more than the %llu that the reservation of %s holds", what,
                             (unsigned long long)bytes, (unsigned long long)held,
                             spw_tier_name(spw__reservation_tier(reservation)));
    } while (!atomic_compare_exchange_weak(&reservation->bytes, &held, held - bytes));
    return SPW_OK;
}

int spw__reservation_spend(spw_reservation *reservation, uint64_t bytes)
{
    const int rc = take_bytes(reservation, bytes, "an allocation under a reservation is charged");
    if (rc == SPW_OK)
        (void)atomic_fetch_add(&reservation->pending, bytes);
    return rc;
}

void spw__reservation_settle(spw_reservation *reservation, uint64_t bytes, bool spent)
{
    if (!spent)
        spw__reservation_put_back(reservation, bytes);
    (void)atomic_fetch_sub(&reservation->pending, bytes);
}

void spw__reservation_put_back(spw_reservation *reservation, uint64_t bytes)
{
    (void)atomic_fetch_add(&reservation->bytes, bytes);
}

/* Bytes given back to the budget are for those who wait. */
static void give_back(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    if (bytes == 0)
        return;
    spw__ledger_uncommit(group, tier, bytes);
    spw__waitset_signal(&manager->waits, SPW__CHANNEL(tier));
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* Takes what is free at once, from least to most bytes; 0: not even least. */
static uint64_t take_free(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t least,
                          uint64_t most)
{
    const uint32_t granularity = spw__tier_of(manager, tier)->granularity;
    for (;;) {
        const uint64_t free_bytes = spw__round_down(spw__ledger_free_on_path(group, tier), granularity);
        const uint64_t take = free_bytes < most ? free_bytes : most;
        if (take < least)
            return 0;
        if (spw__ledger_commit(group, tier, take))
            return take;
    }
}

/* As much as there is; SPW_EAGAIN: it is the least bytes that are asked for, and to be waited for. */
static int obtain_up_to(struct spw__request *request, uint64_t least)
{
    struct spw_manager *manager = request->manager;
    const spw_tier tier = request->lowest;
    struct spw__waitset *waits = &manager->waits;
    uint64_t taken = 0;
    if ((request->nowait && !spw__waitset_barred(waits, SPW__CHANNEL(tier))) ||
        !spw__waitset_busy(waits, SPW__CHANNEL(tier))) {
        if (spw__ledger_free_on_path(request->group, tier) < request->bytes) {
            (void)spw__tier_drain(spw__tier_of(manager, tier));
            if (!request->nowait)
                (void)spw__evict_clean(manager, request->group, tier, request->bytes);
        }
        taken = take_free(manager, request->group, tier, least, request->bytes);
        if (taken)
            spw__waitset_granted(waits, SPW__CHANNEL(tier));
        spw__waitset_retry(waits, SPW__CHANNEL(tier)); /* tries in vain held bytes for a moment */
    }
    request->bytes = taken ? taken : least;
    return taken ? SPW_OK : SPW_EAGAIN;
}

static int overbook(const struct spw__request *request, bool *overbooks)
{
    struct spw_manager *manager = request->manager;
    const spw_tier tier = request->lowest;
    const uint64_t most = spw__tier_of(manager, tier)->size - spw__tier_of(manager, tier)->set_aside;
    if (request->bytes > most) {
        const spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = request->bytes,
                                     .limit_bytes = most};
        return spw__fail_info(&info, SPW_ETOOBIG, "%llu bytes cannot be overbooked: the pools of %s hold %llu",
                              (unsigned long long)request->bytes, spw_tier_name(tier), (unsigned long long)most);
    }
    const uint64_t excess = spw__ledger_overbook(request->group, tier, request->bytes);
    *overbooks = excess != 0;
    if (excess) {
        spw__core_count(manager, SPW__CORE_OVERBOOKS + (unsigned)tier, 1);
        spw__core_count(manager, SPW__CORE_OVERBOOK_BYTES + (unsigned)tier, excess);
    }
    return SPW_OK;
}

/* Bytes that a reservation of bytes is charged: what can never fit is not rounded, which might overflow. */
static uint64_t charge_of(const struct spw__tier *tier, uint64_t bytes)
{
    return bytes > tier->size ? bytes : spw__tier_charge(tier, bytes);
}

/* Wraps bytes that are committed; they are given back when it cannot. */
static int wrap(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t bytes, bool overbooks,
                spw_reservation **out)
{
    spw_reservation *slot = spw__reservation_claim(manager);
    if (!slot) {
        give_back(manager, group, tier, bytes);
        return SPW_ENOMETA;
    }
    *out = spw__reservation_fill(slot, manager, group, tier, bytes, overbooks);
    return SPW_OK;
}

int spw__reservation_wrap(const struct spw__request *request, spw_reservation **out)
{
    return wrap(request->manager, request->group, request->lowest, request->bytes, false, out);
}

void spw__reservation_ungrant(const struct spw__request *request)
{
    give_back(request->manager, request->group, request->lowest, request->bytes);
}

/* A request for so many bytes of the budget and no memory. */
static struct spw__request request_of(struct spw_manager *manager, struct spw__group *group, spw_tier tier,
                                      uint64_t charge, int64_t net_bytes)
{
    return (struct spw__request){.manager = manager, .group = group, .bytes = charge, .charge_only = true,
                                 .net_bytes = net_bytes == SPW_NET_BYTES_DEFAULT ? (int64_t)charge : net_bytes,
                                 .first = tier, .lowest = tier};
}

/* What flags ask for beside a wait; SPW_EAGAIN: the request is still to be run. */
static int obtain_specially(struct spw__request *request, const spw_reserve_options *options, bool *overbooks)
{
    const struct spw__tier *tier = spw__tier_of(request->manager, request->lowest);
    *overbooks = false;
    if (spw__loss_of(request->manager, request->lowest))
        return spw__loss_refuse(request->manager, request->bytes);
    if (options->flags & SPW_RESERVE_OVERBOOK)
        return overbook(request, overbooks);
    if (options->flags & SPW_RESERVE_UPTO)
        return obtain_up_to(request, charge_of(tier, options->least_bytes ? options->least_bytes : 1));
    return SPW_EAGAIN;
}

/* The way of whatever is not granted at the first look. */
static int reserve_slowly(struct spw__request *request, const spw_reserve_options *options, spw_reservation **out)
{
    struct spw_manager *manager = request->manager;
    const struct spw_reclaimer *inside = spw__reclaim_inside(manager);
    bool overbooks;
    if (inside)
        return spw__reclaim_divert(inside, request);
    int rc = obtain_specially(request, options, &overbooks);
    if (rc == SPW_EAGAIN)
        rc = spw__request_run(request, &options->wait);
    if (rc == SPW_OK)
        rc = wrap(manager, request->group, request->lowest, request->bytes, overbooks, out);
    spw__request_over(request);
    return rc;
}

static int check_options(struct spw_manager *manager, const spw_reserve_options *options, uint64_t bytes)
{
    const uint32_t flags = options->flags;
    const bool up_to = (flags & SPW_RESERVE_UPTO) != 0;
    if (flags & ~(SPW_RESERVE_TRY | SPW_RESERVE_OVERBOOK | SPW_RESERVE_UPTO) || options->reserved)
        return spw__fail(SPW_EINVAL, "spw_reserve: unknown flags 0x%x, or options.reserved is not 0", flags);
    if (up_to && (flags & SPW_RESERVE_OVERBOOK))
        return spw__fail(SPW_EINVAL, "spw_reserve: UPTO and OVERBOOK exclude each other");
    if (up_to ? bytes == 0 || options->least_bytes > bytes : options->least_bytes != 0)
        return spw__fail(SPW_EINVAL, "spw_reserve: options.least_bytes (%llu) goes with UPTO, and is at most bytes "
                                     "(%llu)", (unsigned long long)options->least_bytes, (unsigned long long)bytes);
    return spw__check_wait(manager, &options->wait);
}

/* The quick way: nobody waits, and there is room. */
static bool commit_at_once(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t charge)
{
    return charge == 0 || (!spw__loss_of(manager, tier) && !spw__reclaim_inside(manager) &&
                            !spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)) &&
                           spw__ledger_commit(group, tier, charge));
}

int spw_reserve(spw_manager *manager, spw_place place, uint64_t bytes, const spw_reserve_options *options,
                spw_reservation **out)
{
    spw_reserve_options taken;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_reserve: manager or out is NULL");
    *out = NULL;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK && options && options->struct_size != sizeof taken) { /* of this size they need no copy */
        taken = reserve_defaults;
        rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_reserve_options, wait), options, "spw_reserve: options");
        options = &taken;
    }
    if (rc == SPW_OK)
        rc = options ? check_options(manager, options, bytes) : spw__task_check(manager, NULL);
    options = options ? options : &reserve_defaults;
    if (rc == SPW_OK)
        rc = spw__check_place(manager, place, "spw_reserve");
    if (rc != SPW_OK)
        return rc;
    const spw_tier tier = SPW_PLACE_TIER(place);
    const uint64_t charge = charge_of(spw__tier_of(manager, tier), bytes);
    struct spw__group *group;
    rc = spw__group_charged(manager, options->group, &options->wait, "spw_reserve", &group);
    if (rc != SPW_OK)
        return rc;
    if (commit_at_once(manager, group, tier, charge))
        return wrap(manager, group, tier, charge, false, out);
    struct spw__request request = request_of(manager, group, tier, charge, options->net_bytes);
    request.nowait = (options->flags & SPW_RESERVE_TRY) != 0;
    return reserve_slowly(&request, options, out);
}

int spw__reserve_for(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t bytes,
                     spw_reservation **out)
{
    const uint64_t charge = charge_of(spw__tier_of(manager, tier), bytes);
    const int rc = spw__task_check(manager, NULL);
    if (rc != SPW_OK)
        return rc;
    if (commit_at_once(manager, group, tier, charge))
        return wrap(manager, group, tier, charge, false, out);
    struct spw__request request = request_of(manager, group, tier, charge, SPW_NET_BYTES_DEFAULT);
    return reserve_slowly(&request, &reserve_defaults, out);
}

/* A ticket's reservation, of which nothing was had yet. */
static void start_reservation(spw_ticket *ticket, const spw_reserve_options *options)
{
    struct spw__request *request = &ticket->request;
    struct spw_manager *manager = request->manager;
    const spw_tier tier = request->lowest;
    bool overbooks = false;
    int rc = SPW_OK;
    if (!commit_at_once(manager, request->group, tier, request->bytes))
        rc = obtain_specially(request, options, &overbooks);
    if (rc == SPW_EAGAIN) {
        (void)spw__ticket_begin_request(ticket);
        return;
    }
    if (rc == SPW_OK)
        rc = wrap(manager, request->group, tier, request->bytes, overbooks, &ticket->got.reservation);
    spw__ticket_end(ticket, rc);
}

int spw_reserve_start(spw_manager *manager, spw_place place, uint64_t bytes, const spw_reserve_options *options,
                      spw_ticket **out)
{
    spw_reserve_options taken = reserve_defaults;
    struct spw__group *group;
    spw_ticket *ticket;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_reserve_start: manager or out is NULL");
    *out = NULL;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_reserve_options, wait), options, "spw_reserve: options");
    if (rc == SPW_OK)
        rc = check_options(manager, &taken, bytes);
    if (rc == SPW_OK)
        rc = spw__check_place(manager, place, "spw_reserve");
    if (rc == SPW_OK && (taken.flags & SPW_RESERVE_TRY))
        rc = spw__ticket_refuse_nowait("spw_reserve_start");
    if (rc == SPW_OK)
        rc = spw__group_charged(manager, taken.group, &taken.wait, "spw_reserve", &group);
    if (rc == SPW_OK)
        rc = spw__ticket_create(manager, SPW__TICKET_RESERVATION, &taken.wait, group, &ticket);
    if (rc != SPW_OK)
        return rc;
    const spw_tier tier = SPW_PLACE_TIER(place);
    const uint64_t charge = charge_of(spw__tier_of(manager, tier), bytes);
    ticket->request = request_of(manager, group, tier, charge, taken.net_bytes);
    start_reservation(ticket, &taken);
    *out = ticket;
    return SPW_OK;
}

uint64_t spw_reservation_size(const spw_reservation *reservation)
{
    return check_live(reservation, "spw_reservation_size") == SPW_OK
               ? atomic_load(&reservation->bytes) + atomic_load(&reservation->pending)
               : 0;
}

/* What grows a reservation: nothing was had yet. */
static int prepare_growth(spw_reservation *reservation, uint64_t bytes, const spw_wait_options *wait, const char *call,
                          struct spw__request *request)
{
    int rc = check_live(reservation, call);
    if (rc == SPW_OK)
        rc = wait ? spw__check_wait(reservation->manager, wait) : spw__task_check(reservation->manager, NULL);
    if (rc == SPW_OK)
        rc = spw__group_check(reservation->group);
    if (rc != SPW_OK)
        return rc;
    const spw_tier tier = spw__reservation_tier(reservation);
    *request = request_of(reservation->manager, reservation->group, tier,
                          charge_of(spw__tier_of(reservation->manager, tier), bytes), SPW_NET_BYTES_DEFAULT);
    return SPW_OK;
}

int spw_reservation_grow(spw_reservation *reservation, uint64_t bytes, const spw_wait_options *wait)
{
    struct spw__request request;
    int rc = prepare_growth(reservation, bytes, wait, "spw_reservation_grow", &request);
    if (rc != SPW_OK)
        return rc;
    if (commit_at_once(request.manager, request.group, request.lowest, request.bytes)) {
        spw__reservation_put_back(reservation, request.bytes);
        return SPW_OK;
    }
    rc = spw__request_run(&request, wait);
    if (rc == SPW_OK)
        spw__reservation_put_back(reservation, request.bytes);
    spw__request_over(&request);
    return rc;
}

int spw_reservation_grow_start(spw_reservation *reservation, uint64_t bytes, const spw_wait_options *wait,
                               spw_ticket **out)
{
    struct spw__request request;
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_reservation_grow_start: out is NULL");
    *out = NULL;
    int rc = prepare_growth(reservation, bytes, wait, "spw_reservation_grow_start", &request);
    if (rc == SPW_OK)
        rc = spw__ticket_create(request.manager, SPW__TICKET_GROWTH, wait ? wait : &reserve_defaults.wait,
                                request.group, &ticket);
    if (rc != SPW_OK)
        return rc;
    ticket->request = request;
    ticket->got.reservation = reservation;
    *out = spw__ticket_begin_request(ticket);
    return SPW_OK;
}

int spw_reservation_shrink(spw_reservation *reservation, uint64_t bytes)
{
    int rc = check_live(reservation, "spw_reservation_shrink");
    if (rc == SPW_OK)
        rc = take_bytes(reservation, bytes, "spw_reservation_shrink:");
    if (rc == SPW_OK)
        give_back(reservation->manager, reservation->group, spw__reservation_tier(reservation), bytes);
    return rc;
}

int spw_reservation_split(spw_reservation *reservation, uint64_t bytes, spw_reservation **out)
{
    if (out)
        *out = NULL;
    int rc = check_live(reservation, "spw_reservation_split");
    if (rc == SPW_OK && !out)
        rc = spw__fail(SPW_EINVAL, "spw_reservation_split: out is NULL");
    if (rc == SPW_OK)
        rc = take_bytes(reservation, bytes, "spw_reservation_split:");
    if (rc != SPW_OK)
        return rc;
    spw_reservation *slot = spw__reservation_claim(reservation->manager);
    if (!slot) {
        spw__reservation_put_back(reservation, bytes);
        return SPW_ENOMETA;
    }
    *out = spw__reservation_fill(slot, reservation->manager, reservation->group,
                                 spw__reservation_tier(reservation), bytes, atomic_load(&reservation->overbooks));
    return SPW_OK;
}

/* Takes a live reservation from everybody else. SPW_EBADHANDLE, SPW_EBUSY: it is as before. */
static int seize(spw_reservation *reservation, const char *call)
{
    uint64_t live = SPW__SLOT_LIVE;
    const int rc = check_live(reservation, call);
    if (rc != SPW_OK)
        return rc;
    const uint64_t pending = atomic_load_explicit(&reservation->pending, memory_order_relaxed);
    if (pending)
        return spw__fail(SPW_EBUSY, "%s: an allocation of %llu bytes under the reservation is under way", call,
                         (unsigned long long)pending);
    if (!atomic_compare_exchange_strong_explicit(&reservation->magic, &live, SPW__SLOT_CLAIMED,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return spw__fail(SPW_EBADHANDLE, "%s: the reservation was released already", call);
    return SPW_OK;
}

int spw_reservation_merge(spw_reservation *into, spw_reservation *from)
{
    int rc = check_live(into, "spw_reservation_merge");
    if (rc == SPW_OK)
        rc = check_live(from, "spw_reservation_merge");
    if (rc == SPW_OK && (into == from || into->manager != from->manager || into->group != from->group ||
                         spw__reservation_tier(into) != spw__reservation_tier(from)))
        rc = spw__fail(SPW_EINVAL, "spw_reservation_merge: into and from are not two reservations of one place, "
                                   "manager and group");
    if (rc == SPW_OK)
        rc = seize(from, "spw_reservation_merge");
    if (rc != SPW_OK)
        return rc;
    if (atomic_load(&from->overbooks))
        atomic_store(&into->overbooks, true);
    spw__reservation_put_back(into, atomic_load(&from->bytes));
    spw__reservation_bury(from);
    return SPW_OK;
}

int spw_reservation_release(spw_reservation *reservation)
{
    if (!reservation)
        return SPW_OK;
    const int rc = seize(reservation, "spw_reservation_release");
    if (rc != SPW_OK)
        return rc;
    struct spw_manager *manager = reservation->manager;
    struct spw__group *group = reservation->group;
    const spw_tier tier = spw__reservation_tier(reservation);
    const uint64_t bytes = atomic_load_explicit(&reservation->bytes, memory_order_relaxed);
    spw__reservation_bury(reservation);
    give_back(manager, group, tier, bytes);
    return SPW_OK;
}
