/* How full ranges get: objects of one distribution are allocated until a request fails; the bytes then live, over all
 * bytes, are noted; random objects are freed until the request fits; and so on. Neighbour: alloc_bench.h. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <spillway/error.h>

#include "alloc_bench.h"
#include "pool/range.h"

#define GRAIN 64u
#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)
#define POOLS_MAX 8u
#define SAMPLES 1000000u

struct object {
    uint64_t bytes;
    uint32_t node;
    uint32_t pool;
};

struct stage {
    enum use use;
    struct random random;
    unsigned n_pools;
    struct spw__range *pools[POOLS_MAX];
    double limits[POOLS_MAX];
    struct object *objects;
    size_t n_objects, room;
    uint64_t live_bytes, all_bytes;
};

uint64_t use_region_bytes(enum use use)
{
    return (uint64_t)(use == USE_LOGNORMAL ? 64 * GIB : use == USE_UNIFORM ? 8 * GIB : 4 * GIB);
}

/* The lognormal's bounds are three standard deviations from its median of 1 MiB; what falls outside is drawn again. */
static double draw(enum use use, struct random *random)
{
    double bytes;
    switch (use) {
    case USE_LOGNORMAL:
        do
            bytes = MIB * exp(log(256) / 3 * random_normal(random));
        while (bytes < 4 * KIB || bytes > 256 * MIB);
        return bytes;
    case USE_POW2_64:
        return (double)(UINT64_C(4096) << random_bits(random) % 11) + 64;
    case USE_UNIFORM:
        return MIB + 63 * MIB * random_unit(random);
    default:
        return random_log_uniform(random, 64, 64 * KIB);
    }
}

/* Pools for classes of sizes. Each has three quarters of the share that its class has of all bytes, and the last one,
 * which takes what overflows, the rest: shares fluctuate, and only upward is there room elsewhere. */
static void make_pools(struct stage *stage)
{
    static const double limits[POOLS_MAX] = {4 * MIB,  8 * MIB,  16 * MIB, 24 * MIB,
                                             32 * MIB, 48 * MIB, 64 * MIB, INFINITY};
    const double region = (double)use_region_bytes(stage->use);
    double bytes_of[POOLS_MAX] = {0}, all = 0, rest = region;
    struct random random = {17};
    for (unsigned i = 0; i < SAMPLES && stage->n_pools > 1; i++) {
        const double bytes = draw(stage->use, &random);
        unsigned pool = 0;
        while (bytes > limits[pool])
            pool++;
        bytes_of[pool] += bytes;
        all += bytes;
    }
    for (unsigned i = 0; i < stage->n_pools; i++) {
        const bool last = i + 1 == stage->n_pools;
        const double size = last ? rest : 0.75 * region * bytes_of[i] / all;
        rest -= size;
        stage->limits[i] = last ? INFINITY : limits[i];
        if (spw__range_create((uint64_t)size, GRAIN, false, NULL, &stage->pools[i]) != SPW_OK)
            abort();
        stage->all_bytes += spw__range_size(stage->pools[i]);
    }
}

/* In the smallest pool whose limit holds it, then upward. */
static int try_alloc(struct stage *stage, uint64_t bytes)
{
    uint64_t offset;
    struct object object = {bytes, 0, 0};
    while ((double)bytes > stage->limits[object.pool])
        object.pool++;
    while (spw__range_alloc(stage->pools[object.pool], bytes, 0, &object.node, &offset) != SPW_OK)
        if (++object.pool == stage->n_pools)
            return -1;
    if (stage->n_objects == stage->room) {
        stage->room = stage->room ? stage->room * 2 : 1024;
        stage->objects = realloc(stage->objects, stage->room * sizeof *stage->objects);
        if (!stage->objects)
            abort();
    }
    stage->objects[stage->n_objects++] = object;
    stage->live_bytes += bytes;
    return 0;
}

static void free_one(struct stage *stage)
{
    const size_t victim = (size_t)(random_unit(&stage->random) * (double)stage->n_objects);
    const struct object object = stage->objects[victim];
    stage->objects[victim] = stage->objects[--stage->n_objects];
    stage->live_bytes -= object.bytes;
    if (spw__range_free(stage->pools[object.pool], object.node) != SPW_OK)
        abort();
}

double use_of(enum use use, unsigned pools, unsigned failures)
{
    struct stage stage = {.use = use, .random = {use + 1}, .n_pools = pools};
    double sum = 0;
    unsigned counted = 0;
    make_pools(&stage);
    /* The first third only brings the ranges from empty to their steady state. */
    for (unsigned failed = 0; failed < failures;) {
        const uint64_t bytes = (uint64_t)draw(use, &stage.random);
        if (try_alloc(&stage, bytes) == 0)
            continue;
        if (++failed > failures / 3) {
            sum += (double)stage.live_bytes / (double)stage.all_bytes;
            counted++;
        }
        do
            free_one(&stage);
        while (try_alloc(&stage, bytes) != 0);
    }
    for (unsigned i = 0; i < pools; i++)
        spw__range_destroy(stage.pools[i]);
    free(stage.objects);
    return sum / counted;
}
