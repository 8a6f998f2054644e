/* Admission and allocation: which tier and pool a request gets, what it waits for, and how a wait ends.
 * Conformance R1, P9, P11-P14; invariants 1, 4 and 11. test_spill.c has what is moved to make the room. */
#include "tests/manager_fixture.h"

#include "src/core/handle.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

static spw_buffer *must_admit(size_t bytes, const spw_admit_options *options)
{
    spw_buffer *buffer = NULL;
    const int rc = spw_admit(manager, bytes, options, &buffer);
    ck_assert_msg(rc == SPW_OK, "admit: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return buffer;
}

static int admit_nowait(size_t bytes)
{
    spw_admit_options options;
    spw_buffer *buffer = NULL;
    spw_admit_options_init(&options);
    options.flags = SPW_NOWAIT;
    const int rc = spw_admit(manager, bytes, &options, &buffer);
    ck_assert(rc == SPW_OK || buffer == NULL);
    if (rc == SPW_OK)
        must_release(buffer);
    return rc;
}

static void release_all(spw_buffer **buffers, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        must_release(buffers[i]);
}

START_TEST(R1_over_budget_data_goes_straight_to_pinned_host)
{
    spw_buffer *buffers[64];
    open_manager("device=1M; pinned=8M; disk=%s:8M; driver=sim");
    for (unsigned i = 0; i < 64; i++) {
        buffers[i] = must_admit(64 * KIB, NULL);
        write_content(buffers[i], i);
        ck_assert_int_eq(spw_buffer_seal(buffers[i]), SPW_OK);
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i < 16 ? SPW_DEVICE : SPW_PINNED_HOST);
    }
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->copies, 0);
    ck_assert_uint_eq(stats.edges[SPW_TIER_DEVICE][SPW_TIER_PINNED_HOST].bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].admits, 16);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].admit_bytes, MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_PINNED_HOST].admits, 48);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_PINNED_HOST].admit_bytes, 3 * MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].spill_bytes, 0);
    for (unsigned i = 0; i < 64; i++)
        check_at(buffers[i], i < 16 ? SPW_DEVICE : SPW_PINNED_HOST, i);
    release_all(buffers, 64);
    close_manager();
}
END_TEST

START_TEST(R1_admission_with_all_memory_full_causes_no_device_to_pinned_copy)
{
    spw_buffer *buffers[64];
    open_manager("device=1M; pinned=1M; disk=%s:16M; staging=64K; driver=sim");
    for (unsigned i = 0; i < 64; i++) {
        buffers[i] = must_admit(64 * KIB, NULL);
        write_content(buffers[i], i);
        ck_assert_int_eq(spw_buffer_seal(buffers[i]), SPW_OK);
    }
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->copies, 0);
    ck_assert_uint_eq(stats.edges[SPW_TIER_DEVICE][SPW_TIER_DISK].copies, 0);
    ck_assert_uint_ge(stats.edges[SPW_TIER_PINNED_HOST][SPW_TIER_DISK].bytes, (64 - 16 - 15) * 64 * KIB);
    release_all(buffers, 64);
    close_manager();
}
END_TEST

START_TEST(invariant_11_admission_that_may_only_use_the_device_pushes_nothing_into_pinned_host)
{
    spw_buffer *buffers[17], *none;
    spw_admit_options options;
    spw_admit_options_init(&options);
    options.lowest = SPW_DEVICE;
    open_manager("device=1M; pinned=8M; host=2M; driver=sim");
    for (unsigned i = 0; i < 17; i++) {
        buffers[i] = must_admit(64 * KIB, &options);
        write_content(buffers[i], i);
        ck_assert_int_eq(spw_buffer_seal(buffers[i]), SPW_OK);
    }
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->copies, 0);
    ck_assert_uint_eq(stats.edges[SPW_TIER_DEVICE][SPW_TIER_HOST].copies, 1);
    check_at(buffers[0], SPW_HOST, 0);
    release_all(buffers, 17);
    close_manager();

    open_manager("device=1M; pinned=8M; driver=sim"); /* nowhere to go: no admission, but an allocation may */
    for (unsigned i = 0; i < 16; i++)
        buffers[i] = must_make(SPW_DEVICE, 64 * KIB, i);
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_admit(manager, 64 * KIB, &options, &none), SPW_ENOMEM);
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->copies, 0);
    buffers[16] = must_make(SPW_DEVICE, 64 * KIB, 16);
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->copies, 1);
    release_all(buffers, 17);
    close_manager();
}
END_TEST

START_TEST(admission_tries_device_then_pinned_host_then_host)
{
    spw_buffer *buffers[7];
    spw_admit_options options;
    spw_admit_options_init(&options);
    open_manager("device=1M; pinned=1M; host=1M; driver=sim");
    for (unsigned i = 0; i < 3; i++) {
        buffers[i] = must_admit(600 * KIB, NULL);
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), SPW_PLACE(i, 0));
    }
    options.prefer = SPW_PINNED_HOST;
    buffers[3] = must_admit(100 * KIB, &options);
    ck_assert_uint_eq(spw_buffer_place(buffers[3]), SPW_PINNED_HOST);
    options.prefer = options.lowest = SPW_HOST;
    buffers[4] = must_admit(100 * KIB, &options);
    ck_assert_uint_eq(spw_buffer_place(buffers[4]), SPW_HOST);
    options.prefer = SPW_PLACE_NONE;
    options.lowest = SPW_PINNED_HOST;
    buffers[5] = must_admit(400 * KIB, &options);
    ck_assert_uint_eq(spw_buffer_place(buffers[5]), SPW_DEVICE);
    options.wait.timeout_ms = 0; /* host has room, but lies below the lowest */
    ck_assert_int_eq(spw_admit(manager, 400 * KIB, &options, &buffers[6]), SPW_ENOMEM);
    ck_assert_ptr_null(buffers[6]);
    release_all(buffers, 6);
    close_manager();
}
END_TEST

START_TEST(bad_requests_are_refused_and_give_no_buffer)
{
    spw_buffer *buffer = (spw_buffer *)(void *)folder;
    spw_admit_options admit;
    spw_alloc_options alloc;
    open_manager("pinned=1M; host=1M");
    ck_assert_int_eq(spw_admit(NULL, 1, NULL, &buffer), SPW_EINVAL);
    ck_assert_int_eq(spw_admit(manager, 1, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_alloc(NULL, SPW_HOST, 1, NULL, &buffer), SPW_EINVAL);
    const spw_place absent[] = {SPW_PLACE_NONE, SPW_DEVICE, SPW_DISK, SPW_META, SPW_PLACE(SPW_TIER_HOST, 1)};
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(spw_alloc(manager, absent[i], 1, NULL, &buffer), SPW_EINVAL);
        ck_assert_ptr_null(buffer);
        spw_admit_options_init(&admit);
        admit.prefer = absent[i];
        if (absent[i] != SPW_PLACE_NONE)
            ck_assert_int_eq(spw_admit(manager, 1, &admit, &buffer), SPW_EINVAL);
    }
    spw_admit_options_init(&admit);
    admit.prefer = SPW_HOST;
    admit.lowest = SPW_PINNED_HOST;
    ck_assert_int_eq(spw_admit(manager, 1, &admit, &buffer), SPW_EINVAL);
    spw_admit_options_init(&admit);
    admit.flags = 2;
    ck_assert_int_eq(spw_admit(manager, 1, &admit, &buffer), SPW_EINVAL);
    spw_admit_options_init(&admit);
    admit.struct_size = 0;
    ck_assert_int_eq(spw_admit(manager, 1, &admit, &buffer), SPW_EINVAL);
    spw_alloc_options_init(&alloc);
    alloc.wait.task = &no_task;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1, &alloc, &buffer), SPW_EBADHANDLE);
    spw_alloc_options_init(&alloc);
    alloc.struct_size = sizeof alloc.struct_size;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1, &alloc, &buffer), SPW_EINVAL);
    close_manager();
}
END_TEST

START_TEST(nowait_neither_waits_nor_evicts)
{
    spw_buffer *buffers[8];
    open_manager(SMALL_HOST);
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 128 * KIB, i);
    ck_assert_int_eq(admit_nowait(64), SPW_EAGAIN);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0);
    ck_assert_uint_eq(stats.waits, 0);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_HOST);
    must_release(buffers[3]);
    ck_assert_int_eq(admit_nowait(128 * KIB), SPW_OK);
    ck_assert_int_eq(admit_nowait(128 * KIB + 1), SPW_EAGAIN);
    buffers[3] = buffers[7];
    release_all(buffers, 7);
    close_manager();
}
END_TEST

START_TEST(P9_what_can_never_fit_is_told_at_once_and_apart_from_no_room)
{
    spw_buffer *buffer, *full;
    open_manager("host=1M:512K,1M:256K");
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB + 1, NULL, &buffer), SPW_ETOOBIG);
    ck_assert_int_eq(spw_admit(manager, 3 * MIB, NULL, &buffer), SPW_ETOOBIG);
    ck_assert_int_eq(spw_admit(manager, SIZE_MAX, NULL, &buffer), SPW_ETOOBIG);
    ck_assert_ptr_null(buffer);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, SIZE_MAX);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->allocs, 0);
    ck_assert_uint_eq(stats.waits, 0);
    full = must_alloc(SPW_HOST, 512 * KIB);
    buffer = must_alloc(SPW_HOST, 512 * KIB);
    spw_buffer *none;
    ck_assert_int_eq(alloc_within(SPW_HOST, 512 * KIB, 0, &none), SPW_ENOMEM);
    must_release(full);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_request_fits_to_the_byte_and_one_byte_more_does_not)
{
    spw_buffer *buffer, *last;
    open_manager("host=1M");
    buffer = must_alloc(SPW_HOST, MIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), MIB);
    ck_assert_int_eq(alloc_within(SPW_HOST, 1, 0, &last), SPW_ENOMEM);
    must_release(buffer);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, MIB + 1, NULL, &last), SPW_ETOOBIG);
    buffer = must_alloc(SPW_HOST, MIB - 64 * KIB);
    last = must_alloc(SPW_HOST, 64 * KIB);
    ck_assert_int_eq(admit_nowait(1), SPW_EAGAIN);
    must_release(last);
    ck_assert_int_eq(admit_nowait(64 * KIB + 1), SPW_EAGAIN);
    ck_assert_int_eq(admit_nowait(64 * KIB), SPW_OK);
    must_release(buffer);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->peak_bytes, MIB);
    close_manager();
}
END_TEST

START_TEST(with_all_tiers_full_the_coldest_of_the_lowest_goes_to_disk)
{
    spw_buffer *above[2], *buffers[8];
    open_manager("device=1M; pinned=1088K; host=1M; staging=64K; piece=128K; disk=%s:16M; driver=sim");
    above[0] = must_make(SPW_DEVICE, MIB, 100);
    above[1] = must_make(SPW_PINNED_HOST, MIB, 101);
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 128 * KIB, i);
    check_at(buffers[0], SPW_HOST, 0); /* used just now: the second is the coldest */
    spw_buffer *admitted = must_admit(100 * KIB, NULL);
    ck_assert_uint_eq(spw_buffer_place(admitted), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(above[0]), SPW_DEVICE);
    ck_assert_uint_eq(spw_buffer_place(above[1]), SPW_PINNED_HOST);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i == 1 ? SPW_DISK : SPW_HOST);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 128 * KIB);
    ck_assert_uint_eq(stats.waits, 1);
    must_release(admitted);
    release_all(above, 2);
    release_all(buffers, 8);
    close_manager();
}
END_TEST

static unsigned pool_of(spw_buffer *buffer)
{
    return buffer->payload->pieces[0].mem.pool;
}

static void routes_to(size_t bytes, unsigned pool)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, bytes);
    ck_assert_msg(pool_of(buffer) == pool, "%zu bytes went to pool %u, not %u", bytes, pool_of(buffer), pool);
    must_release(buffer);
}

START_TEST(P11_two_pools_route_by_limit)
{
    open_manager("host=10M,2M:2K");
    routes_to(1, 1);
    routes_to(2048, 1);
    routes_to(2049, 0);
    close_manager();
}
END_TEST

START_TEST(P12_above_all_limits_goes_to_the_unlimited_pool)
{
    open_manager("host=10M,2M:20K,1M:2K");
    routes_to(2048, 2);
    routes_to(2049, 1);
    routes_to(20480, 1);
    routes_to(20481, 0);
    close_manager();
}
END_TEST

START_TEST(P13_the_written_order_does_not_matter_but_for_ties)
{
    open_manager("host=1M:2K,10M,2M:20K,2M:20K");
    routes_to(2048, 0);
    routes_to(2049, 2);
    routes_to(20481, 1);
    close_manager();
}
END_TEST

START_TEST(P14_a_full_pool_falls_upward_never_downward)
{
    spw_buffer *buffers[3], *none;
    open_manager("host=64K,64K:8K,64K:2K");
    for (unsigned i = 0; i < 3; i++) { /* 32 small ones fill a pool; the next goes one up */
        spw_buffer *small[32];
        for (unsigned k = 0; k < 32; k++) {
            small[k] = must_alloc(SPW_HOST, 2048);
            ck_assert_uint_eq(pool_of(small[k]), 2);
        }
        buffers[0] = must_alloc(SPW_HOST, 2048);
        ck_assert_uint_eq(pool_of(buffers[0]), 1);
        ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->fallback_allocs, i + 1);
        must_release(buffers[0]);
        release_all(small, 32);
    }
    buffers[0] = must_alloc(SPW_HOST, 64 * KIB); /* the unlimited pool is full: the others are of no use */
    ck_assert_int_eq(alloc_within(SPW_HOST, 8 * KIB + 1, 0, &none), SPW_ENOMEM);
    buffers[1] = must_alloc(SPW_HOST, 8 * KIB);
    ck_assert_uint_eq(pool_of(buffers[1]), 1);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->fallback_allocs, 3);
    release_all(buffers, 2);
    close_manager();
}
END_TEST

START_TEST(P14_the_pool_above_is_used_before_anything_is_spilled)
{
    spw_buffer *buffers[64];
    open_manager("host=1M,64K:2K; staging=4K; disk=%s:4M");
    for (unsigned i = 0; i < 64; i++)
        buffers[i] = must_make(SPW_HOST, 2048, i);
    ck_assert_uint_gt(tier_now(SPW_TIER_HOST)->fallback_allocs, 30);
    ck_assert_uint_eq(stats.disk_written_bytes, 0);
    ck_assert_uint_eq(stats.waits, 0);
    release_all(buffers, 64);
    close_manager();
}
END_TEST

START_TEST(free_bytes_scattered_over_pools_do_not_hide_that_a_victim_is_needed)
{
    open_manager("host=1M,1M; staging=64K; piece=64K; disk=%s:16M");
    spw_buffer *first = must_make(SPW_HOST, 640 * KIB, 1), *second = must_make(SPW_HOST, 640 * KIB, 2);
    ck_assert_uint_ne(pool_of(first), pool_of(second));
    spw_buffer *third = must_alloc(SPW_HOST, 600 * KIB); /* 704 KiB are free in two parts */
    must_release(first);
    must_release(second);
    must_release(third);
    close_manager();
}
END_TEST

START_TEST(no_victim_is_taken_from_a_pool_that_is_too_small_for_the_request)
{
    open_manager("host=1M,128K; staging=4K; piece=64K; disk=%s:16M");
    spw_buffer *large = must_make(SPW_HOST, MIB - 64 * KIB, 1), *small = must_make(SPW_HOST, 100 * KIB, 2);
    ck_assert_uint_eq(pool_of(small), 1);
    check_at(large, SPW_HOST, 1); /* the small one is the coldest */
    spw_buffer *next = must_alloc(SPW_HOST, 512 * KIB);
    ck_assert_uint_eq(spw_buffer_place(small), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(large), SPW_DISK);
    must_release(large);
    must_release(small);
    must_release(next);
    close_manager();
}
END_TEST

START_TEST(fragmented_and_no_room_are_different_errors)
{
    spw_buffer *buffers[16], *none;
    open_manager("host=1M; placement=address");
    for (unsigned i = 0; i < 16; i++)
        buffers[i] = must_alloc(SPW_HOST, 64 * KIB);
    for (unsigned i = 0; i < 16; i += 2)
        must_release(buffers[i]);
    ck_assert_int_eq(alloc_within(SPW_HOST, 128 * KIB, 0, &none), SPW_EFRAG);
    const spw_error_info *detail = spw_error_detail();
    ck_assert_uint_eq(detail->place, SPW_HOST);
    ck_assert_uint_eq(detail->requested_bytes, 128 * KIB);
    ck_assert_uint_eq(detail->free_bytes, 512 * KIB);
    ck_assert_uint_eq(detail->largest_free_bytes, 64 * KIB);
    ck_assert_uint_eq(detail->limit_bytes, MIB);
    ck_assert_uint_ge(tier_now(SPW_TIER_HOST)->fail_fragmented, 1);
    ck_assert_int_eq(alloc_within(SPW_HOST, 512 * KIB + 1, 0, &none), SPW_ENOMEM);
    for (unsigned i = 1; i < 16; i += 2)
        must_release(buffers[i]);
    close_manager();
}
END_TEST

START_TEST(what_could_only_fit_in_the_place_of_staging_is_too_big_at_once)
{
    spw_buffer *buffer;
    open_manager("host=4M; disk=%s:16M"); /* staging is a quarter, and stays */
    ck_assert_int_eq(alloc_within(SPW_HOST, 3 * MIB + 1, SPW_TIMEOUT_INFINITE, &buffer), SPW_ETOOBIG);
    ck_assert_int_eq(alloc_within(SPW_HOST, 3 * MIB, 0, &buffer), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(where_the_lowest_tier_can_never_hold_it_the_one_above_makes_room)
{
    spw_buffer *buffers[8], *large = NULL;
    spw_admit_options options;
    open_manager("pinned=8M; host=1M; staging=64K; disk=%s:64M");
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_PINNED_HOST, 960 * KIB, i);
    spw_admit_options_init(&options);
    options.wait.timeout_ms = 30000;
    ck_assert_int_eq(spw_admit(manager, 2 * MIB, &options, &large), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(large), SPW_PINNED_HOST);
    for (unsigned i = 0; i < 8; i++) {
        check_at(buffers[i], SPW_PINNED_HOST, i);
        must_release(buffers[i]);
    }
    must_release(large);
}
END_TEST

START_TEST(two_pools_with_free_bytes_in_each_but_room_in_none_evict)
{
    spw_buffer *buffers[8];
    open_manager("host=4M,4M; staging=64K; disk=%s:64M");
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 1536 * KIB, i);
    for (unsigned i = 0; i < 8; i++) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admit");
    TCase *tests = tcase_create("where");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, R1_over_budget_data_goes_straight_to_pinned_host);
    tcase_add_test(tests, R1_admission_with_all_memory_full_causes_no_device_to_pinned_copy);
    tcase_add_test(tests, invariant_11_admission_that_may_only_use_the_device_pushes_nothing_into_pinned_host);
    tcase_add_test(tests, admission_tries_device_then_pinned_host_then_host);
    tcase_add_test(tests, bad_requests_are_refused_and_give_no_buffer);
    tcase_add_test(tests, nowait_neither_waits_nor_evicts);
    tcase_add_test(tests, P9_what_can_never_fit_is_told_at_once_and_apart_from_no_room);
    tcase_add_test(tests, a_request_fits_to_the_byte_and_one_byte_more_does_not);
    tcase_add_test(tests, with_all_tiers_full_the_coldest_of_the_lowest_goes_to_disk);
    tcase_add_test(tests, P11_two_pools_route_by_limit);
    tcase_add_test(tests, P12_above_all_limits_goes_to_the_unlimited_pool);
    tcase_add_test(tests, P13_the_written_order_does_not_matter_but_for_ties);
    tcase_add_test(tests, P14_a_full_pool_falls_upward_never_downward);
    tcase_add_test(tests, P14_the_pool_above_is_used_before_anything_is_spilled);
    tcase_add_test(tests, free_bytes_scattered_over_pools_do_not_hide_that_a_victim_is_needed);
    tcase_add_test(tests, no_victim_is_taken_from_a_pool_that_is_too_small_for_the_request);
    tcase_add_test(tests, fragmented_and_no_room_are_different_errors);
    tcase_add_test(tests, what_could_only_fit_in_the_place_of_staging_is_too_big_at_once);
    tcase_add_test(tests, where_the_lowest_tier_can_never_hold_it_the_one_above_makes_room);
    tcase_add_test(tests, two_pools_with_free_bytes_in_each_but_room_in_none_evict);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
