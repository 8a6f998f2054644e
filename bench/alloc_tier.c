/* Raw memory on two threads: a tier with one pool of address space, as a program gets it. Neighbour: alloc_bench.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <spillway/error.h>

#include "alloc_bench.h"
#include "pool/tier.h"

#define ALIGN 256u /* what raw memory on a device is aligned to at least */

struct stage {
    struct spw__meta meta;
    struct spw__waitset waits;
    struct spw__counters counters;
    struct spw__group group;
    struct spw__log log;
    struct spw__device *device;
    struct spw__tier tier;
};

struct worker {
    struct stage *stage;
    struct load load;
    struct spw__block *live;
    pthread_barrier_t *start;
    size_t warm_up, pairs;
    double mean_ns;
};

static void check(int rc)
{
    if (rc == SPW_OK)
        return;
    (void)fprintf(stderr, "bench_alloc: %s\n", spw_strerror(rc));
    exit(1);
}

/* The simulated device's memory is address space, and nobody touches what is behind it. */
static void open_stage(struct stage *stage, uint64_t bytes)
{
    const spw_spec_pool pool = {.size_bytes = bytes};
    const struct spw__device_config device = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = bytes, .log = &stage->log, .meta = &stage->meta};
    spw__meta_init(&stage->meta, UINT64_MAX);
    spw__waitset_init(&stage->waits, NULL);
    spw__gate_init(&stage->group.gates[SPW_TIER_DEVICE], bytes);
    check(spw__device_open(&device, &stage->device));
    const struct spw__tier_config tier = {.tier = SPW_TIER_DEVICE, .pools = &pool, .n_pools = 1,
                                          .device = stage->device, .log = &stage->log, .meta = &stage->meta,
                                          .waits = &stage->waits, .counters = &stage->counters};
    check(spw__tier_init(&stage->tier, &tier));
}

static void close_stage(struct stage *stage)
{
    spw__tier_finish(&stage->tier);
    spw__device_close(stage->device);
    spw__waitset_finish(&stage->waits);
    spw__meta_finish(&stage->meta);
}

static void take(struct stage *stage, uint32_t bytes, struct spw__block *out)
{
    check(spw__tier_alloc_aligned(&stage->tier, &stage->group, bytes, ALIGN, SPW__GROW_FREELY, out));
}

static void play(struct worker *worker, size_t pairs)
{
    const struct load *load = &worker->load;
    for (size_t i = 0, at = 0; i < pairs; i++, at = at + 1 == load->length ? 0 : at + 1) {
        struct spw__block *block = &worker->live[load->victims[at]];
        check(spw__tier_free(&worker->stage->tier, block));
        take(worker->stage, load->sizes[at], block);
    }
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (size_t i = 0; i < worker->load.live; i++)
        take(worker->stage, worker->load.sizes[i], &worker->live[i]);
    play(worker, worker->warm_up);
    (void)pthread_barrier_wait(worker->start);
    const double start = now_ns();
    play(worker, worker->pairs);
    worker->mean_ns = (now_ns() - start) / (double)worker->pairs;
    (void)pthread_barrier_wait(worker->start);
    for (size_t i = 0; i < worker->load.live; i++)
        check(spw__tier_free(&worker->stage->tier, &worker->live[i]));
    return NULL;
}

double pair_ns_2t(uint64_t region, size_t live, size_t warm_up, size_t pairs, uint64_t seed)
{
    static struct stage stage;
    struct worker workers[2];
    pthread_barrier_t start;
    pthread_t threads[2];
    open_stage(&stage, region);
    (void)pthread_barrier_init(&start, NULL, 2);
    for (unsigned i = 0; i < 2; i++) {
        workers[i] = (struct worker){.stage = &stage, .start = &start, .warm_up = warm_up, .pairs = pairs};
        load_make(&workers[i].load, live, seed + i);
        workers[i].live = malloc(live * sizeof *workers[i].live);
        if (!workers[i].live || pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
        free(workers[i].live);
        load_free(&workers[i].load);
    }
    (void)pthread_barrier_destroy(&start);
    close_stage(&stage);
    return (workers[0].mean_ns + workers[1].mean_ns) / 2;
}
