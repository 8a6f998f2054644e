/* Allocations under reservations: the bytes move in one step and in one piece, wait for memory without being counted as
 * missing, and go back when a call fails. Overbooking: counted, shown, and spilled first. */
#include "tests/reserve_fixture.h"

static int alloc_under(spw_reservation *reservation, size_t bytes, int64_t timeout_ms, spw_buffer **out)
{
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.reservation = reservation;
    options.wait.timeout_ms = timeout_ms;
    return spw_alloc(manager, SPW_HOST, bytes, &options, out);
}

static spw_buffer *must_alloc_under(spw_reservation *reservation, size_t bytes)
{
    spw_buffer *buffer = NULL;
    const int rc = alloc_under(reservation, bytes, SPW_TIMEOUT_DEFAULT, &buffer);
    ck_assert_msg(rc == SPW_OK, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
    return buffer;
}

static int map_under(spw_buffer *buffer, spw_reservation *reservation, spw_view *view)
{
    spw_map_options options;
    spw_map_options_init(&options);
    options.reservation = reservation;
    return spw_map(buffer, SPW_HOST, SPW_MAP_READ, &options, view);
}

/* What the sampling thread saw. */
static struct {
    atomic_bool on;
    uint64_t lowest, highest;
} seen;

static void *sample(void *arg)
{
    (void)arg;
    while (atomic_load(&seen.on)) {
        const uint64_t now = committed_now();
        seen.lowest = now < seen.lowest ? now : seen.lowest;
        seen.highest = now > seen.highest ? now : seen.highest;
    }
    return NULL;
}

START_TEST(what_is_allocated_under_a_reservation_is_never_counted_twice_or_not_at_all)
{
    enum { N = 128 };
    spw_buffer *buffers[N];
    spw_pool_options raw;
    spw_block blocks[N];
    open_manager("host=16K:1K,1M");
    spw_pool_options_init(&raw);
    for (unsigned round = 0; round < 50; round++) {
        spw_reservation *held = must_reserve(N * 4096 + N * 64);
        seen.lowest = UINT64_MAX;
        seen.highest = 0;
        atomic_store(&seen.on, true);
        const pthread_t sampler = must_start(sample, NULL);
        raw.reservation = held;
        for (unsigned i = 0; i < N; i++) {
            buffers[i] = must_alloc_under(held, 4096);
            ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 10, 0, NULL, &raw, &blocks[i]), SPW_OK);
            ck_assert_uint_eq(spw_reservation_size(held), (N - 1 - i) * (4096 + 64));
        }
        atomic_store(&seen.on, false);
        must_join(sampler);
        ck_assert_uint_eq(committed_now(), N * (4096 + 64));
        ck_assert(seen.highest == 0 || seen.lowest == N * (4096 + 64)); /* 0: the sampler came too late */
        ck_assert(seen.highest == 0 || seen.highest == N * (4096 + 64));
        must_end(held);
        for (unsigned i = 0; i < N; i++) {
            must_release(buffers[i]);
            ck_assert_int_eq(spw_pool_free(manager, &blocks[i], NULL), SPW_OK);
        }
        ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    }
    close_manager();
}
END_TEST

START_TEST(more_than_the_reservation_holds_is_refused_and_names_both)
{
    spw_buffer *none = NULL;
    spw_block block;
    spw_pool_options raw;
    open_manager("host=1M");
    spw_reservation *held = must_reserve(8192);
    ck_assert_int_eq(alloc_under(held, 8193, 0, &none), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "8256"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "8192"));
    ck_assert_ptr_null(none);
    ck_assert_int_eq(alloc_under(held, SIZE_MAX, 0, &none), SPW_ETOOBIG);
    spw_pool_options_init(&raw);
    raw.reservation = held;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 8193, 0, NULL, &raw, &block), SPW_EINVAL);
    ck_assert_uint_eq(spw_reservation_size(held), 8192);
    spw_buffer *buffer = must_alloc_under(held, 8192);
    ck_assert_uint_eq(spw_reservation_size(held), 0);
    ck_assert_int_eq(alloc_under(held, 1, 0, &none), SPW_EINVAL);
    spw_buffer *empty = must_alloc_under(held, 0);
    must_release(empty);
    must_end(held);
    ck_assert_int_eq(alloc_under(held, 1, 0, &none), SPW_EBADHANDLE);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 8192); /* the buffer has its own charge now */
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(the_reservations_place_must_be_among_those_asked_for_and_is_the_one_taken)
{
    spw_buffer *buffer = NULL;
    spw_admit_options admit;
    spw_reservation *held, *pinned = NULL;
    spw_view view;
    open_manager("pinned=1M; host=1M");
    held = must_reserve(64 * KIB);
    ck_assert_int_eq(spw_reserve(manager, SPW_PINNED_HOST, 64 * KIB, NULL, &pinned), SPW_OK);
    ck_assert_int_eq(alloc_under(pinned, 64, 0, &buffer), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "pinned_host"));
    spw_admit_options_init(&admit);
    admit.reservation = held;
    ck_assert_int_eq(spw_admit(manager, 64 * KIB, &admit, &buffer), SPW_OK); /* though pinned_host has room */
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->admits, 1);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].committed_bytes, 64 * KIB);
    ck_assert_int_eq(map_under(buffer, pinned, &view), SPW_EINVAL);
    admit.lowest = SPW_PINNED_HOST;
    spw_buffer *none;
    ck_assert_int_eq(spw_admit(manager, 64, &admit, &none), SPW_EINVAL);
    spw_manager *const first = manager;
    open_manager("host=1M");
    ck_assert_int_eq(alloc_under(held, 64, 0, &none), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "another manager"));
    close_manager();
    manager = first;
    must_release(buffer);
    must_end(held);
    must_end(pinned);
    close_manager();
}
END_TEST

START_TEST(a_reservation_is_spent_without_eviction_however_full_the_place_is)
{
    open_manager(SMALL_HOST);
    spw_reservation *held = must_reserve(256 * KIB);
    spw_buffer *others[6], *reload = must_make(SPW_HOST, 128 * KIB, 9);
    for (unsigned i = 0; i < 6; i++)
        others[i] = must_make(SPW_HOST, 128 * KIB, i); /* the last one pushes the first buffer out */
    ck_assert_uint_eq(spw_buffer_place(reload), SPW_DISK);
    const uint64_t spilled = tier_now(SPW_TIER_HOST)->spill_bytes;
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].free_bytes, 0);
    spw_buffer *buffer = must_alloc_under(held, 128 * KIB);
    spw_view view;
    ck_assert_int_eq(map_under(reload, held, &view), SPW_OK);
    ck_assert(has_content(view.data, 128 * KIB, 9));
    ck_assert_int_eq(spw_unmap(reload, &view, NULL), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), 0);
    ck_assert_int_eq(map_under(reload, held, &view), SPW_OK); /* nothing moves: it is not touched */
    ck_assert_int_eq(spw_unmap(reload, &view, NULL), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, spilled);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].committed_bytes, STAGING + MIB);
    must_end(held);
    must_release(buffer);
    must_release(reload);
    for (unsigned i = 0; i < 6; i++)
        must_release(others[i]);
    close_manager();
}
END_TEST

struct under {
    spw_reservation *reservation;
    size_t bytes;
    spw_buffer *buffer;
    int rc;
};

static void *allocate_under(void *arg)
{
    struct under *under = arg;
    under->rc = alloc_under(under->reservation, under->bytes, SPW_TIMEOUT_INFINITE, &under->buffer);
    return NULL;
}

START_TEST(while_an_allocation_waits_for_a_hole_its_bytes_stay_reserved)
{
    spw_buffer *buffers[8], *none = NULL;
    open_manager("host=1M");
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_alloc(SPW_HOST, 128 * KIB);
    for (unsigned i = 0; i < 8; i += 2)
        must_release(buffers[i]);
    spw_reservation *held = must_reserve(512 * KIB); /* a reservation needs no hole */
    ck_assert_int_eq(alloc_under(held, 256 * KIB, 0, &none), SPW_EFRAG);
    ck_assert_uint_eq(spw_reservation_size(held), 512 * KIB);
    struct under under = {.reservation = held, .bytes = 256 * KIB};
    const pthread_t thread = must_start(allocate_under, &under);
    until_waiting(1);
    ck_assert_uint_eq(spw_reservation_size(held), 512 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 512 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].committed_bytes, MIB);
    ck_assert_int_eq(spw_reservation_release(held), SPW_EBUSY);
    ck_assert_int_eq(spw_reservation_shrink(held, 256 * KIB + 1), SPW_EINVAL); /* promised already */
    must_release(buffers[3]);
    must_join(thread);
    ck_assert_int_eq(under.rc, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(held), 256 * KIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), MIB - 128 * KIB);
    must_end(held);
    must_release(under.buffer);
    for (unsigned i = 1; i < 8; i += 2)
        if (i != 3)
            must_release(buffers[i]);
    close_manager();
}
END_TEST

START_TEST(a_forced_destroy_ends_the_wait_of_an_allocation_under_a_reservation)
{
    for (unsigned round = 0; round < 20; round++) {
        spw_buffer *buffers[8];
        open_manager("host=1M");
        for (unsigned i = 0; i < 8; i++)
            buffers[i] = must_alloc(SPW_HOST, 128 * KIB);
        for (unsigned i = 0; i < 8; i += 2)
            must_release(buffers[i]);
        struct under under = {.reservation = must_reserve(512 * KIB), .bytes = 256 * KIB};
        const pthread_t thread = must_start(allocate_under, &under);
        until_waiting(1);
        spw_manager_destroy_force(manager);
        must_join(thread);
        ck_assert_int_eq(under.rc, SPW_ESHUTDOWN);
        ck_assert_ptr_null(under.buffer);
    }
}
END_TEST

START_TEST(reservations_of_every_memory_place_are_spent_by_buffers_and_raw_memory)
{
    static const spw_place places[] = {SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST};
    open_manager("device=1M; pinned=1M; host=1M; driver=sim");
    for (unsigned i = 0; i < 3; i++) {
        const spw_tier tier = SPW_PLACE_TIER(places[i]);
        spw_reservation *held = NULL;
        spw_buffer *buffer = NULL;
        spw_alloc_options options;
        spw_pool_options raw;
        spw_block block;
        ck_assert_int_eq(spw_reserve(manager, places[i], MIB, NULL, &held), SPW_OK);
        spw_alloc_options_init(&options);
        spw_pool_options_init(&raw);
        options.reservation = raw.reservation = held;
        ck_assert_int_eq(spw_alloc(manager, places[i], 512 * KIB, &options, &buffer), SPW_OK);
        ck_assert_int_eq(spw_pool_alloc(manager, places[i], 256 * KIB, 0, NULL, &raw, &block), SPW_OK);
        ck_assert_uint_eq(spw_reservation_size(held), 256 * KIB);
        ck_assert_uint_eq(committed(tier), MIB);
        ck_assert_uint_eq(stats.tiers[tier].reserved_bytes, 256 * KIB);
        ck_assert_uint_eq(stats.tiers[tier].raw_bytes, 256 * KIB);
        must_end(held);
        ck_assert_uint_eq(committed(tier), 768 * KIB);
        must_release(buffer);
        ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);
    }
    close_manager();
}
END_TEST

START_TEST(a_hole_is_opened_for_an_allocation_under_a_reservation_with_a_full_budget)
{
    open_manager(SMALL_HOST);
    spw_buffer *buffers[8];
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, 128 * KIB, i);
    for (unsigned i = 0; i < 8; i += 2)
        must_release(buffers[i]);
    comes_to(SPW_TIER_HOST, STAGING + 512 * KIB);
    spw_reservation *held = must_reserve(512 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->free_bytes, 0);
    spw_buffer *buffer = must_alloc_under(held, 512 * KIB);
    ck_assert_uint_eq(spw_reservation_size(held), 0);
    ck_assert_uint_ge(tier_now(SPW_TIER_HOST)->holes, 1);
    must_end(held);
    must_release(buffer);
    for (unsigned i = 1; i < 8; i += 2) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(what_fails_after_it_got_its_memory_gives_the_bytes_back_to_the_reservation)
{
    spw_buffer *none = NULL;
    spw_pool_options raw;
    spw_block block;
    spw_view view;
    open_manager(SMALL_HOST);
    spw_buffer *reload = must_make(SPW_HOST, 512 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw_reservation *held = must_reserve(MIB);
    for (long nth = 1; nth <= 6; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = alloc_under(held, 512 * KIB, 0, &none);
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert(rc == SPW_OK || rc == SPW_ENOMETA);
        if (rc == SPW_OK)
            must_release(none);
        ck_assert_uint_eq(committed_now(), STAGING + (rc == SPW_OK ? MIB / 2 : MIB));
        ck_assert_uint_eq(spw_reservation_size(held), rc == SPW_OK ? MIB / 2 : MIB);
        if (rc == SPW_OK)
            ck_assert_int_eq(spw_reservation_grow(held, MIB / 2, NULL), SPW_OK);
    }
    spw_pool_options_init(&raw);
    raw.reservation = held;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 4096, 0, NULL, &raw, &block), SPW_ENOMETA);
    ck_assert_int_eq(map_under(reload, held, &view), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(spw_reservation_size(held), MIB);
    spw__fault_arm(SPW__FAULT_IO_READ, 2, 1, EIO);
    ck_assert_int_eq(map_under(reload, held, &view), SPW_EIO);
    spw__fault_disarm(SPW__FAULT_IO_READ);
    /* What was read before stays, and is paid for. */
    comes_to(SPW_TIER_HOST, STAGING + MIB);
    const uint64_t left = spw_reservation_size(held);
    ck_assert_uint_ge(left, 640 * KIB);
    must_end(held);
    comes_to(SPW_TIER_HOST, STAGING + MIB - left);
    check_at(reload, SPW_HOST, 1);
    must_release(reload);
    close_manager();
}
END_TEST

START_TEST(overbooking_is_granted_counted_and_shown)
{
    spw_reservation *over = NULL, *none = NULL;
    const spw_tier_stats *host = &stats.tiers[SPW_TIER_HOST];
    open_manager("host=1M");
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 512 * KIB), SPW_OK);
    spw_reservation *held = must_reserve(384 * KIB);
    ck_assert_int_eq(reserve_with(128 * KIB, SPW_RESERVE_OVERBOOK, 0, &over), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->overbooks, 0); /* there was room */
    must_end(over);
    ck_assert_int_eq(reserve_with(300 * KIB, SPW_RESERVE_OVERBOOK, 0, &over), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->committed_bytes, 684 * KIB);
    ck_assert_uint_eq(host->overbooks, 1);
    ck_assert_uint_eq(host->overbook_bytes, 172 * KIB);
    ck_assert_uint_eq(host->overbooked_bytes, 172 * KIB);
    ck_assert_uint_eq(host->reserved_bytes, 684 * KIB);
    dump_shows(SPW_STATS_TEXT, "host: 684.0 KiB reserved; overbooked now 172.0 KiB, 1 times by 172.0 KiB in all");
    dump_shows(SPW_STATS_JSON, "\"reserved_bytes\":700416,\"overbooked_bytes\":176128,\"overbooks\":1,"
                               "\"overbook_bytes\":176128");
    ck_assert_int_eq(try_reserve(64, &none), SPW_EAGAIN);
    ck_assert_int_eq(reserve_with(MIB + 1, SPW_RESERVE_OVERBOOK, 0, &none), SPW_ETOOBIG);
    ck_assert_ptr_null(none);
    must_end(held);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->overbooked_bytes, 0);
    ck_assert_uint_eq(host->overbook_bytes, 172 * KIB);
    must_end(over);
    close_manager();
}
END_TEST

START_TEST(what_is_overbooked_is_spilled_first_and_just_until_the_budget_holds_again)
{
    spw_reservation *over = NULL;
    spw_buffer *old[4];
    open_manager("host=2M; staging=64K; piece=128K; disk=%s:16M");
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, STAGING + 512 * KIB), SPW_OK);
    for (unsigned i = 0; i < 4; i++)
        old[i] = must_make(SPW_HOST, 128 * KIB, i);
    ck_assert_int_eq(reserve_with(256 * KIB, SPW_RESERVE_OVERBOOK, 0, &over), SPW_OK);
    spw_buffer *young = must_alloc_under(over, 256 * KIB);
    write_content(young, 9);
    ck_assert_int_eq(spw_buffer_seal(young), SPW_OK);
    must_end(over);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 768 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooked_bytes, 256 * KIB);
    spw_buffer *asked = must_alloc(SPW_HOST, 128 * KIB);
    comes_to(SPW_TIER_HOST, STAGING + 512 * KIB);
    ck_assert_uint_eq(spw_buffer_place(young), SPW_DISK); /* the youngest of all */
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 384 * KIB);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(spw_buffer_place(old[i]), i == 0 ? SPW_DISK : SPW_HOST);
    must_release(asked);

    /* Back under the budget it is a buffer like any other. */
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, STAGING + 768 * KIB), SPW_OK);
    check_at(old[0], SPW_HOST, 0);
    check_at(young, SPW_HOST, 9);
    asked = must_alloc(SPW_HOST, 128 * KIB);
    ck_assert_uint_eq(spw_buffer_place(young), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(old[0]), SPW_DISK);
    must_release(asked);
    must_release(young);
    for (unsigned i = 0; i < 4; i++)
        must_release(old[i]);
    close_manager();
}
END_TEST

START_TEST(an_allocation_under_overbooked_bytes_makes_its_own_room_where_the_pools_are_full)
{
    spw_reservation *over = NULL;
    spw_buffer *old[8];
    open_manager(SMALL_HOST);
    for (unsigned i = 0; i < 8; i++)
        old[i] = must_make(SPW_HOST, 128 * KIB, i);
    ck_assert_int_eq(reserve_with(256 * KIB, SPW_RESERVE_OVERBOOK, 0, &over), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0); /* nothing asks for room yet */
    spw_buffer *young = must_alloc_under(over, 256 * KIB);
    comes_to(SPW_TIER_HOST, STAGING + MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 256 * KIB);
    ck_assert_uint_eq(spw_buffer_place(old[0]), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(old[1]), SPW_DISK);
    must_end(over);
    must_release(young);
    for (unsigned i = 0; i < 8; i++)
        must_release(old[i]);
    close_manager();
}
END_TEST

START_TEST(a_waiting_reservation_and_a_waiting_buffer_evict_for_both)
{
    open_manager(SMALL_HOST);
    spw_buffer *old[8], *wanted = NULL;
    spw_view views[8];
    for (unsigned i = 0; i < 8; i++) {
        old[i] = must_make(SPW_HOST, 128 * KIB, i);
        ck_assert_int_eq(spw_map(old[i], SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    }
    struct wish wish = wish_for(256 * KIB, SPW_TIMEOUT_INFINITE);
    const pthread_t thread = start_wish(&wish, 1);
    ck_assert_int_eq(alloc_within(SPW_HOST, 128 * KIB, 0, &wanted), SPW_ENOMEM);
    for (unsigned i = 0; i < 8; i++) /* each becomes a victim, three are needed */
        ck_assert_int_eq(spw_unmap(old[i], &views[i], NULL), SPW_OK);
    wanted = must_alloc(SPW_HOST, 128 * KIB);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);
    comes_to(SPW_TIER_HOST, STAGING + MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 384 * KIB);
    must_end(wish.reservation);
    must_release(wanted);
    for (unsigned i = 0; i < 8; i++)
        must_release(old[i]);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reserve_use");
    TCase *tests = tcase_create("reserve_use");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, what_is_allocated_under_a_reservation_is_never_counted_twice_or_not_at_all);
    tcase_add_test(tests, more_than_the_reservation_holds_is_refused_and_names_both);
    tcase_add_test(tests, the_reservations_place_must_be_among_those_asked_for_and_is_the_one_taken);
    tcase_add_test(tests, a_reservation_is_spent_without_eviction_however_full_the_place_is);
    tcase_add_test(tests, while_an_allocation_waits_for_a_hole_its_bytes_stay_reserved);
    tcase_add_test(tests, a_forced_destroy_ends_the_wait_of_an_allocation_under_a_reservation);
    tcase_add_test(tests, reservations_of_every_memory_place_are_spent_by_buffers_and_raw_memory);
    tcase_add_test(tests, a_hole_is_opened_for_an_allocation_under_a_reservation_with_a_full_budget);
    tcase_add_test(tests, what_fails_after_it_got_its_memory_gives_the_bytes_back_to_the_reservation);
    tcase_add_test(tests, overbooking_is_granted_counted_and_shown);
    tcase_add_test(tests, what_is_overbooked_is_spilled_first_and_just_until_the_budget_holds_again);
    tcase_add_test(tests, an_allocation_under_overbooked_bytes_makes_its_own_room_where_the_pools_are_full);
    tcase_add_test(tests, a_waiting_reservation_and_a_waiting_buffer_evict_for_both);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
