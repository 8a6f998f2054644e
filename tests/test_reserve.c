/* Reservations: what they take from a budget and give back, to the byte. Waits for them are in test_reserve_wait.c,
 * what is allocated under them in test_reserve_use.c. */
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
    tcase_add_test(tests, reserving_and_allocating_at_the_limit_never_exceed_it);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
