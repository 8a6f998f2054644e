/* Demand: see demand.h. */
#include "src/core/demand.h"

#include "src/core/manager.h"

/* How many of the oldest waiters decide what is done for a tier, when together they need more than it could have. */
#define LOOK_WAITERS 64u

/* The same for what a group refuses: when those lack more than is leaving there. They may be many, of many groups. */
#define LOOK_IN_GROUP 4u

struct spw__group *spw__request_refused_by(const struct spw__request *request, const struct spw__tier *tier)
{
    struct spw__group *lacking =
        request->reservation ? NULL
                             : spw__ledger_short(request->group, tier->tier, spw__request_charge(request, tier));
    return lacking && lacking->parent ? lacking : NULL;
}

/* What a group refuses is no demand of the tier: victims of that group alone are of use. Who comes later, charged to
 * the same and for as much, may be left out then: what is done for the group is known, and done for the oldest. */
static int note_lack(struct spw__demand *demand, const struct spw__request *request, struct spw__group *group)
{
    struct spw__lack *lack = &group->lack[demand->tier->tier];
    if (!lack->listed) {
        *lack = (struct spw__lack){.next = demand->lacking, .requester = request->group, .listed = true};
        demand->lacking = group;
    }
    lack->bytes += spw__request_charge(request, demand->tier);
    lack->admission |= request->admission;
    return ++lack->n_waiters >= LOOK_IN_GROUP && !demand->but && spw__group_deficit(group, demand->tier->tier)
               ? SPW__VISIT_ENOUGH : SPW_EAGAIN;
}

/* Who comes later may be left out: together they need more than there is. */
static int go_on(struct spw__demand *demand)
{
    const bool enough = demand->bytes > demand->enough || demand->budget_bytes > demand->enough_budget;
    return ++demand->n_waiters >= LOOK_WAITERS && enough ? SPW__VISIT_STOP : SPW_EAGAIN;
}

/* It lacks a hole that no window can make: known to be in vain, so that others are looked at. */
static bool is_stuck(const struct spw__demand *demand, const struct spw__request *request)
{
    return request->failed == SPW_EFRAG && request->bytes >= demand->none.bytes &&
           spw__hole_align(request->align) >= demand->none.align;
}

/* Adds what a request lacks that victims can bring. */
static void add_demand(struct spw__demand *demand, const struct spw__request *request)
{
    const uint32_t route = spw__tier_first_route(demand->tier, request->bytes);
    const uint64_t charge = spw__request_charge(request, demand->tier);
    demand->requester = demand->any ? demand->requester : request->group;
    demand->any = true;
    if (!request->reservation) {
        demand->budget_bytes += charge;
        demand->admission_budget_bytes += request->admission ? charge : 0;
    }
    if (request->charge_only || request->min_of) {
        demand->anywhere = true;
        return;
    }
    demand->route = demand->bytes && demand->route < route ? demand->route : route;
    demand->least_bytes = demand->bytes && demand->least_bytes < charge ? demand->least_bytes : charge;
    demand->bytes += charge;
    demand->admission_bytes += request->admission ? charge : 0;
    if (request->failed == SPW_EFRAG && demand->fragmented_bytes == 0) {
        demand->fragmented_bytes = request->bytes;
        demand->fragmented_align = request->align;
        demand->fragmented_admission = request->admission;
    }
}

static int visit_demand(struct spw__waiter *waiter, void *arg)
{
    struct spw__demand *demand = arg;
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    if (request->failed == SPW_ETOOBIG) /* no victim here would help it */
        return SPW_EAGAIN;
    if (demand->but && waiter->task == demand->but)
        return SPW_EAGAIN;
    struct spw__group *refuser = spw__request_refused_by(request, demand->tier);
    if (demand->complete_with) {
        if ((refuser ? refuser : &request->manager->root) != demand->complete_of)
            return SPW_EAGAIN;
        request->spill_failed = true;
        return demand->complete_with;
    }
    if (refuser)
        return note_lack(demand, request, refuser);
    if (is_stuck(demand, request)) {
        if (demand->stuck_bytes == 0) {
            demand->stuck_bytes = request->bytes;
            demand->stuck_requester = request->group;
        }
        return SPW_EAGAIN;
    }
    add_demand(demand, request);
    return go_on(demand);
}

/* All that the tier has free or will have: no waiters' supply is more. */
static void note_most_supply(struct spw_manager *manager, struct spw__demand *demand)
{
    const struct spw__tier *tier = demand->tier;
    demand->enough = demand->enough_budget = 0;
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        const uint64_t leaving = atomic_load(&manager->victims[tier->tier][i].leaving_bytes);
        demand->enough += spw__pool_free(&tier->pools[i]) + leaving;
        demand->enough_budget += leaving;
    }
    demand->enough_budget += spw__gate_free(&manager->root.gates[tier->tier]);
}

static struct spw__demand look_locked(struct spw_manager *manager, struct spw__demand demand)
{
    const spw_tier tier = demand.tier->tier;
    note_most_supply(manager, &demand);
    demand.none = spw__hole_none_locked(&manager->holes[tier]);
    spw__waitset_visit_demands(&manager->waits, SPW__CHANNEL(tier), visit_demand, &demand);
    for (struct spw__group *at = demand.lacking; at; at = at->lack[tier].next)
        at->lack[tier].listed = false;
    return demand;
}

struct spw__demand spw__demand_look_locked(struct spw_manager *manager, struct spw__tier *tier, int complete_with,
                                           const struct spw__group *complete_of)
{
    return look_locked(manager, (struct spw__demand){.tier = tier, .complete_with = complete_with,
                                                     .complete_of = complete_of});
}

uint64_t spw__pressure_lack(struct spw_manager *manager, spw_tier tier, const struct spw_task *but)
{
    spw__mutex_lock(&manager->pressure[tier].lock);
    const struct spw__demand demand =
        look_locked(manager, (struct spw__demand){.tier = spw__tier_of(manager, tier), .but = but});
    const struct spw__supply supply = spw__demand_supply(manager, &demand);
    uint64_t lack = demand.any ? spw__demand_deficit(&demand, &supply) : demand.stuck_bytes;
    for (struct spw__group *at = demand.lacking; at; at = at->lack[tier].next)
        if (spw__group_is_below(&but->node, at))
            lack += spw__group_deficit(at, tier);
    spw__mutex_unlock(&manager->pressure[tier].lock);
    return lack;
}

uint64_t spw__group_deficit(const struct spw__group *group, spw_tier tier)
{
    const uint64_t lack = group->lack[tier].bytes;
    const uint64_t leaving = atomic_load(&group->leaving[tier]); /* before what is committed: see spw__demand_supply */
    const uint64_t committed = spw__ledger_committed(group, tier), max = atomic_load(&group->gates[tier].budget);
    if (committed < leaving || (committed - leaving <= max && lack <= max - (committed - leaving)))
        return 0;
    return committed - leaving + lack - max;
}

uint64_t spw__demand_deficit(const struct spw__demand *demand, const struct spw__supply *supply)
{
    const uint64_t wanted = demand->budget_bytes ? demand->budget_bytes + supply->overbooked : 0;
    const uint64_t there = supply->memory ? supply->memory : supply->scrap;
    const uint64_t memory = demand->bytes > there ? demand->bytes - there : 0;
    const uint64_t budget = wanted > supply->budget ? wanted - supply->budget : 0;
    const uint64_t hole = demand->fragmented_bytes > supply->leaving ? demand->fragmented_bytes - supply->leaving : 0;
    return memory || budget ? (memory > budget ? memory : budget) : hole;
}

struct spw__supply spw__demand_supply(struct spw_manager *manager, const struct spw__demand *demand)
{
    struct spw__tier *tier = demand->tier;
    const struct spw__gate *gate = &manager->root.gates[tier->tier];
    const uint64_t expected = atomic_load(&manager->reclaim.expected_bytes[tier->tier]); /* of reclaimers that run */
    struct spw__supply supply = {.budget = expected, .memory = expected, .leaving = expected,
                                 .in_flight = expected != 0};
    for (uint32_t at = 0; at < tier->n_pools; at++) {
        const uint64_t leaving = atomic_load(&manager->victims[tier->tier][tier->route[at]].leaving_bytes);
        supply.in_flight |= leaving != 0;
        supply.budget += leaving;
        if (at < demand->route)
            continue;
        const uint64_t free_bytes = spw__pool_free(&tier->pools[tier->route[at]]);
        if (free_bytes + leaving + expected < demand->least_bytes) {
            if (tier->pools[tier->route[at]].size >= demand->least_bytes && supply.scrap < free_bytes + leaving)
                supply.scrap = free_bytes + leaving;
            continue;
        }
        supply.memory += free_bytes + leaving;
        supply.leaving += leaving;
    }
    /* After what is leaving: it becomes free first, and is no longer leaving then, so that nothing is missed. */
    const uint64_t budget = atomic_load(&gate->budget), committed = atomic_load(&gate->committed);
    supply.budget += budget > committed ? budget - committed : 0;
    supply.overbooked = committed > budget ? committed - budget : 0;
    return supply;
}

bool spw__supply_covers(const struct spw__supply *supply, uint64_t bytes, uint64_t budget_bytes)
{
    return bytes <= supply->memory && (budget_bytes == 0 || budget_bytes + supply->overbooked <= supply->budget);
}
