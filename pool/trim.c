/* What of a tier's memory the system still has, and trim: free memory of pools that grow goes back to it. Neighbours:
 * tier.c (pools), source_host.c (huge pages), source_device.c (chunks).
 *
 * Host memory comes back by itself when it is touched, so that it may go anywhere in a pool. Device memory does not: a
 * pool gives back what lies behind its last allocation, and becomes one that has not grown so far yet.
 *
 * What is given back is taken out of the range first, host memory as if it were allocated, so that the system is called
 * without the lock; the pool counts as growing meanwhile: whoever finds no hole waits for the end and looks again.
 */
#include "pool/source_host.h"
#include "pool/tier.h"

bool spw__tier_can_grow(struct spw__tier *tier)
{
    uint64_t grown = 0;
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        spw__mutex_lock(&tier->pools[i].lock);
        grown += tier->pools[i].grown;
        spw__mutex_unlock(&tier->pools[i].lock);
    }
    return grown < tier->size;
}

/* Stretches given back per pool and call, largest first. */
enum { STRETCHES_MAX = 128 };

struct stretch {
    uint64_t offset, bytes;
    uint32_t node;
};

static uint64_t whole_pages(uint64_t bytes, uint64_t most)
{
    return (bytes < most ? bytes : most) / SPW__ALIGN_MAX * SPW__ALIGN_MAX;
}

/* Takes free stretches of whole huge pages out of the range, of at most max_bytes together. */
static unsigned take_locked(struct spw__pool *pool, uint64_t max_bytes, struct stretch *stretches)
{
    unsigned n = 0;
    uint64_t bytes = whole_pages(spw__range_largest_free(pool->range), max_bytes);
    while (n < STRETCHES_MAX && bytes) {
        struct stretch *at = &stretches[n];
        const int rc = spw__range_alloc(pool->range, bytes, SPW__ALIGN_MAX, &at->node, &at->offset);
        if (rc == SPW_EFRAG) { /* the hole begins within a huge page: it holds one less */
            bytes -= SPW__ALIGN_MAX;
            continue;
        }
        if (rc != SPW_OK)
            break;
        at->bytes = bytes;
        max_bytes -= bytes;
        n++;
        bytes = whole_pages(spw__range_largest_free(pool->range), max_bytes);
    }
    return n;
}

static uint64_t trim_host(struct spw__pool *pool, uint64_t max_bytes)
{
    struct stretch stretches[STRETCHES_MAX];
    uint64_t given = 0;
    spw__mutex_lock(&pool->lock);
    while (pool->growing)
        (void)spw__cond_wait(&pool->grown_cond, &pool->lock, -1);
    const unsigned n = take_locked(pool, max_bytes, stretches);
    pool->growing = pool->trimming = n > 0;
    spw__mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < n; i++)
        given += spw__host_discard((void *)(uintptr_t)(pool->base + stretches[i].offset), stretches[i].bytes);
    spw__mutex_lock(&pool->lock);
    for (unsigned i = 0; i < n; i++)
        (void)spw__range_free(pool->range, stretches[i].node);
    if (n > 0) {
        pool->growing = pool->trimming = false;
        spw__cond_broadcast(&pool->grown_cond);
    }
    spw__mutex_unlock(&pool->lock);
    return given;
}

/* Takes the end off the range, of at most max_bytes, and returns where the pool then ends. */
static uint64_t shorten_locked(struct spw__pool *pool, uint64_t max_bytes)
{
    const uint64_t tail = spw__range_tail(pool->range);
    const uint64_t least = pool->grown > max_bytes ? pool->grown - max_bytes : 0;
    const uint64_t end = spw__round_up(tail > least ? tail : least, pool->unit);
    if (end < pool->grown) {
        spw__range_shrink(pool->range, end);
        pool->grown = end;
        pool->reach = pool->size;
        pool->growing = pool->trimming = true;
    }
    return end;
}

static uint64_t trim_device(struct spw__pool *pool, uint64_t max_bytes)
{
    spw__mutex_lock(&pool->lock);
    while (pool->growing)
        (void)spw__cond_wait(&pool->grown_cond, &pool->lock, -1);
    const uint64_t end = shorten_locked(pool, max_bytes);
    const bool shortened = pool->trimming;
    spw__mutex_unlock(&pool->lock);
    if (!shortened)
        return 0;
    const uint64_t given = spw__device_memory_cut(&pool->on_device, end);
    spw__mutex_lock(&pool->lock);
    pool->growing = pool->trimming = false;
    spw__cond_broadcast(&pool->grown_cond);
    spw__mutex_unlock(&pool->lock);
    return given;
}

static uint64_t free_in_memory(struct spw__pool *pool)
{
    spw__mutex_lock(&pool->lock);
    const uint64_t bytes = spw__range_total_free(pool->range);
    spw__mutex_unlock(&pool->lock);
    return bytes;
}

uint64_t spw__tier_trim(struct spw__tier *tier, uint64_t keep_bytes)
{
    uint64_t given = 0;
    (void)spw__tier_drain(tier);
    if (!spw__tier_grows(tier))
        return 0;
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        const uint64_t bytes = free_in_memory(&tier->pools[i]);
        const uint64_t kept = bytes < keep_bytes ? bytes : keep_bytes;
        keep_bytes -= kept;
        given += tier->tier == SPW_TIER_DEVICE ? trim_device(&tier->pools[i], bytes - kept)
                                               : trim_host(&tier->pools[i], bytes - kept);
    }
    spw__waitset_signal(tier->waits, SPW__CHANNEL(tier->tier));
    return given;
}
