/* Pressure: see pressure.h. Neighbours: pool/tier tries, pool/base/wait queues, spill/victim ranks, evict.c moves. */
#include "src/core/pressure.h"

#include <stdio.h>

#include "pool/base/error.h"
#include "src/core/arbiter.h"
#include "src/core/evict.h"
#include "src/core/manager.h"
#include "src/core/parked.h"

/* How many of the oldest waiters decide what is done for a tier, when together they need more than it could have. */
#define LOOK_WAITERS 64u

uint64_t spw__deadline_ns(const struct spw_manager *manager, const spw_wait_options *wait)
{
    int64_t timeout_ms = wait ? wait->timeout_ms : SPW_TIMEOUT_DEFAULT;
    if (timeout_ms < 0)
        timeout_ms = manager->default_timeout_ms;
    const uint64_t now = spw__clock_now_ns(manager->env.clock);
    if (timeout_ms >= (int64_t)((UINT64_MAX - now) / 1000000 / 2))
        return UINT64_MAX;
    return now + (uint64_t)timeout_ms * 1000000;
}

int spw__check_wait(struct spw_manager *manager, const spw_wait_options *wait)
{
    for (unsigned i = 0; i < sizeof wait->reserved / sizeof wait->reserved[0]; i++)
        if (wait->reserved[i])
            return spw__fail(SPW_EINVAL, "wait.reserved[%u] is not 0; use the options' init function", i);
    if (spw__cancel_triggered(wait->cancel))
        return spw__fail(SPW_ECANCELED, "the call's cancel token was triggered before it began");
    return spw__task_check(manager, wait);
}

/* False: not even with nothing else in it could the tier hold the request, as budgets are now. */
static bool fits_empty(const struct spw__request *request, spw_tier tier)
{
    const struct spw__tier *at = spw__tier_of(request->manager, tier);
    return at->present && request->bytes <= at->largest_request &&
           spw__tier_charge(at, request->bytes) + at->set_aside <= atomic_load(&request->group->gates[tier].budget);
}

bool spw__request_possible(const struct spw__request *request)
{
    bool possible = false;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        possible |= fits_empty(request, tier);
    return possible;
}

/* One try over the tiers of the request, best first, but those that are barred. SPW_EAGAIN: no room anywhere. */
static int try_tiers(struct spw__request *request, enum spw__grow grow, uint32_t barred)
{
    bool possible = false;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        struct spw__tier *at = spw__tier_of(request->manager, tier);
        if (!at->present)
            continue;
        if (barred & SPW__CHANNEL(tier)) {
            possible |= fits_empty(request, tier);
            continue;
        }
        const int rc = spw__tier_alloc_aligned(at, request->group, request->bytes, request->align, grow,
                                               &request->block);
        if (rc == SPW_OK || rc == SPW_ENOMETA)
            return rc;
        possible |= rc != SPW_ETOOBIG;
        request->failed = rc;
    }
    return possible ? SPW_EAGAIN : SPW_ETOOBIG;
}

static int attempt(struct spw__waiter *waiter)
{
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    const int rc = try_tiers(request, SPW__GROW_NOT, waiter->barred);
    waiter->what = request->failed == SPW_EFRAG ? SPW__WAIT_HOLE : SPW__WAIT_ROOM;
    if (rc == SPW_OK)
        waiter->served = SPW__CHANNEL(request->block.tier);
    return rc;
}

static uint32_t channels_of(const struct spw__request *request)
{
    uint32_t channels = 0;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        if (spw__tier_of(request->manager, tier)->present)
            channels |= SPW__CHANNEL(tier);
    return channels;
}

uint64_t spw__pressure_room(void *arg, unsigned channel)
{
    const struct spw_manager *manager = arg;
    const struct spw__tier *tier = &manager->tiers[channel];
    /* What lies in caches of small objects counts as committed, but an attempt takes it back. */
    return tier->n_small ? UINT64_MAX : spw__gate_free(&manager->root.gates[channel]);
}

/* Tells the waiter what it needs. Of one key must be only requests of which a larger one never fits where a smaller one
 * does not: a stricter alignment may be all that is missing, so that each has a key of its own, a place in the group.
 * Small objects fit by what is left in the slabs of their size: nothing is said about them. */
static void set_needs(struct spw__request *request)
{
    struct spw__waiter *waiter = &request->waiter;
    waiter->key = (const char *)request->group + (request->align ? 1 + __builtin_ctzll(request->align) : 0);
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        const struct spw__tier *at = spw__tier_of(request->manager, tier);
        if (at->n_small == 0 || request->bytes > SPW__SMALL_LIMIT)
            waiter->need[tier] = spw__tier_charge(at, request->bytes);
    }
}

/* The demand of those who wait for a tier's victims. */
struct demand {
    struct spw__tier *tier;
    uint64_t enough; /* more bytes than this are not to be had: who comes later does not change what is to be done */
    uint32_t n_waiters;
    struct spw__hole_none none; /* what is known to have no window: those who lack it are left out */
    uint64_t bytes;
    uint64_t admission_bytes;  /* of it, of admissions */
    uint64_t least_bytes;      /* of the smallest waiter: a pool that cannot hold it is of no use */
    uint64_t fragmented_bytes; /* of the oldest waiter that only lacks a hole */
    uint64_t fragmented_align;
    bool fragmented_admission;
    uint32_t route;            /* lowest place in the tier's route that a waiter can use */
    bool any;
    bool stuck;                /* somebody was left out */
    int complete_with;         /* when set: every waiter ends with it */
};

static int visit_demand(struct spw__waiter *waiter, void *arg)
{
    struct demand *demand = arg;
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    if (request->failed == SPW_ETOOBIG) /* no victim here would help it */
        return SPW_EAGAIN;
    if (demand->complete_with) {
        request->spill_failed = true;
        return demand->complete_with;
    }
    if (request->failed == SPW_EFRAG && request->bytes >= demand->none.bytes &&
        spw__hole_align(request->align) >= demand->none.align) {
        demand->stuck = true;
        return SPW_EAGAIN;
    }
    const uint32_t route = spw__tier_first_route(demand->tier, request->bytes);
    const uint64_t charge = spw__tier_charge(demand->tier, request->bytes);
    demand->route = demand->any && demand->route < route ? demand->route : route;
    demand->least_bytes = demand->any && demand->least_bytes < charge ? demand->least_bytes : charge;
    demand->any = true;
    demand->bytes += charge;
    demand->admission_bytes += request->admission ? charge : 0;
    if (request->failed == SPW_EFRAG && demand->fragmented_bytes == 0) {
        demand->fragmented_bytes = request->bytes;
        demand->fragmented_align = request->align;
        demand->fragmented_admission = request->admission;
    }
    return ++demand->n_waiters >= LOOK_WAITERS && demand->bytes > demand->enough ? SPW__VISIT_STOP : SPW_EAGAIN;
}

/* All that the tier has free or will have: no waiters' supply is more. */
static uint64_t most_supply(struct spw_manager *manager, struct spw__tier *tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tier->n_pools; i++)
        bytes += spw__pool_free(&tier->pools[i]) + atomic_load(&manager->victims[tier->tier][i].leaving_bytes);
    return bytes;
}

/* Looks at those whose victims come from tier, oldest first, until it is clear what to do. Guarded by the tier's
 * pressure lock. */
static struct demand look_locked(struct spw_manager *manager, struct spw__tier *tier, int complete_with)
{
    struct demand demand = {.tier = tier, .complete_with = complete_with, .enough = most_supply(manager, tier),
                            .none = spw__hole_none_locked(&manager->holes[tier->tier])};
    spw__waitset_visit_demands(&manager->waits, SPW__CHANNEL(tier->tier), visit_demand, &demand);
    return demand;
}

struct supply {
    uint64_t free, leaving;
    bool in_flight; /* some eviction is, of use or not */
};

/* What the pools that the waiters can use have free, and will have when evictions in flight are done. What is scattered
 * over pools that hold none of the waiters counts for nothing. */
static struct supply supply_of(struct spw_manager *manager, const struct demand *demand)
{
    struct spw__tier *tier = demand->tier;
    struct supply supply = {0, 0, false};
    for (uint32_t at = demand->route; at < tier->n_pools; at++) {
        const uint64_t leaving = atomic_load(&manager->victims[tier->tier][tier->route[at]].leaving_bytes);
        const uint64_t free_bytes = spw__pool_free(&tier->pools[tier->route[at]]);
        supply.in_flight |= leaving != 0;
        if (free_bytes + leaving < demand->least_bytes)
            continue;
        supply.free += free_bytes;
        supply.leaving += leaving;
    }
    const uint64_t budget_free = spw__gate_free(&manager->root.gates[tier->tier]);
    if (supply.free > budget_free)
        supply.free = budget_free;
    return supply;
}

/* The coldest item of the pools that are of use, counted as leaving from now on. Where the disk is full, and below the
 * tier is nothing but the disk, only clean items are of use: it is not asked once for every victim. */
static bool pop_victim(struct spw_manager *manager, const struct demand *demand, struct spw__victim *victim)
{
    const struct spw__tier *tier = demand->tier;
    bool disk_next = true;
    for (spw_tier below = tier->tier + 1; below < SPW__MEMORY_TIERS; below++)
        disk_next &= !manager->tiers[below].present;
    for (int clean_only = 1; clean_only >= (victim->disk_full && disk_next ? 1 : 0); clean_only--)
        for (uint32_t at = demand->route; at < tier->n_pools; at++) {
            if (tier->pools[tier->route[at]].size < demand->least_bytes)
                continue;
            victim->queue = &manager->victims[tier->tier][tier->route[at]];
            victim->item = spw__victims_pop(victim->queue, clean_only, spw__evict_claim);
            if (!victim->item)
                continue;
            victim->tier = tier->tier;
            victim->bytes = victim->item->bytes;
            (void)atomic_fetch_add(&victim->queue->leaving_bytes, victim->bytes);
            return true;
        }
    return false;
}

static void end_round_locked(struct spw_manager *manager, struct spw__tier *tier)
{
    manager->holes[tier->tier].tries = 0;
    if (!manager->pressure[tier->tier].failed)
        return;
    manager->pressure[tier->tier].failed = false;
    for (uint32_t i = 0; i < tier->n_pools; i++)
        spw__victims_forgive(&manager->victims[tier->tier][i]);
}

enum choice { CHOSE_NOTHING, CHOSE_VICTIM, CHOSE_HOLE };

/* Picks what to do next if what is free and leaving does not cover what is waited for: a victim, or a hole where only
 * that is missing. Guarded by the tier's pressure lock. */
static enum choice choose_locked(struct spw_manager *manager, struct spw__tier *tier, struct spw__victim *victim,
                                 struct demand *hole_demand)
{
    struct spw__pressure *pressure = &manager->pressure[tier->tier];
    struct spw__hole *hole = &manager->holes[tier->tier];
    const struct demand demand = look_locked(manager, tier, 0);
    if (!demand.any && !demand.stuck)
        end_round_locked(manager, tier);
    if (!demand.any)
        return CHOSE_NOTHING;
    if (hole->active)
        return CHOSE_NOTHING; /* its window counts as taken until it ends, and then there is another look */
    const struct supply supply = supply_of(manager, &demand);
    const uint64_t covered = supply.free + supply.leaving;
    if (demand.bytes <= covered && demand.fragmented_bytes <= supply.leaving)
        return CHOSE_NOTHING;
    if (demand.fragmented_bytes && supply.leaving == 0 && hole->tries < SPW__HOLE_TRIES_MAX) {
        *hole_demand = demand;
        hole->active = true;
        return CHOSE_HOLE;
    }
    victim->disk_full = pressure->failed && pressure->failure.code == SPW_ENOSPC;
    /* An admission's victim is one that the others would not need. */
    victim->admission = demand.bytes > covered ? demand.bytes - demand.admission_bytes <= covered
                                               : demand.fragmented_admission;
    if (pop_victim(manager, &demand, victim))
        return CHOSE_VICTIM;
    /* Everything that could go was tried, nothing is on its way, and something could not be written. */
    if (pressure->failed && !supply.in_flight) {
        (void)look_locked(manager, tier, pressure->failure.code);
        end_round_locked(manager, tier);
    }
    return CHOSE_NOTHING;
}

/* Starts the victim's eviction; false: no other can be started now either. */
static bool evict(struct spw_manager *manager, const struct spw__victim *victim)
{
    const enum spw__evict_result result = spw__evict_start(victim);
    if (result == SPW__EVICT_NO_DISK) { /* filed as failed: the round is not over before it is forgiven */
        spw__mutex_lock(&manager->pressure[victim->tier].lock);
        manager->pressure[victim->tier].failed = true;
        spw__mutex_unlock(&manager->pressure[victim->tier].lock);
    }
    return result != SPW__EVICT_BUSY;
}

/* Evicts and opens holes until nothing more is needed, can be found, or can be done now. */
static void pump(struct spw_manager *manager, spw_tier tier)
{
    struct spw__victim victim;
    struct demand demand = {.bytes = 0};
    unsigned searches = 0;
    bool more = true;
    while (more) {
        spw__mutex_lock(&manager->pressure[tier].lock);
        const enum choice choice = choose_locked(manager, spw__tier_of(manager, tier), &victim, &demand);
        spw__mutex_unlock(&manager->pressure[tier].lock);
        switch (choice) {
        case CHOSE_NOTHING: more = false; break;
        case CHOSE_VICTIM: more = evict(manager, &victim); break;
        case CHOSE_HOLE: /* without one, others may still be helped; but not for ever while things change under us */
            more = spw__hole_open(manager, tier, demand.fragmented_bytes, demand.fragmented_align,
                                  demand.fragmented_admission) != SPW__HOLE_CLEARING &&
                   ++searches < SPW__HOLE_TRIES_MAX;
            break;
        }
    }
}

void spw__pressure_kick(struct spw_manager *manager, spw_tier tier)
{
    /* Room in a tier is also room for what the tiers above it would push down. */
    for (int at = (int)tier < SPW__MEMORY_TIERS ? (int)tier : SPW__MEMORY_TIERS - 1; at >= 0; at--)
        if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(at))) {
            spw_error_info kept; /* what fails in there is not the error of this thread's call */
            spw__error_save(&kept);
            pump(manager, (spw_tier)at);
            (void)spw__error_restore(&kept);
        }
    spw__arbiter_wake_satisfied(manager);
}

void spw__pressure_note_failure(struct spw_manager *manager, spw_tier tier)
{
    struct spw__pressure *pressure = &manager->pressure[tier];
    spw__core_count(manager, SPW__CORE_SPILL_FAILURES, 1);
    spw__mutex_lock(&pressure->lock);
    pressure->failed = true;
    pressure->failure = *spw_error_detail();
    spw__mutex_unlock(&pressure->lock);
}

/* The numbers of a refusal, for the detail of every error that leaves here. */
static spw_error_info numbers(const struct spw__request *request)
{
    struct spw_manager *manager = request->manager;
    struct spw__tier *tier = spw__tier_of(manager, request->lowest);
    const struct spw__gate *gate = &request->group->gates[request->lowest];
    const uint32_t route = spw__tier_first_route(tier, request->bytes);
    return (spw_error_info){.place = SPW_PLACE(request->lowest, 0), .requested_bytes = request->bytes,
                            .pool = route < tier->n_pools ? tier->route[route] : 0, .free_bytes = spw__gate_free(gate),
                            .largest_free_bytes = spw__tier_largest_free_from(tier, route),
                            .limit_bytes = atomic_load(&gate->budget)};
}

/* The pools of tier could hold the request, but its budget was lowered to less. */
static int fail_budget(const struct spw__request *request, spw_tier tier)
{
    const struct spw__gate *gate = &request->group->gates[tier];
    const spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = request->bytes,
                                 .free_bytes = spw__gate_free(gate), .limit_bytes = atomic_load(&gate->budget),
                                 .largest_free_bytes = spw__tier_largest_free(spw__tier_of(request->manager, tier))};
    return spw__fail_info(&info, SPW_ETOOBIG, "a request of %llu bytes can never fit under the budget of %s, %llu "
                                              "bytes: its pools could hold it; raise the budget with spw_set_budget",
                          (unsigned long long)info.requested_bytes, spw_tier_name(tier),
                          (unsigned long long)info.limit_bytes);
}

static int fail_request(const struct spw__request *request, int code)
{
    const spw_error_info info = numbers(request);
    const char *tier = spw_tier_name(request->lowest);
    struct spw__tier *at = spw__tier_of(request->manager, request->lowest);
    const uint32_t route = spw__tier_first_route(at, request->bytes);
    char where[224], holders[256];
    (void)snprintf(where, sizeof where,
                   "%llu bytes in %s%s, pool %u%s (budget %llu, free %llu; its pools: free %llu, largest hole %llu)",
                   (unsigned long long)info.requested_bytes, tier, request->first < request->lowest ? " or above" : "",
                   info.pool, route + 1 < at->n_pools ? " and up" : "", (unsigned long long)info.limit_bytes,
                   (unsigned long long)info.free_bytes, (unsigned long long)spw__tier_free_from(at, route),
                   (unsigned long long)info.largest_free_bytes);
    switch (code) {
    case SPW_ETOOBIG:
        for (spw_tier tried = request->first; tried <= request->lowest; tried++)
            if (request->bytes <= spw__tier_of(request->manager, tried)->largest_request)
                return fail_budget(request, tried);
        return spw__fail_info(&info, code, "a request of %s can never fit: no pool is that large or admits that size; "
                                           "raise %s= or its pool limits", where, tier);
    case SPW_ENOMETA: return spw__fail_info(&info, code, "no metadata memory for a request of %s; raise meta=", where);
    case SPW_EAGAIN: return spw__fail_info(&info, code, "no room at once for %s", where);
    case SPW_EFRAG:
        return spw__fail_info(&info, code, "no hole for %s before the deadline: what lies between is mapped, unsealed "
                                           "or raw; unmap or free it, or raise %s=", where, tier);
    case SPW_ENOMEM:
        spw__arbiter_describe(request->manager, request->lowest, holders, sizeof holders);
        return spw__fail_info(&info, code,
                              "no room for %s before the deadline: what lies there is mapped, not sealed or "
                              "raw%s; held by %s; seal, unmap or release something, or raise %s=",
                              where, request->manager->store ? "" : ", or there is no spill folder (disk=)", holders,
                              tier);
    case SPW_ERETRY:
        return spw__fail_info(&info, code, "every task waits: give back what you can (seal, unmap, release), call "
                                           "spw_task_wait_turn, and try again to get %s", where);
    case SPW_ESPLIT:
        return spw__fail_info(&info, code, "every task waits and has given back what it can: try again with a part of "
                                           "%s", where);
    case SPW_ECANCELED: return spw__fail_info(&info, code, "the wait for %s was cancelled", where);
    default: return spw__fail_info(&info, code, "the wait for %s ended: %s", where, spw_strerror(code));
    }
}

/* Spilling failed: the error of the write itself tells more than that a request was refused. */
static int fail_spill(const struct spw__request *request, int code)
{
    struct spw__pressure *pressure = &request->manager->pressure[request->lowest];
    spw__mutex_lock(&pressure->lock);
    spw_error_info info = pressure->failure;
    spw__mutex_unlock(&pressure->lock);
    if (info.code != code)
        return fail_request(request, code);
    return spw__error_restore(&info);
}

/* What failed after the last requester had left is not held against the next one. */
static void begin_round(struct spw_manager *manager, spw_tier tier)
{
    if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)))
        return;
    spw__mutex_lock(&manager->pressure[tier].lock);
    end_round_locked(manager, spw__tier_of(manager, tier));
    spw__mutex_unlock(&manager->pressure[tier].lock);
}

static int wait_for_room(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw_manager *manager = request->manager;
    struct spw_task *task = spw__task_of(manager, wait);
    const uint64_t begun = spw__clock_now_ns(manager->env.clock);
    request->waiter = (struct spw__waiter){.attempt = attempt, .channels = channels_of(request),
                                           .demands = SPW__CHANNEL(request->lowest),
                                           .deadline_ns = spw__deadline_ns(manager, wait),
                                           .task = task, .what = SPW__WAIT_ROOM,
                                           .cancel = wait ? wait->cancel : NULL};
    set_needs(request);
    begin_round(manager, request->lowest);
    spw__wait_enqueue(&manager->waits, &request->waiter);
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        while (spw__pressure_grow(manager, tier, request)) { /* until it is enough for all who wait, or nothing is left */
        }
    spw__pressure_kick(manager, request->lowest);
    spw__core_count(manager, SPW__CORE_WAITS, 1);
    if (task)
        (void)atomic_fetch_add(&task->waits, 1);
    const int rc = wait && wait->timeout_ms == 0 ? spw__wait_leave(&manager->waits, &request->waiter)
                                                 : spw__wait_block(&manager->waits, &request->waiter);
    spw__core_count(manager, SPW__CORE_WAIT_NS, spw__clock_now_ns(manager->env.clock) - begun);
    if (rc != SPW_OK) /* who was not served must not leave the others' round open */
        spw__pressure_kick(manager, request->lowest);
    return rc;
}

/* Turns what ended a request into the error of the call, with its detail. */
static int conclude(const struct spw__request *request, int rc)
{
    if (rc == SPW_OK)
        return SPW_OK;
    if (request->spill_failed)
        return fail_spill(request, rc);
    if (rc == SPW_ETIMEDOUT) {
        spw__core_count(request->manager, SPW__CORE_WAIT_TIMEOUTS, 1);
        rc = request->failed == SPW_EFRAG ? SPW_EFRAG : SPW_ENOMEM;
    }
    return fail_request(request, rc);
}

static int run(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw_manager *manager = request->manager;
    const enum spw__grow grow = request->nowait ? SPW__GROW_ALONE : SPW__GROW_FREELY;
    const uint32_t channels = channels_of(request);
    int rc = SPW_EAGAIN;
    /* Those who wait already go first, unless the caller cannot wait at all; and even then one that waited for long. */
    if (request->nowait || !spw__waitset_busy(&manager->waits, channels)) {
        rc = try_tiers(request, grow, spw__waitset_barred_of(&manager->waits, channels));
        if (rc == SPW_EAGAIN && spw__parked_sweep(manager))
            rc = try_tiers(request, grow, spw__waitset_barred_of(&manager->waits, channels));
        if (rc == SPW_EAGAIN)
            spw__waitset_retry(&manager->waits, channels);
    }
    if (rc == SPW_EAGAIN && !spw__request_possible(request)) /* it may be barred from every attempt */
        rc = SPW_ETOOBIG;
    if (rc == SPW_OK) { /* a pool may have grown for it: who found that pool busy meanwhile looks again */
        spw__waitset_granted(&manager->waits, SPW__CHANNEL(request->block.tier));
        spw__waitset_retry(&manager->waits, channels);
        spw__pressure_kick(manager, SPW_TIER_HOST);
    }
    if (rc != SPW_EAGAIN || request->nowait)
        return conclude(request, rc);
    spw__waitset_enter(&manager->waits);
    rc = conclude(request, wait_for_room(request, wait));
    spw__waitset_leave(&manager->waits);
    return rc;
}

int spw__request_run(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw_task *task = spw__task_of(request->manager, wait);
    if (!request->group)
        request->group = spw__task_node(request->manager, task);
    if (!task)
        return run(request, wait);
    (void)atomic_fetch_add(&task->users, 1);
    const int rc = run(request, wait);
    if (rc == SPW_OK)
        spw__arbiter_granted(request->manager, task, request->bytes);
    (void)atomic_fetch_sub(&task->users, 1);
    return rc;
}
