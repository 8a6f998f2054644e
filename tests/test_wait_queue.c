/* The tree of waiters, at random against a naive model: an array that is searched from end to end. */
#include <check.h>
#include <stdlib.h>

#include "pool/base/wait_queue.h"

enum { NODES = 200, RUNS = 8, STEPS = 4000 };

static struct spw__wait_queue queue;
static struct spw__wait_node nodes[NODES];
static bool is_in[NODES];
static uint64_t seed, sequence;

static uint64_t pick(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static void setup(void)
{
    queue = (struct spw__wait_queue){.root = NULL};
    for (unsigned i = 0; i < NODES; i++)
        is_in[i] = false;
    sequence = 0;
}

static struct spw__wait_node some_node(void)
{
    return (struct spw__wait_node){.order = {.key = pick(3), .band = pick(5), .net_bytes = (int64_t)pick(7) - 3,
                                             .sequence = ++sequence},
                                   .need = pick(4) == 0 ? 0 : pick(2) ? pick(50) : UINT64_MAX - pick(3),
                                   .marked = pick(5) == 0};
}

static struct spw__wait_filter some_filter(void)
{
    return (struct spw__wait_filter){.bound = pick(3) == 0 ? SPW__WAIT_UNBOUNDED : pick(2) * pick(50),
                                     .marked_only = pick(4) == 0};
}

static struct spw__wait_node *naive_next(const struct spw__wait_order *after, const struct spw__wait_filter *filter)
{
    struct spw__wait_node *best = NULL;
    for (unsigned i = 0; i < NODES; i++) {
        struct spw__wait_node *node = &nodes[i];
        if (!is_in[i] || (after && !spw__wait_before(after, &node->order)) ||
            (filter && (node->need > filter->bound || (filter->marked_only && !node->marked))))
            continue;
        if (!best || spw__wait_before(&node->order, &best->order))
            best = node;
    }
    return best;
}

static size_t count(void)
{
    size_t n = 0;
    for (unsigned i = 0; i < NODES; i++)
        n += is_in[i];
    return n;
}

static void insert_or_remove(unsigned i)
{
    if (is_in[i]) {
        spw__wait_queue_remove(&queue, &nodes[i]);
    } else {
        nodes[i] = some_node();
        spw__wait_queue_insert(&queue, &nodes[i]);
    }
    is_in[i] = !is_in[i];
}

START_TEST(it_finds_what_a_naive_search_finds)
{
    seed = 77 + (uint64_t)_i;
    for (unsigned step = 0; step < STEPS; step++) {
        insert_or_remove((unsigned)pick(step % 1000 < 500 ? NODES : 20)); /* sometimes full, sometimes nearly empty */
        ck_assert_uint_eq(spw__x_wait_queue_check(&queue), count());
        ck_assert_ptr_eq(queue.first, naive_next(NULL, NULL));
        const struct spw__wait_filter filter = some_filter();
        const struct spw__wait_order after = some_node().order;
        ck_assert_ptr_eq(spw__wait_queue_next(&queue, NULL, &filter), naive_next(NULL, &filter));
        ck_assert_ptr_eq(spw__wait_queue_next(&queue, &after, &filter), naive_next(&after, &filter));
        ck_assert_ptr_eq(spw__wait_queue_next(&queue, &after, NULL), naive_next(&after, NULL));
    }
}
END_TEST

START_TEST(a_walk_sees_every_node_once_in_order)
{
    unsigned seen = 0;
    seed = 5;
    for (unsigned i = 0; i < NODES; i++)
        insert_or_remove(i);
    for (const struct spw__wait_node *node = spw__wait_queue_next(&queue, NULL, NULL), *next; node; node = next) {
        next = spw__wait_queue_next(&queue, &node->order, NULL);
        ck_assert(!next || spw__wait_before(&node->order, &next->order));
        seen++;
    }
    ck_assert_uint_eq(seen, NODES);
    ck_assert_ptr_null(spw__wait_queue_next(&queue, &(struct spw__wait_order){.key = 3}, NULL));
}
END_TEST

START_TEST(the_check_finds_damage)
{
    seed = 9;
    for (unsigned i = 0; i < NODES; i++)
        insert_or_remove(i);
    struct spw__wait_node *const root = queue.root, *const below = queue.root->left;
    const struct spw__wait_node sound = *below;
    below->least--;
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), SIZE_MAX);
    *below = sound;
    below->least_marked--;
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), SIZE_MAX);
    *below = sound;
    below->priority = root->priority + 1;
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), SIZE_MAX);
    *below = sound;
    below->order.band = 99;
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), SIZE_MAX);
    *below = sound;
    queue.first = root;
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), SIZE_MAX);
}
END_TEST

static unsigned depth(const struct spw__wait_node *node)
{
    if (!node)
        return 0;
    const unsigned left = depth(node->left), right = depth(node->right);
    return 1 + (left > right ? left : right);
}

START_TEST(it_stays_shallow_whatever_the_order_of_arrival)
{
    enum { MANY = 1 << 14 };
    struct spw__wait_node *many = calloc(MANY, sizeof *many);
    ck_assert_ptr_nonnull(many);
    for (unsigned i = 0; i < MANY; i++) {
        many[i].order = (struct spw__wait_order){.band = _i ? i : MANY - i, .sequence = i};
        spw__wait_queue_insert(&queue, &many[i]);
    }
    ck_assert_uint_lt(depth(queue.root), 4 * 14); /* the sequence decides it, so that this is no matter of luck */
    ck_assert_uint_eq(spw__x_wait_queue_check(&queue), MANY);
    for (unsigned i = 0; i < MANY; i++)
        spw__wait_queue_remove(&queue, &many[i]);
    ck_assert_ptr_null(queue.root);
    ck_assert_ptr_null(queue.first);
    free(many);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_queue");
    TCase *tcase = tcase_create("tree");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, it_finds_what_a_naive_search_finds, 0, RUNS);
    tcase_add_test(tcase, a_walk_sees_every_node_once_in_order);
    tcase_add_test(tcase, the_check_finds_damage);
    tcase_add_loop_test(tcase, it_stays_shallow_whatever_the_order_of_arrival, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
