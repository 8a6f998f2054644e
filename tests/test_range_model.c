/* Random use of the range allocator, compared step by step with a map of grains.
 *
 *     test_range_model [STEPS]    steps of each of the 16 runs; not given: a few thousand
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/range.h"

#define GRAIN 64u

/* The model: one byte a grain. */
enum { FREE, TAKEN, CLAIMED };

#define GRAINS_MAX 4096u
#define LIVE_MAX 512u

struct model {
    unsigned char state[GRAINS_MAX];
    unsigned grains;
    unsigned claim_first, claim_count; /* count 0: no window is claimed */
    unsigned n_live;
    struct {
        uint32_t node;
        unsigned first, count;
    } live[LIVE_MAX];
    uint64_t seed;
};

static unsigned steps = 6000;

static unsigned pick(struct model *model, unsigned below)
{
    model->seed = model->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(model->seed >> 33) % below;
}

struct picture {
    unsigned free, largest, tail;
    unsigned first_fit; /* grain of the lowest hole that fits, grains when none does */
};

static struct picture look(const struct model *model, unsigned count, unsigned align)
{
    struct picture seen = {0, 0, 0, model->grains};
    for (unsigned i = 0, end; i < model->grains; i = end) {
        for (end = i; end < model->grains && model->state[end] == model->state[i]; end++) {
        }
        if (model->state[i] != FREE) {
            seen.tail = end;
            continue;
        }
        const unsigned start = (i + align - 1) / align * align;
        seen.free += end - i;
        seen.largest = end - i > seen.largest ? end - i : seen.largest;
        if (seen.first_fit == model->grains && start + count <= end)
            seen.first_fit = start;
    }
    return seen;
}

static void add_live(struct model *model, uint32_t node, unsigned first, unsigned count)
{
    model->live[model->n_live].node = node;
    model->live[model->n_live].first = first;
    model->live[model->n_live++].count = count;
}

static void random_alloc(struct model *model, struct spw__range *range, bool address_ordered)
{
    const unsigned count = pick(model, 4) ? 1 + pick(model, 24) : 1 + pick(model, 600);
    const unsigned align = pick(model, 3) ? 1 : 1u << pick(model, 8);
    const struct picture seen = look(model, count, align);
    uint32_t node;
    uint64_t offset;
    const int rc = spw__range_alloc(range, count * GRAIN - pick(model, GRAIN), align * GRAIN, &node, &offset);
    ck_assert_int_eq(rc, count > seen.free ? SPW_ENOMEM : seen.first_fit == model->grains ? SPW_EFRAG : SPW_OK);
    if (rc != SPW_OK)
        return;
    const unsigned first = (unsigned)(offset / GRAIN);
    ck_assert_uint_eq(offset % (align * GRAIN), 0);
    ck_assert_uint_eq(spw__range_bytes(range, node), count * GRAIN);
    ck_assert(!address_ordered || first == seen.first_fit);
    for (unsigned i = first; i < first + count; i++) {
        ck_assert_uint_eq(model->state[i], FREE);
        model->state[i] = TAKEN;
    }
    add_live(model, node, first, count);
}

static bool in_claim(const struct model *model, unsigned first, unsigned count)
{
    return model->claim_count && first < model->claim_first + model->claim_count && first + count > model->claim_first;
}

static void random_free(struct model *model, struct spw__range *range)
{
    const unsigned victim = pick(model, model->n_live);
    const unsigned first = model->live[victim].first, count = model->live[victim].count;
    ck_assert_uint_eq(spw__range_offset(range, model->live[victim].node), first * GRAIN);
    ck_assert_int_eq(spw__range_free(range, model->live[victim].node), SPW_OK);
    ck_assert_int_eq(spw__range_free(range, model->live[victim].node), SPW_EBADHANDLE);
    memset(&model->state[first], in_claim(model, first, count) ? CLAIMED : FREE, count);
    model->live[victim] = model->live[--model->n_live];
}

static void random_split(struct model *model, struct spw__range *range)
{
    const unsigned victim = pick(model, model->n_live);
    const unsigned count = model->live[victim].count;
    uint32_t tail;
    if (count < 2)
        return;
    const unsigned keep = 1 + pick(model, count - 1);
    ck_assert_int_eq(spw__range_split(range, model->live[victim].node, keep * GRAIN, &tail), SPW_OK);
    model->live[victim].count = keep;
    add_live(model, tail, model->live[victim].first + keep, count - keep);
}

static bool is_movable(void *arg, uint32_t node, uint64_t bytes)
{
    const unsigned *stuck = arg;
    return node % *stuck != 0 && bytes > 0;
}

/* Bytes of the live allocations that a window overlaps; UINT64_MAX: it cannot be emptied. */
static uint64_t cost_of(const struct model *model, unsigned first, unsigned count, unsigned stuck)
{
    uint64_t cost = 0;
    for (unsigned i = 0; i < model->n_live; i++) {
        if (model->live[i].first >= first + count || model->live[i].first + model->live[i].count <= first)
            continue;
        if (model->live[i].node % stuck == 0)
            return UINT64_MAX;
        cost += model->live[i].count * GRAIN;
    }
    for (unsigned i = first; i < first + count; i++)
        if (model->state[i] == CLAIMED)
            return UINT64_MAX;
    return cost;
}

static void random_window(struct model *model, struct spw__range *range)
{
    unsigned stuck = 2 + pick(model, 200);
    const unsigned count = 1 + pick(model, model->grains), align = 1u << pick(model, 5);
    uint64_t best = UINT64_MAX, offset = UINT64_MAX;
    for (unsigned first = 0; first + count <= model->grains && best != 0; first += align) {
        const uint64_t cost = cost_of(model, first, count, stuck);
        best = cost < best ? cost : best;
    }
    const int rc = spw__range_window(range, count * GRAIN, align * GRAIN, is_movable, &stuck, &offset);
    ck_assert_int_eq(rc, best == UINT64_MAX ? SPW_EFRAG : SPW_OK);
    if (rc != SPW_OK)
        return;
    ck_assert_uint_eq(offset % (align * GRAIN), 0);
    ck_assert_uint_eq(cost_of(model, (unsigned)(offset / GRAIN), count, stuck), best);
}

static void random_claim(struct model *model, struct spw__range *range)
{
    const unsigned first = pick(model, model->grains), count = 1 + pick(model, 300);
    const int rc = spw__range_claim(range, first * GRAIN, count * GRAIN);
    if (first + count > model->grains) {
        ck_assert_int_eq(rc, SPW_EINVAL);
        return;
    }
    ck_assert_int_eq(rc, SPW_OK);
    ck_assert_int_eq(spw__range_claim(range, first * GRAIN, count * GRAIN), SPW_EBUSY);
    model->claim_first = first;
    model->claim_count = count;
    for (unsigned i = first; i < first + count; i++)
        model->state[i] = model->state[i] == FREE ? CLAIMED : model->state[i];
}

static void random_end_of_claim(struct model *model, struct spw__range *range)
{
    bool ready = true;
    uint32_t node;
    for (unsigned i = model->claim_first; i < model->claim_first + model->claim_count; i++)
        ready = ready && model->state[i] == CLAIMED;
    ck_assert_int_eq(spw__range_claim_ready(range), ready);
    const bool take = pick(model, 2) && model->n_live < LIVE_MAX - 1;
    if (take)
        ck_assert_int_eq(spw__range_claim_take(range, &node), ready ? SPW_OK : SPW_EBUSY);
    if (take && !ready)
        return;
    if (!take)
        spw__range_claim_drop(range);
    for (unsigned i = 0; i < model->grains; i++)
        model->state[i] = model->state[i] == CLAIMED ? FREE : model->state[i];
    if (take) {
        ck_assert_uint_eq(spw__range_offset(range, node), model->claim_first * GRAIN);
        ck_assert_uint_eq(spw__range_bytes(range, node), model->claim_count * GRAIN);
        memset(&model->state[model->claim_first], TAKEN, model->claim_count);
        add_live(model, node, model->claim_first, model->claim_count);
    }
    model->claim_count = 0;
}

static void random_walk(struct model *model, struct spw__range *range)
{
    const unsigned from = pick(model, model->grains);
    unsigned expected = 0, found = 0;
    uint64_t end = 0;
    for (unsigned i = 0; i < model->n_live; i++)
        expected += model->live[i].first + model->live[i].count > from;
    for (uint32_t node = spw__range_first_live(range, from * GRAIN); node != SPW__RANGE_NONE;
         node = spw__range_next_live(range, node), found++) {
        ck_assert_uint_ge(spw__range_offset(range, node), end);
        end = spw__range_offset(range, node) + spw__range_bytes(range, node);
    }
    ck_assert_uint_eq(found, expected);
}

static void random_step(struct model *model, struct spw__range *range, unsigned step, bool address_ordered)
{
    const unsigned fill = step / 1000 % 2 ? 35 : 60; /* phases that fill and phases that empty */
    const unsigned kind = pick(model, 100);
    if (step % 1500 == 1499 && model->grains < GRAINS_MAX - 700) {
        model->grains += 1 + pick(model, 700);
        ck_assert_int_eq(spw__range_grow(range, model->grains * GRAIN + pick(model, GRAIN)), SPW_OK);
    } else if (step % 1500 == 749) {
        const uint64_t tail = spw__range_tail(range) / GRAIN;
        model->grains -= pick(model, (unsigned)(model->grains - tail + 1));
        spw__range_shrink(range, model->grains * GRAIN);
    } else if (kind == 0) {
        random_window(model, range);
    } else if (kind == 1) {
        random_walk(model, range);
    } else if (kind == 2 && model->claim_count == 0) {
        random_claim(model, range);
    } else if (kind < 5 && model->claim_count) {
        random_end_of_claim(model, range);
    } else if (model->n_live == 0 || (pick(model, 100) < fill && model->n_live < LIVE_MAX - 1)) {
        random_alloc(model, range, address_ordered);
    } else if (pick(model, 10) == 0 && model->n_live < LIVE_MAX - 1) {
        random_split(model, range);
    } else {
        random_free(model, range);
    }
}

START_TEST(random_use_agrees_with_a_map_of_grains)
{
    const bool address_ordered = _i % 2 != 0;
    struct model model = {.grains = 1024, .seed = (uint64_t)_i + 1};
    struct spw__range *range = NULL;
    ck_assert_int_eq(spw__range_create(model.grains * GRAIN, GRAIN, address_ordered, NULL, &range), SPW_OK);
    for (unsigned step = 0; step < steps; step++) {
        random_step(&model, range, step, address_ordered);
        const struct picture seen = look(&model, 1, 1);
        ck_assert_uint_eq(spw__range_total_free(range), seen.free * GRAIN);
        ck_assert_uint_eq(spw__range_largest_free(range), seen.largest * GRAIN);
        ck_assert_uint_eq(spw__range_tail(range), seen.tail * GRAIN);
        if (step % 64 == 0)
            ck_assert(spw__range_check(range));
    }
    spw__range_claim_drop(range);
    model.claim_count = 0;
    while (model.n_live)
        random_free(&model, range);
    ck_assert(spw__range_check(range));
    ck_assert_uint_eq(spw__range_largest_free(range), model.grains * GRAIN);
    spw__range_destroy(range);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1)
        steps = (unsigned)strtoul(argv[1], NULL, 10);
    Suite *suite = suite_create("range_model");
    TCase *tests = tcase_create("random");
    tcase_add_loop_test(tests, random_use_agrees_with_a_map_of_grains, 0, 16);
    tcase_set_timeout(tests, argc > 1 ? 600 : 120);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
