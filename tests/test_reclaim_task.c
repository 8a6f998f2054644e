/* Reclaimers from registration to their end, in groups, and on request of their own task. */
#include "reclaim_fixture.h"

static void end_from_inside(struct table *table)
{
    ck_assert_int_eq(spw_reclaimer_unregister(table->reclaimer), SPW_OK);
    ck_assert_int_eq(spw_reclaimer_unregister(table->reclaimer), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_task_destroy(table->task), SPW_EBUSY);
}

START_TEST(one_that_ends_itself_is_not_called_again)
{
    struct table table = {.inside = end_from_inside};
    spw_buffer *buffer = NULL;
    build_with_reserve(&table, 15);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 0);
    begin_outside(&table);
    end_outside(&table);
    ck_assert_int_eq(alloc_within(SPW_HOST, 512 * KIB, 1, &buffer), SPW_ERETRY); /* its owner alone is there */
    ck_assert_uint_eq(table.calls, 1);
    table.reclaimer = NULL;
    end_table(&table);
}
END_TEST

static atomic_bool unregistered;

static void *unregister(void *arg)
{
    struct table *table = arg;
    ck_assert_int_eq(spw_reclaimer_unregister(table->reclaimer), SPW_OK);
    ck_assert_uint_eq(atomic_load(&running), 0);
    atomic_store(&unregistered, true);
    return NULL;
}

START_TEST(ending_one_that_runs_waits_until_it_is_over)
{
    struct table table = {.inside = stay_inside};
    struct wanted wanted = {.over = false};
    begin_stays();
    build_table(&table, 16, "join", 0);
    begin_outside(&table);
    start(&wanted, 64 * KIB);
    (void)pthread_barrier_wait(&entered);
    const pthread_t thread = must_start(unregister, &table);
    while (atomic_load(&manager->reclaim.n[SPW_TIER_HOST]) != 0)
        (void)sched_yield();
    ck_assert(!atomic_load(&unregistered));
    (void)pthread_barrier_wait(&leaving);
    join_thread(thread);
    must_get(&wanted);
    end_outside(&table);
    table.reclaimer = NULL;
    end_table(&table);
    end_stays();
}
END_TEST

START_TEST(a_task_that_is_asked_for_pressure_frees_what_others_lack)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    uint64_t bytes = 1;
    build_table(&table, 12, "join", 0);
    ck_assert_int_eq(spw_task_pressure(table.task, SPW_HOST, &bytes), SPW_OK);
    ck_assert_uint_eq(bytes, 0);
    start(&wanted, 512 * KIB);
    until_waiting(1);
    ck_assert_int_eq(spw_task_pressure(table.task, SPW_HOST, &bytes), SPW_OK);
    ck_assert_uint_eq(bytes, 256 * KIB);
    must_get(&wanted);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 256 * KIB);
    ck_assert(pthread_equal(table.caller, pthread_self()));
    ck_assert_int_eq(spw_task_pressure(table.task, SPW_HOST, NULL), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    end_table(&table);
}
END_TEST

START_TEST(one_that_freed_too_little_for_pressure_is_asked_again_the_next_time)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    uint64_t bytes = 0;
    build_table(&table, 16, "join", 0);
    const unsigned n_blocks = atomic_exchange(&table.n_blocks, 0);
    table.keeps = MIB;
    start(&wanted, 64 * KIB);
    until_waiting(1);
    ck_assert_int_eq(spw_task_pressure(table.task, SPW_HOST, &bytes), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    atomic_store(&table.n_blocks, n_blocks);
    ck_assert_int_eq(spw_task_pressure(table.task, SPW_HOST, &bytes), SPW_OK);
    ck_assert_uint_eq(bytes, 64 * KIB);
    ck_assert_uint_eq(table.calls, 2);
    must_get(&wanted);
    end_table(&table);
}
END_TEST

START_TEST(pressure_is_asked_by_a_thread_of_the_task_that_works)
{
    uint64_t bytes = 1;
    spw_task *task = must_create_task("scan", 0);
    ck_assert_int_eq(spw_task_pressure(NULL, SPW_HOST, &bytes), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_task_pressure(task, SPW_HOST, &bytes), SPW_EINVAL);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    ck_assert_int_eq(spw_task_pressure(task, SPW_DISK, &bytes), SPW_EINVAL);
    ck_assert_int_eq(spw_task_block_begin(task, "a message"), SPW_OK);
    ck_assert_int_eq(spw_task_pressure(task, SPW_HOST, &bytes), SPW_EINVAL);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_int_eq(spw_task_block_end(task), SPW_OK);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
}
END_TEST

START_TEST(what_cannot_be_registered_is_refused)
{
    struct table table = {.task = must_create_task("join", 0)};
    spw_reclaimer *reclaimer = &(spw_reclaimer){.running = false};
    spw_reclaimer_options options = options_for(&table, "join", 0);
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_reclaimer_register(NULL, &options, &reclaimer), SPW_EBADHANDLE);
    ck_assert_ptr_null(reclaimer);
    ck_assert_int_eq(spw_reclaimer_register(table.task, NULL, &reclaimer), SPW_EINVAL);
    options.estimate = NULL;
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &reclaimer), SPW_EINVAL);
    options = options_for(&table, "thirty-two bytes are one too many", 0);
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &reclaimer), SPW_EINVAL);
    options = options_for(&table, NULL, 0);
    options.place = SPW_DISK;
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &reclaimer), SPW_EINVAL);
    options.place = SPW_HOST;
    options.reserved = 1;
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &reclaimer), SPW_EINVAL);
    options.reserved = 0;
    options.reserve_bytes = 2 * MIB;
    ck_assert_int_eq(spw_reclaimer_register(table.task, &options, &reclaimer), SPW_ETOOBIG);
    options.reserve_bytes = 0;
    must_register(&table, &options);
    ck_assert_int_eq(spw_task_destroy(table.task), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "has reclaimers"));
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "the reclaimer \"\" of the task \"join\""));
    ck_assert_int_eq(spw_reclaimer_unregister(table.reclaimer), SPW_OK);
    ck_assert_int_eq(spw_reclaimer_unregister(table.reclaimer), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reclaimer_unregister(&(spw_reclaimer){.running = false}), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_reclaimer_unregister(NULL), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(table.task), SPW_OK);
}
END_TEST

START_TEST(without_metadata_memory_nothing_is_registered)
{
    struct table table = {.task = must_create_task("join", 0)};
    spw_reclaimer_options options = options_for(&table, "join", 0);
    options.reserve_bytes = 64 * KIB;
    const uint64_t before = committed(SPW_TIER_HOST);
    for (long nth = 1;; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 0, ENOMEM);
        const int rc = spw_reclaimer_register(table.task, &options, &table.reclaimer);
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        if (rc == SPW_OK)
            break;
        ck_assert_int_eq(rc, SPW_ENOMETA);
        ck_assert_ptr_null(table.reclaimer);
        ck_assert_uint_eq(committed(SPW_TIER_HOST), before);
    }
    ck_assert_uint_eq(committed(SPW_TIER_HOST), before + 64 * KIB);
    ck_assert_int_eq(spw_reclaimer_unregister(table.reclaimer), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), before);
    ck_assert_int_eq(spw_task_destroy(table.task), SPW_OK);
}
END_TEST

START_TEST(a_forced_destroy_forgets_reclaimers)
{
    struct table table = {.calls = 0};
    build_table(&table, 4, "join", 0);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

static spw_task *must_task_in(spw_group *group, const char *name)
{
    spw_task *task = NULL;
    spw_task_options options;
    spw_task_options_init(&options);
    options.name = name;
    options.group = group;
    ck_assert_int_eq(spw_task_create(manager, &options, &task), SPW_OK);
    return task;
}

static spw_group *must_group(const char *name, uint64_t min_bytes, uint64_t max_bytes)
{
    spw_group *group = NULL;
    spw_group_options options;
    spw_group_options_init(&options);
    options.name = name;
    options.shares[SPW_TIER_HOST].min_bytes = min_bytes;
    options.shares[SPW_TIER_HOST].max_bytes = max_bytes;
    const int rc = spw_group_create(manager, &options, &group);
    ck_assert_msg(rc == SPW_OK, "group: %s", spw_error_detail()->message);
    return group;
}

/* State of a task of group's, which no thread works for. */
static void build_in(struct table *table, spw_group *group, unsigned n_blocks, uint64_t cost)
{
    const spw_reclaimer_options options = options_for(table, "of a group", cost);
    table->task = must_task_in(group, "of a group");
    ck_assert_int_eq(spw_task_attach(table->task), SPW_OK);
    build_blocks(table, n_blocks);
    must_register(table, &options);
    ck_assert_int_eq(spw_task_detach(table->task), SPW_OK);
}

static void end_in(struct table *table)
{
    drop_table(table);
    ck_assert_int_eq(spw_task_destroy(table->task), SPW_OK);
}

START_TEST(a_group_over_its_maximum_reclaims_from_itself)
{
    struct table inside = {.calls = 0}, outside = {.calls = 0};
    spw_group *group = must_group("small", 0, 512 * KIB);
    build_in(&inside, group, 6, 9);
    build_in(&outside, NULL, 4, 1); /* cheaper, and of no use */
    struct wanted wanted = {.task = must_task_in(group, "asks")};
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    ck_assert_uint_eq(outside.calls, 0);
    ck_assert_uint_eq(inside.calls, 1);
    ck_assert_uint_eq(inside.asked[0], 128 * KIB);
    ck_assert_int_eq(spw_task_destroy(wanted.task), SPW_OK);
    end_in(&inside);
    end_in(&outside);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
}
END_TEST

START_TEST(no_group_is_reclaimed_below_its_minimum_for_others)
{
    struct table safe = {.calls = 0}, other = {.calls = 0};
    spw_buffer *buffer = NULL, *more = NULL;
    spw_group *group = must_group("safe", 512 * KIB, SPW_NO_LIMIT);
    build_in(&safe, group, 8, 0);
    build_in(&other, NULL, 8, 9);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(safe.calls, 0);
    ck_assert_uint_eq(other.calls, 1);
    ck_assert_int_eq(alloc_within(SPW_HOST, 640 * KIB, 1, &more), SPW_ETOOBIG); /* minima are not to be had */
    ck_assert_int_eq(alloc_within(SPW_HOST, 448 * KIB, 1, &more), SPW_ENOMEM);
    ck_assert_uint_eq(safe.calls, 0);
    struct wanted wanted = {.task = must_task_in(group, "asks")}; /* its own group may go below */
    start(&wanted, 448 * KIB);
    must_get(&wanted);
    ck_assert_uint_ge(safe.calls, 1);
    ck_assert_int_eq(spw_task_destroy(wanted.task), SPW_OK);
    must_release(buffer);
    end_in(&safe);
    end_in(&other);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
}
END_TEST

START_TEST(where_only_minima_are_left_the_arbiter_goes_on)
{
    struct table safe = {.calls = 0};
    spw_buffer *more = NULL;
    spw_group *group = must_group("safe", 512 * KIB, SPW_NO_LIMIT);
    build_in(&safe, group, 8, 0);
    spw_task *task = must_create_task("asks", 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = must_alloc(SPW_HOST, 512 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, NULL, &more), SPW_ERETRY);
    ck_assert_uint_eq(safe.calls, 0);
    must_release(held);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    end_in(&safe);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
}
END_TEST

static Suite *suite(void)
{
    Suite *made = suite_create("reclaim_task");
    TCase *tcase = tcase_create("lives");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, one_that_ends_itself_is_not_called_again);
    tcase_add_test(tcase, ending_one_that_runs_waits_until_it_is_over);
    tcase_add_test(tcase, a_task_that_is_asked_for_pressure_frees_what_others_lack);
    tcase_add_test(tcase, one_that_freed_too_little_for_pressure_is_asked_again_the_next_time);
    tcase_add_test(tcase, pressure_is_asked_by_a_thread_of_the_task_that_works);
    tcase_add_test(tcase, what_cannot_be_registered_is_refused);
    tcase_add_test(tcase, without_metadata_memory_nothing_is_registered);
    tcase_add_test(tcase, a_forced_destroy_forgets_reclaimers);
    tcase_add_test(tcase, a_group_over_its_maximum_reclaims_from_itself);
    tcase_add_test(tcase, no_group_is_reclaimed_below_its_minimum_for_others);
    tcase_add_test(tcase, where_only_minima_are_left_the_arbiter_goes_on);
    suite_add_tcase(made, tcase);
    return made;
}

int main(void)
{
    return run_suite(suite());
}
