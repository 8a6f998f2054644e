/* A tier's pools with a small limit: between tier.c, for which this is, and small.c. Threads: any. */
#ifndef SPW_POOL_TIER_SMALL_H
#define SPW_POOL_TIER_SMALL_H

#include "pool/tier.h"

/* Gives a pool its small path if its limit is small enough and it is large enough for caches. SPW_ENOMETA. */
int spw__tier_small_init(struct spw__tier *tier, struct spw__pool *pool);

/* A small object of at least charge bytes from the pool of that number; charged and counted. Any other code than
 * SPW_OK: no change, ask the range. */
int spw__tier_small_alloc(struct spw__tier *tier, uint32_t index, struct spw__group *group, uint64_t charge,
                          bool may_register, struct spw__block *out);

/* See spw__small_free. */
int spw__tier_small_free(struct spw__tier *tier, const struct spw__block *block, bool *back);

#endif
