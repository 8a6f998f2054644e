/* Making room: what goes next when those who wait lack it, and doing it. Neighbours: demand.c says what they lack,
 * rank.c which victim goes, evict.c moves it, reclaim.c knows who else can free. */
#include "src/core/pressure.h"

#include "pool/base/error.h"
#include "src/core/arbiter.h"
#include "src/core/demand.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"

/* A victim of the pools of use, from that place in the route on. Where the disk is full, and below the tier is nothing
 * but the disk, only clean items are of use: it is not asked once for every victim. */
static bool pop_victim(struct spw_manager *manager, struct spw__choice choice, struct spw__victim *victim)
{
    bool disk_next = true;
    for (spw_tier below = choice.tier + 1; below < SPW__MEMORY_TIERS; below++)
        disk_next &= !manager->tiers[below].present;
    choice.clean_only |= victim->disk_full && disk_next;
    return spw__victim_pop(manager, &choice, victim);
}

static void end_round_locked(struct spw_manager *manager, struct spw__tier *tier)
{
    manager->holes[tier->tier].tries = 0;
    spw__reclaim_end_round(manager, tier->tier);
    if (!manager->pressure[tier->tier].failed)
        return;
    manager->pressure[tier->tier].failed = false;
    for (uint32_t i = 0; i < tier->n_pools; i++)
        spw__victims_forgive(&manager->victims[tier->tier][i]);
}

enum choice { CHOSE_NOTHING, CHOSE_VICTIM, CHOSE_HOLE, CHOSE_RECLAIMER };

/* Who chooses, and what was chosen. */
struct chooser {
    struct spw__waiter *helper; /* by whose thread, which may call reclaimers; NULL: by any other */
    bool no_victims;            /* one could not be started a moment ago */
    struct spw__victim victim;
    struct spw__demand hole;
    struct spw__reclaim_call call;
};

/* The cheapest reclaimer of use, or only one that is cheaper than a spill: to be called, or left to a thread that was
 * summoned for it. False: there is none. */
static bool choose_reclaimer(struct spw_manager *manager, const struct spw__choice *among, uint64_t bytes, bool cheaper,
                             struct chooser *chooser, enum choice *choice)
{
    if (atomic_load(&manager->reclaim.n[among->tier]) == 0)
        return false;
    const uint64_t below = cheaper ? spw__evict_ns_per_mib(manager, among->tier) : SPW__RECLAIM_ANY_COST;
    const enum spw__reclaim_choice chose =
        spw__reclaim_choose(manager, among, bytes, below, chooser->helper, &chooser->call);
    *choice = chose == SPW__RECLAIM_CLAIMED ? CHOSE_RECLAIMER : CHOSE_NOTHING;
    return chose != SPW__RECLAIM_NONE;
}

/* A victim, or a reclaimer that is cheaper than the next one, if that is not clean. False: there is none. */
static bool choose_source(struct spw_manager *manager, struct spw__choice among, uint64_t bytes,
                          struct chooser *chooser, enum choice *choice)
{
    *choice = CHOSE_VICTIM;
    if (atomic_load(&manager->reclaim.n[among.tier])) {
        among.clean_only = true;
        if (pop_victim(manager, among, &chooser->victim))
            return true;
        if (choose_reclaimer(manager, &among, bytes, true, chooser, choice))
            return true;
        among.clean_only = false;
        *choice = CHOSE_VICTIM;
    }
    return pop_victim(manager, among, &chooser->victim);
}

/* A failure that is no group's own: nothing that would be written can be. */
static bool is_disk_full(const struct spw__pressure *pressure)
{
    return pressure->failed && pressure->failure.code == SPW_ENOSPC && !pressure->failure.group[0];
}

/* A victim or a reclaimer of a group that refuses its own, unless what is leaving there is enough already. Guarded by
 * the tier's pressure lock. */
static bool choose_in_groups_locked(struct spw_manager *manager, const struct spw__demand *all, struct chooser *chooser,
                                    enum choice *choice)
{
    const spw_tier tier = all->tier->tier;
    struct spw__pressure *pressure = &manager->pressure[tier];
    for (struct spw__group *group = all->lacking; group; group = group->lack[tier].next) {
        const struct spw__lack *lack = &group->lack[tier];
        const struct spw__choice among = {.tier = tier, .lacking = group, .requester = lack->requester};
        const uint64_t bytes = spw__group_deficit(group, tier), leaving = atomic_load(&group->leaving[tier]);
        if (bytes == 0)
            continue;
        chooser->victim.disk_full = is_disk_full(pressure);
        chooser->victim.admission = lack->admission;
        if (!chooser->no_victims && choose_source(manager, among, bytes, chooser, choice))
            return true;
        if ((!chooser->no_victims || leaving == 0) &&
            choose_reclaimer(manager, &among, bytes, false, chooser, choice))
            return true;
        if (pressure->failed && leaving == 0 && !chooser->no_victims) /* as for all, below */
            (void)spw__demand_look_locked(manager, all->tier, pressure->failure.code, group);
    }
    return false;
}

/* A victim for what is to be free ahead of demand: while nobody's waits need one, and as long as it can be written. */
static enum choice choose_for_headroom_locked(struct spw_manager *manager, struct spw__tier *tier,
                                              struct chooser *chooser)
{
    const struct spw__choice among = {.tier = tier->tier, .lacking = &manager->root, .requester = &manager->root};
    struct spw__victim *victim = &chooser->victim;
    uint64_t leaving = 0;
    if (chooser->no_victims || !spw__headroom_wanted(manager, tier->tier))
        return CHOSE_NOTHING;
    for (uint32_t i = 0; i < tier->n_pools; i++)
        leaving += atomic_load(&manager->victims[tier->tier][i].leaving_bytes);
    if (spw__headroom_deficit(manager, tier->tier, leaving) == 0)
        return CHOSE_NOTHING;
    victim->disk_full = false;
    victim->admission = true;
    if (!manager->pressure[tier->tier].failed && pop_victim(manager, among, victim)) {
        spw__core_count(manager, SPW__CORE_HEADROOM_BYTES + (unsigned)tier->tier, victim->bytes);
        return CHOSE_VICTIM;
    }
    spw__headroom_satisfied(manager, tier->tier);
    return CHOSE_NOTHING;
}

/* What is left to do when waiters lack nothing that leaves the tier: raw memory that a reclaimer frees may make the
 * window that buffers could not. */
static enum choice choose_for_stuck_locked(struct spw_manager *manager, struct spw__tier *tier,
                                           const struct spw__demand *demand, struct chooser *chooser)
{
    const struct spw__choice among = {.tier = tier->tier, .lacking = &manager->root,
                                      .requester = demand->stuck_requester};
    enum choice choice;
    if (demand->stuck_bytes && atomic_load(&manager->reclaim.expected_bytes[tier->tier]) == 0 &&
        choose_reclaimer(manager, &among, demand->stuck_bytes, false, chooser, &choice))
        return choice;
    return choose_for_headroom_locked(manager, tier, chooser);
}

/* A source for what the supply does not cover. */
static enum choice choose_uncovered_locked(struct spw_manager *manager, const struct spw__demand *demand,
                                           const struct spw__supply *supply, struct chooser *chooser)
{
    const spw_tier tier = demand->tier->tier;
    struct spw__pressure *pressure = &manager->pressure[tier];
    struct spw__choice among = {.tier = tier, .route = demand->route, .least_bytes = demand->least_bytes,
                                .lacking = &manager->root, .requester = demand->requester};
    const uint64_t bytes = spw__demand_deficit(demand, supply);
    enum choice choice = CHOSE_NOTHING;
    if (chooser->no_victims) { /* those on their way may be all that keeps the next one waiting */
        if (!supply->in_flight)
            (void)choose_reclaimer(manager, &among, bytes, false, chooser, &choice);
        return choice;
    }
    if (choose_source(manager, among, bytes, chooser, &choice))
        return choice;
    among.route = 0;
    among.least_bytes = 0;
    if (demand->anywhere && demand->budget_bytes + supply->overbooked > supply->budget &&
        pop_victim(manager, among, &chooser->victim))
        return CHOSE_VICTIM;
    if (choose_reclaimer(manager, &among, bytes, false, chooser, &choice))
        return choice;
    /* Everything that could go was tried, nothing is on its way, and something could not be written. */
    if (pressure->failed && !supply->in_flight) {
        (void)spw__demand_look_locked(manager, demand->tier, pressure->failure.code, &manager->root);
        end_round_locked(manager, demand->tier);
    }
    return CHOSE_NOTHING;
}

/* Picks what to do next if what is free and leaving does not cover what is waited for: a victim, a reclaimer, or a hole
 * where only that is missing. Guarded by the tier's pressure lock. */
static enum choice choose_locked(struct spw_manager *manager, struct spw__tier *tier, struct chooser *chooser)
{
    struct spw__hole *hole = &manager->holes[tier->tier];
    const struct spw__demand demand = spw__demand_look_locked(manager, tier, 0, NULL);
    enum choice choice;
    if (!demand.any && !demand.stuck_bytes && !demand.lacking)
        end_round_locked(manager, tier);
    if (choose_in_groups_locked(manager, &demand, chooser, &choice))
        return choice;
    if (!demand.any)
        return choose_for_stuck_locked(manager, tier, &demand, chooser);
    if (hole->active)
        return CHOSE_NOTHING; /* its window counts as taken until it ends, and then there is another look */
    const struct spw__supply supply = spw__demand_supply(manager, &demand);
    const bool covered = spw__supply_covers(&supply, demand.bytes, demand.budget_bytes);
    if (covered && demand.fragmented_bytes <= supply.leaving)
        return choose_for_headroom_locked(manager, tier, chooser);
    if (demand.fragmented_bytes && supply.leaving == 0 && hole->tries < SPW__HOLE_TRIES_MAX) {
        chooser->hole = demand;
        spw__group_use(demand.requester);
        hole->active = true;
        return CHOSE_HOLE;
    }
    chooser->victim.disk_full = is_disk_full(&manager->pressure[tier->tier]);
    /* An admission's victim is one that the others would not need. */
    chooser->victim.admission = covered ? demand.fragmented_admission
                                        : spw__supply_covers(&supply, demand.bytes - demand.admission_bytes,
                                                             demand.budget_bytes - demand.admission_budget_bytes);
    return choose_uncovered_locked(manager, &demand, &supply, chooser);
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

/* True when nobody has begun to look since seen was set, which is set again. Who has may have freed what a victim
 * lacked that could not be started, and took it for one that leaves. */
static bool looked_last(struct spw__pressure *pressure, uint64_t *seen)
{
    const uint64_t before = *seen;
    *seen = atomic_load(&pressure->looks);
    return *seen == before;
}

/* Evicts, opens holes and, for a helper, calls reclaimers until nothing more is needed, can be found, or can be done
 * now. True when it has called one. */
static bool pump(struct spw_manager *manager, spw_tier tier, struct spw__waiter *helper)
{
    struct spw__pressure *pressure = &manager->pressure[tier];
    struct chooser chooser = {.helper = helper};
    const struct spw__demand *hole = &chooser.hole;
    uint64_t seen = atomic_fetch_add(&pressure->looks, 1) + 1;
    unsigned searches = 0;
    bool more = true, called = false;
    while (more) {
        spw__mutex_lock(&pressure->lock);
        const enum choice choice = choose_locked(manager, spw__tier_of(manager, tier), &chooser);
        spw__mutex_unlock(&pressure->lock);
        switch (choice) {
        case CHOSE_NOTHING: more = false; break;
        case CHOSE_VICTIM:
            chooser.no_victims = !evict(manager, &chooser.victim) && looked_last(pressure, &seen);
            break;
        case CHOSE_RECLAIMER:
            (void)spw__reclaim_call(&chooser.call);
            called = true;
            break;
        case CHOSE_HOLE: /* without one, others may still be helped; but not for ever while things change under us */
            more = spw__hole_open(manager, tier, hole->fragmented_bytes, hole->fragmented_align,
                                  hole->fragmented_admission, hole->requester) != SPW__HOLE_CLEARING &&
                   ++searches < SPW__HOLE_TRIES_MAX;
            break;
        }
    }
    return called;
}

bool spw__pressure_help(struct spw_manager *manager, spw_tier tier, struct spw__waiter *waiter)
{
    return pump(manager, tier, waiter);
}

void spw__pressure_kick(struct spw_manager *manager, spw_tier tier)
{
    spw__loss_look(manager);
    /* Room in a tier is also room for what the tiers above it would push down. */
    for (int at = (int)tier < SPW__MEMORY_TIERS ? (int)tier : SPW__MEMORY_TIERS - 1; at >= 0; at--)
        if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(at)) || spw__headroom_wanted(manager, (spw_tier)at)) {
            spw_error_info kept; /* what fails in there is not the error of this thread's call */
            spw__error_save(&kept);
            (void)pump(manager, (spw_tier)at, NULL);
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

void spw__pressure_begin_round(struct spw_manager *manager, spw_tier tier)
{
    if (spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)))
        return;
    spw__mutex_lock(&manager->pressure[tier].lock);
    end_round_locked(manager, spw__tier_of(manager, tier));
    spw__mutex_unlock(&manager->pressure[tier].lock);
}
