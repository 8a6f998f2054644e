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

/* A record of a slab. Records are recycled and never given back, and what a free reads of them is atomic, so that a wrong
 * name, or one that two threads free at once, is recognised and touches nothing else. One cache line. */
struct slab {
    _Alignas(64) _Atomic uint64_t offset; /* atomic: changed only while no slot is anybody's */
    _Atomic uint16_t size_class;          /* atomic: the same */
    _Atomic uint8_t n_slots;              /* atomic: the same; 0: the record stands for nothing */
    uint32_t node;                        /* of the range */
    uint32_t free;                        /* guarded by the pool's lock: bit s: slot s is free */
    uint32_t prev;                        /* guarded by the pool's lock: partial slabs of the class */
    uint32_t next;                        /* the same; of a recycled record: the next one */
    _Atomic uint8_t live[SLOTS_MAX];      /* atomic: [s] is 1 while slot s is live; bytes: only a free exchanges */
};
_Static_assert(sizeof(struct slab) == 64, "one cache line");

/* A slot that is free for one user: in a cache, or on its way. Slab and slot in one word. */
typedef uint64_t entry;

static inline entry entry_of(uint32_t slab, uint32_t slot)
{
    return (uint64_t)slot << 32 | slab;
}

static inline uint32_t slab_of(entry it)
{
    return (uint32_t)it;
}

static inline uint32_t slot_of(entry it)
{
    return (uint32_t)(it >> 32);
}

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
    entry entries[][BIN_ENTRIES]; /* guarded by guard; n_classes of them */
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

/* The slab of an index below n_slabs, or a record that stands for nothing, or NULL. Chunk c holds CHUNK_FIRST << c. */
static inline struct slab *slab_at(const struct spw__small *small, uint32_t index)
{
    const uint64_t biased = (uint64_t)index + CHUNK_FIRST;
    const unsigned chunk = 57u - (unsigned)__builtin_clzll(biased);
    struct slab *slabs = atomic_load_explicit(&small->chunks[chunk], memory_order_acquire);
    return slabs ? &slabs[biased - ((uint64_t)CHUNK_FIRST << chunk)] : NULL;
}

static inline uint32_t class_of(const struct spw__small *small, uint64_t bytes)
{
    const uint32_t last = bytes ? (uint32_t)((bytes - 1) >> small->shift) : 0; /* grain of the last byte */
    const unsigned step = 31u - CLASS_BITS - (unsigned)__builtin_clz(last | (EXACT_CLASSES - 1));
    return (step << CLASS_BITS) + (last >> step);
}

/* Takes up to n free slots of a class, from new slabs where there is no partial one. Returns how many; when 0, *rc says
 * why. */
uint32_t spw__slab_take_locked(struct spw__small *small, uint32_t size_class, uint32_t n, entry *out, int *rc);

/* Makes a slot free again; a slab without any other goes back to the range. */
void spw__slab_give_locked(struct spw__small *small, entry slot);

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
