/* The expensive check of a pool's small objects: every slab, every slot, every cached object. See small.h. */
#include <inttypes.h>
#include <stdio.h>

#include "pool/small_layout.h"

static bool broken(const char *what, uint32_t slab)
{
    (void)fprintf(stderr, "spillway: small objects: %s (slab %" PRIu32 ")\n", what, slab);
    return false;
}

static uint32_t live_slots(const struct spw__small *small, uint32_t index)
{
    return (uint32_t)atomic_load(word_at(small, index));
}

/* Cached slots are neither free nor live, and no two entries name one. */
static bool check_cache(struct spw__small *small, const struct cache *cache, uint32_t *seen, uint64_t *bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < small->n_classes; i++)
        for (uint32_t j = 0; j < cache->n[i]; j++) {
            const struct entry *entry = &cache->entries[i][j];
            const uint32_t index = entry->slab, slot = entry->slot;
            const struct slab *slab = index < small->n_slabs ? slab_at(small, index) : NULL;
            const uint32_t bit = UINT32_C(1) << slot;
            if (!slab || slot >= slab->n_slots || slab->size_class != i ||
                entry->offset != slab->offset + (uint64_t)slot * small->class_bytes[i])
                return broken("a cache holds what is no object of its class", index);
            if ((slab->free & bit) || (live_slots(small, index) & bit) || (seen[index] & bit))
                return broken("a cached object is free, live, or cached twice", index);
            seen[index] |= bit;
            sum += small->class_bytes[i];
        }
    *bytes += sum;
    return sum == cache->head.bytes || broken("a cache does not hold the bytes that it says", NONE);
}

static bool check_slabs(struct spw__small *small, const uint32_t *seen, struct spw__small_usage *usage)
{
    for (uint32_t i = 0; i < small->n_slabs; i++) {
        struct slab *slab = slab_at(small, i);
        if (slab->n_slots == 0)
            continue;
        const uint32_t bytes = small->class_bytes[slab->size_class];
        const uint32_t live = (uint32_t)__builtin_popcount(live_slots(small, i));
        const uint32_t n_free = (uint32_t)__builtin_popcount(slab->free);
        const uint32_t n_cached = (uint32_t)__builtin_popcount(seen[i]);
        if (live + n_free + n_cached != slab->n_slots || n_free == slab->n_slots)
            return broken("its slots are not each free, cached or live, or all of them are free", i);
        if (atomic_load(word_at(small, i)) >> 32 != tag_of(small, slab->offset, slab->size_class) >> 32)
            return broken("its word is that of another slab", i);
        if (spw__range_offset(small->config.range, slab->node) != slab->offset ||
            spw__range_bytes(small->config.range, slab->node) != (uint64_t)bytes * slab->n_slots)
            return broken("it is not the allocation that it was cut from", i);
        usage->live_bytes += (uint64_t)live * bytes;
        usage->slab_bytes += (uint64_t)bytes * slab->n_slots;
        usage->slabs++;
    }
    return true;
}

/* The lists hold exactly the slabs with a free slot. */
static bool check_partial(struct spw__small *small)
{
    uint32_t listed = 0, partial = 0;
    for (uint32_t i = 0; i < small->n_classes; i++)
        for (uint32_t at = small->partial[i], prev = NONE; at != NONE; prev = at, at = slab_at(small, at)->next) {
            const struct slab *slab = slab_at(small, at);
            if (slab->prev != prev || slab->size_class != i || slab->free == 0 || listed++ > small->n_slabs)
                return broken("the list of its class is not in order", at);
        }
    for (uint32_t i = 0; i < small->n_slabs; i++)
        partial += slab_at(small, i)->n_slots != 0 && slab_at(small, i)->free != 0;
    return listed == partial || broken("a slab with free slots is in no list", NONE);
}

bool spw__small_check(struct spw__small *small, struct spw__small_usage *usage)
{
    const size_t bytes = (small->n_slabs + 1u) * sizeof(uint32_t);
    uint32_t *seen = spw__meta_alloc(NULL, bytes); /* by slab: its slots that lie in caches */
    bool good = seen != NULL;
    *usage = (struct spw__small_usage){.live_bytes = 0};
    for (const struct spw__cache *cache = small->caches.first; good && cache; cache = cache->next) {
        good = check_cache(small, (const struct cache *)(const void *)cache, seen, &usage->cached_bytes);
        usage->caches++;
    }
    good = good && check_slabs(small, seen, usage) && check_partial(small);
    spw__meta_free(NULL, seen, bytes);
    return good;
}
