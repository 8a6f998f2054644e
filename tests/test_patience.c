/* Patience: waiting for releases where they are quicker than a spill, and what is counted of it. */
#include "manager_fixture.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    close_manager();
    remove_folder();
}

/* As if so much had been released per millisecond until now, and there were no end to patience. */
static void expect_releases(uint64_t bytes_per_ms)
{
    spw__mutex_lock(&manager->pressure[SPW_TIER_HOST].lock);
    manager->patience[SPW_TIER_HOST].bytes_per_ms = bytes_per_ms;
    manager->patience[SPW_TIER_HOST].sampled_ns = spw__clock_now_ns(NULL) + UINT64_C(3600) * 1000000000;
    spw__mutex_unlock(&manager->pressure[SPW_TIER_HOST].lock);
}

struct asking {
    spw_task *task;
    spw_buffer *buffer;
    int rc;
};

static void *ask(void *arg)
{
    struct asking *asking = arg;
    if (asking->task)
        ck_assert_int_eq(spw_task_attach(asking->task), SPW_OK);
    asking->rc = spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &asking->buffer);
    if (asking->task)
        ck_assert_int_eq(spw_task_detach(asking->task), SPW_OK);
    return NULL;
}

static void await_patient(uint32_t n)
{
    while (atomic_load(&manager->n_patient) != n ||
           (n && !spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST))))
        (void)sched_yield();
}

START_TEST(where_releases_are_quicker_they_are_waited_for_and_nothing_is_spilled)
{
    open_manager(SMALL_HOST);
    struct asking asking = {.buffer = NULL};
    spw_buffer *first = must_make(SPW_HOST, 512 * KIB, 1), *second = must_make(SPW_HOST, 512 * KIB, 2);
    expect_releases(7); /* patience for half a minute */
    manager->patience_max_ns = UINT64_MAX;
    /* A spill of a MiB is expected to take longer than any release. */
    const unsigned edge = SPW__CORE_MOVER + SPW__MOVER_EDGES + 3 * (SPW_TIER_HOST * SPW_TIER_COUNT + SPW_TIER_DISK);
    spw__core_count(manager, edge + 1, 1);
    spw__core_count(manager, edge + 2, UINT64_C(1000000000));
    const pthread_t thread = must_start(ask, &asking);
    await_patient(1);
    must_release(first);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asking.rc, SPW_OK);
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].spill_bytes, 0);
    ck_assert_uint_eq(stats.waits_chosen, 1);
    ck_assert_uint_eq(stats.spills_chosen, 0);
    ck_assert_uint_eq(stats.waits, 1);
    must_release(second);
    must_release(asking.buffer);
}
END_TEST

START_TEST(patience_ends_and_then_room_is_made)
{
    open_manager(SMALL_HOST);
    struct asking asking = {.buffer = NULL};
    spw_buffer *buffer = must_make(SPW_HOST, 1024 * KIB, 1);
    expect_releases(UINT64_C(1) << 40);
    (void)ask(&asking); /* nobody releases anything */
    ck_assert_int_eq(asking.rc, SPW_OK);
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_HOST].spill_bytes, 0);
    ck_assert_uint_eq(stats.waits_chosen, 0);
    ck_assert_uint_eq(stats.spills_chosen, 1);
    ck_assert_uint_eq(stats.waits, 1);
    must_release(asking.buffer);
    must_release(buffer);
}
END_TEST

START_TEST(without_releases_nobody_is_patient)
{
    open_manager(SMALL_HOST);
    struct asking asking = {.buffer = NULL};
    spw_buffer *buffer = must_make(SPW_HOST, 1024 * KIB, 1);
    const struct spw__request request = {.manager = manager, .group = &manager->root, .bytes = 128 * KIB,
                                         .first = SPW_TIER_HOST, .lowest = SPW_TIER_HOST};
    ck_assert_uint_eq(spw__patience_ns(manager, &request), 0);
    expect_releases(1); /* too slow */
    ck_assert_uint_eq(spw__patience_ns(manager, &request), 0);
    expect_releases(UINT64_C(1) << 30);
    ck_assert_uint_gt(spw__patience_ns(manager, &request), 0);
    expect_releases(0);
    (void)ask(&asking);
    ck_assert_int_eq(asking.rc, SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 128 * KIB);
    must_release(asking.buffer);
    must_release(buffer);
}
END_TEST

START_TEST(nobody_is_asked_to_give_way_while_somebody_is_patient)
{
    open_manager(SMALL_HOST);
    spw_task *task = NULL;
    ck_assert_int_eq(spw_task_create(manager, NULL, &task), SPW_OK);
    struct asking asking = {.task = task};
    spw_buffer *buffer = must_make(SPW_HOST, 1024 * KIB, 1);
    expect_releases(UINT64_C(1) << 40);
    const pthread_t thread = must_start(ask, &asking); /* the only task waits, and a spill would still help it */
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asking.rc, SPW_OK);
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_eq(stats.retries, 0);
    ck_assert_uint_eq(stats.spills_chosen, 1);
    must_release(asking.buffer);
    must_release(buffer);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
}
END_TEST

static _Atomic uint64_t time_ns = 1000000;
static uint64_t read_time(const struct spw__clock *of)
{
    (void)of;
    return atomic_load(&time_ns);
}

START_TEST(the_rate_of_releases_is_measured)
{
    static const struct spw__clock clock = {.now_ns = read_time};
    const struct spw__env env = {.clock = &clock};
    open_env(&env, SMALL_HOST);
    ck_assert_uint_eq(spw__patience_rate(manager, SPW_TIER_HOST), 0);
    for (unsigned i = 0; i < 4; i++)
        must_release(must_alloc(SPW_HOST, 256 * KIB));
    (void)atomic_fetch_add(&time_ns, 999999);
    ck_assert_uint_eq(spw__patience_rate(manager, SPW_TIER_HOST), 0); /* too early to say */
    (void)atomic_fetch_add(&time_ns, 4000001 - 999999 - 1);
    ck_assert_uint_eq(spw__patience_rate(manager, SPW_TIER_HOST), 128 * KIB); /* half of a MiB in 4 ms, and 0 before */
    (void)atomic_fetch_add(&time_ns, 4000000);
    ck_assert_uint_eq(spw__patience_rate(manager, SPW_TIER_HOST), 64 * KIB);
    (void)atomic_fetch_add(&time_ns, UINT64_C(2000000000));
    ck_assert_uint_eq(spw__patience_rate(manager, SPW_TIER_HOST), 0);
}
END_TEST

START_TEST(what_comes_back_from_disk_within_a_second_is_counted)
{
    static const struct spw__clock clock = {.now_ns = read_time};
    const struct spw__env env = {.clock = &clock};
    open_env(&env, SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 100 * KIB, 1);
    push_out(SPW_HOST, 1024 * KIB);
    check_at(buffer, SPW_HOST, 1);
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_eq(stats.reloaded_within_1s_bytes, 100 * KIB);
    push_out(SPW_HOST, 1024 * KIB); /* a drop: the copy on disk is as old as it was */
    (void)atomic_fetch_add(&time_ns, UINT64_C(1000000000));
    check_at(buffer, SPW_HOST, 1);
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_eq(stats.reloaded_within_1s_bytes, 100 * KIB);
    must_release(buffer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("patience");
    TCase *tests = tcase_create("patience");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, where_releases_are_quicker_they_are_waited_for_and_nothing_is_spilled);
    tcase_add_test(tests, patience_ends_and_then_room_is_made);
    tcase_add_test(tests, without_releases_nobody_is_patient);
    tcase_add_test(tests, nobody_is_asked_to_give_way_while_somebody_is_patient);
    tcase_add_test(tests, the_rate_of_releases_is_measured);
    tcase_add_test(tests, what_comes_back_from_disk_within_a_second_is_counted);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
