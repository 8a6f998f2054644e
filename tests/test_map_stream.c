/* Maps with a stream: they enqueue copies and return. What a stream still does with a buffer is held up by gates, so
 * that the copies which come after cannot have been made when the call returns. */
#include "stream_fixture.h"

#include "src/core/handle.h"

#define SPEC "device=4M; pinned=4M; host=4M; piece=256K; staging=64K; driver=sim; disk=%s:16M"

static const char *const specs[] = {SPEC, SPEC "; threads=0"};

/* From where to where, of what copy engines reach. */
static const struct {
    spw_place from, to;
} ways[] = {{SPW_PINNED_HOST, SPW_DEVICE}, {SPW_DEVICE, SPW_PINNED_HOST}, {SPW_DEVICE, SPW_HOST}};
enum { WAYS = sizeof ways / sizeof ways[0], CASES = 2 * WAYS };

static spw_tier from_tier(int i)
{
    return SPW_PLACE_TIER(ways[i / 2].from);
}

static spw_tier to_tier(int i)
{
    return SPW_PLACE_TIER(ways[i / 2].to);
}

/* A buffer that a gate's stream uses at its place, and a view of it at the other for another stream. */
static struct {
    spw_buffer *buffer;
    struct gate gate;
    spw_stream *stream;
    spw_view view;
} way;

enum { BYTES = 640 * 1024, SEED = 7 }; /* three pieces */

static void set_out(int i, uint32_t flags)
{
    open_manager(specs[i % 2]);
    way.buffer = must_alloc(ways[i / 2].from, BYTES);
    write_content(way.buffer, SEED);
    if (!(flags & SPW_MAP_WRITE))
        ck_assert_int_eq(spw_buffer_seal(way.buffer), SPW_OK);
    way.gate = open_gate();
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    use_until_let_go(way.buffer, &way.gate);
    way.view = must_map_on(way.buffer, ways[i / 2].to, flags, way.stream);
}

static void finish(void)
{
    close_gate(&way.gate);
    ck_assert_int_eq(spw_stream_destroy(manager, way.stream), SPW_OK);
    close_manager();
}

static void arrive(void)
{
    let_go(&way.gate);
    ck_assert_int_eq(spw_stream_wait(manager, way.stream, NULL), SPW_OK);
}

START_TEST(a_map_returns_before_its_copies_and_the_stream_comes_after_them)
{
    set_out(_i, SPW_MAP_READ);
    const uint64_t staging = staging_in(manager, from_tier(_i));
    const uint64_t beside = staging_in(manager, to_tier(_i));
    ck_assert_uint_eq(spw_buffer_place(way.buffer), ways[_i / 2].to);
    ck_assert_uint_eq(committed(from_tier(_i)), staging + BYTES); /* until the copies have completed */
    ck_assert_uint_eq(committed(to_tier(_i)), beside + BYTES);
    ck_assert_uint_eq(edge_now(from_tier(_i), to_tier(_i))->copies, 0);
    arrive();
    ck_assert(has_content(bytes_of(&way.view), BYTES, SEED));
    comes_to(from_tier(_i), staging);
    ck_assert_uint_eq(edge_now(from_tier(_i), to_tier(_i))->copies, 3);
    ck_assert_uint_eq(stats.edges[from_tier(_i)][to_tier(_i)].bytes, BYTES);
    must_unmap(way.buffer, &way.view, way.stream);
    check_at(way.buffer, ways[_i / 2].to, SEED);
    must_release(way.buffer);
    finish();
}
END_TEST

START_TEST(a_ticket_of_such_a_map_ends_at_once)
{
    set_out(_i, SPW_MAP_READ);
    spw_buffer *other = must_make(ways[_i / 2].from, 256 * KIB, 9);
    struct gate gate = open_gate();
    use_until_let_go(other, &gate);
    const spw_map_options options = on_stream(way.stream, SPW_TIMEOUT_DEFAULT);
    spw_ticket *ticket = NULL;
    spw_view view;
    ck_assert_int_eq(spw_map_start(other, ways[_i / 2].to, SPW_MAP_READ, &options, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    let_go(&gate);
    arrive();
    ck_assert(has_content(bytes_of(&view), 256 * KIB, 9));
    must_unmap(other, &view, way.stream);
    must_unmap(way.buffer, &way.view, NULL);
    must_release(other);
    must_release(way.buffer);
    close_gate(&gate);
    finish();
}
END_TEST

START_TEST(other_maps_at_the_new_place_come_after_the_copies)
{
    spw_view view;
    set_out(_i, SPW_MAP_READ);
    spw_stream *second = NULL;
    ck_assert_int_eq(spw_stream_create(manager, &second), SPW_OK);
    spw_view theirs = must_map_on(way.buffer, ways[_i / 2].to, SPW_MAP_READ | SPW_MAP_NOWAIT, second);
    ck_assert_ptr_eq(theirs.data, way.view.data);
    const spw_map_options waits = on_stream(NULL, 0);
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, &waits, &view), SPW_ETIMEDOUT);
    let_go(&way.gate);
    ck_assert_int_eq(spw_stream_wait(manager, second, NULL), SPW_OK);
    ck_assert(has_content(bytes_of(&theirs), BYTES, SEED));
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, NULL, &view), SPW_OK);
    must_unmap(way.buffer, &view, NULL);
    must_unmap(way.buffer, &theirs, second);
    must_unmap(way.buffer, &way.view, way.stream);
    ck_assert_int_eq(spw_stream_destroy(manager, second), SPW_OK);
    must_release(way.buffer);
    finish();
}
END_TEST

START_TEST(what_arrives_cannot_move_before_it_is_there)
{
    spw_view view;
    set_out(_i, SPW_MAP_READ);
    must_unmap(way.buffer, &way.view, NULL);
    const spw_map_options waits = on_stream(way.stream, 0);
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].from, SPW_MAP_READ, &waits, &view), SPW_ETIMEDOUT);
    /* Nor can it be pushed out. */
    spw_buffer *all = NULL;
    ck_assert_int_ne(alloc_within(ways[_i / 2].to, 3584 * KIB, 0, &all), SPW_OK);
    arrive();
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].from, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert(has_content(bytes_of(&view), BYTES, SEED));
    must_unmap(way.buffer, &view, NULL);
    check_at(way.buffer, ways[_i / 2].to, SEED);
    push_out(ways[_i / 2].to, 3584 * KIB);
    check_at(way.buffer, ways[_i / 2].to, SEED);
    must_release(way.buffer);
    finish();
}
END_TEST

START_TEST(both_places_are_freed_when_a_released_buffer_has_arrived)
{
    set_out(_i, SPW_MAP_READ);
    const uint64_t staging = staging_in(manager, from_tier(_i));
    const uint64_t beside = staging_in(manager, to_tier(_i));
    must_unmap(way.buffer, &way.view, NULL);
    must_release(way.buffer);
    ck_assert_int_ge(spw_progress(manager, 1000), 0);
    ck_assert_uint_eq(committed(from_tier(_i)), staging + BYTES);
    ck_assert_uint_eq(committed(to_tier(_i)), beside + BYTES);
    arrive();
    comes_to(from_tier(_i), staging);
    comes_to(to_tier(_i), beside);
    finish();
}
END_TEST

START_TEST(a_cancelled_group_frees_what_arrives_when_it_has)
{
    spw_group *group = NULL;
    spw_view view;
    open_manager(specs[_i % 2]);
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_alloc(manager, ways[_i / 2].from, BYTES, &options, &way.buffer), SPW_OK);
    way.gate = open_gate();
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    use_until_let_go(way.buffer, &way.gate);
    way.view = must_map_on(way.buffer, ways[_i / 2].to, SPW_MAP_WRITE, way.stream);
    must_unmap(way.buffer, &way.view, NULL);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, NULL, &view), SPW_ECANCELED);
    ck_assert_uint_eq(committed(to_tier(_i)), staging_in(manager, to_tier(_i)) + BYTES);
    arrive();
    comes_to(to_tier(_i), staging_in(manager, to_tier(_i)));
    comes_to(from_tier(_i), staging_in(manager, from_tier(_i)));
    must_release(way.buffer);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
    finish();
}
END_TEST

START_TEST(make_writable_waits_for_the_arrival)
{
    set_out(_i, SPW_MAP_READ);
    must_unmap(way.buffer, &way.view, way.stream);
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_buffer_make_writable(&way.buffer, ways[_i / 2].to, &options), SPW_ETIMEDOUT);
    arrive();
    ck_assert_int_eq(spw_buffer_make_writable(&way.buffer, ways[_i / 2].to, NULL), SPW_OK);
    check_at(way.buffer, ways[_i / 2].to, SEED);
    write_content(way.buffer, 8);
    check_at(way.buffer, ways[_i / 2].from, 8);
    must_release(way.buffer);
    finish();
}
END_TEST

START_TEST(a_forced_destroy_outlives_what_arrives)
{
    set_out(_i, SPW_MAP_READ);
    let_go(&way.gate);
    spw_manager_destroy_force(manager);
    manager = NULL;
    free(way.gate.open);
}
END_TEST

START_TEST(what_is_discarded_is_not_waited_for)
{
    set_out(_i, SPW_MAP_WRITE | SPW_MAP_DISCARD);
    const uint64_t staging = staging_in(manager, from_tier(_i));
    ck_assert_uint_eq(committed(from_tier(_i)), staging + BYTES); /* a stream still reads it there */
    arrive();
    comes_to(from_tier(_i), staging);
    ck_assert_uint_eq(edge_now(from_tier(_i), to_tier(_i))->copies, 0);
    must_unmap(way.buffer, &way.view, way.stream);
    write_content(way.buffer, 3);
    check_at(way.buffer, ways[_i / 2].from, 3);
    must_release(way.buffer);
    finish();
}
END_TEST

/* Each allocation of metadata fails once, and each call of the driver: either the map goes another way, or it fails and
 * the bytes are where they were. */
START_TEST(a_refusal_leaves_the_bytes_where_they_were)
{
    static const struct {
        enum spw__fault_point point;
        int os_errno;
    } faults[] = {{SPW__FAULT_META_ALLOC, ENOMEM}, {SPW__FAULT_DEVICE_COPY, EIO}};
    open_manager(specs[_i % 2]);
    way.buffer = must_make(ways[_i / 2].from, BYTES, SEED);
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    unsigned failed = 0;
    for (unsigned fault = 0; fault < 2; fault++)
        for (long nth = 1; nth <= 8; nth++) {
            spw_view view;
            const spw_map_options options = on_stream(way.stream, SPW_TIMEOUT_DEFAULT);
            check_at(way.buffer, ways[_i / 2].from, SEED);
            comes_to(to_tier(_i), staging_in(manager, to_tier(_i)));
            spw__fault_arm(faults[fault].point, nth, 1, faults[fault].os_errno);
            const int rc = spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, &options, &view);
            spw__fault_disarm(faults[fault].point);
            failed += rc != SPW_OK;
            if (rc == SPW_OK) {
                ck_assert_int_eq(spw_stream_wait(manager, way.stream, NULL), SPW_OK);
                ck_assert(has_content(bytes_of(&view), BYTES, SEED));
                must_unmap(way.buffer, &view, way.stream);
                continue;
            }
            ck_assert_int_eq(rc, fault == 0 ? SPW_ENOMETA : SPW_EDEVICE);
            ck_assert_uint_eq(spw_buffer_place(way.buffer), ways[_i / 2].from);
            comes_to(to_tier(_i), staging_in(manager, to_tier(_i)));
        }
    ck_assert_uint_ge(failed, 5); /* the fetch, three copies, the use of their end */
    must_release(way.buffer);
    ck_assert_int_eq(spw_stream_destroy(manager, way.stream), SPW_OK);
    close_manager();
}
END_TEST

/* The device breaks while the copies are held up. */
static void break_device(void)
{
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, ENOTRECOVERABLE);
    ck_assert_int_eq(spw__device_copy_within(manager->device, way.stream, 0, 0, 1), SPW_EDEVICE);
    spw__fault_disarm(SPW__FAULT_DEVICE_COPY);
    let_go(&way.gate);
}

static void finish_broken(void)
{
    must_release(way.buffer);
    (void)end_gate(&way.gate);
    (void)spw_stream_destroy(manager, way.stream);
    close_manager();
}

START_TEST(after_a_device_error_the_bytes_are_where_they_came_from)
{
    set_out(_i, SPW_MAP_READ);
    must_unmap(way.buffer, &way.view, NULL);
    break_device();
    comes_to(SPW_TIER_DEVICE, 0);
    check_at(way.buffer, SPW_PINNED_HOST, SEED);
    finish_broken();
}
END_TEST

static bool arrives(void)
{
    struct spw__payload *payload = way.buffer->payload;
    spw__mutex_lock(&payload->lock);
    const bool arrives = payload->pieces[0].state == SPW__PIECE_ARRIVING;
    spw__mutex_unlock(&payload->lock);
    return arrives;
}

START_TEST(a_view_of_what_never_arrived_stays_until_it_is_closed)
{
    spw_view view;
    set_out(_i, SPW_MAP_READ);
    break_device();
    for (unsigned i = 0; i < 200000 && arrives(); i++) {
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
        (void)sched_yield();
    }
    ck_assert_int_eq(spw_map(way.buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
    ck_assert(says("pinned_host"));
    ck_assert_int_eq(spw_map(way.buffer, SPW_PINNED_HOST, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), BYTES);
    must_unmap(way.buffer, &way.view, NULL);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    check_at(way.buffer, SPW_PINNED_HOST, SEED);
    finish_broken();
}
END_TEST

START_TEST(a_map_that_waits_for_a_copy_is_told_that_it_failed)
{
    spw_view view;
    set_out(_i, SPW_MAP_READ);
    break_device();
    ck_assert_int_eq(spw_map(way.buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
    must_unmap(way.buffer, &way.view, NULL);
    comes_to(SPW_TIER_DEVICE, 0);
    check_at(way.buffer, SPW_PINNED_HOST, SEED);
    finish_broken();
}
END_TEST

/* What lay on the device alone is lost with it; a copy that was on its way does not count as made. */
START_TEST(what_had_left_a_device_that_failed_is_lost_by_name)
{
    spw_view view;
    set_out(2 * 1 + _i, SPW_MAP_READ); /* device to pinned_host */
    break_device();
    ck_assert_int_eq(spw_map(way.buffer, SPW_PINNED_HOST, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
    const spw_map_options options = on_stream(way.stream, SPW_TIMEOUT_DEFAULT);
    ck_assert_int_eq(spw_map(way.buffer, SPW_PINNED_HOST, SPW_MAP_READ, &options, &view), SPW_EDEVICE);
    must_unmap(way.buffer, &way.view, NULL);
    comes_to(SPW_TIER_PINNED_HOST, staging_in(manager, SPW_TIER_PINNED_HOST));
    ck_assert_int_eq(spw_map(way.buffer, SPW_PINNED_HOST, SPW_MAP_READ, NULL, &view), SPW_EDEVICE);
    ck_assert(says("lost"));
    finish_broken();
}
END_TEST

START_TEST(a_forced_destroy_takes_what_is_stranded)
{
    set_out(_i, SPW_MAP_READ);
    break_device();
    for (unsigned i = 0; i < 200000 && arrives(); i++) {
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
        (void)sched_yield();
    }
    spw_manager_destroy_force(manager);
    manager = NULL;
    free(way.gate.open);
}
END_TEST

/* The reservation pays for the new place, once; what could not be enqueued is given back to it. */
START_TEST(a_reservation_pays_for_what_arrives)
{
    spw_reservation *reservation = NULL;
    open_manager(specs[_i % 2]);
    const uint64_t beside = staging_in(manager, to_tier(_i));
    way.buffer = must_make(ways[_i / 2].from, BYTES, SEED);
    way.gate = open_gate();
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    use_until_let_go(way.buffer, &way.gate);
    ck_assert_int_eq(spw_reserve(manager, ways[_i / 2].to, MIB, NULL, &reservation), SPW_OK);
    spw_map_options options = on_stream(way.stream, 0);
    options.reservation = reservation;
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 2, 1, EIO);
    let_go(&way.gate); /* a failed call lets what it had enqueued run, which comes after the gate */
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, &options, &way.view), SPW_EDEVICE);
    spw__fault_disarm(SPW__FAULT_DEVICE_COPY);
    ck_assert_uint_eq(spw_reservation_size(reservation), MIB);
    ck_assert_int_eq(spw_map(way.buffer, ways[_i / 2].to, SPW_MAP_READ, &options, &way.view), SPW_OK);
    ck_assert_uint_eq(spw_reservation_size(reservation), MIB - BYTES);
    ck_assert_uint_eq(committed(to_tier(_i)), beside + MIB);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    arrive();
    must_unmap(way.buffer, &way.view, way.stream);
    check_at(way.buffer, ways[_i / 2].to, SEED);
    must_release(way.buffer);
    finish();
}
END_TEST

/* A hole is opened by moving what lies in its window: what arrives there is not movable, and is when it has. */
START_TEST(a_hole_waits_for_what_arrives_in_its_window)
{
    open_manager("device=1M; pinned=2M; piece=256K; driver=sim; disk=%s:16M; staging=64K");
    spw_buffer *left = must_alloc(SPW_DEVICE, 256 * KIB), *all = NULL;
    spw_buffer *gone = must_alloc(SPW_DEVICE, 128 * KIB);
    way.buffer = must_make(SPW_PINNED_HOST, 256 * KIB, SEED);
    way.gate = open_gate();
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    use_until_let_go(way.buffer, &way.gate);
    way.view = must_map_on(way.buffer, SPW_DEVICE, SPW_MAP_READ, way.stream);
    must_unmap(way.buffer, &way.view, way.stream);
    must_release(gone);
    ck_assert_int_ne(alloc_within(SPW_DEVICE, 512 * KIB, 0, &all), SPW_OK); /* 512 KiB are free, in two parts */
    arrive();
    ck_assert_int_eq(alloc_within(SPW_DEVICE, 512 * KIB, SPW_TIMEOUT_DEFAULT, &all), SPW_OK);
    check_at(way.buffer, SPW_PINNED_HOST, SEED);
    must_release(all);
    must_release(left);
    must_release(way.buffer);
    finish();
}
END_TEST

/* A driver may read pageable memory when it is told to copy it, and not when the stream comes to that. */
START_TEST(pageable_bytes_in_use_are_waited_for_and_others_are_not)
{
    spw_view view;
    open_manager(specs[_i]);
    way.buffer = must_make(SPW_HOST, BYTES, SEED);
    way.gate = open_gate();
    ck_assert_int_eq(spw_stream_create(manager, &way.stream), SPW_OK);
    use_until_let_go(way.buffer, &way.gate);
    const spw_map_options options = on_stream(way.stream, 0);
    ck_assert_int_eq(spw_map(way.buffer, SPW_DEVICE, SPW_MAP_READ, &options, &view), SPW_ETIMEDOUT);
    let_go(&way.gate);
    check_at(way.buffer, SPW_DEVICE, SEED);
    check_at(way.buffer, SPW_HOST, SEED);
    view = must_map_on(way.buffer, SPW_DEVICE, SPW_MAP_READ, way.stream);
    ck_assert_int_eq(spw_stream_wait(manager, way.stream, NULL), SPW_OK);
    ck_assert(has_content(bytes_of(&view), BYTES, SEED));
    must_unmap(way.buffer, &view, way.stream);
    must_release(way.buffer);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("map_stream");
    TCase *tcase = new_case("arrival", suite);
    tcase_add_loop_test(tcase, a_map_returns_before_its_copies_and_the_stream_comes_after_them, 0, CASES);
    tcase_add_loop_test(tcase, a_ticket_of_such_a_map_ends_at_once, 0, CASES);
    tcase_add_loop_test(tcase, other_maps_at_the_new_place_come_after_the_copies, 0, CASES);
    tcase_add_loop_test(tcase, what_arrives_cannot_move_before_it_is_there, 0, CASES);
    tcase_add_loop_test(tcase, both_places_are_freed_when_a_released_buffer_has_arrived, 0, CASES);
    tcase_add_loop_test(tcase, a_cancelled_group_frees_what_arrives_when_it_has, 0, CASES);
    tcase_add_loop_test(tcase, make_writable_waits_for_the_arrival, 0, CASES);
    tcase_add_loop_test(tcase, a_forced_destroy_outlives_what_arrives, 0, CASES);
    tcase_add_loop_test(tcase, what_is_discarded_is_not_waited_for, 0, CASES);
    tcase_add_loop_test(tcase, a_reservation_pays_for_what_arrives, 0, CASES);
    tcase_add_test(tcase, a_hole_waits_for_what_arrives_in_its_window);
    tcase_add_loop_test(tcase, pageable_bytes_in_use_are_waited_for_and_others_are_not, 0, 2);
    tcase = new_case("failure", suite);
    tcase_add_loop_test(tcase, a_refusal_leaves_the_bytes_where_they_were, 0, CASES);
    tcase_add_loop_test(tcase, after_a_device_error_the_bytes_are_where_they_came_from, 0, 2);
    tcase_add_loop_test(tcase, a_view_of_what_never_arrived_stays_until_it_is_closed, 0, 2);
    tcase_add_loop_test(tcase, a_map_that_waits_for_a_copy_is_told_that_it_failed, 0, 2);
    tcase_add_loop_test(tcase, what_had_left_a_device_that_failed_is_lost_by_name, 0, 2);
    tcase_add_loop_test(tcase, a_forced_destroy_takes_what_is_stranded, 0, 2);
    return run_suite(suite);
}
