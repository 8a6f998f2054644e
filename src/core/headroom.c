/* Headroom: see headroom.h. Neighbours: pressure.c tells of shortfalls and admissions, pump.c picks the victims. */
#include "src/core/headroom.h"

#include "src/core/manager.h"

/* By default: one part in sixteen, where that is more than a few pieces. */
enum { DEFAULT_PERCENT = 6 };
#define DEFAULT_FROM_BYTES (UINT64_C(64) << 20)

static uint64_t free_bytes(const struct spw_manager *manager, spw_tier tier)
{
    return spw__gate_free(&manager->root.gates[tier]);
}

void spw__headroom_init(struct spw_manager *manager, int percent)
{
    for (spw_tier tier = SPW_TIER_PINNED_HOST; tier < SPW__MEMORY_TIERS; tier++) {
        const uint64_t size = manager->tiers[tier].size;
        const int share = percent >= 0 ? percent : size >= DEFAULT_FROM_BYTES ? DEFAULT_PERCENT : 0;
        manager->headroom[tier].high_bytes = size / 100 * (unsigned)share;
    }
}

void spw__headroom_shortfall(struct spw_manager *manager, spw_tier first, spw_tier lowest)
{
    for (spw_tier tier = first; tier <= lowest; tier++) {
        struct spw__headroom *headroom = &manager->headroom[tier];
        if (headroom->high_bytes == 0)
            continue;
        atomic_store(&headroom->want_bytes, headroom->high_bytes);
        atomic_store(&headroom->armed, true);
    }
}

void spw__headroom_admitted(struct spw_manager *manager, spw_tier tier)
{
    struct spw__headroom *headroom = &manager->headroom[tier];
    if (!atomic_load_explicit(&headroom->armed, memory_order_relaxed))
        return;
    const uint64_t left = free_bytes(manager, tier);
    if (left < headroom->high_bytes / 2)
        atomic_store(&headroom->want_bytes, headroom->high_bytes);
    else if (left >= 2 * headroom->high_bytes && atomic_load(&headroom->want_bytes) == 0)
        atomic_store(&headroom->armed, false);
}

uint64_t spw__headroom_deficit(struct spw_manager *manager, spw_tier tier, uint64_t leaving_bytes)
{
    const uint64_t want = atomic_load(&manager->headroom[tier].want_bytes);
    const uint64_t left = free_bytes(manager, tier);
    /* What has just left counts twice for a moment: only what is free decides that it is enough. */
    if (want && left >= want)
        spw__headroom_satisfied(manager, tier);
    return want > left + leaving_bytes ? want - left - leaving_bytes : 0;
}

void spw__headroom_satisfied(struct spw_manager *manager, spw_tier tier)
{
    atomic_store(&manager->headroom[tier].want_bytes, 0);
}

bool spw__headroom_wanted(const struct spw_manager *manager, spw_tier tier)
{
    return atomic_load_explicit(&manager->headroom[tier].want_bytes, memory_order_relaxed) != 0;
}
