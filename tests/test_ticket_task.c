/* Tickets, tasks and groups: a ticket under way is one of its task's waits, which the arbiter may end, and names a
 * group; who waits for a ticket waits. */
#include "ticket_fixture.h"

static spw_task *attached_task(void)
{
    spw_task *task = NULL;
    ck_assert_int_eq(spw_task_create(manager, NULL, &task), SPW_OK);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    return task;
}

/* With threads=0 tickets that were destroyed under way end by progress. */
static void end_task(spw_task *task)
{
    while (spw_progress(manager, 1000) == 1) {
    }
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    while (atomic_load(&task->users) != 0)
        (void)sched_yield();
    const int rc = spw_task_destroy(task);
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
}

START_TEST(a_task_that_waits_for_its_ticket_is_asked_through_it)
{
    spw_task *task = attached_task();
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    must_end_as(ticket, SPW_ERETRY);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, 512 * KIB);
    must_destroy(ticket);
    must_release(held);
    ck_assert_int_eq(spw_task_wait_turn(task, NULL), SPW_OK);
    ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    end_task(task);
}
END_TEST

START_TEST(a_ticket_of_a_task_that_runs_is_left_alone)
{
    spw_task *task = attached_task();
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_alloc(512 * KIB);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_int_ge(spw_progress(manager, 0), 0);
        ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    }
    must_release(held);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    end_task(task);
}
END_TEST

START_TEST(a_loop_waits_its_turn_by_a_ticket)
{
    spw_ticket *turn = NULL;
    spw_task *task = attached_task();
    ck_assert_int_eq(spw_task_wait_turn_start(task, NULL, &turn), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(turn), SPW_OK); /* it was not asked */
    must_destroy(turn);
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    must_end_as(ticket, SPW_ERETRY);
    must_destroy(ticket);
    ck_assert_int_eq(spw_task_wait_turn_start(task, NULL, &turn), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(turn), SPW_EAGAIN);
    must_end_as(turn, SPW_OK); /* nobody else: it is its turn */
    must_destroy(turn);
    ck_assert_int_eq(spw_task_wait_turn_start(task, NULL, &turn), SPW_OK);
    must_release(held); /* what it lacked is free */
    must_end_as(turn, SPW_OK);
    must_destroy(turn);
    ck_assert_int_eq(spw_task_wait_turn_start(task, NULL, &turn), SPW_OK);
    ck_assert_int_eq(spw_ticket_cancel(turn), SPW_OK);
    must_destroy(turn);
    ck_assert_int_eq(spw_task_wait_turn_start(NULL, NULL, &turn), SPW_EBADHANDLE);
    ck_assert_ptr_null(turn);
    end_task(task);
}
END_TEST

/* Sleeps in poll(2) as a loop does that has told so, until a ticket has ended. */
static void sleep_on(int fd, spw_task *task)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(spw_task_block_begin(task, "poll"), SPW_OK);
    while (atomic_load(&manager->loop.unseen) == 0) {
        ck_assert_int_eq(poll(&entry, 1, -1), 1);
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    }
    for (unsigned i = 0; i < 100; i++) /* nor is more asked of it before it has looked */
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_int_eq(spw_task_block_end(task), SPW_OK);
}

static unsigned count_ended_as(spw_ticket **tickets, unsigned n, int rc)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++)
        count += spw_ticket_poll(tickets[i]) == rc;
    return count;
}

START_TEST(of_many_tickets_of_a_loop_one_is_asked_at_a_time)
{
    enum { N = 8 };
    spw_ticket *tickets[N];
    const int fd = spw_manager_fd(manager);
    spw_task *task = attached_task();
    spw_buffer *held = hold(768 * KIB);
    for (unsigned i = 0; i < N; i++)
        tickets[i] = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    sleep_on(fd, task);
    ck_assert_uint_eq(count_ended_as(tickets, N, SPW_ERETRY), 1);
    ck_assert_uint_eq(count_ended_as(tickets, N, SPW_EAGAIN), N - 1);
    sleep_on(fd, task);
    ck_assert_uint_eq(count_ended_as(tickets, N, SPW_ESPLIT), 1);
    ck_assert_uint_eq(count_ended_as(tickets, N, SPW_EAGAIN), N - 2);
    must_release(held);
    for (unsigned i = 0; i < N; i++)
        must_destroy(tickets[i]);
    end_task(task);
}
END_TEST

START_TEST(what_was_served_is_looked_at_before_another_is_asked)
{
    spw_ticket *tickets[2];
    const int fd = spw_manager_fd(manager);
    spw_task *task = attached_task();
    spw_buffer *others = hold(512 * KIB), *held = hold(512 * KIB);
    for (unsigned i = 0; i < 2; i++)
        tickets[i] = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    must_release(others);
    sleep_on(fd, task);
    ck_assert_int_eq(spw_ticket_poll(tickets[1]), SPW_EAGAIN);
    ck_assert_int_eq(spw_ticket_poll(tickets[0]), SPW_OK);
    sleep_on(fd, task);
    ck_assert_int_eq(spw_ticket_poll(tickets[1]), SPW_ERETRY);
    must_release(held);
    for (unsigned i = 0; i < 2; i++)
        must_destroy(tickets[i]);
    end_task(task);
}
END_TEST

START_TEST(who_waits_for_a_ticket_without_a_task_is_asked_itself)
{
    spw_buffer *others = hold(256 * KIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_destroy(ticket);
    spw_task *task = NULL;
    ck_assert_int_eq(spw_task_create(manager, NULL, &task), SPW_OK);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = hold(512 * KIB);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ticket = start_alloc_within(512 * KIB, SPW_TIMEOUT_INFINITE);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_ERETRY);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    must_release(others);
    end_task(task);
}
END_TEST

/* A task that runs until both barriers are passed: as long as it does nobody is asked. */
struct runner {
    pthread_barrier_t begun, over;
};

static void *run(void *arg)
{
    struct runner *runner = arg;
    spw_task *task = attached_task();
    (void)pthread_barrier_wait(&runner->begun);
    (void)pthread_barrier_wait(&runner->over);
    end_task(task);
    return NULL;
}

START_TEST(a_task_cannot_be_destroyed_before_its_tickets_have_ended)
{
    struct runner runner;
    (void)pthread_barrier_init(&runner.begun, NULL, 2);
    (void)pthread_barrier_init(&runner.over, NULL, 2);
    const pthread_t thread = must_start(run, &runner);
    (void)pthread_barrier_wait(&runner.begun);
    spw_task *task = attached_task();
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_alloc(512 * KIB);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_EBUSY);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    must_destroy(ticket);
    must_release(held);
    (void)pthread_barrier_wait(&runner.over);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&runner.begun);
    (void)pthread_barrier_destroy(&runner.over);
}
END_TEST

START_TEST(cancelling_the_task_ends_its_tickets)
{
    spw_task *task = attached_task();
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *room = start_alloc(512 * KIB), *view = start_map(buffer);
    ck_assert_int_eq(spw_task_cancel(task), SPW_OK);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    must_end_as(room, SPW_ECANCELED);
    must_end_as(view, SPW_ECANCELED);
    must_destroy(room);
    must_destroy(view);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    must_release(held);
    must_release(buffer);
}
END_TEST

START_TEST(what_a_ticket_brings_is_charged_to_its_task)
{
    spw_task_usage usage;
    spw_task *task = attached_task();
    spw_buffer *held = hold(768 * KIB);
    spw_ticket *ticket = start_alloc(512 * KIB);
    must_release(held);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    must_end_as(ticket, SPW_OK);
    spw_task_usage_init(&usage);
    ck_assert_int_eq(spw_task_usage_get(task, &usage), SPW_OK);
    ck_assert_uint_eq(usage.committed_bytes[SPW_TIER_HOST], 512 * KIB);
    ck_assert_uint_eq(usage.waits, 1);
    must_destroy(ticket);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
}
END_TEST

static spw_ticket *start_in(spw_group *group, int form)
{
    spw_ticket *ticket = NULL;
    spw_admit_options admit;
    spw_alloc_options alloc;
    spw_reserve_options reserve;
    spw_pool_options pool;
    int rc;
    spw_admit_options_init(&admit);
    spw_alloc_options_init(&alloc);
    spw_reserve_options_init(&reserve);
    spw_pool_options_init(&pool);
    admit.group = alloc.group = reserve.group = pool.group = group;
    switch (form) {
    case 0: rc = spw_admit_start(manager, 512 * KIB, &admit, &ticket); break;
    case 1: rc = spw_alloc_start(manager, SPW_HOST, 512 * KIB, &alloc, &ticket); break;
    case 2: rc = spw_reserve_start(manager, SPW_HOST, 512 * KIB, &reserve, &ticket); break;
    default: rc = spw_pool_alloc_start(manager, SPW_HOST, 512 * KIB, 0, NULL, &pool, &ticket); break;
    }
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
    return ticket;
}

START_TEST(tickets_are_charged_to_their_group_and_end_with_it)
{
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    spw_group *group = NULL;
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    spw_ticket *served = start_in(group, _i);
    ck_assert_int_eq(spw_ticket_poll(served), SPW_OK);
    ck_assert_int_eq(spw_group_usage_get(group, SPW_HOST, &usage), SPW_OK);
    ck_assert_uint_eq(usage.committed_bytes, 512 * KIB);
    spw_buffer *held = hold(512 * KIB);
    spw_ticket *waiting = start_in(group, _i);
    ck_assert_int_eq(spw_ticket_poll(waiting), SPW_EAGAIN);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    must_end_as(waiting, SPW_ECANCELED);
    must_destroy(waiting);
    must_destroy(served);
    must_release(held);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
}
END_TEST

START_TEST(a_group_outlives_the_tickets_that_were_destroyed_under_way)
{
    spw_group *group = NULL;
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_in(group, _i);
    must_destroy(ticket);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK); /* it waits for the end */
    must_release(held);
}
END_TEST

START_TEST(a_map_of_a_buffer_of_a_cancelled_group_is_cancelled)
{
    spw_group *group = NULL;
    spw_buffer *buffer = NULL;
    spw_alloc_options options;
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    spw_alloc_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, &options, &buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    push_out(SPW_HOST, MIB);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_map(buffer);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    must_destroy(ticket);
    must_release(held);
    must_release(buffer);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_task");
    TCase *both[2] = {tcase_create("ticket_task"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (int i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, a_task_that_waits_for_its_ticket_is_asked_through_it);
        tcase_add_test(tests, a_ticket_of_a_task_that_runs_is_left_alone);
        tcase_add_test(tests, of_many_tickets_of_a_loop_one_is_asked_at_a_time);
        tcase_add_test(tests, a_loop_waits_its_turn_by_a_ticket);
        tcase_add_test(tests, what_was_served_is_looked_at_before_another_is_asked);
        tcase_add_test(tests, who_waits_for_a_ticket_without_a_task_is_asked_itself);
        tcase_add_test(tests, a_task_cannot_be_destroyed_before_its_tickets_have_ended);
        tcase_add_test(tests, cancelling_the_task_ends_its_tickets);
        tcase_add_test(tests, what_a_ticket_brings_is_charged_to_its_task);
        tcase_add_loop_test(tests, tickets_are_charged_to_their_group_and_end_with_it, 0, MAP_FORM);
        tcase_add_loop_test(tests, a_group_outlives_the_tickets_that_were_destroyed_under_way, 0, MAP_FORM);
        tcase_add_test(tests, a_map_of_a_buffer_of_a_cancelled_group_is_cancelled);
        suite_add_tcase(suite, tests);
    }
    return run_suite(suite);
}
