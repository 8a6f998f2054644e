/* Tickets that do not come to what was asked for: cancelled, destroyed, too late, refused, in an error, at the end of
 * their manager. Those that do are in test_ticket.c. */
#include "ticket_fixture.h"

#include <sys/wait.h>

START_TEST(cancelling_under_way_ends_it_as_cancelled)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_form(_i, buffer);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    must_end_as(ticket, SPW_ECANCELED);
    nothing_is_to_be_taken(ticket);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    must_destroy(ticket);
    must_release(held);
    check_at(buffer, SPW_HOST, 7); /* as if there had been no ticket */
    must_release(buffer);
}
END_TEST

START_TEST(cancelling_after_the_end_changes_nothing)
{
    spw_ticket *ticket = start_alloc(MIB);
    ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_OK);
    must_release(must_take(ticket));
    must_destroy(ticket);
}
END_TEST

START_TEST(destroying_under_way_waits_for_nobody_and_leaves_nothing)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_form(_i, buffer);
    must_destroy(ticket);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EBADHANDLE);
    must_release(held);
    must_release(buffer);
    settle();
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_OK); /* whatever is still under way */
    manager = NULL;
}
END_TEST

static uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

START_TEST(the_deadline_counts_from_the_start_on_the_managers_clock)
{
    static struct spw__clock clock = {.now_ns = manual_now};
    const struct spw__env env = {.clock = &clock};
    close_manager();
    atomic_store(&clock.manual_ns, 5000000000);
    open_env(&env, SMALL_HOST "; threads=0");
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, 1000);
    atomic_store(&clock.manual_ns, 5999999999);
    ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    atomic_store(&clock.manual_ns, 6000000000);
    ck_assert_int_ge(spw_progress(manager, 0), 0);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_ENOMEM);
    must_destroy(ticket);
    must_release(held);
    close_manager();
}
END_TEST

START_TEST(a_deadline_passes_without_anybody_calling)
{
    const int fd = spw_manager_fd(manager);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    spw_buffer *held = hold(MIB);
    spw_ticket *late = start_alloc_within(512 * KIB, 30), *first = start_alloc_within(512 * KIB, 10);
    ck_assert_int_eq(poll(&entry, 1, -1), 1);
    ck_assert_int_eq(spw_ticket_poll(first), SPW_ENOMEM);
    must_end_as(late, SPW_ENOMEM);
    must_destroy(late);
    must_destroy(first);
    must_release(held);
}
END_TEST

START_TEST(a_cancel_token_ends_it)
{
    spw_cancel *cancel = NULL;
    spw_ticket *ticket = NULL;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    options.wait.cancel = cancel;
    spw_buffer *held = hold(MIB);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 512 * KIB, &options, &ticket), SPW_OK);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    spw_cancel_trigger(cancel);
    must_end_as(ticket, SPW_ECANCELED);
    must_destroy(ticket);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 512 * KIB, &options, &ticket), SPW_ECANCELED);
    ck_assert_ptr_null(ticket);
    spw_cancel_destroy(cancel);
    must_release(held);
}
END_TEST

START_TEST(a_wait_for_a_ticket_that_ends_leaves_it_under_way)
{
    spw_cancel *cancel = NULL;
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc(512 * KIB);
    spw_wait_options wait = {.timeout_ms = 0};
    ck_assert_int_eq(spw_ticket_wait(ticket, &wait), SPW_ETIMEDOUT);
    wait.timeout_ms = 5;
    ck_assert_int_eq(spw_ticket_wait(ticket, &wait), SPW_ETIMEDOUT);
    spw_cancel_trigger(cancel);
    wait.cancel = cancel;
    ck_assert_int_eq(spw_ticket_wait(ticket, &wait), SPW_ECANCELED);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_EAGAIN);
    must_release(held);
    must_end_as(ticket, SPW_OK);
    must_destroy(ticket);
    spw_cancel_destroy(cancel);
}
END_TEST

START_TEST(the_detail_of_an_error_comes_with_it)
{
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = start_alloc_within(512 * KIB, 0), *large = start_alloc(64 * MIB);
    ck_assert_int_eq(spw_ticket_poll(large), SPW_ETOOBIG);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, 64 * MIB);
    must_end_as(ticket, SPW_ENOMEM);
    ck_assert_int_eq(spw_ticket_poll(large), SPW_ETOOBIG);
    ck_assert_int_eq(spw_ticket_poll(ticket), SPW_ENOMEM);
    ck_assert_int_eq(spw_error_detail()->code, SPW_ENOMEM);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, 512 * KIB);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_HOST);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "524288 bytes in host"));
    must_destroy(ticket);
    must_destroy(large);
    must_release(held);
}
END_TEST

START_TEST(a_read_that_fails_is_the_tickets_error)
{
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw__fault_arm(SPW__FAULT_IO_READ, 1, 0, EIO);
    spw_ticket *ticket = start_map(buffer);
    must_end_as(ticket, SPW_EIO);
    ck_assert_int_eq(spw_error_detail()->os_errno, EIO);
    must_destroy(ticket);
    spw__fault_disarm(SPW__FAULT_IO_READ);
    check_at(buffer, SPW_HOST, 7);
    must_release(buffer);
}
END_TEST

START_TEST(wrong_arguments_are_told_at_once)
{
    spw_ticket *ticket = (spw_ticket *)(void *)&ticket;
    spw_alloc_options options;
    spw_map_options map_options;
    spw_reserve_options reserve_options;
    spw_alloc_options_init(&options);
    spw_map_options_init(&map_options);
    spw_reserve_options_init(&reserve_options);
    options.flags = SPW_NOWAIT;
    reserve_options.flags = SPW_RESERVE_TRY;
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 1, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 1, &options, &ticket), SPW_EINVAL);
    ck_assert_ptr_null(ticket);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_DEVICE, 1, NULL, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_admit_start(NULL, 1, NULL, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_reserve_start(manager, SPW_HOST, 1, &reserve_options, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc_start(manager, SPW_HOST, 1, 3, NULL, NULL, &ticket), SPW_EINVAL);
    ck_assert_int_eq(spw_map_start(NULL, SPW_HOST, SPW_MAP_READ, NULL, &ticket), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_ticket_poll(NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_ticket_destroy(NULL), SPW_OK);
    ck_assert_int_eq(spw_manager_fd(NULL), SPW_EINVAL);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
}
END_TEST

START_TEST(no_memory_for_a_ticket_or_its_buffer_is_ENOMETA_and_leaves_nothing)
{
    spw_ticket *ticket = NULL;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 512 * KIB, NULL, &ticket), SPW_ENOMETA);
    ck_assert_ptr_null(ticket);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    spw_buffer *held = hold(MIB);
    ticket = start_alloc(512 * KIB); /* of several pieces: none is spare */
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    must_release(held);
    must_end_as(ticket, SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    must_destroy(ticket);
    comes_to(SPW_TIER_HOST, STAGING);
}
END_TEST

START_TEST(a_manager_with_live_tickets_is_not_destroyed)
{
    spw_ticket *ticket = start_alloc(512 * KIB);
    must_release(must_take(ticket));
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1 ticket is live; destroy it first"));
    must_destroy(ticket);
}
END_TEST

static void *wait_for(void *arg)
{
    return (void *)(intptr_t)spw_ticket_wait(arg, NULL);
}

START_TEST(a_forced_destroy_ends_tickets_and_waits_for_them)
{
    void *rc = NULL;
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    push_out(SPW_HOST, MIB);
    spw_ticket *done = start_form(_i, buffer);
    must_end_as(done, SPW_OK);
    spw_buffer *held = hold(512 * KIB);
    spw_ticket *ticket = start_alloc(MIB);
    const pthread_t thread = must_start(wait_for, ticket);
    while (atomic_load(&manager->waits.n_waiting[16]) != 1)
        (void)sched_yield();
    spw_manager_destroy_force(manager);
    ck_assert_int_eq(pthread_join(thread, &rc), 0);
    ck_assert_int_eq((int)(intptr_t)rc, SPW_ESHUTDOWN);
    (void)held;
    manager = NULL;
}
END_TEST

START_TEST(a_forked_child_has_no_tickets)
{
    int status = 0;
    spw_ticket *ticket = start_alloc(512 * KIB);
    const pid_t child = fork();
    if (child == 0)
        _exit(spw_ticket_poll(ticket) == SPW_EFORK && spw_ticket_destroy(ticket) == SPW_EFORK &&
                      spw_manager_fd(manager) == SPW_EFORK
                  ? 0
                  : 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must_destroy(ticket);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_end");
    TCase *both[2] = {tcase_create("ticket"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (unsigned i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 60);
        tcase_add_loop_test(tests, cancelling_under_way_ends_it_as_cancelled, 0, FORMS);
        tcase_add_test(tests, cancelling_after_the_end_changes_nothing);
        tcase_add_loop_test(tests, destroying_under_way_waits_for_nobody_and_leaves_nothing, 0, FORMS);
        tcase_add_test(tests, a_cancel_token_ends_it);
        tcase_add_test(tests, a_wait_for_a_ticket_that_ends_leaves_it_under_way);
        tcase_add_test(tests, the_detail_of_an_error_comes_with_it);
        tcase_add_test(tests, a_read_that_fails_is_the_tickets_error);
        tcase_add_test(tests, no_memory_for_a_ticket_or_its_buffer_is_ENOMETA_and_leaves_nothing);
        tcase_add_loop_test(tests, a_forced_destroy_ends_tickets_and_waits_for_them, 0, FORMS);
        suite_add_tcase(suite, tests);
    }
    tcase_add_test(both[0], the_deadline_counts_from_the_start_on_the_managers_clock);
    tcase_add_test(both[0], a_deadline_passes_without_anybody_calling);
    tcase_add_test(both[0], wrong_arguments_are_told_at_once);
    tcase_add_test(both[0], a_manager_with_live_tickets_is_not_destroyed);
    tcase_add_test(both[0], a_forked_child_has_no_tickets);
    return run_suite(suite);
}
