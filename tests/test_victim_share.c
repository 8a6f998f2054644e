/* Choices among shares of a queue of victims: the most wanted branch, there clean before dirty and then the coldest, as
 * a plain look at every item would choose, and without looking at items of others. */
#include <check.h>
#include <stdlib.h>

#include "spill/victim.h"
#include "tests/seeded_fixture.h"

enum { OWNERS = 12, ITEMS = 96, MODEL_LISTS = SPW__VICTIM_LISTS };

struct owner {
    struct spw__victim_share share;
    int above; /* -1: the top */
    double wanted;
    uint64_t most;
};

static struct spw__victims queue;
static struct owner owners[OWNERS];
static struct spw__item items[ITEMS];
static int owner_of[ITEMS];
static bool held[ITEMS], refused[ITEMS];
static unsigned asked_wanted, asked_most, asked_held;

static int number_of(const struct spw__item *item)
{
    return item ? (int)(item - items) : -1;
}

static double wanted(void *owner, void *arg)
{
    (void)arg;
    asked_wanted++;
    return ((const struct owner *)owner)->wanted;
}

static uint64_t most_bytes(void *owner, void *arg)
{
    (void)arg;
    asked_most++;
    return ((const struct owner *)owner)->most;
}

static bool is_held(const struct spw__item *item)
{
    spw__mutex_assert_held(&queue.lock);
    asked_held++;
    return held[number_of(item)];
}

static bool claim(struct spw__item *item)
{
    spw__mutex_assert_held(&queue.lock);
    return !refused[number_of(item)];
}

static const struct spw__victim_rank rank = {.wanted = wanted, .most_bytes = most_bytes, .held = is_held};

/* The tree: 0 is the top, 1 to 3 are its branches, the others hang below those. */
static void setup(void)
{
    static const int above[OWNERS] = {-1, 0, 0, 0, 1, 1, 2, 2, 4, 4, 8, 0};
    spw__victims_init(&queue);
    for (int i = 0; i < OWNERS; i++) {
        owners[i] = (struct owner){.above = above[i], .wanted = 1, .most = UINT64_MAX};
        spw__victim_share_init(&owners[i].share, &queue, above[i] < 0 ? NULL : &owners[above[i]].share, &owners[i]);
    }
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct spw__item){.bytes = 4096};
        held[i] = refused[i] = false;
    }
    asked_wanted = asked_most = asked_held = 0;
}

static void teardown(void)
{
    spw__victims_finish(&queue);
}

static void add(int item, int owner, enum spw__item_state state)
{
    owner_of[item] = owner;
    spw__victims_add(&owners[owner].share, &items[item], state);
}

static int pop_below(int top, bool clean_only)
{
    return number_of(spw__victims_pop_best(&owners[top].share, clean_only, &rank, claim));
}

static int pop(void)
{
    return pop_below(0, false);
}

START_TEST(the_branch_that_is_wanted_most_gives_first)
{
    add(0, 1, SPW__ITEM_CLEAN);
    add(1, 5, SPW__ITEM_DIRTY);
    add(2, 2, SPW__ITEM_DIRTY);
    add(3, 6, SPW__ITEM_DIRTY);
    add(4, 0, SPW__ITEM_CLEAN);
    owners[2].wanted = 3;
    owners[1].wanted = 2;
    owners[6].wanted = 100; /* what is further below is asked for no wish of its own */
    ck_assert_double_eq(spw__victims_best(&owners[0].share, false, &rank), 3);
    ck_assert_double_eq(spw__victims_best(&owners[0].share, true, &rank), 2);
    ck_assert_int_eq(pop(), 2);
    ck_assert_int_eq(pop(), 3);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), 4); /* the top's own count like a branch */
    ck_assert_int_eq(pop(), -1);
    ck_assert_double_lt(spw__victims_best(&owners[0].share, false, &rank), 0);
}
END_TEST

START_TEST(where_all_are_wanted_alike_clean_items_go_first_and_then_the_coldest)
{
    static const int owner[] = {4, 1, 7, 10, 0, 3, 2, 10};
    for (int i = 0; i < 8; i++)
        add(i, owner[i], i % 3 == 2 ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY);
    spw__victims_add(&owners[1].share, &items[1], SPW__ITEM_DIRTY);     /* used again */
    spw__victims_put_back(&owners[2].share, &items[6], SPW__ITEM_DIRTY); /* popped in vain */
    static const int order[] = {2, 5, 6, 0, 3, 4, 7, 1, -1};
    for (unsigned i = 0; i < sizeof order / sizeof *order; i++)
        ck_assert_int_eq(pop(), order[i]);
}
END_TEST

START_TEST(only_what_is_below_the_one_that_lacks_room_is_taken)
{
    add(0, 2, SPW__ITEM_CLEAN);
    add(1, 8, SPW__ITEM_DIRTY);
    add(2, 1, SPW__ITEM_DIRTY);
    add(3, 0, SPW__ITEM_CLEAN);
    ck_assert_int_eq(pop_below(4, true), -1);
    ck_assert_int_eq(pop_below(4, false), 1);
    ck_assert_int_eq(pop_below(4, false), -1);
    ck_assert_int_eq(pop_below(1, false), 2);
    ck_assert_int_eq(pop_below(1, false), -1);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 3);
}
END_TEST

START_TEST(what_is_not_wanted_stays)
{
    add(0, 1, SPW__ITEM_CLEAN);
    add(1, 2, SPW__ITEM_CLEAN);
    owners[1].wanted = owners[0].wanted = -1;
    owners[2].most = 4095;
    ck_assert_int_eq(pop(), -1);
    ck_assert_int_eq(items[0].state, SPW__ITEM_CLEAN);
    ck_assert_int_eq(items[1].state, SPW__ITEM_CLEAN);
    owners[2].most = 4096; /* it is as large as what may go */
    ck_assert_int_eq(pop(), 1);
}
END_TEST

START_TEST(an_item_that_is_held_is_taken_out_and_passed_over)
{
    add(0, 1, SPW__ITEM_CLEAN);
    add(1, 2, SPW__ITEM_DIRTY);
    held[0] = true;
    owners[1].wanted = 2;
    ck_assert_double_eq(spw__victims_best(&owners[0].share, false, &rank), 1);
    ck_assert_int_eq(items[0].state, SPW__ITEM_OUT);
    held[0] = false; /* whoever lets it go adds it */
    add(0, 1, SPW__ITEM_CLEAN);
    refused[0] = true;
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(items[0].state, SPW__ITEM_OUT);
    ck_assert_int_eq(pop(), -1);
}
END_TEST

START_TEST(a_choice_visits_shares_in_play_and_no_items_of_others)
{
    for (int i = 0; i < 64; i++)
        add(i, 6, SPW__ITEM_DIRTY);
    add(64, 5, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop_below(1, false), 64);
    ck_assert_uint_eq(asked_wanted, 2); /* of the top, and its one branch in play */
    ck_assert_uint_eq(asked_most, 2);
    ck_assert_uint_eq(asked_held, 1);
    ck_assert_int_eq(pop_below(1, false), -1);
    ck_assert_uint_eq(asked_most, 3); /* nothing but the top itself is left there */
    asked_wanted = asked_most = asked_held = 0;
    owners[2].wanted = 0.5;
    add(64, 5, SPW__ITEM_DIRTY); /* its branch came into play last, and is visited first */
    ck_assert_int_eq(pop(), 64);
    ck_assert_uint_eq(asked_wanted, 3);
    ck_assert_uint_eq(asked_held, 1); /* the other is wanted less, and not looked into */
}
END_TEST

START_TEST(items_that_are_too_large_to_go_are_passed_over_once)
{
    struct spw__victim_own *own = &owners[1].share.lists[SPW__ITEM_DIRTY - SPW__ITEM_CLEAN];
    for (int i = 0; i < 8; i++)
        add(i, 1, SPW__ITEM_DIRTY);
    owners[1].most = 100;
    ck_assert_int_eq(pop(), -1);
    ck_assert_ptr_eq(own->passed, &items[7]); /* the next look begins behind it */
    ck_assert_uint_eq(own->least_bytes, 4096);
    items[8].bytes = 64;
    add(8, 1, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop(), 8);
    ck_assert_ptr_eq(own->passed, &items[7]);
    spw__victims_remove(&queue, &items[7]);
    add(7, 1, SPW__ITEM_DIRTY); /* used again: not passed over yet */
    ck_assert_ptr_eq(own->passed, &items[6]);
    items[9].bytes = 32;
    owner_of[9] = 1;
    spw__victims_put_back(&owners[1].share, &items[9], SPW__ITEM_DIRTY); /* before it */
    ck_assert_uint_eq(own->least_bytes, 32);
    ck_assert_int_eq(pop(), 9);
    items[0].bytes = 8192;
    owners[1].most = 4096;
    ck_assert_int_eq(pop(), 1); /* among those passed over; what was found out about the others is still so */
    ck_assert_ptr_eq(own->passed, &items[6]);
    owners[1].most = 8192;
    ck_assert_int_eq(pop(), 0);
    for (int i = 2; i < 8; i++)
        ck_assert_int_eq(pop(), i);
    ck_assert_int_eq(pop(), -1);
    ck_assert_ptr_null(own->passed);
}
END_TEST

START_TEST(items_that_failed_come_back_as_the_coldest_of_their_owner)
{
    add(0, 1, SPW__ITEM_FAILED);
    add(1, 2, SPW__ITEM_DIRTY);
    add(2, 2, SPW__ITEM_FAILED);
    add(3, 1, SPW__ITEM_DIRTY);
    ck_assert_int_eq(pop_below(1, false), 3);
    ck_assert_int_eq(pop_below(1, false), -1);
    spw__victims_forgive(&queue);
    ck_assert_int_eq(pop(), 0);
    ck_assert_int_eq(pop(), 2);
    ck_assert_int_eq(pop(), 1);
    ck_assert_int_eq(pop(), -1);
    for (int i = 0; i < OWNERS; i++)
        ck_assert_ptr_null(owners[i].share.below); /* nothing is in play */
}
END_TEST

/* The reference: lists of item numbers, coldest first. */
static int model[MODEL_LISTS][ITEMS], n_model[MODEL_LISTS];

static void model_remove(int item)
{
    for (int list = 0; list < MODEL_LISTS; list++)
        for (int i = 0; i < n_model[list]; i++)
            if (model[list][i] == item) {
                memmove(&model[list][i], &model[list][i + 1], (size_t)(n_model[list] - i - 1) * sizeof(int));
                n_model[list]--;
                return;
            }
}

static void model_insert(int item, int list, bool cold)
{
    model_remove(item);
    const int at = cold ? 0 : n_model[list];
    memmove(&model[list][at + 1], &model[list][at], (size_t)(n_model[list] - at) * sizeof(int));
    model[list][at] = item;
    n_model[list]++;
}

static double score_of(int item, int top)
{
    const struct owner *owner = &owners[owner_of[item]];
    int at = owner_of[item], branch = top;
    if (held[item] || items[item].bytes > owner->most)
        return -1;
    for (; at != top && at >= 0; at = owners[at].above)
        branch = at;
    return at == top ? owners[branch].wanted : -1;
}

/* Looks at every item. */
static int model_best(int top, bool clean_only, double *best)
{
    int found = -1;
    *best = -1;
    for (int list = 0; list < (clean_only ? 1 : 2); list++)
        for (int i = 0; i < n_model[list]; i++) {
            const double score = score_of(model[list][i], top);
            if (score < 0 || score <= *best)
                continue;
            *best = score;
            found = model[list][i];
        }
    return found;
}

/* Held items may have been taken out. */
static void settle_held(void)
{
    for (int i = 0; i < ITEMS; i++)
        if (held[i] && !spw__item_is_queued(&items[i]))
            model_remove(i);
}

static void check_pop(int top, bool clean_only)
{
    double best;
    int expected = model_best(top, clean_only, &best);
    MUST(spw__victims_best(&owners[top].share, clean_only, &rank) == best);
    while (expected >= 0 && refused[expected]) {
        model_remove(expected);
        expected = model_best(top, clean_only, &best);
    }
    MUST(pop_below(top, clean_only) == expected);
    if (expected >= 0)
        model_remove(expected);
    settle_held();
}

/* Every item lies in the list of its owner as in the reference. */
static void check_lists(void)
{
    for (int list = 0; list < MODEL_LISTS; list++)
        for (int owner = 0; owner < OWNERS; owner++) {
            const struct spw__item *at = owners[owner].share.lists[list].list.first;
            for (int i = 0; i < n_model[list]; i++) {
                if (owner_of[model[list][i]] != owner)
                    continue;
                MUST(at && number_of(at) == model[list][i]);
                at = at->links[SPW__ITEM_OF_SHARE].next;
            }
            MUST(!at);
        }
}

static void play_step(uint64_t *random)
{
    static const uint64_t sizes[] = {64, 128, 4096, 4096, 4096, 65536};
    const int item = (int)next_below(random, ITEMS), owner = (int)next_below(random, OWNERS);
    const bool queued = spw__item_is_queued(&items[item]);
    const int list = (int)next_below(random, MODEL_LISTS);
    const enum spw__item_state state = (enum spw__item_state)(SPW__ITEM_CLEAN + list);
    switch (next_below(random, 12)) {
    case 0: case 1: case 2: case 3: /* used, or made */
        if (!queued && !held[item]) {
            owner_of[item] = owner;
            items[item].bytes = sizes[next_below(random, 6)];
            refused[item] = next_below(random, 16) == 0;
        }
        held[item] = false;
        spw__victims_add(&owners[owner_of[item]].share, &items[item], state);
        model_insert(item, list, false);
        break;
    case 4:
        if (queued) {
            spw__victims_put_back(&owners[owner_of[item]].share, &items[item], state);
            model_insert(item, list, true);
        }
        break;
    case 5: case 6:
        spw__victims_remove(&queue, &items[item]);
        model_remove(item);
        break;
    case 7: held[item] |= queued; break;
    case 8: owners[owner].wanted = (double)next_below(random, 5) - 1; break;
    case 9: owners[owner].most = next_below(random, 2) ? UINT64_MAX : sizes[next_below(random, 6)] - 1; break;
    case 10: check_pop(next_below(random, 2) ? 0 : owner, next_below(random, 4) == 0); break;
    default:
        if (next_below(random, 8) == 0) {
            spw__victims_forgive(&queue);
            while (n_model[2])
                model_insert(model[2][n_model[2] - 1], 1, true);
        } else {
            check_lists();
        }
    }
}

START_TEST(a_choice_is_that_of_a_look_at_every_item)
{
    spec_now = "shares";
    for (seed_now = 1; seed_now <= 200; seed_now++) {
        uint64_t random = seed_now * UINT64_C(0x9e3779b97f4a7c15);
        setup();
        memset(n_model, 0, sizeof n_model);
        for (int i = 0; i < 1500; i++)
            play_step(&random);
        for (int i = 0; i < ITEMS; i++)
            held[i] = false;
        for (int i = 0; i < OWNERS; i++) {
            owners[i].most = UINT64_MAX;
            owners[i].wanted = 1;
        }
        spw__victims_forgive(&queue);
        while (pop() >= 0) {
        }
        for (int i = 0; i < OWNERS; i++)
            MUST(!owners[i].share.below);
        teardown();
    }
    setup();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("victim_share");
    TCase *tcase = tcase_create("victim_share");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_branch_that_is_wanted_most_gives_first);
    tcase_add_test(tcase, where_all_are_wanted_alike_clean_items_go_first_and_then_the_coldest);
    tcase_add_test(tcase, only_what_is_below_the_one_that_lacks_room_is_taken);
    tcase_add_test(tcase, what_is_not_wanted_stays);
    tcase_add_test(tcase, an_item_that_is_held_is_taken_out_and_passed_over);
    tcase_add_test(tcase, a_choice_visits_shares_in_play_and_no_items_of_others);
    tcase_add_test(tcase, items_that_are_too_large_to_go_are_passed_over_once);
    tcase_add_test(tcase, items_that_failed_come_back_as_the_coldest_of_their_owner);
    tcase_add_test(tcase, a_choice_is_that_of_a_look_at_every_item);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
