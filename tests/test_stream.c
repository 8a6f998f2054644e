/* Streams through the API: their life, waits for what they were given, and spills that meet their views. */
#include "stream_fixture.h"

#include "src/core/handle.h"
#include "src/core/payload.h"

static const char *const specs[] = {DEVICE_SPEC, DEVICE_SPEC "; threads=0"};

static spw_stream *must_stream(void)
{
    spw_stream *stream = NULL;
    const int rc = spw_stream_create(manager, &stream);
    ck_assert_msg(rc == SPW_OK, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_ptr_nonnull(stream);
    return stream;
}

static void must_end(spw_stream *stream)
{
    ck_assert_int_eq(spw_stream_destroy(manager, stream), SPW_OK);
}

START_TEST(a_manager_with_live_streams_is_busy)
{
    open_manager(DEVICE_SPEC);
    spw_stream *first = must_stream(), *second = must_stream();
    ck_assert_ptr_ne(first, second);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert(says("2 streams are live"));
    must_end(first);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert(says("1 stream is live; destroy it first"));
    must_end(second);
}
END_TEST

START_TEST(a_forced_destroy_ends_streams)
{
    open_manager(DEVICE_SPEC);
    (void)must_stream();
    (void)must_stream();
    const long before = spw__sim_left_behind();
    spw_manager_destroy_force(manager);
    manager = NULL;
    ck_assert_int_eq(spw__sim_left_behind(), before);
}
END_TEST

START_TEST(a_stream_is_destroyed_once_and_by_its_own_manager)
{
    open_manager(DEVICE_SPEC);
    spw_manager *other = create_with(NULL, DEVICE_SPEC);
    spw_stream *stream = must_stream(), *kept = must_stream();
    ck_assert_int_eq(spw_stream_destroy(other, stream), SPW_EBADHANDLE);
    must_end(stream);
    ck_assert_int_eq(spw_stream_destroy(manager, stream), SPW_EBADHANDLE);
    ck_assert(says("destroyed already"));
    ck_assert_int_eq(spw_stream_destroy(manager, NULL), SPW_OK);
    ck_assert_int_eq(spw_stream_wait(manager, kept, NULL), SPW_OK);
    must_end(kept);
    ck_assert_int_eq(spw_manager_destroy(other), SPW_OK);
}
END_TEST

START_TEST(without_a_device_there_are_no_streams)
{
    spw_stream *stream = (spw_stream *)&no_task;
    spw_ticket *ticket = (spw_ticket *)&no_task;
    open_manager("host=8M");
    ck_assert_int_eq(spw_stream_create(manager, &stream), SPW_ENOTSUP);
    ck_assert(says("device=") && says("driver=sim"));
    ck_assert_ptr_null(stream);
    ck_assert_int_eq(spw_stream_wait(manager, (spw_stream *)&no_task, NULL), SPW_ENOTSUP);
    ck_assert_int_eq(spw_stream_wait_start(manager, (spw_stream *)&no_task, NULL, &ticket), SPW_ENOTSUP);
    ck_assert_ptr_null(ticket);
    ck_assert_int_eq(spw_stream_destroy(manager, (spw_stream *)&no_task), SPW_ENOTSUP);
}
END_TEST

START_TEST(arguments_are_checked)
{
    spw_stream *stream;
    open_manager(DEVICE_SPEC);
    spw_wait_options wait = {.timeout_ms = 1, .reserved = {1}};
    ck_assert_int_eq(spw_stream_create(NULL, &stream), SPW_EINVAL);
    ck_assert_int_eq(spw_stream_create(manager, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_stream_wait(manager, NULL, NULL), SPW_EINVAL);
    ck_assert(says("CU_STREAM_LEGACY"));
    ck_assert_int_eq(spw_stream_wait_start(manager, NULL, NULL, NULL), SPW_EINVAL);
    stream = must_stream();
    ck_assert_int_eq(spw_stream_wait(manager, stream, &wait), SPW_EINVAL);
    must_end(stream);
}
END_TEST

START_TEST(refusals_leave_no_stream)
{
    spw_stream *stream;
    open_manager(DEVICE_SPEC);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_stream_create(manager, &stream), SPW_ENOMETA);
    spw__fault_arm(SPW__FAULT_THREAD, 1, 1, EAGAIN);
    ck_assert_int_eq(spw_stream_create(manager, &stream), SPW_EDEVICE);
    ck_assert_ptr_null(stream);
    spw__fault_disarm(SPW__FAULT_THREAD);
    stream = must_stream();
    for (long nth = 1; nth <= 2; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        ck_assert_int_eq(spw_stream_wait(manager, stream, NULL), SPW_ENOMETA);
    }
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    must_end(stream);
}
END_TEST

/* Work for the stream, and that it is done after a wait. */
START_TEST(a_wait_ends_when_the_stream_has_done_its_work)
{
    static unsigned char in[MIB], out[MIB];
    open_manager(specs[_i]);
    spw_stream *stream = must_stream();
    const spw_block block = must_raw(SPW_DEVICE, MIB);
    const uint64_t address = (uint64_t)(uintptr_t)block.ptr;
    for (unsigned round = 0; round < 4; round++) {
        spw_ticket *ticket = NULL;
        fill(in, MIB, round);
        ck_assert_int_eq(spw__device_copy_to(manager->device, stream, address, in, MIB), SPW_OK);
        ck_assert_int_eq(spw__device_copy_from(manager->device, stream, out, address, MIB), SPW_OK);
        if (round % 2) {
            ck_assert_int_eq(spw_stream_wait_start(manager, stream, NULL, &ticket), SPW_OK);
            ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
            ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
        } else {
            ck_assert_int_eq(spw_stream_wait(manager, stream, NULL), SPW_OK);
        }
        ck_assert(has_content(out, MIB, round));
    }
    must_free(block);
    must_end(stream);
}
END_TEST

/* A wait and a ticket for the stream of gate. */
static int wait_within(const struct gate *gate, int64_t timeout_ms, spw_cancel *cancel)
{
    const spw_wait_options wait = {.timeout_ms = timeout_ms, .cancel = cancel};
    return spw_stream_wait(manager, gate->stream, &wait);
}

static spw_ticket *start_within(const struct gate *gate, int64_t timeout_ms, spw_cancel *cancel)
{
    const spw_wait_options wait = {.timeout_ms = timeout_ms, .cancel = cancel};
    spw_ticket *ticket = NULL;
    ck_assert_int_eq(spw_stream_wait_start(manager, gate->stream, &wait, &ticket), SPW_OK);
    return ticket;
}

static void must_end_as(spw_ticket *ticket, int rc)
{
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), rc);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
}

START_TEST(a_wait_ends_at_its_deadline)
{
    open_manager(specs[_i]);
    struct gate gate = open_gate();
    hold(&gate);
    ck_assert_int_eq(wait_within(&gate, 0, NULL), SPW_ETIMEDOUT);
    ck_assert_int_eq(wait_within(&gate, 2, NULL), SPW_ETIMEDOUT);
    must_end_as(start_within(&gate, 2, NULL), SPW_ETIMEDOUT);
    let_go(&gate);
    ck_assert_int_eq(wait_within(&gate, SPW_TIMEOUT_INFINITE, NULL), SPW_OK);
    close_gate(&gate);
}
END_TEST

START_TEST(a_map_that_fails_names_its_buffer_and_what_it_waited_for)
{
    static const char waited[] = "buffer \"rows 7\": the wait for a stream that still uses this buffer ended: ";
    spw_buffer *buffer;
    spw_view view, other;
    spw_alloc_options named;
    open_manager(specs[_i]);
    spw_alloc_options_init(&named);
    named.tag = "rows 7";
    ck_assert_int_eq(spw_alloc(manager, SPW_DEVICE, 4 * KIB, &named, &buffer), SPW_OK);
    struct gate gate = open_gate();
    use_until_let_go(buffer, &gate);
    const spw_map_options within = on_stream(NULL, 2);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, &within, &view), SPW_ETIMEDOUT);
    ck_assert_msg(says(waited), "%s", spw_error_detail()->message);
    spw_ticket *ticket = NULL;
    ck_assert_int_eq(spw_map_start(buffer, SPW_DEVICE, SPW_MAP_READ, &within, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_ETIMEDOUT);
    ck_assert_msg(says(waited), "%s", spw_error_detail()->message);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    let_go(&gate);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_ESEALED);
    ck_assert(says("buffer \"rows 7\": it is sealed"));
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &other), SPW_EMAPPED);
    ck_assert(says("buffer \"rows 7\": it is mapped in device"));
    must_unmap(buffer, &view, NULL);
    must_release(buffer);
    close_gate(&gate);
}
END_TEST

static spw_cancel *token;

static void *trigger_when_waiting(void *arg)
{
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL_OBJECT))
        (void)sched_yield();
    spw_cancel_trigger(token);
    return arg;
}

START_TEST(a_token_ends_a_wait)
{
    open_manager(specs[_i]);
    struct gate gate = open_gate();
    hold(&gate);
    ck_assert_int_eq(spw_cancel_create(&token), SPW_OK);
    spw_ticket *ticket = start_within(&gate, SPW_TIMEOUT_INFINITE, token);
    const pthread_t thread = must_start(trigger_when_waiting, NULL);
    ck_assert_int_eq(wait_within(&gate, SPW_TIMEOUT_INFINITE, token), SPW_ECANCELED);
    must_end_as(ticket, SPW_ECANCELED);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    spw_cancel_destroy(token);
    ticket = start_within(&gate, SPW_TIMEOUT_INFINITE, NULL);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    ticket = start_within(&gate, SPW_TIMEOUT_INFINITE, NULL);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK); /* under way */
    let_go(&gate);
    close_gate(&gate);
}
END_TEST

static void *wait_for_ever(void *gate)
{
    return (void *)(intptr_t)wait_within(gate, SPW_TIMEOUT_INFINITE, NULL);
}

START_TEST(a_forced_destroy_ends_waits)
{
    void *rc;
    open_manager(specs[_i]);
    struct gate gate = open_gate();
    hold(&gate);
    const pthread_t thread = must_start(wait_for_ever, &gate);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL_OBJECT))
        (void)sched_yield();
    spw__waitset_shut_down(&manager->waits); /* the first that a forced destroy does; it waits for the stream then */
    ck_assert_int_eq(pthread_join(thread, &rc), 0);
    ck_assert_int_eq((int)(intptr_t)rc, SPW_ESHUTDOWN);
    let_go(&gate);
    spw_manager_destroy_force(manager);
    manager = NULL;
    free(gate.open);
}
END_TEST

static void *map_for_ever(void *buffer)
{
    spw_view view;
    const spw_map_options options = on_stream(NULL, SPW_TIMEOUT_INFINITE);
    return (void *)(intptr_t)spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, &options, &view);
}

static uint32_t open_views(spw_buffer *buffer)
{
    spw__mutex_lock(&buffer->payload->lock);
    const uint32_t n = buffer->payload->views.n;
    spw__mutex_unlock(&buffer->payload->lock);
    return n;
}

START_TEST(a_forced_destroy_lets_a_map_leave_that_waits_for_a_stream)
{
    void *rc;
    open_manager(specs[_i]);
    spw_buffer *buffer = must_make(SPW_DEVICE, MIB, 1);
    struct gate gate = open_gate();
    use_until_let_go(buffer, &gate);
    const pthread_t thread = must_start(map_for_ever, buffer);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL_OBJECT))
        (void)sched_yield();
    ck_assert_uint_eq(open_views(buffer), 1);
    spw__waitset_shut_down(&manager->waits);
    ck_assert_uint_eq(open_views(buffer), 0); /* nothing of the buffer is touched any more */
    ck_assert_int_eq(pthread_join(thread, &rc), 0);
    ck_assert_int_eq((int)(intptr_t)rc, SPW_ESHUTDOWN);
    let_go(&gate);
    spw_manager_destroy_force(manager);
    manager = NULL;
    free(gate.open);
}
END_TEST

START_TEST(a_wait_concerns_what_the_stream_was_given_before)
{
    open_manager(specs[_i]);
    struct gate first = open_gate(), second = open_gate();
    hold(&first);
    spw_ticket *ticket = start_within(&first, SPW_TIMEOUT_INFINITE, NULL);
    struct gate after = {.stream = first.stream, .open = second.open};
    hold(&after);
    let_go(&first);
    must_end_as(ticket, SPW_OK);
    ck_assert_int_eq(wait_within(&first, 0, NULL), SPW_ETIMEDOUT);
    let_go(&after);
    ck_assert_int_eq(wait_within(&first, SPW_TIMEOUT_INFINITE, NULL), SPW_OK);
    close_gate(&first);
    close_gate(&second);
}
END_TEST

/* What launched functions see and leave. */
static struct {
    const void *address;
    unsigned char *at, *beyond;
    bool filled;
} seen;

static void fill_there(void *bytes)
{
    seen.at = spw_device_address(seen.address, *(const size_t *)bytes);
    seen.beyond = spw_device_address(seen.address, 64 * MIB);
    if (seen.at)
        fill(seen.at, *(const size_t *)bytes, 5);
}

static void check_there(void *bytes)
{
    seen.at = spw_device_address(seen.address, *(const size_t *)bytes);
    seen.filled = seen.at && has_content(seen.at, *(const size_t *)bytes, 5);
}

START_TEST(launched_functions_run_in_stream_order_and_reach_device_memory)
{
    size_t bytes = 64 * KIB;
    spw_view view;
    open_manager(specs[_i]);
    spw_stream *stream = must_stream();
    spw_buffer *buffer = must_alloc(SPW_DEVICE, bytes);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    seen.address = view.data;
    ck_assert_ptr_null(spw_device_address(view.data, bytes));
    ck_assert_int_eq(spw_device_launch(manager, stream, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_device_launch(manager, NULL, fill_there, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_device_launch(manager, stream, fill_there, &bytes), SPW_OK);
    ck_assert_int_eq(spw_device_launch(manager, stream, check_there, &bytes), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, stream), SPW_OK);
    check_at(buffer, SPW_HOST, 5); /* ordered after both */
    ck_assert(seen.filled);
    ck_assert_ptr_null(seen.beyond);
    must_release(buffer);
    must_end(stream);
}
END_TEST

START_TEST(a_broken_device_ends_waits_with_its_error)
{
    open_manager(specs[_i]);
    spw_stream *stream = must_stream();
    spw_ticket *ticket = NULL;
    spw__fault_arm(SPW__FAULT_DEVICE_EVENT, 1, 0, ENOTRECOVERABLE);
    ck_assert_int_eq(spw_stream_wait(manager, stream, NULL), SPW_EDEVICE);
    ck_assert(says("CUDA_ERROR"));
    spw__fault_disarm(SPW__FAULT_DEVICE_EVENT);
    ck_assert_int_eq(spw_stream_wait_start(manager, stream, NULL, &ticket), SPW_OK);
    must_end_as(ticket, SPW_EDEVICE);
    ck_assert_int_eq(spw_stream_destroy(manager, stream), SPW_EDEVICE);
    ck_assert_int_eq(spw_stream_destroy(manager, stream), SPW_EBADHANDLE);
}
END_TEST

START_TEST(a_device_that_breaks_meanwhile_ends_waits)
{
    open_manager(specs[_i]);
    struct gate gate = open_gate();
    hold(&gate);
    spw_ticket *ticket = start_within(&gate, SPW_TIMEOUT_INFINITE, NULL);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, ENOTRECOVERABLE);
    ck_assert_int_eq(spw__device_copy_within(manager->device, gate.stream, 0, 0, 1), SPW_EDEVICE);
    must_end_as(ticket, SPW_EDEVICE);
    ck_assert_int_eq(wait_within(&gate, SPW_TIMEOUT_INFINITE, NULL), SPW_EDEVICE);
    ck_assert(says("CUDA_ERROR"));
    let_go(&gate);
    ck_assert_int_eq(end_gate(&gate), SPW_EDEVICE);
}
END_TEST

/* Where the spill goes: to disk, or to host memory. */
static const struct {
    const char *spec;
    spw_tier to;
} spills[] = {{"device=1M; host=1M; piece=128K; staging=64K; driver=sim; threads=0; disk=%s:16M", SPW_TIER_HOST},
              {"device=1M; piece=128K; staging=64K; driver=sim; threads=0; disk=%s:16M", SPW_TIER_DISK}};

/* The view is closed before the spill is over: what its stream was given is not. */
START_TEST(a_spill_leaves_the_memory_to_a_stream_whose_view_met_it)
{
    spw_ticket *ticket = NULL;
    spw_buffer *next = NULL;
    open_manager(spills[_i].spec);
    spw_buffer *buffer = must_make(SPW_DEVICE, 128 * KIB, 7), *rest = must_alloc(SPW_DEVICE, 896 * KIB);
    struct gate before = open_gate(), reader = open_gate();
    use_until_let_go(buffer, &before); /* so that the spill is in flight, but cannot end */
    ck_assert_int_eq(spw_alloc_start(manager, SPW_DEVICE, 128 * KIB, NULL, &ticket), SPW_OK);
    ck_assert_int_ge(spw_progress(manager, 0), 0);
    use_until_let_go(buffer, &reader);
    let_go(&before);
    for (unsigned i = 0; i < 200000 && edge_now(SPW_TIER_DEVICE, spills[_i].to)->copies == 0; i++)
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
    ck_assert_uint_eq(stats.edges[SPW_TIER_DEVICE][spills[_i].to].copies, 1);
    for (unsigned i = 0; i < 10; i++) /* long enough for memory that is free to be handed out */
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), MIB);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    let_go(&reader);
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &next), SPW_OK);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    must_release(next);
    check_at(buffer, SPW_DEVICE, 7);
    must_release(buffer);
    must_release(rest);
    close_gate(&before);
    close_gate(&reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = new_case("life", suite);
    tcase_add_test(tcase, a_manager_with_live_streams_is_busy);
    tcase_add_test(tcase, a_forced_destroy_ends_streams);
    tcase_add_test(tcase, a_stream_is_destroyed_once_and_by_its_own_manager);
    tcase_add_test(tcase, without_a_device_there_are_no_streams);
    tcase_add_test(tcase, arguments_are_checked);
    tcase_add_test(tcase, refusals_leave_no_stream);
    tcase = new_case("wait", suite);
    tcase_add_loop_test(tcase, a_wait_ends_when_the_stream_has_done_its_work, 0, 2);
    tcase_add_loop_test(tcase, a_wait_ends_at_its_deadline, 0, 2);
    tcase_add_loop_test(tcase, a_map_that_fails_names_its_buffer_and_what_it_waited_for, 0, 2);
    tcase_add_loop_test(tcase, a_token_ends_a_wait, 0, 2);
    tcase_add_loop_test(tcase, a_forced_destroy_ends_waits, 0, 2);
    tcase_add_loop_test(tcase, a_forced_destroy_lets_a_map_leave_that_waits_for_a_stream, 0, 2);
    tcase_add_loop_test(tcase, a_wait_concerns_what_the_stream_was_given_before, 0, 2);
    tcase_add_loop_test(tcase, a_device_that_breaks_meanwhile_ends_waits, 0, 2);
    tcase_add_loop_test(tcase, launched_functions_run_in_stream_order_and_reach_device_memory, 0, 2);
    tcase_add_loop_test(tcase, a_broken_device_ends_waits_with_its_error, 0, 2);
    tcase = new_case("spill", suite);
    tcase_add_loop_test(tcase, a_spill_leaves_the_memory_to_a_stream_whose_view_met_it, 0, 2);
    return run_suite(suite);
}
