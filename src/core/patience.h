/* Patience: whether to wait for releases before anything is spilled.
 *
 * A spill that a release a moment later would have made needless costs a write, and often a read. So a request that
 * finds no room in a tier compares, by what was measured there, how long releases will take to bring what it lacks with
 * what it costs to spill as much and to read it back:
 *
 *     no room --releases are expected to be quicker: spw__patience_ns--> patient --served--> wait chosen
 *        |                                                                  \--time is up--> as below
 *        \--else: pressure.c, wait_for_room--> demanding: victims are picked --------------> spill chosen
 *
 * Clean copies are dropped before that: they cost nothing. A patient request waits in the queue like any other, for
 * twice the time expected and 20 ms at most; nothing is evicted for it meanwhile. It is not patient where others demand
 * room already, where it lacks a hole or a group's room and not the budget, with a timeout of 0, nor as a ticket.
 *
 * Threads: any; the measurement is guarded by the tier's pressure lock, the rest is atomic.
 */
#ifndef SPW_CORE_PATIENCE_H
#define SPW_CORE_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "src/core/pressure.h"

struct spw__patience {
    uint64_t sampled_ns, sampled_bytes; /* guarded by the tier's pressure lock: the last look at what was released */
    uint64_t bytes_per_ms;              /* guarded by the tier's pressure lock: that were released, of late */
};

/* Nanoseconds for which the request should wait for releases before it demands room; 0: not at all. */
uint64_t spw__patience_ns(struct spw_manager *manager, const struct spw__request *request);

/* Bytes that the engine released in tier per millisecond, of late. Takes the measurement. */
uint64_t spw__patience_rate(struct spw_manager *manager, spw_tier tier);

#endif
