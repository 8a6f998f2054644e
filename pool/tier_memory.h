/* What a tier's pools are made of: address space and the memory behind it, from the source that the tier needs.
 * Used by tier.c (life cycle and growth) and trim.c.
 *
 * Threads: map and unmap by whoever makes and ends the tier; populate and discard by the one thread at a time that has
 * set the pool's growing. Never under a lock: the system and the driver are called.
 */
#ifndef SPW_POOL_TIER_MEMORY_H
#define SPW_POOL_TIER_MEMORY_H

#include "pool/tier.h"

/* Brings the pool's address space, and its memory too where the tier does not grow. SPW_ENOMEM, SPW_EDEVICE. */
int spw__pool_map(struct spw__tier *tier, struct spw__pool *pool);
/* Gives everything back. A pool that was never mapped is a no-op. */
void spw__pool_unmap(struct spw__tier *tier, struct spw__pool *pool);

/* Gives [begin, end) memory: begin is where the pool has grown to, end a multiple of the pool's unit, or its size.
 * SPW_ENOMEM, SPW_EDEVICE: it is as it was. */
int spw__pool_populate(struct spw__tier *tier, struct spw__pool *pool, uint64_t begin, uint64_t end);

#endif
