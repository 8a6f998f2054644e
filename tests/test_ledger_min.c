/* Minima: what is set aside for a group is charged above it, exactly, and is nobody else's. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/ledger_fixture.h"

enum { THREADS = 4 };

/* root has left, right and the group below left; each node's own charges are known, so that at rest every
 * number of the tree is. */

static struct spw__group below;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool set_min(struct spw__group *group, uint64_t bytes)
{
    return spw__ledger_set_min(group, SPW_TIER_HOST, bytes);
}

static uint64_t min_of(const struct spw__group *group)
{
    return atomic_load(&group->min[SPW_TIER_HOST]);
}

/* What a parent is charged for group. */
static uint64_t counts_as(const struct spw__group *group)
{
    return larger(committed(group), min_of(group));
}

static bool charge(struct spw__group *group, uint64_t bytes)
{
    return spw__ledger_commit(group, SPW_TIER_HOST, bytes);
}

static void give_back(struct spw__group *group, uint64_t bytes)
{
    spw__ledger_uncommit(group, SPW_TIER_HOST, bytes);
}

START_TEST(a_minimum_is_charged_above_until_it_is_used)
{
    ck_assert(set_min(&left, 300));
    commit_each(300, 0, 0);
    ck_assert(charge(&left, 200));
    commit_each(300, 200, 0);
    ck_assert(charge(&left, 150));
    commit_each(350, 350, 0);
    give_back(&left, 100);
    commit_each(300, 250, 0);
    ck_assert(set_min(&left, 100));
    commit_each(250, 250, 0);
    give_back(&left, 250);
    commit_each(100, 0, 0);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(a_minimum_is_what_nobody_else_can_have)
{
    ck_assert(set_min(&left, 400));
    ck_assert(charge(&right, 600));
    ck_assert(!charge(&root, 1));
    ck_assert(charge(&left, 400));
    ck_assert(!charge(&left, 1));
    commit_each(1000, 400, 600);
    give_back(&right, 600);
    give_back(&left, 400);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(a_minimum_that_is_not_free_is_refused_and_changes_nothing)
{
    ck_assert(charge(&right, 500));
    ck_assert(charge(&left, 100));
    ck_assert(!set_min(&left, 501));
    commit_each(600, 100, 500);
    ck_assert_uint_eq(min_of(&left), 0);
    ck_assert_uint_eq(atomic_load(&root.child_mins[SPW_TIER_HOST]), 0);
    ck_assert(set_min(&left, 500));
    commit_each(1000, 100, 500);
    ck_assert_uint_eq(atomic_load(&root.child_mins[SPW_TIER_HOST]), 500);
    give_back(&left, 100);
    give_back(&right, 500);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(minima_nest)
{
    init_group(&below, &left, 600);
    ck_assert(set_min(&left, 300));
    ck_assert(set_min(&below, 200)); /* out of what left has */
    commit_each(300, 200, 0);
    ck_assert(charge(&below, 250));
    commit_each(300, 250, 0);
    ck_assert(charge(&left, 100));
    commit_each(350, 350, 0);
    give_back(&below, 250);
    commit_each(300, 300, 0);
    ck_assert(set_min(&below, 0));
    commit_each(300, 100, 0);
    give_back(&left, 100);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(a_refusal_above_a_minimum_leaves_it_as_it_was)
{
    ck_assert(set_min(&left, 100));
    ck_assert(charge(&right, 600));
    ck_assert(!charge(&left, 401));
    commit_each(700, 0, 600);
    ck_assert(!charge(&left, 601)); /* its own maximum */
    commit_each(700, 0, 600);
    ck_assert(charge(&left, 400));
    commit_each(1000, 400, 600);
    give_back(&right, 600);
    give_back(&left, 400);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(what_is_free_says_what_would_be_granted)
{
    ck_assert_uint_eq(spw__ledger_free_on_path(&left, SPW_TIER_HOST), 600);
    ck_assert(set_min(&left, 100));
    ck_assert(charge(&right, 600));
    ck_assert_uint_eq(spw__ledger_free_on_path(&left, SPW_TIER_HOST), 400);
    ck_assert_uint_eq(spw__ledger_free_on_path(&root, SPW_TIER_HOST), 300);
    ck_assert_uint_eq(spw__ledger_free_on_path(&right, SPW_TIER_HOST), 0);
    ck_assert_ptr_null(spw__ledger_short(&left, SPW_TIER_HOST, 400));
    ck_assert_ptr_eq(spw__ledger_short(&left, SPW_TIER_HOST, 401), &root);
    ck_assert_ptr_eq(spw__ledger_short(&right, SPW_TIER_HOST, 1), &right);
    ck_assert(charge(&left, 400));
    ck_assert_uint_eq(spw__ledger_free_on_path(&left, SPW_TIER_HOST), 0);
    atomic_store(&left.gates[SPW_TIER_HOST].budget, 300); /* below what it has */
    ck_assert_uint_eq(spw__ledger_free_on_path(&left, SPW_TIER_HOST), 0);
    ck_assert_ptr_eq(spw__ledger_short(&left, SPW_TIER_HOST, 1), &left);
    give_back(&left, 400);
    give_back(&right, 600);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(what_can_never_fit_counts_the_minima_of_others_and_what_is_set_aside)
{
    ck_assert(set_min(&left, 300));
    ck_assert(charge(&right, 500)); /* which says nothing about never */
    ck_assert_ptr_null(spw__ledger_never_fits(&right, SPW_TIER_HOST, 600, 0));
    ck_assert_ptr_eq(spw__ledger_never_fits(&right, SPW_TIER_HOST, 601, 0), &right);
    ck_assert_ptr_null(spw__ledger_never_fits(&right, SPW_TIER_HOST, 590, 110));
    ck_assert_ptr_eq(spw__ledger_never_fits(&right, SPW_TIER_HOST, 591, 110), &root);
    ck_assert_ptr_null(spw__ledger_never_fits(&root, SPW_TIER_HOST, 700, 0));
    ck_assert_ptr_eq(spw__ledger_never_fits(&root, SPW_TIER_HOST, 701, 0), &root);
    ck_assert_ptr_null(spw__ledger_never_fits(&left, SPW_TIER_HOST, 600, 400)); /* its own minimum is no one else's */
    give_back(&right, 500);
    ck_assert(set_min(&left, 0));
}
END_TEST

START_TEST(a_group_below_a_cancelled_one_is_cancelled)
{
    init_group(&below, &left, 600);
    ck_assert(!spw__ledger_cancelled(&below));
    atomic_store(&left.cancelled, true);
    ck_assert(spw__ledger_cancelled(&below));
    ck_assert(!spw__ledger_cancelled(&right));
    ck_assert(spw__group_is_below(&below, &root) && spw__group_is_below(&below, &left));
    ck_assert(spw__group_is_below(&below, &below) && !spw__group_is_below(&below, &right));
    ck_assert(!spw__group_is_below(&left, &below));
}
END_TEST

enum { RACERS = 5, HELD_MAX = 8, RACE_ROUNDS = 1000000 / RACERS };

/* A thread's random charges, and what it still holds in the end. */
struct racer {
    struct spw__group *group;
    uint64_t held[HELD_MAX];
    unsigned over; /* times that an invariant did not hold */
    unsigned seed;
};
static _Atomic bool race_over;

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245 + 12345;
    return *state >> 16;
}

static void *race_charges(void *arg)
{
    struct racer *racer = arg;
    unsigned state = racer->seed;
    for (unsigned i = 0; i < RACE_ROUNDS; i++) {
        uint64_t *held = &racer->held[next_random(&state) % HELD_MAX];
        if (*held) {
            give_back(racer->group, *held);
            *held = 0;
        } else {
            const uint64_t bytes = next_random(&state) % 200;
            *held = charge(racer->group, bytes) ? bytes : 0;
        }
        racer->over += committed(&root) > BUDGET || committed(&left) > 600 || committed(racer->group) < *held;
    }
    return NULL;
}

static void *race_minima(void *arg)
{
    struct racer *racer = arg;
    unsigned state = racer->seed;
    while (!atomic_load(&race_over)) {
        struct spw__group *group = next_random(&state) % 2 ? &left : &below;
        (void)set_min(group, next_random(&state) % 4 * 100);
        racer->over += committed(&root) > BUDGET;
    }
    return NULL;
}

static uint64_t held_by(const struct racer *racers, const struct spw__group *group)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < RACERS; i++)
        for (unsigned at = 0; racers[i].group == group && at < HELD_MAX; at++)
            sum += racers[i].held[at];
    return sum;
}

static void give_back_all(struct racer *racer)
{
    for (unsigned at = 0; at < HELD_MAX; at++)
        if (racer->held[at])
            give_back(racer->group, racer->held[at]);
}

START_TEST(charges_and_minima_that_race_leave_every_number_exact)
{
    struct racer racers[RACERS + 1] = {{.group = &left}, {.group = &right}, {.group = &below}, {.group = &below},
                                       {.group = &root}, {.group = NULL}};
    pthread_t threads[RACERS + 1];
    init_group(&below, &left, 600);
    atomic_store(&race_over, false);
    for (unsigned i = 0; i <= RACERS; i++) {
        racers[i].seed = i + 1;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, i < RACERS ? race_charges : race_minima, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    atomic_store(&race_over, true);
    ck_assert_int_eq(pthread_join(threads[RACERS], NULL), 0);
    for (unsigned i = 0; i <= RACERS; i++)
        ck_assert_uint_eq(racers[i].over, 0);
    ck_assert_uint_eq(committed(&below), held_by(racers, &below));
    ck_assert_uint_eq(committed(&right), held_by(racers, &right));
    ck_assert_uint_eq(committed(&left), held_by(racers, &left) + counts_as(&below));
    ck_assert_uint_eq(committed(&root), held_by(racers, &root) + counts_as(&left) + counts_as(&right));
    ck_assert_uint_le(atomic_load(&root.gates[SPW_TIER_HOST].peak), BUDGET);
    for (unsigned i = 0; i < RACERS; i++)
        give_back_all(&racers[i]);
    ck_assert(set_min(&below, 0));
    ck_assert(set_min(&left, 0));
}
END_TEST

static void *take_all_there_is(void *arg)
{
    struct racer *racer = arg;
    while (!atomic_load(&race_over)) {
        unsigned n = 0;
        for (; n < HELD_MAX && charge(racer->group, 100); n++)
            racer->over += committed(&root) > BUDGET;
        while (n-- > 0)
            give_back(racer->group, 100);
    }
    return NULL;
}

START_TEST(a_noisy_group_never_takes_the_minimum_of_another)
{
    struct racer noisy[THREADS];
    pthread_t threads[THREADS];
    unsigned state = 1;
    atomic_store(&race_over, false);
    atomic_store(&right.gates[SPW_TIER_HOST].budget, BUDGET);
    ck_assert(set_min(&left, 400));
    for (unsigned i = 0; i < THREADS; i++) {
        noisy[i] = (struct racer){.group = i % 2 ? &right : &root};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_all_there_is, &noisy[i]), 0);
    }
    for (unsigned i = 0; i < RACE_ROUNDS; i++) {
        const uint64_t bytes = next_random(&state) % 401;
        ck_assert(charge(&left, bytes));
        give_back(&left, bytes);
    }
    atomic_store(&race_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_uint_eq(noisy[i].over, 0);
    }
    commit_each(400, 0, 0);
    ck_assert(set_min(&left, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger_min");
    TCase *tcase = tcase_create("ledger_min");
    tcase_add_checked_fixture(tcase, open_groups, close_groups);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_minimum_is_charged_above_until_it_is_used);
    tcase_add_test(tcase, a_minimum_is_what_nobody_else_can_have);
    tcase_add_test(tcase, a_minimum_that_is_not_free_is_refused_and_changes_nothing);
    tcase_add_test(tcase, minima_nest);
    tcase_add_test(tcase, a_refusal_above_a_minimum_leaves_it_as_it_was);
    tcase_add_test(tcase, what_is_free_says_what_would_be_granted);
    tcase_add_test(tcase, what_can_never_fit_counts_the_minima_of_others_and_what_is_set_aside);
    tcase_add_test(tcase, a_group_below_a_cancelled_one_is_cancelled);
    tcase_add_test(tcase, charges_and_minima_that_race_leave_every_number_exact);
    tcase_add_test(tcase, a_noisy_group_never_takes_the_minimum_of_another);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
