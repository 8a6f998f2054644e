/* Reservations: what they take from a budget and give back, to the byte; who waits for them, and what ends that. What
 * is allocated under them is in test_reserve_use.c. */
#include "tests/reserve_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 20000u
#else
#define ROUNDS 250000u /* of each of four threads */
#endif

START_TEST(a_reservation_of_just_the_budget_is_granted_and_one_byte_more_is_not)
{
    spw_reservation *more = NULL;
    open_manager("host=1M");
    spw_reservation *all = must_reserve(MIB);
    ck_assert_uint_eq(spw_reservation_size(all), MIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reserved_bytes, MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].free_bytes, 0);
    ck_assert_int_eq(try_reserve(1, &more), SPW_EAGAIN);
    ck_assert_ptr_null(more);
    must_end(all);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reserved_bytes, 0);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, MIB + 1, NULL, &more), SPW_ETOOBIG);
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, MIB);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, UINT64_MAX, NULL, &more), SPW_ETOOBIG);
    ck_assert_ptr_null(more);
    close_manager();
}
END_TEST

START_TEST(what_is_set_aside_for_staging_can_never_be_reserved)
{
    spw_reservation *more;
    open_manager(SMALL_HOST);
    spw_reservation *all = must_reserve(MIB);
    must_end(all);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, MIB + 1, NULL, &more), SPW_ETOOBIG);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "staging"));
    close_manager();
}
END_TEST

START_TEST(bytes_are_rounded_up_as_one_allocation_of_them_would_be)
{
    open_manager("host=1M");
    spw_reservation *small = must_reserve(1), *large = must_reserve(100 * KIB + 1);
    ck_assert_uint_eq(spw_reservation_size(small), 64);
    ck_assert_uint_eq(spw_reservation_size(large), 104 * KIB);
    ck_assert_int_eq(spw_reservation_grow(small, 65, NULL), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(small), 192);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 104 * KIB + 192);
    must_end(small);
    must_end(large);
    close_manager();
}
END_TEST

START_TEST(a_reservation_of_nothing_is_granted_even_when_there_is_nothing)
{
    spw_reservation *empty = NULL;
    open_manager("host=1M");
    spw_reservation *all = must_reserve(MIB);
    struct wish wish = wish_for(4096, SPW_TIMEOUT_INFINITE);
    const pthread_t thread = start_wish(&wish, 1);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 0, NULL, &empty), SPW_OK);
    ck_assert_ptr_nonnull(empty);
    ck_assert_uint_eq(spw_reservation_size(empty), 0);
    ck_assert_int_eq(spw_reservation_shrink(empty, 1), SPW_EINVAL);
    ck_assert_int_eq(spw_reservation_shrink(empty, 0), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), MIB);
    must_end(empty);
    must_end(all);
    must_join(thread);
    must_end(wish.reservation);
    close_manager();
}
END_TEST

START_TEST(giving_back_more_than_is_held_is_refused_and_a_part_is_given_back_to_the_byte)
{
    open_manager("host=1M");
    spw_reservation *held = must_reserve(1000 * KIB);
    ck_assert_int_eq(spw_reservation_shrink(held, 1000 * KIB + 1), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1024001"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1024000"));
    ck_assert_uint_eq(spw_reservation_size(held), 1000 * KIB);
    ck_assert_int_eq(spw_reservation_shrink(held, 1), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 1000 * KIB - 1);
    ck_assert_int_eq(spw_reservation_shrink(held, 400 * KIB - 1), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), 600 * KIB);
    spw_reservation *other = must_reserve(424 * KIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), MIB);
    ck_assert_int_eq(spw_reservation_shrink(held, 600 * KIB), SPW_OK);
    ck_assert_int_eq(spw_reservation_shrink(held, 1), SPW_EINVAL);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 424 * KIB);
    must_end(held);
    must_end(other);
    close_manager();
}
END_TEST

START_TEST(split_and_merge_move_bytes_without_touching_the_budget)
{
    spw_reservation *part = NULL;
    open_manager("pinned=1M; host=1M");
    spw_reservation *whole = must_reserve(512 * KIB), *elsewhere = NULL;
    ck_assert_int_eq(spw_reservation_split(whole, 512 * KIB + 1, &part), SPW_EINVAL);
    ck_assert_ptr_null(part);
    ck_assert_int_eq(spw_reservation_split(whole, 100 * KIB + 1, &part), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(whole), 412 * KIB - 1);
    ck_assert_uint_eq(spw_reservation_size(part), 100 * KIB + 1);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 512 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reserved_bytes, 512 * KIB);
    ck_assert_int_eq(spw_reservation_merge(whole, whole), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve(manager, SPW_PINNED_HOST, 64, NULL, &elsewhere), SPW_OK);
    ck_assert_int_eq(spw_reservation_merge(whole, elsewhere), SPW_EINVAL);
    ck_assert_int_eq(spw_reservation_merge(part, whole), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(part), 512 * KIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 512 * KIB);
    ck_assert_int_eq(spw_reservation_release(whole), SPW_EBADHANDLE); /* it is gone */
    ck_assert_int_eq(spw_reservation_merge(part, whole), SPW_EBADHANDLE);
    must_end(part);
    must_end(elsewhere);
    close_manager();
}
END_TEST

START_TEST(a_second_release_and_a_stale_handle_are_recognised)
{
    spw_reservation *none;
    open_manager("host=1M");
    spw_reservation *held = must_reserve(4096);
    must_end(held);
    spw_reservation *next = must_reserve(4096);
    ck_assert_ptr_ne(next, held); /* a slot is used again as late as possible */
    ck_assert_int_eq(spw_reservation_release(held), SPW_EBADHANDLE);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "released already"));
    ck_assert_int_eq(spw_reservation_grow(held, 1, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reservation_shrink(held, 1), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reservation_split(held, 1, &none), SPW_EBADHANDLE);
    ck_assert_uint_eq(spw_reservation_size(held), 0);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 4096);
    _Alignas(64) uint64_t foreign[16] = {0};
    ck_assert_int_eq(spw_reservation_release((spw_reservation *)(void *)foreign), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reservation_grow(NULL, 1, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reservation_release(NULL), SPW_OK);
    must_end(next);
    close_manager();
}
END_TEST

START_TEST(options_that_contradict_themselves_are_refused)
{
    spw_reservation *none = NULL;
    open_manager("host=1M");
    ck_assert_int_eq(reserve_with(4096, 0x8, 0, &none), SPW_EINVAL);
    ck_assert_int_eq(reserve_with(4096, SPW_RESERVE_UPTO | SPW_RESERVE_OVERBOOK, 1, &none), SPW_EINVAL);
    ck_assert_int_eq(reserve_with(4096, SPW_RESERVE_UPTO, 4097, &none), SPW_EINVAL);
    ck_assert_int_eq(reserve_with(0, SPW_RESERVE_UPTO, 0, &none), SPW_EINVAL); /* never a "successful" 0 */
    ck_assert_int_eq(reserve_with(4096, 0, 1, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve(manager, SPW_DEVICE, 1, NULL, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve(manager, SPW_DISK, 1, NULL, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve(NULL, SPW_HOST, 1, NULL, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 1, NULL, NULL), SPW_EINVAL);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    close_manager();
}
END_TEST

START_TEST(many_reservations_are_all_different_and_running_out_of_meta_leaves_every_counter)
{
    enum { MANY = 5000 };
    static spw_reservation *held[MANY];
    spw_reservation *none = NULL;
    open_manager("host=1M");
    for (unsigned i = 0; i < MANY; i++) {
        held[i] = must_reserve(64);
        ck_assert_int_eq(spw_reservation_grow(held[i], i % 3 * 64, NULL), SPW_OK);
    }
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_uint_eq(spw_reservation_size(held[i]), 64 + i % 3 * 64);
    for (unsigned i = 0; i < MANY; i += 2)
        must_end(held[i]);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    const uint64_t before = committed_now();
    unsigned n = 0;
    int rc;
    while ((rc = spw_reserve(manager, SPW_HOST, 64, NULL, &none)) == SPW_OK) {
        held[2 * n] = none; /* every slot is used before there is an error */
        ck_assert_uint_le(++n, MANY / 2 + 4096);
        if (n == MANY / 2)
            break;
    }
    ck_assert_uint_eq(n, MANY / 2);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(committed_now(), before + MANY / 2 * 64);
    for (unsigned i = 0; i < MANY; i++)
        must_end(held[i]);
    close_manager();

    open_manager("host=1M");
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64, NULL, &none), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(committed_now(), 0);
    close_manager();
}
END_TEST

START_TEST(a_budget_lowered_below_use_grants_nothing_until_use_is_below_it)
{
    spw_reservation *more = NULL;
    open_manager("host=1M");
    spw_reservation *held = must_reserve(512 * KIB), *other = must_reserve(128 * KIB);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 256 * KIB), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 640 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooked_bytes, 384 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooks, 0); /* nobody asked for it */
    ck_assert_int_eq(try_reserve(64, &more), SPW_EAGAIN);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 257 * KIB, NULL, &more), SPW_ETOOBIG);
    ck_assert_int_eq(spw_reservation_shrink(held, 500 * KIB), SPW_OK);
    ck_assert_int_eq(try_reserve(116 * KIB, &more), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 256 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooked_bytes, 0);
    must_end(held);
    must_end(other);
    must_end(more);
    close_manager();
}
END_TEST

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
    ck_assert_ptr_nonnull(strstr(wish.detail.message, "reserved (1044480)"));
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

/* Reservations, allocations under them and beside them, at the limit. */
static void *race(void *arg)
{
    unsigned state = *(const unsigned *)arg;
    spw_alloc_options alloc;
    spw_alloc_options_init(&alloc);
    alloc.flags = SPW_NOWAIT;
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw_reservation *held = NULL, *part = NULL;
        spw_buffer *under = NULL, *beside = NULL;
        state = state * 1103515245u + 12345u;
        const uint64_t bytes = 64 * (1 + (state >> 8) % 512);
        const int rc = try_reserve(bytes, &held);
        ck_assert(rc == SPW_OK || rc == SPW_EAGAIN);
        if (rc == SPW_OK && (state >> 20) % 4 == 0) {
            alloc.reservation = held;
            const int got = spw_alloc(manager, SPW_HOST, 64, &alloc, &under);
            ck_assert(got == SPW_OK || got == SPW_EAGAIN); /* there may be no hole */
        } else if (rc == SPW_OK && (state >> 20) % 4 == 1) {
            ck_assert_int_eq(spw_reservation_split(held, bytes / 2, &part), SPW_OK);
            ck_assert_int_eq(spw_reservation_shrink(held, bytes / 4), SPW_OK);
        }
        if ((state >> 22) % 4 == 0) {
            alloc.reservation = NULL;
            const int got = spw_alloc(manager, SPW_HOST, bytes, &alloc, &beside);
            ck_assert(got == SPW_OK || got == SPW_EAGAIN);
        }
        must_end(held);
        must_release(under);
        must_release(beside);
        must_end(part);
    }
    return NULL;
}

static atomic_bool racing;

static void *sample(void *arg)
{
    uint64_t *highest = arg;
    while (atomic_load(&racing)) {
        const uint64_t now = committed_now();
        *highest = now > *highest ? now : *highest;
    }
    return NULL;
}

START_TEST(reserving_and_allocating_at_the_limit_never_exceed_it)
{
    enum { BUDGET = 96 * 1024 };
    unsigned seeds[4] = {1, 2, 3, 4};
    pthread_t threads[4];
    uint64_t highest = 0;
    open_manager("host=1M; threads=0");
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, BUDGET), SPW_OK);
    atomic_store(&racing, true);
    const pthread_t sampler = must_start(sample, &highest);
    for (unsigned i = 0; i < 4; i++)
        threads[i] = must_start(race, &seeds[i]);
    for (unsigned i = 0; i < 4; i++)
        must_join(threads[i]);
    atomic_store(&racing, false);
    must_join(sampler);
    ck_assert_uint_le(highest, BUDGET);
    ck_assert_uint_le(tier_now(SPW_TIER_HOST)->peak_bytes, BUDGET);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].peak_bytes, BUDGET / 2);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reserved_bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].committed_bytes, 0);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reserve");
    TCase *tests = tcase_create("reserve");
    tcase_set_timeout(tests, 100);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_reservation_of_just_the_budget_is_granted_and_one_byte_more_is_not);
    tcase_add_test(tests, what_is_set_aside_for_staging_can_never_be_reserved);
    tcase_add_test(tests, bytes_are_rounded_up_as_one_allocation_of_them_would_be);
    tcase_add_test(tests, a_reservation_of_nothing_is_granted_even_when_there_is_nothing);
    tcase_add_test(tests, giving_back_more_than_is_held_is_refused_and_a_part_is_given_back_to_the_byte);
    tcase_add_test(tests, split_and_merge_move_bytes_without_touching_the_budget);
    tcase_add_test(tests, a_second_release_and_a_stale_handle_are_recognised);
    tcase_add_test(tests, options_that_contradict_themselves_are_refused);
    tcase_add_test(tests, many_reservations_are_all_different_and_running_out_of_meta_leaves_every_counter);
    tcase_add_test(tests, a_budget_lowered_below_use_grants_nothing_until_use_is_below_it);
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
    tcase_add_test(tests, reserving_and_allocating_at_the_limit_never_exceed_it);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
