/* Those who wait for their own groups: served in order when their group has something to give, and at no cost to what
 * happens in others. */
#include "tests/group_fixture.h"

#include <spillway/ticket.h>

enum { GROUPS = 6, OF_EACH = 30 };

static spw_group *groups[GROUPS];
static spw_reservation *promised[GROUPS];
static spw_ticket *tickets[GROUPS][OF_EACH];

static void setup_full_groups(void)
{
    spw_reserve_options options;
    make_folder();
    open_manager(SMALL_HOST);
    for (unsigned i = 0; i < GROUPS; i++) {
        groups[i] = must_group("full", NULL, 0, PIECE, 1);
        spw_reserve_options_init(&options);
        options.group = groups[i];
        ck_assert_int_eq(spw_reserve(manager, SPW_HOST, PIECE, &options, &promised[i]), SPW_OK);
    }
    for (unsigned at = 0; at < OF_EACH; at++)
        for (unsigned i = 0; i < GROUPS; i++) {
            spw_reserve_options_init(&options);
            options.group = groups[i];
            options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
            ck_assert_int_eq(spw_reserve_start(manager, SPW_HOST, PIECE, &options, &tickets[i][at]), SPW_OK);
        }
}

static void teardown_groups(void)
{
    for (unsigned i = 0; i < GROUPS; i++)
        must_destroy(groups[i]);
    close_manager();
    remove_folder();
}

static spw_reservation *must_get(spw_ticket *ticket)
{
    spw_reservation *reservation;
    ck_assert_int_eq(spw_ticket_wait(ticket, NULL), SPW_OK);
    ck_assert_int_eq(spw_ticket_take_reservation(ticket, &reservation), SPW_OK);
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
    return reservation;
}

static void cancel_from(unsigned group, unsigned first)
{
    for (unsigned at = first; at < OF_EACH; at++) {
        ck_assert_int_eq(spw_ticket_cancel(tickets[group][at]), SPW_OK);
        ck_assert_int_eq(spw_ticket_wait(tickets[group][at], NULL), SPW_ECANCELED);
        ck_assert_int_eq(spw_ticket_destroy(tickets[group][at]), SPW_OK);
    }
}

static uint64_t attempts_so_far(void)
{
    spw__mutex_lock(&manager->waits.lock);
    const uint64_t attempts = manager->waits.attempts;
    spw__mutex_unlock(&manager->waits.lock);
    return attempts;
}

START_TEST(a_release_serves_the_oldest_of_its_group_whoever_waits_before)
{
    setup_full_groups();
    for (unsigned at = 0; at < OF_EACH; at++)
        for (unsigned i = GROUPS; i-- > 0;) { /* those who came last first */
            ck_assert_int_eq(spw_reservation_release(promised[i]), SPW_OK);
            promised[i] = must_get(tickets[i][at]);
            ck_assert_uint_eq(held(groups[i]), PIECE);
        }
    for (unsigned i = 0; i < GROUPS; i++)
        ck_assert_int_eq(spw_reservation_release(promised[i]), SPW_OK);
    teardown_groups();
}
END_TEST

START_TEST(a_release_attempts_no_more_than_a_few_of_each_group)
{
    setup_full_groups();
    spw_group *group = must_group("other", NULL, 0, PIECE, 1);
    spw_reserve_options options;
    spw_reservation *reservation;
    spw_reserve_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, PIECE, &options, &reservation), SPW_OK);
    const uint64_t before = attempts_so_far();
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    ck_assert_uint_eq(attempts_so_far() - before, GROUPS); /* the oldest of each, and none of those behind */
    must_destroy(group);
    for (unsigned i = 0; i < GROUPS; i++)
        cancel_from(i, 0);
    for (unsigned i = 0; i < GROUPS; i++)
        ck_assert_int_eq(spw_reservation_release(promised[i]), SPW_OK);
    teardown_groups();
}
END_TEST

START_TEST(a_higher_maximum_serves_as_many_as_it_lets_in)
{
    setup_full_groups();
    const spw_group_share raised = {.max_bytes = 3 * PIECE, .weight = 1};
    spw_reservation *more[2];
    ck_assert_int_eq(spw_group_set(groups[GROUPS - 1], SPW_HOST, &raised), SPW_OK);
    more[0] = must_get(tickets[GROUPS - 1][0]);
    more[1] = must_get(tickets[GROUPS - 1][1]);
    ck_assert_int_eq(spw_ticket_poll(tickets[GROUPS - 1][2]), SPW_EAGAIN);
    for (unsigned i = 0; i < GROUPS; i++)
        cancel_from(i, i == GROUPS - 1 ? 2 : 0);
    for (unsigned i = 0; i < GROUPS; i++)
        ck_assert_int_eq(spw_reservation_release(promised[i]), SPW_OK);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(spw_reservation_release(more[i]), SPW_OK);
    teardown_groups();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_wait");
    TCase *tcase = tcase_create("group_wait");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_release_serves_the_oldest_of_its_group_whoever_waits_before);
    tcase_add_test(tcase, a_release_attempts_no_more_than_a_few_of_each_group);
    tcase_add_test(tcase, a_higher_maximum_serves_as_many_as_it_lets_in);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
