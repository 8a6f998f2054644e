/* Caches over slabs. See small.h for the states and the guards. Neighbours: thread_cache.c (whose cache is whose),
 * small_slab.c (slabs), tier_small.c (the user). */
#include <stddef.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/small_layout.h"

/* What is taken from the slabs at once: half a bin, so that alternating allocs and frees stay in the cache. */
#define BATCH_MAX (BIN_ENTRIES / 2)
#define BATCH_BYTES UINT32_C(32768)

/* Of one cache, and of all caches of a pool as a share of it. With 4 MiB a thread that works on 64 B to 64 KiB at
 * random misses often enough to take 80 ns a pair instead of 30. */
#define CACHE_BYTES_MAX (UINT64_C(32) << 20)
#define CACHES_SHARE 16u

/* A request may get a cached object of the next class from this one on: 6 % more at most, as classes are 3 % apart. */
#define NEAR_FROM 32u

/* Filling and emptying, guarded */

static struct spw__small *small_of(const struct cache *cache)
{
    return (struct spw__small *)(void *)((char *)cache->head.of - offsetof(struct spw__small, caches));
}

/* The class to serve size_class from: itself, or else one a little larger that has an object. */
static uint32_t find_guarded(const struct cache *cache, uint32_t size_class)
{
    const bool next = cache->n[size_class] == 0 && size_class >= NEAR_FROM && cache->n[size_class + 1] != 0;
    return next ? size_class + 1 : size_class;
}

/* Gives the first n objects of a class back. */
static __attribute__((noinline)) void flush_guarded(struct cache *cache, uint32_t size_class, uint32_t n)
{
    struct spw__small *small = small_of(cache);
    struct entry *entries = cache->entries[size_class];
    const uint64_t bytes = (uint64_t)n * small->class_bytes[size_class];
    spw__mutex_lock(small->config.lock);
    for (uint32_t i = 0; i < n; i++)
        spw__slab_give_locked(small, &entries[i]);
    spw__mutex_unlock(small->config.lock);
    cache->n[size_class] = (uint8_t)(cache->n[size_class] - n);
    memmove(entries, entries + n, cache->n[size_class] * sizeof *entries);
    cache->head.bytes -= bytes;
    spw__ledger_uncommit(cache->head.group, small->config.tier, bytes);
}

static void flush_all_guarded(struct spw__cache *head)
{
    struct cache *cache = (struct cache *)(void *)head;
    for (uint32_t i = 0; head->bytes && i < small_of(cache)->n_classes; i++)
        if (cache->n[i])
            flush_guarded(cache, i, cache->n[i]);
}

/* Makes room for bytes more, taking from the classes in turn: what is in use now comes back by itself. */
static bool make_room_guarded(struct cache *cache, uint64_t bytes)
{
    const uint64_t most = spw__cache_most(&cache->head);
    if (bytes > most)
        return false;
    while (cache->head.bytes + bytes > most) {
        cache->hand = (cache->hand + 1) % small_of(cache)->n_classes;
        if (cache->n[cache->hand])
            flush_guarded(cache, cache->hand, cache->n[cache->hand]);
    }
    return true;
}

static int take(struct spw__small *small, struct spw__group *group, uint32_t size_class, uint32_t n,
                struct entry *entries, uint32_t *taken)
{
    const uint64_t bytes = small->class_bytes[size_class];
    int rc = SPW_ENOMEM;
    if (n > 1 && !spw__ledger_commit(group, small->config.tier, n * bytes))
        n = 1;
    if (n == 1 && !spw__ledger_commit(group, small->config.tier, bytes))
        return SPW_ENOMEM;
    spw__mutex_lock(small->config.lock);
    *taken = spw__slab_take_locked(small, size_class, n, entries, &rc);
    spw__mutex_unlock(small->config.lock);
    if (*taken < n)
        spw__ledger_uncommit(group, small->config.tier, (n - *taken) * bytes);
    return *taken ? SPW_OK : rc;
}

static __attribute__((noinline)) int refill_guarded(struct cache *cache, uint32_t size_class)
{
    struct spw__small *small = small_of(cache);
    const uint64_t bytes = small->class_bytes[size_class];
    uint32_t n = BATCH_BYTES / (uint32_t)bytes, taken = 0;
    n = n > BATCH_MAX ? BATCH_MAX : n;
    if (n == 0 || cache->head.bytes + n * bytes > spw__cache_most(&cache->head) || spw__caches_lacking(&small->caches))
        n = 1;
    const int rc = take(small, cache->head.group, size_class, n, cache->entries[size_class], &taken);
    if (rc == SPW_OK) {
        cache->n[size_class] = (uint8_t)taken;
        cache->head.bytes += taken * bytes;
    }
    return rc;
}

/* Life cycle */

int spw__small_create(const struct spw__small_config *config, struct spw__small **out)
{
    struct spw__small *small = spw__meta_alloc(config->meta, sizeof *small);
    *out = NULL;
    if (!small)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a pool of small objects; raise meta=");
    small->config = *config;
    spw__slab_init(small);
    small->caches = (struct spw__caches){
        .cache_size = sizeof(struct cache) + small->n_classes * sizeof(struct entry[BIN_ENTRIES]),
        .share_bytes = config->size / CACHES_SHARE, .most_bytes = CACHE_BYTES_MAX, .tier = config->tier,
        .meta = config->meta, .waits = config->waits, .counters = config->counters,
        .count_allocs = config->count_allocs, .count_bytes = config->count_bytes, .flush = flush_all_guarded};
    spw__caches_init(&small->caches);
    *out = small;
    return SPW_OK;
}

void spw__small_destroy(struct spw__small *small)
{
    if (!small)
        return;
    spw__caches_finish(&small->caches);
    spw__slab_finish(small);
    spw__meta_free(small->config.meta, small, sizeof *small);
}

/* Operations */

static void hand_out(struct spw__small *small, const struct entry *taken, uint64_t bytes, struct spw__small_object *out)
{
    (void)atomic_fetch_or_explicit(word_at(small, taken->slab), UINT64_C(1) << taken->slot, memory_order_relaxed);
    *out = (struct spw__small_object){.offset = taken->offset, .bytes = bytes, .slab = taken->slab,
                                      .slot = (uint8_t)taken->slot};
}

static int alloc_uncached(struct spw__small *small, struct spw__group *group, uint32_t size_class,
                          struct spw__small_object *out)
{
    const struct spw__small_config *config = &small->config;
    const uint64_t bytes = small->class_bytes[size_class];
    struct entry slot;
    uint32_t taken = 0;
    const int rc = take(small, group, size_class, 1, &slot, &taken);
    if (rc != SPW_OK)
        return rc;
    hand_out(small, &slot, bytes, out);
    spw__count(config->counters, config->count_allocs, 1);
    spw__count(config->counters, config->count_bytes, bytes);
    return SPW_OK;
}

int spw__small_alloc(struct spw__small *small, struct spw__group *group, uint64_t bytes, bool may_register,
                     struct spw__small_object *out)
{
    uint32_t size_class = class_of(small, bytes);
    struct spw__cache *head = spw__cache_own(&small->caches);
    struct entry slot = {0, 0, 0};
    int rc = SPW_OK;
    if (!head && may_register)
        head = spw__cache_register(&small->caches, group);
    if (!head)
        return alloc_uncached(small, group, size_class, out);
    struct cache *cache = (struct cache *)(void *)head;
    spw__cache_guard(head);
    if (head->group != group) {
        (void)spw__cache_drain_guarded(head);
        head->group = group;
    }
    size_class = find_guarded(cache, size_class);
    bytes = small->class_bytes[size_class];
    if (cache->n[size_class] == 0)
        rc = refill_guarded(cache, size_class);
    if (rc == SPW_OK) {
        slot = cache->entries[size_class][--cache->n[size_class]];
        head->bytes -= bytes;
        head->allocs++;
        head->alloc_bytes += bytes;
    }
    spw__cache_unguard(head);
    if (rc == SPW_OK)
        hand_out(small, &slot, bytes, out);
    return rc;
}

/* Keeps an object that is live no more, unless somebody waits for memory. */
static bool keep(struct cache *cache, struct spw__group *group, uint32_t size_class, const struct entry *entry)
{
    struct spw__small *small = small_of(cache);
    const uint64_t bytes = small->class_bytes[size_class];
    spw__cache_guard(&cache->head);
    const bool kept = cache->head.group == group && !spw__caches_lacking(&small->caches) &&
                      make_room_guarded(cache, bytes);
    if (kept) {
        if (cache->n[size_class] == BIN_ENTRIES)
            flush_guarded(cache, size_class, BATCH_MAX);
        cache->entries[size_class][cache->n[size_class]++] = *entry;
        cache->head.bytes += bytes;
    }
    spw__cache_unguard(&cache->head);
    return kept;
}

/* Takes the live bit of an object. False: it has none. */
static bool take_live(struct spw__small *small, const struct spw__small_object *object, uint32_t size_class)
{
    slab_word *word = word_at(small, object->slab);
    if (!word || object->slot >= SLOTS_MAX || object->bytes != small->class_bytes[size_class])
        return false;
    const uint64_t bit = UINT64_C(1) << object->slot;
    const uint64_t tag = tag_of(small, object->offset - object->slot * object->bytes, size_class);
    const uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    return now >> 32 == tag >> 32 && (now & bit) &&
           (atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed) & bit);
}

int spw__small_free(struct spw__small *small, struct spw__group *group, const struct spw__small_object *object,
                    bool *back)
{
    const struct entry slot = {object->offset, object->slab, object->slot};
    const uint32_t size_class = class_of(small, object->bytes);
    *back = false;
    if (object->bytes > small->config.largest_bytes || !take_live(small, object, size_class))
        return spw__fail(SPW_EBADHANDLE, "slot %u of slab %u is not a live small object: freed twice, or never "
                                         "allocated", object->slot, object->slab);
    struct cache *cache = (struct cache *)(void *)spw__cache_own(&small->caches);
    if (cache && keep(cache, group, size_class, &slot))
        return SPW_OK;
    *back = true;
    spw__mutex_lock(small->config.lock);
    spw__slab_give_locked(small, &slot);
    spw__mutex_unlock(small->config.lock);
    spw__ledger_uncommit(group, small->config.tier, object->bytes);
    return SPW_OK;
}

uint64_t spw__small_drain(struct spw__small *small)
{
    return spw__caches_drain(&small->caches);
}

uint64_t spw__small_cached_most(const struct spw__small *small)
{
    return spw__caches_most(&small->caches);
}
