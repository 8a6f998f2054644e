/* Which thread has which cache: what small.c and spare.c have in common. A cache keeps freed memory of one pool for one
 * thread, charged to one group, so that most allocs and frees touch nothing that threads share.
 *
 * A thread knows its caches by the numbers of their pools, which are never used again: a pool that is gone leaves a
 * number that nobody asks for. A thread that ends asks the registry which of its pools still live.
 *
 * Guards, outermost first: the registry of threads (SPW__RANK_THREADS, before all), the list of a pool's caches
 * (SPW__RANK_CACHES), a cache's guard, the pool's lock. A cache's guard is no spw__mutex: it is held by its thread for
 * some ten instructions, costs 3 ns instead of 9, and only a drain ever contends for it.
 *
 * Nobody lacks what lies in a cache: a caller that found no room drains the caches and looks again, and while anybody
 * waits for the tier's memory, frees go past them. A free looks for waiters, and a drain for memory, under the same
 * cache's guard: one of the two sees the other.
 *
 * Threads: any. Ownership: the pool owns its caches, charged to meta.
 */
#ifndef SPW_POOL_THREAD_CACHE_H
#define SPW_POOL_THREAD_CACHE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/counters.h"
#include "pool/base/lock.h"
#include "pool/base/meta.h"
#include "pool/base/wait.h"
#include "pool/ledger.h"

/* Begins every kind of cache. */
struct spw__cache {
    _Alignas(64) atomic_bool guard; /* held by its thread, or a drain, around everything below and behind */
    struct spw__caches *of;
    struct spw__group *group;       /* guarded by guard: who is charged for what lies here */
    uint64_t bytes;                 /* guarded by guard: charged */
    uint64_t allocs, alloc_bytes;   /* guarded by guard: not yet in the counters */
    struct spw__cache *prev, *next; /* guarded by of->lock */
};

/* The caches of a pool. */
struct spw__caches {
    /* Set by the user before spw__caches_init. */
    size_t cache_size;      /* metadata of each */
    uint64_t share_bytes;   /* what all of them may hold together */
    uint64_t most_bytes;    /* what one of them may hold */
    spw_tier tier;          /* whose gates are charged, and whose waiters are looked for */
    struct spw__meta *meta;
    struct spw__waitset *waits;
    struct spw__counters *counters;
    unsigned count_allocs, count_bytes; /* which of counters; caches count for themselves until drained */
    void (*flush)(struct spw__cache *cache); /* gives all that a cache holds back to the pool and the group; guarded */

    uint64_t id;                 /* never used again: what threads know their caches by */
    _Atomic uint64_t bytes_max;  /* atomic: of one cache now; changed under the registry's lock */
    struct spw__mutex lock;      /* SPW__RANK_CACHES: the list; outside it a cache is its thread's */
    struct spw__cache *first;    /* guarded by lock */
    _Atomic uint32_t n;          /* atomic; changed under lock */
    struct spw__caches *prev, *next; /* guarded by the registry's lock */
};

/* What a thread knows its caches by: open addressing over the pools' numbers, half of it empty. Owner thread only. */
struct spw__known_cache {
    uint64_t id;              /* 0: none */
    struct spw__cache *cache; /* NULL: there was no metadata memory for one */
};
struct spw__thread_caches {
    uint32_t mask;
    uint32_t used;
    struct spw__known_cache known[];
};

/* Initial-exec: one word of static TLS instead of a call in every alloc and free. NULL: the thread has no cache. */
extern _Thread_local struct spw__thread_caches *spw__own_caches __attribute__((tls_model("initial-exec")));

/* Where a thread knows a pool, or would: id is then 0. */
static inline struct spw__known_cache *spw__cache_place(struct spw__thread_caches *thread, uint64_t id)
{
    uint32_t i = (uint32_t)id & thread->mask;
    while (thread->known[i].id != id && thread->known[i].id != 0)
        i = (i + 1) & thread->mask;
    return &thread->known[i];
}

/* The calling thread's cache for a pool, or NULL. */
static inline struct spw__cache *spw__cache_own(const struct spw__caches *caches)
{
    return spw__own_caches ? spw__cache_place(spw__own_caches, caches->id)->cache : NULL;
}

static inline void spw__cache_guard(struct spw__cache *cache)
{
    while (atomic_exchange_explicit(&cache->guard, true, memory_order_acquire))
        while (atomic_load_explicit(&cache->guard, memory_order_relaxed))
            (void)sched_yield();
}

static inline void spw__cache_unguard(struct spw__cache *cache)
{
    atomic_store_explicit(&cache->guard, false, memory_order_release);
}

/* What one cache may hold now. */
static inline uint64_t spw__cache_most(const struct spw__cache *cache)
{
    return atomic_load_explicit(&cache->of->bytes_max, memory_order_relaxed);
}

/* Whether somebody waits for the memory that a cache would keep. */
static inline bool spw__caches_lacking(const struct spw__caches *caches)
{
    return atomic_load(&caches->waits->n_waiting[caches->tier]) != 0;
}

/* What all of them may hold now. */
static inline uint64_t spw__caches_most(const struct spw__caches *caches)
{
    return atomic_load_explicit(&caches->n, memory_order_relaxed) ? caches->share_bytes : 0;
}

/* Gives a pool its number. finish drains and frees its caches, and forgets them. */
void spw__caches_init(struct spw__caches *caches);
void spw__caches_finish(struct spw__caches *caches);

/* Gives the calling thread, which has none, a cache for a pool. NULL: it has to do without. Not under a lock. */
struct spw__cache *spw__cache_register(struct spw__caches *caches, struct spw__group *group);

/* Gives everything that a cache holds back, and adds up what it counted. Returns the bytes. Guarded. */
uint64_t spw__cache_drain_guarded(struct spw__cache *cache);

/* The same for the caches of all threads. May be called under the wait lock. */
uint64_t spw__caches_drain(struct spw__caches *caches);

#endif
