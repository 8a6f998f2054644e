/* Caches over slabs. See small.h for the states and the guards. Neighbours: small_thread.c (whose cache is whose),
 * small_slab.c (slabs), tier_small.c (the user), base/wait (who waits for memory). */
#include <string.h>

#include "pool/base/error.h"
#include "pool/small_layout.h"

/* What is taken from the slabs at once: half a bin, so that alternating allocs and frees stay in the cache. */
#define BATCH_MAX (BIN_ENTRIES / 2)
#define BATCH_BYTES UINT32_C(32768)

/* A request may get a cached object of a class up to NEAR above its own: 6 % at most where classes are 3 % apart. */
#define NEAR 1u
#define NEAR_FROM 32u

/* Filling and emptying, guarded */

/* Whether somebody waits for the memory that a cache would keep. */
static bool is_lacking(const struct spw__small *small)
{
    return atomic_load(&small->config.waits->n_waiting[small->config.tier]) != 0;
}

static void set_count(struct cache *cache, uint32_t size_class, uint32_t n)
{
    const uint64_t bit = UINT64_C(1) << size_class % 64;
    cache->n[size_class] = (uint8_t)n;
    if (n)
        cache->filled[size_class / 64] |= bit;
    else
        cache->filled[size_class / 64] &= ~bit;
}

/* The class to serve size_class from: itself, or else one a little larger that has an object. */
static uint32_t find_guarded(const struct cache *cache, uint32_t size_class)
{
    const uint32_t last = size_class + NEAR;
    uint64_t word = cache->filled[size_class / 64] >> size_class % 64;
    if (size_class % 64 != 0)
        word |= cache->filled[size_class / 64 + 1] << (64 - size_class % 64);
    if (size_class < NEAR_FROM || word == 0)
        return size_class;
    const uint32_t found = size_class + (uint32_t)__builtin_ctzll(word);
    return found <= last ? found : size_class;
}

/* Gives the first n objects of a class back. */
static void flush_guarded(struct cache *cache, uint32_t size_class, uint32_t n)
{
    struct spw__small *small = cache->small;
    struct entry *entries = cache->entries[size_class];
    const uint64_t bytes = (uint64_t)n * small->class_bytes[size_class];
    spw__mutex_lock(small->config.lock);
    for (uint32_t i = 0; i < n; i++)
        spw__slab_give_locked(small, &entries[i]);
    spw__mutex_unlock(small->config.lock);
    set_count(cache, size_class, cache->n[size_class] - n);
    memmove(entries, entries + n, cache->n[size_class] * sizeof *entries);
    cache->bytes -= bytes;
    spw__ledger_uncommit(cache->group, small->config.tier, bytes);
}

uint64_t spw__cache_drain_guarded(struct cache *cache)
{
    const struct spw__small_config *config = &cache->small->config;
    const uint64_t bytes = cache->bytes;
    for (uint32_t i = 0; cache->bytes && i < cache->small->n_classes; i++)
        if (cache->n[i])
            flush_guarded(cache, i, cache->n[i]);
    if (cache->allocs) {
        spw__count(config->counters, config->count_allocs, cache->allocs);
        spw__count(config->counters, config->count_bytes, cache->alloc_bytes);
        cache->allocs = cache->alloc_bytes = 0;
    }
    return bytes;
}

/* Makes room for bytes more, taking from the classes in turn: what is in use now comes back by itself. */
static bool make_room_guarded(struct cache *cache, uint64_t bytes)
{
    const uint64_t most = atomic_load_explicit(&cache->small->cache_bytes_max, memory_order_relaxed);
    if (bytes > most)
        return false;
    while (cache->bytes + bytes > most) {
        cache->hand = (cache->hand + 1) % cache->small->n_classes;
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

static int refill_guarded(struct cache *cache, uint32_t size_class)
{
    const uint64_t bytes = cache->small->class_bytes[size_class];
    const uint64_t most = atomic_load_explicit(&cache->small->cache_bytes_max, memory_order_relaxed);
    uint32_t n = BATCH_BYTES / (uint32_t)bytes, taken = 0;
    n = n > BATCH_MAX ? BATCH_MAX : n;
    if (n == 0 || cache->bytes + n * bytes > most || is_lacking(cache->small))
        n = 1;
    const int rc = take(cache->small, cache->group, size_class, n, cache->entries[size_class], &taken);
    if (rc == SPW_OK) {
        set_count(cache, size_class, taken);
        cache->bytes += taken * bytes;
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
    spw__mutex_init(&small->caches_lock, SPW__RANK_CACHES);
    spw__slab_init(small);
    spw__small_enter(small);
    *out = small;
    return SPW_OK;
}

void spw__small_destroy(struct spw__small *small)
{
    if (!small)
        return;
    spw__small_leave(small);
    spw__slab_finish(small);
    spw__mutex_finish(&small->caches_lock);
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
    struct cache *cache = spw__small_cache(small);
    struct entry slot = {0, 0, 0};
    int rc = SPW_OK;
    if (!cache && may_register)
        cache = spw__small_register(small, group);
    if (!cache)
        return alloc_uncached(small, group, size_class, out);
    spw__cache_guard(cache);
    if (cache->group != group) {
        (void)spw__cache_drain_guarded(cache);
        cache->group = group;
    }
    size_class = find_guarded(cache, size_class);
    bytes = small->class_bytes[size_class];
    if (cache->n[size_class] == 0)
        rc = refill_guarded(cache, size_class);
    if (rc == SPW_OK) {
        slot = cache->entries[size_class][cache->n[size_class] - 1];
        set_count(cache, size_class, cache->n[size_class] - 1u);
        cache->bytes -= bytes;
        cache->allocs++;
        cache->alloc_bytes += bytes;
    }
    spw__cache_unguard(cache);
    if (rc == SPW_OK)
        hand_out(small, &slot, bytes, out);
    return rc;
}

/* Keeps an object that is live no more, unless somebody waits for memory. */
static bool keep(struct cache *cache, struct spw__group *group, uint32_t size_class, const struct entry *entry)
{
    struct spw__small *small = cache->small;
    const uint64_t bytes = small->class_bytes[size_class];
    spw__cache_guard(cache);
    bool kept = cache->group == group && !is_lacking(small) && make_room_guarded(cache, bytes);
    if (kept) {
        if (cache->n[size_class] == BIN_ENTRIES)
            flush_guarded(cache, size_class, BATCH_MAX);
        cache->entries[size_class][cache->n[size_class]] = *entry;
        set_count(cache, size_class, cache->n[size_class] + 1u);
        cache->bytes += bytes;
    }
    spw__cache_unguard(cache);
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
    struct cache *cache = spw__small_cache(small);
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
    uint64_t bytes = 0;
    spw__mutex_lock(&small->caches_lock);
    for (struct cache *cache = small->caches; cache; cache = cache->next) {
        spw__cache_guard(cache);
        bytes += spw__cache_drain_guarded(cache);
        spw__cache_unguard(cache);
    }
    spw__mutex_unlock(&small->caches_lock);
    return bytes;
}
