/* What threads cache of a tier's pools: between tier.c, for which this is, and small.c and spare.c. Threads: any. */
#ifndef SPW_POOL_TIER_SMALL_H
#define SPW_POOL_TIER_SMALL_H

#include "pool/tier.h"

/* Gives a pool its small path if its limit is small enough and it is large enough for caches, or spare blocks if it is
 * large enough for those. SPW_ENOMETA. */
int spw__tier_small_init(struct spw__tier *tier, struct spw__pool *pool);

/* Whether a request of bytes (charge bytes with what they are rounded up to) may be served from the caches of a pool.
 * Align 0 asks for a buffer, which may have to move: no spare block. */
static inline bool spw__tier_caches(const struct spw__tier *tier, const struct spw__pool *pool, uint64_t bytes,
                                    uint64_t charge, uint64_t align)
{
    return pool->spare ? align != 0 && charge <= SPW__SPARE_LARGEST
                       : pool->small && align <= tier->granularity && bytes <= tier->small_max_bytes;
}

/* Serves such a request; charged and counted. Any other code than SPW_OK: no change, ask the range. */
static inline int spw__tier_cached_alloc(struct spw__tier *tier, uint32_t index, struct spw__group *group,
                                         uint64_t charge, uint64_t align, bool may_register, struct spw__block *out)
{
    const struct spw__pool *pool = &tier->pools[index];
    struct spw__block block = {.group = group, .pool = (uint16_t)index, .tier = (uint8_t)tier->tier};
    struct spw__small_object object;
    struct spw__spare_block spare;
    int rc;
    if (pool->spare) {
        rc = spw__spare_alloc(pool->spare, group, charge, align, may_register, &spare);
        block.address = pool->base + spare.offset;
        block.bytes = spare.bytes;
        block.node = spare.node;
    } else {
        rc = spw__small_alloc(pool->small, group, charge, may_register, &object);
        block.address = pool->base + object.offset;
        block.bytes = object.bytes;
        block.node = object.slab;
        block.slot = (uint8_t)(object.slot + 1);
    }
    if (rc == SPW_OK)
        *out = block;
    return rc;
}

/* Keeps a block of a pool with spare blocks: see spw__spare_keep. */
static inline bool spw__tier_keep(struct spw__tier *tier, const struct spw__block *block)
{
    const struct spw__pool *pool = &tier->pools[block->pool];
    return spw__spare_keep(pool->spare, block->group, block->address - pool->base, block->bytes, block->node);
}

/* Frees a small object: see spw__small_free. */
int spw__tier_small_free(struct spw__tier *tier, const struct spw__block *block, bool *back);

#endif
