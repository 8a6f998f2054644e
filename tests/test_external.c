/* External charges: counted, overbooked when they must be, shown by tag, and given back just once. */
#include "reserve_fixture.h"

static void open_small(void)
{
    setup();
    open_manager(SMALL_HOST);
}

static void close_small(void)
{
    if (manager)
        close_manager();
    teardown();
}

static int charge(int64_t bytes, const char *tag)
{
    return spw_external_charge(manager, SPW_HOST, bytes, tag);
}

START_TEST(a_charge_is_committed_to_the_byte_and_shown_by_tag)
{
    ck_assert_int_eq(charge(1000, "torch"), SPW_OK);
    ck_assert_int_eq(charge(24, "torch"), SPW_OK);
    ck_assert_int_eq(charge(0, "nobody"), SPW_OK);
    ck_assert_int_eq(charge(8, "arrow"), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 1032);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].external_bytes, 1032);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooks, 0);
    dump_shows(SPW_STATS_JSON, "\"external\":{\"host\":{\"arrow\":8,\"torch\":1024}}");
    dump_shows(SPW_STATS_JSON, "\"external_bytes\":1032");
    dump_shows(SPW_STATS_TEXT, "host: 1.0 KiB charged for \"torch\"");
    ck_assert_int_eq(charge(-8, "arrow"), SPW_OK);
    ck_assert_int_eq(charge(-1024, "torch"), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
    dump_shows(SPW_STATS_JSON, "\"external\":{}");
}
END_TEST

START_TEST(charges_of_all_tags_together_stay_far_from_overflow)
{
    const int64_t quarter = INT64_C(1) << 60;
    ck_assert_int_eq(charge(quarter, "a"), SPW_OK);
    ck_assert_int_eq(charge(quarter, "b"), SPW_OK);
    ck_assert_int_eq(charge(quarter, "c"), SPW_OK);
    ck_assert_int_eq(charge(quarter, "d"), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "2^62 bytes or more of host"));
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 3 * (uint64_t)quarter);
    ck_assert_int_eq(charge(-quarter, "a"), SPW_OK);
    ck_assert_int_eq(charge(-quarter, "b"), SPW_OK);
    ck_assert_int_eq(charge(-quarter, "c"), SPW_OK);
}
END_TEST

START_TEST(more_given_back_than_charged_under_the_tag_changes_nothing)
{
    ck_assert_int_eq(charge(4096, "torch"), SPW_OK);
    ck_assert_int_eq(charge(4096, "arrow"), SPW_OK);
    ck_assert_int_eq(charge(-4097, "torch"), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"torch\", which is charged 4096"));
    ck_assert_int_eq(charge(-1, "numpy"), SPW_EINVAL);
    ck_assert_int_eq(charge(INT64_MIN, "torch"), SPW_EINVAL);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 8192);
    ck_assert_int_eq(charge(-4096, "torch"), SPW_OK);
    ck_assert_int_eq(charge(-4096, "torch"), SPW_EINVAL);
    ck_assert_int_eq(charge(-4096, "arrow"), SPW_OK);
}
END_TEST

START_TEST(what_names_nobody_or_no_place_is_refused)
{
    ck_assert_int_eq(charge(1, NULL), SPW_EINVAL);
    ck_assert_int_eq(charge(1, ""), SPW_EINVAL);
    ck_assert_int_eq(charge(1, "thirty-two bytes are one too many"), SPW_EINVAL);
    ck_assert_int_eq(charge(1, "a \"quoted\" one"), SPW_EINVAL);
    ck_assert_int_eq(charge(1, "back\\slash"), SPW_EINVAL);
    ck_assert_int_eq(charge(1, "two\nlines"), SPW_EINVAL);
    ck_assert_int_eq(spw_external_charge(NULL, SPW_HOST, 1, "torch"), SPW_EINVAL);
    ck_assert_int_eq(spw_external_charge(manager, SPW_DEVICE, 1, "torch"), SPW_EINVAL);
    ck_assert_int_eq(spw_external_charge(manager, SPW_DISK, 1, "torch"), SPW_EINVAL);
    ck_assert_int_eq(spw_external_charge(manager, SPW_PLACE_NONE, 1, "torch"), SPW_EINVAL);
    ck_assert_int_eq(charge(INT64_C(1) << 62, "torch"), SPW_EINVAL);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
}
END_TEST

START_TEST(what_exceeds_the_budget_is_overbooked_and_holds_up_others_until_it_is_gone)
{
    struct wish wish = wish_for(64 * KIB, 60000);
    ck_assert_int_eq(charge(3 * MIB, "torch"), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->overbooked_bytes, 2 * MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooks, 1);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbook_bytes, 2 * MIB);
    spw_buffer *buffer = NULL;
    ck_assert_int_eq(alloc_within(SPW_HOST, 64 * KIB, 0, &buffer), SPW_ENOMEM);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "of it charged from outside: \"torch\" 3145728"));
    const pthread_t thread = start_wish(&wish, 1);
    ck_assert_int_eq(charge(-(int64_t)(2 * MIB), "torch"), SPW_OK);
    until_waiting(1); /* the budget holds again, and is full */
    ck_assert_int_eq(charge(-(int64_t)(64 * KIB), "torch"), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);
    must_end(wish.reservation);
    ck_assert_int_eq(charge(-(int64_t)(960 * KIB), "torch"), SPW_OK);
}
END_TEST

START_TEST(who_asks_while_it_is_overbooked_sets_off_spilling_until_the_budget_holds)
{
    spw_buffer *buffer = NULL, *cold = must_make(SPW_HOST, 1024 * KIB, 1);
    ck_assert_int_eq(charge(256 * KIB, "torch"), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->overbooked_bytes, 256 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 128 * KIB, NULL, &buffer), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 384 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].overbooked_bytes, 0);
    must_release(buffer);
    ck_assert_int_eq(charge(-(int64_t)(256 * KIB), "torch"), SPW_OK);
    check_at(cold, SPW_HOST, 1);
    must_release(cold);
}
END_TEST

START_TEST(a_charge_that_comes_while_others_wait_makes_room_for_them_too)
{
    struct wish wish = wish_for(512 * KIB, 60000);
    spw_buffer *held = must_alloc(SPW_HOST, 768 * KIB);
    const pthread_t thread = start_wish(&wish, 1);
    spw_buffer *cold = NULL;
    ck_assert_int_eq(charge(512 * KIB, "torch"), SPW_OK);
    write_content(held, 2);
    ck_assert_int_eq(spw_buffer_seal(held), SPW_OK); /* now it can go */
    cold = held;
    must_join(thread);
    ck_assert_int_eq(wish.rc, SPW_OK);
    must_end(wish.reservation);
    ck_assert_int_eq(charge(-(int64_t)(512 * KIB), "torch"), SPW_OK);
    check_at(cold, SPW_HOST, 2);
    must_release(cold);
}
END_TEST

START_TEST(a_manager_with_charges_left_is_not_destroyed)
{
    ck_assert_int_eq(charge(4096, "torch"), SPW_OK);
    ck_assert_int_eq(charge(512, "arrow"), SPW_OK);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"arrow\" (512 bytes of host), \"torch\" (4096 bytes"));
    ck_assert_int_eq(charge(-4096, "torch"), SPW_OK);
    ck_assert_int_eq(charge(-512, "arrow"), SPW_OK);
}
END_TEST

START_TEST(a_forced_destroy_forgets_charges)
{
    ck_assert_int_eq(charge(4096, "torch"), SPW_OK);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

static void *give_back_elsewhere(void *arg)
{
    (void)arg;
    ck_assert_int_eq(charge(-3000, "torch"), SPW_OK);
    return NULL;
}

START_TEST(a_charge_is_its_tasks_and_any_thread_gives_it_back)
{
    spw_task *task = NULL;
    spw_task_usage usage;
    spw_task_usage_init(&usage);
    ck_assert_int_eq(spw_task_create(manager, NULL, &task), SPW_OK);
    ck_assert_int_eq(charge(1000, "torch"), SPW_OK);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    ck_assert_int_eq(charge(4000, "torch"), SPW_OK);
    ck_assert_int_eq(spw_task_usage_get(task, &usage), SPW_OK);
    ck_assert_uint_eq(usage.committed_bytes[SPW_TIER_HOST], 4000);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->external_bytes, 5000);
    must_join(must_start(give_back_elsewhere, NULL)); /* 1000 of its own, then 2000 of the task's */
    ck_assert_int_eq(spw_task_usage_get(task, &usage), SPW_OK);
    ck_assert_uint_eq(usage.committed_bytes[SPW_TIER_HOST], 2000);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ck_assert_int_eq(spw_task_destroy(task), SPW_OK); /* what it charged stays */
    ck_assert_int_eq(charge(-2000, "torch"), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
}
END_TEST

START_TEST(without_metadata_memory_nothing_is_charged)
{
    ck_assert_int_eq(charge(64, "arrow"), SPW_OK);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 0, ENOMEM);
    ck_assert_int_eq(charge(4096, "torch"), SPW_ENOMETA);
    ck_assert_int_eq(charge(64, "arrow"), SPW_OK); /* its tag is there already */
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 128);
    ck_assert_int_eq(charge(-128, "arrow"), SPW_OK);
}
END_TEST

enum { ROUNDS = 2000 };

static void *charge_often(void *tag)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        ck_assert_int_eq(charge(4096, tag), SPW_OK);
        ck_assert_int_eq(charge(64, "shared"), SPW_OK);
        ck_assert_int_eq(charge(-4096, tag), SPW_OK);
        ck_assert_int_eq(charge(-64, "shared"), SPW_OK);
    }
    return NULL;
}

START_TEST(threads_charge_at_once_and_nothing_is_lost)
{
    static char tags[4][8] = {"one", "two", "three", "four"};
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        threads[i] = must_start(charge_often, tags[i]);
    for (unsigned i = 0; i < 4; i++)
        must_join(threads[i]);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].external_bytes, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *made = suite_create("external");
    TCase *tcase = tcase_create("charges");
    tcase_add_checked_fixture(tcase, open_small, close_small);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_charge_is_committed_to_the_byte_and_shown_by_tag);
    tcase_add_test(tcase, charges_of_all_tags_together_stay_far_from_overflow);
    tcase_add_test(tcase, more_given_back_than_charged_under_the_tag_changes_nothing);
    tcase_add_test(tcase, what_names_nobody_or_no_place_is_refused);
    tcase_add_test(tcase, what_exceeds_the_budget_is_overbooked_and_holds_up_others_until_it_is_gone);
    tcase_add_test(tcase, who_asks_while_it_is_overbooked_sets_off_spilling_until_the_budget_holds);
    tcase_add_test(tcase, a_charge_that_comes_while_others_wait_makes_room_for_them_too);
    tcase_add_test(tcase, a_manager_with_charges_left_is_not_destroyed);
    tcase_add_test(tcase, a_forced_destroy_forgets_charges);
    tcase_add_test(tcase, a_charge_is_its_tasks_and_any_thread_gives_it_back);
    tcase_add_test(tcase, without_metadata_memory_nothing_is_charged);
    tcase_add_test(tcase, threads_charge_at_once_and_nothing_is_lost);
    suite_add_tcase(made, tcase);
    return made;
}

int main(void)
{
    return run_suite(suite());
}
