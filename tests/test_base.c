/* The foundations: lock ranks, the gate, metadata memory and counters. test_error.c has errors, faults and the log. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/counters.h"
#include "pool/base/fault.h"
#include "pool/base/gate.h"
#include "pool/base/lock.h"
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

int main(void)
{
    Suite *suite = suite_create("base");
    suite_add_tcase(suite, lock_cases());
    suite_add_tcase(suite, memory_cases());
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
