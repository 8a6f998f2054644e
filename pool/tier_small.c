/* Blocks that are small objects, and spare blocks. Neighbours: tier.c routes and falls back, small.c has the objects,
 * spare.c the blocks. */
#include "pool/tier_small.h"

/* A pool of fewer requests of its limit has no memory to lie in caches and half-filled slabs. */
#define LIMITS_MIN 64u

static int init_spare(struct spw__tier *tier, struct spw__pool *pool)
{
    const struct spw__spare_config config = {
        .range = pool->range, .lock = &pool->lock, .size = pool->size, .granularity = tier->granularity,
        .tier = tier->tier, .meta = tier->meta, .waits = tier->waits, .counters = tier->counters,
        .count_allocs = tier->first_counter + SPW__TIER_ALLOCS,
        .count_bytes = tier->first_counter + SPW__TIER_ALLOC_BYTES};
    const int rc = spw__spare_create(&config, &pool->spare);
    tier->n_cached += rc == SPW_OK;
    return rc;
}

int spw__tier_small_init(struct spw__tier *tier, struct spw__pool *pool)
{
    if (pool->limit > SPW__SMALL_LIMIT)
        return pool->size < SPW__SPARE_POOL_MIN ? SPW_OK : init_spare(tier, pool);
    if (pool->size / LIMITS_MIN < pool->limit)
        return SPW_OK;
    const struct spw__small_config config = {
        .range = pool->range, .lock = &pool->lock, .size = pool->size,
        .largest_bytes = spw__tier_charge(tier, pool->limit), .granularity = tier->granularity, .tier = tier->tier,
        .meta = tier->meta, .waits = tier->waits, .counters = tier->counters,
        .count_allocs = tier->first_counter + SPW__TIER_ALLOCS,
        .count_bytes = tier->first_counter + SPW__TIER_ALLOC_BYTES};
    const int rc = spw__small_create(&config, &pool->small);
    tier->n_small += rc == SPW_OK;
    tier->n_cached += rc == SPW_OK;
    return rc;
}

int spw__tier_small_free(struct spw__tier *tier, const struct spw__block *block, bool *back)
{
    const struct spw__pool *pool = &tier->pools[block->pool];
    const struct spw__small_object object = {.offset = block->address - pool->base, .bytes = block->bytes,
                                             .slab = block->node, .slot = (uint8_t)(block->slot - 1)};
    return spw__small_free(pool->small, block->group, &object, back);
}

uint64_t spw__tier_drain(struct spw__tier *tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; tier->n_cached != 0 && i < tier->n_pools; i++) {
        if (tier->pools[i].small)
            bytes += spw__small_drain(tier->pools[i].small);
        if (tier->pools[i].spare)
            bytes += spw__spare_drain(tier->pools[i].spare);
    }
    return bytes;
}

uint64_t spw__tier_cached_most(const struct spw__tier *tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; tier->n_cached != 0 && i < tier->n_pools; i++) {
        if (tier->pools[i].small)
            bytes += spw__small_cached_most(tier->pools[i].small);
        if (tier->pools[i].spare)
            bytes += spw__spare_cached_most(tier->pools[i].spare);
    }
    return bytes;
}
