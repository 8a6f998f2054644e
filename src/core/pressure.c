/* Pressure: see pressure.h. Neighbours: pool/tier tries, pool/base/wait queues, spill/victim ranks, evict.c moves. */
#include "src/core/pressure.h"

#include "pool/base/error.h"
#include "src/core/arbiter.h"
#include "src/core/demand.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/manager.h"
#include "src/core/parked.h"
#include "src/core/refusal.h"
#include "src/core/reserve.h"

/* Beside the keys of alignments (see set_needs). */
#define KEY_OF_RESERVATIONS 32

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
    if (request->charge_only)
        return !spw__ledger_never_fits(request->group, tier, request->bytes, at->set_aside);
    return at->present && request->bytes <= at->largest_request &&
           (request->reservation ||
            !spw__ledger_never_fits(request->group, tier, spw__tier_charge(at, request->bytes), at->set_aside));
}

bool spw__request_possible(const struct spw__request *request)
{
    bool possible = request->min_of != NULL; /* which was checked */
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        possible |= fits_empty(request, tier);
    return possible;
}

static int try_tier(struct spw__request *request, struct spw__tier *tier, enum spw__grow grow)
{
    if (request->charge_only)
        return spw__tier_reserve(tier, request->group, request->bytes);
    if (request->reservation)
        return spw__tier_alloc_charged(tier, request->bytes, request->align, grow, &request->block);
    return spw__tier_alloc_aligned(tier, request->group, request->bytes, request->align, grow, &request->block);
}

/* One try over the tiers of the request, best first, but those that are barred. SPW_EAGAIN: no room anywhere. */
static int try_tiers(struct spw__request *request, enum spw__grow grow, uint32_t barred)
{
    bool possible = false;
    if (spw__ledger_cancelled(request->group))
        return SPW_ECANCELED;
    if (request->min_of) {
        request->block.tier = (uint8_t)request->lowest;
        return !barred && spw__ledger_set_min(request->min_of, request->lowest, request->bytes) ? SPW_OK : SPW_EAGAIN;
    }
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        struct spw__tier *at = spw__tier_of(request->manager, tier);
        if (!at->present)
            continue;
        if (barred & SPW__CHANNEL(tier)) {
            possible |= fits_empty(request, tier);
            continue;
        }
        int rc = try_tier(request, at, grow);
        /* What lies on disk as well is room: an admission takes it before it goes to a lower tier. */
        if (rc == SPW_ENOMEM && request->admission && grow != SPW__GROW_NOT &&
            spw__evict_clean(request->manager, request->group, tier, spw__request_charge(request, at)))
            rc = try_tier(request, at, grow);
        if (rc == SPW_OK && request->admission)
            spw__headroom_admitted(request->manager, tier);
        if (rc == SPW_OK || rc == SPW_ENOMETA)
            return rc;
        possible |= rc != SPW_ETOOBIG;
        request->failed = rc;
    }
    return possible ? SPW_EAGAIN : SPW_ETOOBIG;
}

/* Where a served request took what others wait for; what a reservation pays for was nobody else's. */
static uint32_t taken_from(const struct spw__request *request)
{
    if (request->reservation)
        return 0;
    const bool nothing = request->charge_only || request->min_of;
    return SPW__CHANNEL(nothing ? request->lowest : (spw_tier)request->block.tier);
}

/* It is groups that refuse it, wherever it may go: what others get is not taken from it. */
static bool is_held_back(const struct spw__request *request)
{
    bool held_back = true;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        const struct spw__tier *at = spw__tier_of(request->manager, tier);
        held_back &= !at->present || spw__request_refused_by(request, at);
    }
    return held_back;
}

static int attempt(struct spw__waiter *waiter)
{
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    const int rc = try_tiers(request, SPW__GROW_NOT, waiter->barred);
    waiter->held_back = rc == SPW_EAGAIN && is_held_back(request);
    waiter->what = request->failed == SPW_EFRAG ? SPW__WAIT_HOLE : SPW__WAIT_ROOM;
    if (rc == SPW_OK)
        waiter->served = taken_from(request);
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

/* Tells the waiter what it needs. Of one key must be only requests of which a larger one never fits where a smaller one
 * does not: a stricter alignment may be all that is missing, so that each has a key of its own, a place in the group.
 * Small objects fit by what is left in the slabs of their size, and what a reservation pays for needs nothing of the
 * budget: nothing is said about them. */
static void set_needs(struct spw__request *request)
{
    struct spw__waiter *waiter = &request->waiter;
    if (request->reservation)
        return;
    if (request->min_of) { /* takes no memory, and so has a key of its own */
        waiter->key = request->min_of;
        return;
    }
    if (request->charge_only) {
        waiter->key = (const char *)request->group + KEY_OF_RESERVATIONS;
        waiter->need[request->lowest] = request->bytes;
        waiter->net_bytes = request->net_bytes;
        return;
    }
    waiter->key = (const char *)request->group + (request->align ? 1 + __builtin_ctzll(request->align) : 0);
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        const struct spw__tier *at = spw__tier_of(request->manager, tier);
        if (at->n_small == 0 || request->bytes > SPW__SMALL_LIMIT)
            waiter->need[tier] = spw__tier_charge(at, request->bytes);
    }
}

/* A victim of the pools of use, from that place in the route on. Where the disk is full, and below the tier is nothing
 * but the disk, only clean items are of use: it is not asked once for every victim. */
static bool pop_victim(struct spw_manager *manager, struct spw__choice choice, struct spw__victim *victim)
{
    bool disk_next = true;
    for (spw_tier below = choice.tier + 1; below < SPW__MEMORY_TIERS; below++)
        disk_next &= !manager->tiers[below].present;
    choice.clean_only = victim->disk_full && disk_next;
    return spw__victim_pop(manager, &choice, victim);
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

/* A failure that is no group's own: nothing that would be written can be. */
static bool is_disk_full(const struct spw__pressure *pressure)
{
    return pressure->failed && pressure->failure.code == SPW_ENOSPC && !pressure->failure.group[0];
}

/* A victim of a group that refuses its own, unless what is leaving there is enough already. Guarded by the tier's
 * pressure lock. */
static bool choose_in_groups_locked(struct spw_manager *manager, const struct spw__demand *all,
                                    struct spw__victim *victim)
{
    const spw_tier tier = all->tier->tier;
    struct spw__pressure *pressure = &manager->pressure[tier];
    for (struct spw__group *group = all->lacking; group; group = group->lack[tier].next) {
        const struct spw__lack *lack = &group->lack[tier];
        const struct spw__choice choice = {.tier = tier, .lacking = group, .requester = lack->requester};
        const uint64_t committed = spw__ledger_committed(group, tier), max = atomic_load(&group->gates[tier].budget);
        const uint64_t leaving = atomic_load(&group->leaving[tier]);
        if (committed < leaving || (committed - leaving <= max && lack->bytes <= max - (committed - leaving)))
            continue;
        victim->disk_full = is_disk_full(pressure);
        victim->admission = lack->admission;
        if (pop_victim(manager, choice, victim))
            return true;
        if (pressure->failed && leaving == 0) /* as for all, below */
            (void)spw__demand_look_locked(manager, all->tier, pressure->failure.code, group);
    }
    return false;
}

/* A victim for what is to be free ahead of demand: while nobody's waits need one, and as long as it can be written. */
static bool choose_for_headroom_locked(struct spw_manager *manager, struct spw__tier *tier, struct spw__victim *victim)
{
    const struct spw__choice choice = {.tier = tier->tier, .lacking = &manager->root, .requester = &manager->root};
    uint64_t leaving = 0;
    if (!spw__headroom_wanted(manager, tier->tier))
        return false;
    for (uint32_t i = 0; i < tier->n_pools; i++)
        leaving += atomic_load(&manager->victims[tier->tier][i].leaving_bytes);
    if (spw__headroom_deficit(manager, tier->tier, leaving) == 0)
        return false;
    victim->disk_full = false;
    victim->admission = true;
    if (!manager->pressure[tier->tier].failed && pop_victim(manager, choice, victim)) {
        spw__core_count(manager, SPW__CORE_HEADROOM_BYTES + (unsigned)tier->tier, victim->bytes);
        return true;
    }
    spw__headroom_satisfied(manager, tier->tier);
    return false;
}

/* Picks what to do next if what is free and leaving does not cover what is waited for: a victim, or a hole where only
 * that is missing. Guarded by the tier's pressure lock. */
static enum choice choose_locked(struct spw_manager *manager, struct spw__tier *tier, struct spw__victim *victim,
                                 struct spw__demand *hole_demand)
{
    struct spw__pressure *pressure = &manager->pressure[tier->tier];
    struct spw__hole *hole = &manager->holes[tier->tier];
    const struct spw__demand demand = spw__demand_look_locked(manager, tier, 0, NULL);
    if (!demand.any && !demand.stuck && !demand.lacking)
        end_round_locked(manager, tier);
    if (choose_in_groups_locked(manager, &demand, victim))
        return CHOSE_VICTIM;
    if (!demand.any)
        return choose_for_headroom_locked(manager, tier, victim) ? CHOSE_VICTIM : CHOSE_NOTHING;
    if (hole->active)
        return CHOSE_NOTHING; /* its window counts as taken until it ends, and then there is another look */
    const struct spw__supply supply = spw__demand_supply(manager, &demand);
    const bool covered = spw__supply_covers(&supply, demand.bytes, demand.budget_bytes);
    if (covered && demand.fragmented_bytes <= supply.leaving)
        return choose_for_headroom_locked(manager, tier, victim) ? CHOSE_VICTIM : CHOSE_NOTHING;
    if (demand.fragmented_bytes && supply.leaving == 0 && hole->tries < SPW__HOLE_TRIES_MAX) {
        *hole_demand = demand;
        spw__group_use(demand.requester);
        hole->active = true;
        return CHOSE_HOLE;
    }
    victim->disk_full = is_disk_full(pressure);
    /* An admission's victim is one that the others would not need. */
    victim->admission = covered ? demand.fragmented_admission
                                : spw__supply_covers(&supply, demand.bytes - demand.admission_bytes,
                                         demand.budget_bytes - demand.admission_budget_bytes);
    struct spw__choice choice = {.tier = tier->tier, .route = demand.route, .least_bytes = demand.least_bytes,
                                 .lacking = &manager->root, .requester = demand.requester};
    if (pop_victim(manager, choice, victim))
        return CHOSE_VICTIM;
    choice.route = 0;
    choice.least_bytes = 0;
    if (demand.anywhere && demand.budget_bytes + supply.overbooked > supply.budget &&
        pop_victim(manager, choice, victim))
        return CHOSE_VICTIM;
    /* Everything that could go was tried, nothing is on its way, and something could not be written. */
    if (pressure->failed && !supply.in_flight) {
        (void)spw__demand_look_locked(manager, tier, pressure->failure.code, &manager->root);
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
    struct spw__demand demand = {.bytes = 0};
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
                                  demand.fragmented_admission, demand.requester) != SPW__HOLE_CLEARING &&
                   ++searches < SPW__HOLE_TRIES_MAX;
            break;
        }
    }
}

void spw__pressure_kick(struct spw_manager *manager, spw_tier tier)
{
    /* Room in a tier is also room for what the tiers above it would push down. */
    for (int at = (int)tier < SPW__MEMORY_TIERS ? (int)tier : SPW__MEMORY_TIERS - 1; at >= 0; at--)
        if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(at)) || spw__headroom_wanted(manager, (spw_tier)at)) {
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

/* What failed after the last requester had left is not held against the next one. */
static void begin_round(struct spw_manager *manager, spw_tier tier)
{
    if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)))
        return;
    spw__mutex_lock(&manager->pressure[tier].lock);
    end_round_locked(manager, spw__tier_of(manager, tier));
    spw__mutex_unlock(&manager->pressure[tier].lock);
}

static void enqueue(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw_manager *manager = request->manager;
    struct spw_task *task = request->completed ? wait->task : spw__task_of(manager, wait);
    const struct spw__group *group = request->group; /* an asynchronous request may be over once it was enqueued */
    request->begun_ns = spw__clock_now_ns(manager->env.clock);
    request->waiter = (struct spw__waiter){.attempt = attempt, .completed = request->completed,
                                           .channels = channels_of(request),
                                           .demands = SPW__CHANNEL(request->lowest), .deadline_ns = deadline_ns,
                                           .task = task, .what = SPW__WAIT_ROOM,
                                           .cancel = wait ? wait->cancel : NULL};
    set_needs(request);
    begin_round(manager, request->lowest);
    if (request->admission)
        spw__headroom_shortfall(manager, request->first, request->lowest);
    spw__core_count(manager, SPW__CORE_WAITS, 1);
    if (task)
        (void)atomic_fetch_add(&task->waits, 1);
    spw__wait_enqueue(&manager->waits, &request->waiter);
    if (spw__ledger_cancelled(group)) /* it may not have been attempted */
        spw__pressure_end_cancelled(manager);
}

/* After the wait. */
static void note_wait(struct spw__request *request, int rc)
{
    struct spw_manager *manager = request->manager;
    spw__core_count(manager, SPW__CORE_WAIT_NS, spw__clock_now_ns(manager->env.clock) - request->begun_ns);
    if (rc != SPW_OK) /* who was not served must not leave the others' round open */
        spw__pressure_kick(manager, request->lowest);
}

static int wait_for_room(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw_manager *manager = request->manager;
    enqueue(request, wait, spw__deadline_ns(manager, wait));
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        while (spw__pressure_grow(manager, tier, request)) { /* until it is enough for all, or nothing is left */
        }
    spw__pressure_kick(manager, request->lowest);
    const int rc = wait && wait->timeout_ms == 0 ? spw__wait_leave(&manager->waits, &request->waiter)
                                                 : spw__wait_block(&manager->waits, &request->waiter);
    note_wait(request, rc);
    return rc;
}

/* What a reservation pays for a request, which has one tier then. */
static uint64_t paid_bytes(const struct spw__request *request)
{
    return spw__request_charge(request, spw__tier_of(request->manager, request->lowest));
}

/* The reservation that pays for a request has its bytes back, or has spent them. */
static int settle(const struct spw__request *request, int rc)
{
    if (request->reservation)
        spw__reservation_settle(request->reservation, paid_bytes(request), rc == SPW_OK);
    return rc;
}

static int try_at_once(struct spw__request *request)
{
    struct spw__waitset *waits = &request->manager->waits;
    const enum spw__grow grow = request->nowait || request->completed ? SPW__GROW_ALONE : SPW__GROW_FREELY;
    const uint32_t channels = channels_of(request);
    /* What it was promised before is left to nobody. */
    const uint32_t heeded = request->reservation ? 0 : channels;
    int rc = SPW_EAGAIN;
    /* Those who wait already go first, unless the caller cannot wait at all; and even then one that waited for long. */
    if (request->nowait || request->reservation || !spw__waitset_busy(waits, channels)) {
        rc = try_tiers(request, grow, spw__waitset_barred_of(waits, heeded));
        if (rc == SPW_EAGAIN && spw__parked_sweep(request->manager))
            rc = try_tiers(request, grow, spw__waitset_barred_of(waits, heeded));
        if (rc == SPW_EAGAIN)
            spw__waitset_retry(waits, channels);
    }
    if (rc == SPW_EAGAIN && !spw__request_possible(request)) /* it may be barred from every attempt */
        rc = SPW_ETOOBIG;
    if (rc == SPW_OK) { /* a pool may have grown for it, or a try before held bytes: who met that looks again */
        spw__waitset_granted(waits, taken_from(request));
        spw__waitset_retry(waits, channels);
        spw__pressure_kick(request->manager, SPW_TIER_HOST);
    }
    return rc;
}

static int run(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw__waitset *waits = &request->manager->waits;
    int rc = request->reservation ? spw__reservation_spend(request->reservation, paid_bytes(request)) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    rc = try_at_once(request);
    if (rc != SPW_EAGAIN || request->nowait)
        return settle(request, spw__request_conclude(request, rc));
    spw__waitset_enter(waits);
    rc = settle(request, spw__request_conclude(request, wait_for_room(request, wait)));
    spw__waitset_leave(waits);
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

/* What the end of an asynchronous request means to its task. */
static int grant(struct spw__request *request, struct spw_task *task, int rc)
{
    rc = settle(request, spw__request_conclude(request, rc));
    if (rc == SPW_OK && task)
        spw__arbiter_granted(request->manager, task, request->bytes);
    return rc;
}

int spw__request_start(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns)
{
    if (!request->group)
        request->group = spw__task_node(request->manager, wait->task);
    int rc = request->reservation ? spw__reservation_spend(request->reservation, paid_bytes(request)) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    rc = try_at_once(request);
    if (rc != SPW_EAGAIN)
        return grant(request, wait->task, rc);
    enqueue(request, wait, deadline_ns);
    return SPW__REQUEST_WAITS;
}

int spw__request_finish(struct spw__request *request, int rc)
{
    note_wait(request, rc);
    return grant(request, request->waiter.task, rc);
}
