/* Tickets that make a buffer writable: in place or as a copy, taken or not, and everything as before otherwise. */
#include "ticket_fixture.h"

#include "src/core/handle.h"

static spw_ticket *start_writable(spw_buffer *buffer)
{
    spw_ticket *ticket = NULL;
    const int rc = spw_buffer_make_writable_start(buffer, SPW_HOST, NULL, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

static spw_buffer *must_share(size_t bytes, unsigned seed)
{
    spw_buffer *shared = must_make(SPW_HOST, bytes, seed);
    ck_assert_int_eq(spw_buffer_retain(shared), SPW_OK);
    return shared;
}

/* It is sealed, with that content, and its owners are as many. */
static void is_as_before(spw_buffer *buffer, unsigned seed, unsigned owners)
{
    spw_view view;
    check_at(buffer, SPW_HOST, seed);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_ESEALED);
    ck_assert_uint_eq(atomic_load(&buffer->refs), owners);
}

START_TEST(the_sole_owner_gets_its_own_bytes_back_when_they_are_taken)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1); /* in memory, with a clean copy below */
    const uint64_t below = committed(SPW_TIER_DISK);
    ck_assert_uint_gt(below, 0);
    spw_ticket *ticket = start_writable(buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    is_as_before(buffer, 1, 1);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), below);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 0); /* what lay below would differ from now on */
    must_destroy(ticket);
    write_content(buffer, 2);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
}
END_TEST

START_TEST(what_lies_on_disk_is_brought_back)
{
    spw_buffer *buffer = must_make(SPW_HOST, 256 * KIB, 3);
    push_out(SPW_HOST, MIB);
    spw_ticket *ticket = start_writable(buffer);
    must_end_as(ticket, SPW_OK);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    must_destroy(ticket);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    check_at(buffer, SPW_HOST, 3);
    write_content(buffer, 4);
    must_release(buffer);
}
END_TEST

START_TEST(what_is_shared_is_copied_with_its_head_and_tag_and_the_other_owner_sees_no_change)
{
    const spw_head head = {.data_type = 9, .route_label = 77};
    spw_head copied;
    spw_alloc_options options;
    spw_ticket *ticket = NULL;
    spw_alloc_options_init(&options);
    options.tag = "mine";
    spw_buffer *shared = must_share(384 * KIB, 1); /* three pieces */
    ck_assert_int_eq(spw_buffer_set_meta(shared, &head), SPW_OK);
    ck_assert_int_eq(spw_buffer_make_writable_start(shared, SPW_HOST, &options, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK);
    is_as_before(shared, 1, 2);
    spw_buffer *mine = must_take(ticket);
    must_destroy(ticket);
    ck_assert_ptr_ne(mine, shared);
    ck_assert_uint_eq(atomic_load(&shared->refs), 1); /* the other went with the copy */
    ck_assert_str_eq(spw_buffer_tag(mine), "mine");
    ck_assert_int_eq(spw_buffer_head(mine, &copied), SPW_OK);
    ck_assert_uint_eq(copied.route_label, 77);
    ck_assert_uint_eq(copied.payload_bytes, 384 * KIB);
    check_at(mine, SPW_HOST, 1);
    write_content(mine, 2);
    check_at(shared, SPW_HOST, 1);
    must_release(mine);
    must_release(shared);
}
END_TEST

START_TEST(unsealed_and_empty_buffers_are_had_at_once)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 128 * KIB), *empty = must_share(0, 0);
    spw_ticket *ticket = start_writable(buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    nothing_is_to_be_taken(ticket);
    must_destroy(ticket);
    ticket = start_writable(buffer);
    must_destroy(ticket); /* not taken: nothing has happened */
    write_content(buffer, 1);
    must_release(buffer);
    ticket = start_writable(empty);
    must_end_as(ticket, SPW_OK);
    spw_buffer *copy = must_take(ticket);
    ck_assert_ptr_ne(copy, empty);
    must_destroy(ticket);
    must_release(copy);
    must_release(empty);
}
END_TEST

START_TEST(what_is_not_taken_leaves_the_buffer_as_it_was)
{
    spw_buffer *shared = must_share(256 * KIB, 1);
    spw_ticket *ticket = start_writable(shared);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket); /* with the copy */
    is_as_before(shared, 1, 2);
    comes_to(SPW_TIER_HOST, STAGING + 256 * KIB);
    must_release(shared);
    ticket = start_writable(shared);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    is_as_before(shared, 1, 1);
    push_out(SPW_HOST, MIB); /* nothing holds it */
    must_release(shared);
}
END_TEST

/* A ticket that waits: for room for what is on disk, or for its copy. */
static spw_ticket *start_stuck(bool on_disk, spw_buffer **buffer, spw_buffer **held)
{
    *buffer = must_share(256 * KIB, 1);
    if (on_disk)
        push_out(SPW_HOST, MIB);
    *held = hold(on_disk ? MIB : 768 * KIB);
    spw_ticket *ticket = start_writable(*buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    return ticket;
}

START_TEST(what_waits_for_room_is_served)
{
    spw_buffer *shared, *held;
    spw_ticket *ticket = start_stuck(_i, &shared, &held);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    spw_buffer *mine = must_take(ticket);
    must_destroy(ticket);
    write_content(mine, 2);
    is_as_before(shared, 1, 1);
    must_release(mine);
    must_release(shared);
}
END_TEST

START_TEST(cancelling_or_destroying_what_waits_leaves_everything_as_it_was)
{
    spw_buffer *shared, *held;
    spw_ticket *ticket = start_stuck(_i & 1, &shared, &held);
    if (_i & 2) {
        ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
        must_end_as(ticket, SPW_ECANCELED);
        nothing_is_to_be_taken(ticket);
    }
    must_destroy(ticket);
    must_release(held);
    is_as_before(shared, 1, 2);
    must_release(shared);
    must_release(shared);
}
END_TEST

START_TEST(all_owners_may_let_go_as_soon_as_the_ticket_is_destroyed)
{
    spw_buffer *shared, *held;
    spw_ticket *ticket = start_stuck(_i, &shared, &held);
    must_destroy(ticket);
    must_release(shared);
    must_release(shared);
    must_release(held);
    comes_to(SPW_TIER_HOST, STAGING);
}
END_TEST

START_TEST(a_copy_on_its_way_is_called_off)
{
    spw_buffer *shared = must_share(512 * KIB, 1);
    spw_ticket *ticket = start_writable(shared); /* nobody has moved a byte yet */
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_ECANCELED);
    must_destroy(ticket);
    ck_assert_uint_eq(edge_now(SPW_TIER_HOST, SPW_TIER_HOST)->bytes, 0);
    is_as_before(shared, 1, 2);
    must_release(shared);
    must_release(shared);
}
END_TEST

START_TEST(a_spill_on_its_way_is_awaited_before_the_bytes_are_given)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 1), *none = NULL;
    ck_assert_int_eq(alloc_within(SPW_HOST, MIB, 0, &none), SPW_ENOMEM); /* its victims have been chosen */
    spw_ticket *ticket = start_writable(buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    must_end_as(ticket, SPW_OK);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    must_destroy(ticket);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 0);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
}
END_TEST

START_TEST(a_copy_that_does_not_fit_in_time_is_an_error)
{
    spw_alloc_options options;
    spw_ticket *ticket = NULL;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = 5;
    spw_buffer *shared = must_share(600 * KIB, 1);
    ck_assert_int_eq(spw_buffer_make_writable_start(shared, SPW_HOST, &options, &ticket), SPW_OK);
    must_end_as(ticket, SPW_ENOMEM); /* its bytes are held, so nothing can make room for as many again */
    must_destroy(ticket);
    is_as_before(shared, 1, 2);
    must_release(shared);
    must_release(shared);
}
END_TEST

START_TEST(a_reference_that_was_added_since_is_told_and_nothing_happens)
{
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1), *out = NULL;
    spw_ticket *ticket = start_writable(buffer);
    must_end_as(ticket, SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &out), SPW_EBUSY);
    ck_assert_ptr_null(out);
    is_as_before(buffer, 1, 2);
    must_release(buffer);
    spw_ticket *other = start_writable(buffer); /* waits for the first */
    ck_assert_int_eq(spw_ticket_poll(other), SPW_EAGAIN);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &out), SPW_EBUSY);
    ck_assert_int_eq(spw_ticket_cancel(other), SPW_OK);
    must_end_as(other, SPW_ECANCELED);
    must_destroy(other);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    must_destroy(ticket);
    must_release(buffer);
}
END_TEST

START_TEST(open_views_of_the_sole_owner_are_told)
{
    spw_buffer *buffer = must_share(128 * KIB, 1), *out = NULL;
    spw_view view;
    spw_ticket *copy = start_writable(buffer);
    must_end_as(copy, SPW_OK);
    must_release(buffer);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(copy, &out), SPW_EMAPPED); /* the reference could not be given back */
    spw_ticket *ticket = start_writable(buffer);
    must_end_as(ticket, SPW_EMAPPED);
    must_destroy(ticket);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ticket = start_writable(buffer);
    must_end_as(ticket, SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &out), SPW_EMAPPED);
    ck_assert_ptr_null(out);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_ptr_eq(must_take(ticket), buffer);
    must_destroy(ticket);
    must_destroy(copy);
    must_release(buffer);
}
END_TEST

START_TEST(a_reservation_pays_for_the_copy_alone)
{
    spw_reservation *reservation = NULL;
    spw_alloc_options options;
    spw_ticket *ticket = NULL;
    spw_alloc_options_init(&options);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 512 * KIB, NULL, &reservation), SPW_OK);
    options.reservation = reservation;
    spw_buffer *buffer = must_share(256 * KIB, 1);
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, &options, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_release(must_take(ticket));
    must_destroy(ticket);
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, &options, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK); /* in place */
    must_destroy(ticket);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(bytes_on_the_device_are_copied_there_and_a_copy_that_fails_is_an_error)
{
    spw_ticket *ticket = NULL;
    close_manager();
    open_manager("device=4M; driver=sim; host=1M; piece=256K");
    spw_buffer *shared = must_make(SPW_DEVICE, MIB, 5);
    ck_assert_int_eq(spw_buffer_retain(shared), SPW_OK);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, EIO);
    ck_assert_int_eq(spw_buffer_make_writable_start(shared, SPW_HOST, NULL, &ticket), SPW_OK);
    must_end_as(ticket, SPW_EDEVICE);
    must_destroy(ticket);
    spw__fault_disarm(SPW__FAULT_DEVICE_COPY);
    comes_to(SPW_TIER_DEVICE, MIB);
    ck_assert_int_eq(spw_buffer_make_writable_start(shared, SPW_HOST, NULL, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK);
    spw_buffer *mine = must_take(ticket);
    must_destroy(ticket);
    ck_assert_uint_eq(spw_buffer_place(mine), SPW_DEVICE);
    check_at(mine, SPW_DEVICE, 5);
    write_content(mine, 6);
    check_at(shared, SPW_DEVICE, 5);
    must_release(mine);
    must_release(shared);
}
END_TEST

START_TEST(without_metadata_memory_nothing_is_left_of_it)
{
    const spw_head head = {.data_type = 9};
    spw_buffer *shared = must_share(128 * KIB, 1);
    bool ended_well = false;
    ck_assert_int_eq(spw_buffer_set_meta(shared, &head), SPW_OK);
    for (long nth = 1; !ended_well; nth++) {
        spw_ticket *ticket = NULL;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        int rc = spw_buffer_make_writable_start(shared, SPW_HOST, NULL, &ticket);
        rc = rc == SPW_OK ? spw_ticket_wait(ticket, NULL) : rc;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_msg(rc == SPW_OK || rc == SPW_ENOMETA, "%s", spw_error_name(rc));
        ended_well = rc == SPW_OK;
        must_destroy(ticket);
        is_as_before(shared, 1, 2);
    }
    comes_to(SPW_TIER_HOST, STAGING + 128 * KIB);
    must_release(shared);
    must_release(shared);
}
END_TEST

START_TEST(a_forced_destroy_ends_it)
{
    spw_buffer *shared, *held;
    spw_ticket *ticket = _i < 2 ? start_stuck(_i, &shared, &held) : start_writable(must_share(256 * KIB, 1));
    ck_assert_ptr_nonnull(ticket);
    if (_i == 3)
        must_end_as(ticket, SPW_OK);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

START_TEST(wrong_arguments_of_it_are_told_at_once)
{
    spw_ticket *ticket = NULL;
    spw_alloc_options options;
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1);
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_buffer_make_writable_start(NULL, SPW_HOST, NULL, &ticket), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_DISK, NULL, &ticket), SPW_EINVAL);
    spw_alloc_options_init(&options);
    options.flags = SPW_NOWAIT;
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, &options, &ticket), SPW_EINVAL);
    options.flags = 0x80u;
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, &options, &ticket), SPW_EINVAL);
    ck_assert_ptr_null(ticket);
    is_as_before(buffer, 1, 1);
    must_release(buffer);
    ck_assert_int_eq(spw_buffer_make_writable_start(buffer, SPW_HOST, NULL, &ticket), SPW_EBADHANDLE);
}
END_TEST

/* Owners of one buffer that each make it theirs, change it and drop it, or change their mind. */
enum { OWNERS = 4, ROUNDS = 150 };
static spw_buffer *common;

static void *own(void *arg)
{
    const unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        ck_assert_int_eq(spw_buffer_retain(common), SPW_OK);
        spw_ticket *ticket = start_writable(common);
        if (round % 3 == 0)
            ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
        const int rc = round % 3 == 1 ? SPW_EAGAIN : spw_ticket_wait(ticket, NULL);
        ck_assert_msg(rc == SPW_OK || rc == SPW_ECANCELED || rc == SPW_EAGAIN, "%s", spw_error_detail()->message);
        if (rc == SPW_OK && round % 3 == 2) {
            spw_buffer *mine = must_take(ticket);
            ck_assert_ptr_ne(mine, common);
            check_at(mine, SPW_HOST, 1);
            write_content(mine, seed + round);
            check_at(mine, SPW_HOST, seed + round);
            must_release(mine);
            must_destroy(ticket);
        } else {
            must_destroy(ticket);
            must_release(common);
        }
    }
    return NULL;
}

START_TEST(many_owners_at_once_change_only_their_own)
{
    pthread_t threads[OWNERS];
    common = must_make(SPW_HOST, 128 * KIB, 1);
    for (unsigned i = 0; i < OWNERS; i++)
        threads[i] = must_start(own, (void *)(uintptr_t)(100 * (i + 1)));
    for (unsigned i = 0; i < OWNERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    is_as_before(common, 1, 1);
    must_release(common);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_writable");
    TCase *both[2] = {tcase_create("ticket_writable"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, the_sole_owner_gets_its_own_bytes_back_when_they_are_taken);
        tcase_add_test(tests, what_lies_on_disk_is_brought_back);
        tcase_add_test(tests, what_is_shared_is_copied_with_its_head_and_tag_and_the_other_owner_sees_no_change);
        tcase_add_test(tests, unsealed_and_empty_buffers_are_had_at_once);
        tcase_add_test(tests, what_is_not_taken_leaves_the_buffer_as_it_was);
        tcase_add_loop_test(tests, what_waits_for_room_is_served, 0, 2);
        tcase_add_loop_test(tests, cancelling_or_destroying_what_waits_leaves_everything_as_it_was, 0, 4);
        tcase_add_loop_test(tests, all_owners_may_let_go_as_soon_as_the_ticket_is_destroyed, 0, 2);
        tcase_add_test(tests, a_copy_that_does_not_fit_in_time_is_an_error);
        tcase_add_test(tests, a_reference_that_was_added_since_is_told_and_nothing_happens);
        tcase_add_test(tests, open_views_of_the_sole_owner_are_told);
        tcase_add_test(tests, a_reservation_pays_for_the_copy_alone);
        tcase_add_test(tests, bytes_on_the_device_are_copied_there_and_a_copy_that_fails_is_an_error);
        tcase_add_test(tests, without_metadata_memory_nothing_is_left_of_it);
        tcase_add_loop_test(tests, a_forced_destroy_ends_it, 0, 4);
        tcase_add_test(tests, many_owners_at_once_change_only_their_own);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], wrong_arguments_of_it_are_told_at_once);
    tcase_add_test(both[1], a_spill_on_its_way_is_awaited_before_the_bytes_are_given);
    tcase_add_test(both[1], a_copy_on_its_way_is_called_off);
    return run_suite(suite);
}
