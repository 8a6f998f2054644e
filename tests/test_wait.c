/* The wait primitive: who is woken, in which order, and that every wait ends exactly once.
 *
 * The waiters here want bytes of a room; an attempt takes them or goes on waiting. Threads are ordered by what they
 * wait for, never by time. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/wait.h"

#define HOST SPW__CHANNEL(SPW_TIER_HOST)
#define DEVICE SPW__CHANNEL(SPW_TIER_DEVICE)

struct want {
    struct spw__waiter waiter; /* first: attempts cast back */
    long bytes;
    unsigned attempts;
    pthread_t by; /* who ran the last attempt */
};

static struct spw__waitset set;
static struct spw__clock manual_clock;
static _Atomic long room;

static uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

static void setup(void)
{
    manual_clock.now_ns = manual_now;
    spw__waitset_init(&set, NULL);
}

static void setup_manual(void)
{
    setup();
    spw__waitset_init(&set, &manual_clock);
}

/* What every test ends with: nobody waits, no channel counts anybody. */
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
    struct want *want = (struct want *)(void *)waiter;
    long now = atomic_load(&room);
    want->attempts++;
    want->by = pthread_self();
    while (now >= want->bytes)
        if (atomic_compare_exchange_weak(&room, &now, now - want->bytes))
            return SPW_OK;
    return SPW_EAGAIN;
}

static struct want want_of(long bytes, uint32_t channels)
{
    return (struct want){.waiter = {.attempt = take, .channels = channels, .deadline_ns = UINT64_MAX}, .bytes = bytes};
}

static void give(long bytes)
{
    (void)atomic_fetch_add(&room, bytes);
    spw__waitset_signal(&set, HOST);
}

static void is_over(struct want *want, int result)
{
    ck_assert(!want->waiter.waiting);
    ck_assert_int_eq(spw__wait_block(&set, &want->waiter), result);
}

static void still_waits(const struct want *want)
{
    ck_assert(want->waiter.waiting);
}

static void *block(void *arg)
{
    struct want *want = arg;
    return (void *)(intptr_t)spw__wait_block(&set, &want->waiter);
}

static pthread_t block_in_thread(struct want *want)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, block, want), 0);
    return thread;
}

static int result_of(pthread_t thread)
{
    void *result;
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    return (int)(intptr_t)result;
}

START_TEST(a_waiter_looks_a_last_time_when_it_is_enqueued)
{
    struct want want = want_of(3, HOST);
    room = 5; /* freed before anybody waited, and never signalled */
    spw__wait_enqueue(&set, &want.waiter);
    is_over(&want, SPW_OK);
    ck_assert_int_eq(room, 2);
    ck_assert_uint_eq(want.attempts, 1);
}
END_TEST

START_TEST(the_signaller_makes_the_attempt_and_hands_the_result_over)
{
    struct want want = want_of(3, HOST);
    spw__wait_enqueue(&set, &want.waiter);
    const pthread_t thread = block_in_thread(&want);
    give(3);
    ck_assert_int_eq(room, 0); /* taken before give returned, whenever the blocked thread runs again */
    ck_assert(pthread_equal(want.by, pthread_self()));
    ck_assert_int_eq(result_of(thread), SPW_OK);
    ck_assert_uint_eq(want.attempts, 2);
}
END_TEST

START_TEST(the_oldest_is_served_first)
{
    struct want wants[3];
    for (unsigned i = 0; i < 3; i++) {
        wants[i] = want_of(1, HOST);
        spw__wait_enqueue(&set, &wants[i].waiter);
    }
    give(2);
    is_over(&wants[0], SPW_OK);
    is_over(&wants[1], SPW_OK);
    still_waits(&wants[2]);
    give(1);
    is_over(&wants[2], SPW_OK);
}
END_TEST

START_TEST(one_that_does_not_fit_does_not_eat_the_wake_up_of_a_smaller_one_behind_it)
{
    struct want large = want_of(10, HOST), small = want_of(2, HOST);
    spw__wait_enqueue(&set, &large.waiter);
    spw__wait_enqueue(&set, &small.waiter);
    give(4);
    still_waits(&large);
    is_over(&small, SPW_OK);
    give(8);
    is_over(&large, SPW_OK);
    ck_assert_int_eq(room, 0);
}
END_TEST

START_TEST(who_comes_later_does_not_overtake_an_older_one_that_fits)
{
    struct want old = want_of(2, HOST), young = want_of(2, HOST);
    spw__wait_enqueue(&set, &old.waiter);
    room = 3; /* a free whose signal is still on its way */
    spw__wait_enqueue(&set, &young.waiter);
    is_over(&old, SPW_OK);
    still_waits(&young);
    give(1);
    is_over(&young, SPW_OK);
}
END_TEST

START_TEST(only_waiters_on_the_signalled_channels_are_tried)
{
    struct want host = want_of(1, HOST), device = want_of(1, DEVICE), either = want_of(5, HOST | DEVICE);
    spw__wait_enqueue(&set, &host.waiter);
    spw__wait_enqueue(&set, &either.waiter);
    ck_assert(spw__waitset_busy(&set, DEVICE));
    spw__wait_enqueue(&set, &device.waiter);
    ck_assert(!spw__waitset_busy(&set, SPW__CHANNEL(SPW_TIER_DISK) | SPW__CHANNEL_OBJECT));
    room = 6;
    spw__waitset_signal(&set, SPW__CHANNEL(SPW_TIER_DISK));
    still_waits(&host);
    spw__waitset_signal(&set, DEVICE);
    still_waits(&host);
    is_over(&either, SPW_OK);
    is_over(&device, SPW_OK);
    ck_assert(!spw__waitset_busy(&set, DEVICE));
    ck_assert(spw__waitset_busy(&set, DEVICE | HOST));
    give(1);
    is_over(&host, SPW_OK);
}
END_TEST

static int never_fits(struct spw__waiter *waiter)
{
    (void)waiter;
    return room ? SPW_ETOOBIG : SPW_EAGAIN;
}

START_TEST(an_attempt_that_fails_ends_the_wait_with_its_code)
{
    struct want want = want_of(1, HOST);
    want.waiter.attempt = never_fits;
    spw__wait_enqueue(&set, &want.waiter);
    give(1);
    is_over(&want, SPW_ETOOBIG);
}
END_TEST

START_TEST(a_deadline_ends_a_blocked_wait)
{
    struct want past = want_of(1, HOST), soon = want_of(1, HOST);
    past.waiter.deadline_ns = spw__clock_monotonic_ns();
    spw__wait_enqueue(&set, &past.waiter);
    ck_assert_int_eq(spw__wait_block(&set, &past.waiter), SPW_ETIMEDOUT);
    soon.waiter.deadline_ns = spw__clock_monotonic_ns() + 1000000;
    spw__wait_enqueue(&set, &soon.waiter);
    ck_assert_int_eq(spw__wait_block(&set, &soon.waiter), SPW_ETIMEDOUT);
    ck_assert_uint_ge(spw__clock_monotonic_ns(), soon.waiter.deadline_ns);
    room = 1; /* a deadline of now still has its one try */
    spw__wait_enqueue(&set, &past.waiter);
    is_over(&past, SPW_OK);
}
END_TEST

START_TEST(on_a_manual_clock_expire_ends_those_whose_deadline_has_come)
{
    struct want early = want_of(1, HOST), late = want_of(1, HOST), never = want_of(1, HOST);
    early.waiter.deadline_ns = 100;
    late.waiter.deadline_ns = 200;
    spw__wait_enqueue(&set, &late.waiter);
    spw__wait_enqueue(&set, &early.waiter);
    spw__wait_enqueue(&set, &never.waiter);
    const pthread_t thread = block_in_thread(&early);
    manual_clock.manual_ns = 99;
    spw__waitset_expire(&set);
    still_waits(&late);
    manual_clock.manual_ns = 100;
    spw__waitset_expire(&set);
    ck_assert_int_eq(result_of(thread), SPW_ETIMEDOUT);
    still_waits(&late);
    still_waits(&never);
    manual_clock.manual_ns = UINT64_MAX - 1;
    spw__waitset_expire(&set);
    is_over(&late, SPW_ETIMEDOUT);
    give(1);
    is_over(&never, SPW_OK);
}
END_TEST

START_TEST(leaving_takes_a_waiter_out_or_gives_its_result)
{
    struct want first = want_of(1, HOST), second = want_of(1, HOST), third = want_of(1, HOST);
    spw__wait_enqueue(&set, &first.waiter);
    spw__wait_enqueue(&set, &second.waiter);
    spw__wait_enqueue(&set, &third.waiter);
    ck_assert_int_eq(spw__wait_leave(&set, &second.waiter), SPW_ETIMEDOUT);
    give(2);
    ck_assert_int_eq(spw__wait_leave(&set, &first.waiter), SPW_OK);
    ck_assert_int_eq(spw__wait_leave(&set, &third.waiter), SPW_OK);
    ck_assert_uint_eq(second.attempts, 2); /* its own enqueue and the third's, not the signal */
}
END_TEST

START_TEST(shut_down_ends_every_wait_now_and_from_now_on)
{
    struct want wants[3] = {want_of(1, HOST), want_of(1, DEVICE), want_of(1, SPW__CHANNEL_OBJECT)};
    wants[2].waiter.attempt = NULL;
    for (unsigned i = 0; i < 3; i++)
        spw__wait_enqueue(&set, &wants[i].waiter);
    const pthread_t thread = block_in_thread(&wants[0]);
    spw__waitset_shut_down(&set);
    ck_assert_int_eq(result_of(thread), SPW_ESHUTDOWN);
    is_over(&wants[1], SPW_ESHUTDOWN);
    is_over(&wants[2], SPW_ESHUTDOWN);
    room = 1;
    wants[0] = want_of(1, HOST);
    spw__wait_enqueue(&set, &wants[0].waiter);
    is_over(&wants[0], SPW_ESHUTDOWN);
    ck_assert_int_eq(room, 1);
}
END_TEST

START_TEST(an_object_wakes_those_who_wait_for_it_and_nobody_else)
{
    int here, there;
    struct want wants[3];
    for (unsigned i = 0; i < 3; i++) {
        wants[i] = want_of(1, SPW__CHANNEL_OBJECT | (i == 2 ? HOST : 0));
        wants[i].waiter.object = i == 0 ? &there : &here;
        wants[i].waiter.attempt = i == 2 ? take : NULL;
        spw__wait_enqueue(&set, &wants[i].waiter);
    }
    spw__waitset_signal(&set, SPW__CHANNEL_OBJECT | HOST);
    for (unsigned i = 0; i < 3; i++)
        still_waits(&wants[i]);
    spw__waitset_signal_object(&set, &here);
    still_waits(&wants[0]);
    is_over(&wants[1], SPW_OK);
    is_over(&wants[2], SPW_OK);
    spw__waitset_signal_object(&set, &there);
    is_over(&wants[0], SPW_OK);
}
END_TEST

static int end_even_ones(struct spw__waiter *waiter, void *arg)
{
    long *seen = arg;
    const struct want *want = (const struct want *)(const void *)waiter;
    *seen = *seen * 10 + want->bytes;
    return want->bytes % 2 == 0 ? SPW_ERETRY : SPW_EAGAIN;
}

START_TEST(a_visitor_sees_the_oldest_first_and_may_end_any)
{
    struct want wants[4];
    long seen = 0;
    for (unsigned i = 0; i < 4; i++) {
        wants[i] = want_of(i + 1, i == 2 ? DEVICE : HOST);
        spw__wait_enqueue(&set, &wants[i].waiter);
    }
    spw__waitset_visit(&set, HOST, end_even_ones, &seen);
    ck_assert_int_eq(seen, 124);
    is_over(&wants[1], SPW_ERETRY);
    is_over(&wants[3], SPW_ERETRY);
    still_waits(&wants[0]);
    still_waits(&wants[2]);
    spw__waitset_shut_down(&set);
    is_over(&wants[0], SPW_ESHUTDOWN);
    is_over(&wants[2], SPW_ESHUTDOWN);
}
END_TEST

static unsigned drives;

static void drive(void *arg)
{
    (void)arg;
    if (++drives % 3 == 0)
        give(1); /* takes the wait lock: drive must be called without it */
}

START_TEST(a_blocked_thread_drives_until_it_is_served)
{
    struct want want = want_of(2, HOST);
    set.drive = drive;
    spw__wait_enqueue(&set, &want.waiter);
    ck_assert_int_eq(spw__wait_block(&set, &want.waiter), SPW_OK);
    ck_assert_uint_eq(drives, 6);
}
END_TEST

static void drive_to_no_end(void *arg)
{
    (void)arg;
    drives++;
}

START_TEST(driving_ends_at_the_deadline)
{
    struct want want = want_of(2, HOST);
    set.drive = drive_to_no_end;
    want.waiter.deadline_ns = spw__clock_monotonic_ns() + 1000000;
    spw__wait_enqueue(&set, &want.waiter);
    ck_assert_int_eq(spw__wait_block(&set, &want.waiter), SPW_ETIMEDOUT);
    ck_assert_uint_gt(drives, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait");
    TCase *tcase = tcase_create("real clock");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_waiter_looks_a_last_time_when_it_is_enqueued);
    tcase_add_test(tcase, the_signaller_makes_the_attempt_and_hands_the_result_over);
    tcase_add_test(tcase, the_oldest_is_served_first);
    tcase_add_test(tcase, one_that_does_not_fit_does_not_eat_the_wake_up_of_a_smaller_one_behind_it);
    tcase_add_test(tcase, who_comes_later_does_not_overtake_an_older_one_that_fits);
    tcase_add_test(tcase, only_waiters_on_the_signalled_channels_are_tried);
    tcase_add_test(tcase, an_attempt_that_fails_ends_the_wait_with_its_code);
    tcase_add_test(tcase, a_deadline_ends_a_blocked_wait);
    tcase_add_test(tcase, leaving_takes_a_waiter_out_or_gives_its_result);
    tcase_add_test(tcase, shut_down_ends_every_wait_now_and_from_now_on);
    tcase_add_test(tcase, an_object_wakes_those_who_wait_for_it_and_nobody_else);
    tcase_add_test(tcase, a_visitor_sees_the_oldest_first_and_may_end_any);
    tcase_add_test(tcase, a_blocked_thread_drives_until_it_is_served);
    tcase_add_test(tcase, driving_ends_at_the_deadline);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("manual clock");
    tcase_add_checked_fixture(tcase, setup_manual, teardown);
    tcase_add_test(tcase, on_a_manual_clock_expire_ends_those_whose_deadline_has_come);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
