/* Marked buffers whose writers meet a spill, whose tasks are asked to give way, and whose moves fail: no older content
 * ever comes back. Neighbour: test_spillable.c. */
#include "spillable_fixture.h"
#include "src/core/handle.h"

#include <semaphore.h>

/* The library has no thread: a spill goes as far as the test lets it. */
static const char *const driven[] = {SMALL_HOST "; threads=0; io=auto", SMALL_HOST "; threads=0; io=threads"};
enum { DRIVEN = sizeof driven / sizeof driven[0], ROUNDS = 10 };

static void advance(unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++)
        ck_assert_int_ge(spw_progress(manager, 0), 0);
}

static int map_within(spw_buffer *buffer, spw_place place, uint32_t flags, int64_t timeout_ms, spw_view *view)
{
    spw_map_options options;
    spw_map_options_init(&options);
    options.wait.timeout_ms = timeout_ms;
    return spw_map(buffer, place, flags, &options, view);
}

START_TEST(a_writer_that_meets_a_queued_spill_calls_it_off)
{
    open_manager(driven[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
    ask_for_all();
    spw_view view = must_map(buffer, SPW_HOST, SPW_MAP_WRITE);
    fill(view.data, view.size, 2);
    must_unmap(buffer, &view);
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_uint_eq(written(), 0);
    ck_assert_uint_eq(stats.spill_failures, 0);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
    close_manager();
}
END_TEST

/* Writes through a view that came, without a copy of the bytes being made or left below. */
static void write_alone(spw_buffer *buffer, spw_view *view, unsigned was, unsigned seed)
{
    ck_assert_uint_eq(on_disk(), 0);
    ck_assert(!spw__mover_busy(manager->mover));
    ck_assert(has_content(view->data, view->size, was));
    fill(view->data, view->size, seed);
    must_unmap(buffer, view);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    check_at(buffer, SPW_HOST, seed);
}

START_TEST(a_writer_that_meets_a_spill_at_any_stage_is_alone_with_the_bytes)
{
    spw_ticket *ticket = NULL;
    spw_view view;
    for (unsigned rounds = 0; rounds < ROUNDS; rounds++) {
        open_manager(driven[_i]);
        spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
        ask_for_all();
        advance(rounds);
        view = must_map(buffer, SPW_HOST, SPW_MAP_WRITE);
        write_alone(buffer, &view, 1, 2);
        write_content(buffer, 3); /* else a clean copy is dropped at once */
        ask_for_all();
        advance(rounds);
        ck_assert_int_eq(spw_map_start(buffer, SPW_HOST, SPW_MAP_WRITE, NULL, &ticket), SPW_OK);
        ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
        ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
        ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
        write_alone(buffer, &view, 3, 4);
        must_release(buffer);
        close_manager();
    }
}
END_TEST

START_TEST(a_reader_that_meets_a_spill_leaves_no_copy_to_a_writer_that_comes_later)
{
    for (unsigned rounds = 0; rounds < ROUNDS; rounds++) {
        open_manager(driven[_i]);
        spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
        ask_for_all();
        advance(rounds);
        spw_view read = must_map(buffer, SPW_HOST, SPW_MAP_READ), write = must_map(buffer, SPW_HOST, SPW_MAP_WRITE);
        ck_assert_ptr_eq(read.data, write.data);
        must_unmap(buffer, &read);
        write_alone(buffer, &write, 1, 2);
        must_release(buffer);
        close_manager();
    }
}
END_TEST

START_TEST(without_a_wait_a_writer_is_refused_while_a_spill_is_under_way)
{
    spw_view view;
    open_manager(driven[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
    ask_for_all();
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_NOWAIT, NULL, &view), SPW_EAGAIN);
    drain();
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK); /* that did not stop it */
    check_at(buffer, SPW_HOST, 1);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE | SPW_MAP_NOWAIT, NULL, &view), SPW_OK);
    ck_assert_uint_eq(on_disk(), 0);
    must_unmap(buffer, &view);
    must_release(buffer);
    close_manager();
}
END_TEST

static void stand_still(void *open)
{
    while (sem_wait(open) != 0) {
    }
}

START_TEST(a_writer_who_gives_up_leaves_a_buffer_that_can_be_sealed_and_spilled)
{
    sem_t open; /* the stream's work waits for it */
    spw__stream stream = NULL;
    spw_buffer *none;
    open_manager("device=8M; host=16M; staging=1M; piece=1M; disk=%s:64M; driver=sim");
    ck_assert_int_eq(sem_init(&open, 0, 0), 0);
    ck_assert_int_eq(spw__device_stream_create(manager->device, &stream), SPW_OK);
    spw_buffer *buffer = make_marked(SPW_DEVICE, 4 * MIB, 1);
    spw_view view = must_map(buffer, SPW_DEVICE, SPW_MAP_WRITE);
    ck_assert_int_eq(spw__device_launch(manager->device, stream, stand_still, &open), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)stream), SPW_OK);
    ck_assert_int_eq(alloc_within(SPW_DEVICE, 8 * MIB, 0, &none), SPW_ENOMEM); /* its spill waits for the stream */
    ck_assert_int_eq(map_within(buffer, SPW_DEVICE, SPW_MAP_WRITE, 0, &view), SPW_ETIMEDOUT);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(sem_post(&open), 0);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK); /* waits for its work */
    push_out(SPW_DEVICE, 8 * MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    check_at(buffer, SPW_DEVICE, 1);
    must_release(buffer);
    ck_assert_int_eq(sem_destroy(&open), 0);
    close_manager();
}
END_TEST

START_TEST(taking_the_mark_back_ends_the_spill_and_none_begins_later)
{
    for (unsigned rounds = 0; rounds < ROUNDS; rounds++) {
        open_manager(driven[_i]);
        spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
        ask_for_all();
        advance(rounds);
        mark(buffer, false);
        drain();
        if (rounds == 0)
            ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
        check_at(buffer, SPW_HOST, 1);
        ask_for_all();
        drain();
        ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
        mark(buffer, true);
        push_out(SPW_HOST, MIB);
        check_at(buffer, SPW_HOST, 1);
        must_release(buffer);
        close_manager();
    }
}
END_TEST

START_TEST(release_during_its_spill_frees_both_ends)
{
    for (unsigned rounds = 0; rounds < ROUNDS; rounds++) {
        open_manager(driven[_i]);
        spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
        ask_for_all();
        advance(rounds);
        must_release(buffer);
        close_manager();
    }
}
END_TEST

/* The request fails with code, since what could go cannot be written. */
static void cannot_be_pushed_out(spw_place place, int code)
{
    spw_buffer *none;
    ck_assert_int_eq(alloc_within(place, 512 * KIB, SPW_TIMEOUT_INFINITE, &none), code);
}

START_TEST(what_was_spilled_once_never_comes_back_after_a_write_whose_spill_failed)
{
    open_manager(_i < DRIVEN ? driven[_i] : SMALL_HOST);
    spw_buffer *buffer = make_marked(SPW_HOST, MIB, 0);
    for (unsigned round = 1; round < 4; round++) {
        push_out(SPW_HOST, MIB);
        check_at(buffer, SPW_HOST, round - 1); /* it has a copy below now */
        write_content(buffer, round);
        spw__fault_arm(SPW__FAULT_IO_WRITE, 1 + (long)round, 0, EIO);
        cannot_be_pushed_out(SPW_HOST, SPW_EIO);
        spw__fault_disarm(SPW__FAULT_IO_WRITE);
        check_at(buffer, SPW_HOST, round);
    }
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 3);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_reload_that_fails_can_be_tried_again_and_one_that_differs_is_lost)
{
    spw_view view;
    open_manager(driven[_i]);
    spw_buffer *buffer = make_marked(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_READ, 2, 1, EIO);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, "x", 1), SPW_EIO);
    ck_assert_int_eq(spw_buffer_place(buffer), SPW_DISK);
    spw__fault_disarm(SPW__FAULT_IO_READ);
    view = must_map(buffer, SPW_HOST, SPW_MAP_WRITE);
    ck_assert(has_content(view.data, view.size, 1));
    must_unmap(buffer, &view);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_FLIP, 2, 1, EIO);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_ECORRUPT);
    spw__fault_disarm(SPW__FAULT_IO_FLIP);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, "x", 1), SPW_ECORRUPT);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_device_that_fails_while_it_spills_leaves_what_was_written)
{
    open_manager("device=1M; host=1088K; staging=64K; piece=128K; disk=%s:8M; driver=sim");
    spw_buffer *full = _i ? must_alloc(SPW_HOST, MIB) : NULL, *buffer = make_marked(SPW_DEVICE, MIB, 1);
    push_out(SPW_DEVICE, MIB); /* to host memory, or through staging to disk */
    check_at(buffer, SPW_DEVICE, 1);
    write_content(buffer, 2);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 2, 0, EIO);
    cannot_be_pushed_out(SPW_DEVICE, SPW_EDEVICE);
    spw__fault_disarm(SPW__FAULT_DEVICE_COPY);
    push_out(SPW_DEVICE, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), full ? SPW_DISK : SPW_HOST);
    check_at(buffer, SPW_DEVICE, 2);
    must_release(buffer);
    must_release(full);
    close_manager();
}
END_TEST

static spw_task *must_task(const char *name, int64_t priority)
{
    spw_task *task = NULL;
    spw_task_options options;
    spw_task_options_init(&options);
    options.name = name;
    options.priority = priority;
    ck_assert_int_eq(spw_task_create(manager, &options, &task), SPW_OK);
    return task;
}

static spw_task_usage end_task(spw_task *task)
{
    spw_task_usage usage;
    spw_task_usage_init(&usage);
    ck_assert_int_eq(spw_task_usage_get(task, &usage), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    return usage;
}

START_TEST(a_task_that_is_asked_marks_what_it_holds_and_goes_on_with_both)
{
    spw_buffer *more = NULL;
    open_manager(SMALL_HOST);
    spw_task *task = must_task("alone", 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = make_unsealed(SPW_HOST, 768 * KIB, 1);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_ERETRY);
    mark(held, true);
    ck_assert_int_eq(spw_task_wait_turn(task, NULL), SPW_OK);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(held), SPW_DISK);
    must_release(more);
    check_at(held, SPW_HOST, 1);
    write_content(held, 2);
    check_at(held, SPW_HOST, 2);
    must_release(held);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    const spw_task_usage usage = end_task(task);
    ck_assert_uint_eq(usage.retries, 1);
    ck_assert_uint_eq(usage.splits, 0);
    close_manager();
}
END_TEST

struct half {
    spw_task *task;
    pthread_barrier_t *start;
    unsigned seed;
    int first, last; /* what its request gave, and then once more */
};

/* Holds half of the memory, unsealed, and wants a quarter more. */
static void *work_with_half(void *arg)
{
    struct half *half = arg;
    spw_buffer *more = NULL;
    ck_assert_int_eq(spw_task_attach(half->task), SPW_OK);
    spw_buffer *held = make_unsealed(SPW_HOST, 512 * KIB, half->seed);
    (void)pthread_barrier_wait(half->start);
    half->first = half->last = spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &more);
    if (half->first == SPW_ERETRY) {
        mark(held, true);
        ck_assert_int_eq(spw_task_wait_turn(half->task, NULL), SPW_OK);
        half->last = spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &more);
    }
    (void)spw_buffer_release(more);
    check_at(held, SPW_HOST, half->seed);
    must_release(held);
    ck_assert_int_eq(spw_task_detach(half->task), SPW_OK);
    return NULL;
}

START_TEST(the_others_get_what_the_task_that_is_asked_has_marked_and_it_gets_its_turn)
{
    pthread_barrier_t start;
    open_manager(SMALL_HOST);
    struct half high = {.task = must_task("high", 2), .start = &start, .seed = 1};
    struct half low = {.task = must_task("low", 1), .start = &start, .seed = 2};
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    const pthread_t first = must_start(work_with_half, &high), second = must_start(work_with_half, &low);
    ck_assert_int_eq(pthread_join(first, NULL), 0);
    ck_assert_int_eq(pthread_join(second, NULL), 0);
    ck_assert_int_eq(high.first, SPW_OK);
    ck_assert_int_eq(low.first, SPW_ERETRY);
    ck_assert_int_eq(low.last, SPW_OK);
    ck_assert_uint_eq(end_task(high.task).retries, 0);
    ck_assert_uint_eq(end_task(low.task).splits, 0);
    (void)pthread_barrier_destroy(&start);
    close_manager();
}
END_TEST

enum { BUFFERS = 6, WRITERS = 2, STEPS = 150 };
static const struct raced {
    const char *spec;
    spw_place place;
} raced[] = {
    {SMALL_HOST "; io=auto", SPW_HOST},
    {SMALL_HOST "; io=threads", SPW_HOST},
    {"device=512K; pinned=576K; host=512K; staging=64K; piece=64K; disk=%s:16M; driver=sim", SPW_DEVICE},
    {"pinned=1M; host=1M; piece=128K", SPW_PINNED_HOST}, /* each one piece: to the tier below and back */
};
enum { RACED = sizeof raced / sizeof raced[0] };
static spw_place raced_place;
static atomic_bool over;

/* Takes memory that only marked buffers can give, in small and in large blocks, and gives it back. */
static void *press(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        spw_buffer *got[4] = {NULL};
        for (unsigned k = 0; k < 4; k++)
            (void)alloc_within(raced_place, (i % 3 + 1) * 64 * KIB, (int64_t)(i % 2), &got[k]);
        for (unsigned k = 0; k < 4; k++)
            (void)spw_buffer_release(got[k]);
    }
    return NULL;
}

/* Rewrites buffers of its own, each of which must hold what it wrote last. */
static void *rewrite(void *arg)
{
    static const size_t bytes[BUFFERS] = {20 * KIB, 64 * KIB, 100 * KIB + 13, 128 * KIB, 4096, 90 * KIB};
    spw_buffer *buffers[BUFFERS];
    unsigned seeds[BUFFERS];
    for (unsigned i = 0; i < BUFFERS; i++) {
        seeds[i] = i;
        buffers[i] = make_marked(raced_place, bytes[i], i);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        const unsigned at = (i * 5 + *(unsigned *)arg) % BUFFERS;
        check_at(buffers[at], raced_place, seeds[at]);
        if (i % 4 == 0) {
            write_content(buffers[at], ++seeds[at]);
        } else if (i % 4 < 3) {
            spw_view view = must_map(buffers[at], raced_place, SPW_MAP_WRITE | (i % 4 == 1 ? SPW_MAP_DISCARD : 0));
            fill((void *)(uintptr_t)bytes_of(&view), view.size, ++seeds[at]);
            must_unmap(buffers[at], &view);
        }
        if (i % 7 == 0) {
            mark(buffers[at], false);
            check_at(buffers[at], raced_place, seeds[at]);
            mark(buffers[at], true); /* what stays unmarked could leave no hole for the others */
        }
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        check_at(buffers[i], raced_place, seeds[i]);
        must_release(buffers[i]);
    }
    return NULL;
}

START_TEST(writers_race_with_the_spiller_and_read_what_they_wrote)
{
    pthread_t writers[WRITERS];
    unsigned numbers[WRITERS];
    open_manager(raced[_i].spec);
    raced_place = raced[_i].place;
    const pthread_t presser = must_start(press, NULL);
    for (unsigned i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        writers[i] = must_start(rewrite, &numbers[i]);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_join(writers[i], NULL), 0);
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(presser, NULL), 0);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spillable_race");
    TCase *meeting = tcase_create("meeting");
    tcase_set_timeout(meeting, 60);
    tcase_add_checked_fixture(meeting, make_folder, remove_folder);
    tcase_add_loop_test(meeting, a_writer_that_meets_a_queued_spill_calls_it_off, 0, DRIVEN);
    tcase_add_loop_test(meeting, a_writer_that_meets_a_spill_at_any_stage_is_alone_with_the_bytes, 0, DRIVEN);
    tcase_add_loop_test(meeting, a_reader_that_meets_a_spill_leaves_no_copy_to_a_writer_that_comes_later, 0, DRIVEN);
    tcase_add_loop_test(meeting, without_a_wait_a_writer_is_refused_while_a_spill_is_under_way, 0, DRIVEN);
    tcase_add_test(meeting, a_writer_who_gives_up_leaves_a_buffer_that_can_be_sealed_and_spilled);
    tcase_add_loop_test(meeting, taking_the_mark_back_ends_the_spill_and_none_begins_later, 0, DRIVEN);
    tcase_add_loop_test(meeting, release_during_its_spill_frees_both_ends, 0, DRIVEN);
    suite_add_tcase(suite, meeting);
    TCase *racing = tcase_create("racing");
    tcase_set_timeout(racing, 60);
    tcase_add_checked_fixture(racing, make_folder, remove_folder);
    tcase_add_loop_test(racing, writers_race_with_the_spiller_and_read_what_they_wrote, 0, RACED);
    suite_add_tcase(suite, racing);
    TCase *faults = tcase_create("faults");
    tcase_set_timeout(faults, 60);
    tcase_add_checked_fixture(faults, make_folder, remove_folder);
    tcase_add_loop_test(faults, what_was_spilled_once_never_comes_back_after_a_write_whose_spill_failed, 0, DRIVEN + 1);
    tcase_add_loop_test(faults, a_reload_that_fails_can_be_tried_again_and_one_that_differs_is_lost, 0, DRIVEN);
    tcase_add_loop_test(faults, a_device_that_fails_while_it_spills_leaves_what_was_written, 0, 2);
    suite_add_tcase(suite, faults);
    TCase *tasks = tcase_create("tasks");
    tcase_set_timeout(tasks, 60);
    tcase_add_checked_fixture(tasks, make_folder, remove_folder);
    tcase_add_test(tasks, a_task_that_is_asked_marks_what_it_holds_and_goes_on_with_both);
    tcase_add_test(tasks, the_others_get_what_the_task_that_is_asked_has_marked_and_it_gets_its_turn);
    suite_add_tcase(suite, tasks);
    return run_suite(suite);
}
