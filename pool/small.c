/* Caches of threads over slabs. See small.h for the states and the guards. Neighbours: small_slab.c (slabs), tier.c (the
 * user, which falls back to the plain range), base/wait (who waits for memory). */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/small_layout.h"

enum {
    BIN_ENTRIES = 16, /* cached objects of one class */
    BATCH_MAX = 8,    /* taken at once: half a bin, so that alternating allocs and frees stay in the cache */
};
#define BATCH_BYTES UINT32_C(32768)
#define CACHE_BYTES_MAX (UINT64_C(4) << 20)
#define CACHES_SHARE 16u /* of the pool, for all caches together */

struct cache {
    _Alignas(64) atomic_bool guard; /* held by its thread, or a drain, around everything below */
    struct spw__small *small;
    struct spw__group *group; /* guarded by guard: who is charged for what lies here */
    uint64_t bytes;           /* guarded by guard: charged */
    uint64_t allocs, alloc_bytes; /* guarded by guard: not yet in the counters */
    uint32_t hand;            /* guarded by guard: next class to make room in */
    uint8_t n[CLASSES_MAX];   /* guarded by guard */
    struct cache *prev, *next; /* guarded by small->caches_lock */
    struct entry entries[][BIN_ENTRIES]; /* guarded by guard; n_classes of them */
};

/* What a thread knows its caches by: open addressing over the pools' numbers. A pool that is gone leaves a number that
 * nobody asks for again. Owner thread only. */
struct known {
    uint64_t id; /* 0: none */
    struct cache *cache; /* NULL: there was no metadata memory for one */
};
struct thread {
    uint32_t mask;
    uint32_t used;
    struct known known[];
};

/* Which pools live, so that a thread that ends knows which of its caches do. */
static struct {
    struct spw__mutex lock;
    struct spw__small *first; /* guarded by lock */
    uint64_t last_id;         /* guarded by lock */
    pthread_key_t key;
    bool usable; /* set once */
} registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

/* Initial-exec: one word of static TLS instead of a call for each alloc and free. */
static _Thread_local struct thread *self __attribute__((tls_model("initial-exec")));

/* Guards */

static void guard(struct cache *cache)
{
    while (atomic_exchange_explicit(&cache->guard, true, memory_order_acquire))
        while (atomic_load_explicit(&cache->guard, memory_order_relaxed))
            (void)sched_yield();
}

static void unguard(struct cache *cache)
{
    atomic_store_explicit(&cache->guard, false, memory_order_release);
}

/* Filling and emptying, guarded */

/* Gives the first n objects of a class back. */
static void flush_guarded(struct cache *cache, uint32_t size_class, uint32_t n)
{
    struct spw__small *small = cache->small;
    struct entry *entries = cache->entries[size_class];
    const uint64_t bytes = (uint64_t)n * small->class_bytes[size_class];
    spw__mutex_lock(small->config.lock);
    for (uint32_t i = 0; i < n; i++)
        spw__slab_give_locked(small, entries[i]);
    spw__mutex_unlock(small->config.lock);
    cache->n[size_class] = (uint8_t)(cache->n[size_class] - n);
    memmove(entries, entries + n, cache->n[size_class] * sizeof *entries);
    cache->bytes -= bytes;
    spw__ledger_uncommit(cache->group, small->config.tier, bytes);
}

static uint64_t drain_guarded(struct cache *cache)
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
    if (n == 0 || cache->bytes + n * bytes > most)
        n = 1;
    const int rc = take(cache->small, cache->group, size_class, n, cache->entries[size_class], &taken);
    if (rc == SPW_OK) {
        cache->n[size_class] = (uint8_t)taken;
        cache->bytes += taken * bytes;
    }
    return rc;
}

/* Threads */

static bool is_live_locked(uint64_t id)
{
    const struct spw__small *small = registry.first;
    while (small && small->id != id)
        small = small->next;
    return small != NULL;
}

static size_t thread_bytes(uint32_t slots)
{
    return sizeof(struct thread) + slots * sizeof(struct known);
}

static void share_caches_locked(struct spw__small *small)
{
    const uint64_t share = small->config.size / CACHES_SHARE / (small->n_caches ? small->n_caches : 1);
    atomic_store(&small->cache_bytes_max, share < CACHE_BYTES_MAX ? share : CACHE_BYTES_MAX);
}

static size_t cache_bytes(const struct spw__small *small)
{
    return sizeof(struct cache) + small->n_classes * sizeof(struct entry[BIN_ENTRIES]);
}

static void free_cache(struct cache *cache)
{
    spw__meta_free(cache->small->config.meta, cache, cache_bytes(cache->small));
}

static void end_cache(struct cache *cache)
{
    struct spw__small *small = cache->small;
    spw__mutex_lock(&small->caches_lock);
    if (cache->prev)
        cache->prev->next = cache->next;
    else
        small->caches = cache->next;
    if (cache->next)
        cache->next->prev = cache->prev;
    small->n_caches--;
    share_caches_locked(small);
    guard(cache); /* a drain that found it in the list has left it before */
    const uint64_t bytes = drain_guarded(cache);
    unguard(cache);
    spw__mutex_unlock(&small->caches_lock);
    free_cache(cache);
    if (bytes)
        spw__waitset_signal(small->config.waits, SPW__CHANNEL(small->config.tier));
}

/* The destructor of the key. The registry's lock keeps the pools from going meanwhile. */
static void end_thread(void *arg)
{
    struct thread *thread = arg;
    self = NULL;
    spw__mutex_lock(&registry.lock);
    for (uint32_t i = 0; i <= thread->mask; i++)
        if (thread->known[i].cache && is_live_locked(thread->known[i].id))
            end_cache(thread->known[i].cache);
    spw__mutex_unlock(&registry.lock);
    spw__meta_free(NULL, thread, thread_bytes(thread->mask + 1));
}

/* In a child the parent's threads, and what they may have held, do not exist. */
static void forget_parent(void)
{
    self = NULL;
    (void)pthread_setspecific(registry.key, NULL);
    registry.first = NULL;
    spw__mutex_init(&registry.lock, SPW__RANK_THREADS);
}

static void make_registry(void)
{
    spw__mutex_init(&registry.lock, SPW__RANK_THREADS);
    registry.usable = pthread_key_create(&registry.key, end_thread) == 0 &&
                      pthread_atfork(NULL, NULL, forget_parent) == 0;
}

/* Where a thread knows a pool, or would: id is then 0. */
static struct known *place_of(struct thread *thread, uint64_t id)
{
    uint32_t i = (uint32_t)id & thread->mask;
    while (thread->known[i].id != id && thread->known[i].id != 0)
        i = (i + 1) & thread->mask;
    return &thread->known[i];
}

/* Room for one more, without the pools that are gone. */
static bool grow_thread_locked(void)
{
    struct thread *old = self;
    uint32_t live = 1;
    for (uint32_t i = 0; old && i <= old->mask; i++)
        live += old->known[i].id && is_live_locked(old->known[i].id);
    uint32_t slots = 8;
    while (slots < live * 2)
        slots *= 2;
    struct thread *fresh = spw__meta_alloc(NULL, thread_bytes(slots));
    if (!fresh || pthread_setspecific(registry.key, fresh) != 0) {
        spw__meta_free(NULL, fresh, thread_bytes(slots));
        return false;
    }
    fresh->mask = slots - 1;
    for (uint32_t i = 0; old && i <= old->mask; i++)
        if (old->known[i].id && is_live_locked(old->known[i].id)) {
            *place_of(fresh, old->known[i].id) = old->known[i];
            fresh->used++;
        }
    if (old)
        spw__meta_free(NULL, old, thread_bytes(old->mask + 1));
    self = fresh;
    return true;
}

/* Gives the calling thread a cache for a pool that it does not know. NULL: it has to do without. */
static struct cache *register_cache(struct spw__small *small, struct spw__group *group)
{
    struct cache *cache = NULL;
    spw__mutex_lock(&registry.lock);
    if (registry.usable && ((self && self->used * 2 <= self->mask) || grow_thread_locked())) {
        cache = spw__meta_alloc(small->config.meta, cache_bytes(small));
        *place_of(self, small->id) = (struct known){small->id, cache};
        self->used++;
    }
    if (cache) {
        cache->small = small;
        cache->group = group;
        spw__mutex_lock(&small->caches_lock);
        cache->next = small->caches;
        if (small->caches)
            small->caches->prev = cache;
        small->caches = cache;
        small->n_caches++;
        share_caches_locked(small);
        spw__mutex_unlock(&small->caches_lock);
    }
    spw__mutex_unlock(&registry.lock);
    return cache;
}

/* Life cycle */

int spw__small_create(const struct spw__small_config *config, struct spw__small **out)
{
    struct spw__small *small = spw__meta_alloc(config->meta, sizeof *small);
    *out = NULL;
    if (!small)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a pool of small objects; raise meta=");
    (void)pthread_once(&registry_once, make_registry);
    small->config = *config;
    spw__mutex_init(&small->caches_lock, SPW__RANK_CACHES);
    spw__slab_init(small);
    share_caches_locked(small);
    spw__mutex_lock(&registry.lock);
    small->id = ++registry.last_id;
    small->next = registry.first;
    if (small->next)
        small->next->prev = small;
    registry.first = small;
    spw__mutex_unlock(&registry.lock);
    *out = small;
    return SPW_OK;
}

void spw__small_destroy(struct spw__small *small)
{
    if (!small)
        return;
    spw__mutex_lock(&registry.lock);
    if (small->prev)
        small->prev->next = small->next;
    else
        registry.first = small->next;
    if (small->next)
        small->next->prev = small->prev;
    spw__mutex_unlock(&registry.lock);
    (void)spw__small_drain(small);
    for (struct cache *cache = small->caches, *next; cache; cache = next) {
        next = cache->next;
        free_cache(cache);
    }
    spw__slab_finish(small);
    spw__mutex_finish(&small->caches_lock);
    spw__meta_free(small->config.meta, small, sizeof *small);
}

/* Operations */

static void hand_out(struct spw__small *small, struct entry entry, uint64_t bytes, struct spw__small_object *out)
{
    struct slab *slab = slab_at(small, entry.slab);
    atomic_store_explicit(live_byte(slab, entry.slot), 1, memory_order_relaxed);
    *out = (struct spw__small_object){.offset = slab->offset + entry.slot * bytes, .bytes = bytes, .slab = entry.slab,
                                      .slot = (uint8_t)entry.slot};
}

static int alloc_uncached(struct spw__small *small, struct spw__group *group, uint32_t size_class,
                          struct spw__small_object *out)
{
    const struct spw__small_config *config = &small->config;
    const uint64_t bytes = small->class_bytes[size_class];
    struct entry entry;
    uint32_t taken = 0;
    const int rc = take(small, group, size_class, 1, &entry, &taken);
    if (rc != SPW_OK)
        return rc;
    hand_out(small, entry, bytes, out);
    spw__count(config->counters, config->count_allocs, 1);
    spw__count(config->counters, config->count_bytes, bytes);
    return SPW_OK;
}

int spw__small_alloc(struct spw__small *small, struct spw__group *group, uint64_t bytes, bool may_register,
                     struct spw__small_object *out)
{
    const uint32_t size_class = class_of(small, bytes);
    const struct known *known = self ? place_of(self, small->id) : NULL;
    struct cache *cache = known ? known->cache : NULL;
    struct entry entry;
    int rc = SPW_OK;
    if (!cache && may_register && (!known || known->id == 0))
        cache = register_cache(small, group);
    if (!cache)
        return alloc_uncached(small, group, size_class, out);
    bytes = small->class_bytes[size_class];
    guard(cache);
    if (cache->group != group) {
        (void)drain_guarded(cache);
        cache->group = group;
    }
    if (cache->n[size_class] == 0)
        rc = refill_guarded(cache, size_class);
    if (rc == SPW_OK) {
        entry = cache->entries[size_class][--cache->n[size_class]];
        cache->bytes -= bytes;
        cache->allocs++;
        cache->alloc_bytes += bytes;
    }
    unguard(cache);
    if (rc == SPW_OK)
        hand_out(small, entry, bytes, out);
    return rc;
}

/* Keeps an object that is live no more, unless somebody waits for memory. */
static bool keep(struct cache *cache, struct spw__group *group, uint32_t size_class, struct entry entry)
{
    struct spw__small *small = cache->small;
    const uint64_t bytes = small->class_bytes[size_class];
    guard(cache);
    bool kept = cache->group == group && !spw__waitset_busy(small->config.waits, SPW__CHANNEL(small->config.tier)) &&
                make_room_guarded(cache, bytes);
    if (kept) {
        if (cache->n[size_class] == BIN_ENTRIES)
            flush_guarded(cache, size_class, BATCH_MAX);
        cache->entries[size_class][cache->n[size_class]++] = entry;
        cache->bytes += bytes;
    }
    unguard(cache);
    return kept;
}

int spw__small_free(struct spw__small *small, struct spw__group *group, const struct spw__small_object *object,
                    bool *back)
{
    struct slab *slab = slab_at(small, object->slab);
    const struct entry entry = {object->slab, object->slot};
    *back = false;
    if (!slab || object->slot >= slab->n_slots || object->bytes != small->class_bytes[slab->size_class] ||
        object->offset != slab->offset + object->slot * object->bytes ||
        atomic_exchange_explicit(live_byte(slab, object->slot), 0, memory_order_relaxed) != 1)
        return spw__fail(SPW_EBADHANDLE, "slot %u of slab %u is not a live small object: freed twice, or never allocated",
                         object->slot, object->slab);
    const struct known *known = self ? place_of(self, small->id) : NULL;
    if (known && known->cache && keep(known->cache, group, slab->size_class, entry))
        return SPW_OK;
    *back = true;
    spw__mutex_lock(small->config.lock);
    spw__slab_give_locked(small, entry);
    spw__mutex_unlock(small->config.lock);
    spw__ledger_uncommit(group, small->config.tier, object->bytes);
    return SPW_OK;
}

uint64_t spw__small_drain(struct spw__small *small)
{
    uint64_t bytes = 0;
    spw__mutex_lock(&small->caches_lock);
    for (struct cache *cache = small->caches; cache; cache = cache->next) {
        guard(cache);
        bytes += drain_guarded(cache);
        unguard(cache);
    }
    spw__mutex_unlock(&small->caches_lock);
    return bytes;
}
