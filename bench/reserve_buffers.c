/* Pairs of calls on buffers, and on what they are made of. Neighbour: reserve_bench.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "reserve_bench.h"

#define BUFFER_BYTES ((size_t)1 << 20)
#define MAPPED_MAX 64u

static void admit_release_pairs(void *arg, unsigned n)
{
    spw_manager *manager = arg;
    spw_buffer *buffer;
    while (n-- > 0) {
        must(spw_admit(manager, BUFFER_BYTES, NULL, &buffer));
        must(spw_buffer_release(buffer));
    }
}

static void admit_seal_release_pairs(void *arg, unsigned n)
{
    spw_manager *manager = arg;
    spw_buffer *buffer;
    while (n-- > 0) {
        must(spw_admit(manager, BUFFER_BYTES, NULL, &buffer));
        must(spw_buffer_seal(buffer));
        must(spw_buffer_release(buffer));
    }
}

static struct figure with_manager(void (*pairs)(void *arg, unsigned n), const struct plan *plan)
{
    spw_manager *manager = manager_of("host=256M");
    const struct figure figure = figure_of(pairs, manager, plan);
    must(spw_manager_destroy(manager));
    return figure;
}

struct figure admit_release(const struct plan *plan)
{
    return with_manager(admit_release_pairs, plan);
}

struct figure admit_seal_release(const struct plan *plan)
{
    return with_manager(admit_seal_release_pairs, plan);
}

struct mapped {
    spw_buffer *buffers[MAPPED_MAX];
    unsigned n, next;
};

static void map_pairs(void *arg, unsigned n)
{
    struct mapped *mapped = arg;
    spw_view view;
    while (n-- > 0) {
        spw_buffer *buffer = mapped->buffers[mapped->next];
        mapped->next = mapped->next + 1 < mapped->n ? mapped->next + 1 : 0;
        must(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view));
        must(spw_unmap(buffer, &view, NULL));
    }
}

struct figure map_unmap(const struct plan *plan, unsigned n_buffers, bool sealed)
{
    struct mapped mapped = {.n = n_buffers};
    spw_manager *manager = manager_of("host=256M");
    if (n_buffers > MAPPED_MAX)
        abort();
    for (unsigned i = 0; i < n_buffers; i++) {
        must(spw_admit(manager, BUFFER_BYTES, NULL, &mapped.buffers[i]));
        if (sealed)
            must(spw_buffer_seal(mapped.buffers[i]));
    }
    const struct figure figure = figure_of(map_pairs, &mapped, plan);
    for (unsigned i = 0; i < n_buffers; i++)
        must(spw_buffer_release(mapped.buffers[i]));
    must(spw_manager_destroy(manager));
    return figure;
}

static void malloc_pairs(void *arg, unsigned n)
{
    void *volatile *slot = arg; /* or the compiler leaves the pair out */
    while (n-- > 0) {
        *slot = malloc(BUFFER_BYTES);
        if (!*slot)
            abort();
        free(*slot);
    }
}

static void lock_pairs(void *arg, unsigned n)
{
    pthread_mutex_t *mutex = arg;
    while (n-- > 0) {
        (void)pthread_mutex_lock(mutex);
        (void)pthread_mutex_unlock(mutex);
    }
}

static void add_pairs(void *arg, unsigned n)
{
    _Atomic uint64_t *counter = arg;
    while (n-- > 0) {
        (void)atomic_fetch_add(counter, BUFFER_BYTES);
        (void)atomic_fetch_sub(counter, BUFFER_BYTES);
    }
}

struct figure malloc_free(const struct plan *plan)
{
    void *volatile slot = NULL;
    return figure_of(malloc_pairs, (void *)&slot, plan);
}

struct figure lock_unlock(const struct plan *plan)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    spw_manager *manager = manager_of("host=1M"); /* has a thread: in a process with one thread locks cost less */
    const struct figure figure = figure_of(lock_pairs, &mutex, plan);
    must(spw_manager_destroy(manager));
    return figure;
}

struct figure add_sub(const struct plan *plan)
{
    _Atomic uint64_t counter = 0;
    return figure_of(add_pairs, &counter, plan);
}
