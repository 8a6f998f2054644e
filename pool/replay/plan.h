/* The search for the pools that serve an allocation log with the least memory.
 *
 * Threads: one at a time for each replay. Ownership: the plan is a plain value.
 */
#ifndef SPW_POOL_REPLAY_PLAN_H
#define SPW_POOL_REPLAY_PLAN_H

#include "pool/replay/replay.h"

struct spw__plan {
    spw_spec_pool pools[SPW_SPEC_POOLS_MAX]; /* by limit, the last one unlimited */
    uint32_t n_pools;
    uint64_t total_bytes;  /* of the pools */
    uint64_t single_bytes; /* of one pool that serves the log, for comparison */
    uint32_t runs;         /* replays that the search took */
};

/* Searches among specifications of at most max_pools (1 to 128) pools, for a number of replays that depends on the
 * length of the log: a few seconds. The result was replayed without a failure; the same log gives the same plan.
 * SPW_ENOMETA. */
SPW_MUST_CHECK int spw__plan_search(struct spw__replay *replay, uint32_t max_pools, struct spw__plan *plan);

#endif
