/* What the tiers' tests share: one tier under one root group, a simulated device where asked for, and what every test
 * ends with. Each test runs in a process of its own (Check forks), so fault points stay where they were armed. */
#ifndef SPW_TESTS_TIER_FIXTURE_H
#define SPW_TESTS_TIER_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/tier.h"
#include "tests/driver_fixture.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static struct spw__meta meta;
static struct spw__waitset waits;
static struct spw__counters counters;
static struct spw__group root;
static struct spw__device *device;
static struct spw__tier tier;
static bool maps; /* device memory as it is needed */

static inline void quiet(void *arg, int level, const char *message)
{
    (void)arg;
    (void)level;
    (void)message;
}

static const struct spw__log no_log = {.fn = quiet};
static const struct spw__log *log_to = &no_log; /* of the tier */

static inline void setup(void)
{
    spw__meta_init(&meta, 4 * MIB);
    spw__waitset_init(&waits, NULL);
    for (int i = 0; i < SPW_TIER_META; i++)
        spw__gate_init(&root.gates[i], UINT64_MAX / 2);
}

static inline void setup_device(void)
{
    setup();
    const struct spw__device_config config = {
        .kind = driver_kind(), .capacity_bytes = 16 * MIB, .log = &no_log, .meta = &meta};
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_OK);
}

/* What every test ends with: no byte committed, no metadata. */
static inline void teardown(void)
{
    for (int i = 0; i < SPW_TIER_META; i++)
        ck_assert_uint_eq(atomic_load(&root.gates[i].committed), 0);
    spw__tier_finish(&tier);
    spw__device_close(device);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    spw__meta_finish(&meta);
    spw__waitset_finish(&waits);
}

static inline int init(spw_tier which, const spw_spec_pool *pools, uint32_t n_pools)
{
    const struct spw__tier_config config = {.tier = which, .pools = pools, .n_pools = n_pools, .address_ordered = true,
                                            .device = device, .maps = maps, .log = log_to, .meta = &meta,
                                            .waits = &waits, .counters = &counters, .first_counter = 10};
    return spw__tier_init(&tier, &config);
}

static inline void open_host(const spw_spec_pool *pools, uint32_t n_pools)
{
    ck_assert_int_eq(init(SPW_TIER_HOST, pools, n_pools), SPW_OK);
    ck_assert(tier.present);
}

static inline uint64_t counted(enum spw__tier_counter which)
{
    return spw__counter_sum(&counters, 10 + which);
}

static inline uint64_t committed(void)
{
    return atomic_load(&root.gates[tier.tier].committed);
}

static inline struct spw__block take(uint64_t bytes)
{
    struct spw__block block;
    ck_assert_int_eq(spw__tier_alloc(&tier, &root, bytes, &block), SPW_OK);
    ck_assert_uint_eq(block.bytes, spw__tier_charge(&tier, bytes));
    ck_assert_int_eq(block.tier, tier.tier);
    return block;
}

static inline void give(struct spw__block block)
{
    spw__tier_free(&tier, &block);
    ck_assert(!spw__block_is(&block));
}

static inline void refuses(uint64_t bytes, int code)
{
    struct spw__block block = {.bytes = 77};
    const uint64_t before = committed();
    ck_assert_int_eq(spw__tier_alloc(&tier, &root, bytes, &block), code);
    ck_assert(!spw__block_is(&block));
    ck_assert_uint_eq(committed(), before);
}

static inline unsigned pool_for(uint64_t bytes)
{
    const struct spw__block block = take(bytes);
    give(block);
    return block.pool;
}

#endif
