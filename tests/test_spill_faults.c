/* Spills and reloads that fail: what the caller is told, and that source, counters and place in the queue of victims
 * stay as they were (invariants 2 and 8). Neighbour: test_spill.c. */
#include "tests/manager_fixture.h"

#include <sys/stat.h>

static const char *const modes[] = {"io=auto", "io=threads", "io=threads; threads=0"};
enum { MODES = sizeof modes / sizeof modes[0] };

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

static void open_with(const char *format, const char *mode)
{
    char spec[512];
    (void)snprintf(spec, sizeof spec, "%s; %s", format, mode);
    open_manager(spec);
}

/* The request fails with code, and nothing has changed but counters of events. */
static void fails_and_changes_nothing(spw_place place, size_t bytes, int code)
{
    spw_buffer *none = (spw_buffer *)(void *)folder;
    (void)tier_now(SPW_TIER_HOST);
    const spw_stats before = stats;
    const int rc = spw_alloc(manager, place, bytes, NULL, &none);
    ck_assert_msg(rc == code, "alloc: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_ptr_null(none);
    for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_DISK; tier++)
        ck_assert_uint_eq(committed(tier), before.tiers[tier].committed_bytes);
    ck_assert_uint_eq(stats.tiers[SPW_PLACE_TIER(place)].spill_bytes, before.tiers[SPW_PLACE_TIER(place)].spill_bytes);
    ck_assert_uint_eq(stats.buffers, before.buffers);
}

START_TEST(a_full_disk_is_enospc_with_the_source_intact_until_room_appears)
{
    open_with("host=1088K; staging=64K; piece=128K; disk=%s:512K", modes[_i]);
    spw_buffer *first = must_make(SPW_HOST, 512 * KIB, 1), *second = must_make(SPW_HOST, 512 * KIB, 2);
    spw_buffer *third = must_make(SPW_HOST, 512 * KIB, 3); /* the first is on disk, which is full */
    fails_and_changes_nothing(SPW_HOST, 512 * KIB, SPW_ENOSPC);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DISK);
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, 512 * KIB);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "disk="));
    ck_assert_uint_ge(stats.spill_failures, 1);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].committed_bytes, 512 * KIB);
    check_at(second, SPW_HOST, 2);
    check_at(third, SPW_HOST, 3);
    must_release(first);
    spw_buffer *fourth = must_make(SPW_HOST, 512 * KIB, 4);
    check_at(fourth, SPW_HOST, 4);
    must_release(third);
    check_at(second, SPW_HOST, 2);
    must_release(second);
    must_release(fourth);
    close_manager();
}
END_TEST

START_TEST(a_file_system_that_is_full_is_enospc_and_heals)
{
    open_with(SMALL_HOST, modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    fails_and_changes_nothing(SPW_HOST, 512 * KIB, SPW_ENOSPC);
    ck_assert_int_eq(spw_error_detail()->os_errno, ENOSPC);
    ck_assert_uint_eq(stats.disk_allocated_bytes, 0);
    spw__fault_disarm(SPW__FAULT_STORE_SPACE);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_full_disk_does_not_stop_what_still_fits_in_lower_memory)
{
    spw_buffer *small[14], *asked;
    open_manager("device=1M; host=1M; staging=64K; piece=128K; disk=%s:16M; driver=sim");
    spw_buffer *rest = must_alloc(SPW_HOST, 868 * KIB), *large = must_make(SPW_DEVICE, 128 * KIB, 99);
    for (unsigned i = 0; i < 14; i++)
        small[i] = must_make(SPW_DEVICE, 64 * KIB, i);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    ck_assert_int_eq(alloc_within(SPW_DEVICE, 64 * KIB, SPW_TIMEOUT_INFINITE, &asked), SPW_OK);
    ck_assert_uint_ge((tier_now(SPW_TIER_HOST), stats.spill_failures), 1);
    ck_assert_uint_eq(spw_buffer_place(large), SPW_DEVICE);
    ck_assert_uint_eq(spw_buffer_place(small[0]), SPW_HOST);
    fails_and_changes_nothing(SPW_DEVICE, 128 * KIB, SPW_ENOSPC);
    spw__fault_disarm(SPW__FAULT_STORE_SPACE);
    must_release(asked);
    push_out(SPW_DEVICE, MIB); /* nothing is left out for ever */
    check_at(large, SPW_DEVICE, 99);
    for (unsigned i = 0; i < 14; i++) {
        check_at(small[i], SPW_DEVICE, i);
        must_release(small[i]);
    }
    must_release(large);
    must_release(rest);
    close_manager();
}
END_TEST

START_TEST(metadata_that_a_spill_lacks_is_named_as_the_spills)
{
    spw_buffer *none;
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(alloc_within(SPW_HOST, 512 * KIB, SPW_TIMEOUT_INFINITE, &none), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_msg(strstr(spw_error_detail()->message, "spill file") != NULL, "%s", spw_error_detail()->message);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_failure_that_nobody_waited_for_is_not_held_against_the_next_request)
{
    spw_buffer *none;
    open_with(SMALL_HOST, "io=threads; threads=0");
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    ck_assert_int_eq(alloc_within(SPW_HOST, MIB, 0, &none), SPW_ENOMEM);
    while (spw_progress(manager, 1000000) == 1) { /* fails after its requester left */
    }
    ck_assert_uint_ge((tier_now(SPW_TIER_HOST), stats.spill_failures), 1);
    spw__fault_disarm(SPW__FAULT_STORE_SPACE);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

static void make_two_folders(char *spec, size_t size)
{
    char path[300];
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%u", folder, i);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    (void)snprintf(spec, size, "host=1088K; staging=64K; piece=128K; disk=%%s/0:8M,%%s/1:8M");
}

static void remove_two_folders(void)
{
    char path[300];
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%u", folder, i);
        ck_assert_int_eq(rmdir(path), 0);
    }
}

START_TEST(a_write_that_fails_in_one_folder_goes_to_the_next)
{
    char spec[256];
    make_two_folders(spec, sizeof spec);
    open_with(spec, modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1), *rest = must_alloc(SPW_HOST, 896 * KIB);
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 1, EIO);
    spw_buffer *next = must_alloc(SPW_HOST, 128 * KIB);
    ck_assert_int_ge(spw__fault_calls(SPW__FAULT_IO_WRITE), 2);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 128 * KIB); /* the failed extent was given back */
    ck_assert_uint_eq(stats.spill_failures, 0);
    ck_assert_int_eq(logged.level, SPW__LOG_WARN);
    ck_assert_ptr_nonnull(strstr(logged.last, "write failed"));
    must_release(next);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    must_release(rest);
    close_manager();
    remove_two_folders();
}
END_TEST

START_TEST(a_write_that_fails_in_every_folder_is_eio_with_the_data_intact)
{
    char spec[256];
    make_two_folders(spec, sizeof spec);
    open_with(spec, modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 0, EIO);
    fails_and_changes_nothing(SPW_HOST, 512 * KIB, SPW_EIO);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DISK);
    ck_assert_int_eq(spw_error_detail()->os_errno, EIO);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, folder));
    ck_assert_uint_ge(stats.spill_failures, 1);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    check_at(buffer, SPW_HOST, 1);
    spw__fault_disarm(SPW__FAULT_IO_WRITE);
    push_out(SPW_HOST, MIB); /* a failed write does not stick to its buffer */
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
    remove_two_folders();
}
END_TEST

START_TEST(a_victim_that_failed_is_left_out_of_the_round_and_keeps_its_place)
{
    spw_buffer *buffers[8];
    open_with(SMALL_HOST, "io=threads; threads=0");
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 128 * KIB, i);
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 1, EIO);
    spw_buffer *next = must_alloc(SPW_HOST, 128 * KIB);
    for (unsigned i = 0; i < 8; i++) /* the coldest could not be written, so the second went */
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i == 1 ? SPW_DISK : SPW_HOST);
    ck_assert_uint_eq((tier_now(SPW_TIER_HOST), stats.spill_failures), 1);
    spw_buffer *another = must_alloc(SPW_HOST, 128 * KIB);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i <= 1 ? SPW_DISK : SPW_HOST);
    must_release(next);
    must_release(another);
    for (unsigned i = 0; i < 8; i++) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(invariant_8_a_flipped_bit_is_ecorrupt_on_that_buffer_alone)
{
    spw_view view;
    open_with(SMALL_HOST, modes[_i]);
    spw_buffer *bad = must_make(SPW_HOST, 300 * KIB, 1), *good = must_make(SPW_HOST, 300 * KIB, 2);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_FLIP, 2, 1, EIO);
    ck_assert_int_eq(spw_map(bad, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_ECORRUPT);
    spw__fault_disarm(SPW__FAULT_IO_FLIP);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DISK);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, folder));
    ck_assert_uint_eq((tier_now(SPW_TIER_HOST), stats.corrupt_pieces), 1);
    check_at(good, SPW_HOST, 2);
    ck_assert_int_eq(spw_map(bad, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_ECORRUPT); /* it is lost for good */
    ck_assert_int_eq(spw_map(bad, SPW_HOST, SPW_MAP_READ | SPW_MAP_HERE, NULL, &view), SPW_ECORRUPT);
    push_out(SPW_HOST, MIB);
    check_at(good, SPW_HOST, 2);
    must_release(bad);
    must_release(good);
    close_manager();
}
END_TEST

START_TEST(a_read_that_fails_is_eio_and_can_be_tried_again)
{
    spw_view view;
    open_with(SMALL_HOST, modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_READ, 2, 1, EIO);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_EIO);
    spw__fault_disarm(SPW__FAULT_IO_READ);
    ck_assert_ptr_null(view.data);
    ck_assert_int_eq(spw_error_detail()->os_errno, EIO);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(short_transfers_are_continued)
{
    open_with(SMALL_HOST, modes[_i]);
    spw__fault_arm(SPW__FAULT_IO_SHORT, 1, 0, EIO);
    spw_buffer *large = must_make(SPW_HOST, 700 * KIB + 5, 1), *small = must_make(SPW_HOST, 5000, 2);
    push_out(SPW_HOST, MIB);
    check_at(large, SPW_HOST, 1);
    check_at(small, SPW_HOST, 2);
    ck_assert_int_gt(spw__fault_calls(SPW__FAULT_IO_SHORT), 2);
    spw__fault_disarm(SPW__FAULT_IO_SHORT);
    must_release(large);
    must_release(small);
    close_manager();
}
END_TEST

START_TEST(a_transfer_that_cannot_be_submitted_fails_like_one_that_failed)
{
    spw_view view;
    open_with(SMALL_HOST, modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_IO_SUBMIT, 1, 0, EIO);
    fails_and_changes_nothing(SPW_HOST, 512 * KIB, SPW_EIO);
    spw__fault_disarm(SPW__FAULT_IO_SUBMIT);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_SUBMIT, 1, 1, EIO);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_EIO);
    spw__fault_disarm(SPW__FAULT_IO_SUBMIT);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

static const enum spw__fault_point device_points[] = {SPW__FAULT_DEVICE_COPY, SPW__FAULT_DEVICE_EVENT};

/* From the device down: to host memory (_i 0, 1), or through staging to disk (_i 2, 3). */
START_TEST(a_device_that_fails_while_spilling_leaves_the_source)
{
    open_with("device=1M; host=1088K; staging=64K; piece=128K; disk=%s:8M; driver=sim", "threads=1");
    spw_buffer *full = _i < 2 ? NULL : must_alloc(SPW_HOST, MIB);
    spw_buffer *buffer = must_make(SPW_DEVICE, MIB, 1);
    spw__fault_arm(device_points[_i % 2], 1, 0, EIO);
    fails_and_changes_nothing(SPW_DEVICE, 512 * KIB, SPW_EDEVICE);
    spw__fault_disarm(device_points[_i % 2]);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DEVICE);
    ck_assert_uint_ge(stats.spill_failures, 1);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DEVICE);
    check_at(buffer, SPW_DEVICE, 1);
    push_out(SPW_DEVICE, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), full ? SPW_DISK : SPW_HOST);
    check_at(buffer, SPW_DEVICE, 1);
    must_release(buffer);
    must_release(full);
    close_manager();
}
END_TEST

START_TEST(a_device_that_fails_while_loading_leaves_the_source)
{
    spw_view view;
    open_with("device=1M; host=1088K; staging=64K; piece=128K; disk=%s:8M; driver=sim", "threads=1");
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned on_disk = 0; on_disk < 2; on_disk++) {
            if (on_disk)
                push_out(SPW_HOST, MIB);
            else
                check_at(buffer, SPW_HOST, 1);
            const uint64_t host = committed(SPW_TIER_HOST);
            spw__fault_arm(device_points[i], 1, 0, EIO);
            ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
            spw__fault_disarm(device_points[i]);
            ck_assert_ptr_null(view.data);
            ck_assert_uint_eq(spw_buffer_place(buffer), on_disk ? SPW_DISK : SPW_HOST);
            comes_to(SPW_TIER_DEVICE, 0);
            comes_to(SPW_TIER_HOST, host);
        }
        check_at(buffer, SPW_DEVICE, 1);
    }
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(writing_into_a_buffer_on_a_device_that_fails_is_edevice)
{
    open_with("device=1M; host=1M; driver=sim", "threads=1");
    spw_buffer *buffer = must_alloc(SPW_DEVICE, 1000);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, EIO);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, folder, sizeof folder), SPW_EDEVICE);
    write_content(buffer, 1); /* nothing was left mapped */
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    check_at(buffer, SPW_DEVICE, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_destroy_gives_back_what_failed_spills_and_lost_buffers_held)
{
    spw_view view;
    open_with(SMALL_HOST, "io=threads");
    spw_buffer *lost = must_make(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_FLIP, 1, 0, EIO);
    ck_assert_int_eq(spw_map(lost, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_ECORRUPT);
    spw__fault_disarm(SPW__FAULT_IO_FLIP);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 300 * KIB);
    spw_manager_destroy_force(manager); /* the leak checker and the folder tell */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spill_faults");
    TCase *tests = tcase_create("faults");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_full_disk_is_enospc_with_the_source_intact_until_room_appears, 0, MODES);
    tcase_add_loop_test(tests, a_file_system_that_is_full_is_enospc_and_heals, 0, MODES);
    tcase_add_test(tests, a_full_disk_does_not_stop_what_still_fits_in_lower_memory);
    tcase_add_test(tests, metadata_that_a_spill_lacks_is_named_as_the_spills);
    tcase_add_test(tests, a_failure_that_nobody_waited_for_is_not_held_against_the_next_request);
    tcase_add_loop_test(tests, a_write_that_fails_in_one_folder_goes_to_the_next, 0, MODES);
    tcase_add_loop_test(tests, a_write_that_fails_in_every_folder_is_eio_with_the_data_intact, 0, MODES);
    tcase_add_test(tests, a_victim_that_failed_is_left_out_of_the_round_and_keeps_its_place);
    tcase_add_loop_test(tests, invariant_8_a_flipped_bit_is_ecorrupt_on_that_buffer_alone, 0, MODES);
    tcase_add_loop_test(tests, a_read_that_fails_is_eio_and_can_be_tried_again, 0, MODES);
    tcase_add_loop_test(tests, short_transfers_are_continued, 0, MODES);
    tcase_add_loop_test(tests, a_transfer_that_cannot_be_submitted_fails_like_one_that_failed, 0, MODES);
    tcase_add_loop_test(tests, a_device_that_fails_while_spilling_leaves_the_source, 0, 4);
    tcase_add_test(tests, a_device_that_fails_while_loading_leaves_the_source);
    tcase_add_test(tests, writing_into_a_buffer_on_a_device_that_fails_is_edevice);
    tcase_add_test(tests, a_destroy_gives_back_what_failed_spills_and_lost_buffers_held);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
