/* What the tests of small objects share: one pool without memory behind it, and what every test ends with. Each runs
 * in a process of its own (Check forks), so fault points stay where they were armed. */
#ifndef SPW_TESTS_SMALL_FIXTURE_H
#define SPW_TESTS_SMALL_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/small.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static struct spw__meta meta;
static struct spw__waitset waits;
static struct spw__counters counters;
static struct spw__group root;
static struct spw__mutex lock;
static struct spw__range *range;
static struct spw__small *small;
static struct spw__small_usage usage; /* of the last check */
static uint64_t pool_size;

static inline int try_open(uint64_t size, uint32_t granularity)
{
    pool_size = size;
    int rc = spw__range_create(size, granularity, false, &meta, &range);
    const struct spw__small_config config = {
        .range = range, .lock = &lock, .size = size, .largest_bytes = SPW__SMALL_LIMIT, .granularity = granularity,
        .tier = SPW_TIER_HOST, .meta = &meta, .waits = &waits, .counters = &counters, .count_allocs = 0,
        .count_bytes = 1};
    if (rc == SPW_OK)
        rc = spw__small_create(&config, &small);
    return rc;
}

static inline void close_pool(void)
{
    spw__small_destroy(small);
    spw__range_destroy(range);
    small = NULL;
    range = NULL;
}

static inline void setup(void)
{
    spw__meta_init(&meta, UINT64_MAX / 2);
    spw__waitset_init(&waits, NULL);
    spw__mutex_init(&lock, SPW__RANK_POOL);
    spw__gate_init(&root.gates[SPW_TIER_HOST], UINT64_MAX / 2);
    ck_assert_int_eq(try_open(16 * MIB, 64), SPW_OK);
}

static inline uint64_t committed(void)
{
    return atomic_load(&root.gates[SPW_TIER_HOST].committed);
}

/* The charge is that of what is live and what is cached, at any time when nobody works. */
static inline void check(void)
{
    ck_assert(spw__small_check(small, &usage));
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(committed(), usage.live_bytes + usage.cached_bytes);
    ck_assert_uint_eq(spw__range_total_free(range) + usage.slab_bytes, pool_size);
}

/* What every test ends with: everything is back. */
static inline void teardown(void)
{
    if (small) {
        (void)spw__small_drain(small);
        check();
        ck_assert_uint_eq(committed(), 0);
        ck_assert_uint_eq(spw__range_largest_free(range), pool_size);
    }
    close_pool();
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    spw__meta_finish(&meta);
    spw__waitset_finish(&waits);
}

static inline struct spw__small_object take(uint64_t bytes)
{
    struct spw__small_object object;
    ck_assert_int_eq(spw__small_alloc(small, &root, bytes, true, &object), SPW_OK);
    ck_assert_uint_ge(object.bytes, bytes);
    return object;
}

/* Returns whether the object went back at once. */
static inline bool give(struct spw__small_object object)
{
    bool back;
    ck_assert_int_eq(spw__small_free(small, &root, &object, &back), SPW_OK);
    return back;
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* From 64 bytes to 64 KiB, every doubling as often. */
static inline uint64_t random_size(uint64_t *state)
{
    const double share = (double)(next_random(state) >> 11) / 9007199254740992.0;
    return (uint64_t)(64 * exp2(10 * share));
}

static inline pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, arg), 0);
    return thread;
}

#endif
