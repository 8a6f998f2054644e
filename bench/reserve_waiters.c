/* Many who wait for one place: what each costs to be served. Neighbour: reserve_bench.h. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "alloc_bench.h"
#include "reserve_bench.h"

#define WAITER_BYTES UINT64_C(4096)
#define STACK_BYTES ((size_t)64 << 10)

struct waiter {
    spw_manager *manager;
    spw_reservation *reservation;
    pthread_t thread;
};

static void *wait_for_room(void *arg)
{
    struct waiter *waiter = arg;
    spw_reserve_options options;
    spw_reserve_options_init(&options);
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    must(spw_reserve(waiter->manager, SPW_HOST, WAITER_BYTES, &options, &waiter->reservation));
    return NULL;
}

static void start_all(struct waiter *waiters, unsigned n, spw_manager *manager)
{
    spw_stats stats = SPW_STATS_INIT;
    pthread_attr_t small;
    if (pthread_attr_init(&small) != 0 || pthread_attr_setstacksize(&small, STACK_BYTES) != 0)
        abort();
    for (unsigned i = 0; i < n; i++) {
        waiters[i].manager = manager;
        if (pthread_create(&waiters[i].thread, &small, wait_for_room, &waiters[i]) != 0)
            abort();
    }
    (void)pthread_attr_destroy(&small);
    while (stats.waits < n) {
        (void)sched_yield();
        must(spw_stats_snapshot(manager, &stats));
    }
}

/* A full tier for which n threads wait; its holder gives back as much as one of them needs, n times. */
double waiter_served(unsigned n)
{
    spw_manager *manager = manager_of("host=64M");
    struct waiter *waiters = calloc(n, sizeof *waiters);
    spw_reservation *held;
    if (!waiters)
        abort();
    must(spw_reserve(manager, SPW_HOST, spw_budget(manager, SPW_HOST), NULL, &held));
    start_all(waiters, n, manager);
    const double start = now_ns();
    for (unsigned i = 0; i < n; i++)
        must(spw_reservation_shrink(held, WAITER_BYTES));
    for (unsigned i = 0; i < n; i++)
        (void)pthread_join(waiters[i].thread, NULL);
    const double served_ns = (now_ns() - start) / n;
    for (unsigned i = 0; i < n; i++)
        must(spw_reservation_release(waiters[i].reservation));
    must(spw_reservation_release(held));
    must(spw_manager_destroy(manager));
    free(waiters);
    return served_ns;
}
