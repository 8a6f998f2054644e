/* Places that are named at run time, and their budgets. Neighbours: pool/ledger has the gates, pressure.c and grow.c
 * follow a change. */
#include <stdio.h>

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

int spw__check_place(const struct spw_manager *manager, spw_place place, const char *what)
{
    char has[40] = "", named[24] = "no place";
    size_t used = 0;
    if (spw__memory_place(manager, place))
        return SPW_OK;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        if (manager->tiers[tier].present)
            used += (size_t)snprintf(has + used, sizeof has - used, "%s%s", used ? ", " : "", spw_tier_name(tier));
    if (place != SPW_PLACE_NONE)
        (void)snprintf(named, sizeof named, SPW_PLACE_INDEX(place) ? "%s %u" : "%s",
                       spw_tier_name(SPW_PLACE_TIER(place)), (unsigned)SPW_PLACE_INDEX(place));
    return spw__fail(SPW_EINVAL, "%s: %s is not a memory tier of this manager; it has %s, which its configuration "
                                 "names (device=, pinned=, host=)", what, named, has);
}

static struct spw__gate *gate_of(spw_manager *manager, spw_place place, uint64_t *most)
{
    if (place == SPW_PLACE_NONE || SPW_PLACE_INDEX(place) != 0)
        return NULL;
    switch ((int)SPW_PLACE_TIER(place)) {
    case SPW_TIER_META: *most = UINT64_MAX; return &manager->meta.gate;
    case SPW_TIER_DISK:
        *most = manager->store ? spw__store_quota(manager->store) : 0;
        return manager->store ? &manager->root.gates[SPW_TIER_DISK] : NULL;
    default:
        if (!spw__memory_place(manager, place))
            return NULL;
        *most = manager->tiers[SPW_PLACE_TIER(place)].size;
        return &manager->root.gates[SPW_PLACE_TIER(place)];
    }
}

int spw_set_budget(spw_manager *manager, spw_place place, uint64_t bytes)
{
    uint64_t most = 0;
    if (!manager)
        return spw__fail(SPW_EINVAL, "spw_set_budget: manager is NULL");
    const int rc = spw__check_process(manager);
    if (rc != SPW_OK)
        return rc;
    struct spw__gate *gate = gate_of(manager, place, &most);
    if (!gate)
        return spw__fail(SPW_EINVAL, "spw_set_budget: this manager has no such place");
    if (bytes > most)
        return spw__fail(SPW_EINVAL, "spw_set_budget: %llu bytes are more than the %llu that %s has",
                         (unsigned long long)bytes, (unsigned long long)most, spw_tier_name(SPW_PLACE_TIER(place)));
    atomic_store(&gate->budget, bytes);
    if ((unsigned)SPW_PLACE_TIER(place) < SPW__MEMORY_TIERS) {
        spw__waitset_signal(&manager->waits, SPW__CHANNEL(SPW_PLACE_TIER(place)));
        spw__pressure_budget_changed(manager, SPW_PLACE_TIER(place));
    }
    spw__pressure_kick(manager, SPW_TIER_HOST);
    return SPW_OK;
}

uint64_t spw_budget(spw_manager *manager, spw_place place)
{
    uint64_t most;
    struct spw__gate *gate = manager ? gate_of(manager, place, &most) : NULL;
    return gate ? atomic_load(&gate->budget) : 0;
}
