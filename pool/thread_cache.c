/* The registry of threads and pools with caches. See thread_cache.h. Neighbours: small.c and spare.c, which fill and
 * empty caches. */
#include "pool/thread_cache.h"

#include <pthread.h>

#include "pool/base/error.h"

/* Which pools live, so that a thread that ends knows which of its caches do. */
static struct {
    struct spw__mutex lock;
    struct spw__caches *first; /* guarded by lock */
    uint64_t last_id;         /* guarded by lock */
    pthread_key_t key;
    bool usable; /* set once */
} registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

_Thread_local struct spw__thread_caches *spw__own_caches;

static bool is_live_locked(uint64_t id)
{
    const struct spw__caches *caches = registry.first;
    while (caches && caches->id != id)
        caches = caches->next;
    return caches != NULL;
}

static size_t thread_bytes(uint32_t slots)
{
    return sizeof(struct spw__thread_caches) + slots * sizeof(struct spw__known_cache);
}

static void share_locked(struct spw__caches *caches)
{
    const uint32_t n = atomic_load(&caches->n);
    const uint64_t share = caches->share_bytes / (n ? n : 1);
    atomic_store(&caches->bytes_max, share < caches->most_bytes ? share : caches->most_bytes);
}

uint64_t spw__cache_drain_guarded(struct spw__cache *cache)
{
    const struct spw__caches *of = cache->of;
    const uint64_t bytes = cache->bytes;
    if (bytes)
        of->flush(cache);
    if (cache->allocs) {
        spw__count(of->counters, of->count_allocs, cache->allocs);
        spw__count(of->counters, of->count_bytes, cache->alloc_bytes);
        cache->allocs = cache->alloc_bytes = 0;
    }
    return bytes;
}

/* Those that hold more than so many bytes. */
static uint64_t drain_locked(struct spw__caches *caches, uint64_t above)
{
    uint64_t bytes = 0;
    for (struct spw__cache *cache = caches->first; cache; cache = cache->next) {
        spw__cache_guard(cache);
        if (cache->bytes > above || above == 0)
            bytes += spw__cache_drain_guarded(cache);
        spw__cache_unguard(cache);
    }
    return bytes;
}

uint64_t spw__caches_drain(struct spw__caches *caches)
{
    spw__mutex_lock(&caches->lock);
    const uint64_t bytes = drain_locked(caches, 0);
    spw__mutex_unlock(&caches->lock);
    return bytes;
}

static void end_cache(struct spw__cache *cache)
{
    struct spw__caches *of = cache->of;
    spw__mutex_lock(&of->lock);
    if (cache->prev)
        cache->prev->next = cache->next;
    else
        of->first = cache->next;
    if (cache->next)
        cache->next->prev = cache->prev;
    (void)atomic_fetch_sub(&of->n, 1);
    share_locked(of);
    spw__cache_guard(cache);
    const uint64_t bytes = spw__cache_drain_guarded(cache);
    spw__cache_unguard(cache);
    spw__mutex_unlock(&of->lock);
    spw__meta_free(of->meta, cache, of->cache_size);
    if (bytes)
        spw__waitset_signal(of->waits, SPW__CHANNEL(of->tier));
}

/* The destructor of the key. The registry's lock keeps the pools from going meanwhile. */
static void end_thread(void *arg)
{
    struct spw__thread_caches *thread = arg;
    spw__own_caches = NULL;
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
    spw__own_caches = NULL;
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
    struct spw__thread_caches *old = spw__own_caches;
    uint32_t live = 1;
    for (uint32_t i = 0; old && i <= old->mask; i++)
        live += old->known[i].id && is_live_locked(old->known[i].id);
    uint32_t slots = 8;
    while (slots < live * 2)
        slots *= 2;
    struct spw__thread_caches *fresh = spw__meta_alloc(NULL, thread_bytes(slots));
    if (!fresh || pthread_setspecific(registry.key, fresh) != 0) {
        spw__meta_free(NULL, fresh, thread_bytes(slots));
        return false;
    }
    fresh->mask = slots - 1;
    for (uint32_t i = 0; old && i <= old->mask; i++)
        if (old->known[i].id && is_live_locked(old->known[i].id)) {
            *spw__cache_place(fresh, old->known[i].id) = old->known[i];
            fresh->used++;
        }
    if (old)
        spw__meta_free(NULL, old, thread_bytes(old->mask + 1));
    spw__own_caches = fresh;
    return true;
}

struct spw__cache *spw__cache_register(struct spw__caches *caches, struct spw__group *group)
{
    struct spw__cache *cache = NULL;
    if (spw__own_caches && spw__cache_place(spw__own_caches, caches->id)->id != 0)
        return NULL; /* there was no memory for one before */
    spw__mutex_lock(&registry.lock);
    struct spw__thread_caches *own = spw__own_caches;
    if (registry.usable && ((own && own->used * 2 <= own->mask) || grow_thread_locked())) {
        cache = spw__meta_alloc(caches->meta, caches->cache_size);
        *spw__cache_place(spw__own_caches, caches->id) = (struct spw__known_cache){caches->id, cache};
        spw__own_caches->used++;
    }
    if (cache) {
        cache->of = caches;
        cache->group = group;
        spw__mutex_lock(&caches->lock);
        cache->next = caches->first;
        if (caches->first)
            caches->first->prev = cache;
        caches->first = cache;
        (void)atomic_fetch_add(&caches->n, 1);
        share_locked(caches);
        (void)drain_locked(caches, atomic_load(&caches->bytes_max));
        spw__mutex_unlock(&caches->lock);
    }
    spw__mutex_unlock(&registry.lock);
    return cache;
}

/* Pools */

void spw__caches_init(struct spw__caches *caches)
{
    (void)pthread_once(&registry_once, make_registry);
    spw__mutex_init(&caches->lock, SPW__RANK_CACHES);
    share_locked(caches);
    spw__mutex_lock(&registry.lock);
    caches->id = ++registry.last_id;
    caches->next = registry.first;
    if (caches->next)
        caches->next->prev = caches;
    registry.first = caches;
    spw__mutex_unlock(&registry.lock);
}

void spw__caches_finish(struct spw__caches *caches)
{
    spw__mutex_lock(&registry.lock);
    if (caches->prev)
        caches->prev->next = caches->next;
    else
        registry.first = caches->next;
    if (caches->next)
        caches->next->prev = caches->prev;
    spw__mutex_unlock(&registry.lock);
    (void)spw__caches_drain(caches);
    for (struct spw__cache *cache = caches->first, *next; cache; cache = next) {
        next = cache->next;
        spw__meta_free(caches->meta, cache, caches->cache_size);
    }
    spw__mutex_finish(&caches->lock);
}
