/* Tickets for a group's share: minima that wait for room, and whose buffers make it. */
#include "ticket_fixture.h"

#include "src/core/group.h"

#define PIECE (128 * KIB)

static spw_group *must_group(const char *name)
{
    spw_group *group = NULL;
    spw_group_options options;
    spw_group_options_init(&options);
    options.name = name;
    ck_assert_int_eq(spw_group_create(manager, &options, &group), SPW_OK);
    return group;
}

static void must_end_group(spw_group *group)
{
    const int rc = spw_group_destroy(group);
    ck_assert_msg(rc == SPW_OK, "destroy: %s", spw_error_detail()->message);
}

static spw_ticket *start_share(spw_group *group, uint64_t min, uint64_t max, int64_t timeout_ms)
{
    spw_ticket *ticket = NULL;
    const spw_group_share share = {.min_bytes = min, .max_bytes = max, .weight = 3};
    const spw_wait_options wait = {.timeout_ms = timeout_ms};
    const int rc = spw_group_set_start(group, SPW_HOST, &share, &wait, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

static void has_share(spw_group *group, spw_place place, uint64_t min, uint64_t max)
{
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    ck_assert_int_eq(spw_group_usage_get(group, place, &usage), SPW_OK);
    ck_assert_uint_eq(usage.min_bytes, min);
    ck_assert_uint_eq(usage.max_bytes, max);
}

static void has_no_share(spw_group *group)
{
    has_share(group, SPW_HOST, 0, SPW_NO_LIMIT);
}

static spw_buffer *must_alloc_in(spw_group *group, size_t bytes)
{
    spw_buffer *buffer = NULL;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.group = group;
    const int rc = spw_alloc(manager, SPW_HOST, bytes, &options, &buffer);
    ck_assert_msg(rc == SPW_OK, "alloc: %s", spw_error_detail()->message);
    return buffer;
}

static spw_buffer *must_make_in(spw_group *group, size_t bytes, unsigned seed)
{
    spw_buffer *buffer = must_alloc_in(group, bytes);
    write_content(buffer, seed);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    return buffer;
}

START_TEST(a_share_that_there_is_room_for_is_the_groups_when_the_start_returns)
{
    spw_group *group = must_group("a");
    spw_ticket *ticket = start_share(group, 256 * KIB, 512 * KIB, 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    nothing_is_to_be_taken(ticket);
    has_share(group, SPW_HOST, 256 * KIB, 512 * KIB);
    ck_assert_uint_eq(atomic_load(&group->node.weight[SPW_TIER_HOST]), 3);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 256 * KIB);
    must_destroy(ticket); /* takes nothing back */
    has_share(group, SPW_HOST, 256 * KIB, 512 * KIB);
    ticket = start_share(group, 128 * KIB, SPW_NO_LIMIT, 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_destroy(ticket);
    has_share(group, SPW_HOST, 128 * KIB, SPW_NO_LIMIT);
    must_end_group(group);
}
END_TEST

START_TEST(others_make_room_for_a_minimum_and_the_group_itself_does_not)
{
    spw_group *group = must_group("a"), *other = must_group("b");
    spw_buffer *own[3], *others[4];
    for (unsigned i = 0; i < 3; i++) /* the coldest */
        own[i] = must_make_in(group, PIECE, i);
    for (unsigned i = 0; i < 4; i++)
        others[i] = must_make_in(other, PIECE, 10 + i);
    spw_ticket *ticket = start_share(group, 6 * PIECE, SPW_NO_LIMIT, SPW_TIMEOUT_DEFAULT);
    must_end_as(ticket, SPW_OK); /* one piece was free, and two had to go */
    must_destroy(ticket);
    has_share(group, SPW_HOST, 6 * PIECE, SPW_NO_LIMIT);
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++)
        out += spw_buffer_place(others[i]) == SPW_DISK;
    ck_assert_uint_eq(out, 2);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(spw_buffer_place(own[i]), SPW_HOST);
    for (unsigned i = 0; i < 3; i++)
        must_release(own[i]);
    for (unsigned i = 0; i < 4; i++)
        must_release(others[i]);
    must_end_group(group);
    must_end_group(other);
}
END_TEST

START_TEST(what_the_group_has_already_is_not_asked_for_again)
{
    spw_group *group = must_group("a");
    spw_buffer *own = must_alloc_in(group, 512 * KIB), *held = hold(384 * KIB);
    spw_ticket *ticket = start_share(group, 640 * KIB, SPW_NO_LIMIT, 0); /* 128 KiB more than it has are free */
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_destroy(ticket);
    ticket = start_share(group, 768 * KIB, SPW_NO_LIMIT, SPW_TIMEOUT_DEFAULT);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    has_share(group, SPW_HOST, 640 * KIB, SPW_NO_LIMIT);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    has_share(group, SPW_HOST, 768 * KIB, SPW_NO_LIMIT);
    must_release(own);
    must_end_group(group);
}
END_TEST

/* A minimum is bytes of the budget: it need not fit one pool, and buffers of any pool make room for it. */
START_TEST(a_minimum_larger_than_each_pool_is_made_room_for)
{
    spw_buffer *buffers[8];
    spw_group *group = NULL;
    close_manager();
    open_manager("host=512K,576K; staging=64K; piece=128K; disk=%s:16M");
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_HOST, PIECE, i);
    if (_i == 0) {
        spw_group_options options;
        spw_group_options_init(&options);
        options.shares[SPW_TIER_HOST].min_bytes = 768 * KIB;
        ck_assert_int_eq(spw_group_create(manager, &options, &group), SPW_OK);
    } else {
        group = must_group("a");
        spw_ticket *ticket = start_share(group, 768 * KIB, SPW_NO_LIMIT, SPW_TIMEOUT_DEFAULT);
        must_end_as(ticket, SPW_OK);
        must_destroy(ticket);
    }
    has_share(group, SPW_HOST, 768 * KIB, SPW_NO_LIMIT);
    for (unsigned i = 0; i < 8; i++)
        must_release(buffers[i]);
    must_end_group(group);
}
END_TEST

START_TEST(cancelled_destroyed_or_too_late_the_share_is_as_before)
{
    spw_group *group = must_group("a");
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_share(group, 256 * KIB, 512 * KIB, _i == 2 ? 5 : SPW_TIMEOUT_DEFAULT);
    if (_i == 0)
        ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    if (_i != 1)
        must_end_as(ticket, _i == 0 ? SPW_ECANCELED : SPW_ENOMEM);
    must_destroy(ticket);
    has_no_share(group);
    must_release(held);
    comes_to(SPW_TIER_HOST, STAGING);
    has_no_share(group);
    must_end_group(group);
}
END_TEST

START_TEST(after_a_minimum_was_given_up_the_groups_buffers_give_way_again)
{
    spw_group *group = must_group("a");
    spw_buffer *own = must_make_in(group, 512 * KIB, 1), *held = hold(512 * KIB);
    spw_ticket *ticket = start_share(group, 768 * KIB, SPW_NO_LIMIT, SPW_TIMEOUT_DEFAULT);
    spw_buffer *none = NULL;
    ck_assert_int_eq(alloc_within(SPW_HOST, 256 * KIB, 10, &none), SPW_ENOMEM); /* held for the minimum to come */
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    must_destroy(ticket);
    spw_buffer *more = hold(256 * KIB);
    must_release(more);
    must_release(held);
    check_at(own, SPW_HOST, 1);
    must_release(own);
    must_end_group(group);
}
END_TEST

START_TEST(cancelling_the_group_ends_it)
{
    spw_group *group = must_group("a");
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_share(group, 256 * KIB, SPW_NO_LIMIT, SPW_TIMEOUT_INFINITE), *refused = NULL;
    const spw_group_share share = {.max_bytes = SPW_NO_LIMIT, .weight = 1};
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    must_destroy(ticket);
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, NULL, &refused), SPW_ECANCELED);
    must_release(held);
    must_end_group(group);
}
END_TEST

START_TEST(a_share_of_the_disk_ends_at_once)
{
    spw_group *group = must_group("a");
    spw_ticket *ticket = NULL;
    const spw_group_share share = {.min_bytes = 8 * MIB, .max_bytes = 12 * MIB, .weight = 1};
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1); /* with a clean copy on disk */
    ck_assert_int_eq(spw_group_set_start(group, SPW_DISK, &share, NULL, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_destroy(ticket);
    has_share(group, SPW_DISK, 8 * MIB, 12 * MIB);
    must_release(buffer);
    must_end_group(group);
}
END_TEST

START_TEST(wrong_shares_are_told_at_once)
{
    spw_group *group = must_group("a");
    spw_ticket *ticket = NULL;
    spw_group_share share = {.max_bytes = SPW_NO_LIMIT, .weight = 1};
    spw_wait_options wait = {.reserved = {1}};
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, NULL, NULL, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set_start(group, SPW_PLACE_NONE, &share, NULL, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, &wait, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set_start(NULL, SPW_HOST, &share, NULL, &ticket), SPW_EBADHANDLE);
    share.weight = 0;
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, NULL, &ticket), SPW_EINVAL);
    share = (spw_group_share){.min_bytes = 2 * MIB, .max_bytes = SPW_NO_LIMIT, .weight = 1};
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, NULL, &ticket), SPW_ETOOBIG);
    ck_assert_ptr_null(ticket);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    share.min_bytes = 0;
    ck_assert_int_eq(spw_group_set_start(group, SPW_HOST, &share, NULL, &ticket), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    has_no_share(group);
    must_end_group(group);
}
END_TEST

START_TEST(a_forced_destroy_ends_shares)
{
    spw_group *group = must_group("a");
    spw_buffer *held = hold(MIB);
    ck_assert_ptr_nonnull(held);
    ck_assert_int_eq(spw_ticket_poll(start_share(group, 256 * KIB, SPW_NO_LIMIT, SPW_TIMEOUT_INFINITE)), SPW_EAGAIN);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

START_TEST(a_cancel_against_the_grant_leaves_just_the_share_that_the_end_says)
{
    enum { ROUNDS = 200 };
    struct race race;
    spw_group *group = must_group("a");
    ck_assert_int_eq(pthread_barrier_init(&race.barrier, NULL, 2), 0);
    const pthread_t thread = must_start(cancel_each, &race);
    for (unsigned round = 0; round < ROUNDS; round++) {
        spw_buffer *held = hold(960 * KIB);
        spw_ticket *ticket = race.ticket = start_share(group, 128 * KIB, 512 * KIB, SPW_TIMEOUT_INFINITE);
        (void)pthread_barrier_wait(&race.barrier);
        must_release(held);
        (void)pthread_barrier_wait(&race.barrier);
        const int rc = spw_ticket_wait(ticket, NULL);
        ck_assert_msg(rc == SPW_OK || rc == SPW_ECANCELED, "%s", spw_error_name(rc));
        if (rc == SPW_OK)
            has_share(group, SPW_HOST, 128 * KIB, 512 * KIB);
        else
            has_no_share(group);
        must_destroy(ticket);
        ticket = start_share(group, 0, SPW_NO_LIMIT, 0);
        ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
        must_destroy(ticket);
        comes_to(SPW_TIER_HOST, STAGING);
    }
    race.ticket = NULL;
    (void)pthread_barrier_wait(&race.barrier);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&race.barrier);
    must_end_group(group);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_share");
    TCase *both[2] = {tcase_create("ticket_share"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, a_share_that_there_is_room_for_is_the_groups_when_the_start_returns);
        tcase_add_test(tests, others_make_room_for_a_minimum_and_the_group_itself_does_not);
        tcase_add_test(tests, what_the_group_has_already_is_not_asked_for_again);
        tcase_add_loop_test(tests, a_minimum_larger_than_each_pool_is_made_room_for, 0, 2);
        tcase_add_loop_test(tests, cancelled_destroyed_or_too_late_the_share_is_as_before, 0, 3);
        tcase_add_test(tests, after_a_minimum_was_given_up_the_groups_buffers_give_way_again);
        tcase_add_test(tests, cancelling_the_group_ends_it);
        tcase_add_test(tests, a_share_of_the_disk_ends_at_once);
        tcase_add_test(tests, a_forced_destroy_ends_shares);
        tcase_add_test(tests, a_cancel_against_the_grant_leaves_just_the_share_that_the_end_says);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], wrong_shares_are_told_at_once);
    return run_suite(suite);
}
