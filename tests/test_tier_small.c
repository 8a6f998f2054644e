/* Pools with a small limit: their blocks are small objects, and every promise of a tier holds for them. */
#include <pthread.h>

#include "tests/tier_fixture.h"

static const spw_spec_pool two[] = {{16 * MIB, 0}, {8 * MIB, 64 * KIB}};

static void open_small(spw_tier which, uint64_t piece_bytes)
{
    const struct spw__tier_config config = {.tier = which, .pools = two, .n_pools = 2, .piece_bytes = piece_bytes,
                                            .device = device, .meta = &meta, .waits = &waits, .counters = &counters,
                                            .first_counter = 10};
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
}

/* A block, which may cost a little more than asked for. */
static struct spw__block get(uint64_t bytes)
{
    struct spw__block block;
    ck_assert_int_eq(spw__tier_alloc(&tier, &root, bytes, &block), SPW_OK);
    ck_assert_uint_ge(block.bytes, spw__tier_charge(&tier, bytes));
    return block;
}

static bool is_small(uint64_t bytes)
{
    const struct spw__block block = get(bytes);
    give(block);
    return block.slot != 0;
}

static void drained(void)
{
    (void)spw__tier_drain(&tier);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 16 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[1]), 8 * MIB);
}

START_TEST(blocks_up_to_the_limit_are_small_objects_of_the_limited_pool)
{
    open_small(SPW_TIER_HOST, 0);
    ck_assert(!is_small(1)); /* what lets the pool grow its first memory */
    ck_assert(is_small(1));
    ck_assert(is_small(64 * KIB));
    ck_assert(!is_small(64 * KIB + 1));
    ck_assert_uint_eq(pool_for(64), 1);
    struct spw__block block = get(40 * KIB);
    ck_assert_uint_eq(block.address % 4096, 0);
    memset((void *)(uintptr_t)block.address, 0x5a, block.bytes);
    give(block);
    drained();
    ck_assert_uint_eq(counted(SPW__TIER_ALLOCS), 6);
    ck_assert_uint_eq(counted(SPW__TIER_FALLBACKS), 0);
}
END_TEST

START_TEST(pools_that_are_small_themselves_and_address_order_have_no_caches)
{
    static const spw_spec_pool tiny[] = {{4 * MIB - 64, 64 * KIB}, {64 * KIB, 1024}, {8 * MIB, 65 * KIB}};
    struct spw__tier_config config = {.tier = SPW_TIER_HOST, .pools = tiny, .n_pools = 3, .meta = &meta,
                                      .waits = &waits, .counters = &counters};
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_ptr_null(tier.pools[0].small);
    ck_assert_ptr_nonnull(tier.pools[1].small);
    ck_assert_ptr_null(tier.pools[2].small);
    spw__tier_finish(&tier);
    config.address_ordered = true;
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_uint_eq(tier.n_cached, 0);
}
END_TEST

START_TEST(a_block_that_may_be_split_is_no_small_object_and_a_small_one_is_not_split)
{
    struct spw__block tail;
    open_small(SPW_TIER_HOST, 4096);
    give(get(64));
    struct spw__block block = get(4096);
    ck_assert_uint_ne(block.slot, 0);
    ck_assert_int_eq(spw__tier_split(&tier, &block, 64, &tail), SPW_EINVAL);
    ck_assert(!spw__block_is(&tail));
    give(block);
    block = get(4097);
    ck_assert_uint_eq(block.slot, 0);
    ck_assert_uint_eq(block.pool, 1);
    ck_assert_int_eq(spw__tier_split(&tier, &block, 4096, &tail), SPW_OK);
    give(tail);
    give(block);
    drained();
}
END_TEST

START_TEST(what_no_slab_can_serve_is_served_by_the_range_before_another_pool_is_asked)
{
    struct spw__block all[256], block;
    unsigned n = 0;
    open_small(SPW_TIER_HOST, 0);
    for (; n < 127; n++)
        all[n] = get(64 * KIB);
    /* 65 grains are left in one hole; a slot of that class has 66. */
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, 478 * 64, 128, true, &all[n++]), SPW_OK);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, 481 * 64, 128, true, &all[n++]), SPW_OK);
    block = get(65 * 64);
    ck_assert_uint_eq(block.pool, 1);
    ck_assert_uint_eq(block.slot, 0);
    ck_assert_uint_eq(counted(SPW__TIER_FALLBACKS), 0);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[1]), 0);
    ck_assert_uint_eq(pool_for(64), 0);
    ck_assert_uint_eq(counted(SPW__TIER_FALLBACKS), 1);
    give(block);
    while (n > 0)
        give(all[--n]);
    drained();
}
END_TEST

static pthread_barrier_t barrier;

static void *sit_on_cache(void *arg)
{
    struct spw__block blocks[4];
    (void)arg;
    give(get(64)); /* grows the pool */
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = get(60 * KIB);
    for (unsigned i = 0; i < 4; i++)
        give(blocks[i]);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return NULL;
}

START_TEST(what_threads_cache_is_taken_back_before_there_is_no_room)
{
    pthread_t thread;
    struct spw__block block;
    open_small(SPW_TIER_HOST, 0);
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, sit_on_cache, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    const uint64_t cached = committed();
    ck_assert_uint_ge(cached, 4 * 60 * KIB);
    /* The budget is the tier's: another pool's request gets what the cache held. */
    atomic_store(&root.gates[SPW_TIER_HOST].budget, 16 * MIB);
    block = get(16 * MIB);
    ck_assert_uint_eq(committed(), 16 * MIB);
    ck_assert_uint_eq(counted(SPW__TIER_FAIL_BUDGET), 0);
    refuses(64, SPW_ENOMEM);
    ck_assert_uint_eq(counted(SPW__TIER_FAIL_BUDGET), 1);
    give(block);
    (void)pthread_barrier_wait(&barrier);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    drained();
}
END_TEST

START_TEST(an_attempt_under_the_wait_lock_finds_what_lies_in_caches)
{
    struct spw__block blocks[128], block;
    unsigned n = 0;
    open_small(SPW_TIER_HOST, 0);
    for (; n < 128; n++)
        blocks[n] = get(64 * KIB);
    give(blocks[--n]);
    ck_assert_uint_eq(committed(), 8 * MIB);
    spw__mutex_lock(&waits.lock);
    ck_assert_int_eq(spw__tier_try(&tier, &root, 50 * KIB, &block), SPW_OK); /* not the class that is cached */
    spw__mutex_unlock(&waits.lock);
    ck_assert_uint_eq(block.pool, 1);
    give(block);
    while (n > 0)
        give(blocks[--n]);
    drained();
}
END_TEST

START_TEST(a_double_free_changes_nothing)
{
    open_small(SPW_TIER_HOST, 0);
    struct spw__block plain = get(64 * KIB + 1), copy = plain;
    give(get(64));
    give(plain);
    ck_assert_int_eq(spw__tier_free(&tier, &copy), SPW_EBADHANDLE);
    ck_assert(spw__block_is(&copy));
    struct spw__block object = get(1000);
    copy = object;
    give(object);
    const uint64_t before = committed();
    ck_assert_int_eq(spw__tier_free(&tier, &copy), SPW_EBADHANDLE);
    ck_assert_uint_eq(committed(), before);
    drained();
}
END_TEST

START_TEST(fault_META_ALLOC_anywhere_leaves_no_pool_and_no_charge)
{
    const struct spw__tier_config config = {.tier = SPW_TIER_HOST, .pools = two, .n_pools = 2, .meta = &meta,
                                            .waits = &waits, .counters = &counters};
    long nth = 1;
    bool reached = true;
    for (; reached; nth++) {
        struct spw__block block;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = spw__tier_init(&tier, &config);
        ck_assert(rc == SPW_OK || rc == SPW_ENOMETA);
        for (unsigned i = 0; rc == SPW_OK && i < 3; i++)
            if (spw__tier_alloc(&tier, &root, 100, &block) == SPW_OK)
                give(block);
        reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        spw__tier_finish(&tier);
        ck_assert_uint_eq(atomic_load(&root.gates[SPW_TIER_HOST].committed), 0);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    }
    ck_assert_int_gt(nth, 8);
}
END_TEST

START_TEST(device_objects_are_device_addresses_in_grains_of_256)
{
    spw__device_close(device);
    const struct spw__device_config config = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = 32 * MIB, .log = &no_log, .meta = &meta};
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_OK);
    open_small(SPW_TIER_DEVICE, 0);
    struct spw__block block = get(300);
    ck_assert_uint_ne(block.slot, 0);
    ck_assert_uint_eq(block.bytes, 512);
    ck_assert_uint_eq(block.address % 256, 0);
    give(block);
    drained();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_small");
    TCase *host = tcase_create("host"), *with_device = tcase_create("with a device");
    tcase_add_checked_fixture(host, setup, teardown);
    tcase_add_test(host, blocks_up_to_the_limit_are_small_objects_of_the_limited_pool);
    tcase_add_test(host, pools_that_are_small_themselves_and_address_order_have_no_caches);
    tcase_add_test(host, a_block_that_may_be_split_is_no_small_object_and_a_small_one_is_not_split);
    tcase_add_test(host, what_no_slab_can_serve_is_served_by_the_range_before_another_pool_is_asked);
    tcase_add_test(host, what_threads_cache_is_taken_back_before_there_is_no_room);
    tcase_add_test(host, an_attempt_under_the_wait_lock_finds_what_lies_in_caches);
    tcase_add_test(host, a_double_free_changes_nothing);
    tcase_add_test(host, fault_META_ALLOC_anywhere_leaves_no_pool_and_no_charge);
    tcase_add_checked_fixture(with_device, setup_device, teardown);
    tcase_add_test(with_device, device_objects_are_device_addresses_in_grains_of_256);
    suite_add_tcase(suite, host);
    suite_add_tcase(suite, with_device);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
