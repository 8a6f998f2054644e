/* The descriptor for event loops: loops that sleep in poll(2) alone, most of them where no thread of ours is there. */
#include "ticket_fixture.h"

enum { COUNT = 32 };
#define BYTES (128 * KIB)

static const char *const io_kinds[] = {"io=threads", "io=uring"};
enum { IO_KINDS = 2 };

static spw_ticket *tickets[COUNT]; /* NULL: none, or handled */
static spw_buffer *buffers[COUNT];

/* A manager without our threads; false: this machine refuses the engine. */
static bool open_threadless(const char *format, const char *io)
{
    char spec[512];
    spw_options options;
    const int used = snprintf(spec, sizeof spec, "%s; disk=%s:16M; threads=0; %s", format, folder, io);
    ck_assert_int_lt(used, sizeof spec);
    spw_options_init(&options);
    options.spec = spec;
    const int rc = spw_manager_create(&options, &manager);
    ck_assert_msg(rc == SPW_OK || (rc == SPW_ENOTSUP && strstr(io, "uring")), "%s", spw_error_detail()->message);
    return rc == SPW_OK;
}

static void sleep_once(void)
{
    struct pollfd entry = {.fd = spw_manager_fd(manager), .events = POLLIN};
    ck_assert_int_eq(poll(&entry, 1, -1), 1);
    ck_assert_int_ge(spw_progress(manager, 0), 0);
}

/* The loop: runs until each ticket has ended, with SPW_OK, and was handled. */
static void run_loop(void (*on_end)(unsigned i))
{
    for (bool left = true; left;) {
        left = false;
        for (unsigned i = 0; i < COUNT; i++) {
            const int rc = tickets[i] ? spw_ticket_poll(tickets[i]) : SPW_EAGAIN;
            left |= tickets[i] && rc == SPW_EAGAIN;
            if (rc == SPW_EAGAIN)
                continue;
            ck_assert_msg(rc == SPW_OK, "ticket %u: %s", i, spw_error_detail()->message);
            on_end(i);
            must_destroy(tickets[i]);
            tickets[i] = NULL;
        }
        if (left)
            sleep_once();
    }
}

/* Runs the loop until one ticket has ended. */
static int end_of(spw_ticket *ticket)
{
    int rc;
    while ((rc = spw_ticket_poll(ticket)) == SPW_EAGAIN)
        sleep_once();
    return rc;
}

/* The descriptor stays dark once what was under way has ended: each completion may light it once more, and no more. */
static void goes_dark(void)
{
    const int fd = spw_manager_fd(manager);
    unsigned lit = 0;
    for (unsigned i = 0; i < 1000; i++) {
        if (is_readable(fd)) {
            ck_assert_uint_lt(++lit, 200);
            ck_assert_int_ge(spw_progress(manager, 0), 0);
        }
        (void)sched_yield();
    }
    ck_assert(!is_readable(fd));
}

static void fill_admitted(unsigned i)
{
    spw_view view;
    buffers[i] = must_take(tickets[i]);
    ck_assert_int_eq(spw_map(buffers[i], SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    fill(view.data, BYTES, i);
    ck_assert_int_eq(spw_unmap(buffers[i], &view, NULL), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffers[i]), SPW_OK);
}

static void check_mapped(unsigned i)
{
    spw_view view;
    ck_assert_int_eq(spw_ticket_take_view(tickets[i], &view), SPW_OK);
    ck_assert(has_content(bytes_of(&view), BYTES, i));
    ck_assert_int_eq(spw_unmap(buffers[i], &view, NULL), SPW_OK);
    must_release(buffers[i]);
}

static void release_admitted(unsigned i)
{
    must_release(must_take(tickets[i]));
}

START_TEST(spills_and_reloads_need_no_timer)
{
    if (!open_threadless("host=1088K; staging=64K; piece=128K", io_kinds[_i]))
        return;
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert_int_eq(spw_admit_start(manager, BYTES, NULL, &tickets[i]), SPW_OK);
    run_loop(fill_admitted);
    for (unsigned i = 0; i < COUNT; i++)
        tickets[i] = start_map(buffers[i]);
    run_loop(check_mapped);
    ck_assert_uint_gt(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 2 * MIB);
    goes_dark();
}
END_TEST

START_TEST(copies_of_a_device_need_no_timer)
{
    if (!open_threadless("driver=sim; device=1M; host=4M; staging=64K; piece=128K", io_kinds[_i]))
        return;
    for (unsigned i = 0; i < 8; i++)
        buffers[i] = must_make(SPW_DEVICE, BYTES, i);
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_DEVICE, MIB, &options, &tickets[0]), SPW_OK);
    run_loop(release_admitted);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(spw_map_start(buffers[i], SPW_DEVICE, SPW_MAP_READ, NULL, &tickets[i]), SPW_OK);
    run_loop(check_mapped);
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_HOST)->bytes, MIB);
    goes_dark();
}
END_TEST

START_TEST(a_deadline_needs_no_timer)
{
    open_manager(SMALL_HOST "; threads=0");
    spw_buffer *held = hold(MIB);
    spw_ticket *late = start_alloc_within(512 * KIB, 30), *first = start_alloc_within(512 * KIB, 10);
    ck_assert_int_eq(end_of(late), SPW_ENOMEM);
    ck_assert_int_eq(end_of(first), SPW_ENOMEM);
    must_destroy(late);
    must_destroy(first);
    must_release(held);
    goes_dark();
}
END_TEST

START_TEST(a_deadline_that_nobody_waits_for_any_more_wakes_nobody)
{
    open_manager(SMALL_HOST "; threads=0");
    spw_buffer *held = hold(MIB);
    const int fd = spw_manager_fd(manager);
    spw_ticket *ticket = start_alloc_within(512 * KIB, 3600 * 1000);
    while (is_readable(fd))
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_uint_ne(manager->loop.armed_ns, UINT64_MAX);
    must_destroy(ticket);
    goes_dark();
    ck_assert_uint_eq(manager->loop.armed_ns, UINT64_MAX);
    must_release(held);
}
END_TEST

static void *cancel_it(void *arg)
{
    ck_assert_int_eq(spw_ticket_cancel(arg), SPW_OK);
    return NULL;
}

START_TEST(a_cancel_by_another_thread_wakes_the_loop)
{
    open_manager(SMALL_HOST "; threads=0");
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    const pthread_t thread = must_start(cancel_it, ticket);
    ck_assert_int_eq(end_of(ticket), SPW_ECANCELED);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    must_destroy(ticket);
    must_release(held);
    goes_dark();
}
END_TEST

START_TEST(it_is_readable_exactly_while_there_is_something_to_do)
{
    open_manager(SMALL_HOST "; threads=0");
    const int fd = spw_manager_fd(manager);
    ck_assert(!is_readable(fd));
    spw_buffer *held = hold(MIB);
    ck_assert(!is_readable(fd));
    spw_ticket *served = start_alloc(256 * KIB), *called_off = start_alloc(256 * KIB), *gone = start_alloc(256 * KIB);
    ck_assert(is_readable(fd)); /* room is to be made */
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(!is_readable(fd));
    ck_assert_int_eq(spw_ticket_cancel(called_off), SPW_OK);
    ck_assert(is_readable(fd));
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(is_readable(fd)); /* until somebody looks */
    ck_assert_int_eq(spw_ticket_poll(called_off), SPW_ECANCELED);
    ck_assert(!is_readable(fd));
    must_destroy(gone);
    ck_assert(is_readable(fd));
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(!is_readable(fd)); /* nobody is told of it */
    must_release(held);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(is_readable(fd));
    must_release(must_take(served)); /* which is a look */
    ck_assert(!is_readable(fd));
    must_destroy(served);
    must_destroy(called_off);
    ck_assert(!is_readable(fd));
    spw_ticket *at_once = start_alloc(256 * KIB);
    ck_assert(is_readable(fd));
    must_destroy(at_once);
    ck_assert(!is_readable(fd));
}
END_TEST

START_TEST(with_our_thread_it_tells_of_ends_alone)
{
    open_manager(SMALL_HOST);
    struct pollfd entry = {.fd = spw_manager_fd(manager), .events = POLLIN};
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    ck_assert(!is_readable(entry.fd));
    must_release(held);
    ck_assert_int_eq(poll(&entry, 1, -1), 1);
    ck_assert_int_eq(spw_progress(manager, 0), 0); /* the same loop as without */
    ck_assert(is_readable(entry.fd));
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert(!is_readable(entry.fd));
    must_destroy(ticket);
}
END_TEST

START_TEST(progress_by_another_thread_takes_no_end_from_the_loop)
{
    open_manager(SMALL_HOST "; threads=0");
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc(512 * KIB);
    const int fd = spw_manager_fd(manager);
    must_release(held);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(is_readable(fd));
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert(!is_readable(fd));
    must_destroy(ticket);
}
END_TEST

/* One ticket at a time, from who submits to the loop; NULL: the loop has taken it. */
static spw_ticket *_Atomic handed;
enum { ROUNDS = 10000 };

static void *submit(void *arg)
{
    (void)arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        spw_buffer *held = hold(MIB);
        spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
        atomic_store(&handed, ticket);
        if (round % 2)
            ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
        must_release(held);
        while (atomic_load(&handed))
            (void)sched_yield();
    }
    return NULL;
}

START_TEST(a_second_thread_that_submits_always_wakes_the_loop)
{
    open_manager(SMALL_HOST "; threads=0");
    unsigned served = 0;
    const int fd = spw_manager_fd(manager);
    ck_assert_int_ge(fd, 0);
    const pthread_t thread = must_start(submit, NULL);
    for (unsigned round = 0; round < ROUNDS;) {
        spw_ticket *ticket = atomic_load(&handed);
        const int rc = ticket ? spw_ticket_poll(ticket) : SPW_EAGAIN;
        if (rc == SPW_EAGAIN) {
            sleep_once();
            continue;
        }
        ck_assert(rc == SPW_OK || rc == SPW_ECANCELED);
        served += rc == SPW_OK;
        must_destroy(ticket);
        atomic_store(&handed, NULL);
        round++;
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(served, ROUNDS / 2);
    goes_dark();
}
END_TEST

/* Tickets that try once, and find a clean copy to drop. */
static void *try_once(void *arg)
{
    for (unsigned round = 0; round < ROUNDS / 20; round++) {
        check_at(arg, SPW_HOST, 5);
        atomic_store(&handed, start_alloc_within(MIB, 0));
        while (atomic_load(&handed))
            (void)sched_yield();
    }
    return NULL;
}

START_TEST(a_ticket_that_tries_once_has_room_made_before_its_time_is_up)
{
    open_manager(SMALL_HOST "; threads=0");
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 5);
    push_out(SPW_HOST, MIB);
    ck_assert_int_ge(spw_manager_fd(manager), 0);
    const pthread_t thread = must_start(try_once, buffer);
    for (unsigned round = 0; round < ROUNDS / 20;) {
        spw_ticket *ticket = atomic_load(&handed);
        const int rc = ticket ? spw_ticket_poll(ticket) : SPW_EAGAIN;
        if (rc == SPW_EAGAIN) {
            sleep_once();
            continue;
        }
        ck_assert_msg(rc == SPW_OK, "round %u: %s", round, spw_error_detail()->message);
        must_destroy(ticket);
        atomic_store(&handed, NULL);
        round++;
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    must_release(buffer);
}
END_TEST

/* Calls that block, and so drive the same engine. */
static void *read_by_blocking(void *arg)
{
    for (unsigned i = 0; i < 200; i++)
        check_at(((spw_buffer **)arg)[i % 8], SPW_HOST, i % 8);
    return NULL;
}

START_TEST(calls_that_block_beside_the_loop_take_no_wake_up_from_it)
{
    spw_buffer *others[8];
    if (!open_threadless("host=1088K; staging=64K; piece=128K", io_kinds[_i]))
        return;
    for (unsigned i = 0; i < 8; i++)
        others[i] = must_make(SPW_HOST, BYTES, i);
    const pthread_t thread = must_start(read_by_blocking, others);
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert_int_eq(spw_admit_start(manager, BYTES, NULL, &tickets[i]), SPW_OK);
    run_loop(fill_admitted);
    for (unsigned i = 0; i < COUNT; i++)
        tickets[i] = start_map(buffers[i]);
    run_loop(check_mapped);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (unsigned i = 0; i < 8; i++)
        must_release(others[i]);
    goes_dark();
}
END_TEST

static unsigned count_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

START_TEST(no_descriptor_left_is_an_error_and_the_next_try_works)
{
    open_manager(SMALL_HOST "; threads=0");
    const unsigned before = count_descriptors();
    for (long nth = 1; nth <= 3; nth++) {
        spw__fault_arm(SPW__FAULT_EVENT_FD, nth, 1, EMFILE);
        ck_assert_int_eq(spw_manager_fd(manager), SPW_ENOMEM);
        ck_assert_int_eq(spw_error_detail()->os_errno, EMFILE);
        spw__fault_disarm(SPW__FAULT_EVENT_FD);
        ck_assert_uint_eq(count_descriptors(), before);
    }
    ck_assert_int_ge(spw_manager_fd(manager), 0);
    goes_dark();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *tests = tcase_create("loop");
    tcase_add_checked_fixture(tests, make_folder, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, spills_and_reloads_need_no_timer, 0, IO_KINDS);
    tcase_add_loop_test(tests, copies_of_a_device_need_no_timer, 0, IO_KINDS);
    tcase_add_test(tests, a_deadline_needs_no_timer);
    tcase_add_test(tests, a_deadline_that_nobody_waits_for_any_more_wakes_nobody);
    tcase_add_test(tests, a_cancel_by_another_thread_wakes_the_loop);
    tcase_add_test(tests, it_is_readable_exactly_while_there_is_something_to_do);
    tcase_add_test(tests, with_our_thread_it_tells_of_ends_alone);
    tcase_add_test(tests, progress_by_another_thread_takes_no_end_from_the_loop);
    tcase_add_test(tests, a_second_thread_that_submits_always_wakes_the_loop);
    tcase_add_test(tests, a_ticket_that_tries_once_has_room_made_before_its_time_is_up);
    tcase_add_loop_test(tests, calls_that_block_beside_the_loop_take_no_wake_up_from_it, 0, IO_KINDS);
    tcase_add_test(tests, no_descriptor_left_is_an_error_and_the_next_try_works);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
