/* Memory for those who wait that is not evicted: what is free, growth of host pools, and windows that were cleared.
 * Neighbours: pressure.c has the requests, pool/tier lets a pool grow, hole.c clears windows. */
#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

/* How many of the oldest waiters a request takes along, when together they need more than the tier has. */
#define GROW_WAITERS 64u

uint64_t spw__pressure_room(void *arg, unsigned channel)
{
    const struct spw_manager *manager = arg;
    /* A group may also get what is set aside for it. What lies in threads' caches counts as committed, but an attempt
     * takes it back. */
    return spw__gate_free(&manager->root.gates[channel]) + atomic_load(&manager->root.child_mins[channel]) +
           spw__tier_cached_most(&manager->tiers[channel]);
}

/* What those need who may be served in a tier, be it their lowest or a better one. */
struct growth {
    const struct spw__tier *tier;
    uint64_t budget;
    uint64_t least_bytes; /* UINT64_MAX: nobody needs anything */
    uint64_t bytes;       /* with what alignment may cost at the end of a pool */
    uint64_t enough;      /* more than this is not to be had */
    uint32_t n_waiters;
    bool all;
};

/* A promise needs no memory. */
static bool is_promise(const struct spw__request *request)
{
    return request->charge_only || request->min_of;
}

static void add(struct growth *growth, const struct spw__request *request)
{
    const uint64_t charge = spw__tier_charge(growth->tier, request->bytes);
    if (is_promise(request) || request->bytes > growth->tier->largest_request ||
        (!request->reservation && charge > growth->budget))
        return;
    growth->least_bytes = charge < growth->least_bytes ? charge : growth->least_bytes;
    growth->bytes += charge + (request->align > SPW__IO_BLOCK ? request->align : 0);
}

static int visit_growth(struct spw__waiter *waiter, void *arg)
{
    struct growth *growth = arg;
    const struct spw__request *request = (const struct spw__request *)(const void *)waiter;
    if (is_promise(request))
        return SPW__VISIT_ENOUGH; /* a key is of such requests alone, or of none */
    add(growth, request);
    return ++growth->n_waiters >= GROW_WAITERS && growth->bytes > growth->enough && !growth->all ? SPW__VISIT_STOP
                                                                                                   : SPW_EAGAIN;
}

static int visit_impossible(struct spw__waiter *waiter, void *arg)
{
    (void)arg;
    return spw__request_possible((const struct spw__request *)(const void *)waiter) ? SPW_EAGAIN : SPW_ETOOBIG;
}

void spw__pressure_budget_changed(struct spw_manager *manager, spw_tier tier)
{
    spw__waitset_visit(&manager->waits, SPW__CHANNEL(tier), visit_impossible, NULL);
    (void)spw__pressure_grow(manager, tier, NULL);
}

bool spw__pressure_grow(struct spw_manager *manager, spw_tier which, const struct spw__request *own)
{
    struct spw__tier *tier = spw__tier_of(manager, which);
    struct growth growth = {.tier = tier, .budget = atomic_load(&manager->root.gates[tier->tier].budget),
                            .least_bytes = UINT64_MAX, .all = !own};
    if (!tier->present || (own && (is_promise(own) || !spw__tier_can_grow(tier))))
        return false;
    growth.enough = spw__tier_free_from(tier, 0);
    spw__waitset_visit(&manager->waits, SPW__CHANNEL(tier->tier), visit_growth, &growth);
    if (growth.least_bytes == UINT64_MAX) /* nobody waits any more */
        return false;
    /* The request itself may be younger than those that were visited, and have a smaller pool. */
    if (growth.n_waiters >= GROW_WAITERS && own)
        add(&growth, own);
    if (!spw__tier_grow_for_all(tier, growth.least_bytes, growth.bytes))
        return false;
    spw__waitset_signal(&manager->waits, SPW__CHANNEL(tier->tier));
    return true;
}

struct grant {
    struct spw_manager *manager;
    struct spw__block *window;
    bool given;
};

static int visit_grant(struct spw__waiter *waiter, void *arg)
{
    struct grant *grant = arg;
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    if (grant->given)
        return SPW__VISIT_STOP;
    const spw_tier tier = (spw_tier)grant->window->tier;
    struct spw__tier *at = spw__tier_of(grant->manager, tier);
    if (is_promise(request) || spw__tier_charge(at, request->bytes) != grant->window->bytes ||
        at->pools[grant->window->pool].limit < request->bytes ||
        (request->align && grant->window->address % request->align != 0))
        return SPW_EAGAIN;
    grant->given = spw__tier_adopt(at, request->reservation ? NULL : request->group, grant->window);
    if (!grant->given)
        return SPW_EAGAIN;
    request->block = *grant->window;
    return SPW_OK;
}

bool spw__pressure_grant(struct spw_manager *manager, struct spw__block *window)
{
    struct grant grant = {.manager = manager, .window = window};
    spw__waitset_visit_demands(&manager->waits, SPW__CHANNEL(window->tier), visit_grant, &grant);
    return grant.given;
}
