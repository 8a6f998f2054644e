/* Small objects on two threads: one pool, each thread with messages of its own in flight. Neighbour: alloc_bench.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <spillway/error.h>

#include "alloc_bench.h"
#include "pool/small.h"

#define POOL_BYTES (UINT64_C(1) << 30)
#define OBJECT_MIN 64.0
#define OBJECT_MAX 65536.0
#define LIVE 2000u /* of each thread */
#define LENGTH (1u << 16)
#define WARM_UP 300000u

struct worker {
    struct spw__small *small;
    struct spw__group *group;
    pthread_barrier_t *start;
    unsigned chunks;
    uint64_t seed;
    double *means;
    struct spw__small_object live[LIVE];
    uint32_t sizes[LENGTH], victims[LENGTH];
};

static void play_small(struct worker *worker, uint32_t from, uint32_t pairs)
{
    for (uint32_t i = from; i < from + pairs; i++) {
        struct spw__small_object *object = &worker->live[worker->victims[i % LENGTH]];
        bool back;
        if (spw__small_free(worker->small, worker->group, object, &back) != SPW_OK ||
            spw__small_alloc(worker->small, worker->group, worker->sizes[i % LENGTH], true, object) != SPW_OK)
            abort();
    }
}

static void *work_small(void *arg)
{
    struct worker *worker = arg;
    struct random random = {worker->seed};
    for (uint32_t i = 0; i < LENGTH; i++) {
        worker->sizes[i] = (uint32_t)random_log_uniform(&random, OBJECT_MIN, OBJECT_MAX);
        worker->victims[i] = (uint32_t)(random_unit(&random) * LIVE);
    }
    for (uint32_t i = 0; i < LIVE; i++)
        if (spw__small_alloc(worker->small, worker->group, worker->sizes[i], true, &worker->live[i]) != SPW_OK)
            abort();
    play_small(worker, 0, WARM_UP);
    (void)pthread_barrier_wait(worker->start);
    for (unsigned i = 0; i < worker->chunks; i++) {
        const double start = now_ns();
        play_small(worker, i * CHUNK_PAIRS, CHUNK_PAIRS);
        worker->means[i] = (now_ns() - start) / CHUNK_PAIRS;
    }
    return NULL;
}

/* A pool with nothing behind it: its memory is never touched. */
static int open_pool(struct spw__small_config *config, struct spw__mutex *lock, struct spw__waitset *waits,
                     struct spw__counters *counters, struct spw__small **small)
{
    *config = (struct spw__small_config){.lock = lock, .size = POOL_BYTES, .largest_bytes = SPW__SMALL_LIMIT,
                                         .granularity = 64, .tier = SPW_TIER_HOST, .waits = waits,
                                         .counters = counters, .count_bytes = 1};
    spw__waitset_init(waits, NULL);
    spw__mutex_init(lock, SPW__RANK_POOL);
    const int rc = spw__range_create(POOL_BYTES, 64, false, NULL, &config->range);
    return rc == SPW_OK ? spw__small_create(config, small) : rc;
}

double small_ns_2t(unsigned chunks, uint64_t seed)
{
    static struct spw__counters counters;
    static struct spw__group group;
    static struct worker workers[2];
    struct spw__small_config config;
    struct spw__waitset waits;
    struct spw__mutex lock;
    struct spw__small *small = NULL;
    pthread_barrier_t start;
    pthread_t threads[2];
    double *means = malloc(2 * chunks * sizeof *means);
    spw__gate_init(&group.gates[SPW_TIER_HOST], POOL_BYTES);
    if (!means || open_pool(&config, &lock, &waits, &counters, &small) != SPW_OK)
        abort();
    (void)pthread_barrier_init(&start, NULL, 2);
    for (unsigned i = 0; i < 2; i++) {
        workers[i].small = small;
        workers[i].group = &group;
        workers[i].start = &start;
        workers[i].chunks = chunks;
        workers[i].seed = seed + i;
        workers[i].means = means + i * chunks;
        if (pthread_create(&threads[i], NULL, work_small, &workers[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
    const double median = quantile(means, 2 * chunks, 0.5);
    free(means);
    spw__small_destroy(small);
    spw__range_destroy(config.range);
    (void)pthread_barrier_destroy(&start);
    spw__mutex_finish(&lock);
    spw__waitset_finish(&waits);
    return median;
}
