/* Replaying an allocation log against pools, each a range of its own, routed as pool/tier.c routes: the smallest limit
 * that holds a request first, then upward. No memory stands behind the ranges: what is measured is placement.
 *
 * With `movable`, a request for which enough bytes are free but no hole fits opens one: live blocks move within their
 * pool (replay_move.c). A pool that is as large as needed may then grow to 33/32 of the most that was live in it; any
 * growth beyond that is avoided by moving.
 *
 * Threads: one at a time for each spw__replay. Ownership: the log must outlive it.
 */
#ifndef SPW_POOL_REPLAY_REPLAY_H
#define SPW_POOL_REPLAY_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include <spillway/spec.h>

#include "pool/replay/alloc_log.h"

#define SPW__REPLAY_GRAIN_DEVICE UINT32_C(256)
#define SPW__REPLAY_GRAIN_HOST   UINT32_C(64)

struct spw__replay_config {
    const spw_spec_pool *pools; /* size_bytes 0: as large as needed */
    uint32_t n_pools;
    bool movable;
    bool address_ordered;
    bool until_failure; /* stop at the first request that fails */
};

struct spw__replay_result {
    uint64_t range_bytes; /* highest byte ever used, summed over pools */
    uint64_t high_bytes[SPW_SPEC_POOLS_MAX];
    uint64_t failures;
    uint64_t fallbacks; /* requests that a larger pool than the first had to take */
    uint64_t moves;
    uint64_t moved_bytes;
    uint64_t holes; /* opened by moving */
};

struct spw__replay;

/* Prepares the replay of log: what each block is charged (as in a tier of that granularity). SPW_ENOMETA. */
SPW_MUST_CHECK int spw__replay_create(const struct spw__alloc_log *log, uint32_t granularity, struct spw__replay **out);
void spw__replay_destroy(struct spw__replay *replay);

/* Runs the whole log once. The same arguments give the same result. SPW_ENOMETA; a request that does not fit is no
 * error but one of result->failures, and its block's free is left out. */
SPW_MUST_CHECK int spw__replay_run(struct spw__replay *replay, const struct spw__replay_config *config,
                                   struct spw__replay_result *result);

/* The most that is charged at one time: each block's bytes rounded up, as a tier rounds them. */
uint64_t spw__replay_peak(const struct spw__replay *replay);
const struct spw__alloc_log *spw__replay_log(const struct spw__replay *replay);

#endif
