/* The range allocator, contract by contract. Neighbours: test_range_window.c, test_range_model.c (random use). */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/range.h"

#define GRAIN 64u
#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static struct spw__range *make(uint64_t size, bool address_ordered)
{
    struct spw__range *range = NULL;
    ck_assert_int_eq(spw__range_create(size, GRAIN, address_ordered, NULL, &range), SPW_OK);
    ck_assert(spw__range_check(range));
    return range;
}

static uint32_t take(struct spw__range *range, uint64_t bytes, uint64_t expected_offset)
{
    uint32_t node = SPW__RANGE_NONE;
    uint64_t offset = UINT64_MAX;
    ck_assert_int_eq(spw__range_alloc(range, bytes, 0, &node, &offset), SPW_OK);
    ck_assert_uint_eq(offset, expected_offset);
    ck_assert_uint_eq(spw__range_offset(range, node), offset);
    ck_assert(spw__range_check(range));
    return node;
}

static int try_alloc(struct spw__range *range, uint64_t bytes, uint64_t align)
{
    uint32_t node;
    uint64_t offset;
    return spw__range_alloc(range, bytes, align, &node, &offset);
}

static void give(struct spw__range *range, uint32_t node)
{
    ck_assert_int_eq(spw__range_free(range, node), SPW_OK);
    ck_assert(spw__range_check(range));
}

START_TEST(fresh_range_is_one_hole_rounded_down)
{
    struct spw__range *range = make(1000, false);
    ck_assert_uint_eq(spw__range_size(range), 960);
    ck_assert_uint_eq(spw__range_total_free(range), 960);
    ck_assert_uint_eq(spw__range_largest_free(range), 960);
    ck_assert_uint_eq(spw__range_tail(range), 0);
    spw__range_destroy(range);
    spw__range_destroy(NULL);
}
END_TEST

START_TEST(bad_shapes_are_refused)
{
    struct spw__range *range = (struct spw__range *)1;
    ck_assert_int_eq(spw__range_create(4096, 0, false, NULL, &range), SPW_EINVAL);
    ck_assert_ptr_null(range);
    ck_assert_int_eq(spw__range_create(4096, 96, false, NULL, &range), SPW_EINVAL);
    ck_assert_int_eq(spw__range_create(UINT64_MAX, 64, false, NULL, &range), SPW_EINVAL);
    range = make(4096, false);
    ck_assert_int_eq(try_alloc(range, 64, 96), SPW_EINVAL);
    ck_assert_uint_eq(spw__range_total_free(range), 4096);
    spw__range_destroy(range);
}
END_TEST

START_TEST(requests_are_rounded_up_and_zero_takes_a_grain)
{
    struct spw__range *range = make(4096, false);
    const uint32_t zero = take(range, 0, 0);
    const uint32_t odd = take(range, 65, 64);
    ck_assert_uint_eq(spw__range_bytes(range, zero), 64);
    ck_assert_uint_eq(spw__range_bytes(range, odd), 128);
    ck_assert_uint_eq(spw__range_tail(range), 192);
    give(range, zero);
    ck_assert_uint_eq(spw__range_tail(range), 192);
    give(range, odd);
    ck_assert_uint_eq(spw__range_tail(range), 0);
    ck_assert_uint_eq(spw__range_largest_free(range), 4096);
    spw__range_destroy(range);
}
END_TEST

START_TEST(whole_range_can_be_taken_again_and_again)
{
    struct spw__range *range = make(UINT64_C(1) << 56, false);
    for (int i = 0; i < 3; i++) {
        const uint32_t node = take(range, UINT64_C(1) << 56, 0);
        ck_assert_uint_eq(spw__range_total_free(range), 0);
        ck_assert_uint_eq(spw__range_largest_free(range), 0);
        ck_assert_uint_eq(spw__range_tail(range), UINT64_C(1) << 56);
        ck_assert_int_eq(try_alloc(range, 1, 0), SPW_ENOMEM);
        ck_assert_int_eq(try_alloc(range, 0, 0), SPW_ENOMEM);
        give(range, node);
    }
    spw__range_destroy(range);
}
END_TEST

START_TEST(too_little_and_fragmented_are_different_errors)
{
    struct spw__range *range = make(4 * 1024, false);
    uint32_t nodes[4];
    for (unsigned i = 0; i < 4; i++)
        nodes[i] = take(range, 1024, i * 1024);
    give(range, nodes[0]);
    give(range, nodes[2]);
    ck_assert_int_eq(try_alloc(range, 2049, 0), SPW_ENOMEM);
    ck_assert_int_eq(try_alloc(range, UINT64_MAX, 0), SPW_ENOMEM);
    ck_assert_int_eq(try_alloc(range, 1025, 0), SPW_EFRAG);
    ck_assert_int_eq(try_alloc(range, 2048, 0), SPW_EFRAG);
    ck_assert_int_eq(try_alloc(range, 64, 4096), SPW_OK); /* offset 0 */
    ck_assert_int_eq(try_alloc(range, 64, 4096), SPW_EFRAG);
    ck_assert_int_eq(try_alloc(range, 64, UINT64_C(1) << 63), SPW_EFRAG);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(neighbours_coalesce_in_every_order)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (unsigned o = 0; o < 6; o++) {
        struct spw__range *range = make(3 * 1024, false);
        uint32_t nodes[3];
        for (unsigned i = 0; i < 3; i++)
            nodes[i] = take(range, 1024, i * 1024);
        for (unsigned i = 0; i < 3; i++)
            give(range, nodes[orders[o][i]]);
        ck_assert_uint_eq(spw__range_largest_free(range), 3 * 1024);
        spw__range_destroy(range);
    }
}
END_TEST

START_TEST(double_and_foreign_frees_change_nothing)
{
    struct spw__range *range = make(4096, false);
    const uint32_t first = take(range, 64, 0);
    const uint32_t second = take(range, 64, 64);
    uint32_t tail;
    give(range, first);
    ck_assert_int_eq(spw__range_free(range, first), SPW_EBADHANDLE); /* a free node */
    give(range, second);
    ck_assert_int_eq(spw__range_free(range, second), SPW_EBADHANDLE); /* a recycled node */
    ck_assert_int_eq(spw__range_free(range, 77), SPW_EBADHANDLE);     /* never handed out */
    ck_assert_int_eq(spw__range_free(range, 100000), SPW_EBADHANDLE); /* beyond every segment */
    ck_assert_int_eq(spw__range_free(range, SPW__RANGE_NONE), SPW_EBADHANDLE);
    ck_assert_int_eq(spw__range_split(range, first, 64, &tail), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_error_detail()->code, SPW_EBADHANDLE);
    ck_assert_uint_eq(spw__range_total_free(range), 4096);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(split_makes_two_that_free_apart)
{
    struct spw__range *range = make(4096, false);
    const uint32_t node = take(range, 1024, 0);
    uint32_t tail;
    ck_assert_int_eq(spw__range_split(range, node, 0, &tail), SPW_EINVAL);
    ck_assert_int_eq(spw__range_split(range, node, 100, &tail), SPW_EINVAL);
    ck_assert_int_eq(spw__range_split(range, node, 1024, &tail), SPW_EINVAL);
    ck_assert_int_eq(spw__range_split(range, node, 256, &tail), SPW_OK);
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_bytes(range, node), 256);
    ck_assert_uint_eq(spw__range_offset(range, tail), 256);
    ck_assert_uint_eq(spw__range_bytes(range, tail), 768);
    give(range, node);
    ck_assert_uint_eq(spw__range_total_free(range), 4096 - 768);
    give(range, tail);
    ck_assert_uint_eq(spw__range_largest_free(range), 4096);
    spw__range_destroy(range);
}
END_TEST

START_TEST(grow_extends_a_free_tail_or_adds_one)
{
    struct spw__range *range = make(0, false);
    ck_assert_int_eq(try_alloc(range, 1, 0), SPW_ENOMEM);
    ck_assert_uint_eq(spw__range_largest_free(range), 0);
    ck_assert_int_eq(spw__range_grow(range, 1024), SPW_OK);
    const uint32_t all = take(range, 1024, 0);
    ck_assert_int_eq(spw__range_grow(range, 2048), SPW_OK); /* behind a live allocation */
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_tail(range), 1024);
    ck_assert_int_eq(spw__range_grow(range, 4096 + 63), SPW_OK); /* the hole at the end becomes larger */
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_size(range), 4096);
    ck_assert_uint_eq(spw__range_largest_free(range), 3072);
    ck_assert_int_eq(spw__range_grow(range, 4096), SPW_OK);
    ck_assert_int_eq(spw__range_grow(range, 4095), SPW_EINVAL);
    ck_assert_int_eq(spw__range_grow(range, UINT64_MAX), SPW_EINVAL);
    give(range, all);
    ck_assert_uint_eq(spw__range_largest_free(range), 4096);
    spw__range_destroy(range);
}
END_TEST

START_TEST(shrink_takes_free_space_off_the_end_until_it_grows_again)
{
    struct spw__range *range = make(8192, false);
    const uint32_t first = take(range, 1024, 0), second = take(range, 2048, 1024), third = take(range, 4096, 3072);
    give(range, third);
    give(range, first);
    spw__range_shrink(range, 3072 + 64);
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_size(range), 3072 + 64);
    ck_assert_uint_eq(spw__range_total_free(range), 1024 + 64);
    ck_assert_uint_eq(spw__range_largest_free(range), 1024);
    ck_assert_int_eq(try_alloc(range, 1088, 0), SPW_EFRAG);
    spw__range_shrink(range, 3072); /* down to the last allocation */
    spw__range_shrink(range, 3072);
    ck_assert(spw__range_check(range));
    ck_assert_int_eq(spw__range_grow(range, 8192), SPW_OK);
    ck_assert_uint_eq(spw__range_largest_free(range), 5120);
    give(range, take(range, 5120, 3072));
    give(range, second);
    spw__range_shrink(range, 0);
    ck_assert(spw__range_check(range));
    ck_assert_int_eq(try_alloc(range, 1, 0), SPW_ENOMEM);
    spw__range_destroy(range);
}
END_TEST

START_TEST(alignment_leaves_the_gap_before_it_free)
{
    struct spw__range *range = make(16384, false);
    take(range, 64, 0);
    uint32_t node;
    uint64_t offset;
    ck_assert_int_eq(spw__range_alloc(range, 4096, 4096, &node, &offset), SPW_OK);
    ck_assert_uint_eq(offset, 4096);
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_total_free(range), 16384 - 64 - 4096);
    const uint32_t gap = take(range, 4096 - 64, 64); /* the gap, exactly */
    give(range, gap);
    give(range, node);
    ck_assert_uint_eq(spw__range_largest_free(range), 16384 - 64);
    spw__range_destroy(range);
}
END_TEST

START_TEST(alignment_finds_a_hole_that_fits_only_by_its_position)
{
    struct spw__range *range = make(8192, false);
    const uint32_t a = take(range, 4096, 0);
    const uint32_t b = take(range, 1024, 4096);
    take(range, 8192 - 5120, 5120);
    give(range, b);
    uint32_t node;
    uint64_t offset;
    ck_assert_int_eq(spw__range_alloc(range, 1024, 4096, &node, &offset), SPW_OK);
    ck_assert_uint_eq(offset, 4096);
    give(range, a);
    ck_assert_int_eq(spw__range_alloc(range, 2048, 2048, &node, &offset), SPW_OK);
    ck_assert_int_eq(try_alloc(range, 2048, 4096), offset == 0 ? SPW_EFRAG : SPW_OK);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(sizes_just_above_a_power_of_two_reuse_their_own_holes)
{
    struct spw__range *range = make(64 * MIB, false);
    uint32_t nodes[16];
    const uint64_t bytes = MIB + 64;
    for (unsigned i = 0; i < 16; i++) {
        uint64_t offset;
        ck_assert_int_eq(spw__range_alloc(range, bytes, 0, &nodes[i], &offset), SPW_OK);
    }
    const uint64_t hole = spw__range_offset(range, nodes[5]);
    give(range, nodes[5]);
    (void)take(range, bytes, hole);
    spw__range_destroy(range);
}
END_TEST

START_TEST(the_last_hole_that_fits_is_found_behind_many_that_do_not)
{
    /* 100 holes of 64 + i grains' bin, all but one a grain too small: EFRAG would be wrong. */
    struct spw__range *range = make(UINT64_C(1) << 30, false);
    uint32_t nodes[100], guards[100], rest;
    uint64_t offset;
    for (unsigned i = 0; i < 100; i++) {
        const uint64_t bytes = (i == 40 ? 16386u : 16385u) * GRAIN;
        ck_assert_int_eq(spw__range_alloc(range, bytes, 0, &nodes[i], &offset), SPW_OK);
        ck_assert_int_eq(spw__range_alloc(range, GRAIN, 0, &guards[i], &offset), SPW_OK);
    }
    ck_assert_int_eq(spw__range_alloc(range, spw__range_largest_free(range), 0, &rest, &offset), SPW_OK);
    for (unsigned i = 0; i < 100; i++)
        give(range, nodes[(i + 40) % 100]); /* the one that fits ends up last in its bin */
    ck_assert_uint_eq(spw__range_largest_free(range), 16386 * GRAIN);
    ck_assert_int_eq(try_alloc(range, 16387 * GRAIN, 0), SPW_EFRAG);
    ck_assert_int_eq(spw__range_alloc(range, 16386 * GRAIN, 0, &nodes[40], &offset), SPW_OK);
    ck_assert_uint_eq(spw__range_largest_free(range), 16385 * GRAIN);
    ck_assert_int_eq(try_alloc(range, 16386 * GRAIN, 0), SPW_EFRAG);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(address_order_takes_the_lowest_hole_that_fits)
{
    struct spw__range *range = make(64 * 1024, true);
    uint32_t nodes[8];
    for (unsigned i = 0; i < 8; i++)
        nodes[i] = take(range, i == 6 ? 1024 : 4096, i < 7 ? i * 4096 : 6 * 4096 + 1024);
    give(range, nodes[6]); /* the best fit */
    give(range, nodes[4]);
    give(range, nodes[1]);
    nodes[1] = take(range, 1024, 4096);
    (void)take(range, 4096, 4 * 4096);
    give(range, nodes[0]);
    (void)take(range, 4096 + 64, 7 * 4096 + 1024);
    (void)take(range, 4096, 0);
    spw__range_destroy(range);
}
END_TEST

/* Without memory behind it, so at full size: 9 GiB and more are free, yet 5 GiB do not fit. */
START_TEST(P17_one_pool_fragments_in_address_order)
{
    struct spw__range *range = make(10 * GIB, true);
    uint32_t large[3];
    for (unsigned i = 0; i < 3; i++) {
        large[i] = take(range, 3 * GIB, i * (3 * GIB + 2 * MIB));
        (void)take(range, 2 * MIB, i * (3 * GIB + 2 * MIB) + 3 * GIB);
    }
    for (unsigned i = 0; i < 3; i++)
        give(range, large[i]);
    ck_assert_uint_eq(spw__range_total_free(range), 10 * GIB - 6 * MIB);
    ck_assert_uint_eq(spw__range_largest_free(range), 3 * GIB);
    ck_assert_int_eq(try_alloc(range, 5 * GIB, 0), SPW_EFRAG);
    spw__range_destroy(range);
}
END_TEST

START_TEST(P17_default_placement_agrees_with_largest_free)
{
    struct spw__range *range = make(10 * GIB, false);
    uint32_t large[3], small;
    uint64_t offset;
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(spw__range_alloc(range, 3 * GIB, 0, &large[i], &offset), SPW_OK);
        ck_assert_int_eq(spw__range_alloc(range, 2 * MIB, 0, &small, &offset), SPW_OK);
    }
    for (unsigned i = 0; i < 3; i++)
        give(range, large[i]);
    const bool fits = spw__range_largest_free(range) >= 5 * GIB;
    ck_assert_int_eq(try_alloc(range, 5 * GIB, 0), fits ? SPW_OK : SPW_EFRAG);
    spw__range_destroy(range);
}
END_TEST

START_TEST(nodes_are_charged_to_meta_and_given_back)
{
    struct spw__meta meta;
    struct spw__range *range;
    spw__meta_init(&meta, MIB);
    ck_assert_int_eq(spw__range_create(MIB, GRAIN, false, &meta, &range), SPW_OK);
    const uint64_t before = atomic_load(&meta.gate.committed);
    ck_assert_uint_gt(before, 0);
    for (unsigned i = 0; i < 1000; i++)
        ck_assert_int_eq(try_alloc(range, 64, 0), SPW_OK);
    const uint64_t grown = atomic_load(&meta.gate.committed) - before;
    ck_assert_uint_ge(grown, 1000 * 32);
    ck_assert_uint_le(grown, 1024 * 32 + 1024);
    spw__range_destroy(range);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}
END_TEST

START_TEST(recycled_nodes_cost_no_more_meta)
{
    struct spw__meta meta;
    struct spw__range *range;
    uint32_t node;
    uint64_t offset;
    spw__meta_init(&meta, MIB);
    ck_assert_int_eq(spw__range_create(MIB, GRAIN, false, &meta, &range), SPW_OK);
    ck_assert_int_eq(try_alloc(range, 64, 0), SPW_OK);
    const uint64_t before = atomic_load(&meta.gate.committed);
    for (unsigned i = 0; i < 10000; i++) {
        ck_assert_int_eq(spw__range_alloc(range, 64 + i, 0, &node, &offset), SPW_OK);
        give(range, node);
    }
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), before);
    spw__range_destroy(range);
}
END_TEST

START_TEST(an_exhausted_meta_budget_is_ENOMETA_and_changes_nothing)
{
    struct spw__meta meta;
    struct spw__range *range;
    uint32_t nodes[4096], n = 0, tail;
    uint64_t offset = 0;
    int rc;
    spw__meta_init(&meta, 40000);
    ck_assert_int_eq(spw__range_create(MIB, GRAIN, false, &meta, &range), SPW_OK);
    while ((rc = spw__range_alloc(range, 128, 0, &nodes[n], &offset)) == SPW_OK)
        ck_assert_uint_lt(++n, 4096);
    ck_assert_uint_gt(n, 3);
    ck_assert_int_eq(rc, SPW_ENOMETA);
    ck_assert_uint_eq(spw__range_total_free(range), MIB - n * 128);
    ck_assert_int_eq(spw__range_split(range, nodes[0], 64, &tail), SPW_ENOMETA);
    ck_assert_uint_eq(spw__range_bytes(range, nodes[0]), 128);
    ck_assert_int_eq(try_alloc(range, 128, 2 * 65536), SPW_ENOMETA); /* one node or two, none is left */
    ck_assert_int_eq(spw__range_claim(range, 0, 64), SPW_ENOMETA);
    ck_assert(spw__range_check(range));
    ck_assert_int_eq(spw__range_grow(range, UINT64_C(1) << 50), SPW_ENOMETA); /* bins of larger holes */
    ck_assert_uint_eq(spw__range_size(range), MIB);
    give(range, nodes[1]); /* frees never need memory */
    nodes[1] = take(range, 128, 128); /* an exact fit needs no node */
    ck_assert_int_eq(try_alloc(range, 128, 0), SPW_ENOMETA);
    give(range, nodes[0]);
    give(range, nodes[1]);
    ck_assert_int_eq(try_alloc(range, 128, 0), SPW_OK); /* and one of them gave a node back */
    spw__range_destroy(range);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}
END_TEST

START_TEST(create_fails_cleanly_at_every_metadata_allocation)
{
    struct spw__meta meta;
    struct spw__range *range;
    int rc = SPW_ENOMETA;
    spw__meta_init(&meta, MIB);
    for (long nth = 1; nth <= 2; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        rc = spw__range_create(MIB, GRAIN, false, &meta, &range);
        ck_assert_int_eq(rc, SPW_ENOMETA);
        ck_assert_ptr_null(range);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    }
    spw__fault_arm(SPW__FAULT_META_ALLOC, 3, 1, ENOMEM);
    ck_assert_int_eq(spw__range_create(MIB, GRAIN, false, &meta, &range), SPW_OK);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    spw__range_destroy(range);
}
END_TEST

START_TEST(a_failed_second_node_gives_the_first_one_back)
{
    struct spw__range *range = make(MIB, false);
    uint32_t nodes[511];
    uint64_t offset;
    for (unsigned i = 0; i < 511; i++) /* of the first 512 nodes */
        ck_assert_int_eq(spw__range_alloc(range, 64, 0, &nodes[i], &offset), SPW_OK);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(try_alloc(range, 64, 65536), SPW_ENOMETA); /* needs two */
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_META_ALLOC), 1);
    ck_assert(spw__range_check(range));
    ck_assert_int_eq(try_alloc(range, 64, 0), SPW_OK); /* needs one */
    ck_assert_int_eq(try_alloc(range, 64, 0), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_int_eq(try_alloc(range, 64, 65536), SPW_OK);
    ck_assert(spw__range_check(range));
    spw__range_destroy(range);
}
END_TEST

START_TEST(address_order_finds_the_lowest_of_many_mixed_holes)
{
    struct spw__range *range = make(GIB, true);
    static uint32_t nodes[4000];
    uint64_t offset;
    for (unsigned i = 0; i < 4000; i++)
        ck_assert_int_eq(
            spw__range_alloc(range, (i % 2 ? 1 : 1 + i * 37 % 500) * GRAIN, 0, &nodes[i], &offset), SPW_OK);
    for (unsigned i = 0; i < 4000; i += 2)
        ck_assert_int_eq(spw__range_free(range, nodes[i]), SPW_OK);
    ck_assert(spw__range_check(range));
    for (unsigned want = 499; want > 24; want -= 25) {
        unsigned lowest = 0;
        while (1 + lowest * 37 % 500 < want)
            lowest += 2;
        const uint64_t expected = spw__range_offset(range, nodes[lowest + 1]) - (1 + lowest * 37 % 500) * GRAIN;
        give(range, take(range, want * GRAIN, expected));
    }
    spw__range_destroy(range);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("range");
    TCase *tests = tcase_create("contract");
    tcase_add_test(tests, fresh_range_is_one_hole_rounded_down);
    tcase_add_test(tests, bad_shapes_are_refused);
    tcase_add_test(tests, requests_are_rounded_up_and_zero_takes_a_grain);
    tcase_add_test(tests, whole_range_can_be_taken_again_and_again);
    tcase_add_test(tests, too_little_and_fragmented_are_different_errors);
    tcase_add_test(tests, neighbours_coalesce_in_every_order);
    tcase_add_test(tests, double_and_foreign_frees_change_nothing);
    tcase_add_test(tests, split_makes_two_that_free_apart);
    tcase_add_test(tests, grow_extends_a_free_tail_or_adds_one);
    tcase_add_test(tests, shrink_takes_free_space_off_the_end_until_it_grows_again);
    tcase_add_test(tests, alignment_leaves_the_gap_before_it_free);
    tcase_add_test(tests, alignment_finds_a_hole_that_fits_only_by_its_position);
    tcase_add_test(tests, sizes_just_above_a_power_of_two_reuse_their_own_holes);
    tcase_add_test(tests, the_last_hole_that_fits_is_found_behind_many_that_do_not);
    tcase_add_test(tests, address_order_takes_the_lowest_hole_that_fits);
    tcase_add_test(tests, P17_one_pool_fragments_in_address_order);
    tcase_add_test(tests, P17_default_placement_agrees_with_largest_free);
    tcase_add_test(tests, nodes_are_charged_to_meta_and_given_back);
    tcase_add_test(tests, recycled_nodes_cost_no_more_meta);
    tcase_add_test(tests, an_exhausted_meta_budget_is_ENOMETA_and_changes_nothing);
    tcase_add_test(tests, create_fails_cleanly_at_every_metadata_allocation);
    tcase_add_test(tests, a_failed_second_node_gives_the_first_one_back);
    tcase_add_test(tests, address_order_finds_the_lowest_of_many_mixed_holes);
    tcase_set_timeout(tests, 120);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
