/* Patience: see patience.h. Neighbours: pressure.c waits, payload.c and pool.c count releases, evict.c tells what a
 * spill costs. */
#include "src/core/patience.h"

#include "src/core/evict.h"
#include "src/core/manager.h"

#define WINDOW_NS UINT64_C(1000000)    /* shorter ones say too little: the last rate holds */
#define STALE_NS UINT64_C(1000000000) /* after longer ones the last rate says nothing */

uint64_t spw__patience_rate(struct spw_manager *manager, spw_tier tier)
{
    struct spw__patience *patience = &manager->patience[tier];
    const uint64_t now = spw__clock_now_ns(manager->env.clock);
    spw__mutex_lock(&manager->pressure[tier].lock);
    if (patience->sampled_ns == 0 || now >= patience->sampled_ns + WINDOW_NS) {
        const uint64_t passed = now - patience->sampled_ns;
        const uint64_t bytes = spw__counter_sum(&manager->counters, SPW__CORE_RELEASE_BYTES + (unsigned)tier);
        const double released = (double)(bytes - patience->sampled_bytes);
        const uint64_t rate = (uint64_t)(released / ((double)passed / 1e6));
        if (patience->sampled_ns != 0)
            patience->bytes_per_ms = passed < STALE_NS ? (patience->bytes_per_ms + rate) / 2 : rate;
        patience->sampled_ns = now;
        patience->sampled_bytes = bytes;
    }
    const uint64_t rate = patience->bytes_per_ms;
    spw__mutex_unlock(&manager->pressure[tier].lock);
    return rate;
}

uint64_t spw__patience_ns(struct spw_manager *manager, const struct spw__request *request)
{
    const spw_tier tier = request->lowest;
    const uint64_t left = spw__gate_free(&manager->root.gates[tier]);
    const uint64_t charge = spw__request_charge(request, spw__tier_of(manager, tier));
    const uint64_t rate = spw__patience_rate(manager, tier);
    /* Nobody would end the patience of who waits by a manual clock. */
    if (rate == 0 || charge <= left || request->reservation || request->min_of ||
        (manager->env.clock && manager->env.clock->now_ns) ||
        spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)))
        return 0;
    if (spw__evict_clean(manager, request->group, tier, charge)) /* that costs less than any wait */
        return 0;
    const double lack = (double)(charge - left);
    const double expected_ns = lack / (double)rate * 1e6;
    const double cost_ns = lack / (1 << 20) * ((double)spw__evict_ns_per_mib(manager, tier) +
                                               (double)spw__reload_ns_per_mib(manager, tier));
    if (expected_ns >= cost_ns)
        return 0;
    return 2 * expected_ns < (double)manager->patience_max_ns ? (uint64_t)(2 * expected_ns) + 1
                                                               : manager->patience_max_ns;
}
