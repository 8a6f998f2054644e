/* Reservations that are not granted at once: who is served, what is evicted for them, and what ends their waits. What
 * they take and give back is in test_reserve.c. */
#include "tests/reserve_fixture.h"

START_TEST(what_can_never_fit_fails_at_once_whoever_waits)
{
    open_manager("host=1M");
    spw_reservation *none, *all = must_reserve(MIB);
    struct wish wish = wish_for(512 * KIB, SPW_TIMEOUT_INFINITE), too_big = wish_for(2 * MIB, SPW_TIMEOUT_INFINITE);
    const pthread_t thread = start_wish(&wish, 1);
    (void)fulfil(&too_big);
    ck_assert_int_eq(too_big.rc, SPW_ETOOBIG);
    ck_assert_int_eq(reserve_with(2 * MIB, SPW_RESERVE_UPTO, MIB + 1, &none), SPW_ETOOBIG);
    ck_assert_int_eq(spw_reservation_grow(all, MIB + 1, NULL), SPW_ETOOBIG);
    ck_assert_uint_eq(atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]), 1);
    must_end(all);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);
    must_end(wish.reservation);
    close_manager();
}
END_TEST

START_TEST(a_waiting_reservation_is_served_by_a_release_a_shrink_a_buffer_and_a_raised_budget)
{
    open_manager("host=1M");
    spw_reservation *all = must_reserve(MIB - 64 * KIB);
    spw_buffer *buffer = must_alloc(SPW_HOST, 64 * KIB);
    struct wish wish = wish_for(32 * KIB, SPW_TIMEOUT_INFINITE);
    pthread_t thread = start_wish(&wish, 1);
    ck_assert_int_eq(spw_reservation_shrink(all, 32 * KIB), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);

    struct wish next = wish_for(64 * KIB, SPW_TIMEOUT_INFINITE);
    thread = start_wish(&next, 1);
    must_release(buffer);
    must_join(thread);
    ck_assert_int_eq(next.rc, SPW_OK);

    struct wish last = wish_for(MIB / 2, SPW_TIMEOUT_INFINITE);
    thread = start_wish(&last, 1);
    must_end(all);
    must_join(thread);
    ck_assert_int_eq(last.rc, SPW_OK);
    must_end(last.reservation);

    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 128 * KIB), SPW_OK);
    struct wish raised = wish_for(100 * KIB, SPW_TIMEOUT_INFINITE);
    thread = start_wish(&raised, 1);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, MIB), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(raised.rc, SPW_OK);
    must_end(raised.reservation);
    must_end(wish.reservation);
    must_end(next.reservation);
    close_manager();
}
END_TEST

START_TEST(a_reservation_evicts_just_what_it_lacks)
{
    open_manager(SMALL_HOST);
    spw_buffer *buffers[8];
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 128 * KIB, i);
    spw_reservation *held = must_reserve(300 * KIB);
    comes_to(SPW_TIER_HOST, STAGING + 5 * 128 * KIB + 300 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 3 * 128 * KIB);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i < 3 ? SPW_DISK : SPW_HOST);
    ck_assert_int_eq(spw_reservation_grow(held, 84 * KIB, NULL), SPW_OK); /* what was free */
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 3 * 128 * KIB);
    ck_assert_int_eq(spw_reservation_grow(held, 4 * KIB, NULL), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(buffers[3]), SPW_DISK);
    ck_assert_uint_eq(spw_reservation_size(held), 388 * KIB);
    must_end(held);
    for (unsigned i = 0; i < 8; i++) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(when_nothing_can_be_written_a_reservation_ends_with_that_error_and_nothing_is_reserved)
{
    spw_reservation *none = NULL;
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 0, EIO);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64 * KIB, NULL, &none), SPW_EIO);
    spw__fault_disarm(SPW__FAULT_IO_WRITE);
    ck_assert_ptr_null(none);
    comes_to(SPW_TIER_HOST, STAGING + MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reserved_bytes, 0);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(up_to_takes_what_is_free_and_what_clean_copies_hold)
{
    spw_reservation *held = NULL;
    open_manager(SMALL_HOST);
    spw_buffer *clean = must_make(SPW_HOST, 512 * KIB, 1), *unsealed;
    push_out(SPW_HOST, MIB);
    check_at(clean, SPW_HOST, 1); /* in memory and on disk now */
    ck_assert_int_eq(reserve_with(2 * MIB, SPW_RESERVE_UPTO | SPW_RESERVE_TRY, 0, &held), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), 512 * KIB); /* TRY drops nothing */
    must_end(held);
    const uint64_t dropped = tier_now(SPW_TIER_HOST)->drop_bytes;
    ck_assert_int_eq(reserve_with(2 * MIB, SPW_RESERVE_UPTO, 0, &held), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->drop_bytes, dropped + 512 * KIB);
    ck_assert_uint_eq(stats.waits, 1); /* of push_out */
    must_end(held);
    must_release(clean);

    spw_buffer *sealed = must_make(SPW_HOST, 256 * KIB, 2);
    unsealed = must_alloc(SPW_HOST, 704 * KIB);
    ck_assert_int_eq(reserve_with(512 * KIB, SPW_RESERVE_UPTO, 4096, &held), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), 64 * KIB); /* and pushes out nothing for more */
    ck_assert_uint_eq(spw_buffer_place(sealed), SPW_HOST);
    spw_reservation *more = NULL;
    ck_assert_int_eq(reserve_with(512 * KIB, SPW_RESERVE_UPTO | SPW_RESERVE_TRY, 64, &more), SPW_EAGAIN);
    ck_assert_ptr_null(more);
    ck_assert_int_eq(reserve_with(512 * KIB, SPW_RESERVE_UPTO, 100 * KIB, &more), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(more), 100 * KIB); /* for the least it does */
    ck_assert_uint_eq(spw_buffer_place(sealed), SPW_DISK);
    must_end(held);
    must_end(more);
    must_release(sealed);
    must_release(unsealed);
    close_manager();
}
END_TEST

START_TEST(up_to_waits_for_the_least_it_needs)
{
    open_manager("host=1M");
    spw_reservation *all = must_reserve(MIB);
    struct wish wish = {.bytes = MIB, .options = with_flags(SPW_RESERVE_UPTO, 64 * KIB)};
    wish.options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    const pthread_t thread = start_wish(&wish, 1);
    ck_assert_int_eq(spw_reservation_shrink(all, 63 * KIB), SPW_OK);
    ck_assert_uint_eq(atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]), 1);
    ck_assert_int_eq(spw_reservation_shrink(all, KIB), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(wish.reservation), 64 * KIB);
    must_end(wish.reservation);
    must_end(all);
    close_manager();
}
END_TEST

static uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

START_TEST(a_wait_ends_at_its_deadline_on_the_managers_clock_and_says_what_was_short)
{
    static struct spw__clock clock = {.now_ns = manual_now};
    const struct spw__env env = {.clock = &clock};
    atomic_store(&clock.manual_ns, 5000000000);
    open_env(&env, "host=1M");
    spw_reservation *all = must_reserve(MIB - 4096);
    struct wish wish = wish_for(8192, 1000);
    const pthread_t thread = start_wish(&wish, 1);
    atomic_store(&clock.manual_ns, 5999999999);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert_uint_eq(atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]), 1);
    atomic_store(&clock.manual_ns, 6000000000);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_ENOMEM);
    ck_assert_ptr_null(wish.reservation);
    ck_assert_uint_eq(wish.detail.requested_bytes, 8192);
    ck_assert_uint_eq(wish.detail.free_bytes, 4096);
    ck_assert_uint_eq(wish.detail.limit_bytes, MIB);
    ck_assert_uint_eq(wish.detail.place, SPW_HOST);
    ck_assert_ptr_nonnull(strstr(wish.detail.message, "1044480 bytes there are reserved, and "));
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->committed_bytes, MIB - 4096);
    ck_assert_uint_eq(stats.wait_timeouts, 1);
    must_end(all);
    close_manager();
}
END_TEST

START_TEST(of_one_age_who_frees_most_in_the_end_goes_first)
{
    static struct spw__clock clock = {.now_ns = manual_now};
    const struct spw__env env = {.clock = &clock};
    open_env(&env, "host=1M");
    spw_reservation *all = must_reserve(MIB);
    struct wish adds = wish_for(600 * KIB, 1000), frees = adds;
    frees.options.net_bytes = -(int64_t)MIB;
    const pthread_t first = start_wish(&adds, 1), second = start_wish(&frees, 2);
    must_end(all); /* room for one */
    must_join(second);
    ck_assert_int_eq(frees.rc, SPW_OK);
    ck_assert_uint_eq(atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]), 1);
    must_end(frees.reservation);
    must_join(first);
    ck_assert_int_eq(adds.rc, SPW_OK);
    must_end(adds.reservation);
    close_manager();
}
END_TEST

START_TEST(a_wait_ends_when_it_is_cancelled)
{
    spw_cancel *cancel;
    open_manager("host=1M");
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    spw_reservation *all = must_reserve(MIB);
    struct wish wish = wish_for(8192, SPW_TIMEOUT_INFINITE);
    wish.options.wait.cancel = cancel;
    const pthread_t thread = start_wish(&wish, 1);
    spw_cancel_trigger(cancel);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_ECANCELED);
    ck_assert_int_eq(spw_reservation_grow(all, 64, &wish.options.wait), SPW_ECANCELED);
    ck_assert_uint_eq(spw_reservation_size(all), MIB);
    must_end(all);
    spw_cancel_destroy(cancel);
    close_manager();
}
END_TEST

START_TEST(destroy_is_refused_while_reservations_are_live_and_a_forced_one_ends_their_waits)
{
    open_manager("pinned=1M; host=1M");
    spw_reservation *all = must_reserve(MIB), *pinned = NULL;
    ck_assert_int_eq(spw_reserve(manager, SPW_PINNED_HOST, 4096, NULL, &pinned), SPW_OK);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1 of host (1048576 bytes)"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1 of pinned_host (4096 bytes)"));
    struct wish wish = wish_for(8192, SPW_TIMEOUT_INFINITE);
    const pthread_t thread = start_wish(&wish, 1);
    must_end(pinned);
    spw_manager_destroy_force(manager);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_ESHUTDOWN);
    ck_assert_ptr_null(wish.reservation);
    ck_assert_ptr_nonnull(all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reserve_wait");
    TCase *tests = tcase_create("reserve");
    tcase_set_timeout(tests, 100);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_can_never_fit_fails_at_once_whoever_waits);
    tcase_add_test(tests, a_waiting_reservation_is_served_by_a_release_a_shrink_a_buffer_and_a_raised_budget);
    tcase_add_test(tests, a_reservation_evicts_just_what_it_lacks);
    tcase_add_test(tests, when_nothing_can_be_written_a_reservation_ends_with_that_error_and_nothing_is_reserved);
    tcase_add_test(tests, up_to_takes_what_is_free_and_what_clean_copies_hold);
    tcase_add_test(tests, up_to_waits_for_the_least_it_needs);
    tcase_add_test(tests, a_wait_ends_at_its_deadline_on_the_managers_clock_and_says_what_was_short);
    tcase_add_test(tests, of_one_age_who_frees_most_in_the_end_goes_first);
    tcase_add_test(tests, a_wait_ends_when_it_is_cancelled);
    tcase_add_test(tests, destroy_is_refused_while_reservations_are_live_and_a_forced_one_ends_their_waits);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
