/* The foundations: lock ranks, the gate, metadata memory, fault points, counters, errors and the log.
 *
 * Each test runs in a process of its own (Check forks), so fault points stay where they were armed. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/counters.h"
#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/gate.h"
#include "pool/base/lock.h"
#include "pool/base/log.h"
#include "pool/base/meta.h"

enum { THREADS = 4 };

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* Locks */

static struct spw__mutex outer, middle, inner;

static void setup_locks(void)
{
    spw__mutex_init(&outer, SPW__RANK_PAYLOAD);
    spw__mutex_init(&middle, SPW__RANK_WAIT);
    spw__mutex_init(&inner, SPW__RANK_POOL);
}

START_TEST(locks_may_be_taken_by_rising_rank_and_released_in_any_order)
{
    spw__mutex_lock(&outer);
    spw__mutex_lock(&middle);
    spw__mutex_unlock(&outer);
    spw__mutex_lock(&inner);
    spw__mutex_assert_held(&middle);
    spw__mutex_assert_held(&inner);
    spw__mutex_unlock(&middle);
    spw__mutex_unlock(&inner);
    spw__mutex_lock(&outer); /* nothing is remembered as held */
    spw__mutex_unlock(&outer);
}
END_TEST

static bool ready;

static void *make_ready(void *arg)
{
    struct spw__cond *cond = arg;
    spw__mutex_lock(&middle);
    ready = true;
    spw__cond_signal(cond);
    spw__mutex_unlock(&middle);
    return NULL;
}

START_TEST(a_wait_on_a_condition_gives_the_lock_away_and_holds_it_again)
{
    struct spw__cond cond;
    pthread_t thread;
    spw__cond_init(&cond);
    spw__mutex_lock(&middle);
    ck_assert_int_eq(spw__cond_wait(&cond, &middle, 1), ETIMEDOUT);
    spw__mutex_assert_held(&middle);
    ck_assert_int_eq(pthread_create(&thread, NULL, make_ready, &cond), 0);
    while (!ready)
        ck_assert_int_eq(spw__cond_wait(&cond, &middle, -1), 0);
    spw__mutex_assert_held(&middle);
    spw__mutex_lock(&inner);
    spw__mutex_unlock(&inner);
    spw__mutex_unlock(&middle);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    spw__cond_finish(&cond);
}
END_TEST

#ifndef NDEBUG
START_TEST(a_lock_of_a_lower_rank_aborts)
{
    spw__mutex_lock(&inner);
    spw__mutex_lock(&middle);
}
END_TEST

START_TEST(a_second_lock_of_the_same_rank_aborts)
{
    struct spw__mutex other;
    spw__mutex_init(&other, SPW__RANK_WAIT);
    spw__mutex_lock(&middle);
    spw__mutex_lock(&other);
}
END_TEST

START_TEST(a_lower_rank_aborts_after_the_higher_was_not_the_last_released)
{
    spw__mutex_lock(&outer);
    spw__mutex_lock(&inner);
    spw__mutex_unlock(&outer);
    spw__mutex_lock(&middle);
}
END_TEST

START_TEST(unlocking_what_is_not_held_aborts)
{
    spw__mutex_unlock(&middle);
}
END_TEST

static void *assert_held(void *arg)
{
    spw__mutex_assert_held(arg);
    return NULL;
}

START_TEST(a_lock_held_by_another_thread_does_not_count)
{
    pthread_t thread;
    spw__mutex_lock(&middle);
    ck_assert_int_eq(pthread_create(&thread, NULL, assert_held, &middle), 0);
    (void)pthread_join(thread, NULL);
}
END_TEST
#endif

/* The gate */

static struct spw__gate gate;

START_TEST(the_gate_admits_up_to_its_budget_to_the_byte)
{
    spw__gate_init(&gate, 100);
    ck_assert(spw__gate_commit(&gate, 60));
    ck_assert(!spw__gate_commit(&gate, 41));
    ck_assert(!spw__gate_commit(&gate, UINT64_MAX)); /* no sum wraps */
    ck_assert_uint_eq(atomic_load(&gate.committed), 60);
    ck_assert_uint_eq(spw__gate_free(&gate), 40);
    ck_assert(spw__gate_commit(&gate, 40));
    ck_assert_uint_eq(spw__gate_free(&gate), 0);
    ck_assert(!spw__gate_commit(&gate, 1));
    spw__gate_uncommit(&gate, 100);
    ck_assert_uint_eq(atomic_load(&gate.committed), 0);
}
END_TEST

START_TEST(the_peak_is_the_highest_that_was_granted)
{
    spw__gate_init(&gate, 100);
    ck_assert(spw__gate_commit(&gate, 70));
    ck_assert(!spw__gate_commit(&gate, 31));
    ck_assert_uint_eq(atomic_load(&gate.peak), 70);
    spw__gate_uncommit(&gate, 50);
    ck_assert(spw__gate_commit(&gate, 45));
    ck_assert_uint_eq(atomic_load(&gate.peak), 70);
    ck_assert(spw__gate_commit(&gate, 10));
    ck_assert_uint_eq(atomic_load(&gate.peak), 75);
}
END_TEST

START_TEST(a_budget_lowered_below_use_admits_nothing_until_use_is_below_it)
{
    spw__gate_init(&gate, 100);
    ck_assert(spw__gate_commit(&gate, 80));
    atomic_store(&gate.budget, 50);
    ck_assert_uint_eq(spw__gate_free(&gate), 0);
    ck_assert(!spw__gate_commit(&gate, 1));
    spw__gate_uncommit(&gate, 40);
    ck_assert_uint_eq(spw__gate_free(&gate), 10);
    ck_assert(!spw__gate_commit(&gate, 11));
    ck_assert(spw__gate_commit(&gate, 10));
}
END_TEST

enum { GATE_BUDGET = 1000, GATE_ROUNDS = 20000 };

static _Atomic uint64_t held_outside; /* what the threads know they hold: counted after commit, before uncommit */

static void *commit_and_uncommit(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg + 1, over = 0;
    uint64_t mine = 0;
    for (unsigned i = 0; i < GATE_ROUNDS; i++) {
        state = state * 1103515245 + 12345;
        const uint64_t bytes = (state >> 16) % (GATE_BUDGET / 2);
        if (spw__gate_commit(&gate, bytes)) {
            over += atomic_fetch_add(&held_outside, bytes) + bytes > GATE_BUDGET;
            mine += bytes;
        } else {
            (void)atomic_fetch_sub(&held_outside, mine);
            spw__gate_uncommit(&gate, mine);
            mine = 0;
        }
        over += atomic_load(&gate.committed) > GATE_BUDGET;
    }
    (void)atomic_fetch_sub(&held_outside, mine);
    spw__gate_uncommit(&gate, mine);
    ck_assert_uint_eq(over, 0);
    return NULL;
}

START_TEST(threads_never_take_the_gate_above_its_budget)
{
    spw__gate_init(&gate, GATE_BUDGET);
    run_threads(commit_and_uncommit);
    ck_assert_uint_eq(atomic_load(&gate.committed), 0);
    ck_assert_uint_le(atomic_load(&gate.peak), GATE_BUDGET);
    ck_assert_uint_gt(atomic_load(&gate.peak), 0);
}
END_TEST

/* Metadata memory */

START_TEST(metadata_is_zeroed_aligned_and_charged_to_the_byte)
{
    static const size_t sizes[] = {1, 63, 64, 65, 1000};
    static const unsigned char zeros[1000];
    struct spw__meta meta;
    spw__meta_init(&meta, 2000);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *data = spw__meta_alloc(&meta, sizes[i]);
        ck_assert_ptr_nonnull(data);
        ck_assert_uint_eq((uintptr_t)data % (sizes[i] >= 64 ? 64 : _Alignof(max_align_t)), 0);
        ck_assert_mem_eq(data, zeros, sizes[i]);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), sizes[i]);
        memset(data, 0xff, sizes[i]); /* the next one must not see it */
        spw__meta_free(&meta, data, sizes[i]);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    }
    ck_assert_uint_eq(atomic_load(&meta.gate.peak), 1000);
}
END_TEST

START_TEST(metadata_beyond_its_budget_is_NULL_and_charges_nothing)
{
    struct spw__meta meta;
    spw__meta_init(&meta, 100);
    void *most = spw__meta_alloc(&meta, 90);
    ck_assert_ptr_nonnull(most);
    ck_assert_ptr_null(spw__meta_alloc(&meta, 11));
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_ptr_null(spw__meta_alloc(&meta, 10));
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 90);
    void *rest = spw__meta_alloc(&meta, 10);
    ck_assert_ptr_nonnull(rest);
    spw__meta_free(&meta, NULL, 10);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 100);
    spw__meta_free(&meta, rest, 10);
    spw__meta_free(&meta, most, 90);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}
END_TEST

START_TEST(without_a_budget_metadata_is_plain_memory)
{
    char *data = spw__meta_alloc(NULL, 100);
    ck_assert_ptr_nonnull(data);
    ck_assert_int_eq(data[99], 0);
    spw__meta_free(NULL, data, 100);
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

/* Counters */

static struct spw__counters counters;

static void *count_often(void *arg)
{
    for (unsigned i = 0; i < 1000; i++)
        spw__count(&counters, 7, (uintptr_t)arg + 1);
    spw__count(&counters, SPW__COUNTERS_MAX - 1, 1);
    return NULL;
}

START_TEST(counters_of_all_threads_are_summed_exactly)
{
    for (unsigned round = 0; round < 4; round++) /* more threads than shards */
        run_threads(count_often);
    ck_assert_uint_eq(spw__counter_sum(&counters, 7), 4 * 1000 * (1 + 2 + 3 + 4));
    ck_assert_uint_eq(spw__counter_sum(&counters, SPW__COUNTERS_MAX - 1), 4 * THREADS);
    ck_assert_uint_eq(spw__counter_sum(&counters, 8), 0);
}
END_TEST

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
    (void)spw__fail(SPW_EIO, "%0600d", 0);
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

static TCase *lock_cases(void)
{
    TCase *tcase = tcase_create("locks");
    tcase_add_checked_fixture(tcase, setup_locks, NULL);
    tcase_add_test(tcase, locks_may_be_taken_by_rising_rank_and_released_in_any_order);
    tcase_add_test(tcase, a_wait_on_a_condition_gives_the_lock_away_and_holds_it_again);
#ifndef NDEBUG
    tcase_add_test_raise_signal(tcase, a_lock_of_a_lower_rank_aborts, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_second_lock_of_the_same_rank_aborts, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_lower_rank_aborts_after_the_higher_was_not_the_last_released, SIGABRT);
    tcase_add_test_raise_signal(tcase, unlocking_what_is_not_held_aborts, SIGABRT);
    tcase_add_test_raise_signal(tcase, a_lock_held_by_another_thread_does_not_count, SIGABRT);
#else
    (void)puts("skipped, this build does not check lock ranks: a_lock_of_a_lower_rank_aborts and its four neighbours");
#endif
    return tcase;
}

static TCase *memory_cases(void)
{
    TCase *tcase = tcase_create("gate, metadata, counters");
    tcase_add_test(tcase, the_gate_admits_up_to_its_budget_to_the_byte);
    tcase_add_test(tcase, the_peak_is_the_highest_that_was_granted);
    tcase_add_test(tcase, a_budget_lowered_below_use_admits_nothing_until_use_is_below_it);
    tcase_add_test(tcase, threads_never_take_the_gate_above_its_budget);
    tcase_add_test(tcase, metadata_is_zeroed_aligned_and_charged_to_the_byte);
    tcase_add_test(tcase, metadata_beyond_its_budget_is_NULL_and_charges_nothing);
    tcase_add_test(tcase, without_a_budget_metadata_is_plain_memory);
    tcase_add_test(tcase, counters_of_all_threads_are_summed_exactly);
    return tcase;
}

static TCase *error_cases(void)
{
    TCase *tcase = tcase_create("faults, errors, log");
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
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("base");
    suite_add_tcase(suite, lock_cases());
    suite_add_tcase(suite, memory_cases());
    suite_add_tcase(suite, error_cases());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
