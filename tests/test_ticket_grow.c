/* Tickets for more bytes of a reservation: it has grown exactly when the ticket has ended with SPW_OK. */
#include "ticket_fixture.h"

static spw_reservation *must_reserve(uint64_t bytes)
{
    spw_reservation *reservation = NULL;
    const int rc = spw_reserve(manager, SPW_HOST, bytes, NULL, &reservation);
    ck_assert_msg(rc == SPW_OK, "reserve: %s", spw_error_detail()->message);
    return reservation;
}

static spw_ticket *start_growth(spw_reservation *reservation, uint64_t bytes)
{
    spw_ticket *ticket = NULL;
    const int rc = spw_reservation_grow_start(reservation, bytes, NULL, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

static void must_free(spw_reservation *reservation)
{
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
}

START_TEST(a_reservation_with_room_has_grown_when_the_start_returns)
{
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw_ticket *ticket = start_growth(reservation, 1); /* rounded up as by spw_reserve */
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    const uint64_t grown = spw_reservation_size(reservation);
    ck_assert_uint_gt(grown, 256 * KIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + grown);
    nothing_is_to_be_taken(ticket);
    must_destroy(ticket); /* takes nothing back */
    ck_assert_uint_eq(spw_reservation_size(reservation), grown);
    ticket = start_growth(reservation, 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), grown);
    must_destroy(ticket);
    must_free(reservation);
}
END_TEST

START_TEST(a_growth_that_waits_is_served_when_room_is_made_or_given_back)
{
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw_buffer *held = hold(512 * KIB), *cold = must_make(SPW_HOST, 256 * KIB, 3);
    spw_ticket *ticket = start_growth(reservation, 256 * KIB); /* by eviction */
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    ck_assert_uint_eq(spw_reservation_size(reservation), 512 * KIB);
    ck_assert_uint_eq(spw_buffer_place(cold), SPW_DISK);
    ticket = start_growth(reservation, 512 * KIB);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_uint_eq(spw_reservation_size(reservation), 512 * KIB);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), MIB);
    must_destroy(ticket);
    must_free(reservation);
    check_at(cold, SPW_HOST, 3);
    must_release(cold);
}
END_TEST

START_TEST(what_was_cancelled_or_destroyed_under_way_leaves_the_reservation_as_it_was)
{
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *cancelled = start_growth(reservation, 256 * KIB), *destroyed = start_growth(reservation, 256 * KIB);
    ck_assert_int_eq(spw_ticket_cancel(cancelled), SPW_OK);
    must_end_as(cancelled, SPW_ECANCELED);
    must_destroy(cancelled);
    must_destroy(destroyed);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_free(reservation); /* at once: nothing of it is touched any more */
    must_release(held);
    comes_to(SPW_TIER_HOST, STAGING);
}
END_TEST

START_TEST(what_ended_otherwise_leaves_the_reservation_as_it_was)
{
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_growth(reservation, 1024 * MIB);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_ETOOBIG);
    must_destroy(ticket);
    const spw_wait_options once = {.timeout_ms = 0};
    ck_assert_int_eq(spw_reservation_grow_start(reservation, 256 * KIB, &once, &ticket), SPW_OK);
    must_end_as(ticket, SPW_ENOMEM);
    must_destroy(ticket);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_free(reservation);
    must_release(held);
}
END_TEST

START_TEST(a_reservation_is_used_grown_and_shrunk_while_it_grows)
{
    spw_reservation *reservation = must_reserve(512 * KIB);
    spw_buffer *held = hold(512 * KIB), *paid = NULL;
    spw_alloc_options options;
    spw_ticket *first = start_growth(reservation, 256 * KIB), *second = start_growth(reservation, 256 * KIB);
    spw_alloc_options_init(&options);
    options.reservation = reservation;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, &options, &paid), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), 384 * KIB);
    ck_assert_int_eq(spw_ticket_poll(first), SPW_EAGAIN);
    ck_assert_int_eq(spw_reservation_shrink(reservation, 256 * KIB), SPW_OK); /* which is for those who wait */
    must_end_as(first, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), 384 * KIB);
    ck_assert_int_eq(spw_ticket_poll(second), SPW_EAGAIN);
    must_release(held);
    must_end_as(second, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), 640 * KIB);
    must_destroy(first);
    must_destroy(second);
    must_release(paid);
    must_free(reservation);
}
END_TEST

START_TEST(a_forced_destroy_ends_growths)
{
    spw_reservation *reservation = must_reserve(512 * KIB);
    spw_buffer *held = hold(512 * KIB);
    spw_ticket *ticket = start_growth(reservation, 512 * KIB);
    ck_assert_ptr_nonnull(held);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

START_TEST(wrong_arguments_of_a_growth_are_told_at_once)
{
    spw_ticket *ticket = (spw_ticket *)&no_task;
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw_wait_options wrong;
    spw_wait_options_init(&wrong);
    wrong.reserved[1] = 1;
    ck_assert_int_eq(spw_reservation_grow_start(reservation, 1, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_reservation_grow_start(reservation, 1, &wrong, &ticket), SPW_EINVAL);
    ck_assert_ptr_null(ticket);
    ck_assert_int_eq(spw_reservation_grow_start(NULL, 1, NULL, &ticket), SPW_EBADHANDLE);
    must_free(reservation);
    ck_assert_int_eq(spw_reservation_grow_start(reservation, 1, NULL, &ticket), SPW_EBADHANDLE);
    ck_assert_ptr_null(ticket);
}
END_TEST

START_TEST(no_memory_for_a_growths_ticket_is_ENOMETA)
{
    spw_ticket *ticket = NULL;
    spw_reservation *reservation = must_reserve(256 * KIB);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_reservation_grow_start(reservation, 256 * KIB, NULL, &ticket), SPW_ENOMETA);
    ck_assert_ptr_null(ticket);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_free(reservation);
}
END_TEST

/* A cancel that races the grant: the reservation has grown by as much as the ticket's end says. */
START_TEST(a_cancel_against_the_grant_leaves_just_what_the_end_says)
{
    enum { ROUNDS = 200 };
    struct race race;
    unsigned grown = 0;
    spw_reservation *reservation = must_reserve(64 * KIB);
    ck_assert_int_eq(pthread_barrier_init(&race.barrier, NULL, 2), 0);
    const pthread_t thread = must_start(cancel_each, &race);
    for (unsigned round = 0; round < ROUNDS; round++) {
        spw_buffer *held = hold(960 * KIB);
        spw_ticket *ticket = race.ticket = start_growth(reservation, 128 * KIB);
        (void)pthread_barrier_wait(&race.barrier);
        must_release(held);
        (void)pthread_barrier_wait(&race.barrier);
        const int rc = spw_ticket_wait(ticket, NULL);
        ck_assert_msg(rc == SPW_OK || rc == SPW_ECANCELED, "%s", spw_error_name(rc));
        ck_assert_uint_eq(spw_reservation_size(reservation), rc == SPW_OK ? 192 * KIB : 64 * KIB);
        if (rc == SPW_OK)
            ck_assert_int_eq(spw_reservation_shrink(reservation, 128 * KIB), SPW_OK);
        grown += rc == SPW_OK;
        must_destroy(ticket);
        comes_to(SPW_TIER_HOST, STAGING + 64 * KIB);
    }
    race.ticket = NULL;
    (void)pthread_barrier_wait(&race.barrier);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&race.barrier);
    ck_assert_uint_le(grown, ROUNDS);
    must_free(reservation);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_grow");
    TCase *both[2] = {tcase_create("ticket_grow"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, a_reservation_with_room_has_grown_when_the_start_returns);
        tcase_add_test(tests, a_growth_that_waits_is_served_when_room_is_made_or_given_back);
        tcase_add_test(tests, what_was_cancelled_or_destroyed_under_way_leaves_the_reservation_as_it_was);
        tcase_add_test(tests, what_ended_otherwise_leaves_the_reservation_as_it_was);
        tcase_add_test(tests, a_reservation_is_used_grown_and_shrunk_while_it_grows);
        tcase_add_test(tests, a_forced_destroy_ends_growths);
        tcase_add_test(tests, a_cancel_against_the_grant_leaves_just_what_the_end_says);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], wrong_arguments_of_a_growth_are_told_at_once);
    tcase_add_test(both[0], no_memory_for_a_growths_ticket_is_ENOMETA);
    return run_suite(suite);
}
