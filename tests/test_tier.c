/* Tiers: routing, charges and codes. test_tier_memory.c has where the memory comes from. */
#include "tests/tier_fixture.h"

START_TEST(P11_a_request_up_to_the_limit_prefers_the_limited_pool)
{
    const spw_spec_pool pools[] = {{32 * MIB, 0}, {16 * MIB, 2097152}};
    open_host(pools, 2);
    ck_assert_uint_eq(pool_for(1), 1);
    ck_assert_uint_eq(pool_for(2097152), 1);
    ck_assert_uint_eq(pool_for(2097153), 0);
    ck_assert_uint_eq(counted(SPW__TIER_FALLBACKS), 0);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOCS), 3);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOC_BYTES), 64 + 2097152 + 2097152 + 4096);
}
END_TEST

START_TEST(P12_above_every_limit_only_the_unlimited_pool_is_asked)
{
    const spw_spec_pool pools[] = {{64 * MIB, 0}, {32 * MIB, 20971520}, {16 * MIB, 2097152}};
    open_host(pools, 3);
    ck_assert_uint_eq(pool_for(2097152), 2);
    ck_assert_uint_eq(pool_for(2097153), 1);
    ck_assert_uint_eq(pool_for(20971520), 1);
    ck_assert_uint_eq(pool_for(20971521), 0);
    ck_assert_uint_eq(tier.size, 112 * MIB);
    ck_assert_uint_eq(tier.largest_request, 64 * MIB);
}
END_TEST

START_TEST(P13_the_smallest_limit_wins_in_whatever_order_it_is_written)
{
    const spw_spec_pool sorted[] = {{2 * MIB, 64 * KIB}, {2 * MIB, 256 * KIB}, {2 * MIB, 1 * MIB}, {2 * MIB, 0}};
    static const unsigned orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};
    for (unsigned i = 0; i < 4; i++) {
        spw_spec_pool pools[4];
        for (unsigned j = 0; j < 4; j++)
            pools[j] = sorted[orders[i][j]];
        open_host(pools, 4);
        ck_assert_uint_eq(orders[i][pool_for(64 * KIB)], 0);
        ck_assert_uint_eq(orders[i][pool_for(64 * KIB + 1)], 1);
        ck_assert_uint_eq(orders[i][pool_for(256 * KIB + 1)], 2);
        ck_assert_uint_eq(orders[i][pool_for(MIB + 1)], 3);
        spw__tier_finish(&tier);
    }
}
END_TEST

START_TEST(P13_ties_go_in_the_order_written)
{
    const spw_spec_pool pools[] = {{2 * MIB, 0}, {MIB, MIB}, {MIB, MIB}, {2 * MIB, 0}};
    open_host(pools, 4);
    ck_assert_uint_eq(tier.route[0], 1);
    ck_assert_uint_eq(tier.route[1], 2);
    ck_assert_uint_eq(tier.route[2], 0);
    ck_assert_uint_eq(tier.route[3], 3);
    ck_assert_uint_eq(spw__tier_first_route(&tier, MIB), 0);
    ck_assert_uint_eq(spw__tier_first_route(&tier, MIB + 1), 2);
    const struct spw__block first = take(MIB), second = take(MIB);
    ck_assert_uint_eq(first.pool, 1);
    ck_assert_uint_eq(second.pool, 2);
    give(first);
    give(second);
}
END_TEST

START_TEST(P14_a_full_pool_falls_upward_and_is_counted_never_downward)
{
    const spw_spec_pool pools[] = {{2 * MIB, 0}, {MIB, 64 * KIB}, {MIB, 256 * KIB}};
    struct spw__block blocks[64];
    unsigned n = 0;
    open_host(pools, 3);
    for (; n < 64; n++) {
        blocks[n] = take(64 * KIB);
        ck_assert_uint_eq(blocks[n].pool, n < 16 ? 1 : n < 32 ? 2 : 0);
        ck_assert_uint_eq(counted(SPW__TIER_FALLBACKS), n < 16 ? 0 : n - 15);
    }
    refuses(1, SPW_ENOMEM);
    for (; n > 32; n--)
        give(blocks[n - 1]);
    const struct spw__block all = take(2 * MIB);
    for (; n > 0; n--)
        give(blocks[n - 1]);
    refuses(256 * KIB + 1, SPW_ENOMEM); /* both limited pools are empty, but it is above their limits */
    refuses(2 * MIB, SPW_ENOMEM);
    ck_assert_uint_eq(pool_for(256 * KIB), 2);
    ck_assert_uint_eq(pool_for(64 * KIB), 1);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 0);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[1]), MIB);
    ck_assert_uint_eq(committed(), 2 * MIB);
    give(all);
}
END_TEST

START_TEST(P9_where_every_pool_is_limited_more_is_too_big_not_out_of_memory)
{
    const spw_spec_pool pools[] = {{4 * MIB, MIB}, {4 * MIB, 512 * KIB}};
    open_host(pools, 2);
    refuses(MIB + 1, SPW_ETOOBIG);
    refuses(UINT64_MAX, SPW_ETOOBIG);
    ck_assert_uint_eq(spw__tier_first_route(&tier, MIB + 1), 2);
    ck_assert_uint_eq(pool_for(MIB), 0);
}
END_TEST

START_TEST(too_big_out_of_memory_and_fragmented_are_different_errors)
{
    const spw_spec_pool pools[] = {{4 * MIB, 0}};
    struct spw__block blocks[4];
    open_host(pools, 1);
    refuses(4 * MIB + 1, SPW_ETOOBIG);
    for (unsigned i = 0; i < 4; i++)
        blocks[i] = take(MIB);
    refuses(1, SPW_ENOMEM);
    give(blocks[0]);
    give(blocks[2]);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 2 * MIB);
    refuses(2 * MIB, SPW_EFRAG);
    ck_assert_uint_eq(counted(SPW__TIER_FAIL_FRAGMENTED), 1);
    refuses(2 * MIB + 1, SPW_ENOMEM);
    give(blocks[1]);
    ck_assert_uint_eq(pool_for(3 * MIB), 0);
    atomic_store(&root.gates[SPW_TIER_HOST].budget, 3 * MIB);
    refuses(3 * MIB + 1, SPW_ETOOBIG); /* above the whole budget */
    refuses(2 * MIB + 1, SPW_ENOMEM);  /* above what is left of it */
    ck_assert_uint_eq(counted(SPW__TIER_FAIL_BUDGET), 1);
    give(blocks[3]);
}
END_TEST

START_TEST(fragmented_is_reported_when_one_of_several_pools_is)
{
    const spw_spec_pool pools[] = {{4 * MIB, 2 * MIB}, {2 * MIB, 0}};
    struct spw__block blocks[6];
    open_host(pools, 2);
    for (unsigned i = 0; i < 6; i++)
        blocks[i] = take(MIB);
    refuses(2 * MIB, SPW_ENOMEM);
    give(blocks[0]);
    give(blocks[2]);
    refuses(2 * MIB, SPW_EFRAG); /* the first has room without a hole, the last is full */
    give(blocks[4]);
    give(blocks[5]);
    ck_assert_uint_eq(pool_for(2 * MIB), 1);
    give(blocks[1]);
    give(blocks[3]);
}
END_TEST

START_TEST(a_charge_is_whole_grains_and_from_32_KiB_on_whole_aligned_blocks)
{
    static const uint64_t sizes[][2] = {
        {1, 64}, {64, 64}, {65, 128}, {32767, 32768}, {32768, 32768}, {32769, 36864}, {100000, 102400}};
    const spw_spec_pool pools[] = {{4 * MIB + 100, 0}};
    open_host(pools, 1);
    ck_assert_uint_eq(tier.size, 4 * MIB + 64); /* a pool is whole grains, too */
    const struct spw__block shift = take(1);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct spw__block block = take(sizes[i][0]);
        ck_assert_uint_eq(block.bytes, sizes[i][1]);
        ck_assert_uint_eq(committed(), block.bytes + shift.bytes);
        ck_assert_uint_eq(block.address % (block.bytes >= 32768 ? 4096 : 64), 0);
        memset((void *)(uintptr_t)block.address, 0x5a, block.bytes);
        give(block);
    }
    give(shift);
}
END_TEST

START_TEST(a_split_shares_the_charge_and_frees_apart)
{
    const spw_spec_pool pools[] = {{MIB, 0}};
    struct spw__block tail, none;
    open_host(pools, 1);
    struct spw__block block = take(256 * KIB);
    const uint64_t address = block.address;
    ck_assert_int_eq(spw__tier_split(&tier, &block, 64 * KIB, &tail), SPW_OK);
    ck_assert_uint_eq(block.address, address);
    ck_assert_uint_eq(block.bytes, 64 * KIB);
    ck_assert_uint_eq(tail.address, address + 64 * KIB);
    ck_assert_uint_eq(tail.bytes, 192 * KIB);
    ck_assert_ptr_eq(tail.group, &root);
    ck_assert_uint_eq(committed(), 256 * KIB);
    ck_assert_int_eq(spw__tier_split(&tier, &block, 64 * KIB, &none), SPW_EINVAL);
    ck_assert(!spw__block_is(&none));
    ck_assert_uint_eq(block.bytes, 64 * KIB);
    give(block);
    ck_assert_uint_eq(committed(), 192 * KIB);
    give(tail);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), MIB);
}
END_TEST

START_TEST(without_metadata_memory_nothing_is_allocated_split_or_charged)
{
    const spw_spec_pool pools[] = {{16 * MIB, 0}};
    struct spw__block blocks[2000], tail;
    unsigned n = 0;
    int rc;
    open_host(pools, 1);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    refuses(64, SPW_ENOMETA);
    ck_assert_uint_eq(spw__range_tail(tier.pools[0].range),
                      0); /* whether the pool has grown or not, nothing lies there */
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    give(take(16 * MIB));
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    while ((rc = spw__tier_alloc(&tier, &root, 64 * (1 + n % 2), &blocks[n])) == SPW_OK && n + 1 < 2000)
        n++;
    ck_assert_int_eq(rc, SPW_ENOMETA);
    const uint64_t before = committed();
    ck_assert_int_eq(spw__tier_split(&tier, &blocks[1], 64, &tail), SPW_ENOMETA);
    ck_assert(!spw__block_is(&tail));
    ck_assert_uint_eq(blocks[1].bytes, 128);
    ck_assert_uint_eq(committed(), before);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    while (n > 0)
        give(blocks[--n]);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 16 * MIB);
}
END_TEST

START_TEST(a_tier_without_pools_is_absent)
{
    ck_assert_int_eq(init(SPW_TIER_HOST, NULL, 0), SPW_OK);
    ck_assert(!tier.present);
    refuses(1, SPW_ETOOBIG);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier");
    TCase *tcase = tcase_create("tier");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, P11_a_request_up_to_the_limit_prefers_the_limited_pool);
    tcase_add_test(tcase, P12_above_every_limit_only_the_unlimited_pool_is_asked);
    tcase_add_test(tcase, P13_the_smallest_limit_wins_in_whatever_order_it_is_written);
    tcase_add_test(tcase, P13_ties_go_in_the_order_written);
    tcase_add_test(tcase, P14_a_full_pool_falls_upward_and_is_counted_never_downward);
    tcase_add_test(tcase, P9_where_every_pool_is_limited_more_is_too_big_not_out_of_memory);
    tcase_add_test(tcase, too_big_out_of_memory_and_fragmented_are_different_errors);
    tcase_add_test(tcase, fragmented_is_reported_when_one_of_several_pools_is);
    tcase_add_test(tcase, a_charge_is_whole_grains_and_from_32_KiB_on_whole_aligned_blocks);
    tcase_add_test(tcase, a_split_shares_the_charge_and_frees_apart);
    tcase_add_test(tcase, without_metadata_memory_nothing_is_allocated_split_or_charged);
    tcase_add_test(tcase, a_tier_without_pools_is_absent);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
