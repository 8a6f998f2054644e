/* Slabs and caches of small objects: for small.c, small_slab.c and small_check.c only. See small.h. */
#ifndef SPW_POOL_SMALL_LAYOUT_H
#define SPW_POOL_SMALL_LAYOUT_H

#include <stdatomic.h>

#include "pool/small.h"

#define CLASS_BITS 5u                     /* log2 of the classes to a doubling */
#define EXACT_CLASSES (2u << CLASS_BITS) /* the first ones: one for each number of grains */
#define CLASSES_MAX 192u                 /* of 64 KiB in grains of 64 */
#define SLOTS_MAX 32u                    /* the bits of a word */
#define CHUNKS_MAX 27u                   /* of 32-bit indices */
#define CHUNK_FIRST 64u                  /* slabs of the first chunk; each next one has twice as many */
#define NONE UINT32_MAX

/* All that allocs and frees through a cache touch of a slab: in the upper half what tells it from the one that had its
 * record before, in the lower half bit s: slot s is live. A wrong name, or one that two threads free at once, is
 * recognised. */
typedef _Atomic uint64_t slab_word;

/* A record of a slab. Records are recycled and never given back. Each has a cache line to itself, or threads that work
 * on slabs of their own would still take the words' lines from each other: with eight words a line two threads needed
 * half as much time again for a pair where a line takes 160 ns from one processor to the other. */
struct slab {
    _Alignas(64) slab_word word; /* atomic */
    uint64_t offset; /* guarded by the pool's lock, as everything below */
    uint32_t node;   /* of the range */
    uint32_t free;   /* bit s: slot s is free */
    uint32_t prev;   /* partial slabs of the class */
    uint32_t next;   /* the same; of a recycled record: the next one */
    uint16_t size_class;
    uint8_t n_slots; /* 0: the record stands for nothing */
};
_Static_assert(sizeof(struct slab) == 64, "a cache line");

/* A slot that is free for one user: in a cache, or on its way. */
struct entry {
    uint64_t offset;
    uint32_t slab;
    uint32_t slot;
};

#define BIN_ENTRIES 32u /* cached objects of one class */

struct cache {
    struct spw__cache head;                /* first */
    uint32_t hand;                         /* guarded by the cache's guard: next class to make room in */
    uint8_t n[CLASSES_MAX + 1];            /* guarded by the cache's guard; the last one is 0 */
    struct entry entries[][BIN_ENTRIES];   /* guarded by the cache's guard; n_classes of them */
};

struct spw__small {
    struct spw__small_config config;
    struct spw__caches caches;
    unsigned shift;      /* log2 of the granularity */
    uint32_t n_classes;
    uint32_t n_slabs;    /* guarded by the pool's lock: records, recycled ones included */
    uint32_t recycled;   /* guarded by the pool's lock */
    uint32_t partial[CLASSES_MAX]; /* guarded by the pool's lock: heads */
    uint32_t class_bytes[CLASSES_MAX];
    struct slab *_Atomic chunks[CHUNKS_MAX]; /* atomic: set once, under the pool's lock */
};

/* Chunk c holds CHUNK_FIRST << c records. */
static inline unsigned chunk_of(uint32_t index, uint64_t *at)
{
    const uint64_t biased = (uint64_t)index + CHUNK_FIRST;
    const unsigned chunk = 57u - (unsigned)__builtin_clzll(biased);
    *at = biased - ((uint64_t)CHUNK_FIRST << chunk);
    return chunk;
}

static inline size_t chunk_bytes(unsigned chunk)
{
    return ((size_t)CHUNK_FIRST << chunk) * sizeof(struct slab);
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
    return slabs ? &slabs[at].word : NULL;
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

void spw__slab_init(struct spw__small *small);
void spw__slab_finish(struct spw__small *small);

#endif
