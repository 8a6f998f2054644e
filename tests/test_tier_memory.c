/* Where a tier's memory comes from: growth of host pools, device memory, registration, and all or nothing at init. */
#include "tests/tier_fixture.h"

#include <pthread.h>

START_TEST(a_pool_grows_when_nothing_fits_and_counts_as_free_before)
{
    const spw_spec_pool pools[] = {{96 * MIB, 0}};
    struct spw__block block;
    open_host(pools, 1);
    ck_assert_uint_eq(tier.pools[0].grown, 0);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 96 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 96 * MIB);
    ck_assert_int_eq(spw__tier_try(&tier, &root, MIB, &block), SPW_ENOMEM); /* a try lets nothing grow */
    ck_assert_uint_eq(committed(), 0);
    const struct spw__block first = take(8 * MIB), second = take(24 * MIB);
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB);
    give(first);
    ck_assert_int_eq(spw__tier_try(&tier, &root, 8 * MIB, &block), SPW_OK); /* old memory before new */
    ck_assert_uint_eq(block.address, tier.pools[0].base);
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB);
    ck_assert(spw__tier_grow_for(&tier, 40 * MIB));
    ck_assert_uint_eq(tier.pools[0].grown, 96 * MIB);
    give(block);
    ck_assert_int_eq(spw__tier_try(&tier, &root, 64 * MIB, &block), SPW_OK);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 8 * MIB);
    give(block);
    give(second);
}
END_TEST

START_TEST(no_pool_grows_for_what_fits_below_the_last_allocation)
{
    const spw_spec_pool pools[] = {{96 * MIB, 0}, {96 * MIB, 0}};
    open_host(pools, 2);
    const struct spw__block first = take(8 * MIB), second = take(24 * MIB);
    give(first);
    ck_assert(spw__tier_grow_for(&tier, 8 * MIB));
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB);
    ck_assert(spw__tier_grow_for(&tier, 9 * MIB));
    ck_assert_uint_eq(tier.pools[0].grown, 96 * MIB);
    ck_assert_uint_eq(tier.pools[1].grown, 0);
    ck_assert(!spw__tier_grow_for(&tier, 97 * MIB));
    give(second);
}
END_TEST

START_TEST(alone_a_request_lets_a_pool_grow_but_waits_for_no_other_that_does)
{
    const spw_spec_pool pools[] = {{96 * MIB, 0}};
    struct spw__block block;
    open_host(pools, 1);
    tier.pools[0].growing = true; /* as while another thread is at it */
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, MIB, 0, SPW__GROW_ALONE, &block), SPW_ENOMEM);
    ck_assert_uint_eq(committed(), 0);
    tier.pools[0].growing = false;
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, MIB, 0, SPW__GROW_ALONE, &block), SPW_OK);
    give(block);
}
END_TEST

START_TEST(memory_not_grown_yet_tells_fragmented_from_not_enough)
{
    const spw_spec_pool pools[] = {{64 * MIB, 0}};
    open_host(pools, 1);
    const struct spw__block first = take(16 * MIB), second = take(16 * MIB);
    give(first);
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 32 * MIB);
    refuses(40 * MIB, SPW_EFRAG);
    refuses(48 * MIB + 1, SPW_ENOMEM);
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB); /* growing would have been in vain */
    give(second);
}
END_TEST

static void *take_a_quarter(void *arg)
{
    struct spw__block *blocks = arg;
    for (unsigned i = 0; i < 24; i++) {
        blocks[i] = take(MIB);
        *(volatile char *)(uintptr_t)blocks[i].address = 1;
    }
    return NULL;
}

START_TEST(threads_that_find_no_hole_wait_for_the_one_that_grows)
{
    const spw_spec_pool pools[] = {{96 * MIB, 0}};
    struct spw__block blocks[4][24];
    pthread_t threads[4];
    open_host(pools, 1);
    for (unsigned i = 0; i < 4; i++) /* together they need every byte: none may be refused meanwhile */
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_a_quarter, blocks[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    refuses(1, SPW_ENOMEM);
    for (unsigned i = 0; i < 4 * 24; i++)
        give(blocks[i / 24][i % 24]);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 96 * MIB);
}
END_TEST

START_TEST(fault_HOST_POPULATE_is_ENOMEM_and_the_pool_as_it_was)
{
    const spw_spec_pool pools[] = {{64 * MIB, 0}};
    open_host(pools, 1);
    const struct spw__block first = take(32 * MIB);
    spw__fault_arm(SPW__FAULT_HOST_POPULATE, 1, 0, ENOMEM);
    refuses(MIB, SPW_ENOMEM);
    spw__tier_grow_for(&tier, MIB);
    ck_assert_uint_eq(tier.pools[0].grown, 32 * MIB);
    spw__fault_disarm(SPW__FAULT_HOST_POPULATE);
    ck_assert_uint_eq(pool_for(32 * MIB), 0);
    give(first);
}
END_TEST

static const spw_spec_pool three[] = {{4 * MIB, 0}, {4 * MIB, MIB}, {8 * MIB, 64 * KIB}};

static void init_fails_at_every(enum spw__fault_point point, spw_tier which, int code, unsigned expected)
{
    const uint64_t before = atomic_load(&meta.gate.committed);
    unsigned n = 0;
    for (;; n++) {
        spw__fault_arm(point, n + 1, 1, ENOMEM);
        const int rc = init(which, three, 3);
        spw__fault_disarm(point);
        if (rc == SPW_OK)
            break;
        ck_assert_int_eq(rc, code);
        ck_assert_int_eq(spw_error_detail()->code, code);
        ck_assert(!tier.present);
        ck_assert_uint_eq(tier.n_pools, 0);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), before);
    }
    ck_assert_uint_ge(n, expected);
    struct spw__block block = take(4 * MIB); /* the device holds exactly three: none was left behind */
    spw__tier_free(&tier, &block);
}

START_TEST(fault_HOST_MAP_at_any_pool_leaves_no_pool)
{
    init_fails_at_every(SPW__FAULT_HOST_MAP, SPW_TIER_HOST, SPW_ENOMEM, 3);
}
END_TEST

START_TEST(fault_META_ALLOC_anywhere_leaves_no_pool)
{
    init_fails_at_every(SPW__FAULT_META_ALLOC, SPW_TIER_HOST, SPW_ENOMETA, 5);
}
END_TEST

START_TEST(fault_DEVICE_ALLOC_at_any_pool_leaves_no_pool)
{
    init_fails_at_every(SPW__FAULT_DEVICE_ALLOC, SPW_TIER_DEVICE, SPW_ENOMEM, 3);
}
END_TEST

START_TEST(fault_HOST_POPULATE_of_registered_memory_leaves_no_pool)
{
    init_fails_at_every(SPW__FAULT_HOST_POPULATE, SPW_TIER_PINNED_HOST, SPW_ENOMEM, 3);
}
END_TEST

START_TEST(P10_a_device_that_is_too_small_leaves_no_pool)
{
    const spw_spec_pool large[] = {{8 * MIB, 0}, {8 * MIB + 256, MIB}};
    ck_assert_int_eq(init(SPW_TIER_DEVICE, large, 2), SPW_ENOMEM);
    ck_assert_int_eq(init(SPW_TIER_DEVICE, three, 3), SPW_OK);
}
END_TEST

START_TEST(device_blocks_are_grains_of_256_and_device_addresses)
{
    unsigned char in[300], out[300];
    ck_assert_int_eq(init(SPW_TIER_DEVICE, three, 3), SPW_OK);
    const struct spw__block block = take(300), large = take(2 * MIB);
    memset(in, 0x77, sizeof in);
    ck_assert_uint_eq(block.bytes, 512);
    ck_assert_uint_eq(block.address % 256, 0);
    ck_assert_uint_eq(block.pool, 2);
    ck_assert_uint_eq(large.pool, 0);
    ck_assert_uint_eq(large.address % 4096, 0);
    ck_assert_int_eq(spw__device_copy_to(device, NULL, block.address, in, sizeof in), SPW_OK);
    ck_assert_int_eq(spw__device_copy_from(device, NULL, out, block.address, sizeof out), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(device, NULL), SPW_OK);
    ck_assert_mem_eq(in, out, sizeof in);
    give(block);
    give(large);
}
END_TEST

START_TEST(pinned_host_works_with_a_device_and_without)
{
    for (unsigned round = 0; round < 2; round++) {
        ck_assert_int_eq(init(SPW_TIER_PINNED_HOST, three, 3), SPW_OK);
        const struct spw__block block = take(MIB);
        memset((void *)(uintptr_t)block.address, 1, block.bytes);
        give(block);
        spw__tier_finish(&tier);
        spw__device_close(device);
        device = NULL;
    }
}
END_TEST

START_TEST(a_driver_that_refuses_to_register_is_done_without)
{
    uint64_t address;
    ck_assert_int_eq(spw__device_alloc(device, 256, &address), SPW_OK);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, ENOTRECOVERABLE); /* from now on every call fails */
    ck_assert_int_eq(spw__device_copy_to(device, NULL, address, &address, 8), SPW_EDEVICE);
    ck_assert_int_eq(init(SPW_TIER_PINNED_HOST, three, 3), SPW_OK);
    ck_assert(!tier.pools[0].registered);
    const struct spw__block block = take(MIB);
    memset((void *)(uintptr_t)block.address, 1, block.bytes);
    give(block);
    (void)spw__device_free(device, address);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_memory");
    TCase *tcase = tcase_create("host");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_pool_grows_when_nothing_fits_and_counts_as_free_before);
    tcase_add_test(tcase, no_pool_grows_for_what_fits_below_the_last_allocation);
    tcase_add_test(tcase, alone_a_request_lets_a_pool_grow_but_waits_for_no_other_that_does);
    tcase_add_test(tcase, memory_not_grown_yet_tells_fragmented_from_not_enough);
    tcase_add_test(tcase, threads_that_find_no_hole_wait_for_the_one_that_grows);
    tcase_add_test(tcase, fault_HOST_POPULATE_is_ENOMEM_and_the_pool_as_it_was);
    tcase_add_test(tcase, fault_HOST_MAP_at_any_pool_leaves_no_pool);
    tcase_add_test(tcase, fault_META_ALLOC_anywhere_leaves_no_pool);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("with a device");
    tcase_add_checked_fixture(tcase, setup_device, teardown);
    tcase_add_test(tcase, fault_DEVICE_ALLOC_at_any_pool_leaves_no_pool);
    tcase_add_test(tcase, fault_HOST_POPULATE_of_registered_memory_leaves_no_pool);
    tcase_add_test(tcase, P10_a_device_that_is_too_small_leaves_no_pool);
    tcase_add_test(tcase, device_blocks_are_grains_of_256_and_device_addresses);
    tcase_add_test(tcase, pinned_host_works_with_a_device_and_without);
    tcase_add_test(tcase, a_driver_that_refuses_to_register_is_done_without);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
