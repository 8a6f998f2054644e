/* Barriers: nobody is passed over for ever. Who is served next, and who is skipped, is in test_wait_fair.c. */
#include "tests/wait_fixture.h"

#include "pool/base/wait_pass.h"

/* A large waiter, and a stream of small ones that take whatever comes: n of them are served if they can be. */
static unsigned serve_small(unsigned n)
{
    unsigned served = 0;
    for (unsigned i = 0; i < n; i++) {
        struct want small = want_of(1);
        enqueue(&small);
        give(1);
        served += small.place != 0;
        if (!small.place)
            leave(&small);
    }
    return served;
}

START_TEST(a_large_waiter_is_served_within_a_bounded_number_of_small_ones)
{
    struct want large = want_of(100);
    enqueue(&large);
    ck_assert_uint_eq(serve_small(15), 15);
    ck_assert(!spw__waitset_barred(&set, HOST));
    ck_assert_uint_eq(serve_small(1), 1);
    ck_assert(spw__waitset_barred(&set, HOST));
    ck_assert(!spw__waitset_barred(&set, DEVICE));
    ck_assert_uint_eq(serve_small(99), 0);
    still_waits(&large);
    give(1);
    is_over(&large, SPW_OK);
    ck_assert(!spw__waitset_barred(&set, HOST));
    ck_assert_uint_eq(serve_small(40), 40);
    ck_assert_int_eq(room, 0);
}
END_TEST

START_TEST(grants_to_those_who_do_not_queue_are_counted_too)
{
    struct want large = want_of(100);
    enqueue(&large);
    ck_assert_uint_eq(serve_small(10), 10);
    for (unsigned i = 0; i < 5; i++)
        spw__waitset_granted(&set, HOST | DEVICE);
    ck_assert(!spw__waitset_barred(&set, HOST));
    spw__waitset_granted(&set, HOST);
    ck_assert(spw__waitset_barred(&set, HOST));
    leave(&large);
}
END_TEST

/* A large waiter for whom the channel is barred, and two behind it that fit in what is free. */
static struct want large, behind[2];

static void raise_barrier(void)
{
    large = want_of(100);
    enqueue(&large);
    ck_assert_uint_eq(serve_small(SPW__WAIT_PASS_MAX), SPW__WAIT_PASS_MAX);
    ck_assert(spw__waitset_barred(&set, HOST));
    room = 2;
    for (unsigned i = 0; i < 2; i++) {
        behind[i] = want_of(1);
        enqueue(&behind[i]);
        ck_assert_uint_eq(behind[i].attempts, 0);
    }
}

static void barrier_is_over(void)
{
    ck_assert(!spw__waitset_barred(&set, HOST));
    is_over(&behind[0], SPW_OK);
    is_over(&behind[1], SPW_OK);
}

START_TEST(when_the_one_at_a_barrier_leaves_the_others_go_on)
{
    raise_barrier();
    leave(&large);
    barrier_is_over();
}
END_TEST

START_TEST(when_the_one_at_a_barrier_is_served_the_others_go_on)
{
    raise_barrier();
    give(100);
    is_over(&large, SPW_OK);
    barrier_is_over();
}
END_TEST

START_TEST(a_deadline_or_a_cancel_at_a_barrier_lets_the_others_go_on)
{
    spw_cancel *cancel;
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    struct want old = want_of(100);
    manual_clock.manual_ns = 0;
    old.waiter.deadline_ns = 50;
    old.waiter.cancel = cancel;
    enqueue(&old);
    ck_assert_uint_eq(serve_small(SPW__WAIT_PASS_MAX), SPW__WAIT_PASS_MAX);
    struct want next = want_of(1);
    room = 1;
    enqueue(&next);
    still_waits(&next);
    if (_i) {
        manual_clock.manual_ns = 50;
        ck_assert_uint_eq(spw__waitset_expire(&set), UINT64_MAX);
    } else {
        spw_cancel_trigger(cancel);
    }
    is_over(&old, _i ? SPW_ETIMEDOUT : SPW_ECANCELED);
    is_over(&next, SPW_OK);
    spw_cancel_destroy(cancel);
}
END_TEST

/* As the arbiter does when nothing will be freed by itself. */
static void lift_barriers(void)
{
    spw__mutex_lock(&set.lock);
    spw__wait_lapse_locked(&set, UINT64_MAX);
    spw__wait_settle_unlock(&set);
}

START_TEST(the_arbiter_lifts_barriers)
{
    raise_barrier();
    lift_barriers();
    barrier_is_over();
    still_waits(&large);
    leave(&large);
}
END_TEST

START_TEST(a_barrier_under_which_nothing_is_freed_ends_and_sixteen_more_may_pass)
{
    manual_clock.manual_ns = 1000 * MS;
    raise_barrier();
    manual_clock.manual_ns = 1060 * MS;
    room = 1;
    give(1); /* progress: 100 ms from now */
    manual_clock.manual_ns = 1159 * MS;
    spw__waitset_retry(&set, HOST); /* a failed try is none */
    ck_assert_uint_eq(spw__waitset_expire(&set), 1160 * MS);
    ck_assert(spw__waitset_barred(&set, HOST));
    manual_clock.manual_ns = 1160 * MS;
    ck_assert_uint_eq(spw__waitset_expire(&set), UINT64_MAX);
    barrier_is_over();
    ck_assert_uint_eq(serve_small(SPW__WAIT_PASS_MAX - 2), SPW__WAIT_PASS_MAX - 2);
    ck_assert(spw__waitset_barred(&set, HOST));
    ck_assert_uint_eq(serve_small(5), 0);
    leave(&large);
    room = 0;
}
END_TEST

START_TEST(a_blocked_thread_ends_its_own_barrier_when_nothing_is_freed)
{
    raise_barrier();
    if (_i) { /* it may sleep already when the barrier is raised, or begin to afterwards */
        lift_barriers();
        barrier_is_over();
    }
    const pthread_t thread = start(block, &large);
    if (_i) {
        ck_assert_uint_eq(serve_small(SPW__WAIT_PASS_MAX - 2), SPW__WAIT_PASS_MAX - 2);
        room = 1;
        behind[0] = want_of(1);
        enqueue(&behind[0]);
        ck_assert_int_eq(spw__wait_block(&set, &behind[0].waiter), SPW_OK); /* nobody else signals it */
    } else {
        ck_assert_int_eq(spw__wait_block(&set, &behind[0].waiter), SPW_OK);
        ck_assert_int_eq(spw__wait_block(&set, &behind[1].waiter), SPW_OK);
    }
    give(100);
    ck_assert_int_eq(result_of(thread), SPW_OK);
}
END_TEST

static uint32_t barred_seen;

static int take_from_device(struct spw__waiter *waiter)
{
    barred_seen = waiter->barred;
    waiter->served = DEVICE;
    return SPW_OK;
}

START_TEST(an_attempt_is_told_which_channels_it_must_leave_to_another)
{
    raise_barrier();
    struct want either = want_of(1);
    either.waiter.attempt = take_from_device;
    either.waiter.channels = HOST | DEVICE;
    enqueue(&either);
    is_over(&either, SPW_OK);
    ck_assert_uint_eq(barred_seen, HOST);
    leave(&large);
    barrier_is_over();
}
END_TEST

START_TEST(who_is_served_elsewhere_passes_over_nobody)
{
    large = want_of(100);
    enqueue(&large);
    for (unsigned i = 0; i < 3 * SPW__WAIT_PASS_MAX; i++) {
        struct want either = want_of(1);
        either.waiter.attempt = take_from_device;
        either.waiter.channels = HOST | DEVICE;
        enqueue(&either);
        is_over(&either, SPW_OK);
    }
    ck_assert(!spw__waitset_barred(&set, HOST));
    leave(&large);
}
END_TEST

START_TEST(who_comes_earlier_in_the_order_does_not_take_a_barrier_over)
{
    manual_clock.manual_ns = 0;
    raise_barrier();
    struct want first = want_of(1);
    first.waiter.net_bytes = -1000;
    enqueue(&first);
    ck_assert_ptr_eq(set.trees[SPW_TIER_HOST].first->owner, &first);
    give(1);
    still_waits(&first);
    give(97);
    is_over(&large, SPW_OK);
    still_waits(&first);
    give(3);
    is_over(&first, SPW_OK);
    barrier_is_over();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_barrier");
    TCase *tcase = tcase_create("manual clock");
    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup_manual, teardown);
    tcase_add_test(tcase, a_large_waiter_is_served_within_a_bounded_number_of_small_ones);
    tcase_add_test(tcase, grants_to_those_who_do_not_queue_are_counted_too);
    tcase_add_test(tcase, when_the_one_at_a_barrier_leaves_the_others_go_on);
    tcase_add_test(tcase, when_the_one_at_a_barrier_is_served_the_others_go_on);
    tcase_add_loop_test(tcase, a_deadline_or_a_cancel_at_a_barrier_lets_the_others_go_on, 0, 2);
    tcase_add_test(tcase, the_arbiter_lifts_barriers);
    tcase_add_test(tcase, a_barrier_under_which_nothing_is_freed_ends_and_sixteen_more_may_pass);
    tcase_add_test(tcase, an_attempt_is_told_which_channels_it_must_leave_to_another);
    tcase_add_test(tcase, who_is_served_elsewhere_passes_over_nobody);
    tcase_add_test(tcase, who_comes_earlier_in_the_order_does_not_take_a_barrier_over);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("real clock");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_blocked_thread_ends_its_own_barrier_when_nothing_is_freed, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
