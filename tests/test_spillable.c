/* Unsealed buffers that their producer marked spillable: when they are pushed out, what comes back, and what becomes of
 * the copies below once they are written on. test_spillable_race.c has writers that meet a spill, and what fails. */
#include "group_fixture.h"
#include "spillable_fixture.h"

static const char *const modes[] = {SMALL_HOST "; io=auto", SMALL_HOST "; io=threads", SMALL_HOST "; threads=0"};
enum { MODES = sizeof modes / sizeof modes[0] };

START_TEST(an_unsealed_buffer_is_pushed_out_while_it_is_marked_and_not_before_or_after)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = make_unsealed(SPW_HOST, 300 * KIB, 1);
    ask_for_all();
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    mark(buffer, true);
    mark(buffer, true);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    mark(buffer, false);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK); /* until it is used */
    check_at(buffer, SPW_HOST, 1);
    ask_for_all();
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_mapped_one_stays_where_it_is_until_its_last_view_is_closed)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = make_unsealed(SPW_HOST, 256 * KIB, 1);
    spw_view read = must_map(buffer, SPW_HOST, SPW_MAP_READ), write = must_map(buffer, SPW_HOST, SPW_MAP_WRITE);
    mark(buffer, true);
    push_out(SPW_HOST, 768 * KIB); /* what is left */
    ask_for_all();
    must_unmap(buffer, &read);
    ask_for_all();
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    fill(write.data, write.size, 2);
    must_unmap(buffer, &write);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_sealed_buffer_can_always_be_pushed_out)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1), *empty = must_alloc(SPW_HOST, 0);
    mark(buffer, true);
    ck_assert_int_eq(spw_buffer_set_spillable(buffer, false), SPW_ESEALED);
    push_out(SPW_HOST, MIB);
    ck_assert_int_eq(spw_buffer_set_spillable(buffer, false), SPW_ESEALED);
    mark(buffer, true);
    check_at(buffer, SPW_HOST, 1);
    mark(empty, true);
    mark(empty, false);
    must_release(buffer);
    must_release(empty);
    ck_assert_int_eq(spw_buffer_set_spillable(buffer, true), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_buffer_set_spillable(NULL, true), SPW_EBADHANDLE);
    close_manager();
}
END_TEST

START_TEST(marking_serves_who_waits_for_room)
{
    spw_ticket *ticket = NULL;
    spw_buffer *got = NULL;
    open_manager(modes[_i]);
    spw_buffer *buffer = make_unsealed(SPW_HOST, MIB, 1);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 512 * KIB, NULL, &ticket), SPW_OK);
    drain();
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    mark(buffer, true);
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &got), SPW_OK);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    must_release(got);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(readers_keep_the_copy_below_and_a_writer_gives_it_back)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1);
    ck_assert_uint_eq(on_disk(), 300 * KIB);
    const uint64_t before = written();
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(written(), before); /* it lay there already */
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_WRITE);
    ck_assert_uint_eq(on_disk(), 0);
    ck_assert(has_content(view.data, view.size, 1));
    fill(view.data, view.size, 2);
    must_unmap(buffer, &view);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(written(), 2 * before);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(what_was_written_last_is_what_comes_back_however_often)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 700 * KIB, 0);
    for (unsigned round = 1; round < 8; round++) {
        push_out(SPW_HOST, MIB);
        if (round % 2)
            check_at(buffer, SPW_HOST, round - 1);
        write_content(buffer, round);
        ck_assert_uint_eq(on_disk(), 0);
    }
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 7);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(discarded_content_is_not_read_and_its_extents_are_free)
{
    spw_ticket *ticket = NULL;
    spw_view view;
    open_manager(modes[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
    for (unsigned with_ticket = 0; with_ticket < 2; with_ticket++) {
        push_out(SPW_HOST, MIB);
        ck_assert_uint_eq(on_disk(), 300 * KIB);
        if (with_ticket) {
            ck_assert_int_eq(spw_map_start(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD, NULL, &ticket), SPW_OK);
            ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
            ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
            ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
        } else {
            view = must_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD);
        }
        ck_assert_uint_eq(on_disk(), 0);
        fill(view.data, view.size, 2 + with_ticket);
        must_unmap(buffer, &view);
    }
    ck_assert_uint_eq((tier_now(SPW_TIER_DISK), stats.disk_read_bytes), 0);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 3);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(buffer_write_brings_back_what_it_does_not_overwrite)
{
    static unsigned char patch[64 * KIB], all[512 * KIB], data[512 * KIB];
    open_manager(modes[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, sizeof all, 1), *room = NULL;
    fill(all, sizeof all, 1);
    fill(patch, sizeof patch, 2);
    push_out(SPW_HOST, MIB);
    for (unsigned i = 0; i < 3; i++) {
        memcpy(all + 200 * KIB + 100 * i, patch, sizeof patch);
        ck_assert_int_eq(spw_buffer_write(buffer, 200 * KIB + 100 * i, patch, sizeof patch), SPW_OK);
        ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
        ck_assert_uint_eq(on_disk(), 0);
        room = must_alloc(SPW_HOST, i == 0 ? 600 * KIB : MIB); /* a part of its pieces goes, or all */
        must_release(room);
        ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    }
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    ck_assert_mem_eq(view.data, all, sizeof all);
    must_unmap(buffer, &view);
    push_out(SPW_HOST, MIB);
    const uint64_t read = (tier_now(SPW_TIER_DISK), stats.disk_read_bytes);
    fill(data, sizeof data, 3);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, data, sizeof data), SPW_OK); /* all of it: nothing is read */
    ck_assert_uint_eq((tier_now(SPW_TIER_DISK), stats.disk_read_bytes), read);
    ck_assert_uint_eq(on_disk(), 0);
    check_at(buffer, SPW_HOST, 3);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(buffer_write_brings_to_the_lowest_place_that_can_hold_it)
{
    static unsigned char patch[100];
    open_manager("device=3M; pinned=1M; host=2M; staging=64K; piece=128K; disk=%s:16M; driver=sim");
    spw_buffer *small = make_marked(SPW_DEVICE, MIB, 1), *large = make_marked(SPW_DEVICE, 2 * MIB, 2);
    spw_buffer *rest[3] = {make_unsealed(SPW_PINNED_HOST, 960 * KIB, 3), make_unsealed(SPW_HOST, 2 * MIB, 4)};
    rest[2] = must_alloc(SPW_DEVICE, 3 * MIB);
    ck_assert_uint_eq(spw_buffer_place(small), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(large), SPW_DISK);
    for (unsigned i = 0; i < 3; i++)
        must_release(rest[i]);
    fill(patch, sizeof patch, 1);
    ck_assert_int_eq(spw_buffer_write(small, 0, patch, sizeof patch), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(small), SPW_HOST);
    check_at(small, SPW_HOST, 1);
    must_release(small);
    spw_buffer *host = must_make(SPW_HOST, MIB, 5);
    fill(patch, sizeof patch, 2);
    ck_assert_int_eq(spw_buffer_write(large, 0, patch, sizeof patch), SPW_OK); /* the host can hold it: its own goes */
    ck_assert_uint_eq(spw_buffer_place(large), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(host), SPW_DISK);
    check_at(large, SPW_DEVICE, 2);
    must_release(large);
    must_release(host);
    spw_buffer *huge = make_marked(SPW_DEVICE, 3 * MIB, 6);
    push_out(SPW_DEVICE, 3 * MIB);
    fill(patch, sizeof patch, 6);
    ck_assert_int_eq(spw_buffer_write(huge, 0, patch, sizeof patch), SPW_OK); /* only the device can */
    ck_assert_uint_eq(spw_buffer_place(huge), SPW_DEVICE);
    check_at(huge, SPW_DEVICE, 6);
    must_release(huge);
    close_manager();
}
END_TEST

START_TEST(a_seal_keeps_the_copy_that_lies_below)
{
    open_manager(modes[_i]);
    spw_buffer *away = make_marked(SPW_HOST, 300 * KIB, 1), *here = make_marked(SPW_HOST, 300 * KIB, 2);
    push_out(SPW_HOST, MIB);
    check_at(here, SPW_HOST, 2);
    const uint64_t before = written();
    ck_assert_int_eq(spw_buffer_seal(away), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(away), SPW_DISK);
    ck_assert_int_eq(spw_buffer_seal(here), SPW_OK);
    check_at(away, SPW_HOST, 1);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(written(), before);
    check_at(away, SPW_HOST, 1);
    check_at(here, SPW_HOST, 2);
    must_release(away);
    must_release(here);
    close_manager();
}
END_TEST

START_TEST(make_writable_leaves_what_is_writable_and_unseals_to_a_buffer_that_stays)
{
    open_manager(modes[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1), *same = buffer;
    push_out(SPW_HOST, MIB);
    ck_assert_int_eq(spw_buffer_make_writable(&same, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_eq(same, buffer);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_make_writable(&same, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_eq(same, buffer);
    ck_assert_uint_eq(on_disk(), 0);
    ask_for_all();
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST); /* the mark was the old life's */
    mark(buffer, true);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_hole_is_opened_by_moving_marked_buffers)
{
    spw_buffer *buffers[8], *whole;
    open_manager("host=1M; piece=128K"); /* no disk: they move within the tier, or not at all */
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = make_unsealed(SPW_HOST, 128 * KIB, i);
    for (unsigned i = 0; i < 8; i += 2)
        must_release(buffers[i]);
    ck_assert_int_eq(alloc_within(SPW_HOST, 256 * KIB, 0, &whole), SPW_EFRAG);
    for (unsigned i = 1; i < 8; i += 2)
        mark(buffers[i], true);
    whole = must_alloc(SPW_HOST, 512 * KIB);
    for (unsigned i = 1; i < 8; i += 2) {
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), SPW_HOST);
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    must_release(whole);
    close_manager();
}
END_TEST

START_TEST(headroom_is_made_of_marked_buffers_too)
{
    spw_buffer *buffers[17];
    open_manager("host=1088K; staging=64K; piece=64K; disk=%s:16M; headroom=25");
    for (unsigned i = 0; i < 17; i++) {
        ck_assert_int_eq(spw_admit(manager, 64 * KIB, NULL, &buffers[i]), SPW_OK);
        write_content(buffers[i], i);
        mark(buffers[i], true);
    }
    while (spw__headroom_wanted(manager, SPW_TIER_HOST) || spw__mover_busy(manager->mover))
        (void)sched_yield();
    ck_assert_uint_ge(tier_now(SPW_TIER_HOST)->free_bytes, 1088 * KIB / 100 * 25);
    for (unsigned i = 0; i < 17; i++) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(a_cancelled_group_gives_back_what_was_pushed_out_unsealed)
{
    spw_buffer *buffers[10];
    spw_view view;
    open_manager(modes[_i]);
    spw_group *group = must_group("doomed", NULL, 0, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_int_eq(alloc_in(group, PIECE, SPW_TIMEOUT_INFINITE, &buffers[i]), SPW_OK);
        write_content(buffers[i], i);
        mark(buffers[i], true);
    }
    ck_assert_uint_ge(on_disk(), 2 * PIECE);
    ask_for_all(); /* some are on their way */
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    comes_to(SPW_TIER_HOST, STAGING);
    comes_to(SPW_TIER_DISK, 0);
    ck_assert_int_eq(spw_map(buffers[0], SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_ECANCELED);
    ck_assert_int_eq(spw_buffer_write(buffers[0], 0, "x", 1), SPW_ECANCELED);
    ck_assert_uint_eq(spw_buffer_place(buffers[0]), SPW_PLACE_NONE);
    for (unsigned i = 0; i < 10; i++) {
        mark(buffers[i], i % 2);
        must_release(buffers[i]);
    }
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_forced_destroy_takes_marked_buffers_with_it)
{
    spw_view view;
    open_manager(modes[_i]);
    spw_buffer *away = make_marked(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw_buffer *mapped = make_marked(SPW_HOST, 300 * KIB, 2), *leaving = make_marked(SPW_HOST, 300 * KIB, 3);
    view = must_map(mapped, SPW_HOST, SPW_MAP_WRITE);
    ask_for_all();
    ck_assert_uint_eq(spw_buffer_place(away), SPW_DISK);
    ck_assert_ptr_nonnull(leaving);
    ck_assert_ptr_nonnull(view.data);
    spw_manager_destroy_force(manager); /* what is left over, the leak checker and the folder tell */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spillable");
    TCase *life = tcase_create("life");
    tcase_set_timeout(life, 60);
    tcase_add_checked_fixture(life, make_folder, remove_folder);
    tcase_add_loop_test(life, an_unsealed_buffer_is_pushed_out_while_it_is_marked_and_not_before_or_after, 0, MODES);
    tcase_add_loop_test(life, a_mapped_one_stays_where_it_is_until_its_last_view_is_closed, 0, MODES);
    tcase_add_loop_test(life, a_sealed_buffer_can_always_be_pushed_out, 0, MODES);
    tcase_add_loop_test(life, marking_serves_who_waits_for_room, 0, MODES);
    tcase_add_loop_test(life, readers_keep_the_copy_below_and_a_writer_gives_it_back, 0, MODES);
    tcase_add_loop_test(life, what_was_written_last_is_what_comes_back_however_often, 0, MODES);
    tcase_add_loop_test(life, discarded_content_is_not_read_and_its_extents_are_free, 0, MODES);
    tcase_add_loop_test(life, buffer_write_brings_back_what_it_does_not_overwrite, 0, MODES);
    tcase_add_test(life, buffer_write_brings_to_the_lowest_place_that_can_hold_it);
    tcase_add_loop_test(life, a_seal_keeps_the_copy_that_lies_below, 0, MODES);
    tcase_add_loop_test(life, make_writable_leaves_what_is_writable_and_unseals_to_a_buffer_that_stays, 0, MODES);
    tcase_add_test(life, a_hole_is_opened_by_moving_marked_buffers);
    tcase_add_test(life, headroom_is_made_of_marked_buffers_too);
    tcase_add_loop_test(life, a_cancelled_group_gives_back_what_was_pushed_out_unsealed, 0, MODES);
    tcase_add_loop_test(life, a_forced_destroy_takes_marked_buffers_with_it, 0, MODES);
    suite_add_tcase(suite, life);
    return run_suite(suite);
}
