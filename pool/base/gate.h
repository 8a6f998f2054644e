/* A gate: a budget and one atomic counter of committed bytes, the only thing that admits bytes to a place.
 *
 * Invariant: a successful spw__gate_commit never takes committed above the budget, under any interleaving; only
 * spw__ledger_overbook does, and says by how much. Parts (used, reserved, in flight) are derived elsewhere; nothing
 * else decides. Lock-free; any thread.
 */
#ifndef SPW_BASE_GATE_H
#define SPW_BASE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What changes with every commit lies apart from what is only read by most. */
struct spw__gate {
    _Alignas(64) _Atomic uint64_t committed; /* atomic */
    _Alignas(64) _Atomic uint64_t budget;    /* atomic */
    _Atomic uint64_t peak;                   /* atomic: highest committed so far */
};

static inline void spw__gate_init(struct spw__gate *gate, uint64_t budget)
{
    atomic_init(&gate->committed, 0);
    atomic_init(&gate->budget, budget);
    atomic_init(&gate->peak, 0);
}

static inline void spw__gate_note_peak(struct spw__gate *gate, uint64_t committed)
{
    uint64_t peak = atomic_load_explicit(&gate->peak, memory_order_relaxed);
    while (peak < committed && !atomic_compare_exchange_weak_explicit(&gate->peak, &peak, committed,
                                                                      memory_order_relaxed, memory_order_relaxed)) {
    }
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
    spw__gate_note_peak(gate, next);
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
