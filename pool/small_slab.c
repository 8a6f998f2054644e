/* Slabs: stretches of a pool's range, cut into slots of one size. See small.h; neighbour: small.c, the caches above.
 *
 * Everything here runs under the pool's lock. */
#include <inttypes.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/small_layout.h"

/* Half a slab per class lies idle in the mean: enough slots to keep the range out of the way of small objects, few
 * enough bytes to cost nothing. Objects above SLAB_BYTES / 4 are not worth a slab: they would idle more than they save. */
#define SLAB_BYTES UINT32_C(8192)

/* As pool/tier.h promises for direct I/O. */
#define DIRECT_MIN_BYTES (UINT32_C(32) << 10)
#define IO_BLOCK UINT32_C(4096)

void spw__slab_init(struct spw__small *small)
{
    small->shift = (unsigned)__builtin_ctz(small->config.granularity);
    small->n_classes = class_of(small, small->config.largest_bytes) + 1;
    small->recycled = NONE;
    for (uint32_t i = 0; i < small->n_classes; i++) {
        const uint32_t step = i < 64 ? 0 : i / 32 - 1;
        small->class_bytes[i] = (i - step * 32 + 1) << step << small->shift;
        small->partial[i] = NONE;
    }
}

static uint32_t chunk_slabs(unsigned chunk)
{
    return chunk == 0 ? CHUNK_FIRST : CHUNK_FIRST << (chunk - 1);
}

static void free_live_bytes(struct spw__small *small, struct slab *slab)
{
    if (slab->n_slots > FEW_SLOTS)
        spw__meta_free(small->config.meta, slab->live.many, slab->n_slots);
    slab->n_slots = 0;
}

void spw__slab_finish(struct spw__small *small)
{
    for (uint32_t i = 0; i < small->n_slabs; i++)
        free_live_bytes(small, slab_at(small, i));
    for (unsigned i = 0; i < CHUNKS_MAX; i++)
        spw__meta_free(small->config.meta, atomic_load(&small->chunks[i]), chunk_slabs(i) * sizeof(struct slab));
}

static int take_record(struct spw__small *small, uint32_t *out)
{
    if (small->recycled != NONE) {
        *out = small->recycled;
        small->recycled = slab_at(small, *out)->next;
        return SPW_OK;
    }
    const uint32_t index = small->n_slabs;
    const unsigned chunk = index < CHUNK_FIRST ? 0 : 26u - (unsigned)__builtin_clz(index);
    if (chunk == CHUNKS_MAX)
        return SPW_ENOMETA;
    if (!atomic_load_explicit(&small->chunks[chunk], memory_order_relaxed)) {
        struct slab *slabs = spw__meta_alloc(small->config.meta, chunk_slabs(chunk) * sizeof *slabs);
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

static uint64_t all_slots(const struct slab *slab)
{
    return UINT64_MAX >> (64 - slab->n_slots);
}

/* A new slab, all of whose slots are free, at the head of its class. */
static int new_slab(struct spw__small *small, uint32_t size_class)
{
    const uint32_t bytes = small->class_bytes[size_class];
    uint32_t n_slots = bytes > SLAB_BYTES / 4 ? 1 : SLAB_BYTES / bytes;
    uint32_t index;
    n_slots = n_slots > SLOTS_MAX ? SLOTS_MAX : n_slots;
    int rc = take_record(small, &index);
    if (rc != SPW_OK)
        return rc;
    struct slab *slab = slab_at(small, index);
    *slab = (struct slab){.size_class = (uint8_t)size_class};
    if (n_slots > FEW_SLOTS) {
        slab->live.many = spw__meta_alloc(small->config.meta, n_slots);
        rc = slab->live.many ? SPW_OK : SPW_ENOMETA;
    }
    const uint64_t align = bytes >= DIRECT_MIN_BYTES ? IO_BLOCK : 0;
    if (rc == SPW_OK) {
        rc = spw__range_alloc(small->config.range, (uint64_t)n_slots * bytes, align, &slab->node, &slab->offset);
        if (rc != SPW_OK && n_slots > FEW_SLOTS)
            spw__meta_free(small->config.meta, slab->live.many, n_slots);
    }
    if (rc != SPW_OK) {
        recycle_record(small, index);
        return rc;
    }
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
        for (; slab->free && taken < n; slab->free &= slab->free - 1)
            out[taken++] = (struct entry){index, (uint32_t)__builtin_ctzll(slab->free)};
        if (!slab->free)
            unlink_partial(small, slab);
    }
    return taken;
}

void spw__slab_give_locked(struct spw__small *small, struct entry entry)
{
    struct slab *slab = slab_at(small, entry.slab);
    const bool was_full = slab->free == 0;
    slab->free |= UINT64_C(1) << entry.slot;
    if (slab->free != all_slots(slab)) {
        if (was_full)
            link_partial(small, entry.slab);
        return;
    }
    if (!was_full)
        unlink_partial(small, slab);
    (void)spw__range_free(small->config.range, slab->node);
    free_live_bytes(small, slab);
    recycle_record(small, entry.slab);
}
