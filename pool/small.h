/* Small objects: the fast path of a pool whose limit is small, in front of its range allocator.
 *
 *     request -> the thread's cache -> slabs of its class -> range of the pool
 *
 * Slabs. A slab is one live allocation of the range, cut into slots of one size class; an object of more than 8 grains
 * has a slab of one slot, so that a large object is an allocation of the range and wastes nothing. There are 32 classes
 * to a doubling, every number of grains up to 64 among them: in grains of 64 bytes an object is not rounded up at all
 * to 4 KiB, by 3 % at most above, and by another 3 % where a cached object a little too large saves the way to the
 * slabs. An object is named by (slab, slot); all bookkeeping lies in metadata memory.
 *
 *     slot:  free --take_locked--> cached --spw__small_alloc--> live --spw__small_free--> cached --give_locked--> free
 *                                  (live goes straight to free, and free to live, where a thread has no cache or
 *                                  somebody waits for memory)
 *     slab:  none --from the range--> partial <--> full;  partial --last slot free--> back to the range
 *
 * Charge. Every object is charged with the bytes of its slot, from free to free: what lies in caches stays committed,
 * to the one group that the cache serves, so that a cached alloc or free touches no counter that threads share. Free
 * slots of slabs are not charged: like the gaps of the range they are memory that nobody has.
 *
 * Invariants (spw__small_check): a slot is in exactly one of the three states; free slots are the ones of the slab's
 * bitmap; a slab has a live slot, or a cached one, or does not exist; the charge is that of the live and cached slots.
 *
 * Waste is bounded: the caches together hold at most 1/16 of the pool (and 32 MiB each), and a class with objects has
 * at most the free slots of its slabs. No memory lies in a cache that somebody lacks (thread_cache.h, with the guards).
 *
 * Threads: any. Each has a cache per pool, made by its first alloc that may; it is drained when the thread ends.
 * Ownership: the pool owns slabs and caches, charged to meta. Running out of meta means no cache, or the plain way.
 */
#ifndef SPW_POOL_SMALL_H
#define SPW_POOL_SMALL_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/counters.h"
#include "pool/base/lock.h"
#include "pool/base/meta.h"
#include "pool/base/wait.h"
#include "pool/ledger.h"
#include "pool/range.h"
#include "pool/thread_cache.h"

#define SPW__SMALL_LIMIT (UINT64_C(64) << 10) /* of a pool, to have this path */

struct spw__small;

/* An object of the small path. */
struct spw__small_object {
    uint64_t offset; /* in the pool */
    uint64_t bytes;  /* as charged: those of its slot */
    uint32_t slab;
    uint8_t slot;
};

struct spw__small_config {
    struct spw__range *range; /* the pool's; guarded by lock */
    struct spw__mutex *lock;
    uint64_t size;           /* of the pool */
    uint64_t largest_bytes;  /* object: at most SPW__SMALL_LIMIT */
    uint32_t granularity;
    spw_tier tier; /* whose gates are charged, and whose waiters are looked for */
    struct spw__meta *meta;
    struct spw__waitset *waits;
    struct spw__counters *counters;
    unsigned count_allocs, count_bytes; /* which of counters; caches count for themselves until drained */
};

/* SPW_ENOMETA. destroy drains the caches and forgets them; all objects must have been freed. */
int spw__small_create(const struct spw__small_config *config, struct spw__small **out);
void spw__small_destroy(struct spw__small *small);

/* Allocates an object of at least bytes (not more than largest_bytes) and charges group. SPW_ENOMEM, SPW_EFRAG,
 * SPW_ENOMETA: not here, not now, and nothing changed. may_register: a thread without a cache gets one; not under a
 * lock. */
int spw__small_alloc(struct spw__small *small, struct spw__group *group, uint64_t bytes, bool may_register,
                     struct spw__small_object *out);

/* Frees an object. *back: its bytes are back in the pool and in group, and waiters may be signalled; else the thread's
 * cache keeps both. SPW_EBADHANDLE, and no change, when it is not a live object. */
int spw__small_free(struct spw__small *small, struct spw__group *group, const struct spw__small_object *object,
                    bool *back);

/* Gives everything that the caches of all threads hold back to the pool and the groups, and adds up what they counted.
 * Returns the bytes given back. May be called under the wait lock. */
uint64_t spw__small_drain(struct spw__small *small);

/* No more than this lies in its caches: 0 when it has none. */
uint64_t spw__small_cached_most(const struct spw__small *small);

struct spw__small_usage {
    uint64_t live_bytes, cached_bytes; /* charged */
    uint64_t slab_bytes;               /* taken from the range */
    uint32_t slabs, caches;
};

/* Expensive, for tests; nobody else may use the pool meanwhile. False (and a line on stderr) when an invariant does not
 * hold. */
bool spw__small_check(struct spw__small *small, struct spw__small_usage *usage);

#endif
