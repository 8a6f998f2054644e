/* Slabs and caches of small objects: for small.c, small_thread.c, small_slab.c and small_check.c only. See small.h. */
#ifndef SPW_POOL_SMALL_LAYOUT_H
#define SPW_POOL_SMALL_LAYOUT_H

#include <sched.h>
#include <stdatomic.h>

#include "pool/small.h"

#define CLASS_BITS 5u                     /* log2 of the classes to a doubling */
#define EXACT_CLASSES (2u << CLASS_BITS) /* the first ones: one for each number of grains */
#define CLASSES_MAX 192u                 /* of 64 KiB in grains of 64 */
#define SLOTS_MAX 32u                    /* the bits of a word */
#define CHUNKS_MAX 27u                   /* of 32-bit indices */
#define CHUNK_FIRST 64u                  /* slabs of the first chunk; each next one has twice as many */
#define NONE UINT32_MAX

/* A record of a slab, guarded by the pool's lock. Records are recycled and never given back. */
struct slab {
    uint64_t offset;
    uint32_t node; /* of the range */
    uint32_t free; /* bit s: slot s is free */
    uint32_t prev; /* partial slabs of the class */
    uint32_t next; /* the same; of a recycled record: the next one */
    uint16_t size_class;
    uint8_t n_slots; /* 0: the record stands for nothing */
};
_Static_assert(sizeof(struct slab) == 32, "two records a cache line");

/* All that allocs and frees through a cache touch of a slab, eight to a cache line: in the upper half what tells it
 * from the one that had its record before, in the lower half bit s: slot s is live. A wrong name, or one that two
 * threads free at once, is recognised. */
typedef _Atomic uint64_t slab_word;

/* A slot that is free for one user: in a cache, or on its way. */
struct entry {
    uint64_t offset;
    uint32_t slab;
    uint32_t slot;
};

#define BIN_ENTRIES 32u /* cached objects of one class */

struct cache {
    _Alignas(64) atomic_bool guard; /* held by its thread, or a drain, around everything below */
    struct spw__small *small;
    struct spw__group *group; /* guarded by guard: who is charged for what lies here */
    uint64_t bytes;           /* guarded by guard: charged */
    uint64_t allocs, alloc_bytes; /* guarded by guard: not yet in the counters */
    uint32_t hand;            /* guarded by guard: next class to make room in */
    uint8_t n[CLASSES_MAX];   /* guarded by guard */
    uint64_t filled[CLASSES_MAX / 64 + 1]; /* guarded by guard: bit c: n[c] is not 0 */
    struct cache *prev, *next; /* guarded by small->caches_lock */
    struct entry entries[][BIN_ENTRIES]; /* guarded by guard; n_classes of them */
};

struct spw__small {
    struct spw__small_config config;
    uint64_t id;         /* never used again: what threads know their caches by */
    unsigned shift;      /* log2 of the granularity */
    uint32_t n_classes;
    uint32_t n_slabs;    /* guarded by the pool's lock: records, recycled ones included */
    uint32_t recycled;   /* guarded by the pool's lock */
    uint32_t partial[CLASSES_MAX]; /* guarded by the pool's lock: heads */
    uint32_t class_bytes[CLASSES_MAX];
    struct slab *_Atomic chunks[CHUNKS_MAX]; /* atomic: set once, under the pool's lock */
    _Atomic uint64_t cache_bytes_max;        /* atomic: of one cache; changed under the registry's lock */
    struct spw__mutex caches_lock;           /* SPW__RANK_CACHES: the list; outside it a cache is its thread's */
    struct cache *caches;                    /* guarded by caches_lock */
    uint32_t n_caches;                       /* guarded by caches_lock */
    struct spw__small *prev, *next;          /* guarded by the registry's lock */
};

/* What a thread knows its caches by: open addressing over the pools' numbers, half of it empty. Owner thread only. */
struct known {
    uint64_t id;         /* 0: none */
    struct cache *cache; /* NULL: there was no metadata memory for one */
};
struct thread {
    uint32_t mask;
    uint32_t used;
    struct known known[];
};

/* Initial-exec: one word of static TLS instead of a call in every alloc and free. NULL: the thread has no cache. */
extern _Thread_local struct thread *spw__small_self __attribute__((tls_model("initial-exec")));

/* Where a thread knows a pool, or would: id is then 0. */
static inline struct known *spw__small_place(struct thread *thread, uint64_t id)
{
    uint32_t i = (uint32_t)id & thread->mask;
    while (thread->known[i].id != id && thread->known[i].id != 0)
        i = (i + 1) & thread->mask;
    return &thread->known[i];
}

/* The calling thread's cache for a pool, or NULL. */
static inline struct cache *spw__small_cache(const struct spw__small *small)
{
    return spw__small_self ? spw__small_place(spw__small_self, small->id)->cache : NULL;
}

static inline void spw__cache_guard(struct cache *cache)
{
    while (atomic_exchange_explicit(&cache->guard, true, memory_order_acquire))
        while (atomic_load_explicit(&cache->guard, memory_order_relaxed))
            (void)sched_yield();
}

static inline void spw__cache_unguard(struct cache *cache)
{
    atomic_store_explicit(&cache->guard, false, memory_order_release);
}

/* Chunk c holds CHUNK_FIRST << c records, and behind them as many words. */
static inline unsigned chunk_of(uint32_t index, uint64_t *at)
{
    const uint64_t biased = (uint64_t)index + CHUNK_FIRST;
    const unsigned chunk = 57u - (unsigned)__builtin_clzll(biased);
    *at = biased - ((uint64_t)CHUNK_FIRST << chunk);
    return chunk;
}

static inline size_t chunk_bytes(unsigned chunk)
{
    return ((size_t)CHUNK_FIRST << chunk) * (sizeof(struct slab) + sizeof(slab_word));
}

/* The record of an index below n_slabs. */
static inline struct slab *slab_at(const struct spw__small *small, uint32_t index)
{
    uint64_t at;
    const unsigned chunk = chunk_of(index, &at);
    return &atomic_load_explicit(&small->chunks[chunk], memory_order_acquire)[at];
}

/* The word of an index; NULL when there never was such a slab, nor one near it. */
static inline slab_word *word_at(const struct spw__small *small, uint32_t index)
{
    uint64_t at;
    const unsigned chunk = chunk_of(index, &at);
    struct slab *slabs = atomic_load_explicit(&small->chunks[chunk], memory_order_acquire);
    return slabs ? (slab_word *)(void *)(slabs + ((size_t)CHUNK_FIRST << chunk)) + at : NULL;
}

/* The upper half of a slab's word. */
static inline uint64_t tag_of(const struct spw__small *small, uint64_t offset, uint32_t size_class)
{
    return (offset >> small->shift) << 40 | (uint64_t)size_class << 32;
}
_Static_assert(CLASSES_MAX <= 256, "a class has 8 bits in a word, the offset 24");

static inline uint32_t class_of(const struct spw__small *small, uint64_t bytes)
{
    const uint32_t last = bytes ? (uint32_t)((bytes - 1) >> small->shift) : 0; /* grain of the last byte */
    const unsigned step = 31u - CLASS_BITS - (unsigned)__builtin_clz(last | (EXACT_CLASSES - 1));
    return (step << CLASS_BITS) + (last >> step);
}

/* Takes up to n free slots of a class, from new slabs where there is no partial one. Returns how many; when 0, *rc says
 * why. */
uint32_t spw__slab_take_locked(struct spw__small *small, uint32_t size_class, uint32_t n, struct entry *out, int *rc);

/* Makes a slot free again; a slab without any other goes back to the range. */
void spw__slab_give_locked(struct spw__small *small, const struct entry *entry);

/* Gives all that a cache holds back, and adds up what it counted. Returns the bytes. */
uint64_t spw__cache_drain_guarded(struct cache *cache);

/* Gives the calling thread, which has none, a cache for a pool. NULL: it has to do without. */
struct cache *spw__small_register(struct spw__small *small, struct spw__group *group);

/* Gives a pool its number; takes away its caches. */
void spw__small_enter(struct spw__small *small);
void spw__small_leave(struct spw__small *small);

void spw__slab_init(struct spw__small *small);
void spw__slab_finish(struct spw__small *small);

#endif
