/* Groups beside what else there is: tasks and reservations, which are charged to them, several tiers, and holes. */
#include "tests/group_fixture.h"

static spw_task *must_task(const char *name, spw_group *group)
{
    spw_task_options options;
    spw_task *task = NULL;
    spw_task_options_init(&options);
    options.name = name;
    options.group = group;
    const int rc = spw_task_create(manager, &options, &task);
    ck_assert_msg(rc == SPW_OK, "task: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return task;
}

static int reserve_in(spw_group *group, spw_task *task, uint64_t bytes, uint32_t flags, spw_reservation **out)
{
    spw_reserve_options options;
    spw_reserve_options_init(&options);
    options.group = group;
    options.flags = flags;
    options.wait.task = task;
    options.wait.timeout_ms = 0;
    return spw_reserve(manager, SPW_HOST, bytes, &options, out);
}

START_TEST(what_a_task_holds_is_charged_to_its_group)
{
    spw_alloc_options options;
    spw_buffer *buffer;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("of tasks", NULL, 0, 4 * PIECE, 1);
    spw_task *task = must_task("scan", group);
    spw_alloc_options_init(&options);
    options.wait.task = task;
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 3 * PIECE, &options, &buffer), SPW_OK);
    ck_assert_uint_eq(held(group), 3 * PIECE);
    spw_buffer *none = NULL;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 2 * PIECE, &options, &none), SPW_ENOMEM);
    ck_assert_str_eq(spw_error_detail()->group, "of tasks");
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"scan\""));
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK); /* the buffer outlives it, and its charge does */
    ck_assert_uint_eq(held(group), 3 * PIECE);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    must_release(buffer);
    ck_assert_uint_eq(held(group), 0);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_reservation_is_charged_to_its_group_and_so_is_what_it_pays_for)
{
    spw_alloc_options options;
    spw_reservation *reservation, *none = NULL;
    spw_buffer *buffer;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("reserving", NULL, 2 * PIECE, 4 * PIECE, 1);
    ck_assert_int_eq(reserve_in(group, NULL, 3 * PIECE, 0, &reservation), SPW_OK);
    ck_assert_uint_eq(held(group), 3 * PIECE);
    ck_assert_int_eq(reserve_in(group, NULL, 2 * PIECE, SPW_RESERVE_TRY, &none), SPW_EAGAIN);
    ck_assert_str_eq(spw_error_detail()->group, "reserving");
    ck_assert_int_eq(reserve_in(group, NULL, 5 * PIECE, 0, &none), SPW_ETOOBIG);
    ck_assert_str_eq(spw_error_detail()->group, "reserving");
    spw_alloc_options_init(&options);
    options.reservation = reservation;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, PIECE, &options, &buffer), SPW_OK);
    ck_assert_uint_eq(held(group), 3 * PIECE);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    ck_assert_uint_eq(held(group), PIECE);
    must_release(buffer);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_reservation_evicts_the_buffers_of_a_group_that_is_full)
{
    spw_reservation *reservation;
    spw_buffer *mine[2];
    open_manager(SMALL_HOST);
    spw_group *group = must_group("full", NULL, 0, 2 * PIECE, 1);
    spw_buffer *other = must_make_in(NULL, PIECE, 9);
    for (unsigned i = 0; i < 2; i++)
        mine[i] = must_make_in(group, PIECE, i);
    spw_reserve_options options;
    spw_reserve_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, PIECE, &options, &reservation), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(mine[0]), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(other), SPW_HOST);
    ck_assert_uint_eq(held(group), 2 * PIECE);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    for (unsigned i = 0; i < 2; i++)
        must_release(mine[i]);
    must_release(other);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_cancelled_group_cancels_its_tasks_and_reservations)
{
    spw_reservation *reservation, *none = NULL;
    spw_alloc_options options;
    spw_task_options task_options;
    spw_buffer *buffer = NULL, *empty;
    spw_task *late = NULL;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("doomed", NULL, 0, SPW_NO_LIMIT, 1);
    spw_task *task = must_task("scan", group);
    ck_assert_int_eq(reserve_in(NULL, task, PIECE, 0, &reservation), SPW_OK);
    spw_alloc_options_init(&options);
    options.wait.task = task;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 0, &options, &empty), SPW_OK);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, PIECE, &options, &buffer), SPW_OK);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    ck_assert_uint_eq(held(group), PIECE); /* the reservation's, until it is released */
    spw_buffer *refused = NULL;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, PIECE, &options, &refused), SPW_ECANCELED);
    ck_assert_int_eq(reserve_in(NULL, task, PIECE, 0, &none), SPW_ECANCELED);
    ck_assert_int_eq(spw_reservation_grow(reservation, PIECE, NULL), SPW_ECANCELED);
    spw_task_options_init(&task_options);
    task_options.group = group;
    ck_assert_int_eq(spw_task_create(manager, &task_options, &late), SPW_ECANCELED);
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY); /* handles are left, though they have no bytes */
    must_release(buffer);
    must_release(empty);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(tasks_and_the_manager_itself_count_like_siblings_of_weight_1)
{
    spw_alloc_options options;
    spw_buffer *of_task[2], *of_root[5], *of_group, *more;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("group", NULL, 0, SPW_NO_LIMIT, 1);
    spw_task *task = must_task("scan", NULL);
    spw_alloc_options_init(&options);
    options.wait.task = task;
    for (unsigned i = 0; i < 2; i++) { /* the coldest */
        ck_assert_int_eq(spw_alloc(manager, SPW_HOST, PIECE, &options, &of_task[i]), SPW_OK);
        ck_assert_int_eq(spw_buffer_seal(of_task[i]), SPW_OK);
    }
    of_group = must_make_in(group, PIECE, 3);
    for (unsigned i = 0; i < 5; i++)
        of_root[i] = must_make_in(NULL, PIECE, 10 + i);
    ck_assert_int_eq(alloc_in(group, PIECE, SPW_TIMEOUT_DEFAULT, &more), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(of_root[0]), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(of_task[0]), SPW_HOST);
    ck_assert_uint_eq(spw_buffer_place(of_group), SPW_HOST);
    must_release(more);
    must_release(of_group);
    for (unsigned i = 0; i < 5; i++)
        must_release(of_root[i]);
    for (unsigned i = 0; i < 2; i++)
        must_release(of_task[i]);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(clean_copies_on_disk_give_way_when_their_groups_part_of_it_is_used_up)
{
    spw_group_options options;
    spw_group *group;
    spw_buffer *first, *second, *third;
    open_manager("pinned=512K; host=512K; staging=64K; piece=128K; disk=%s:16M");
    spw_group_options_init(&options);
    options.shares[SPW_TIER_HOST].max_bytes = PIECE;
    options.shares[SPW_TIER_DISK].max_bytes = PIECE;
    ck_assert_int_eq(spw_group_create(manager, &options, &group), SPW_OK);
    first = must_make_in(group, PIECE, 1);
    second = must_make_in(group, PIECE, 2);
    ck_assert_uint_eq(spw_buffer_place(first), SPW_DISK);
    check_at(first, SPW_PINNED_HOST, 1); /* its copy on disk stays: the group's part is used up by it */
    ck_assert_uint_eq(usage_of(group, SPW_DISK).committed_bytes, PIECE);
    third = must_make_in(group, PIECE, 3);
    ck_assert_uint_eq(spw_buffer_place(second), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(first), SPW_PINNED_HOST);
    ck_assert_uint_eq(usage_of(group, SPW_DISK).peak_bytes, PIECE);
    check_at(first, SPW_PINNED_HOST, 1);
    must_release(first);
    must_release(second);
    must_release(third);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(what_a_minimum_protects_moves_aside_for_a_hole_and_no_further)
{
    spw_buffer *mine[4], *others[4], *large;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("protected", NULL, 4 * PIECE, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 4; i++) {
        mine[i] = must_make_in(group, PIECE, i);
        others[i] = must_make_in(NULL, PIECE, 10 + i);
    }
    must_release(others[0]);
    must_release(others[2]); /* two pieces are free, and not beside each other */
    ck_assert_int_eq(alloc_in(NULL, 2 * PIECE, SPW_TIMEOUT_DEFAULT, &large), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->holes, 1);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].spill_bytes, 0);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(spw_buffer_place(mine[i]), SPW_HOST);
        check_at(mine[i], SPW_HOST, i);
        must_release(mine[i]);
    }
    must_release(others[1]);
    must_release(others[3]);
    must_release(large);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(what_a_minimum_protects_takes_its_bytes_along_though_a_copy_lies_on_disk)
{
    const spw_group_share protects = {.min_bytes = 4 * PIECE, .max_bytes = SPW_NO_LIMIT, .weight = 1};
    spw_buffer *mine[4], *others[4], *large;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("protected", NULL, 0, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 4; i++)
        mine[i] = must_make_in(group, PIECE, i);
    push_out(SPW_HOST, 8 * PIECE);
    for (unsigned i = 0; i < 4; i++) {
        check_at(mine[i], SPW_HOST, i); /* its copy on disk stays */
        others[i] = must_make_in(NULL, PIECE, 10 + i);
    }
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, &protects), SPW_OK);
    must_release(others[0]);
    must_release(others[2]);
    ck_assert_int_eq(alloc_in(NULL, 2 * PIECE, SPW_TIMEOUT_DEFAULT, &large), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->holes, 1);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(spw_buffer_place(mine[i]), SPW_HOST);
        check_at(mine[i], SPW_HOST, i);
        must_release(mine[i]);
    }
    must_release(others[1]);
    must_release(others[3]);
    must_release(large);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_group_is_busy_while_a_reservation_names_it_even_an_empty_one)
{
    spw_reserve_options options;
    spw_task_options task_options;
    spw_reservation *empty = NULL;
    spw_task *task = NULL;
    open_manager("host=1M");
    spw_group *group = must_group("named", NULL, 0, SPW_NO_LIMIT, 1);
    spw_reserve_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 0, &options, &empty), SPW_OK);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"named\" has 1 reservation, of 0 bytes; release it"));
    ck_assert_int_eq(spw_reservation_grow(empty, 4096, NULL), SPW_OK);
    ck_assert_uint_eq(held(group), 4096);
    ck_assert_int_eq(spw_reservation_release(empty), SPW_OK);
    /* One of a task below it, which is gone. */
    spw_task_options_init(&task_options);
    task_options.group = group;
    ck_assert_int_eq(spw_task_create(manager, &task_options, &task), SPW_OK);
    options.group = NULL;
    options.wait.task = task;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 0, &options, &empty), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    ck_assert_int_eq(spw_reservation_release(empty), SPW_OK);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(an_empty_reservation_of_a_task_that_is_gone_is_not_charged_to_the_next_task)
{
    spw_reserve_options options;
    spw_task *first = NULL, *second = NULL;
    spw_reservation *empty = NULL;
    spw_task_usage usage;
    open_manager("host=1M");
    ck_assert_int_eq(spw_task_create(manager, NULL, &first), SPW_OK);
    spw_reserve_options_init(&options);
    options.wait.task = first;
    ck_assert_int_eq(spw_reserve(manager, SPW_HOST, 0, &options, &empty), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(first), SPW_OK);
    ck_assert_int_eq(spw_task_create(manager, NULL, &second), SPW_OK);
    ck_assert_int_eq(spw_reservation_grow(empty, 4096, NULL), SPW_OK);
    spw_task_usage_init(&usage);
    ck_assert_int_eq(spw_task_usage_get(second, &usage), SPW_OK);
    ck_assert_uint_eq(usage.committed_bytes[SPW_TIER_HOST], 0);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 4096);
    ck_assert_int_eq(spw_reservation_release(empty), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(second), SPW_OK);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_task");
    TCase *tcase = tcase_create("group_task");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_a_task_holds_is_charged_to_its_group);
    tcase_add_test(tcase, a_reservation_is_charged_to_its_group_and_so_is_what_it_pays_for);
    tcase_add_test(tcase, a_reservation_evicts_the_buffers_of_a_group_that_is_full);
    tcase_add_test(tcase, a_cancelled_group_cancels_its_tasks_and_reservations);
    tcase_add_test(tcase, clean_copies_on_disk_give_way_when_their_groups_part_of_it_is_used_up);
    tcase_add_test(tcase, what_a_minimum_protects_moves_aside_for_a_hole_and_no_further);
    tcase_add_test(tcase, what_a_minimum_protects_takes_its_bytes_along_though_a_copy_lies_on_disk);
    tcase_add_test(tcase, tasks_and_the_manager_itself_count_like_siblings_of_weight_1);
    tcase_add_test(tcase, a_group_is_busy_while_a_reservation_names_it_even_an_empty_one);
    tcase_add_test(tcase, an_empty_reservation_of_a_task_that_is_gone_is_not_charged_to_the_next_task);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
