/* Errors and their detail, the log, and fault points. test_base.c has the other foundations.
 *
 * Each test runs in a process of its own (Check forks), so fault points stay where they were armed. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/log.h"

enum { THREADS = 4 };

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* Errors */

START_TEST(every_code_has_its_name_and_its_text)
{
    unsigned n = 0;
#define SPW_X(name, value, text)                                                                                       \
    ck_assert_str_eq(spw_error_name(value), "SPW_" #name);                                                             \
    ck_assert_str_eq(spw_strerror(SPW_##name), text);                                                                  \
    n++;
    SPW_ERROR_LIST(SPW_X)
#undef SPW_X
    ck_assert_uint_eq(n, 23);
    ck_assert_str_eq(spw_error_name(SPW_OK), "SPW_OK");
    ck_assert_str_eq(spw_strerror(SPW_OK), "success");
    ck_assert_str_eq(spw_error_name(-24), "SPW_E?");
    ck_assert_str_eq(spw_strerror(1), "unknown error");
}
END_TEST

START_TEST(tiers_have_the_names_of_the_statistics)
{
    static const char *const names[] = {"device", "pinned_host", "host", "disk", "meta"};
    for (int tier = 0; tier < SPW_TIER_COUNT; tier++)
        ck_assert_str_eq(spw_tier_name((spw_tier)tier), names[tier]);
    ck_assert_str_eq(spw_tier_name((spw_tier)5), "?");
    ck_assert_str_eq(spw_tier_name(SPW_PLACE_TIER(SPW_DISK)), "disk");
}
END_TEST

START_TEST(a_failure_replaces_every_field_of_the_detail)
{
    const spw_error_info info = {.code = 99, .place = SPW_HOST, .pool = 2, .requested_bytes = 3, .free_bytes = 4,
                                 .largest_free_bytes = 5, .limit_bytes = 6, .offset_bytes = 7, .os_errno = EIO};
    const spw_error_info *detail = spw_error_detail();
    ck_assert_int_eq(spw__fail_info(&info, SPW_ENOMEM, "no %s", "room"), SPW_ENOMEM);
    ck_assert_int_eq(detail->code, SPW_ENOMEM);
    ck_assert_uint_eq(detail->place, SPW_HOST);
    ck_assert_uint_eq(detail->largest_free_bytes, 5);
    ck_assert_int_eq(detail->os_errno, EIO);
    ck_assert_str_eq(detail->message, "no room");
    const spw_error_info kept = *detail;
    ck_assert_int_eq(spw__fail(SPW_EINVAL, "%d", 1), SPW_EINVAL);
    ck_assert_uint_eq(detail->place, SPW_PLACE_NONE);
    ck_assert_uint_eq(detail->requested_bytes, 0);
    ck_assert_int_eq(detail->os_errno, 0);
    ck_assert_str_eq(detail->message, "1");
    ck_assert_int_eq(spw__error_restore(&kept), SPW_ENOMEM);
    ck_assert_uint_eq(detail->limit_bytes, 6);
    ck_assert_str_eq(detail->message, "no room");
    ck_assert_int_eq(spw__fail_info(detail, SPW_EFRAG, "again"), SPW_EFRAG); /* its own detail may be passed on */
    ck_assert_uint_eq(detail->free_bytes, 4);
}
END_TEST

START_TEST(a_long_message_is_cut_and_terminated)
{
    const spw_error_info *detail = spw_error_detail();
    (void)spw__fail(SPW_EIO, "%01000d", 0);
    ck_assert_uint_eq(strlen(detail->message), sizeof detail->message - 1);
}
END_TEST

static void *fail_otherwise(void *arg)
{
    ck_assert_int_eq(spw_error_detail()->code, 0);
    (void)spw__fail(SPW_EBUSY, "thread %u", (unsigned)(uintptr_t)arg);
    ck_assert_int_eq(spw_error_detail()->code, SPW_EBUSY);
    return NULL;
}

START_TEST(each_thread_has_a_detail_of_its_own)
{
    (void)spw__fail(SPW_EIO, "mine");
    run_threads(fail_otherwise);
    ck_assert_int_eq(spw_error_detail()->code, SPW_EIO);
    ck_assert_str_eq(spw_error_detail()->message, "mine");
}
END_TEST

/* The log */

static int last_level;
static char last_line[600];

static void keep_line(void *arg, int level, const char *line)
{
    ck_assert_ptr_eq(arg, &last_level);
    last_level = level;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
}

START_TEST(the_log_callback_gets_every_level_and_a_cut_line)
{
    const struct spw__log log = {.fn = keep_line, .arg = &last_level};
    spw__logf(&log, SPW__LOG_DEBUG, "%u of %s", 3u, "these");
    ck_assert_int_eq(last_level, SPW__LOG_DEBUG);
    ck_assert_str_eq(last_line, "3 of these");
    spw__logf(&log, SPW__LOG_ERROR, "%0700d", 0);
    ck_assert_int_eq(last_level, SPW__LOG_ERROR);
    ck_assert_uint_eq(strlen(last_line), 511);
}
END_TEST

START_TEST(without_a_callback_warnings_go_to_stderr_and_the_rest_nowhere)
{
    char text[200] = "";
    const struct spw__log log = {.fn = NULL};
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    const int saved = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
    spw__logf(NULL, SPW__LOG_INFO, "nobody asked");
    spw__logf(NULL, SPW__LOG_WARN, "limit %d met", 5);
    spw__logf(&log, SPW__LOG_DEBUG, "nobody asked");
    spw__logf(&log, SPW__LOG_ERROR, "broken");
    (void)fflush(stderr);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    rewind(file);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
    ck_assert_str_eq(text, "spillway: limit 5 met\nspillway: broken\n");
    (void)fclose(file);
    (void)close(saved);
}
END_TEST

/* Fault points */

/* How the next n calls of a point end: one character each, '.' or 'x'. */
static const char *calls(enum spw__fault_point point, unsigned n)
{
    static char line[32];
    for (unsigned i = 0; i < n; i++)
        line[i] = spw__fault(point) ? 'x' : '.';
    line[n] = 0;
    return line;
}

START_TEST(a_fault_point_fails_from_the_nth_call_for_count_calls)
{
    ck_assert_str_eq(calls(SPW__FAULT_IO_WRITE, 4), "....");
    spw__fault_arm(SPW__FAULT_IO_WRITE, 3, 2, EIO);
    ck_assert_str_eq(calls(SPW__FAULT_IO_READ, 4), "....");
    ck_assert_str_eq(calls(SPW__FAULT_IO_WRITE, 7), "..xx...");
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_IO_WRITE), 7);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_IO_READ), 0);
}
END_TEST

START_TEST(count_zero_fails_for_ever_until_disarmed)
{
    spw__fault_arm(SPW__FAULT_HOST_MAP, 2, 0, ENOSPC);
    ck_assert_str_eq(calls(SPW__FAULT_HOST_MAP, 9), ".xxxxxxxx");
    ck_assert_int_eq(spw__fault(SPW__FAULT_HOST_MAP), ENOSPC);
    spw__fault_disarm(SPW__FAULT_HOST_MAP);
    ck_assert_str_eq(calls(SPW__FAULT_HOST_MAP, 3), "...");
}
END_TEST

START_TEST(arming_again_counts_from_one_with_the_new_errno)
{
    spw__fault_arm(SPW__FAULT_THREAD, 1, 1, EIO);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 0, ENOMEM);
    ck_assert_int_eq(spw__fault(SPW__FAULT_THREAD), EIO);
    spw__fault_arm(SPW__FAULT_THREAD, 2, 1, EAGAIN);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_THREAD), 0);
    ck_assert_int_eq(spw__fault(SPW__FAULT_THREAD), 0);
    ck_assert_int_eq(spw__fault(SPW__FAULT_THREAD), EAGAIN);
    ck_assert_int_eq(atomic_load(&spw__faults_armed), 2);
    spw__fault_disarm(SPW__FAULT_THREAD);
    spw__fault_disarm(SPW__FAULT_THREAD);
    ck_assert_int_eq(atomic_load(&spw__faults_armed), 1);
    ck_assert_int_eq(spw__fault(SPW__FAULT_DEVICE_COPY), ENOMEM); /* the others stay armed */
}
END_TEST

static _Atomic unsigned n_failed;

static void *call_often(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 1000; i++)
        n_failed += spw__fault(SPW__FAULT_IO_SUBMIT) != 0;
    return NULL;
}

START_TEST(of_many_threads_exactly_count_calls_fail)
{
    spw__fault_arm(SPW__FAULT_IO_SUBMIT, 100, 50, EIO);
    run_threads(call_often);
    ck_assert_uint_eq(n_failed, 50);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_IO_SUBMIT), THREADS * 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("error");
    tcase_add_test(tcase, a_fault_point_fails_from_the_nth_call_for_count_calls);
    tcase_add_test(tcase, count_zero_fails_for_ever_until_disarmed);
    tcase_add_test(tcase, arming_again_counts_from_one_with_the_new_errno);
    tcase_add_test(tcase, of_many_threads_exactly_count_calls_fail);
    tcase_add_test(tcase, every_code_has_its_name_and_its_text);
    tcase_add_test(tcase, tiers_have_the_names_of_the_statistics);
    tcase_add_test(tcase, a_failure_replaces_every_field_of_the_detail);
    tcase_add_test(tcase, a_long_message_is_cut_and_terminated);
    tcase_add_test(tcase, each_thread_has_a_detail_of_its_own);
    tcase_add_test(tcase, the_log_callback_gets_every_level_and_a_cut_line);
    tcase_add_test(tcase, without_a_callback_warnings_go_to_stderr_and_the_rest_nowhere);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
