/* The disk store: space, quota, growth, and nothing left behind. Neighbour: test_store_folder.c. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/fault.h"
#include "spill/store.h"
#include "tests/store_fixture.h"

static void expect_no_space(uint64_t bytes)
{
    struct spw__extent extent = {.bytes = 77};
    const uint64_t committed = spw__ledger_committed(&group, SPW_TIER_DISK);
    const uint64_t file_bytes = spw__store_file_bytes(store);
    ck_assert_int_eq(spw__store_alloc(store, &group, bytes, 0, &extent), SPW_ENOSPC);
    ck_assert_uint_eq(extent.bytes, 77);
    ck_assert_uint_eq(spw__ledger_committed(&group, SPW_TIER_DISK), committed);
    ck_assert_uint_eq(spw__store_file_bytes(store), file_bytes);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DISK);
}

static uint64_t allocated_bytes(void)
{
    struct stat status;
    ck_assert_int_eq(fstat(spw__store_fd(store, 0), &status), 0);
    return (uint64_t)status.st_blocks * 512;
}

START_TEST(extents_are_whole_blocks_and_do_not_overlap)
{
    open_store(64 * MIB);
    ck_assert_uint_ge(spw__store_block_bytes(store), BLOCK);
    const struct spw__extent a = take(1);
    const struct spw__extent b = take(5000);
    ck_assert_uint_eq(a.bytes, spw__store_block_bytes(store));
    ck_assert_uint_eq(a.bytes % spw__store_block_bytes(store), 0);
    ck_assert_uint_eq(a.offset, 0);
    ck_assert_uint_eq(b.offset, a.bytes);
    ck_assert_uint_eq(spw__ledger_committed(&group, SPW_TIER_DISK), a.bytes + b.bytes);
    spw__store_free(store, &a);
    spw__store_free(store, &b);
    ck_assert_uint_eq(spw__ledger_committed(&group, SPW_TIER_DISK), 0);
    struct spw__extent none;
    ck_assert_int_eq(spw__store_alloc(store, &group, 0, 0, &none), SPW_EINVAL);
    ck_assert_int_eq(spw__store_alloc(store, &group, UINT64_MAX, 0, &none), SPW_EINVAL);
}
END_TEST

START_TEST(freed_extents_are_reused_lowest_first)
{
    struct spw__extent extents[8];
    open_store(64 * MIB);
    for (unsigned i = 0; i < 8; i++) {
        extents[i] = take(MIB);
        ck_assert_uint_eq(extents[i].offset, i * MIB);
    }
    const uint64_t file_bytes = spw__store_file_bytes(store);
    spw__store_free(store, &extents[6]);
    spw__store_free(store, &extents[2]);
    spw__store_free(store, &extents[4]);
    ck_assert_uint_eq(take(MIB).offset, 2 * MIB);
    ck_assert_uint_eq(take(MIB).offset, 4 * MIB);
    ck_assert_uint_eq(take(MIB).offset, 6 * MIB);
    ck_assert_uint_eq(take(MIB).offset, 8 * MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), file_bytes);
}
END_TEST

START_TEST(the_quota_holds_to_the_block_and_the_message_names_the_folder)
{
    open_store(10 * MIB + 100);
    ck_assert_uint_eq(spw__store_quota(store), 10 * MIB);
    expect_no_space(10 * MIB + 1);
    const struct spw__extent first = take(4 * MIB);
    (void)take(6 * MIB);
    expect_no_space(1);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, root));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "quota"));
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, 10 * MIB);
    ck_assert_uint_eq(spw_error_detail()->free_bytes, 0);
    ck_assert_uint_eq(spw__store_file_bytes(store), 10 * MIB);
    spw__store_free(store, &first);
    ck_assert_uint_eq(take(4 * MIB).offset, 0);
}
END_TEST

START_TEST(the_gate_refuses_before_the_file_grows)
{
    atomic_store(&group.gates[SPW_TIER_DISK].budget, 2 * MIB);
    open_store(64 * MIB);
    (void)take(MIB);
    expect_no_space(2 * MIB);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "budget"));
    (void)take(MIB);
}
END_TEST

START_TEST(quota_zero_is_what_the_file_system_has_free)
{
    open_store(0);
    ck_assert_uint_gt(spw__store_quota(store), 0);
    ck_assert_uint_eq(spw__store_quota(store) % BLOCK, 0);
    (void)take(MIB);
}
END_TEST

START_TEST(growth_claims_little_at_first_and_doubles)
{
    open_store(4096 * MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), 0);
    (void)take(1);
    ck_assert_uint_eq(spw__store_file_bytes(store), 64 * MIB);
    ck_assert_uint_ge(allocated_bytes(), 64 * MIB);
    (void)take(64 * MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), (64 + 128) * MIB);
    (void)take(600 * MIB); /* a request above the step is served as it is */
    ck_assert_uint_eq(spw__store_file_bytes(store), BLOCK + (64 + 600) * MIB);
}
END_TEST

START_TEST(growth_stops_at_the_quota)
{
    open_store(100 * MIB);
    (void)take(64 * MIB);
    (void)take(1);
    ck_assert_uint_eq(spw__store_file_bytes(store), 100 * MIB);
}
END_TEST

START_TEST(the_folder_with_most_room_is_taken_unless_left_out)
{
    char paths[3][300];
    spw_spec_folder folders[3];
    struct spw__extent extent;
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/%u", root, i);
        folders[i] = folder_of(paths[i], (i + 1) * 4 * MIB);
    }
    ck_assert_int_eq(spw__store_create(folders, 3, &meta, &line_log, &store), SPW_OK);
    ck_assert_uint_eq(spw__store_quota(store), 24 * MIB);
    ck_assert_str_eq(spw__store_path(store, 1), paths[1]);
    ck_assert_uint_eq(take(MIB).folder, 2);
    ck_assert_int_eq(spw__store_alloc(store, &group, MIB, 1u << 2, &extent), SPW_OK);
    ck_assert_uint_eq(extent.folder, 1);
    ck_assert_int_eq(spw__store_alloc(store, &group, 5 * MIB, 6, &extent), SPW_ENOSPC);
    ck_assert_int_eq(spw__store_alloc(store, &group, MIB, 7, &extent), SPW_ENOSPC);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "left out"));
    /* Each is filled to its last byte before the store gives up. */
    for (unsigned i = 0; i < 22; i++)
        (void)take(MIB);
    expect_no_space(1);
}
END_TEST

START_TEST(fault_STORE_SPACE_on_a_large_step_falls_back_to_the_smallest)
{
    open_store(1024 * MIB);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 1, ENOSPC);
    (void)take(MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), MIB);
    (void)take(MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), 65 * MIB);
}
END_TEST

START_TEST(fault_STORE_SPACE_leaves_the_file_as_it_was_and_later_room_is_used)
{
    open_store(1024 * MIB);
    const struct spw__extent extent = take(64 * MIB);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    expect_no_space(MIB);
    ck_assert_int_eq(spw_error_detail()->os_errno, ENOSPC);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, root));
    ck_assert_uint_eq(spw__store_file_bytes(store), 64 * MIB);
    spw__store_free(store, &extent);
    (void)take(MIB); /* what the file has is there all the time */
    (void)take(63 * MIB);
    expect_no_space(MIB);
    spw__fault_disarm(SPW__FAULT_STORE_SPACE);
    (void)take(MIB);
}
END_TEST

START_TEST(a_step_that_fails_half_way_gives_its_blocks_back)
{
    open_store(8192 * MIB);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 2, 0, ENOSPC); /* the second GiB of a growth by 1.5 GiB */
    expect_no_space(1536 * MIB);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_STORE_SPACE), 2);
    ck_assert_uint_eq(allocated_bytes(), 0);
    ck_assert_int_eq(lseek(spw__store_fd(store, 0), 0, SEEK_END), 0);
}
END_TEST

START_TEST(fault_STORE_SPACE_in_one_folder_goes_to_the_next)
{
    char paths[2][300];
    spw_spec_folder folders[2];
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/%u", root, i);
        folders[i] = folder_of(paths[i], (2 - i) * 100 * MIB);
    }
    ck_assert_int_eq(spw__store_create(folders, 2, &meta, &line_log, &store), SPW_OK);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 2, ENOSPC);
    ck_assert_uint_eq(take(MIB).folder, 1);
    ck_assert_uint_eq(take(MIB).folder, 0);
}
END_TEST

START_TEST(without_fallocate_the_file_grows_all_the_same)
{
    open_store(1024 * MIB);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 1, EOPNOTSUPP);
    (void)take(MIB);
    ck_assert_uint_eq(spw__store_file_bytes(store), 64 * MIB);
    ck_assert_uint_eq(allocated_bytes(), 0);
    ck_assert_int_eq(lseek(spw__store_fd(store, 0), 0, SEEK_END), 64 * MIB);
    ck_assert_uint_eq(log_lines, 1);
    (void)take(64 * MIB);
    ck_assert_uint_eq(log_lines, 1);
}
END_TEST

START_TEST(alloc_without_metadata_memory_is_ENOMETA_and_leaves_no_block)
{
    struct spw__extent extent;
    open_store(1024 * MIB);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(spw__store_alloc(store, &group, MIB, 0, &extent), SPW_ENOMETA);
    ck_assert_uint_eq(allocated_bytes(), 0);
    ck_assert_uint_eq(spw__store_file_bytes(store), 0);
    ck_assert_uint_eq(spw__ledger_committed(&group, SPW_TIER_DISK), 0);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    (void)take(MIB);
}
END_TEST

START_TEST(create_fails_cleanly_at_every_metadata_allocation)
{
    char path[300];
    int rc = SPW_ENOMETA;
    long nth;
    (void)snprintf(path, sizeof path, "%s/new", root);
    for (nth = 1; rc != SPW_OK; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        rc = create_in(path, MIB);
        if (rc != SPW_OK) {
            ck_assert_int_eq(rc, SPW_ENOMETA);
            ck_assert_ptr_null(store);
            ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
            ck_assert_uint_eq(count_entries(root), 0);
        }
    }
    ck_assert_int_ge(nth, 3);
}
END_TEST

/* A file system of bytes that goes with this process; false where that is not allowed. */
static bool mount_small(const char *path, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", path, "tmpfs", 0, options) != 0) {
        (void)fprintf(stderr, "skipped without the right to mount: a full file system\n");
        return false;
    }
    return true;
}

static unsigned take_all(uint64_t bytes)
{
    struct spw__extent extent;
    unsigned n = 0;
    while (spw__store_alloc(store, &group, bytes, 0, &extent) == SPW_OK)
        n++;
    ck_assert_int_eq(spw_error_detail()->code, SPW_ENOSPC);
    ck_assert_int_eq(spw_error_detail()->os_errno, ENOSPC);
    return n;
}

START_TEST(a_full_file_system_is_left_as_full_as_it_was_and_later_room_is_used)
{
    char path[300];
    char filler[320];
    (void)snprintf(path, sizeof path, "%s/small", root);
    (void)snprintf(filler, sizeof filler, "%s/filler", path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    if (mount_small(path, "size=8m,mode=0700")) {
        const int fd = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        ck_assert_int_eq(posix_fallocate(fd, 0, 3 * (off_t)MIB), 0);
        ck_assert_int_eq(create_in(path, 64 * MIB), SPW_OK);
        ck_assert_uint_eq(take_all(MIB), 5);
        ck_assert_uint_eq(allocated_bytes(), 5 * MIB);
        ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, path));
        (void)close(fd);
        ck_assert_int_eq(unlink(filler), 0);
        ck_assert_uint_eq(take_all(MIB), 3);
        ck_assert_uint_eq(take_all(BLOCK), 0);
        spw__store_destroy(store);
        store = NULL;
        ck_assert_uint_eq(count_entries(path), 0);
        ck_assert_int_eq(umount(path), 0);
    }
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

static atomic_uint owners[64]; /* atomic: per MiB of the file, how many hold it */

static void give_back(struct spw__extent *extent)
{
    ck_assert_uint_eq(atomic_fetch_sub(&owners[extent->offset / MIB], 1), 1);
    spw__store_free(store, extent);
    extent->bytes = 0;
}

static void *churn_main(void *arg)
{
    unsigned state = *(unsigned *)arg;
    struct spw__extent held[4] = {{0}};
    for (unsigned i = 0; i < 2000; i++) {
        struct spw__extent *extent = &held[(state >> 16) % 4];
        state = state * 1664525u + 1013904223u;
        if (extent->bytes)
            give_back(extent);
        else if (spw__store_alloc(store, &group, MIB, 0, extent) == SPW_OK)
            ck_assert_uint_eq(atomic_fetch_add(&owners[extent->offset / MIB], 1), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        if (held[i].bytes)
            give_back(&held[i]);
    return NULL;
}

START_TEST(threads_never_get_the_same_space)
{
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};
    open_store(12 * MIB); /* less than the threads could hold */
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn_main, &seeds[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(spw__ledger_committed(&group, SPW_TIER_DISK), 0);
    ck_assert_uint_le(spw__store_file_bytes(store), 12 * MIB);
    (void)take(12 * MIB);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tests = tcase_create("space");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, extents_are_whole_blocks_and_do_not_overlap);
    tcase_add_test(tests, freed_extents_are_reused_lowest_first);
    tcase_add_test(tests, the_quota_holds_to_the_block_and_the_message_names_the_folder);
    tcase_add_test(tests, the_gate_refuses_before_the_file_grows);
    tcase_add_test(tests, quota_zero_is_what_the_file_system_has_free);
    tcase_add_test(tests, growth_claims_little_at_first_and_doubles);
    tcase_add_test(tests, growth_stops_at_the_quota);
    tcase_add_test(tests, the_folder_with_most_room_is_taken_unless_left_out);
    tcase_add_test(tests, fault_STORE_SPACE_on_a_large_step_falls_back_to_the_smallest);
    tcase_add_test(tests, fault_STORE_SPACE_leaves_the_file_as_it_was_and_later_room_is_used);
    tcase_add_test(tests, a_step_that_fails_half_way_gives_its_blocks_back);
    tcase_add_test(tests, fault_STORE_SPACE_in_one_folder_goes_to_the_next);
    tcase_add_test(tests, without_fallocate_the_file_grows_all_the_same);
    tcase_add_test(tests, alloc_without_metadata_memory_is_ENOMETA_and_leaves_no_block);
    tcase_add_test(tests, create_fails_cleanly_at_every_metadata_allocation);
    tcase_add_test(tests, a_full_file_system_is_left_as_full_as_it_was_and_later_room_is_used);
    tcase_add_test(tests, threads_never_get_the_same_space);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
