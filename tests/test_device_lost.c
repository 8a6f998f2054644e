/* A device is lost under a manager: what is lost with it is told by name, all else goes on, and the books close.
 *
 * Each test runs in a process of its own (Check forks), so what is armed in the driver stays where it was. */
#include "pool_fixture.h"

#define SPEC "device=4M; pinned=2M; host=2M; staging=64K; piece=128K; disk=%s:16M; driver=sim"
#define ILLEGAL "CUDA_ERROR_ILLEGAL_ADDRESS"

/* Some call reports a sticky error; it is seen by whoever looks at the manager next. */
static void lose(spw__cu_result result)
{
    spw__sim_fail(SPW__ENTRY_stream_synchronize, 1, 1, result);
    ck_assert_int_eq(spw__device_synchronize(manager->device, NULL), SPW_EDEVICE);
    ck_assert(spw__device_is_lost(manager->device));
}

/* The next copy between device and host fails, if any, whichever call makes it. */
static void fail_copies(spw__cu_result result)
{
    static const enum spw__driver_entry entries[] = {SPW__ENTRY_memcpy_d_to_h_async, SPW__ENTRY_memcpy_h_to_d_async,
                                                     SPW__ENTRY_memcpy_batch_async, SPW__ENTRY_memcpy_batch_async_v2};
    for (unsigned i = 0; i < sizeof entries / sizeof entries[0]; i++)
        spw__sim_fail(entries[i], result == SPW__CU_SUCCESS ? 0 : 1, 1, result);
}

static spw_buffer *must_make_tagged(spw_place place, size_t bytes, unsigned seed, const char *tag)
{
    spw_buffer *buffer = NULL;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.tag = tag;
    ck_assert_int_eq(spw_alloc(manager, place, bytes, &options, &buffer), SPW_OK);
    write_content(buffer, seed);
    return buffer;
}

/* A buffer in device with a clean copy on disk. */
static spw_buffer *must_make_clean(size_t bytes, unsigned seed)
{
    spw_buffer *buffer = must_make(SPW_DEVICE, bytes, seed);
    spw_buffer *pinned = must_alloc(SPW_PINNED_HOST, 1984 * KIB), *host = must_alloc(SPW_HOST, 2 * MIB);
    push_out(SPW_DEVICE, 4 * MIB);
    must_release(pinned);
    must_release(host);
    check_at(buffer, SPW_DEVICE, seed);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DEVICE);
    return buffer;
}

static void is_refused(int rc, const char *tag)
{
    ck_assert_msg(rc == SPW_EDEVICE, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_int_eq(spw_error_detail()->code, SPW_EDEVICE);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DEVICE);
    ck_assert_msg(says(ILLEGAL) && says(tag), "\"%s\"", spw_error_detail()->message);
}

static int map_at(spw_buffer *buffer, spw_place place, uint32_t flags)
{
    spw_view view;
    const int rc = spw_map(buffer, place, flags, NULL, &view);
    if (rc == SPW_OK)
        ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    return rc;
}

START_TEST(content_that_lay_on_the_device_alone_is_lost_by_name)
{
    open_manager(SPEC);
    spw_buffer *sealed = must_make_tagged(SPW_DEVICE, 256 * KIB, 1, "build side");
    spw_buffer *open = must_make_tagged(SPW_DEVICE, 64 * KIB, 2, "being written");
    ck_assert_int_eq(spw_buffer_seal(sealed), SPW_OK);
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        is_refused(map_at(sealed, SPW_PLACE(tier, 0), SPW_MAP_READ), "\"build side\": piece 0");
        is_refused(map_at(sealed, SPW_PLACE(tier, 0), SPW_MAP_READ | SPW_MAP_HERE), "\"build side\": piece 0");
        is_refused(map_at(sealed, SPW_PLACE(tier, 0), SPW_MAP_READ | SPW_MAP_NOMOVE), "\"build side\": piece 0");
        is_refused(map_at(sealed, SPW_PLACE(tier, 0), SPW_MAP_READ | SPW_MAP_NOWAIT), "\"build side\": piece 0");
    }
    spw_ticket *ticket = NULL;
    ck_assert_int_eq(spw_map_start(sealed, SPW_HOST, SPW_MAP_READ, NULL, &ticket), SPW_OK);
    is_refused(spw_ticket_wait(ticket, NULL), "\"build side\": piece 0");
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(sealed), SPW_OK);
    spw_buffer *writable = sealed;
    is_refused(spw_buffer_make_writable(&writable, SPW_HOST, NULL), "\"build side\": piece 0");
    ck_assert_ptr_eq(writable, sealed);
    must_release(sealed);
    is_refused(spw_buffer_make_writable(&writable, SPW_DEVICE, NULL), "\"build side\": piece 0");
    is_refused(spw_buffer_write(open, 8, "x", 1), "\"being written\": piece 0");
    is_refused(map_at(open, SPW_HOST, SPW_MAP_WRITE), "\"being written\": piece 0");
    must_release(sealed);
    must_release(open);
}
END_TEST

START_TEST(what_is_written_anew_needs_nothing_of_the_device)
{
    spw_view view;
    open_manager(SPEC);
    spw_buffer *buffer = must_make_tagged(SPW_DEVICE, 256 * KIB, 1, "again");
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_DISCARD, NULL, &view), SPW_OK);
    fill(view.data, view.size, 2);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
}
END_TEST

START_TEST(what_has_a_copy_on_disk_is_served_from_there)
{
    open_manager(SPEC);
    spw_buffer *buffer = must_make_clean(300 * KIB, 1), *other = must_make_clean(200 * KIB, 2);
    lose(SPW__CU_ERROR_LAUNCH_FAILED);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_int_eq(map_at(buffer, SPW_HOST, SPW_MAP_READ | SPW_MAP_NOWAIT), SPW_EAGAIN);
    ck_assert_int_eq(map_at(buffer, SPW_DEVICE, SPW_MAP_READ), SPW_EDEVICE);
    check_at(buffer, SPW_HOST, 1);
    ck_assert_int_eq(map_at(other, SPW_PINNED_HOST, SPW_MAP_READ | SPW_MAP_HERE), SPW_OK);
    check_at(other, SPW_PINNED_HOST, 2);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    must_release(buffer);
    must_release(other);
}
END_TEST

/* Where the device is found lost by the very copy that would have brought the content. */
static void is_served_all_the_same(bool ticket_form)
{
    spw_view view = {.data = NULL};
    spw_ticket *ticket = NULL;
    open_manager(SPEC);
    spw_buffer *buffer = must_make_clean(300 * KIB, 1);
    fail_copies(SPW__CU_ERROR_ECC_UNCORRECTABLE);
    if (ticket_form) {
        ck_assert_int_eq(spw_map_start(buffer, SPW_HOST, SPW_MAP_READ, NULL, &ticket), SPW_OK);
        ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
        ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
        ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    } else {
        ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    }
    ck_assert(spw__device_is_lost(manager->device));
    ck_assert(has_content(view.data, view.size, 1));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_release(buffer);
}

START_TEST(a_map_whose_copy_finds_the_device_lost_reads_the_disk)
{
    is_served_all_the_same(_i);
}
END_TEST

START_TEST(a_move_in_flight_ends_and_leaves_its_source)
{
    open_manager(SPEC);
    spw_buffer *host = must_make(SPW_HOST, 300 * KIB, 1), *disk = must_make(SPW_HOST, 300 * KIB, 2);
    push_out(SPW_HOST, 2 * MIB);
    check_at(host, SPW_HOST, 1);
    if (_i == 0)
        fail_copies(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    else
        spw__sim_fail(_i == 1 ? SPW__ENTRY_event_record : SPW__ENTRY_event_query, 1, 1, SPW__CU_ERROR_ILLEGAL_ADDRESS);
    is_refused(map_at(host, SPW_DEVICE, SPW_MAP_READ), "CUDA");
    is_refused(map_at(disk, SPW_DEVICE, SPW_MAP_READ), "CUDA");
    check_at(host, SPW_HOST, 1);
    check_at(disk, SPW_HOST, 2);
    comes_to(SPW_TIER_DEVICE, 0);
    must_release(host);
    must_release(disk);
}
END_TEST

START_TEST(a_spill_in_flight_ends_and_so_does_who_waits_for_it)
{
    open_manager(SPEC);
    spw_buffer *buffer = must_make_tagged(SPW_DEVICE, 4 * MIB, 1, "victim"), *more = NULL;
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    fail_copies(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    is_refused(spw_alloc(manager, SPW_DEVICE, 4 * MIB, NULL, &more), "");
    ck_assert_ptr_null(more);
    is_refused(map_at(buffer, SPW_HOST, SPW_MAP_READ), "\"victim\"");
    must_release(buffer);
}
END_TEST

START_TEST(the_other_tiers_go_on_with_all_their_spills_and_reloads)
{
    enum { N = 24 };
    spw_buffer *buffers[N];
    open_manager(SPEC);
    for (unsigned i = 0; i < N; i++) {
        buffers[i] = NULL;
        if (i == N / 2)
            lose(SPW__CU_ERROR_HARDWARE_STACK_ERROR);
        if (i < 8) {
            buffers[i] = must_make(SPW_PINNED_HOST, 300 * KIB, i);
            continue;
        }
        ck_assert_int_eq(spw_admit(manager, 300 * KIB, NULL, &buffers[i]), SPW_OK);
        write_content(buffers[i], i);
        ck_assert_int_eq(spw_buffer_seal(buffers[i]), SPW_OK);
        if (i < N / 2) /* not on the device alone */
            check_at(buffers[i], SPW_HOST, i);
    }
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < N; i++)
            check_at(buffers[i], i % 2 ? SPW_HOST : SPW_PINNED_HOST, i);
    ck_assert_uint_gt(stats.disk_read_bytes + tier_now(SPW_TIER_HOST)->spill_bytes, 0);
    for (unsigned i = 0; i < N; i++)
        must_release(buffers[i]);
}
END_TEST

START_TEST(new_requests_for_the_device_fail_at_once_and_admission_goes_below)
{
    spw_buffer *buffer = NULL;
    spw_reservation *reservation = NULL, *early = NULL;
    spw_reserve_options options;
    spw_block block;
    open_manager(SPEC);
    ck_assert_int_eq(spw_reserve(manager, SPW_DEVICE, MIB, NULL, &early), SPW_OK);
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    is_refused(spw_alloc(manager, SPW_DEVICE, 1000, NULL, &buffer), "1000 bytes");
    is_refused(alloc_in(SPW_DEVICE, 1000, 0, NULL, SPW_TIMEOUT_INFINITE, &block), "1000 bytes");
    for (unsigned flags = 0; flags <= SPW_RESERVE_UPTO; flags = flags ? 2 * flags : 1) {
        spw_reserve_options_init(&options);
        options.flags = flags;
        options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
        is_refused(spw_reserve(manager, SPW_DEVICE, 64 * KIB, &options, &reservation), "");
        ck_assert_ptr_null(reservation);
    }
    is_refused(spw_reservation_grow(early, 64 * KIB, NULL), "");
    spw_alloc_options paid;
    spw_alloc_options_init(&paid);
    paid.reservation = early;
    is_refused(spw_alloc(manager, SPW_DEVICE, 1000, &paid, &buffer), "1000 bytes");
    ck_assert_uint_eq(spw_reservation_size(early), MIB);
    ck_assert_int_eq(spw_reservation_release(early), SPW_OK);
    spw_admit_options only;
    spw_admit_options_init(&only);
    only.lowest = SPW_DEVICE;
    is_refused(spw_admit(manager, 1000, &only, &buffer), "1000 bytes");
    ck_assert_ptr_null(buffer);
    is_refused(spw_admit(manager, 3 * MIB, NULL, &buffer), ""); /* too large for what is left */
    ck_assert_int_eq(spw_admit(manager, 1000, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_PINNED_HOST);
    must_release(buffer);
}
END_TEST

static void until_waiting(void)
{
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_DEVICE)))
        (void)sched_yield();
}

START_TEST(who_waits_for_the_device_is_told)
{
    struct asker asker = {.place = SPW_DEVICE, .bytes = MIB};
    spw_ticket *ticket = NULL;
    spw_view view;
    open_manager(SPEC);
    spw_buffer *held = must_alloc(SPW_DEVICE, 4 * MIB);
    ck_assert_int_eq(spw_map(held, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    const pthread_t thread = must_start(ask, &asker);
    until_waiting();
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    ck_assert_int_eq(spw_alloc_start(manager, SPW_DEVICE, MIB, &options, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(spw_unmap(held, &view, NULL), SPW_OK); /* any call of the manager */
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asker.rc, SPW_EDEVICE);
    is_refused(spw_ticket_wait(ticket, NULL), "1048576 bytes");
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    must_release(held);
}
END_TEST

START_TEST(an_admission_that_waits_goes_on_below)
{
    spw_ticket *ticket = NULL;
    spw_buffer *got = NULL;
    open_manager("device=4M; host=2M; driver=sim; threads=0");
    spw_buffer *device = must_alloc(SPW_DEVICE, 4 * MIB), *host = must_alloc(SPW_HOST, 2 * MIB);
    ck_assert_int_eq(spw_admit_start(manager, MIB, NULL, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    must_release(device);
    ck_assert_int_eq(spw_progress(manager, 0) < 0, 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    must_release(host);
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &got), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(got), SPW_HOST);
    must_release(got);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
}
END_TEST

/* A stream has work for a long time, and more than it will ever do. */
START_TEST(uses_on_a_lost_device_are_over)
{
    spw_view work, view;
    spw_map_options options;
    open_manager("device=24M; host=4M; driver=sim");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *device = must_make(SPW_DEVICE, MIB, 1);
    spw_buffer *host = must_make(SPW_HOST, MIB, 2);
    const spw_block raw = must_raw(SPW_DEVICE, MIB);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    const spw__stream stream = busy_stream(&work);
    spw_map_options_init(&options);
    options.stream = stream;
    for (unsigned i = 0; i < 2; i++) {
        spw_buffer *used = i ? host : device;
        ck_assert_int_eq(spw_map(used, i ? SPW_HOST : SPW_DEVICE, SPW_MAP_READ, &options, &view), SPW_OK);
        ck_assert_int_eq(spw_unmap(used, &view, stream), SPW_OK);
    }
    ck_assert_int_eq(spw_pool_free(manager, &raw, stream), SPW_OK);
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(spw_unmap(scratch, &work, stream), SPW_EDEVICE);
    check_at(host, SPW_HOST, 2);
    ck_assert_int_eq(spw_map(host, SPW_HOST, SPW_MAP_READ, &options, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(host, &view, NULL), SPW_OK);
    must_release(scratch);
    must_release(device);
    must_release(host);
    comes_to(SPW_TIER_DEVICE, 0);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_EDEVICE);
}
END_TEST

START_TEST(a_forced_destroy_takes_what_is_mapped_and_moving)
{
    spw_view view;
    spw_ticket *ticket = NULL;
    open_manager(SPEC);
    spw_buffer *mapped = must_make(SPW_DEVICE, MIB, 1), *moving = must_make(SPW_HOST, MIB, 2);
    ck_assert_int_eq(spw_map(mapped, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    (void)must_raw(SPW_DEVICE, MIB);
    spw__sim_fail(SPW__ENTRY_event_query, 1, 1, SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(spw_map_start(moving, SPW_DEVICE, SPW_MAP_READ, NULL, &ticket), SPW_OK);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

START_TEST(the_loss_is_said_once_and_shown)
{
    open_manager(SPEC);
    dump_shows(SPW_STATS_JSON, "\"device_lost\":0");
    ck_assert_uint_eq(tier_now(SPW_TIER_DEVICE)->committed_bytes, 0);
    ck_assert_uint_eq(stats.device_lost, 0);
    const unsigned lines = logged.lines;
    lose(SPW__CU_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = 0; i < 3; i++)
        must_release(must_make(SPW_HOST, 64 * KIB, 1));
    ck_assert_uint_eq(logged.lines, lines + 1);
    ck_assert_int_eq(logged.level, SPW__LOG_ERROR);
    ck_assert_ptr_nonnull(
        strstr(logged.last, "the device is lost: " ILLEGAL " (700), reported by cuStreamSynchronize"));
    dump_shows(SPW_STATS_JSON, "\"device_lost\":1");
    dump_shows(SPW_STATS_TEXT, "device: lost: " ILLEGAL);
    ck_assert_uint_eq(tier_now(SPW_TIER_DEVICE)->committed_bytes, 0);
    ck_assert_uint_eq(stats.device_lost, 1);
}
END_TEST

static const struct {
    spw__cu_result result;
    bool sticky;
} results[] = {
    {SPW__CU_ERROR_INVALID_VALUE, false},       {SPW__CU_ERROR_OUT_OF_MEMORY, false},
    {SPW__CU_ERROR_OPERATING_SYSTEM, false},    {SPW__CU_ERROR_INVALID_HANDLE, false},
    {SPW__CU_ERROR_NOT_SUPPORTED, false},       {SPW__CU_ERROR_ECC_UNCORRECTABLE, true},
    {SPW__CU_ERROR_NVLINK_UNCORRECTABLE, true}, {SPW__CU_ERROR_ILLEGAL_ADDRESS, true},
    {SPW__CU_ERROR_LAUNCH_TIMEOUT, true},       {SPW__CU_ERROR_CONTEXT_IS_DESTROYED, true},
    {SPW__CU_ERROR_ASSERT, true},               {SPW__CU_ERROR_HARDWARE_STACK_ERROR, true},
    {SPW__CU_ERROR_ILLEGAL_INSTRUCTION, true},  {SPW__CU_ERROR_MISALIGNED_ADDRESS, true},
    {SPW__CU_ERROR_INVALID_ADDRESS_SPACE, true}, {SPW__CU_ERROR_INVALID_PC, true},
    {SPW__CU_ERROR_LAUNCH_FAILED, true},        {SPW__CU_ERROR_UNKNOWN, true},
};
enum { RESULTS = sizeof results / sizeof results[0] };

START_TEST(only_errors_that_stay_lose_the_device)
{
    open_manager(SPEC);
    spw_buffer *buffer = must_make(SPW_DEVICE, 300 * KIB, 1);
    fail_copies(results[_i].result);
    ck_assert_int_eq(map_at(buffer, SPW_HOST, SPW_MAP_READ), SPW_EDEVICE);
    fail_copies(SPW__CU_SUCCESS);
    ck_assert(spw__device_is_lost(manager->device) == results[_i].sticky);
    if (results[_i].sticky)
        ck_assert_int_eq(map_at(buffer, SPW_HOST, SPW_MAP_READ), SPW_EDEVICE);
    else
        check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
}
END_TEST

/* A passing error, for ever: nobody waits for ever, and memory that a stream may still use is nobody else's. */
START_TEST(a_driver_that_has_no_answers_any_more_is_lost)
{
    spw_view work;
    open_manager("device=24M; host=4M; driver=sim");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    const spw__stream stream = busy_stream(&work);
    if (_i) /* no event to be had: the stream itself is asked */
        spw__sim_fail(SPW__ENTRY_event_record, 1, 0, SPW__CU_ERROR_OPERATING_SYSTEM);
    spw__sim_fail(_i ? SPW__ENTRY_stream_synchronize : SPW__ENTRY_event_query, 1, 0, SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_int_eq(spw_unmap(scratch, &work, stream), _i ? SPW_EDEVICE : SPW_OK);
    must_release(scratch);
    comes_to(SPW_TIER_DEVICE, 0);
    ck_assert(spw__device_is_lost(manager->device));
    (void)spw__device_stream_destroy(manager->device, stream);
}
END_TEST

/* The same once: the memory is given back when the stream has done what it was given, not before. */
START_TEST(one_answer_missing_does_not_end_a_use)
{
    spw_view work;
    struct spw__event *done = NULL;
    open_manager("device=24M; host=4M; driver=sim");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    const spw__stream stream = busy_stream(&work);
    ck_assert_int_eq(spw__device_event_record(manager->device, stream, &done), SPW_OK);
    if (_i)
        spw__sim_fail(SPW__ENTRY_event_record, 1, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    spw__sim_fail(_i ? SPW__ENTRY_stream_synchronize : SPW__ENTRY_event_query, 1, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_int_eq(spw_unmap(scratch, &work, stream), SPW_OK);
    must_release(scratch);
    while (committed(SPW_TIER_DEVICE) != 0)
        (void)sched_yield();
    ck_assert_int_eq(spw__device_event_query(manager->device, done), SPW_OK);
    ck_assert(!spw__device_is_lost(manager->device));
    spw__device_event_put(manager->device, done);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
}
END_TEST

START_TEST(a_driver_that_refuses_pinned_memory_is_said_and_served)
{
    spw__sim_fail(SPW__ENTRY_mem_host_register, 1, 1, SPW__CU_ERROR_OUT_OF_MEMORY);
    open_manager(SPEC);
    ck_assert_ptr_nonnull(strstr(logged.last, "pinned_host memory of 2097152 bytes is not registered"));
    ck_assert_ptr_nonnull(strstr(logged.last, "CUDA_ERROR_OUT_OF_MEMORY"));
    spw_buffer *buffer = must_make(SPW_DEVICE, 300 * KIB, 1);
    check_at(buffer, SPW_PINNED_HOST, 1);
    check_at(buffer, SPW_DEVICE, 1);
    must_release(buffer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device_lost");
    TCase *tcase = new_case("lost", suite);
    tcase_add_test(tcase, content_that_lay_on_the_device_alone_is_lost_by_name);
    tcase_add_test(tcase, what_is_written_anew_needs_nothing_of_the_device);
    tcase_add_test(tcase, what_has_a_copy_on_disk_is_served_from_there);
    tcase_add_loop_test(tcase, a_map_whose_copy_finds_the_device_lost_reads_the_disk, 0, 2);
    tcase_add_loop_test(tcase, a_move_in_flight_ends_and_leaves_its_source, 0, 3);
    tcase_add_test(tcase, a_spill_in_flight_ends_and_so_does_who_waits_for_it);
    tcase_add_test(tcase, the_other_tiers_go_on_with_all_their_spills_and_reloads);
    tcase_add_test(tcase, new_requests_for_the_device_fail_at_once_and_admission_goes_below);
    tcase_add_test(tcase, who_waits_for_the_device_is_told);
    tcase_add_test(tcase, an_admission_that_waits_goes_on_below);
    tcase_add_test(tcase, uses_on_a_lost_device_are_over);
    tcase_add_test(tcase, a_forced_destroy_takes_what_is_mapped_and_moving);
    tcase_add_test(tcase, the_loss_is_said_once_and_shown);
    tcase = new_case("errors", suite);
    tcase_add_loop_test(tcase, only_errors_that_stay_lose_the_device, 0, RESULTS);
    tcase_add_loop_test(tcase, a_driver_that_has_no_answers_any_more_is_lost, 0, 2);
    tcase_add_loop_test(tcase, one_answer_missing_does_not_end_a_use, 0, 2);
    tcase_add_test(tcase, a_driver_that_refuses_pinned_memory_is_said_and_served);
    return run_suite(suite);
}
