/* Reclaimers: when they are called, by whom, for how much, and in which order. */
#include "reclaim_fixture.h"

#include "src/core/pressure.h"

START_TEST(it_is_called_for_the_deficit_alone_once_its_owner_waits)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 12, "join", 0);
    start(&wanted, 512 * KIB);
    until_waiting(1);
    spw__pressure_kick(manager, SPW_TIER_HOST); /* every occasion there is */
    ck_assert_uint_eq(atomic_load(&table.calls), 0); /* its owner runs */
    begin_outside(&table);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 256 * KIB);
    ck_assert(pthread_equal(table.caller, wanted.thread));
    ck_assert_uint_eq(table.n_blocks, 8);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reclaims, 1);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].reclaim_bytes, 256 * KIB);
    end_table(&table);
}
END_TEST

START_TEST(who_asks_while_its_owner_waits_already_calls_it_before_it_sleeps)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 16, "join", 0);
    begin_outside(&table);
    start(&wanted, 192 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 192 * KIB);
    end_table(&table);
}
END_TEST

START_TEST(a_task_that_no_thread_works_for_waits)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "idle", 0);
    ck_assert_int_eq(spw_task_detach(table.task), SPW_OK);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert(pthread_equal(table.caller, pthread_self()));
    must_release(buffer);
    ck_assert_int_eq(spw_task_attach(table.task), SPW_OK);
    end_table(&table);
}
END_TEST

/* A thread without a task waits on the task's behalf: that says nothing about the one that is attached. */
static void *want_for(void *arg)
{
    struct wanted *wanted = arg;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.task = wanted->task;
    wanted->rc = spw_alloc(manager, SPW_HOST, wanted->bytes, &options, &wanted->buffer);
    return NULL;
}

/* A thread that works for a task between two meetings. */
static pthread_barrier_t meeting;
static void *work(void *task)
{
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    (void)pthread_barrier_wait(&meeting);
    (void)pthread_barrier_wait(&meeting);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    return NULL;
}

START_TEST(a_wait_of_a_thread_that_is_not_attached_does_not_make_its_owner_wait)
{
    struct table table = {.calls = 0};
    build_table(&table, 16, "join", 0);
    spw_task *other = must_create_task("other", 0);
    ck_assert_int_eq(pthread_barrier_init(&meeting, NULL, 2), 0);
    const pthread_t worker = must_start(work, other);
    (void)pthread_barrier_wait(&meeting); /* it runs: the arbiter asks nobody */
    struct wanted wanted = {.bytes = 64 * KIB, .task = table.task}, more = {.over = false};
    wanted.thread = must_start(want_for, &wanted);
    until_waiting(1);
    start(&more, 64 * KIB);
    until_waiting(2);
    spw__pressure_kick(manager, SPW_TIER_HOST);
    ck_assert_uint_eq(atomic_load(&table.calls), 0);
    begin_outside(&table);
    join_thread(wanted.thread);
    ck_assert_int_eq(wanted.rc, SPW_OK);
    must_get(&more);
    end_outside(&table);
    must_release(wanted.buffer);
    (void)pthread_barrier_wait(&meeting);
    join_thread(worker);
    (void)pthread_barrier_destroy(&meeting);
    ck_assert_int_eq(spw_task_destroy(other), SPW_OK);
    end_table(&table);
}
END_TEST

START_TEST(nobody_who_cannot_wait_calls_one)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    spw_alloc_options options;
    build_table(&table, 16, "idle", 0);
    ck_assert_int_eq(spw_task_detach(table.task), SPW_OK);
    spw_alloc_options_init(&options);
    options.flags = SPW_NOWAIT;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, &options, &buffer), SPW_EAGAIN);
    ck_assert_int_eq(alloc_within(SPW_HOST, 64 * KIB, 0, &buffer), SPW_ENOMEM);
    ck_assert_uint_eq(table.calls, 0);
    ck_assert_int_eq(spw_task_attach(table.task), SPW_OK);
    end_table(&table);
}
END_TEST

START_TEST(a_task_gets_its_own_state_reclaimed_before_it_is_asked)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "alone", UINT64_MAX);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 128 * KIB);
    ck_assert_uint_eq(atomic_load(&table.task->retries), 0);
    must_release(buffer);
    end_table(&table);
}
END_TEST

START_TEST(one_that_frees_nothing_is_called_once_and_the_ladder_goes_on)
{
    struct table table = {.keeps = MIB};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "stubborn", 0);
    table.inside = NULL;
    table.keeps = MIB;
    table.lies = 0;
    const unsigned kept = atomic_exchange(&table.n_blocks, 0); /* it has them, and does not find them */
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_ERETRY);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_ESPLIT);
    ck_assert_uint_eq(table.calls, 2); /* its owner ran in between */
    atomic_store(&table.n_blocks, kept);
    end_table(&table);
}
END_TEST

START_TEST(where_nothing_that_is_freed_would_help_the_ladder_goes_on)
{
    struct table table = {.keeps = MIB};
    spw_buffer *buffer = NULL;
    close_manager();
    open_manager("device=512K; host=512K; driver=sim");
    build_table(&table, 1, "stubborn", 0);
    spw_buffer *held = must_alloc(SPW_DEVICE, 512 * KIB);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 256 * KIB), SPW_OK);
    const unsigned kept = atomic_exchange(&table.n_blocks, 0);
    ck_assert_int_eq(spw_admit(manager, 384 * KIB, NULL, &buffer), SPW_ERETRY); /* host is never large enough for it */
    ck_assert_uint_eq(table.calls, 1);
    atomic_store(&table.n_blocks, kept);
    must_release(held);
    end_table(&table);
}
END_TEST

START_TEST(one_that_says_more_than_it_frees_is_not_called_for_ever)
{
    struct table table = {.keeps = 0};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "liar", 0);
    const unsigned kept = atomic_exchange(&table.n_blocks, 0);
    table.keeps = table.lies = MIB;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_ERETRY);
    ck_assert_uint_eq(table.calls, 1);
    atomic_store(&table.n_blocks, kept);
    end_table(&table);
}
END_TEST

START_TEST(one_that_has_nothing_is_not_called)
{
    struct table table = {.keeps = 0};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "empty", 0);
    const unsigned kept = atomic_exchange(&table.n_blocks, 0);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_ERETRY);
    ck_assert_uint_eq(table.calls, 0);
    atomic_store(&table.n_blocks, kept);
    end_table(&table);
}
END_TEST

START_TEST(it_goes_before_spilling_when_it_costs_less)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 8, "cheap", 499999); /* nothing was measured: a spill is taken to cost 500000 */
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    begin_outside(&table);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(it_goes_after_spilling_when_it_costs_as_much)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 8, "dear", 500000);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    begin_outside(&table);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    ck_assert_uint_eq(table.calls, 0);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 256 * KIB);
    end_outside(&table);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(the_dearest_is_asked_for_what_spilling_leaves)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 8, "dear", UINT64_MAX);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    begin_outside(&table);
    start(&wanted, 768 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.n_blocks, 4); /* what was freed is not yet gone for a moment: it may take two calls */
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 512 * KIB);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(what_spills_took_decides_once_they_were_measured)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    const unsigned edge = SPW__CORE_MOVER + SPW__MOVER_EDGES + 3 * (SPW_TIER_HOST * SPW_TIER_COUNT + SPW_TIER_DISK);
    build_table(&table, 8, "middling", 4000000);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    spw__core_count(manager, edge + 1, MIB);
    spw__core_count(manager, edge + 2, 4000001); /* a slow disk */
    begin_outside(&table);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(clean_copies_go_before_it)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    spw_buffer *cold = must_make(SPW_HOST, 256 * KIB, 1);
    push_out(SPW_HOST, 1024 * KIB);
    build_table(&table, 12, "free", 0);
    check_at(cold, SPW_HOST, 1); /* back, with its copy on disk */
    begin_outside(&table);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 0);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->drop_bytes, 256 * KIB);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(among_reclaimers_cost_then_priority_then_youth_decide)
{
    static const struct {
        uint64_t cost;
        int64_t task_priority, priority;
    } kinds[] = {{5, 0, SPW_RECLAIMER_PRIORITY_TASK}, {4, 3, SPW_RECLAIMER_PRIORITY_TASK}, {4, 9, 2},
                 {4, 2, SPW_RECLAIMER_PRIORITY_TASK}};
    static const unsigned order[] = {3, 2, 1, 0}; /* 3 is younger than 2, and as important */
    struct table tables[4] = {{.calls = 0}};
    spw_buffer *more = NULL, *held[4];
    for (unsigned i = 0; i < 4; i++) {
        spw_reclaimer_options options = options_for(&tables[i], "one of four", kinds[i].cost);
        options.priority = kinds[i].priority;
        tables[i].task = must_create_task("idle", kinds[i].task_priority);
        build_blocks(&tables[i], 4);
        must_register(&tables[i], &options);
    }
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &held[i]), SPW_OK);
        for (unsigned j = 0; j < 4; j++)
            ck_assert_uint_eq(tables[order[j]].calls, j <= i ? 1 : 0);
    }
    ck_assert_int_eq(alloc_within(SPW_HOST, 64 * KIB, 1, &more), SPW_ENOMEM);
    for (unsigned i = 0; i < 4; i++) {
        must_release(held[i]);
        drop_table(&tables[i]);
        ck_assert_int_eq(spw_task_destroy(tables[i].task), SPW_OK);
    }
}
END_TEST

START_TEST(several_are_called_for_what_one_cannot_free)
{
    struct table tables[3] = {{.calls = 0}};
    spw_buffer *buffer = NULL;
    for (unsigned i = 0; i < 3; i++) {
        const spw_reclaimer_options options = options_for(&tables[i], "one of three", 3 - i);
        tables[i].task = must_create_task("idle", 0);
        build_blocks(&tables[i], 5);
        must_register(&tables[i], &options);
    }
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(tables[2].asked[0], 320 * KIB); /* what it said that it had, of 448 */
    ck_assert_uint_eq(tables[1].asked[0], 128 * KIB);
    ck_assert_uint_eq(tables[0].calls, 0);
    must_release(buffer);
    for (unsigned i = 0; i < 3; i++) {
        drop_table(&tables[i]);
        ck_assert_int_eq(spw_task_destroy(tables[i].task), SPW_OK);
    }
}
END_TEST

START_TEST(a_place_too_fragmented_is_reclaimed_before_anybody_is_asked)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    build_table(&table, 16, "scattered", UINT64_MAX);
    for (unsigned i = 0; i < 12; i += 2) { /* every other one is free */
        ck_assert_int_eq(spw_pool_free(manager, &table.blocks[i], NULL), SPW_OK);
        table.blocks[i] = table.blocks[15 - i / 2];
        (void)atomic_fetch_sub(&table.n_blocks, 1);
    }
    const int rc = spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &buffer);
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
    ck_assert_uint_ge(table.calls, 1);
    ck_assert_uint_eq(atomic_load(&table.task->retries), 0);
    must_release(buffer);
    end_table(&table);
}
END_TEST

START_TEST(without_a_thread_of_the_library_the_waiting_one_calls_it_as_well)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    close_manager();
    open_manager(SMALL_HOST "; threads=0");
    build_table(&table, 8, "dear", UINT64_MAX);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 768 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(table.asked[0], 256 * KIB);
    must_release(buffer);
    check_at(cold, SPW_HOST, 1);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(where_nothing_can_be_spilled_it_is_all_there_is)
{
    struct table table = {.calls = 0};
    spw_buffer *buffer = NULL;
    close_manager();
    open_manager("host=1M");
    build_table(&table, 8, "dear", UINT64_MAX);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(table.calls, 1);
    must_release(buffer);
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(where_the_disk_is_full_it_is_called_before_anybody_is_refused)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 8, "dear", UINT64_MAX);
    spw_buffer *cold = must_make(SPW_HOST, 512 * KIB, 1);
    begin_outside(&table);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    spw__fault_disarm(SPW__FAULT_STORE_SPACE);
    end_outside(&table);
    ck_assert_uint_eq(table.n_blocks, 4); /* for the deficit alone, if in two calls: writes that fail come late */
    must_release(cold);
    end_table(&table);
}
END_TEST

START_TEST(a_window_is_made_of_what_it_frees_though_no_task_waits)
{
    struct table table = {.calls = 0};
    struct wanted wanted = {.over = false};
    build_table(&table, 16, "scattered", UINT64_MAX);
    for (unsigned i = 0; i < 12; i += 2) { /* every other one is free */
        ck_assert_int_eq(spw_pool_free(manager, &table.blocks[i], NULL), SPW_OK);
        table.blocks[i] = table.blocks[15 - i / 2];
        (void)atomic_fetch_sub(&table.n_blocks, 1);
    }
    begin_outside(&table);
    start(&wanted, 256 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_ge(table.calls, 1);
    end_table(&table);
}
END_TEST

static Suite *suite(void)
{
    Suite *made = suite_create("reclaim");
    TCase *tcase = tcase_create("choice");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, it_is_called_for_the_deficit_alone_once_its_owner_waits);
    tcase_add_test(tcase, who_asks_while_its_owner_waits_already_calls_it_before_it_sleeps);
    tcase_add_test(tcase, a_task_that_no_thread_works_for_waits);
    tcase_add_test(tcase, a_wait_of_a_thread_that_is_not_attached_does_not_make_its_owner_wait);
    tcase_add_test(tcase, nobody_who_cannot_wait_calls_one);
    tcase_add_test(tcase, a_task_gets_its_own_state_reclaimed_before_it_is_asked);
    tcase_add_test(tcase, one_that_frees_nothing_is_called_once_and_the_ladder_goes_on);
    tcase_add_test(tcase, where_nothing_that_is_freed_would_help_the_ladder_goes_on);
    tcase_add_test(tcase, one_that_says_more_than_it_frees_is_not_called_for_ever);
    tcase_add_test(tcase, one_that_has_nothing_is_not_called);
    tcase_add_test(tcase, it_goes_before_spilling_when_it_costs_less);
    tcase_add_test(tcase, it_goes_after_spilling_when_it_costs_as_much);
    tcase_add_test(tcase, the_dearest_is_asked_for_what_spilling_leaves);
    tcase_add_test(tcase, what_spills_took_decides_once_they_were_measured);
    tcase_add_test(tcase, clean_copies_go_before_it);
    tcase_add_test(tcase, among_reclaimers_cost_then_priority_then_youth_decide);
    tcase_add_test(tcase, several_are_called_for_what_one_cannot_free);
    tcase_add_test(tcase, a_place_too_fragmented_is_reclaimed_before_anybody_is_asked);
    tcase_add_test(tcase, a_window_is_made_of_what_it_frees_though_no_task_waits);
    tcase_add_test(tcase, without_a_thread_of_the_library_the_waiting_one_calls_it_as_well);
    tcase_add_test(tcase, where_nothing_can_be_spilled_it_is_all_there_is);
    tcase_add_test(tcase, where_the_disk_is_full_it_is_called_before_anybody_is_refused);
    suite_add_tcase(made, tcase);
    return made;
}

int main(void)
{
    return run_suite(suite());
}
