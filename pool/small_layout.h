/* Slabs of small objects: what small.c and small_slab.c share. For these two files only. See small.h. */
#ifndef SPW_POOL_SMALL_LAYOUT_H
#define SPW_POOL_SMALL_LAYOUT_H

#include <stdatomic.h>

#include "pool/small.h"

#define CLASSES_MAX 192u /* of 64 KiB in grains of 64 */
#define SLOTS_MAX 64u    /* the bits of a word */
#define FEW_SLOTS 8u
#define CHUNKS_MAX 26u
#define CHUNK_FIRST 64u /* slabs of the first chunk; each chunk has as many as all before it */
#define NONE UINT32_MAX

/* A record of a slab; records are recycled and never given back, so that a stale name is recognised. */
struct slab {
    uint64_t offset;
    uint64_t free;   /* guarded by the pool's lock: bit s: slot s is free */
    uint32_t node;   /* of the range */
    uint32_t prev;   /* guarded by the pool's lock: partial slabs of the class */
    uint32_t next;   /* the same; of a recycled record: the next one */
    uint8_t size_class;
    uint8_t n_slots; /* 0: the record stands for nothing */
    /* atomic: 1 while the slot is live. A byte each, so that only a free needs an exchange. */
    union {
        _Atomic uint8_t few[FEW_SLOTS];
        _Atomic uint8_t *many;
    } live;
};

/* A slot that is free for one user: in a cache, or on its way. */
struct entry {
    uint32_t slab;
    uint32_t slot;
};

struct cache;

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

/* The slab of an index below n_slabs, or of one that was; NULL for any other. */
static inline struct slab *slab_at(const struct spw__small *small, uint32_t index)
{
    const unsigned chunk = index < CHUNK_FIRST ? 0 : 26u - (unsigned)__builtin_clz(index);
    struct slab *slabs = atomic_load_explicit(&small->chunks[chunk < CHUNKS_MAX ? chunk : 0], memory_order_acquire);
    if (!slabs || chunk >= CHUNKS_MAX)
        return NULL;
    return &slabs[chunk == 0 ? index : index - (CHUNK_FIRST << (chunk - 1))];
}

static inline _Atomic uint8_t *live_byte(struct slab *slab, uint32_t slot)
{
    return slab->n_slots <= FEW_SLOTS ? &slab->live.few[slot] : &slab->live.many[slot];
}

static inline uint32_t class_of(const struct spw__small *small, uint64_t bytes)
{
    const uint32_t last = bytes ? (uint32_t)((bytes - 1) >> small->shift) : 0; /* grain of the last byte */
    const unsigned step = last < 64 ? 0 : 26u - (unsigned)__builtin_clz(last);
    return step * 32 + (last >> step);
}

/* Takes up to n free slots of a class, from new slabs where there is no partial one. Returns how many; when 0, *rc says
 * why. */
uint32_t spw__slab_take_locked(struct spw__small *small, uint32_t size_class, uint32_t n, struct entry *out, int *rc);

/* Makes a slot free again; a slab without any other goes back to the range. */
void spw__slab_give_locked(struct spw__small *small, struct entry entry);

void spw__slab_init(struct spw__small *small);
void spw__slab_finish(struct spw__small *small);

#endif
