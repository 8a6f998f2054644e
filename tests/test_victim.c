/* The queues of victims: clean before dirty, coldest first, and nobody handed out twice. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "spill/victim.h"

enum { ITEMS = 8 };

static struct spw__victims victims;
static struct spw__victim_share share;
static struct spw__item items[ITEMS];
static bool refused[ITEMS];
static unsigned claims[ITEMS];

static void setup(void)
{
    spw__victims_init(&victims);
    spw__victim_share_init(&share, &victims, NULL, NULL);
}

static void teardown(void)
{
    spw__victims_finish(&victims);
}

static int number_of(const struct spw__item *item)
{
    return item ? (int)(item - items) : -1;
}

/* Runs under the queue's lock, as a claim that takes a reference does. */
static bool claim(struct spw__item *item)
{
    spw__mutex_assert_held(&victims.lock);
    ck_assert_ptr_null(item->links[SPW__ITEM_OF_QUEUE].prev);
    ck_assert_ptr_null(item->links[SPW__ITEM_OF_QUEUE].next);
    ck_assert_int_ne(item->state, SPW__ITEM_OUT); /* until the queue has done with it */
    claims[number_of(item)]++;
    return !refused[number_of(item)];
}

static void add(int number, enum spw__item_state state)
{
    spw__victims_add(&share, &items[number], state);
    ck_assert_int_eq(items[number].state, state);
}

static int pop(void)
{
    struct spw__item *item = spw__victims_pop(&victims, false, claim);
    if (item) {
        ck_assert_int_eq(item->state, SPW__ITEM_OUT);
        ck_assert_ptr_null(item->links[SPW__ITEM_OF_QUEUE].prev);
        ck_assert_ptr_null(item->links[SPW__ITEM_OF_QUEUE].next);
    }
    return number_of(item);
}

static int pop_clean(void)
{
    return number_of(spw__victims_pop(&victims, true, claim));
}

START_TEST(an_empty_queue_gives_nothing)
{
    ck_assert_int_eq(pop(), -1);
    ck_assert_int_eq(pop_clean(), -1);
    spw__victims_remove(&victims, &items[0]); /* not in: nothing happens */
    ck_assert_int_eq(items[0].state, SPW__ITEM_OUT);
    spw__victims_forgive(&victims);
}
END_TEST

START_TEST(the_least_recently_used_goes_first)
{
    for (int i = 0; i < 4; i++)
        add(i, SPW__ITEM_DIRTY);
    spw__victims_remove(&victims, &items[1]); /* used again: out, and back at the warm end */
    add(1, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 2);
    ck_assert_int_eq(pop(), 3);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(clean_items_go_before_dirty_ones_that_are_colder)
{
    add(0, SPW__ITEM_DIRTY);
    add(1, SPW__ITEM_CLEAN);
    add(2, SPW__ITEM_DIRTY);
    add(3, SPW__ITEM_CLEAN);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), 3);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 2);
}
END_TEST

START_TEST(clean_only_leaves_the_dirty_ones)
{
    add(0, SPW__ITEM_DIRTY);
    add(1, SPW__ITEM_CLEAN);
    ck_assert_int_eq(pop_clean(), 1);
    ck_assert_int_eq(pop_clean(), -1);
    ck_assert_uint_eq(claims[0], 0);
    ck_assert_int_eq(pop(), 0);
}
END_TEST

START_TEST(an_item_added_again_changes_its_list)
{
    add(0, SPW__ITEM_DIRTY);
    add(1, SPW__ITEM_CLEAN);
    add(0, SPW__ITEM_CLEAN); /* it has a copy on disk now */
    add(1, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop_clean(), 0);
    ck_assert_int_eq(pop_clean(), -1);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(any_place_of_the_queue_can_be_left)
{
    static const int gone[][2] = {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {3, 0}, {1, 3}};
    for (unsigned round = 0; round < sizeof gone / sizeof *gone; round++) {
        int last = -1;
        for (int i = 0; i < 4; i++)
            add(i, SPW__ITEM_CLEAN);
        for (unsigned i = 0; i < 2; i++) {
            spw__victims_remove(&victims, &items[gone[round][i]]);
            ck_assert_int_eq(items[gone[round][i]].state, SPW__ITEM_OUT);
        }
        for (unsigned i = 0; i < 2; i++) {
            const int popped = pop();
            ck_assert_int_ne(popped, gone[round][0]);
            ck_assert_int_ne(popped, gone[round][1]);
            ck_assert_int_gt(popped, last);
            last = popped;
        }
        ck_assert_int_eq(pop(), -1);
    }
}
END_TEST

START_TEST(an_item_whose_claim_is_refused_is_taken_out_and_passed_over)
{
    for (int i = 0; i < 4; i++)
        add(i, i < 2 ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY);
    refused[0] = refused[1] = refused[3] = true;
    ck_assert_int_eq(pop(), 2);
    ck_assert_int_eq(items[0].state, SPW__ITEM_OUT);
    ck_assert_int_eq(items[1].state, SPW__ITEM_OUT);
    ck_assert_int_eq(items[3].state, SPW__ITEM_DIRTY); /* never asked */
    ck_assert_int_eq(pop(), -1);
    ck_assert_int_eq(items[3].state, SPW__ITEM_OUT);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(claims[i], 1);
    refused[3] = false;
    ck_assert_int_eq(pop(), -1); /* and does not come back by itself */
    add(3, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 3);
}
END_TEST

START_TEST(a_failed_item_is_left_out_until_the_round_is_over)
{
    add(0, SPW__ITEM_FAILED);
    add(1, SPW__ITEM_FAILED);
    ck_assert_int_eq(pop(), -1);
    ck_assert_uint_eq(claims[0], 0);
    add(2, SPW__ITEM_DIRTY);
    spw__victims_forgive(&victims);
    ck_assert_int_eq(items[0].state, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 0); /* as cold as before, and in their order */
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), 2);
    spw__victims_forgive(&victims);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(an_item_popped_in_vain_goes_back_to_the_cold_end)
{
    for (int i = 0; i < 3; i++)
        add(i, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 0);
    spw__victims_put_back(&share, &items[0], SPW__ITEM_DIRTY);
    ck_assert_int_eq(items[0].state, SPW__ITEM_DIRTY);
    spw__victims_put_back(&share, &items[2], SPW__ITEM_DIRTY); /* one that is in changes its place */
    ck_assert_int_eq(pop(), 2);
    ck_assert_int_eq(pop(), 0);
    spw__victims_put_back(&share, &items[0], SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 1);
    spw__victims_put_back(&share, &items[1], SPW__ITEM_DIRTY); /* into an empty queue */
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(a_clean_item_popped_in_vain_stays_clean)
{
    add(0, SPW__ITEM_CLEAN);
    add(1, SPW__ITEM_CLEAN);
    add(2, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 0);
    spw__victims_put_back(&share, &items[0], SPW__ITEM_CLEAN);
    ck_assert_int_eq(items[0].state, SPW__ITEM_CLEAN);
    ck_assert_int_eq(pop_clean(), 0);
    ck_assert_int_eq(pop_clean(), 1);
    ck_assert_int_eq(pop_clean(), -1);
    ck_assert_int_eq(pop(), 2);
}
END_TEST

START_TEST(a_failed_item_can_be_removed_and_stays_away)
{
    add(0, SPW__ITEM_FAILED);
    add(1, SPW__ITEM_FAILED);
    spw__victims_remove(&victims, &items[0]);
    spw__victims_forgive(&victims);
    ck_assert_int_eq(items[0].state, SPW__ITEM_OUT);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

enum { THREADS = 4, ROUNDS = 5000, SHARED = 64 };

static struct spw__item shared[SHARED];
static _Atomic unsigned owners[SHARED]; /* threads that hold it: never more than one */

static bool claim_shared(struct spw__item *item)
{
    return atomic_fetch_add(&owners[item - shared], 1) == 0;
}

static void *pop_and_add(void *arg)
{
    unsigned state = (unsigned)(uintptr_t)arg + 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        state = state * 1103515245 + 12345;
        const unsigned random = state >> 16;
        struct spw__item *item = spw__victims_pop(&victims, random % 4 == 0, claim_shared);
        if (item) {
            ck_assert_uint_eq(atomic_fetch_sub(&owners[item - shared], 1), 1);
            spw__victims_add(&share, item, random % 3 == 0 ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY);
        }
        if (random % 16 == 0)
            spw__victims_forgive(&victims);
    }
    return NULL;
}

START_TEST(threads_never_get_the_same_item)
{
    pthread_t threads[THREADS];
    unsigned n = 0;
    for (unsigned i = 0; i < SHARED; i++)
        spw__victims_add(&share, &shared[i], (enum spw__item_state)(SPW__ITEM_CLEAN + i % 3));
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pop_and_add, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    spw__victims_forgive(&victims);
    while (spw__victims_pop(&victims, false, claim_shared))
        n++;
    ck_assert_uint_eq(n, SHARED); /* and none is lost */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("victim");
    TCase *tcase = tcase_create("victim");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_empty_queue_gives_nothing);
    tcase_add_test(tcase, the_least_recently_used_goes_first);
    tcase_add_test(tcase, clean_items_go_before_dirty_ones_that_are_colder);
    tcase_add_test(tcase, clean_only_leaves_the_dirty_ones);
    tcase_add_test(tcase, an_item_added_again_changes_its_list);
    tcase_add_test(tcase, any_place_of_the_queue_can_be_left);
    tcase_add_test(tcase, an_item_whose_claim_is_refused_is_taken_out_and_passed_over);
    tcase_add_test(tcase, a_failed_item_is_left_out_until_the_round_is_over);
    tcase_add_test(tcase, an_item_popped_in_vain_goes_back_to_the_cold_end);
    tcase_add_test(tcase, a_clean_item_popped_in_vain_stays_clean);
    tcase_add_test(tcase, a_failed_item_can_be_removed_and_stays_away);
    tcase_add_test(tcase, threads_never_get_the_same_item);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
