/* Spare blocks: what a thread keeps of the raw blocks that it freed; charges, bounds, and that all comes back. */
#include "tests/spare_fixture.h"

START_TEST(a_freed_block_stays_committed_and_serves_the_next_request_of_its_size)
{
    const struct spw__block first = raw(100 * KIB);
    ck_assert_uint_eq(first.bytes, 100 * KIB); /* what comes from the range has what was asked for */
    give(first);
    ck_assert_uint_eq(committed(), 100 * KIB);
    check();
    ck_assert_uint_eq(usage.bytes, 100 * KIB);
    const struct spw__block second = raw(100 * KIB);
    ck_assert_uint_eq(second.address, first.address);
    ck_assert_uint_eq(committed(), 100 * KIB);
    give(second);
    ck_assert_uint_eq(spw__tier_drain(&tier), 100 * KIB);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOCS), 2);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOC_BYTES), 200 * KIB);
}
END_TEST

START_TEST(a_request_gets_a_sixteenth_more_at_most_and_never_less)
{
    const struct spw__block kept = raw(68 * KIB);
    give(kept);
    const struct spw__block smaller = raw(60 * KIB), larger = raw(72 * KIB);
    ck_assert_uint_ne(smaller.address, kept.address);
    ck_assert_uint_ne(larger.address, kept.address);
    const struct spw__block near = raw(64 * KIB);
    ck_assert_uint_eq(near.address, kept.address);
    ck_assert_uint_eq(near.bytes, 68 * KIB);
    ck_assert_uint_eq(committed(), (60 + 72 + 68) * KIB);
    give(smaller);
    give(larger);
    give(near);
}
END_TEST

START_TEST(a_kept_block_serves_only_alignments_that_it_has)
{
    const struct spw__block before = raw(256), kept = raw(8 * KIB);
    ck_assert_uint_ne(kept.address % 4096, 0);
    give(kept);
    const struct spw__block aligned = raw_aligned(8 * KIB, 4096), same = raw(8 * KIB);
    ck_assert_uint_eq(same.address, kept.address);
    give(before);
    give(aligned);
    give(same);
}
END_TEST

START_TEST(what_may_have_an_owner_or_is_large_is_not_kept)
{
    int owner;
    give(raw(256));
    const uint64_t kept = committed();
    const struct spw__block buffer = take(64 * KIB), large = raw(4 * MIB + 1), owned = raw(96 * KIB);
    spw__tier_set_owner(&tier, &owned, &owner);
    give(buffer);
    give(large);
    give(owned);
    ck_assert_uint_eq(committed(), kept);
    const struct spw__block again = raw(96 * KIB); /* perhaps with the node that had an owner */
    spw__mutex_lock(&tier.pools[0].lock);
    ck_assert_ptr_null(spw__pool_owner_locked(&tier.pools[0], again.node));
    spw__mutex_unlock(&tier.pools[0].lock);
    give(again);
}
END_TEST

START_TEST(what_no_bin_has_room_for_goes_back_when_the_thread_next_asks_the_range)
{
    const struct spw__block large = raw(3 * MIB), first = raw(MIB), second = raw(MIB), third = raw(MIB);
    give(large);
    give(first);
    give(second);
    give(third); /* one more than the bin holds */
    ck_assert_uint_eq(committed(), 6 * MIB);
    const struct spw__block other = raw(8 * KIB);
    ck_assert_uint_eq(committed(), 2 * MIB + 8 * KIB);
    check();
    ck_assert_uint_eq(usage.bytes, 2 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), POOL_BYTES - 2 * MIB - 8 * KIB);
    const struct spw__block again = raw(MIB);
    ck_assert_uint_eq(again.address, second.address);
    give(again);
    give(other);
}
END_TEST

START_TEST(a_kept_block_may_be_split_by_who_gets_it)
{
    struct spw__block head, tail;
    give(raw(128 * KIB));
    head = raw(128 * KIB);
    ck_assert_int_eq(spw__tier_split(&tier, &head, 32 * KIB, &tail), SPW_OK);
    ck_assert_uint_eq(tail.bytes, 96 * KIB);
    give(head);
    ck_assert_uint_eq(committed(), 128 * KIB); /* kept */
    give(tail);
    ck_assert_uint_eq(committed(), 32 * KIB);
    check();
    ck_assert_uint_eq(raw(32 * KIB).address, head.address);
    give(head);
}
END_TEST

static void refuses_free(struct spw__block block)
{
    const uint64_t before = committed();
    ck_assert_int_eq(spw__tier_free(&tier, &block), SPW_EBADHANDLE);
    ck_assert(spw__block_is(&block));
    ck_assert_uint_eq(committed(), before);
}

START_TEST(a_double_free_and_a_name_out_of_date_are_refused_and_change_nothing)
{
    const struct spw__block neighbour = raw(256), block = raw(10 * KIB), behind = raw(256);
    give(block);
    refuses_free(block); /* kept */
    (void)spw__tier_drain(&tier);
    refuses_free(block); /* gone */
    const struct spw__block cut = raw(4 * KIB), other = raw(6 * KIB);
    for (uint32_t node = 0; node < 8; node++) { /* whichever node it has now, none is the block that it was */
        struct spw__block stale = block;
        stale.node = node;
        stale.address += 512;
        refuses_free(stale);
    }
    give(cut);
    give(other);
    give(neighbour);
    give(behind);
}
END_TEST

START_TEST(while_somebody_waits_nothing_is_kept)
{
    const struct spw__block block = raw(10 * KIB);
    atomic_fetch_add(&waits.n_waiting[SPW_TIER_DEVICE], 1);
    give(block);
    ck_assert_uint_eq(committed(), 0);
    atomic_fetch_sub(&waits.n_waiting[SPW_TIER_DEVICE], 1);
    give(raw(10 * KIB));
    ck_assert_uint_eq(committed(), 10 * KIB);
}
END_TEST

START_TEST(what_is_kept_is_taken_back_before_there_is_no_room)
{
    struct spw__block all;
    for (unsigned i = 0; i < 20; i++)
        give(raw((i + 1) * 40 * KIB));
    ck_assert_uint_gt(committed(), 0);
    /* In the pool, and then in the budget. Under the wait lock, as a waiter's attempt runs. */
    spw__mutex_lock(&waits.lock);
    ck_assert_int_eq(spw__tier_try(&tier, &root, POOL_BYTES, &all), SPW_OK);
    spw__mutex_unlock(&waits.lock);
    ck_assert_uint_eq(committed(), POOL_BYTES);
    give(all);
    const struct spw__block block = raw(2 * MIB);
    for (unsigned i = 0; i < 20; i++)
        give(raw(64 * KIB));
    atomic_store(&root.gates[SPW_TIER_DEVICE].budget, 4 * MIB);
    const struct spw__block other = raw(2 * MIB);
    ck_assert_uint_eq(committed(), 4 * MIB);
    refuses(256, SPW_ENOMEM);
    give(other);
    give(block);
    ck_assert_uint_le(committed(), 4 * MIB);
}
END_TEST

START_TEST(a_lack_of_holes_and_the_largest_hole_agree)
{
    enum { N = 4096 };
    static struct spw__block blocks[N];
    struct spw__block none;
    for (unsigned i = 0; i < N; i++)
        blocks[i] = raw(2 * MIB);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 0);
    for (unsigned i = 0; i < N; i += 2)
        give(blocks[i]);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, 3 * MIB, ALIGN, SPW__GROW_FREELY, &none), SPW_EFRAG);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 2 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), POOL_BYTES / 2);
    ck_assert_uint_eq(committed(), POOL_BYTES / 2);
    for (unsigned i = 1; i < N; i += 2)
        give(blocks[i]);
}
END_TEST

START_TEST(a_cache_serves_one_group_at_a_time_and_charges_stay_exact)
{
    struct spw__group left = {.parent = &root}, right = {.parent = &root};
    struct spw__block block;
    spw__gate_init(&left.gates[SPW_TIER_DEVICE], MIB);
    spw__gate_init(&right.gates[SPW_TIER_DEVICE], MIB);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &left, 50 * KIB, ALIGN, SPW__GROW_FREELY, &block), SPW_OK);
    const uint64_t charge = block.bytes;
    give(block);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_DEVICE].committed), charge);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &right, 50 * KIB, ALIGN, SPW__GROW_FREELY, &block), SPW_OK);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_DEVICE].committed), 0);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_DEVICE].committed), charge);
    const struct spw__block of_root = raw(60 * KIB); /* takes the cache over */
    give(block);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_DEVICE].committed), 0);
    ck_assert_uint_eq(committed(), of_root.bytes);
    give(of_root);
}
END_TEST

START_TEST(fault_META_ALLOC_anywhere_costs_a_cache_or_one_request)
{
    enum { N = 1500 };
    static struct spw__block blocks[N];
    bool reached = true;
    long nth = 1;
    for (; reached; nth++) {
        const spw_spec_pool pool = {.size_bytes = POOL_BYTES};
        const struct spw__tier_config config = {.tier = SPW_TIER_DEVICE, .pools = &pool, .n_pools = 1,
                                                .device = device, .meta = &meta, .waits = &waits,
                                                .counters = &counters};
        spw__tier_finish(&tier);
        uint64_t state = 7;
        unsigned n = 0, failed = 0;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = spw__tier_init(&tier, &config);
        ck_assert(rc == SPW_OK || rc == SPW_ENOMETA);
        for (unsigned i = 0; rc == SPW_OK && i < N; i++) {
            const int got = spw__tier_alloc_aligned(&tier, &root, random_size(&state), ALIGN, SPW__GROW_FREELY,
                                                    &blocks[n]);
            ck_assert(got == SPW_OK || got == SPW_ENOMETA);
            n += got == SPW_OK;
            failed += got != SPW_OK;
        }
        reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_uint_le(failed, 1);
        while (n > 0)
            give(blocks[--n]);
        (void)spw__tier_drain(&tier);
        ck_assert_uint_eq(committed(), 0);
    }
    ck_assert_int_gt(nth, 10);
}
END_TEST

START_TEST(pools_of_less_than_4_GiB_and_address_order_keep_nothing)
{
    const spw_spec_pool pools[] = {{SPW__SPARE_POOL_MIN - 256, 0}, {SPW__SPARE_POOL_MIN, 0}};
    struct spw__tier_config config = {.tier = SPW_TIER_HOST, .pools = pools, .n_pools = 2, .meta = &meta,
                                      .waits = &waits, .counters = &counters};
    spw__tier_finish(&tier);
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_ptr_null(tier.pools[0].spare);
    ck_assert_ptr_nonnull(tier.pools[1].spare);
    spw__tier_finish(&tier);
    config.address_ordered = true;
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_uint_eq(tier.n_cached, 0);
    spw__tier_finish(&tier);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spare");
    TCase *tcase = tcase_create("spare");
    tcase_add_checked_fixture(tcase, setup_large, teardown_large);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_freed_block_stays_committed_and_serves_the_next_request_of_its_size);
    tcase_add_test(tcase, a_request_gets_a_sixteenth_more_at_most_and_never_less);
    tcase_add_test(tcase, a_kept_block_serves_only_alignments_that_it_has);
    tcase_add_test(tcase, what_may_have_an_owner_or_is_large_is_not_kept);
    tcase_add_test(tcase, what_no_bin_has_room_for_goes_back_when_the_thread_next_asks_the_range);
    tcase_add_test(tcase, a_kept_block_may_be_split_by_who_gets_it);
    tcase_add_test(tcase, a_double_free_and_a_name_out_of_date_are_refused_and_change_nothing);
    tcase_add_test(tcase, while_somebody_waits_nothing_is_kept);
    tcase_add_test(tcase, what_is_kept_is_taken_back_before_there_is_no_room);
    tcase_add_test(tcase, a_lack_of_holes_and_the_largest_hole_agree);
    tcase_add_test(tcase, a_cache_serves_one_group_at_a_time_and_charges_stay_exact);
    tcase_add_test(tcase, fault_META_ALLOC_anywhere_costs_a_cache_or_one_request);
    tcase_add_test(tcase, pools_of_less_than_4_GiB_and_address_order_keep_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
