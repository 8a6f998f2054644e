/* How the reference engine cuts a join to its budgets, on the host and on the device. Neighbour: test_engine.c. */
#include <check.h>
#include <string.h>

#include "engine/sizing.h"

static struct eng_error error;
static int has_disk = 1;

/* Plans a join of TPC-H's tables at scale factor 0.1, as often over as scale says, with budgets in KiB. */
static int plan_join(struct eng_plan *plan, const uint64_t budgets[3], enum eng_work work, unsigned threads,
                     unsigned scale)
{
    struct eng_source sources[ENG_SIDES];
    struct tpch t;
    spw_spec spec;
    ck_assert_int_eq(tpch_init(&t, 0.1, &error), 0);
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        eng_source_open_tpch(&sources[side], (enum eng_side)side, &t);
        sources[side].rows *= scale;
    }
    spw_spec_init(&spec);
    spec.folders[0] = (spw_spec_folder){.path = ".", .path_length = 1};
    spec.n_folders = has_disk ? 1 : 0;
    for (unsigned tier = 0; tier < 3; tier++) {
        spec.n_pools[tier] = budgets[tier] > 0;
        spec.pools[tier][0] = (spw_spec_pool){budgets[tier] << 10, 0};
    }
    int result = eng_plan_make(plan, &spec, work, threads, sources, &error);
    tpch_finish(&t);
    return result;
}

/* Every plan keeps its promise: what all threads hold mapped is at most about half of the work place. groups: how many
 * row groups a thread has mapped at once. */
static void check_half_unmapped(const struct eng_plan *plan, uint64_t usable, unsigned groups)
{
    uint64_t group = plan->group_rows * 20ull;
    ck_assert_uint_le(plan->threads * (plan->work_bytes + groups * group + 2ull * plan->chunk_bytes),
                      usable / 2 + usable / 8);
    ck_assert_uint_le((uint64_t)plan->fanout * plan->chunk_bytes, plan->work_bytes);
    ck_assert_uint_ge(plan->chunk_bytes, 16384);
    ck_assert_uint_ge(plan->fanout, 8);
    ck_assert_uint_le(plan->group_rows * 8ull, 1u << 20);
}

START_TEST(plan_keeps_half_of_the_work_place_unmapped)
{
    static const uint64_t hosts[] = {2, 3, 4, 8, 13, 64, 200, 1000, 20000};
    struct eng_plan plan;
    for (unsigned scale = 1; scale <= 100; scale *= 10) {
        for (unsigned i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
            for (unsigned threads = 0; threads <= hosts[i] / 2 && threads <= 8; threads++) {
                const uint64_t budgets[3] = {0, 0, hosts[i] << 10};
                ck_assert_msg(plan_join(&plan, budgets, ENG_WORK_HOST, threads, scale) == 0, "%s", error.text);
                check_half_unmapped(&plan, (hosts[i] << 20) - plan.staging_bytes, 1);
            }
        }
    }
}
END_TEST

START_TEST(plan_keeps_half_of_the_device_unmapped)
{
    static const uint64_t devices[] = {1536, 2048, 3072, 8192, 65536, 1u << 20, 20u << 20};
    struct eng_plan plan;
    for (unsigned scale = 1; scale <= 100; scale *= 10) {
        for (unsigned i = 0; i < sizeof devices / sizeof devices[0]; i++) {
            for (unsigned threads = 0; threads <= devices[i] / 1536 && threads <= 8; threads++) {
                const uint64_t budgets[3] = {devices[i], 1024, 0};
                ck_assert_msg(plan_join(&plan, budgets, ENG_WORK_DEVICE, threads, scale) == 0, "%s", error.text);
                ck_assert_uint_eq(plan.work, SPW_DEVICE);
                check_half_unmapped(&plan, devices[i] << 10, 2);
            }
        }
    }
}
END_TEST

START_TEST(plan_works_on_the_device_where_it_suffices)
{
    static const struct {
        uint64_t budgets[3];
        enum eng_work work;
        unsigned threads;
        spw_place wanted;
    } cases[] = {{{1536, 1024, 0}, ENG_WORK_AUTO, 1, SPW_DEVICE},  {{3072, 0, 2048}, ENG_WORK_AUTO, 2, SPW_DEVICE},
                 {{1535, 1024, 1536}, ENG_WORK_AUTO, 1, SPW_HOST}, {{3071, 0, 4096}, ENG_WORK_AUTO, 2, SPW_HOST},
                 {{1535, 2048, 0}, ENG_WORK_AUTO, 1, SPW_PINNED_HOST},
                 {{65536, 0, 4096}, ENG_WORK_HOST, 2, SPW_HOST},   {{65536, 0, 4096}, ENG_WORK_DEVICE, 2, SPW_DEVICE},
                 {{0, 0, 4096}, ENG_WORK_AUTO, 2, SPW_HOST}};
    struct eng_plan plan;
    ck_assert_msg(plan_join(&plan, cases[_i].budgets, cases[_i].work, cases[_i].threads, 1) == 0, "%s", error.text);
    ck_assert_uint_eq(plan.work, cases[_i].wanted);
}
END_TEST

/* The tables of scale factor 0.1 have more than 8 MiB. */
START_TEST(plan_without_a_disk_works_on_the_device_where_there_is_room_to_spare)
{
    static const uint64_t scarce[3] = {8192, 0, 8192}, ample[3] = {65536, 0, 16384};
    struct eng_plan plan;
    has_disk = 0;
    ck_assert_msg(plan_join(&plan, scarce, ENG_WORK_AUTO, 1, 1) == 0, "%s", error.text);
    ck_assert_uint_eq(plan.work, SPW_HOST);
    ck_assert_msg(plan_join(&plan, scarce, ENG_WORK_DEVICE, 1, 1) == 0, "%s", error.text);
    ck_assert_uint_eq(plan.work, SPW_DEVICE);
    ck_assert_msg(plan_join(&plan, ample, ENG_WORK_AUTO, 1, 1) == 0, "%s", error.text);
    ck_assert_uint_eq(plan.work, SPW_DEVICE);
}
END_TEST

START_TEST(plan_refuses_a_device_below_the_smallest)
{
    static const struct {
        uint64_t budgets[3];
        unsigned threads;
        const char *named;
    } cases[] = {{{1535, 1024, 65536}, 1, "1536K"}, {{3071, 1024, 65536}, 2, "1536K"},
                 {{0, 1024, 65536}, 1, "--device-limit"}, {{65536, 0, 0}, 1, "--host-limit"}};
    struct eng_plan plan;
    ck_assert_int_eq(plan_join(&plan, cases[_i].budgets, ENG_WORK_DEVICE, cases[_i].threads, 1), -1);
    ck_assert_int_eq(error.status, ENG_USAGE);
    ck_assert_msg(strstr(error.text, cases[_i].named) != NULL, "%s", error.text);
}
END_TEST

START_TEST(plan_refuses_budgets_below_the_smallest)
{
    static const struct {
        uint64_t device, pinned, host;
        unsigned threads;
        const char *named; /* NULL: enough */
    } cases[] = {{0, 0, 2048, 1, NULL},        {0, 0, 2047, 1, "2M"},      {0, 2048, 0, 1, NULL},
                 {0, 0, 4096, 2, NULL},        {0, 0, 4092, 2, "2M"},      {1024, 1024, 3072, 2, NULL},
                 {1024, 1024, 3071, 2, "2M"},  {8192, 0, 0, 1, "device"},  {512, 0, 8192, 1, "device"},
                 {0, 512, 8192, 1, "pinned_host"}};
    struct eng_plan plan;
    const uint64_t budgets[3] = {cases[_i].device, cases[_i].pinned, cases[_i].host};
    int result = plan_join(&plan, budgets, ENG_WORK_HOST, cases[_i].threads, 1);
    if (cases[_i].named == NULL) {
        ck_assert_msg(result == 0, "%s", error.text);
    } else {
        ck_assert_int_eq(result, -1);
        ck_assert_int_eq(error.status, ENG_USAGE);
        ck_assert_msg(strstr(error.text, cases[_i].named) != NULL, "%s", error.text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_plan");
    TCase *plans = tcase_create("plans");
    tcase_set_timeout(plans, 120);
    tcase_add_test(plans, plan_keeps_half_of_the_work_place_unmapped);
    tcase_add_test(plans, plan_keeps_half_of_the_device_unmapped);
    tcase_add_loop_test(plans, plan_works_on_the_device_where_it_suffices, 0, 8);
    tcase_add_test(plans, plan_without_a_disk_works_on_the_device_where_there_is_room_to_spare);
    tcase_add_loop_test(plans, plan_refuses_a_device_below_the_smallest, 0, 4);
    tcase_add_loop_test(plans, plan_refuses_budgets_below_the_smallest, 0, 10);
    suite_add_tcase(suite, plans);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
