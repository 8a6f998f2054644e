/* Groups: what is set aside for one is there at once, and a group that is gone is known as such. */
#include "group_fixture.h"

static uint64_t read_time(const struct spw__clock *of)
{
    (void)of;
    return 1;
}

static void *wait_for_half(void *arg)
{
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, arg), SPW_OK);
    return NULL;
}

START_TEST(what_is_set_aside_is_had_at_once_even_while_all_else_is_kept_for_who_waits_longest)
{
    static const struct spw__clock clock = {.now_ns = read_time};
    static const struct spw__env env = {.clock = &clock};
    spw_group *group = NULL;
    spw_buffer *large = NULL, *small = NULL;
    spw_alloc_options alloc;
    spw_reserve_options reserve;
    spw_reservation *promise = NULL;
    open_env(&env, SMALL_HOST); /* time stands still: the barrier does not lapse */
    ck_assert_int_eq(create_group("safe", NULL, 256 * KIB, SPW_NO_LIMIT, 1, 0, &group), SPW_OK);
    spw_buffer *held = must_alloc(SPW_HOST, 640 * KIB);
    const pthread_t thread = must_start(wait_for_half, &large);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)))
        (void)sched_yield();
    spw_alloc_options_init(&alloc);
    alloc.flags = SPW_NOWAIT;
    for (unsigned i = 0; i < SPW__WAIT_PASS_MAX; i++) {
        ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, &alloc, &small), SPW_OK);
        must_release(small);
    }
    ck_assert(spw__waitset_barred(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)));
    spw_reserve_options_init(&reserve);
    reserve.flags = SPW_RESERVE_TRY;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 64 * KIB, &reserve, &promise), SPW_EAGAIN);
    reserve.group = group;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 256 * KIB, &reserve, &promise), SPW_OK);
    ck_assert_int_eq(spw_reservation_release(promise), SPW_OK);
    must_release(held);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    must_release(large);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_group_that_was_destroyed_is_recognised)
{
    spw_group *group = NULL, *child = NULL;
    spw_group_options options;
    spw_task_options of_task;
    spw_task *task = NULL;
    spw_buffer *buffer = NULL;
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    open_manager(SMALL_HOST);
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    must_destroy(group);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_group_cancel(group), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_group_usage_get(group, SPW_HOST, &usage), SPW_EBADHANDLE);
    ck_assert_int_eq(alloc_in(group, 100, 0, &buffer), SPW_EBADHANDLE);
    spw_group_options_init(&options);
    options.parent = group;
    ck_assert_int_eq(spw_group_create(manager, &options, &child), SPW_EBADHANDLE);
    spw_task_options_init(&of_task);
    of_task.group = group;
    ck_assert_int_eq(spw_task_create(manager, &of_task, &task), SPW_EBADHANDLE);
    bool again = false;
    for (unsigned i = 0; i < 40; i++) { /* the memory of the dead is used again, but not at once */
        ck_assert_int_eq(spw_group_create(manager, NULL, &child), SPW_OK);
        ck_assert(i >= 30 || child != group);
        again |= child == group;
        must_destroy(child);
    }
    ck_assert(again);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_promise");
    TCase *tcase = tcase_create("group_promise");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_is_set_aside_is_had_at_once_even_while_all_else_is_kept_for_who_waits_longest);
    tcase_add_test(tcase, a_group_that_was_destroyed_is_recognised);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
