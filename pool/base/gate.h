/* A gate: a budget and one atomic counter of committed bytes, the only thing that admits bytes to a place.
 *
 * Invariant: a successful spw__gate_commit never takes committed above the budget, under any interleaving. Parts
 * (used, reserved, in flight) are derived elsewhere; nothing else decides. Lock-free; any thread.
 */
#ifndef SPW_BASE_GATE_H
#define SPW_BASE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spw__gate {
    _Atomic uint64_t committed; /* atomic */
    _Atomic uint64_t budget;    /* atomic */
    _Atomic uint64_t peak;      /* atomic: highest committed so far */
};

static inline void spw__gate_init(struct spw__gate *gate, uint64_t budget)
{
    atomic_init(&gate->committed, 0);
    atomic_init(&gate->budget, budget);
    atomic_init(&gate->peak, 0);
}

/* Commits bytes if the budget has room for all of them; false, and no change, otherwise. */
static inline bool spw__gate_commit(struct spw__gate *gate, uint64_t bytes)
{
    uint64_t now = atomic_load_explicit(&gate->committed, memory_order_relaxed);
    uint64_t next;
    do {
        const uint64_t budget = atomic_load_explicit(&gate->budget, memory_order_relaxed);
        if (now > budget || bytes > budget - now)
            return false;
        next = now + bytes;
    } while (!atomic_compare_exchange_weak_explicit(&gate->committed, &now, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    uint64_t peak = atomic_load_explicit(&gate->peak, memory_order_relaxed);
    while (peak < next && !atomic_compare_exchange_weak_explicit(&gate->peak, &peak, next, memory_order_relaxed,
                                                                 memory_order_relaxed)) {
    }
    return true;
}

/* Gives back bytes that were committed before. */
static inline void spw__gate_uncommit(struct spw__gate *gate, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&gate->committed, bytes, memory_order_acq_rel);
}

/* Budget not committed, 0 when overbooked. */
static inline uint64_t spw__gate_free(const struct spw__gate *gate)
{
    const uint64_t budget = atomic_load_explicit(&gate->budget, memory_order_relaxed);
    const uint64_t committed = atomic_load_explicit(&gate->committed, memory_order_relaxed);
    return budget > committed ? budget - committed : 0;
}

#endif
