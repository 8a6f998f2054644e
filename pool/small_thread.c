/* Which thread has which cache of small objects. See small.h. Neighbour: small.c, which fills and empties them.
 *
 * A thread knows its caches by the numbers of their pools, which are never used again: a pool that is gone leaves a
 * number that nobody asks for. A thread that ends asks the registry which of its pools still live. */
#include <pthread.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/small_layout.h"

/* Of one cache, and of all caches of a pool as a share of it. With 4 MiB a thread that works on 64 B to 64 KiB at
 * random misses often enough to take 80 ns a pair instead of 30. */
#define CACHE_BYTES_MAX (UINT64_C(16) << 20)
#define CACHES_SHARE 16u

/* Which pools live, so that a thread that ends knows which of its caches do. */
static struct {
    struct spw__mutex lock;
    struct spw__small *first; /* guarded by lock */
    uint64_t last_id;         /* guarded by lock */
    pthread_key_t key;
    bool usable; /* set once */
} registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

_Thread_local struct thread *spw__small_self;

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
    spw__cache_guard(cache);
    const uint64_t bytes = spw__cache_drain_guarded(cache);
    spw__cache_unguard(cache);
    spw__mutex_unlock(&small->caches_lock);
    free_cache(cache);
    if (bytes)
        spw__waitset_signal(small->config.waits, SPW__CHANNEL(small->config.tier));
}

/* The destructor of the key. The registry's lock keeps the pools from going meanwhile. */
static void end_thread(void *arg)
{
    struct thread *thread = arg;
    spw__small_self = NULL;
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
    spw__small_self = NULL;
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

/* Room for one more, without the pools that are gone. */
static bool grow_thread_locked(void)
{
    struct thread *old = spw__small_self;
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
            *spw__small_place(fresh, old->known[i].id) = old->known[i];
            fresh->used++;
        }
    if (old)
        spw__meta_free(NULL, old, thread_bytes(old->mask + 1));
    spw__small_self = fresh;
    return true;
}

struct cache *spw__small_register(struct spw__small *small, struct spw__group *group)
{
    struct cache *cache = NULL;
    if (spw__small_self && spw__small_place(spw__small_self, small->id)->id != 0)
        return NULL; /* there was no memory for one before */
    spw__mutex_lock(&registry.lock);
    struct thread *self = spw__small_self;
    if (registry.usable && ((self && self->used * 2 <= self->mask) || grow_thread_locked())) {
        cache = spw__meta_alloc(small->config.meta, cache_bytes(small));
        *spw__small_place(spw__small_self, small->id) = (struct known){small->id, cache};
        spw__small_self->used++;
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

/* Pools */

void spw__small_enter(struct spw__small *small)
{
    (void)pthread_once(&registry_once, make_registry);
    share_caches_locked(small);
    spw__mutex_lock(&registry.lock);
    small->id = ++registry.last_id;
    small->next = registry.first;
    if (small->next)
        small->next->prev = small;
    registry.first = small;
    spw__mutex_unlock(&registry.lock);
}

void spw__small_leave(struct spw__small *small)
{
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
}
