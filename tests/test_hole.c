/* Opening holes: where enough is free but no hole fits, buffers make way within their tier. */
#include "manager_fixture.h"

enum { LARGE = 3 << 20, SMALL = 4 << 10 };

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    close_manager();
    remove_folder();
}

/* Three times (3 MiB + 4 KiB) in 10 MiB, then the large ones go: 9 MiB and more are free in pieces of 3 MiB. */
static void fragment(spw_buffer *small[3])
{
    spw_buffer *large[3];
    for (unsigned i = 0; i < 3; i++) {
        large[i] = must_make(SPW_HOST, LARGE, i);
        small[i] = must_make(SPW_HOST, SMALL, 10 + i);
    }
    for (unsigned i = 0; i < 3; i++)
        must_release(large[i]);
    ck_assert_uint_lt(tier_now(SPW_TIER_HOST)->largest_free_bytes, 5 * MIB);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].free_bytes, 9 * MIB);
}

static void check_small(spw_buffer *small[3])
{
    for (unsigned i = 0; i < 3; i++) {
        check_at(small[i], SPW_HOST, 10 + i);
        must_release(small[i]);
    }
}

START_TEST(P17_with_movable_buffers_the_single_pool_serves_the_large_request_and_moves_little)
{
    spw_buffer *small[3], *big;
    open_manager("host=10M; placement=address");
    fragment(small);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 10000, &big), SPW_OK);
    ck_assert_uint_ge(tier_now(SPW_TIER_HOST)->holes, 1);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].hole_bytes, 0);
    ck_assert_uint_le(stats.tiers[SPW_TIER_HOST].hole_bytes, 4 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].spill_bytes, 0);
    ck_assert_uint_le(stats.tiers[SPW_TIER_HOST].peak_bytes, 10 * MIB);
    check_small(small);
    must_release(big);
}
END_TEST

START_TEST(a_hole_is_opened_on_the_device_by_copies_within_it)
{
    spw_buffer *large[3], *small[3], *big;
    open_manager("device=10M; driver=sim; placement=address");
    for (unsigned i = 0; i < 3; i++) {
        large[i] = must_make(SPW_DEVICE, LARGE, i);
        small[i] = must_make(SPW_DEVICE, SMALL, 10 + i);
    }
    for (unsigned i = 0; i < 3; i++)
        must_release(large[i]);
    ck_assert_int_eq(alloc_within(SPW_DEVICE, 5 * MIB, 10000, &big), SPW_OK);
    ck_assert_uint_ge(edge_now(SPW_TIER_DEVICE, SPW_TIER_DEVICE)->copies, 1);
    for (unsigned i = 0; i < 3; i++) {
        check_at(small[i], SPW_DEVICE, 10 + i);
        must_release(small[i]);
    }
    must_release(big);
}
END_TEST

START_TEST(what_is_mapped_or_unsealed_is_not_moved_and_the_error_is_fragmented)
{
    spw_buffer *small[3], *big;
    spw_view views[3];
    open_manager("host=10M; placement=address");
    fragment(small);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(spw_map(small[i], SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 0, &big), SPW_EFRAG);
    ck_assert_uint_lt(spw_error_detail()->largest_free_bytes, 5 * MIB);
    ck_assert_uint_gt(spw_error_detail()->free_bytes, 9 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(has_content(views[i].data, views[i].size, 10 + i));
        ck_assert_int_eq(spw_unmap(small[i], &views[i], NULL), SPW_OK);
    }
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 10000, &big), SPW_OK);
    check_small(small);
    must_release(big);
}
END_TEST

static spw_buffer *mapped_small;
static spw_view mapped_view;

static void *unmap_when_waited_for(void *arg)
{
    (void)arg;
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)))
        (void)sched_yield();
    ck_assert_int_eq(spw_unmap(mapped_small, &mapped_view, NULL), SPW_OK);
    return NULL;
}

START_TEST(an_unmap_opens_the_hole_that_a_waiter_lacks)
{
    spw_buffer *small[3], *big;
    open_manager("host=10M; placement=address");
    fragment(small);
    mapped_small = small[0];
    spw_view others[2];
    for (unsigned i = 1; i < 3; i++)
        ck_assert_int_eq(spw_map(small[i], SPW_HOST, SPW_MAP_READ, NULL, &others[i - 1]), SPW_OK);
    ck_assert_int_eq(spw_map(mapped_small, SPW_HOST, SPW_MAP_READ, NULL, &mapped_view), SPW_OK);
    const pthread_t thread = must_start(unmap_when_waited_for, NULL);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 30000, &big), SPW_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (unsigned i = 1; i < 3; i++)
        ck_assert_int_eq(spw_unmap(small[i], &others[i - 1], NULL), SPW_OK);
    check_small(small);
    must_release(big);
}
END_TEST

static void *ask_for_5_mib(void *out)
{
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, SPW_TIMEOUT_INFINITE, out), SPW_OK);
    return NULL;
}

START_TEST(who_waits_for_a_hole_that_cannot_be_opened_holds_nobody_up)
{
    spw_buffer *gaps[6], *walls[9], *victims[3], *big = NULL, *other;
    spw_view views[9];
    open_manager("host=16M; staging=64K; disk=%s:32M; placement=address");
    for (unsigned i = 0; i < 9; i++) {
        if (i < 6)
            gaps[i] = must_make(SPW_HOST, MIB, i);
        else
            victims[i - 6] = must_make(SPW_HOST, 2 * MIB, i);
        walls[i] = must_make(SPW_HOST, SMALL, 10 + i);
        ck_assert_int_eq(spw_map(walls[i], SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    }
    spw_buffer *rest = must_alloc(SPW_HOST, 3996 * KIB);
    for (unsigned i = 0; i < 6; i++)
        must_release(gaps[i]);
    const pthread_t thread = must_start(ask_for_5_mib, &big);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)))
        (void)sched_yield();
    ck_assert_int_eq(alloc_within(SPW_HOST, 2 * MIB, SPW_TIMEOUT_INFINITE, &other), SPW_OK);
    ck_assert_uint_gt(tier_now(SPW_TIER_HOST)->holes, 0);
    for (unsigned i = 0; i < 9; i++)
        ck_assert_int_eq(spw_unmap(walls[i], &views[i], NULL), SPW_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    must_release(rest);
    must_release(big);
    must_release(other);
    for (unsigned i = 0; i < 9; i++) {
        check_at(walls[i], SPW_HOST, 10 + i);
        must_release(walls[i]);
        if (i < 3) {
            check_at(victims[i], SPW_HOST, 6 + i);
            must_release(victims[i]);
        }
    }
}
END_TEST

START_TEST(without_memory_for_the_list_of_a_window_room_is_made_by_spilling)
{
    spw_buffer *small[3], *big = NULL;
    open_manager("host=10M; staging=64K; disk=%s:32M; placement=address");
    fragment(small);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, SPW_TIMEOUT_INFINITE, &big), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->holes, 0);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].spill_bytes, 0);
    must_release(big);
    check_small(small);
}
END_TEST

START_TEST(a_clean_piece_in_the_window_is_dropped_without_a_copy)
{
    spw_buffer *small[3], *big;
    open_manager("host=10M; staging=64K; placement=address; disk=%s:32M");
    for (unsigned i = 0; i < 3; i++)
        small[i] = must_make(SPW_HOST, SMALL, 10 + i);
    push_out(SPW_HOST, 10 * MIB - 64 * KIB);
    spw_buffer *large[3];
    for (unsigned i = 0; i < 3; i++) { /* back in memory, each between two large ones, with a copy below */
        large[i] = must_make(SPW_HOST, LARGE, i);
        check_at(small[i], SPW_HOST, 10 + i);
    }
    for (unsigned i = 0; i < 3; i++)
        must_release(large[i]);
    const uint64_t written = (tier_now(SPW_TIER_HOST), stats.disk_written_bytes);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 10000, &big), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->hole_bytes, 0);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].drop_bytes, 0);
    ck_assert_uint_eq(stats.disk_written_bytes, written);
    must_release(big);
    check_small(small);
}
END_TEST

START_TEST(many_small_pieces_make_way_for_one_large_request)
{
    enum { N = 1200 };
    static spw_buffer *buffers[N];
    spw_buffer *big;
    open_manager("host=16M; staging=64K; disk=%s:32M");
    for (unsigned i = 0; i < N; i++)
        buffers[i] = must_make(SPW_HOST, 12 * KIB, i);
    for (unsigned i = 0; i < N; i += 2)
        must_release(buffers[i]);
    ck_assert_int_eq(alloc_within(SPW_HOST, 6 * MIB, 30000, &big), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0); /* all of them had room beside it */
    for (unsigned i = 1; i < N; i += 2) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    must_release(big);
}
END_TEST

START_TEST(threads_0_opens_holes_too)
{
    spw_buffer *small[3], *big;
    open_manager("host=10M; placement=address; threads=0");
    fragment(small);
    ck_assert_int_eq(alloc_within(SPW_HOST, 5 * MIB, 10000, &big), SPW_OK);
    check_small(small);
    must_release(big);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hole");
    TCase *tests = tcase_create("holes");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, P17_with_movable_buffers_the_single_pool_serves_the_large_request_and_moves_little);
    tcase_add_test(tests, a_hole_is_opened_on_the_device_by_copies_within_it);
    tcase_add_test(tests, what_is_mapped_or_unsealed_is_not_moved_and_the_error_is_fragmented);
    tcase_add_test(tests, an_unmap_opens_the_hole_that_a_waiter_lacks);
    tcase_add_test(tests, who_waits_for_a_hole_that_cannot_be_opened_holds_nobody_up);
    tcase_add_test(tests, without_memory_for_the_list_of_a_window_room_is_made_by_spilling);
    tcase_add_test(tests, a_clean_piece_in_the_window_is_dropped_without_a_copy);
    tcase_add_test(tests, many_small_pieces_make_way_for_one_large_request);
    tcase_add_test(tests, threads_0_opens_holes_too);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
