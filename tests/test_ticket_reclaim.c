/* Reclaimers for tickets: called while their owner waits, by a thread of their own, or by whoever makes progress. */
#include "reclaim_fixture.h"

#include <poll.h>

static void setup_threadless(void)
{
    make_folder();
    open_manager(SMALL_HOST "; threads=0");
}

static spw_ticket *start_alloc(size_t bytes, int64_t timeout_ms)
{
    spw_ticket *ticket = NULL;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = timeout_ms;
    const int rc = spw_alloc_start(manager, SPW_HOST, bytes, &options, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

static void must_end_as(spw_ticket *ticket, int rc)
{
    const int got = spw_ticket_wait(ticket, NULL);
    ck_assert_msg(got == rc, "%s: %s", spw_error_name(got), spw_error_detail()->message);
}

static void must_destroy(spw_ticket *ticket)
{
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
}

static bool is_threadless(void)
{
    return manager->waits.drive != NULL;
}

START_TEST(a_task_that_waits_for_its_ticket_has_its_own_state_reclaimed_for_it)
{
    struct table table = {.keeps = 0};
    build_table(&table, 16, "join", 0);
    spw_ticket *ticket = start_alloc(256 * KIB, SPW_TIMEOUT_DEFAULT);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    ck_assert_uint_eq(table.calls, 0); /* its owner runs */
    must_end_as(ticket, SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 256 * KIB);
    ck_assert_int_eq(pthread_equal(table.caller, pthread_self()) != 0, is_threadless());
    must_destroy(ticket);
    end_table(&table);
}
END_TEST

START_TEST(a_loop_that_sleeps_on_a_descriptor_has_its_state_reclaimed)
{
    struct table table = {.keeps = 0};
    build_table(&table, 16, "join", 0);
    struct pollfd entry = {.fd = spw_manager_fd(manager), .events = POLLIN};
    spw_ticket *ticket = start_alloc(256 * KIB, SPW_TIMEOUT_DEFAULT);
    while (spw_ticket_poll(ticket) == SPW_EAGAIN) {
        begin_outside(&table);
        ck_assert_int_eq(poll(&entry, 1, -1), 1);
        end_outside(&table);
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    }
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    must_destroy(ticket);
    end_table(&table);
}
END_TEST

START_TEST(the_thread_that_makes_progress_counts_as_waiting_meanwhile)
{
    struct table table = {.keeps = 0};
    build_table(&table, 16, "join", 0);
    spw_ticket *ticket = start_alloc(256 * KIB, SPW_TIMEOUT_DEFAULT);
    while (spw_ticket_poll(ticket) == SPW_EAGAIN)
        ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert(task_runs(table.task));
    must_destroy(ticket);
    end_table(&table);
}
END_TEST

static void *read_back(void *arg)
{
    spw_ticket *map = NULL;
    ck_assert_int_eq(spw_map_start(arg, SPW_HOST, SPW_MAP_READ, NULL, &map), SPW_OK);
    must_end_as(map, SPW_OK);
    must_destroy(map);
    return NULL;
}

START_TEST(a_callback_that_takes_long_holds_up_no_move)
{
    struct table table = {.inside = stay_inside};
    begin_stays();
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 7);
    push_out(SPW_HOST, MIB);
    build_table(&table, 8, "join", 0);
    spw_ticket *ticket = start_alloc(640 * KIB, SPW_TIMEOUT_DEFAULT);
    begin_outside(&table);
    (void)pthread_barrier_wait(&entered);
    join_thread(must_start(read_back, buffer)); /* from disk, while the callback runs */
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    (void)pthread_barrier_wait(&leaving);
    end_outside(&table);
    table.inside = NULL;
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    must_release(buffer);
    end_table(&table);
    end_stays();
}
END_TEST

START_TEST(what_frees_less_than_it_says_is_spent_and_the_ladder_begins)
{
    struct table table = {.keeps = 512 * KIB};
    build_table(&table, 2, "join", 0);
    spw_block rest;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 896 * KIB, 0, NULL, NULL, &rest), SPW_OK);
    spw_ticket *ticket = start_alloc(512 * KIB, SPW_TIMEOUT_DEFAULT);
    must_end_as(ticket, SPW_ERETRY);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.n_blocks, 0);
    must_destroy(ticket);
    ck_assert_int_eq(spw_pool_free(manager, &rest, NULL), SPW_OK);
    end_table(&table);
}
END_TEST

START_TEST(a_ticket_that_tries_once_calls_nobody)
{
    struct table table = {.keeps = 0};
    build_table(&table, 16, "join", 0);
    spw_ticket *ticket = start_alloc(256 * KIB, 0);
    must_end_as(ticket, SPW_ENOMEM);
    ck_assert_uint_eq(table.calls, 0);
    must_destroy(ticket);
    end_table(&table);
}
END_TEST

START_TEST(without_a_thread_for_tickets_nothing_is_registered)
{
    struct table table = {.task = must_create_task("join", 0)};
    spw_reclaimer_options options = options_for(&table, "join", 0);
    options.reserve_bytes = 64 * KIB;
    spw__fault_arm(SPW__FAULT_THREAD, 1, 1, EAGAIN);
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &table.reclaimer), SPW_ENOMEM);
    spw__fault_disarm(SPW__FAULT_THREAD);
    ck_assert_ptr_null(table.reclaimer);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 0);
    must_register(&table, &options);
    drop_table(&table);
    ck_assert_int_eq(spw_task_destroy(table.task), SPW_OK);
}
END_TEST

START_TEST(a_forced_destroy_ends_what_is_served)
{
    struct table table = {.keeps = 0};
    build_table(&table, 16, "join", 0);
    (void)start_alloc(256 * KIB, SPW_TIMEOUT_INFINITE);
    begin_outside(&table);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_reclaim");
    TCase *both[2] = {tcase_create("ticket_reclaim"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_test(tests, a_task_that_waits_for_its_ticket_has_its_own_state_reclaimed_for_it);
        tcase_add_test(tests, what_frees_less_than_it_says_is_spent_and_the_ladder_begins);
        tcase_add_test(tests, a_ticket_that_tries_once_calls_nobody);
        tcase_add_test(tests, a_loop_that_sleeps_on_a_descriptor_has_its_state_reclaimed);
        tcase_add_test(tests, a_forced_destroy_ends_what_is_served);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], a_callback_that_takes_long_holds_up_no_move);
    tcase_add_test(both[0], without_a_thread_for_tickets_nothing_is_registered);
    tcase_add_test(both[1], the_thread_that_makes_progress_counts_as_waiting_meanwhile);
    return run_suite(suite);
}
