/* Spill and reload: content over every edge, what is written and read how often, and what happens to those who come in
 * between. Invariants 2, 5, 6 and 7. The first case runs with both I/O engines and both ways to drive them.
 * test_spill_faults.c has what fails. */
#include "tests/manager_fixture.h"

static const char *const modes[] = {"threads=1; io=auto", "threads=1; io=threads", "threads=0; io=auto",
                                    "threads=0; io=threads"};
enum { MODES = sizeof modes / sizeof modes[0] };

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

/* 1 MiB in each memory tier for buffers, pieces of 128 KiB. */
static void open_all_tiers(const char *mode)
{
    char spec[512];
    (void)snprintf(spec, sizeof spec,
                   "device=1M; pinned=1088K; host=1M; staging=64K; piece=128K; disk=%%s:32M; driver=sim; %s", mode);
    open_manager(spec);
}

static void open_small_host(const char *mode)
{
    char spec[512];
    (void)snprintf(spec, sizeof spec, SMALL_HOST "; %s", "%s", mode);
    open_manager(spec);
}

static const uint64_t sizes[] = {1,           100,       4096,          4097,           32 * KIB,
                                 40 * KIB + 1, 128 * KIB, 128 * KIB + 1, 300 * KIB + 13, MIB};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

START_TEST(content_survives_the_way_down_tier_by_tier_and_back)
{
    open_all_tiers(modes[_i]);
    for (unsigned i = 0; i < SIZES; i++) {
        spw_buffer *buffer = must_make(SPW_DEVICE, sizes[i], i);
        for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++) {
            push_out(SPW_PLACE(tier, 0), MIB);
            ck_assert_uint_eq(spw_buffer_place(buffer), SPW_PLACE(tier + 1, 0));
        }
        check_at(buffer, SPW_PLACE(i % 3, 0), i);
        must_release(buffer);
    }
    uint64_t sum = 0;
    for (unsigned i = 0; i < SIZES; i++)
        sum += sizes[i];
    for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++)
        ck_assert_uint_eq(edge_now(tier, tier + 1)->bytes, sum);
    close_manager();
}
END_TEST

START_TEST(content_survives_every_edge_to_disk_and_from_disk)
{
    open_all_tiers(modes[_i]);
    for (spw_tier from = SPW_TIER_DEVICE; from <= SPW_TIER_HOST; from++) {
        spw_buffer *lower[2] = {NULL, NULL}; /* unsealed: the tiers below are full, and nothing of them can go */
        for (spw_tier tier = from + 1; tier <= SPW_TIER_HOST; tier++)
            lower[tier - SPW_TIER_PINNED_HOST] = must_alloc(SPW_PLACE(tier, 0), MIB);
        for (unsigned i = 0; i < SIZES; i++) {
            const uint64_t down = edge_now(from, SPW_TIER_DISK)->bytes, up = edge_now(SPW_TIER_DISK, from)->bytes;
            spw_buffer *buffer = must_make(SPW_PLACE(from, 0), sizes[i], 10 * from + i);
            push_out(SPW_PLACE(from, 0), MIB);
            ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
            ck_assert_uint_eq(edge_now(from, SPW_TIER_DISK)->bytes - down, sizes[i]);
            check_at(buffer, SPW_PLACE(from, 0), 10 * from + i);
            ck_assert_uint_eq(edge_now(SPW_TIER_DISK, from)->bytes - up, sizes[i]);
            must_release(buffer);
        }
        must_release(lower[0]);
        must_release(lower[1]);
    }
    close_manager();
}
END_TEST

START_TEST(many_buffers_go_through_little_memory)
{
    enum { N = 96 };
    spw_buffer *buffers[N];
    open_small_host(modes[_i]);
    for (unsigned i = 0; i < N; i++)
        buffers[i] = must_make(SPW_HOST, 100 * KIB + 37 * i, i);
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < N; i++)
            check_at(buffers[(i * 37) % N], SPW_HOST, (i * 37) % N);
    ck_assert_uint_le(tier_now(SPW_TIER_HOST)->peak_bytes, 1088 * KIB);
    ck_assert_uint_gt(stats.disk_written_bytes, 8 * MIB);
    for (unsigned i = 0; i < N; i++)
        must_release(buffers[i]);
    close_manager();
}
END_TEST

START_TEST(a_clean_copy_is_dropped_without_a_write)
{
    open_small_host(modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1);
    const uint64_t written = (tier_now(SPW_TIER_DISK), stats.disk_written_bytes);
    ck_assert_uint_eq(written, 300 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].committed_bytes, 300 * KIB);
    for (unsigned i = 1; i <= 3; i++) {
        push_out(SPW_HOST, MIB);
        ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
        ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->drop_bytes, i * 300 * KIB);
        ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].spill_bytes, 300 * KIB);
        ck_assert_uint_eq(stats.disk_written_bytes, written);
        check_at(buffer, SPW_HOST, 1);
    }
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_hundred_reads_with_room_are_one_read_from_disk)
{
    open_small_host(modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    for (unsigned i = 0; i < 100; i++)
        check_at(buffer, SPW_HOST, 1);
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 300 * KIB);
    ck_assert_uint_eq(stats.disk_read_bytes, 300 * KIB);
    must_release(buffer);
    close_manager();
}
END_TEST

static void *check_in_host(void *arg)
{
    check_at(arg, SPW_HOST, 7);
    return NULL;
}

START_TEST(threads_that_map_one_evicted_buffer_read_it_once)
{
    pthread_t threads[4];
    open_small_host(modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, 700 * KIB, 7);
    push_out(SPW_HOST, MIB);
    for (unsigned i = 0; i < 4; i++)
        threads[i] = must_start(check_in_host, buffer);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 700 * KIB);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(victims_give_the_deficit_and_at_most_a_piece_more)
{
    open_small_host(modes[_i]);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw_buffer *small = must_alloc(SPW_HOST, 100 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 128 * KIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK); /* of its lowest piece */
    must_release(small);
    check_at(buffer, SPW_HOST, 1); /* room for the whole comes from its own parts */
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(the_last_unmapped_goes_last_and_the_mapped_not_at_all)
{
    spw_view view;
    spw_buffer *buffers[3], *others[3];
    open_small_host(modes[_i]);
    for (unsigned i = 0; i < 3; i++)
        buffers[i] = must_make(SPW_HOST, 256 * KIB, i);
    others[0] = must_alloc(SPW_HOST, 256 * KIB);
    check_at(buffers[0], SPW_HOST, 0);
    ck_assert_int_eq(spw_map(buffers[1], SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    others[1] = must_alloc(SPW_HOST, 256 * KIB);
    ck_assert_uint_eq(spw_buffer_place(buffers[0]), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(buffers[1]), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(buffers[2]), SPW_DISK);
    ck_assert_int_eq(spw_unmap(buffers[1], &view, NULL), SPW_OK);
    others[2] = must_alloc(SPW_HOST, 256 * KIB);
    ck_assert_uint_eq(spw_buffer_place(buffers[0]), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(buffers[1]), SPW_HOST);
    must_release(others[2]);
    push_out(SPW_HOST, 512 * KIB); /* it was passed over, and is a victim again */
    ck_assert_uint_eq(spw_buffer_place(buffers[1]), SPW_DISK);
    for (unsigned i = 0; i < 3; i++) {
        must_release(i < 2 ? others[i] : NULL);
        check_at(buffers[i], SPW_HOST, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(a_disk_full_of_clean_copies_has_room_for_what_must_be_written)
{
    char spec[512];
    (void)snprintf(spec, sizeof spec, "host=1088K; staging=64K; piece=128K; disk=%%s:768K; %s", modes[_i]);
    open_manager(spec);
    spw_buffer *clean = must_make(SPW_HOST, 768 * KIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(clean, SPW_HOST, 1);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 768 * KIB);
    spw_view view;
    ck_assert_int_eq(spw_map(clean, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(clean, &view, NULL), SPW_OK);
    spw_buffer *dirty = must_make(SPW_HOST, 256 * KIB, 2);
    ck_assert_int_eq(spw_map(clean, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    spw_buffer *other = NULL; /* only the dirty one may leave, and the mapped one's copies may not go */
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &other), SPW_ENOSPC);
    ck_assert_int_eq(spw_unmap(clean, &view, NULL), SPW_OK);
    check_at(dirty, SPW_HOST, 2);
    check_at(clean, SPW_HOST, 1);
    must_release(clean);
    must_release(dirty);
    close_manager();
}
END_TEST

/* Starts the eviction of everything sealed in host memory, without waiting for it. */
static void start_spill(void)
{
    spw_buffer *none;
    ck_assert_int_eq(alloc_within(SPW_HOST, MIB, 0, &none), SPW_ENOMEM);
}

START_TEST(a_map_that_meets_a_queued_spill_calls_it_off)
{
    open_small_host("threads=0");
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
    start_spill();
    check_at(buffer, SPW_HOST, 1);
    while (spw_progress(manager, 0) == 1) {
    }
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_uint_eq(tier_now(SPW_TIER_DISK)->committed_bytes, 0);
    ck_assert_uint_eq(stats.disk_written_bytes, 0);
    ck_assert_uint_eq(stats.spill_failures, 0);
    push_out(SPW_HOST, MIB); /* it is a victim again */
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_map_that_meets_a_spill_in_flight_keeps_its_bytes_and_a_clean_copy)
{
    open_small_host("threads=0; io=threads");
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1);
    spw_view view;
    start_spill();
    while (spw__store_file_bytes(manager->store) == 0) /* until the mover has begun */
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    const int rc = spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view);
    ck_assert_int_eq(rc, SPW_OK);
    while (spw_progress(manager, 1000000) == 1) {
    }
    ck_assert(has_content(view.data, view.size, 1));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    const uint64_t written = (tier_now(SPW_TIER_HOST), stats.disk_written_bytes);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq((tier_now(SPW_TIER_HOST), stats.disk_written_bytes), written);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_map_elsewhere_that_meets_a_spill_moves_the_bytes_all_the_same)
{
    for (int rounds = 0; rounds < 6; rounds++) { /* of progress before the map comes */
        open_all_tiers("threads=0");
        spw_buffer *full = must_alloc(SPW_PINNED_HOST, MIB), *buffer = must_make(SPW_HOST, 300 * KIB, 1);
        start_spill();
        for (int i = 0; i < rounds; i++)
            ck_assert_int_ge(spw_progress(manager, 0), 0);
        check_at(buffer, SPW_DEVICE, 1);
        must_release(buffer);
        must_release(full);
        close_manager();
    }
}
END_TEST

START_TEST(release_during_a_spill_frees_both_ends)
{
    for (int rounds = 0; rounds < 6; rounds++) {
        open_small_host("threads=0");
        spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB, 1);
        start_spill();
        for (int i = 0; i < rounds; i++)
            ck_assert_int_ge(spw_progress(manager, 0), 0);
        must_release(buffer);
        if (rounds % 2 == 0)
            settle();
        ck_assert_int_eq(spw_manager_destroy(manager), SPW_OK); /* ends what is in flight */
    }
}
END_TEST

START_TEST(progress_alone_moves_bytes_without_a_mover_thread)
{
    open_small_host("threads=0");
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    start_spill();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_int_eq(spw_progress(manager, 0), 1);
    while (spw_progress(manager, 1000000) == 1) {
    }
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
    ck_assert_uint_eq(stats.disk_written_bytes, MIB);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

/* What is done to a buffer in device memory while a stream still reads it: its memory must not be handed out before. */
enum taking { RELEASED, DROPPED, SPILLED, DISCARDED, TAKINGS };

START_TEST(invariant_6_device_memory_is_free_when_its_last_use_has_completed)
{
    static unsigned char seen[4 * MIB], other[8 * MIB];
    spw_view view, work;
    open_manager("device=24M; host=16M; staging=1M; piece=1M; disk=%s:64M; driver=sim");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *buffer = must_make(SPW_DEVICE, 4 * MIB, 1);
    if (_i == DROPPED) {
        push_out(SPW_DEVICE, 8 * MIB);
        push_out(SPW_HOST, 15 * MIB);
        check_at(buffer, SPW_DEVICE, 1);
    } else if (_i == DISCARDED) {
        must_release(buffer);
        buffer = must_alloc(SPW_DEVICE, 4 * MIB);
        write_content(buffer, 1);
    }
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    fill(other, sizeof other, 2);
    const spw__stream stream = busy_stream(&work);
    ck_assert_int_eq(spw__device_copy_from(manager->device, stream, seen, (uint64_t)(uintptr_t)view.data, sizeof seen),
                     SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)stream), SPW_OK);
    if (_i == RELEASED)
        must_release(buffer);
    else if (_i == DISCARDED) {
        ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD, NULL, &view), SPW_OK);
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    }
    spw_buffer *next = must_alloc(SPW_DEVICE, sizeof other); /* all that the buffer had, and the rest */
    ck_assert_int_eq(spw_buffer_write(next, 0, other, sizeof other), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(manager->device, stream), SPW_OK);
    ck_assert(has_content(seen, sizeof seen, 1));
    check_at(next, SPW_DEVICE, 2);
    ck_assert_int_eq(spw_unmap(scratch, &work, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    if (_i != RELEASED)
        must_release(buffer);
    must_release(scratch);
    must_release(next);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spill");
    TCase *content = tcase_create("content");
    tcase_set_timeout(content, 60);
    tcase_add_checked_fixture(content, setup, teardown);
    tcase_add_loop_test(content, content_survives_the_way_down_tier_by_tier_and_back, 0, MODES);
    tcase_add_loop_test(content, content_survives_every_edge_to_disk_and_from_disk, 0, MODES);
    tcase_add_loop_test(content, many_buffers_go_through_little_memory, 0, MODES);
    tcase_add_loop_test(content, a_clean_copy_is_dropped_without_a_write, 0, MODES);
    tcase_add_loop_test(content, a_hundred_reads_with_room_are_one_read_from_disk, 0, MODES);
    tcase_add_loop_test(content, threads_that_map_one_evicted_buffer_read_it_once, 0, MODES);
    tcase_add_loop_test(content, victims_give_the_deficit_and_at_most_a_piece_more, 0, MODES);
    tcase_add_loop_test(content, the_last_unmapped_goes_last_and_the_mapped_not_at_all, 0, MODES);
    tcase_add_loop_test(content, a_disk_full_of_clean_copies_has_room_for_what_must_be_written, 0, MODES);
    suite_add_tcase(suite, content);
    TCase *meeting = tcase_create("meeting");
    tcase_set_timeout(meeting, 60);
    tcase_add_checked_fixture(meeting, setup, teardown);
    tcase_add_test(meeting, a_map_that_meets_a_queued_spill_calls_it_off);
    tcase_add_test(meeting, a_map_that_meets_a_spill_in_flight_keeps_its_bytes_and_a_clean_copy);
    tcase_add_test(meeting, a_map_elsewhere_that_meets_a_spill_moves_the_bytes_all_the_same);
    tcase_add_test(meeting, release_during_a_spill_frees_both_ends);
    tcase_add_test(meeting, progress_alone_moves_bytes_without_a_mover_thread);
    tcase_add_loop_test(meeting, invariant_6_device_memory_is_free_when_its_last_use_has_completed, 0, TAKINGS);
    suite_add_tcase(suite, meeting);
    return run_suite(suite);
}
