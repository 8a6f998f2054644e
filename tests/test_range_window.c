/* Windows of a range: the cheapest to empty, claimed while it is emptied. Neighbours: test_range.c,
 * test_range_model.c. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/range.h"

#define GRAIN 64u
#define BLOCKS 8u

/* 1 KiB each, in address order, and 8 KiB behind them. */
struct rig {
    struct spw__range *range;
    uint32_t nodes[BLOCKS];
    uint32_t stuck; /* the node that must not move */
    unsigned asked;
};

static void set_up(struct rig *rig)
{
    uint64_t offset;
    *rig = (struct rig){.stuck = SPW__RANGE_NONE};
    ck_assert_int_eq(spw__range_create(16 * 1024, GRAIN, false, NULL, &rig->range), SPW_OK);
    for (unsigned i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(spw__range_alloc(rig->range, 1024, 0, &rig->nodes[i], &offset), SPW_OK);
}

static void give(struct rig *rig, unsigned block)
{
    ck_assert_int_eq(spw__range_free(rig->range, rig->nodes[block]), SPW_OK);
    ck_assert(spw__range_check(rig->range));
}

static bool movable(void *arg, uint32_t node, uint64_t bytes)
{
    struct rig *rig = arg;
    ck_assert_uint_eq(bytes, spw__range_bytes(rig->range, node));
    rig->asked++;
    return node != rig->stuck;
}

static uint64_t window(struct rig *rig, uint64_t bytes, uint64_t align)
{
    uint64_t offset = UINT64_MAX;
    ck_assert_int_eq(spw__range_window(rig->range, bytes, align, movable, rig, &offset), SPW_OK);
    return offset;
}

START_TEST(the_window_with_the_fewest_live_bytes_is_found)
{
    struct rig rig;
    set_up(&rig);
    ck_assert_uint_eq(window(&rig, 4096, 0), 8192); /* nothing to move */
    ck_assert_uint_eq(window(&rig, 8192 + 512, 0), 7 * 1024);
    give(&rig, 1);
    give(&rig, 2);
    give(&rig, 4);
    ck_assert_uint_eq(window(&rig, 3072, 0), 8192);
    ck_assert_uint_eq(window(&rig, 9216, 0), 7 * 1024);
    ck_assert_uint_eq(window(&rig, 13 * 1024, 0), 1024); /* blocks 3, 5, 6 and 7 */
    rig.stuck = rig.nodes[7];
    ck_assert_uint_eq(window(&rig, 4096, 4096), 8192);
    ck_assert_uint_eq(window(&rig, 6144, 0), 8192);
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(a_window_holds_nothing_that_must_stay)
{
    struct rig rig;
    uint64_t offset;
    uint32_t rest;
    set_up(&rig);
    ck_assert_int_eq(spw__range_alloc(rig.range, 8192, 0, &rest, &offset), SPW_OK);
    give(&rig, 2);
    give(&rig, 4);
    rig.stuck = rig.nodes[3];
    ck_assert_uint_eq(window(&rig, 2048, 0), 1024); /* not [2048, 5120), though only one block lies between the holes */
    ck_assert_uint_eq(rig.asked, 7); /* each live allocation once: 0, 1, 3, 5, 6, 7 and the rest */
    ck_assert_int_eq(spw__range_window(rig.range, 16 * 1024, 0, movable, &rig, &offset), SPW_EFRAG);
    ck_assert_int_eq(spw__range_window(rig.range, 16 * 1024 + 1, 0, movable, &rig, &offset), SPW_EFRAG);
    ck_assert_int_eq(spw__range_window(rig.range, 64, 96, movable, &rig, &offset), SPW_EINVAL);
    ck_assert_int_eq(spw__range_window(rig.range, 0, 0, movable, &rig, &offset), SPW_EINVAL);
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(nobody_else_allocates_in_a_claimed_window)
{
    struct rig rig;
    uint64_t offset;
    uint32_t node;
    set_up(&rig);
    give(&rig, 1);
    ck_assert_int_eq(spw__range_claim(rig.range, 1024, 3072), SPW_OK);
    ck_assert(!spw__range_claim_ready(rig.range));
    ck_assert_uint_eq(spw__range_total_free(rig.range), 8192);
    give(&rig, 2);
    give(&rig, 3);
    give(&rig, 6); /* outside: an ordinary hole */
    ck_assert_uint_eq(spw__range_total_free(rig.range), 8192 + 1024);
    ck_assert_int_eq(spw__range_alloc(rig.range, 1024, 0, &node, &offset), SPW_OK);
    ck_assert_uint_eq(offset, 6 * 1024);
    ck_assert_int_eq(spw__range_alloc(rig.range, 1024, 0, &node, &offset), SPW_OK);
    ck_assert_uint_ge(offset, 8192);
    ck_assert(spw__range_claim_ready(rig.range));
    ck_assert_int_eq(spw__range_window(rig.range, 16 * 1024, 0, movable, &rig, &offset), SPW_EFRAG);
    ck_assert_int_eq(spw__range_claim_take(rig.range, &node), SPW_OK);
    ck_assert(spw__range_check(rig.range));
    ck_assert_uint_eq(spw__range_offset(rig.range, node), 1024);
    ck_assert_uint_eq(spw__range_bytes(rig.range, node), 3072);
    ck_assert_int_eq(spw__range_free(rig.range, node), SPW_OK);
    ck_assert(spw__range_check(rig.range));
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(what_border_blocks_had_outside_is_free_after_the_claim)
{
    struct rig rig;
    uint32_t node;
    set_up(&rig);
    ck_assert_int_eq(spw__range_claim(rig.range, 1536, 1024), SPW_OK); /* the ends of 1 and 2 stand out */
    give(&rig, 1);
    ck_assert_int_eq(spw__range_claim_take(rig.range, &node), SPW_EBUSY);
    give(&rig, 2);
    ck_assert_uint_eq(spw__range_total_free(rig.range), 8192); /* held back until the end */
    ck_assert_int_eq(spw__range_claim_take(rig.range, &node), SPW_OK);
    ck_assert(spw__range_check(rig.range));
    ck_assert_uint_eq(spw__range_total_free(rig.range), 8192 + 1024);
    ck_assert_uint_eq(spw__range_offset(rig.range, node), 1536);
    ck_assert_uint_eq(spw__range_bytes(rig.range, node), 1024);
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(a_dropped_claim_leaves_one_hole_or_its_parts)
{
    struct rig rig;
    uint32_t node;
    set_up(&rig);
    spw__range_claim_drop(rig.range); /* none */
    give(&rig, 3);
    ck_assert_int_eq(spw__range_claim(rig.range, 2048, 14 * 1024), SPW_OK); /* to the end, never used yet */
    ck_assert_uint_eq(spw__range_total_free(rig.range), 0);
    give(&rig, 5);
    spw__range_claim_drop(rig.range);
    ck_assert(spw__range_check(rig.range));
    ck_assert_uint_eq(spw__range_total_free(rig.range), 8192 + 2048);
    ck_assert_uint_eq(spw__range_tail(rig.range), 8192);
    ck_assert_int_eq(spw__range_claim(rig.range, 2048, 2048), SPW_OK);
    give(&rig, 2);
    spw__range_claim_drop(rig.range);
    ck_assert_int_eq(spw__range_claim_take(rig.range, &node), SPW_EBUSY);
    give(&rig, 0);
    give(&rig, 1);
    give(&rig, 4);
    give(&rig, 6);
    give(&rig, 7);
    ck_assert_uint_eq(spw__range_largest_free(rig.range), 16 * 1024);
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(bad_claims_are_refused)
{
    struct rig rig;
    set_up(&rig);
    ck_assert_int_eq(spw__range_claim(rig.range, 0, 0), SPW_EINVAL);
    ck_assert_int_eq(spw__range_claim(rig.range, 32, 64), SPW_EINVAL);
    ck_assert_int_eq(spw__range_claim(rig.range, 64, 16 * 1024), SPW_EINVAL);
    ck_assert_int_eq(spw__range_claim(rig.range, UINT64_MAX - 63, 128), SPW_EINVAL);
    ck_assert_int_eq(spw__range_claim(rig.range, 64, 128), SPW_OK);
    ck_assert_int_eq(spw__range_claim(rig.range, 512, 128), SPW_EBUSY);
    ck_assert(spw__range_check(rig.range));
    spw__range_destroy(rig.range);
}
END_TEST

START_TEST(a_claim_that_fails_half_way_changes_nothing)
{
    struct spw__range *range = NULL;
    uint32_t nodes[510];
    uint64_t offset;
    ck_assert_int_eq(spw__range_create(1024 * 1024, GRAIN, false, NULL, &range), SPW_OK);
    for (unsigned i = 0; i < 510; i++) /* of the first 512 nodes */
        ck_assert_int_eq(spw__range_alloc(range, 128, 0, &nodes[i], &offset), SPW_OK);
    ck_assert_int_eq(spw__range_free(range, nodes[1]), SPW_OK);
    ck_assert_int_eq(spw__range_free(range, nodes[3]), SPW_OK);
    const uint64_t free_before = spw__range_total_free(range);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    /* Two nodes are set aside, the first hole is taken whole, and to cut the second one no node is left. */
    ck_assert_int_eq(spw__range_claim(range, 128, 320), SPW_ENOMETA);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_META_ALLOC), 1);
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_total_free(range), free_before);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_int_eq(spw__range_claim(range, 128, 320), SPW_OK);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(live_allocations_are_walked_in_address_order)
{
    struct rig rig;
    set_up(&rig);
    give(&rig, 3);
    ck_assert_uint_eq(spw__range_first_live(rig.range, 0), rig.nodes[0]);
    ck_assert_uint_eq(spw__range_first_live(rig.range, 1023), rig.nodes[0]);
    ck_assert_uint_eq(spw__range_first_live(rig.range, 1024), rig.nodes[1]);
    ck_assert_uint_eq(spw__range_first_live(rig.range, 3072), rig.nodes[4]);
    ck_assert_uint_eq(spw__range_next_live(rig.range, rig.nodes[2]), rig.nodes[4]);
    ck_assert_uint_eq(spw__range_next_live(rig.range, rig.nodes[7]), SPW__RANGE_NONE);
    ck_assert_uint_eq(spw__range_first_live(rig.range, 8192), SPW__RANGE_NONE);
    spw__range_destroy(rig.range);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("range_window");
    TCase *tests = tcase_create("contract");
    tcase_add_test(tests, the_window_with_the_fewest_live_bytes_is_found);
    tcase_add_test(tests, a_window_holds_nothing_that_must_stay);
    tcase_add_test(tests, nobody_else_allocates_in_a_claimed_window);
    tcase_add_test(tests, what_border_blocks_had_outside_is_free_after_the_claim);
    tcase_add_test(tests, a_dropped_claim_leaves_one_hole_or_its_parts);
    tcase_add_test(tests, bad_claims_are_refused);
    tcase_add_test(tests, a_claim_that_fails_half_way_changes_nothing);
    tcase_add_test(tests, live_allocations_are_walked_in_address_order);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
