/* Cancel tokens, and waits under threads: races that must end in exactly one result, wake-ups that must not be lost.
 *
 * A lost wake-up shows as a test that never ends: the runner's time limit turns it into a failure. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/wait.h"

#define HOST SPW__CHANNEL(SPW_TIER_HOST)

struct want {
    struct spw__waiter waiter; /* first: attempts cast back */
    long bytes;
};

static struct spw__waitset set;
static _Atomic long room;

static void setup(void)
{
    spw__waitset_init(&set, NULL);
}

static void teardown(void)
{
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++)
        ck_assert_ptr_null(set.trees[tree].root);
    ck_assert_uint_eq(set.barred, 0);
    ck_assert(!spw__waitset_busy(&set, UINT32_MAX));
    spw__waitset_finish(&set);
}

static int take(struct spw__waiter *waiter)
{
    const struct want *want = (const struct want *)(void *)waiter;
    long now = atomic_load(&room);
    while (now >= want->bytes)
        if (atomic_compare_exchange_weak(&room, &now, now - want->bytes))
            return SPW_OK;
    return SPW_EAGAIN;
}

static struct want want_of(long bytes, spw_cancel *cancel)
{
    return (struct want){
        .waiter = {.attempt = take, .channels = HOST, .deadline_ns = UINT64_MAX, .cancel = cancel}, .bytes = bytes};
}

static void give(long bytes)
{
    (void)atomic_fetch_add(&room, bytes);
    spw__waitset_signal(&set, HOST);
}

static int wait_for(struct want *want)
{
    spw__wait_enqueue(&set, &want->waiter);
    return spw__wait_block(&set, &want->waiter);
}

static spw_cancel *token(void)
{
    spw_cancel *cancel = NULL;
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    ck_assert(!spw__cancel_triggered(cancel));
    return cancel;
}

static void *block(void *arg)
{
    struct want *want = arg;
    return (void *)(intptr_t)spw__wait_block(&set, &want->waiter);
}

START_TEST(a_token_that_cannot_be_made_is_ENOMETA)
{
    spw_cancel *cancel = (spw_cancel *)&room;
    ck_assert_int_eq(spw_cancel_create(NULL), SPW_EINVAL);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_ENOMETA);
    ck_assert_ptr_null(cancel);
    ck_assert_int_eq(spw_error_detail()->code, SPW_ENOMETA);
    spw_cancel_trigger(NULL);
    spw_cancel_destroy(NULL);
    ck_assert(!spw__cancel_triggered(NULL));
}
END_TEST

START_TEST(a_token_triggered_before_ends_waits_from_then_on)
{
    spw_cancel *cancel = token();
    struct want want = want_of(1, cancel);
    spw_cancel_trigger(cancel);
    ck_assert(spw__cancel_triggered(cancel));
    ck_assert_int_eq(wait_for(&want), SPW_ECANCELED);
    ck_assert_int_eq(wait_for(&want), SPW_ECANCELED);
    room = 1; /* what needs no wait is not cancelled */
    ck_assert_int_eq(wait_for(&want), SPW_OK);
    spw_cancel_destroy(cancel);
}
END_TEST

static void trigger(void *arg)
{
    spw_cancel_trigger(arg);
}

START_TEST(a_wait_is_cancelled_while_it_blocks)
{
    spw_cancel *cancel = token();
    struct want want = want_of(1, cancel);
    set.drive = trigger; /* runs when the thread blocks and holds no lock */
    set.drive_arg = cancel;
    ck_assert_int_eq(wait_for(&want), SPW_ECANCELED);
    spw_cancel_destroy(cancel);
}
END_TEST

START_TEST(another_thread_cancels_all_waits_of_a_token_and_no_other)
{
    enum { N = 4 };
    spw_cancel *cancel = token(), *other = token();
    struct want wants[N + 1];
    pthread_t threads[N + 1];
    void *result;
    for (unsigned i = 0; i <= N; i++) {
        wants[i] = want_of(1, i == N ? other : cancel);
        spw__wait_enqueue(&set, &wants[i].waiter);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, block, &wants[i]), 0);
    }
    spw_cancel_trigger(cancel);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_int_eq((int)(intptr_t)result, SPW_ECANCELED);
    }
    ck_assert(wants[N].waiter.waiting);
    give(1);
    ck_assert_int_eq(pthread_join(threads[N], &result), 0);
    ck_assert_int_eq((int)(intptr_t)result, SPW_OK);
    ck_assert(!spw__cancel_triggered(other));
    spw_cancel_destroy(cancel);
    spw_cancel_destroy(other);
}
END_TEST

/* A grant, a cancel, and now and then a deadline meet in every round. */
enum { ROUNDS = 1500 };

static pthread_barrier_t barrier;
static spw_cancel *round_token;
static unsigned granted, canceled, timed_out;

static void *waiting_thread(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)pthread_barrier_wait(&barrier);
        struct want want = want_of(1, round_token);
        if (i % 3 == 0)
            want.waiter.deadline_ns = spw__clock_monotonic_ns() + 1000 * (i % 50);
        const int result = wait_for(&want);
        granted += result == SPW_OK;
        canceled += result == SPW_ECANCELED;
        timed_out += result == SPW_ETIMEDOUT;
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *cancelling_thread(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)pthread_barrier_wait(&barrier);
        spw_cancel_trigger(round_token);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

START_TEST(a_cancel_that_races_with_a_grant_ends_in_exactly_one_result)
{
    pthread_t waiting, cancelling;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
    ck_assert_int_eq(pthread_create(&waiting, NULL, waiting_thread, NULL), 0);
    ck_assert_int_eq(pthread_create(&cancelling, NULL, cancelling_thread, NULL), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const unsigned granted_before = granted;
        round_token = token();
        (void)pthread_barrier_wait(&barrier);
        give(1);
        (void)pthread_barrier_wait(&barrier);
        ck_assert_uint_eq(granted + canceled + timed_out, i + 1);
        ck_assert_int_eq(room, granted == granted_before); /* taken by a grant, and by nothing else */
        room = 0;
        spw_cancel_destroy(round_token);
    }
    ck_assert_int_eq(pthread_join(waiting, NULL), 0);
    ck_assert_int_eq(pthread_join(cancelling, NULL), 0);
    (void)pthread_barrier_destroy(&barrier);
}
END_TEST

enum { CONSUMERS = 4, PRODUCERS = 2, EACH = 4000 };

static void *consume(void *arg)
{
    const long bytes = 1 + (long)(intptr_t)arg % 3;
    for (unsigned i = 0; i < EACH; i++) {
        struct want want = want_of(bytes, NULL);
        ck_assert_int_eq(wait_for(&want), SPW_OK);
    }
    return NULL;
}

static void *produce(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < EACH * (1 + 2 + 3 + 1) / PRODUCERS; i++)
        give(1);
    return NULL;
}

START_TEST(no_wake_up_is_lost_between_signallers_and_waiters)
{
    pthread_t threads[CONSUMERS + PRODUCERS];
    for (unsigned i = 0; i < CONSUMERS + PRODUCERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, i < CONSUMERS ? consume : produce, (void *)(intptr_t)i), 0);
    for (unsigned i = 0; i < CONSUMERS + PRODUCERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_eq(room, 0);
}
END_TEST

static struct spw__waitset *other_way(unsigned mine)
{
    static struct spw__waitset ways[2];
    return &ways[mine];
}

/* Two threads pass one byte to and fro: each step needs the other's wake-up, none can be replaced by a later one. */
static _Atomic long cups[2];

static int take_cup(struct spw__waiter *waiter)
{
    _Atomic long *cup = (_Atomic long *)(uintptr_t)waiter->object;
    long full = 1;
    return atomic_compare_exchange_strong(cup, &full, 0) ? SPW_OK : SPW_EAGAIN;
}

static void *pass(void *arg)
{
    const unsigned mine = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < EACH; i++) {
        struct spw__waiter waiter = {
            .attempt = take_cup, .object = &cups[mine], .channels = HOST, .deadline_ns = UINT64_MAX};
        spw__wait_enqueue(other_way(mine), &waiter);
        ck_assert_int_eq(spw__wait_block(other_way(mine), &waiter), SPW_OK);
        atomic_store(&cups[1 - mine], 1);
        spw__waitset_signal(other_way(1 - mine), HOST);
    }
    return NULL;
}

START_TEST(every_single_signal_of_a_ping_pong_arrives)
{
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++)
        spw__waitset_init(other_way(i), NULL);
    cups[0] = 1;
    for (uintptr_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pass, (void *)i), 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_eq(cups[0], 1);
    ck_assert_int_eq(cups[1], 0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert(!spw__waitset_busy(other_way(i), HOST));
        spw__waitset_finish(other_way(i));
    }
}
END_TEST

static _Atomic unsigned ended;

static void *wait_until_shut_down(void *arg)
{
    int result;
    (void)arg;
    do {
        struct want want = want_of(1, NULL);
        result = wait_for(&want);
        if (result == SPW_OK)
            give(1);
    } while (result == SPW_OK);
    ended += result == SPW_ESHUTDOWN;
    return NULL;
}

START_TEST(shut_down_ends_threads_that_wait_and_signal_all_the_time)
{
    pthread_t threads[CONSUMERS];
    room = 2;
    for (unsigned i = 0; i < CONSUMERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_until_shut_down, NULL), 0);
    spw__waitset_shut_down(&set);
    for (unsigned i = 0; i < CONSUMERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(ended, CONSUMERS);
    ck_assert_int_eq(room, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cancel");
    TCase *tcase = tcase_create("cancel");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_token_that_cannot_be_made_is_ENOMETA);
    tcase_add_test(tcase, a_token_triggered_before_ends_waits_from_then_on);
    tcase_add_test(tcase, a_wait_is_cancelled_while_it_blocks);
    tcase_add_test(tcase, another_thread_cancels_all_waits_of_a_token_and_no_other);
    tcase_add_test(tcase, a_cancel_that_races_with_a_grant_ends_in_exactly_one_result);
    tcase_add_test(tcase, no_wake_up_is_lost_between_signallers_and_waiters);
    tcase_add_test(tcase, every_single_signal_of_a_ping_pong_arrives);
    tcase_add_test(tcase, shut_down_ends_threads_that_wait_and_signal_all_the_time);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
