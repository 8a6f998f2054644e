/* Buffers: life cycle, and the semantics of maps that design.md says must not be guessed. test_manager.c has the
 * manager's own creation and end, test_admit.c where buffers go, test_spill.c what moves them. */
#include "tests/manager_fixture.h"

#include "src/core/handle.h"
#include "src/core/payload.h"

static void setup(void)
{
    make_folder();
    open_manager("device=1M; pinned=1088K; host=1M; staging=64K; piece=128K; disk=%s:16M; driver=sim");
}

static void teardown(void)
{
    close_manager();
    remove_folder();
}

static spw_view must_map(spw_buffer *buffer, spw_place place, uint32_t flags)
{
    spw_view view;
    const int rc = spw_map(buffer, place, flags, NULL, &view);
    ck_assert_msg(rc == SPW_OK, "map: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return view;
}

static int try_map(spw_buffer *buffer, spw_place place, uint32_t flags)
{
    spw_view view = {.data = &view};
    const int rc = spw_map(buffer, place, flags, NULL, &view);
    if (rc != SPW_OK)
        ck_assert_ptr_null(view.data);
    else
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    return rc;
}

START_TEST(seal_happens_once_and_not_while_mapped_for_writing)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 1000);
    spw_view write = must_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_WRITE);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_EMAPPED);
    fill(write.data, 1000, 1);
    ck_assert_int_eq(spw_unmap(buffer, &write, NULL), SPW_OK);

    spw_view read = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_ESEALED);
    ck_assert(has_content(read.data, 1000, 1));
    ck_assert_int_eq(spw_unmap(buffer, &read, NULL), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(write_on_a_sealed_buffer_is_refused)
{
    const char byte = 0;
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 2);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_WRITE), SPW_ESEALED);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ | SPW_MAP_WRITE), SPW_ESEALED);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD), SPW_ESEALED);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, &byte, 1), SPW_ESEALED);
    push_out(SPW_HOST, MIB);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, &byte, 1), SPW_ESEALED);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
}
END_TEST

START_TEST(retain_wants_a_sealed_buffer_and_each_reference_is_released_once)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 1000);
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_EINVAL);
    write_content(buffer, 3);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_OK);
    must_release(buffer);
    check_at(buffer, SPW_HOST, 3);
    must_release(buffer);
    ck_assert_int_eq(spw_buffer_release(buffer), SPW_EBADHANDLE);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
}
END_TEST

START_TEST(release_while_mapped_does_nothing)
{
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 4);
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    const uint64_t before = committed(SPW_TIER_HOST);
    ck_assert_int_eq(spw_buffer_release(buffer), SPW_EMAPPED);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), before);
    ck_assert_uint_eq(stats.buffers, 1);
    ck_assert(has_content(view.data, 1000, 4));
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_release(buffer), SPW_OK); /* not the last reference */
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_release(buffer);

    spw_buffer *unsealed = must_alloc(SPW_HOST, 1000);
    view = must_map(unsealed, SPW_HOST, SPW_MAP_WRITE);
    ck_assert_int_eq(spw_buffer_release(unsealed), SPW_EMAPPED);
    ck_assert_int_eq(spw_unmap(unsealed, &view, NULL), SPW_OK);
    must_release(unsealed);
}
END_TEST

START_TEST(a_released_handle_and_a_foreign_pointer_are_told_apart_from_live_ones)
{
    static _Alignas(64) char foreign[512];
    spw_view view = {.data = NULL};
    spw_buffer *dead = must_make(SPW_HOST, 1000, 5);
    must_release(dead);
    spw_buffer *const bad[] = {dead, (spw_buffer *)(void *)foreign, NULL};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(spw_buffer_seal(bad[i]), SPW_EBADHANDLE);
        ck_assert_int_eq(spw_buffer_retain(bad[i]), SPW_EBADHANDLE);
        ck_assert_int_eq(spw_buffer_write(bad[i], 0, "x", 1), SPW_EBADHANDLE);
        ck_assert_int_eq(spw_map(bad[i], SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_EBADHANDLE);
        ck_assert_int_eq(spw_unmap(bad[i], &view, NULL), SPW_EBADHANDLE);
        ck_assert_uint_eq(spw_buffer_size(bad[i]), 0);
        ck_assert_uint_eq(spw_buffer_place(bad[i]), SPW_PLACE_NONE);
        ck_assert_str_eq(spw_buffer_tag(bad[i]), "");
    }
    ck_assert_int_eq(spw_buffer_release(dead), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_buffer_release(bad[1]), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_buffer_release(NULL), SPW_OK);
}
END_TEST

START_TEST(nomove_maps_only_where_the_bytes_lie)
{
    spw_buffer *buffer = must_make(SPW_HOST, 200 * KIB, 6);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ | SPW_MAP_NOMOVE), SPW_EWRONGTIER);
    ck_assert_int_eq(try_map(buffer, SPW_PINNED_HOST, SPW_MAP_READ | SPW_MAP_NOMOVE), SPW_EWRONGTIER);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_NOMOVE), SPW_OK);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_NOMOVE), SPW_EWRONGTIER);
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 0);
    must_release(buffer);
}
END_TEST

START_TEST(here_maps_wherever_the_bytes_lie_and_asks_the_place_only_for_disk)
{
    const spw_place places[] = {SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST};
    for (unsigned i = 0; i < 3; i++) {
        spw_buffer *buffer = must_make(places[i], 200 * KIB, i);
        spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_HERE);
        ck_assert_uint_eq(view.place, places[i]);
        ck_assert_uint_eq(view.size, 200 * KIB);
        ck_assert(has_content(bytes_of(&view), view.size, i));
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
        must_release(buffer);
    }
    spw_buffer *buffer = must_make(SPW_HOST, 200 * KIB, 9);
    push_out(SPW_HOST, MIB);
    spw_view view = must_map(buffer, SPW_PINNED_HOST, SPW_MAP_READ | SPW_MAP_HERE);
    ck_assert_uint_eq(view.place, SPW_PINNED_HOST);
    ck_assert(has_content(view.data, view.size, 9));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(nowait_neither_reads_from_disk_nor_evicts)
{
    spw_buffer *buffer = must_make(SPW_HOST, 200 * KIB, 7);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_NOWAIT), SPW_OK);
    spw_buffer *cold = must_make(SPW_PINNED_HOST, MIB, 8); /* pinned_host is full of a victim */
    ck_assert_int_eq(try_map(buffer, SPW_PINNED_HOST, SPW_MAP_READ | SPW_MAP_NOWAIT), SPW_EAGAIN);
    ck_assert_uint_eq(spw_buffer_place(cold), SPW_PINNED_HOST);
    push_out(SPW_HOST, MIB);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_NOWAIT), SPW_EAGAIN);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->copies, 0);
    ck_assert_uint_eq(stats.disk_read_bytes, 0);
    check_at(buffer, SPW_HOST, 7);
    must_release(buffer);
    must_release(cold);
}
END_TEST

START_TEST(discard_moves_the_buffer_but_not_its_bytes)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 300 * KIB);
    write_content(buffer, 1);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_DISCARD), SPW_EINVAL);
    spw_view view = must_map(buffer, SPW_PINNED_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD);
    ck_assert_uint_eq(view.place, SPW_PINNED_HOST);
    fill(view.data, view.size, 2);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_uint_eq(edge_now(SPW_TIER_HOST, SPW_TIER_PINNED_HOST)->copies, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].committed_bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_PINNED_HOST].committed_bytes, STAGING + 300 * KIB);
    check_at(buffer, SPW_PINNED_HOST, 2);
    must_release(buffer);
}
END_TEST

START_TEST(a_map_moves_the_bytes_to_the_place_asked_for)
{
    const spw_place places[] = {SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST,  SPW_DEVICE,
                                SPW_HOST,   SPW_PINNED_HOST, SPW_DEVICE};
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB + 1, 10);
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++) {
        check_at(buffer, places[i], 10);
        ck_assert_uint_eq(spw_buffer_place(buffer), places[i]);
        for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++)
            comes_to(tier, (SPW_PLACE_TIER(places[i]) == tier ? 304 * KIB : 0) +
                               (tier == SPW_TIER_PINNED_HOST ? STAGING : 0));
    }
    must_release(buffer);
}
END_TEST

START_TEST(several_maps_are_open_at_one_place_and_none_elsewhere)
{
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 11);
    spw_view first = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    spw_view second = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    ck_assert_ptr_eq(first.data, second.data);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ), SPW_EMAPPED);
    ck_assert_int_eq(spw_unmap(buffer, &first, NULL), SPW_OK);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ), SPW_EMAPPED);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ | SPW_MAP_NOMOVE), SPW_EMAPPED);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ | SPW_MAP_HERE), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &second, NULL), SPW_OK);
    ck_assert_int_eq(try_map(buffer, SPW_DEVICE, SPW_MAP_READ), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(a_mapped_piece_does_not_move_whatever_is_asked_of_its_tier)
{
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 12), *none;
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    ck_assert_int_eq(alloc_within(SPW_HOST, 800 * KIB, 0, &none), SPW_ENOMEM);
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert(has_content(view.data, view.size, 12));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    must_release(buffer);
}
END_TEST

START_TEST(unsealed_buffers_are_no_victims)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 300 * KIB), *none;
    write_content(buffer, 13);
    ck_assert_int_eq(alloc_within(SPW_HOST, 800 * KIB, 0, &none), SPW_ENOMEM);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_uint_eq(stats.disk_written_bytes, 0);
    check_at(buffer, SPW_HOST, 13);
    must_release(buffer);
}
END_TEST

START_TEST(an_empty_buffer_lives_like_any_other_and_costs_nothing)
{
    spw_buffer *buffer = NULL;
    ck_assert_int_eq(spw_admit(manager, 0, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(spw_buffer_size(buffer), 0);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, NULL, 0), SPW_OK);
    ck_assert_int_eq(spw_buffer_write(buffer, 1, "x", 0), SPW_EINVAL);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_OK);
    must_release(buffer);
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ);
    ck_assert_uint_eq(view.size, 0);
    ck_assert_uint_eq(view.place, SPW_HOST);
    ck_assert_int_eq(spw_buffer_release(buffer), SPW_EMAPPED);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_EBADHANDLE);
    must_release(buffer);
}
END_TEST

START_TEST(a_view_is_closed_once_and_only_on_its_buffer)
{
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 14), *other = must_make(SPW_HOST, 1000, 15);
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_READ), copy = view, never = {.data = NULL};
    ck_assert_int_eq(spw_unmap(other, &view, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_unmap(buffer, &never, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_unmap(buffer, NULL, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_unmap(buffer, &copy, NULL), SPW_EBADHANDLE);
    check_at(buffer, SPW_PINNED_HOST, 14); /* its pins are in order: it can move */
    must_release(buffer);
    must_release(other);
}
END_TEST

START_TEST(the_tag_is_copied_and_at_most_31_bytes)
{
    char tag[] = "0123456789012345678901234567890";
    spw_alloc_options options;
    spw_buffer *buffer;
    spw_alloc_options_init(&options);
    options.tag = tag;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 10, &options, &buffer), SPW_OK);
    tag[0] = 'x';
    ck_assert_str_eq(spw_buffer_tag(buffer), "0123456789012345678901234567890");
    must_release(buffer);
    options.tag = "01234567890123456789012345678901";
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 10, &options, &buffer), SPW_EINVAL);
    buffer = must_alloc(SPW_HOST, 10);
    ck_assert_str_eq(spw_buffer_tag(buffer), "");
    must_release(buffer);
}
END_TEST

START_TEST(buffer_write_keeps_within_the_buffer)
{
    const spw_place places[] = {SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST};
    char *data = malloc(300 * KIB);
    fill(data, 300 * KIB, 16);
    for (unsigned i = 0; i < 3; i++) {
        spw_buffer *buffer = must_alloc(places[i], 300 * KIB);
        ck_assert_int_eq(spw_buffer_write(buffer, 0, data, 300 * KIB + 1), SPW_EINVAL);
        ck_assert_int_eq(spw_buffer_write(buffer, 300 * KIB, data, 1), SPW_EINVAL);
        ck_assert_int_eq(spw_buffer_write(buffer, SIZE_MAX, data, 2), SPW_EINVAL);
        ck_assert_int_eq(spw_buffer_write(buffer, 2, data, SIZE_MAX - 1), SPW_EINVAL);
        ck_assert_int_eq(spw_buffer_write(buffer, 0, NULL, 1), SPW_EINVAL);
        ck_assert_int_eq(spw_buffer_write(buffer, 300 * KIB, data, 0), SPW_OK);
        ck_assert_int_eq(spw_buffer_write(buffer, 0, data, 1001), SPW_OK); /* in two parts, over a piece's end */
        ck_assert_int_eq(spw_buffer_write(buffer, 1001, data + 1001, 300 * KIB - 1001), SPW_OK);
        check_at(buffer, places[i], 16);
        must_release(buffer);
    }
    free(data);
}
END_TEST

START_TEST(a_buffer_has_as_many_pieces_as_it_needs_each_with_an_identity_of_its_own)
{
    close_manager();
    open_manager("pinned=32K; host=260M"); /* pieces of 4 KiB */
    spw_buffer *first = must_alloc(SPW_HOST, 65537 * 4 * KIB), *second = must_alloc(SPW_HOST, 4 * KIB);
    ck_assert_uint_eq(first->payload->n_pieces, 65537);
    ck_assert_uint_eq(first->payload->pieces[65536].index, 65536);
    ck_assert_uint_eq(second->payload->identity, first->payload->identity + 65537);
    const char end[] = "the end";
    ck_assert_int_eq(spw_buffer_write(first, 65537 * 4 * KIB - sizeof end, end, sizeof end), SPW_OK);
    must_release(first);
    must_release(second);
}
END_TEST

START_TEST(a_place_that_the_manager_does_not_have_is_refused_with_those_it_has)
{
    static const char *const words[] = {
        "spw_alloc: device is not a memory tier of this manager; it has host, which its configuration names (device=",
        "spw_alloc: no place is not", "spw_alloc: disk is not", "spw_alloc: host 1 is not"};
    const spw_place places[] = {SPW_DEVICE, SPW_PLACE_NONE, SPW_DISK, SPW_PLACE(SPW_TIER_HOST, 1)};
    spw_buffer *none;
    close_manager();
    open_manager(SMALL_HOST);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_int_eq(spw_alloc(manager, places[i], 1, NULL, &none), SPW_EINVAL);
        ck_assert_ptr_null(none);
        ck_assert_msg(strstr(spw_error_detail()->message, words[i]), "%s", spw_error_detail()->message);
    }
    spw_admit_options options;
    spw_admit_options_init(&options);
    options.lowest = SPW_PINNED_HOST;
    ck_assert_int_eq(spw_admit(manager, 1, &options, &none), SPW_EINVAL);
    ck_assert_msg(strstr(spw_error_detail()->message, "options.lowest: pinned_host is not"), "%s",
                  spw_error_detail()->message);
}
END_TEST

START_TEST(bad_arguments_of_a_map_are_refused)
{
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 17);
    spw_map_options options;
    spw_view view;
    ck_assert_int_eq(try_map(buffer, SPW_HOST, 0), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_NOMOVE), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_HOST, SPW_MAP_READ | 0x40u), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_PLACE_NONE, SPW_MAP_READ), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_DISK, SPW_MAP_READ), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_META, SPW_MAP_READ), SPW_EINVAL);
    ck_assert_int_eq(try_map(buffer, SPW_PLACE(SPW_TIER_HOST, 1), SPW_MAP_READ), SPW_EINVAL);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, NULL), SPW_EINVAL);
    spw_map_options_init(&options);
    options.struct_size = sizeof options.struct_size;
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, &options, &view), SPW_EINVAL);
    spw_map_options_init(&options);
    options.wait.task = &no_task;
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, &options, &view), SPW_EBADHANDLE);
    ck_assert_ptr_null(view.data);
    must_release(buffer); /* nothing was left mapped */
}
END_TEST

START_TEST(a_buffer_that_follows_another_needs_no_new_metadata_memory)
{
    must_release(must_alloc(SPW_HOST, 4 * KIB));
    const uint64_t meta = committed(SPW_TIER_META);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, 0);
    for (unsigned i = 0; i < 1000; i++) {
        spw_view view;
        spw_buffer *buffer = must_alloc(SPW_HOST, 4 * KIB);
        ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_OK);
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
        ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
        must_release(buffer);
    }
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(committed(SPW_TIER_META), meta);
}
END_TEST

START_TEST(of_many_buffers_little_metadata_is_kept_and_none_after_the_manager)
{
    enum { MANY = 1024 };
    static spw_buffer *buffers[MANY];
    close_manager();
    open_manager("host=8M");
    for (unsigned i = 0; i < MANY; i++) /* what handles and the pool's nodes take stays */
        buffers[i] = must_alloc(SPW_HOST, 4 * KIB);
    const uint64_t most = committed(SPW_TIER_META);
    for (unsigned i = 0; i < MANY; i++)
        must_release(buffers[i]);
    const uint64_t kept = committed(SPW_TIER_META);
    ck_assert_uint_le(kept, most - (MANY - 128) * sizeof(struct spw__payload));
    for (unsigned i = 0; i < MANY; i++) /* new ones are as new, whether their memory is or not */
        buffers[i] = must_make(SPW_HOST, 4 * KIB, i);
    ck_assert_uint_eq(committed(SPW_TIER_META), most);
    for (unsigned i = 0; i < MANY; i++) {
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    ck_assert_uint_eq(committed(SPW_TIER_META), kept);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("buffer");
    TCase *tests = tcase_create("semantics");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, seal_happens_once_and_not_while_mapped_for_writing);
    tcase_add_test(tests, write_on_a_sealed_buffer_is_refused);
    tcase_add_test(tests, retain_wants_a_sealed_buffer_and_each_reference_is_released_once);
    tcase_add_test(tests, release_while_mapped_does_nothing);
    tcase_add_test(tests, a_released_handle_and_a_foreign_pointer_are_told_apart_from_live_ones);
    tcase_add_test(tests, nomove_maps_only_where_the_bytes_lie);
    tcase_add_test(tests, here_maps_wherever_the_bytes_lie_and_asks_the_place_only_for_disk);
    tcase_add_test(tests, nowait_neither_reads_from_disk_nor_evicts);
    tcase_add_test(tests, discard_moves_the_buffer_but_not_its_bytes);
    tcase_add_test(tests, a_map_moves_the_bytes_to_the_place_asked_for);
    tcase_add_test(tests, several_maps_are_open_at_one_place_and_none_elsewhere);
    tcase_add_test(tests, a_mapped_piece_does_not_move_whatever_is_asked_of_its_tier);
    tcase_add_test(tests, unsealed_buffers_are_no_victims);
    tcase_add_test(tests, an_empty_buffer_lives_like_any_other_and_costs_nothing);
    tcase_add_test(tests, a_view_is_closed_once_and_only_on_its_buffer);
    tcase_add_test(tests, the_tag_is_copied_and_at_most_31_bytes);
    tcase_add_test(tests, buffer_write_keeps_within_the_buffer);
    tcase_add_test(tests, a_buffer_has_as_many_pieces_as_it_needs_each_with_an_identity_of_its_own);
    tcase_add_test(tests, a_place_that_the_manager_does_not_have_is_refused_with_those_it_has);
    tcase_add_test(tests, bad_arguments_of_a_map_are_refused);
    tcase_add_test(tests, a_buffer_that_follows_another_needs_no_new_metadata_memory);
    tcase_add_test(tests, of_many_buffers_little_metadata_is_kept_and_none_after_the_manager);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
