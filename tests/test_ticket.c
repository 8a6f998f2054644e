/* Tickets: each form at once and after waiting, descriptors, and who is told. Other ends are in test_ticket_end.c. */
#include "ticket_fixture.h"

#include "src/core/handle.h"
#include "src/core/use.h"

/* Takes what a form brought, and gives it back. */
static void take_and_give_back(int form, spw_ticket *ticket, spw_buffer *mapped)
{
    spw_reservation *reservation = NULL;
    spw_block block;
    spw_view view;
    switch (form) {
    case 0:
    case 1: {
        spw_buffer *buffer = must_take(ticket);
        ck_assert_uint_eq(spw_buffer_size(buffer), 512 * KIB);
        must_release(buffer);
        break;
    }
    case 2:
        ck_assert_int_eq(spw_ticket_take_reservation(ticket, &reservation), SPW_OK);
        ck_assert_uint_eq(spw_reservation_size(reservation), 512 * KIB);
        ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
        break;
    case 3:
        ck_assert_int_eq(spw_ticket_take_block(ticket, &block), SPW_OK);
        ck_assert_uint_eq(block.size, 512 * KIB);
        ck_assert_uint_eq((uintptr_t)block.ptr % 4096, 0);
        ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);
        break;
    default:
        ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
        ck_assert_uint_eq(view.place, SPW_HOST);
        ck_assert(has_content(view.data, view.size, 7));
        ck_assert_int_eq(spw_unmap(mapped, &view, NULL), SPW_OK);
    }
}

START_TEST(what_there_is_room_for_is_there_when_the_start_returns)
{
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 7);
    spw_ticket *ticket = start_form(_i, buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    take_and_give_back(_i, ticket, buffer);
    nothing_is_to_be_taken(ticket);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK); /* for ever */
    must_destroy(ticket);
    must_release(buffer);
}
END_TEST

START_TEST(what_there_is_no_room_for_waits_and_is_served)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_form(_i, buffer);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    nothing_is_to_be_taken(ticket);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    take_and_give_back(_i, ticket, buffer);
    must_destroy(ticket);
    must_release(buffer);
}
END_TEST

START_TEST(what_is_not_taken_goes_with_the_ticket)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_form(_i, buffer);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    must_release(buffer); /* a view would be open on it */
    comes_to(SPW_TIER_HOST, STAGING);
}
END_TEST

START_TEST(colder_buffers_make_room_for_a_ticket)
{
    spw_buffer *cold = must_make(SPW_HOST, MIB, 3);
    spw_ticket *ticket = start_alloc(512 * KIB);
    must_end_as(ticket, SPW_OK);
    must_release(must_take(ticket));
    must_destroy(ticket);
    check_at(cold, SPW_HOST, 3);
    must_release(cold);
}
END_TEST

/* The form of spw_buffer_write that does not wait: its map by a ticket first. */
START_TEST(a_write_to_what_a_ticket_has_mapped_waits_for_no_room)
{
    spw_buffer *buffer = NULL;
    spw_ticket *ticket = NULL;
    spw_view view;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_write(buffer, 1, "old", 3), SPW_OK);
    ck_assert_int_eq(spw_buffer_set_spillable(buffer, true), SPW_OK);
    push_out(SPW_HOST, MIB);
    const uint32_t flags = SPW_MAP_READ | SPW_MAP_WRITE | SPW_MAP_HERE;
    ck_assert_int_eq(spw_map_start(buffer, SPW_HOST, flags, NULL, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK);
    ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
    must_destroy(ticket);
    spw_buffer *rest = hold(512 * KIB); /* with nothing free */
    ck_assert_int_eq(spw_buffer_write(buffer, 2, "new", 3), SPW_OK);
    ck_assert_mem_eq((const char *)view.data + 1, "onew", 4);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_release(rest);
    must_release(buffer);
}
END_TEST

START_TEST(a_timeout_of_0_tries_once_and_drops_clean_copies)
{
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 5);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 5); /* its copy on disk is clean */
    spw_ticket *ticket = start_alloc_within(MIB, 0);
    must_end_as(ticket, SPW_OK);
    spw_buffer *all = must_take(ticket);
    must_destroy(ticket);
    ticket = start_alloc_within(512 * KIB, 0);
    must_end_as(ticket, SPW_ENOMEM);
    must_destroy(ticket);
    must_release(all);
    must_release(buffer);
}
END_TEST

START_TEST(a_descriptor_tells_of_what_ended_before_it_was_asked_for)
{
    spw_ticket *ticket = start_alloc(256 * KIB);
    const int fd = spw_manager_fd(manager);
    ck_assert_int_eq(spw_manager_fd(manager), fd);
    ck_assert(is_readable(fd));
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert(!is_readable(fd));
    must_destroy(ticket);
    ck_assert(!is_readable(fd));
}
END_TEST

START_TEST(without_our_threads_progress_alone_runs_everything)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 8);
    spw_ticket *ticket = start_alloc(MIB);
    while (spw_ticket_poll(ticket) == SPW_EAGAIN)
        ck_assert_int_ge(spw_progress(manager, 1000000), 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    spw_buffer *all = must_take(ticket);
    must_destroy(ticket);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ticket = start_map(buffer);
    must_release(all);
    while (spw_ticket_poll(ticket) == SPW_EAGAIN)
        ck_assert_int_ge(spw_progress(manager, 1000000), 0);
    take_and_give_back(MAP_FORM, ticket, buffer);
    must_destroy(ticket);
    must_release(cold);
    must_release(buffer);
}
END_TEST

START_TEST(a_thousand_are_served_oldest_first)
{
    enum { N = 1000, BYTES = 64 * 1024 };
    static spw_ticket *tickets[N];
    spw_buffer *held = hold(MIB);
    unsigned served = 0;
    for (unsigned i = 0; i < N; i++)
        tickets[i] = start_alloc_within(BYTES, SPW_TIMEOUT_INFINITE);
    must_release(held);
    /* Memory is that of 16: whoever gets it makes way for the next. */
    while (served < N) {
        must_end_as(tickets[served], SPW_OK);
        for (unsigned i = served + 16; i < N; i++)
            ck_assert_int_eq(spw_ticket_poll(tickets[i]), SPW_EAGAIN);
        must_destroy(tickets[served++]);
    }
}
END_TEST

START_TEST(maps_of_one_buffer_share_the_fetch)
{
    spw_ticket *tickets[4];
    spw_view view;
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    for (unsigned i = 0; i < 4; i++)
        tickets[i] = start_map(buffer);
    for (unsigned i = 0; i < 4; i++) {
        must_end_as(tickets[i], SPW_OK);
        ck_assert_int_eq(spw_ticket_take_view(tickets[i], &view), SPW_OK);
        ck_assert(has_content(view.data, view.size, 7));
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
        must_destroy(tickets[i]);
    }
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 512 * KIB);
    must_release(buffer);
}
END_TEST

START_TEST(a_map_waits_for_earlier_uses_on_streams)
{
    spw_view scratch, view;
    spw_ticket *ticket = NULL;
    close_manager();
    open_manager("device=17M; host=1M; driver=sim");
    spw_buffer *buffer = must_make(SPW_DEVICE, 256 * KIB, 7), *work = must_alloc(SPW_DEVICE, 16 * MIB);
    ck_assert_int_eq(spw_map(work, SPW_DEVICE, SPW_MAP_WRITE, NULL, &scratch), SPW_OK);
    spw__stream stream = busy_stream(&scratch);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, stream), SPW_OK);
    ck_assert_int_eq(spw_map_start(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &ticket), SPW_OK);
    must_end_as(ticket, SPW_OK);
    ck_assert(!spw__use_pending(manager, buffer->payload->last_use));
    ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_destroy(ticket);
    ck_assert_int_eq(spw_unmap(work, &scratch, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    must_release(work);
    must_release(buffer);
}
END_TEST

START_TEST(tags_are_copied_and_reservations_pay)
{
    spw_reservation *reservation = NULL;
    spw_ticket *ticket = NULL;
    char tag[] = "hash table";
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 512 * KIB, NULL, &reservation), SPW_OK);
    options.tag = tag;
    options.reservation = reservation;
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 256 * KIB, &options, &ticket), SPW_OK);
    memset(tag, 'x', sizeof tag - 1);
    must_end_as(ticket, SPW_OK);
    spw_buffer *buffer = must_take(ticket);
    ck_assert_str_eq(spw_buffer_tag(buffer), "hash table");
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_destroy(ticket);
    must_release(buffer);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
}
END_TEST

START_TEST(reservations_of_what_there_is_and_beyond_the_budget_need_no_wait)
{
    spw_reservation *reservation = NULL;
    spw_ticket *ticket = NULL;
    spw_reserve_options options;
    spw_reserve_options_init(&options);
    spw_buffer *held = hold(768 * KIB);
    options.flags = SPW_RESERVE_UPTO;
    ck_assert_int_eq(spw_reserve_start(manager, SPW_HOST, MIB, &options, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_reservation(ticket, &reservation), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), 256 * KIB);
    must_destroy(ticket);
    options.flags = SPW_RESERVE_OVERBOOK;
    ck_assert_int_eq(spw_reserve_start(manager, SPW_HOST, 512 * KIB, &options, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_destroy(ticket);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    must_release(held);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket");
    TCase *both[2] = {tcase_create("ticket"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_loop_test(tests, what_there_is_room_for_is_there_when_the_start_returns, 0, FORMS);
        tcase_add_loop_test(tests, what_there_is_no_room_for_waits_and_is_served, 0, FORMS);
        tcase_add_loop_test(tests, what_is_not_taken_goes_with_the_ticket, 0, FORMS);
        tcase_add_test(tests, colder_buffers_make_room_for_a_ticket);
        tcase_add_test(tests, a_write_to_what_a_ticket_has_mapped_waits_for_no_room);
        tcase_add_test(tests, a_timeout_of_0_tries_once_and_drops_clean_copies);
        tcase_add_test(tests, a_descriptor_tells_of_what_ended_before_it_was_asked_for);
        tcase_add_test(tests, a_thousand_are_served_oldest_first);
        tcase_add_test(tests, maps_of_one_buffer_share_the_fetch);
        tcase_add_test(tests, tags_are_copied_and_reservations_pay);
        tcase_add_test(tests, reservations_of_what_there_is_and_beyond_the_budget_need_no_wait);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], a_map_waits_for_earlier_uses_on_streams);
    tcase_add_test(both[1], without_our_threads_progress_alone_runs_everything);
    return run_suite(suite);
}
