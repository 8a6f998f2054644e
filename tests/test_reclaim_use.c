/* Reclaimers in use: what a callback may do, and who waits for it meanwhile. */
#include "reclaim_fixture.h"

#include "src/core/pressure.h"

static void allocate_inside(struct table *table)
{
    spw_block scratch, more;
    spw_buffer *buffer = NULL;
    spw_reservation *reservation = NULL;
    const spw_error_info *detail = spw_error_detail();
    (void)table;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 32 * KIB, 0, NULL, NULL, &scratch), SPW_OK);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 32 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 64, 0, NULL, NULL, &more), SPW_ENOMEM);
    ck_assert_ptr_nonnull(strstr(detail->message, "inside the reclaimer \"join\", whose reserve has 0 of 65536 bytes"));
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64, NULL, &reservation), SPW_ENOMEM);
    ck_assert_int_eq(spw_pool_free(manager, &scratch, NULL), SPW_OK); /* fills it up again */
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 32 * KIB, 0, NULL, NULL, &scratch), SPW_OK);
    ck_assert_int_eq(spw_pool_free(manager, &scratch, NULL), SPW_OK);
    must_release(buffer);
}

START_TEST(what_is_allocated_inside_comes_out_of_its_reserve_or_fails_at_once)
{
    struct table table = {.inside = allocate_inside};
    build_with_reserve(&table, 15);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(table.calls, 1);
    /* What the buffer took of it the first block that was freed filled up. */
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 64 * KIB);
    let_others_have(&table, 128 * KIB);
    ck_assert_uint_eq(table.calls, 2);
    end_table(&table);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 0);
}
END_TEST

static spw_block kept;

static void keep_a_block(struct table *table)
{
    if (atomic_load(&table->calls) == 1)
        ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 32 * KIB, 0, NULL, NULL, &kept), SPW_OK);
}

START_TEST(a_reserve_that_was_spent_is_filled_up_before_others_get_anything)
{
    struct table table = {.inside = keep_a_block};
    build_with_reserve(&table, 15);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 64 * KIB);
    ck_assert_uint_eq(table.n_blocks, 13);
    ck_assert_uint_eq(table.calls, 2); /* the others lacked what the reserve had got of the first block */
    ck_assert_uint_eq(table.asked[1], 32 * KIB);
    ck_assert_int_eq(spw_pool_free(manager, &kept, NULL), SPW_OK);
    end_table(&table);
}
END_TEST

static void allocate_without_reserve(struct table *table)
{
    spw_block scratch;
    spw_reservation *reservation = NULL;
    spw_reserve_options options;
    (void)table;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 64, 0, NULL, NULL, &scratch), SPW_ENOMEM);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "raise options.reserve_bytes"));
    spw_reserve_options_init(&options);
    options.flags = SPW_RESERVE_OVERBOOK;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64, &options, &reservation), SPW_ENOMEM);
    options.flags = SPW_RESERVE_UPTO;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64, &options, &reservation), SPW_ENOMEM);
    ck_assert_ptr_null(reservation);
}

START_TEST(without_a_reserve_nothing_can_be_allocated_inside)
{
    struct table table = {.inside = allocate_without_reserve};
    build_table(&table, 16, "join", 0);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(table.calls, 1);
    end_table(&table);
}
END_TEST

static void allocate_elsewhere(struct table *table)
{
    spw_block scratch;
    (void)table;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_PINNED_HOST, 64, 0, NULL, NULL, &scratch), SPW_ENOMEM);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 4 * MIB, 0, NULL, NULL, &scratch), SPW_ENOMEM);
}

START_TEST(the_reserve_is_of_its_own_place)
{
    struct table table = {.inside = allocate_elsewhere};
    close_manager();
    open_manager("pinned=1M; host=1M");
    build_with_reserve(&table, 15);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(table.calls, 1);
    end_table(&table);
}
END_TEST

static spw_buffer *spilled;

static void read_inside(struct table *table)
{
    if (atomic_load(&table->calls) == 1)
        check_at(spilled, SPW_HOST, 3);
}

START_TEST(what_was_spilled_can_be_read_inside_into_the_reserve)
{
    struct table table = {.inside = read_inside};
    spilled = must_make(SPW_HOST, 64 * KIB, 3);
    push_out(SPW_HOST, 1024 * KIB);
    build_with_reserve(&table, 15);
    struct wanted wanted = {.task = must_create_task("asks", 0)}; /* its thread waits for room, and then for the move */
    begin_outside(&table);
    start(&wanted, 64 * KIB);
    must_get(&wanted);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(edge_now(SPW_TIER_DISK, SPW_TIER_HOST)->bytes, 64 * KIB);
    ck_assert_int_eq(spw_task_destroy(wanted.task), SPW_OK);
    end_table(&table);
    must_release(spilled);
}
END_TEST

static struct table *other_table;

static void ask_inside(struct table *table)
{
    uint64_t bytes = 1;
    spw_buffer *buffer = NULL;
    spw_ticket *ticket = NULL;
    spw_wait_options wait = {.timeout_ms = 0};
    spw_task *own = table->task;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, NULL, &buffer), SPW_ENOMEM); /* it would be a wait */
    ck_assert_int_eq(spw_task_pressure(own, SPW_HOST, &bytes), SPW_EINVAL); /* another task's thread */
    ck_assert_int_eq(spw_task_attach(own), SPW_EINVAL);
    ck_assert_int_eq(spw_alloc_start(manager, SPW_HOST, 64 * KIB, NULL, &ticket), SPW_EINVAL);
    ck_assert_ptr_null(ticket);
    ck_assert_int_eq(spw_task_wait_turn(own, &wait), SPW_EINVAL);
    ck_assert_uint_eq(atomic_load(&other_table->calls), 0);
}

START_TEST(inside_a_callback_nobody_else_is_called_and_nothing_waits)
{
    struct table table = {.inside = ask_inside}, other = {.calls = 0};
    spw_reclaimer_options options = options_for(&other, "other", 1);
    other_table = &other;
    other.task = must_create_task("idle", 0);
    build_blocks(&other, 8);
    must_register(&other, &options);
    build_table(&table, 8, "join", 0);
    let_others_have(&table, 64 * KIB);
    ck_assert_uint_eq(table.calls, 1);
    ck_assert_uint_eq(other.calls, 0);
    end_table(&table);
    drop_table(&other);
    ck_assert_int_eq(spw_task_destroy(other.task), SPW_OK);
}
END_TEST

START_TEST(who_comes_second_does_not_call_it_as_well)
{
    struct table table = {.inside = stay_inside};
    struct wanted first = {.over = false}, second = {.over = false};
    begin_stays();
    build_table(&table, 16, "join", 0);
    begin_outside(&table);
    start(&first, 128 * KIB);
    (void)pthread_barrier_wait(&entered);
    start(&second, 128 * KIB);
    until_waiting(2);
    spw__pressure_kick(manager, SPW_TIER_HOST);
    ck_assert_uint_eq(atomic_load(&table.calls), 1);
    ck_assert(!atomic_load(&second.over));
    (void)pthread_barrier_wait(&leaving);
    (void)pthread_barrier_wait(&entered); /* what it then lacks itself */
    (void)pthread_barrier_wait(&leaving);
    must_get(&first);
    must_get(&second);
    end_outside(&table);
    ck_assert_uint_eq(table.calls, 2);
    ck_assert_uint_eq(table.asked[0], 128 * KIB);
    ck_assert_uint_eq(table.asked[1], 128 * KIB);
    end_table(&table);
    end_stays();
}
END_TEST

static atomic_bool returned; /* the owner, from its wait */

static void until_its_wait_is_over(struct table *table)
{
    while (!task_runs(table->task))
        (void)sched_yield();
    for (unsigned i = 0; i < 2000; i++) { /* time enough to go on, if it could: it never may */
        (void)sched_yield();
        ck_assert(!atomic_load(&returned));
    }
}

static void *come_back(void *arg)
{
    const struct table *table = arg;
    ck_assert_int_eq(spw_task_attach(table->task), SPW_OK);
    atomic_store(&returned, true);
    ck_assert_int_eq(spw_task_detach(table->task), SPW_OK);
    return NULL;
}

START_TEST(a_thread_that_comes_to_its_task_waits_until_the_callback_is_over)
{
    struct table table = {.inside = stay_inside};
    struct wanted wanted = {.over = false};
    begin_stays();
    build_table(&table, 16, "join", 0);
    ck_assert_int_eq(spw_task_detach(table.task), SPW_OK);
    start(&wanted, 64 * KIB);
    (void)pthread_barrier_wait(&entered);
    const pthread_t thread = must_start(come_back, &table);
    until_its_wait_is_over(&table);
    (void)pthread_barrier_wait(&leaving);
    join_thread(thread);
    must_get(&wanted);
    ck_assert_int_eq(spw_task_attach(table.task), SPW_OK);
    end_table(&table);
    end_stays();
}
END_TEST

START_TEST(its_owner_does_not_end_a_wait_outside_while_it_runs)
{
    struct table table = {.inside = until_its_wait_is_over};
    struct wanted wanted = {.over = false};
    build_table(&table, 16, "join", 0);
    begin_outside(&table);
    start(&wanted, 64 * KIB);
    while (atomic_load(&table.calls) == 0)
        (void)sched_yield();
    end_outside(&table);
    atomic_store(&returned, true);
    ck_assert_uint_eq(atomic_load(&running), 0);
    must_get(&wanted);
    end_table(&table);
}
END_TEST

/* The owner waits for room, which the callback's first block is; it then stays until the owner's wait is over. */
static void free_and_stay(struct table *table)
{
    const unsigned last = atomic_fetch_sub(&table->n_blocks, 1) - 1;
    ck_assert_int_eq(spw_pool_free(manager, &table->blocks[last], NULL), SPW_OK);
    until_its_wait_is_over(table);
}

static void *own(void *arg)
{
    struct table *table = arg;
    spw_buffer *buffer = NULL;
    build_table(table, 16, "join", 0);
    (void)pthread_barrier_wait(&entered);
    (void)pthread_barrier_wait(&leaving);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, NULL, &buffer), SPW_OK);
    atomic_store(&returned, true);
    ck_assert_uint_eq(atomic_load(&running), 0);
    must_release(buffer);
    end_table(table);
    return NULL;
}

START_TEST(its_owner_does_not_come_out_of_a_request_while_it_runs)
{
    struct table table = {.inside = free_and_stay};
    struct wanted wanted = {.over = false};
    begin_stays();
    const pthread_t owner = must_start(own, &table);
    (void)pthread_barrier_wait(&entered);
    start(&wanted, 128 * KIB);
    until_waiting(1);
    (void)pthread_barrier_wait(&leaving);
    join_thread(owner);
    must_get(&wanted);
    ck_assert(pthread_equal(table.caller, wanted.thread)); /* it waited longer */
    end_stays();
}
END_TEST

static Suite *suite(void)
{
    Suite *made = suite_create("reclaim_use");
    TCase *tcase = tcase_create("callbacks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_allocated_inside_comes_out_of_its_reserve_or_fails_at_once);
    tcase_add_test(tcase, a_reserve_that_was_spent_is_filled_up_before_others_get_anything);
    tcase_add_test(tcase, without_a_reserve_nothing_can_be_allocated_inside);
    tcase_add_test(tcase, the_reserve_is_of_its_own_place);
    tcase_add_test(tcase, what_was_spilled_can_be_read_inside_into_the_reserve);
    tcase_add_test(tcase, inside_a_callback_nobody_else_is_called_and_nothing_waits);
    tcase_add_test(tcase, who_comes_second_does_not_call_it_as_well);
    tcase_add_test(tcase, a_thread_that_comes_to_its_task_waits_until_the_callback_is_over);
    tcase_add_test(tcase, its_owner_does_not_end_a_wait_outside_while_it_runs);
    tcase_add_test(tcase, its_owner_does_not_come_out_of_a_request_while_it_runs);
    suite_add_tcase(made, tcase);
    return made;
}

int main(void)
{
    return run_suite(suite());
}
