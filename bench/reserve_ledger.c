/* Reservations: how fast one is made and given back, by one thread and by several, and under groups.
 * Neighbour: reserve_bench.h. */
#include <pthread.h>
#include <stdlib.h>

#include "alloc_bench.h"
#include "reserve_bench.h"

#define RESERVED_BYTES (UINT64_C(1) << 20)

struct ledger {
    spw_manager *manager;
    spw_group *group; /* NULL: the manager's own budgets */
};

static void reserve_pairs(void *arg, unsigned n)
{
    const struct ledger *ledger = arg;
    spw_reserve_options options;
    spw_reservation *reservation;
    spw_reserve_options_init(&options);
    options.group = ledger->group;
    while (n-- > 0) {
        must(spw_reserve(ledger->manager, SPW_HOST, RESERVED_BYTES, &options, &reservation));
        must(spw_reservation_release(reservation));
    }
}

struct figure reserve_release(const struct plan *plan, unsigned depth)
{
    struct ledger ledger = {manager_of("host=256M"), NULL};
    spw_group *groups[DEPTH_MAX];
    if (depth > DEPTH_MAX)
        abort();
    for (unsigned i = 0; i < depth; i++) {
        spw_group_options options;
        spw_group_options_init(&options);
        options.parent = ledger.group;
        must(spw_group_create(ledger.manager, &options, &groups[i]));
        ledger.group = groups[i];
    }
    const struct figure figure = figure_of(reserve_pairs, &ledger, plan);
    while (depth > 0)
        must(spw_group_destroy(groups[--depth]));
    must(spw_manager_destroy(ledger.manager));
    return figure;
}

struct worker {
    struct ledger *ledger;
    const struct plan *plan;
    pthread_barrier_t *round;
    pthread_t thread;
    double *means; /* of its pairs, by chunk */
};

/* All threads begin each chunk together: what is measured is what they do to each other. */
static void *work(void *arg)
{
    struct worker *worker = arg;
    reserve_pairs(worker->ledger, worker->plan->warm_up);
    for (unsigned i = 0; i < worker->plan->chunks; i++) {
        (void)pthread_barrier_wait(worker->round);
        const double start = now_ns();
        reserve_pairs(worker->ledger, worker->plan->per_chunk);
        worker->means[i] = (now_ns() - start) / worker->plan->per_chunk;
    }
    return NULL;
}

struct figure reserve_release_threads(const struct plan *plan, unsigned n_threads)
{
    struct ledger ledger = {manager_of("host=256M"), NULL};
    struct worker workers[THREADS_MAX];
    pthread_barrier_t round;
    double *means = calloc(plan->chunks * (n_threads + 1), sizeof *means); /* those of all first */
    if (!means || n_threads > THREADS_MAX || pthread_barrier_init(&round, NULL, n_threads) != 0)
        abort();
    for (unsigned i = 0; i < n_threads; i++) {
        workers[i] = (struct worker){&ledger, plan, &round, 0, means + plan->chunks * (i + 1)};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < n_threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        for (unsigned at = 0; at < plan->chunks; at++)
            means[at] += workers[i].means[at] / n_threads;
    }
    const struct figure figure = figure_from(means, plan->chunks);
    free(means);
    (void)pthread_barrier_destroy(&round);
    must(spw_manager_destroy(ledger.manager));
    return figure;
}
