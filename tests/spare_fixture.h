/* What the tests of spare blocks share: a tier with one large pool of address space, and what every test ends with. */
#ifndef SPW_TESTS_SPARE_FIXTURE_H
#define SPW_TESTS_SPARE_FIXTURE_H

#include <math.h>
#include <pthread.h>

#include "tests/tier_fixture.h"

#define GIB (1024 * MIB)
#define POOL_BYTES (8 * GIB)
#define ALIGN 256u

static struct spw__spare_usage usage; /* of the last check */

static inline void setup_large(void)
{
    const spw_spec_pool pool = {.size_bytes = POOL_BYTES};
    setup();
    atomic_store(&meta.gate.budget, 64 * MIB);
    const struct spw__device_config config = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = POOL_BYTES, .log = &no_log, .meta = &meta};
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_OK);
    const struct spw__tier_config tier_config = {.tier = SPW_TIER_DEVICE, .pools = &pool, .n_pools = 1,
                                                 .device = device, .meta = &meta, .waits = &waits,
                                                 .counters = &counters, .first_counter = 10};
    ck_assert_int_eq(spw__tier_init(&tier, &tier_config), SPW_OK);
    ck_assert_ptr_nonnull(tier.pools[0].spare);
}

static inline void check(void)
{
    ck_assert(spw__spare_check(tier.pools[0].spare, &usage));
    ck_assert(spw__range_check(tier.pools[0].range));
}

/* What every test ends with: all is back. */
static inline void teardown_large(void)
{
    if (tier.present) {
        (void)spw__tier_drain(&tier);
        check();
        ck_assert_uint_eq(usage.bytes, 0);
        ck_assert_uint_eq(spw__tier_largest_free(&tier), POOL_BYTES);
    }
    teardown();
}

static inline struct spw__block raw_aligned(uint64_t bytes, uint64_t align)
{
    struct spw__block block;
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, bytes, align, SPW__GROW_FREELY, &block), SPW_OK);
    ck_assert_uint_ge(block.bytes, spw__tier_charge(&tier, bytes));
    ck_assert_uint_le(block.bytes, spw__tier_charge(&tier, bytes) * 17 / 16);
    ck_assert_uint_eq(block.address % align, 0);
    ck_assert_uint_eq(block.slot, 0);
    return block;
}

static inline struct spw__block raw(uint64_t bytes)
{
    return raw_aligned(bytes, ALIGN);
}

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* From 256 bytes to 4 MiB, every doubling as often. */
static inline uint64_t random_size(uint64_t *state)
{
    return (uint64_t)(256 * exp2(14 * (double)(next_random(state) >> 11) / 9007199254740992.0));
}

#endif
