/* Spare blocks: what each thread keeps of the raw blocks that it freed, in front of the range of a large pool.
 *
 *     request -> the thread's spare blocks -> range of the pool
 *
 * A spare block is an allocation of the range like any other, and stays one: it is named by its node, has the bytes
 * that were asked for, and may be split by whoever has it. Only blocks that were made known here (note) are ever kept,
 * and each has a word that says where it is:
 *
 *     unknown --note_locked--> live --keep--> spare --spare_alloc--> live
 *                              live --forget_locked--> unknown       (then it goes to the range as any block does)
 *                                             spare --flush--> unknown, and in the range
 *
 * A request is served with a spare block of at most a sixteenth more than it asks for. Bins are by size, 32 to a
 * doubling; the larger its blocks, the fewer a bin holds: that keeps most hits for a given number of bytes. What a bin
 * has no room for lines up, and is given to the range together with others: when the thread next takes the pool's lock
 * to allocate, or when the line is full.
 *
 * Charge. Spare blocks stay committed, to the one group that the cache serves. Bounds: 512 MiB a thread, 1/64 of the
 * pool together, no block above 4 MiB, nor above 1/32 of what its cache may hold (in a bin 1/64). What somebody lacks
 * is not kept (thread_cache.h). Nobody moves spare blocks to open a hole; but who lacks one has drained the caches
 * before.
 *
 * Invariants (spw__spare_check): what lies in a cache is live in the range, has the bytes of its entry, is in the bin
 * of its size, lies there once, and its word says spare; a cache's charge is the bytes of its entries.
 *
 * Threads: any, except where the pool's lock is asked for. Ownership: the pool owns caches and words, charged to meta.
 * Running out of meta means no cache, or a block that is not kept.
 */
#ifndef SPW_POOL_SPARE_H
#define SPW_POOL_SPARE_H

#include "pool/range.h"
#include "pool/thread_cache.h"

#define SPW__SPARE_LARGEST (UINT64_C(4) << 20)  /* block */
#define SPW__SPARE_POOL_MIN (UINT64_C(4) << 30) /* size of a pool, to have spare blocks */

struct spw__spare;

struct spw__spare_block {
    uint64_t offset; /* in the pool */
    uint64_t bytes;  /* as charged: those of the allocation */
    uint32_t node;
};

struct spw__spare_config {
    struct spw__range *range; /* the pool's; guarded by lock */
    struct spw__mutex *lock;
    uint64_t size; /* of the pool */
    uint32_t granularity;
    spw_tier tier;
    struct spw__meta *meta;
    struct spw__waitset *waits;
    struct spw__counters *counters;
    unsigned count_allocs, count_bytes; /* which of counters; caches count for themselves until drained */
};

/* SPW_ENOMETA. destroy drains the caches and forgets them; all blocks must have been freed. */
int spw__spare_create(const struct spw__spare_config *config, struct spw__spare **out);
void spw__spare_destroy(struct spw__spare *spare);

/* Allocates bytes (a multiple of the granularity), up to SPW__SPARE_LARGEST, at a multiple of align, and charges group:
 * a spare block, or one from the range. Any other code than SPW_OK: not here, not now, and nothing changed but that the
 * thread's line may be back in the range. may_register: a thread without a cache gets one; not under a lock. */
int spw__spare_alloc(struct spw__spare *spare, struct spw__group *group, uint64_t bytes, uint64_t align,
                     bool may_register, struct spw__spare_block *out);

/* Keeps a block that is live no more: it has its charge, and is nobody's. False: it is still the caller's, because it
 * may not be kept, or is no live block, or somebody waits for memory. */
bool spw__spare_keep(struct spw__spare *spare, struct spw__group *group, uint64_t offset, uint64_t bytes,
                     uint32_t node);

/* A live allocation of the range, of up to SPW__SPARE_LARGEST bytes, may be kept when it is freed. Pool locked. */
void spw__spare_note_locked(struct spw__spare *spare, uint32_t node, uint64_t offset);

/* The block is not to be kept: it goes to the range now, or gets somebody who moves it. SPW_EBADHANDLE: it is a spare
 * block, or another one has its node. Pool locked. */
int spw__spare_forget_locked(struct spw__spare *spare, uint32_t node, uint64_t offset);

/* Gives the spare blocks of all threads back to the range and the groups, and adds up what was counted. Returns the
 * bytes given back. May be called under the wait lock. */
uint64_t spw__spare_drain(struct spw__spare *spare);

/* No more than this lies in its caches: 0 when it has none. */
uint64_t spw__spare_cached_most(const struct spw__spare *spare);

struct spw__spare_usage {
    uint64_t bytes; /* of spare blocks: charged */
    uint32_t blocks, caches;
};

/* Expensive, for tests; nobody else may use the pool meanwhile. False (and a line on stderr) when an invariant does not
 * hold. */
bool spw__spare_check(struct spw__spare *spare, struct spw__spare_usage *usage);

#endif
