/* The folders of the disk store: which are trusted, what is made in them, and nothing left behind. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/fault.h"
#include "spill/store.h"
#include "tests/store_fixture.h"

START_TEST(a_folder_named_twice_by_whatever_name_is_refused)
{
    char once[300], again[310];
    (void)snprintf(once, sizeof once, "%s/once", root);
    (void)snprintf(again, sizeof again, "%s/../once", once);
    const spw_spec_folder folders[] = {folder_of(once, MIB), folder_of(again, MIB)};
    ck_assert_int_eq(spw__store_create(folders, 2, &meta, &line_log, &store), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, again));
    ck_assert_ptr_null(store);
    ck_assert_int_eq(access(once, F_OK), -1); /* it was created for this, and is gone again */
}
END_TEST

START_TEST(the_file_has_no_name_and_only_its_owner_may_open_it)
{
    struct stat status;
    open_store(MIB);
    ck_assert_uint_eq(count_entries(root), 0);
    ck_assert_int_eq(fstat(spw__store_fd(store, 0), &status), 0);
    ck_assert_uint_eq(status.st_nlink, 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    ck_assert_int_eq(fcntl(spw__store_fd(store, 0), F_GETFD), FD_CLOEXEC);
    ck_assert_int_eq((fcntl(spw__store_fd(store, 0), F_GETFL) & O_DIRECT) != 0, spw__store_is_direct(store));
}
END_TEST

START_TEST(without_O_TMPFILE_a_named_file_is_unlinked_at_once)
{
    struct stat status;
    spw__fault_arm(SPW__FAULT_STORE_OPEN, 1, 1, EOPNOTSUPP);
    open_store(MIB);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_STORE_OPEN), 3);
    ck_assert_uint_eq(count_entries(root), 0);
    ck_assert_int_eq(fstat(spw__store_fd(store, 0), &status), 0);
    ck_assert_uint_eq(status.st_nlink, 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    (void)take(MIB);
}
END_TEST

START_TEST(a_refused_O_DIRECT_is_logged_and_done_without)
{
    spw__fault_arm(SPW__FAULT_STORE_OPEN, 2, 1, EINVAL);
    open_store(MIB);
    ck_assert(!spw__store_is_direct(store));
    ck_assert_int_eq(fcntl(spw__store_fd(store, 0), F_GETFL) & O_DIRECT, 0);
    ck_assert_uint_eq(log_lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, "O_DIRECT"));
    (void)take(MIB);
}
END_TEST

START_TEST(fault_STORE_OPEN_is_EIO_and_removes_the_folder_that_was_made)
{
    char paths[2][300];
    spw_spec_folder folders[2];
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/%u", root, i);
        folders[i] = folder_of(paths[i], MIB);
    }
    spw__fault_arm(SPW__FAULT_STORE_OPEN, 3, 1, EMFILE); /* two calls open the first folder's file */
    ck_assert_int_eq(spw__store_create(folders, 2, &meta, &line_log, &store), SPW_EIO);
    ck_assert_ptr_null(store);
    ck_assert_int_eq(spw_error_detail()->os_errno, EMFILE);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, paths[1]));
    ck_assert_uint_eq(count_entries(root), 0);
}
END_TEST

START_TEST(a_missing_folder_is_made_private_and_goes_with_the_store)
{
    char path[300];
    struct stat status;
    (void)snprintf(path, sizeof path, "%s/new", root);
    ck_assert_int_eq(create_in(path, MIB), SPW_OK);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0700);
    spw__store_destroy(store);
    ck_assert_uint_eq(count_entries(root), 0);

    /* Somebody's file in it keeps it; and a folder that was there before stays. */
    char file[320];
    (void)snprintf(file, sizeof file, "%s/file", path);
    ck_assert_int_eq(create_in(path, MIB), SPW_OK);
    const int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    spw__store_destroy(store);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(create_in(path, MIB), SPW_OK);
    spw__store_destroy(store);
    store = NULL;
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

static void expect_refused(const char *path, int code)
{
    ck_assert_int_eq(create_in(path, MIB), code);
    ck_assert_ptr_null(store);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, path));
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}

START_TEST(folders_that_cannot_be_used_are_refused_by_name)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/missing/new", root);
    expect_refused(path, SPW_EIO);
    (void)snprintf(path, sizeof path, "%s/file", root);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    expect_refused(path, SPW_EINVAL);
    (void)unlink(path);
    ck_assert_int_eq(spw__store_create(NULL, 0, &meta, &line_log, &store), SPW_EINVAL);
}
END_TEST

START_TEST(folders_that_others_can_write_to_are_refused_unless_sticky)
{
    static const mode_t refused[] = {0770, 0702, 0777};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(chmod(root, refused[i]), 0);
        expect_refused(root, SPW_EINVAL);
        ck_assert_int_eq(chmod(root, refused[i] | S_ISVTX), 0);
        open_store(MIB);
        spw__store_destroy(store);
        store = NULL;
    }
    ck_assert_int_eq(chmod(root, 0700), 0);
    if (geteuid() != 0) {
        (void)fprintf(stderr, "skipped without root: another user's folder\n");
        return;
    }
    ck_assert_int_eq(chown(root, 12345, 12345), 0);
    expect_refused(root, SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "12345"));
}
END_TEST

START_TEST(two_stores_share_a_folder)
{
    char path[300];
    struct spw__store *first;
    (void)snprintf(path, sizeof path, "%s/new", root);
    ck_assert_int_eq(create_in(path, 8 * MIB), SPW_OK);
    first = store;
    ck_assert_int_eq(create_in(path, 8 * MIB), SPW_OK);
    ck_assert_uint_eq(take(8 * MIB).offset, 0);
    spw__store_destroy(store);
    store = first;
    ck_assert_uint_eq(take(8 * MIB).offset, 0);
}
END_TEST

enum { PROCESSES = 6, ROUNDS = 300 };

/* What a child does once the others are there too: 0, or 1 when a store could not be made. */
static int make_and_remove(const char *path, int gate)
{
    char byte;
    (void)!read(gate, &byte, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (create_in(path, MIB) != SPW_OK) {
            (void)fprintf(stderr, "round %u: %s\n", i, spw_error_detail()->message);
            return 1;
        }
        spw__store_destroy(store);
    }
    return 0;
}

START_TEST(processes_that_make_and_remove_the_same_folder_do_not_disturb_each_other)
{
    char path[300];
    int gate[2];
    pid_t children[PROCESSES];
    (void)snprintf(path, sizeof path, "%s/new", root);
    ck_assert_int_eq(pipe(gate), 0);
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            (void)close(gate[1]);
            _exit(make_and_remove(path, gate[0]));
        }
    }
    (void)close(gate[0]);
    (void)close(gate[1]);
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    (void)rmdir(path); /* without O_TMPFILE a name of another's may have kept it */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_folder");
    TCase *tests = tcase_create("folders");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_folder_named_twice_by_whatever_name_is_refused);
    tcase_add_test(tests, the_file_has_no_name_and_only_its_owner_may_open_it);
    tcase_add_test(tests, without_O_TMPFILE_a_named_file_is_unlinked_at_once);
    tcase_add_test(tests, a_refused_O_DIRECT_is_logged_and_done_without);
    tcase_add_test(tests, fault_STORE_OPEN_is_EIO_and_removes_the_folder_that_was_made);
    tcase_add_test(tests, a_missing_folder_is_made_private_and_goes_with_the_store);
    tcase_add_test(tests, folders_that_cannot_be_used_are_refused_by_name);
    tcase_add_test(tests, folders_that_others_can_write_to_are_refused_unless_sticky);
    tcase_add_test(tests, two_stores_share_a_folder);
    tcase_add_test(tests, processes_that_make_and_remove_the_same_folder_do_not_disturb_each_other);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
