/* Slabs: stretches of a pool's range, cut into slots of one size. See small.h; neighbour: small.c, the caches above.
 *
 * Everything here runs under the pool's lock. */
#include "pool/base/error.h"
#include "pool/base/units.h"
#include "pool/small_layout.h"

/* A slab is as many slots as fit in this, when they are SLAB_SLOTS_MIN or more; else it has one slot.
 * Short slabs fill the crumbs between large objects, which is where small ones pay: 64 B to 64 KiB in 1 GiB come to
 * 0.966 of the memory with 32 grains, to 0.962 with 64 and to 0.956 with 128. */
#define SLAB_GRAINS 32u
#define SLAB_SLOTS_MIN 4u

void spw__slab_init(struct spw__small *small)
{
    small->shift = (unsigned)__builtin_ctz(small->config.granularity);
    small->n_classes = class_of(small, small->config.largest_bytes) + 1;
    small->recycled = NONE;
    for (uint32_t i = 0; i < small->n_classes; i++) {
        const uint32_t step = i < EXACT_CLASSES ? 0 : (i >> CLASS_BITS) - 1;
        small->class_bytes[i] = (i - (step << CLASS_BITS) + 1) << step << small->shift;
        small->partial[i] = NONE;
    }
}

void spw__slab_finish(struct spw__small *small)
{
    for (unsigned i = 0; i < CHUNKS_MAX; i++)
        spw__meta_free(small->config.meta, atomic_load(&small->chunks[i]), chunk_bytes(i));
}

static int take_record(struct spw__small *small, uint32_t *out)
{
    if (small->recycled != NONE) {
        *out = small->recycled;
        small->recycled = slab_at(small, *out)->next;
        return SPW_OK;
    }
    const uint32_t index = small->n_slabs;
    uint64_t at;
    const unsigned chunk = chunk_of(index, &at);
    if (index == NONE)
        return SPW_ENOMETA;
    if (!atomic_load_explicit(&small->chunks[chunk], memory_order_relaxed)) {
        struct slab *slabs = spw__meta_alloc(small->config.meta, chunk_bytes(chunk));
        if (!slabs)
            return SPW_ENOMETA;
        atomic_store_explicit(&small->chunks[chunk], slabs, memory_order_release);
    }
    small->n_slabs++;
    *out = index;
    return SPW_OK;
}

static void recycle_record(struct spw__small *small, uint32_t index)
{
    struct slab *slab = slab_at(small, index);
    slab->next = small->recycled;
    small->recycled = index;
}

static void link_partial(struct spw__small *small, uint32_t index)
{
    struct slab *slab = slab_at(small, index);
    uint32_t *head = &small->partial[slab->size_class];
    slab->prev = NONE;
    slab->next = *head;
    if (*head != NONE)
        slab_at(small, *head)->prev = index;
    *head = index;
}

static void unlink_partial(struct spw__small *small, const struct slab *slab)
{
    if (slab->prev == NONE)
        small->partial[slab->size_class] = slab->next;
    else
        slab_at(small, slab->prev)->next = slab->next;
    if (slab->next != NONE)
        slab_at(small, slab->next)->prev = slab->prev;
}

static uint32_t all_slots(const struct slab *slab)
{
    return UINT32_MAX >> (SLOTS_MAX - slab->n_slots);
}

/* A new slab, all of whose slots are free, at the head of its class. */
static int new_slab(struct spw__small *small, uint32_t size_class)
{
    const uint32_t bytes = small->class_bytes[size_class];
    const uint32_t fit = (SLAB_GRAINS << small->shift) / bytes;
    const uint32_t n_slots = fit < SLAB_SLOTS_MIN ? 1 : fit;
    uint32_t index;
    int rc = take_record(small, &index);
    if (rc != SPW_OK)
        return rc;
    struct slab *slab = slab_at(small, index);
    const uint64_t align = bytes >= SPW__DIRECT_MIN_BYTES ? SPW__IO_BLOCK : 0;
    uint64_t offset;
    rc = spw__range_alloc(small->config.range, (uint64_t)n_slots * bytes, align, &slab->node, &offset);
    if (rc != SPW_OK) {
        recycle_record(small, index);
        return rc;
    }
    atomic_store_explicit(word_at(small, index), tag_of(small, offset, size_class), memory_order_relaxed);
    slab->offset = offset;
    slab->size_class = (uint16_t)size_class;
    slab->n_slots = (uint8_t)n_slots;
    slab->free = all_slots(slab);
    link_partial(small, index);
    return SPW_OK;
}

uint32_t spw__slab_take_locked(struct spw__small *small, uint32_t size_class, uint32_t n, struct entry *out, int *rc)
{
    uint32_t taken = 0;
    while (taken < n) {
        const uint32_t index = small->partial[size_class];
        if (index == NONE) {
            *rc = new_slab(small, size_class);
            if (*rc != SPW_OK)
                break;
            continue;
        }
        struct slab *slab = slab_at(small, index);
        for (; slab->free && taken < n; slab->free &= slab->free - 1) {
            const uint32_t slot = (uint32_t)__builtin_ctz(slab->free);
            out[taken++] = (struct entry){slab->offset + (uint64_t)slot * small->class_bytes[size_class], index, slot};
        }
        if (!slab->free)
            unlink_partial(small, slab);
    }
    return taken;
}

void spw__slab_give_locked(struct spw__small *small, const struct entry *entry)
{
    const uint32_t index = entry->slab;
    struct slab *slab = slab_at(small, index);
    const bool was_full = slab->free == 0;
    slab->free |= UINT32_C(1) << entry->slot;
    if (slab->free != all_slots(slab)) {
        if (was_full)
            link_partial(small, index);
        return;
    }
    if (!was_full)
        unlink_partial(small, slab);
    (void)spw__range_free(small->config.range, slab->node);
    slab->n_slots = 0;
    recycle_record(small, index);
}
