/* Groups: what a maximum refuses, whom it makes give way, and what a minimum keeps from others. */
#include "tests/group_fixture.h"

START_TEST(a_buffer_is_charged_to_its_group_and_all_above)
{
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, SPW_NO_LIMIT, 1);
    spw_group *query = must_group("query", tenant, 0, SPW_NO_LIMIT, 1);
    spw_buffer *buffer = must_make_in(query, 2 * PIECE, 1);
    ck_assert_uint_eq(held(query), 2 * PIECE);
    ck_assert_uint_eq(held(tenant), 2 * PIECE);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 2 * PIECE + STAGING);
    must_release(buffer);
    ck_assert_uint_eq(held(query), 0);
    ck_assert_uint_eq(usage_of(tenant, SPW_HOST).peak_bytes, 2 * PIECE);
    must_destroy(query);
    must_destroy(tenant);
    close_manager();
}
END_TEST

START_TEST(an_exact_fit_is_granted_and_one_byte_over_can_never_fit)
{
    spw_buffer *buffer, *none = NULL;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("small", NULL, 0, 2 * PIECE, 1);
    ck_assert_int_eq(alloc_in(group, 2 * PIECE, 0, &buffer), SPW_OK);
    ck_assert_int_eq(alloc_in(group, 2 * PIECE + 1, SPW_TIMEOUT_INFINITE, &none), SPW_ETOOBIG);
    ck_assert_str_eq(spw_error_detail()->group, "small");
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, 2 * PIECE);
    ck_assert_uint_eq(spw_error_detail()->group_committed_bytes, 2 * PIECE);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "spw_group_set"));
    ck_assert_ptr_null(none);
    must_release(buffer);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_refusal_names_the_group_its_maximum_and_its_use)
{
    spw_buffer *buffer, *none = NULL;
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, 3 * PIECE, 1);
    spw_group *query = must_group("query", tenant, 0, SPW_NO_LIMIT, 1);
    ck_assert_int_eq(alloc_in(query, 2 * PIECE, 0, &buffer), SPW_OK); /* never sealed: it stays */
    ck_assert_int_eq(alloc_in(query, 2 * PIECE, 0, &none), SPW_ENOMEM);
    const spw_error_info info = *spw_error_detail();
    ck_assert_str_eq(info.group, "tenant");
    ck_assert_uint_eq(info.place, SPW_HOST);
    ck_assert_uint_eq(info.requested_bytes, 2 * PIECE);
    ck_assert_uint_eq(info.limit_bytes, 3 * PIECE);
    ck_assert_uint_eq(info.group_committed_bytes, 2 * PIECE);
    ck_assert_uint_eq(info.free_bytes, PIECE);
    ck_assert_uint_eq(info.largest_free_bytes, 6 * PIECE);
    ck_assert_ptr_nonnull(strstr(info.message, "the group \"tenant\" may have 393216 there, and has 262144"));
    must_release(buffer);
    must_destroy(query);
    must_destroy(tenant);
    close_manager();
}
END_TEST

START_TEST(a_group_over_its_maximum_spills_its_own_first)
{
    spw_buffer *mine[3], *others[4];
    open_manager(SMALL_HOST);
    spw_group *group = must_group("capped", NULL, 0, 2 * PIECE, 1);
    spw_group *other = must_group("other", NULL, 0, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 4; i++) /* colder than all of the group's */
        others[i] = must_make_in(i < 2 ? other : NULL, PIECE, 10 + i);
    for (unsigned i = 0; i < 3; i++)
        mine[i] = must_make_in(group, PIECE, i);
    ck_assert_uint_eq(held(group), 2 * PIECE);
    ck_assert_uint_eq(spw_buffer_place(mine[0]), SPW_DISK);
    ck_assert_uint_eq(usage_of(group, SPW_DISK).committed_bytes, PIECE);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(spw_buffer_place(others[i]), SPW_HOST);
    check_at(mine[0], SPW_HOST, 0); /* which pushes out another of the group */
    ck_assert_uint_le(held(group), 2 * PIECE);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(spw_buffer_place(others[i]), SPW_HOST);
    for (unsigned i = 0; i < 3; i++)
        must_release(mine[i]);
    for (unsigned i = 0; i < 4; i++)
        must_release(others[i]);
    must_destroy(group);
    must_destroy(other);
    close_manager();
}
END_TEST

START_TEST(a_minimum_is_never_taken_by_others)
{
    spw_buffer *mine[3], *noise[12], *buffer = NULL;
    open_manager(SMALL_HOST);
    spw_group *quiet = must_group("quiet", NULL, 3 * PIECE, SPW_NO_LIMIT, 1);
    spw_group *noisy = must_group("noisy", NULL, 0, SPW_NO_LIMIT, 100);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 3 * PIECE + STAGING); /* set aside, though nobody has it */
    for (unsigned i = 0; i < 3; i++)
        mine[i] = must_make_in(quiet, PIECE, i);
    for (unsigned i = 0; i < 12; i++)
        noise[i] = must_make_in(i % 2 ? noisy : NULL, PIECE, 10 + i);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(spw_buffer_place(mine[i]), SPW_HOST);
    ck_assert_uint_eq(held(quiet), 3 * PIECE);
    ck_assert_int_eq(alloc_in(noisy, 6 * PIECE, SPW_TIMEOUT_INFINITE, &buffer), SPW_ETOOBIG); /* 5 are left to it */
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "of which groups have 393216 as their minima"));
    for (unsigned i = 0; i < 12; i++)
        must_release(noise[i]);
    for (unsigned i = 0; i < 3; i++)
        must_release(mine[i]);
    must_destroy(quiet);
    must_destroy(noisy);
    close_manager();
}
END_TEST

START_TEST(a_group_may_push_out_its_own_below_its_minimum)
{
    spw_buffer *mine[4];
    open_manager(SMALL_HOST);
    spw_group *group = must_group("own", NULL, 3 * PIECE, 3 * PIECE, 1);
    for (unsigned i = 0; i < 4; i++)
        mine[i] = must_make_in(group, PIECE, i);
    ck_assert_uint_eq(held(group), 3 * PIECE);
    ck_assert_uint_eq(spw_buffer_place(mine[0]), SPW_DISK);
    for (unsigned i = 0; i < 4; i++)
        must_release(mine[i]);
    must_destroy(group);
    close_manager();
}
END_TEST

/* Both hold four pieces, light's the colder ones: who gives way is said by the weights. */
START_TEST(the_weight_decides_who_gives_way)
{
    spw_buffer *of_heavy[4], *of_light[4], *buffer;
    open_manager(SMALL_HOST);
    spw_group *heavy = must_group("heavy", NULL, 0, SPW_NO_LIMIT, _i ? 3 : 1);
    spw_group *light = must_group("light", NULL, 0, SPW_NO_LIMIT, _i ? 1 : 3);
    for (unsigned i = 0; i < 4; i++)
        of_heavy[i] = must_make_in(heavy, PIECE, i);
    for (unsigned i = 0; i < 4; i++)
        of_light[i] = must_make_in(light, PIECE, 10 + i);
    ck_assert_int_eq(alloc_in(NULL, 2 * PIECE, SPW_TIMEOUT_DEFAULT, &buffer), SPW_OK);
    ck_assert_uint_eq(held(heavy), (_i ? 4 : 2) * PIECE);
    ck_assert_uint_eq(held(light), (_i ? 2 : 4) * PIECE);
    ck_assert_uint_eq(spw_buffer_place(_i ? of_light[0] : of_heavy[0]), SPW_DISK); /* there, the coldest */
    ck_assert_uint_eq(spw_buffer_place(_i ? of_light[3] : of_heavy[3]), SPW_HOST);
    must_release(buffer);
    for (unsigned i = 0; i < 4; i++) {
        must_release(of_heavy[i]);
        must_release(of_light[i]);
    }
    must_destroy(heavy);
    must_destroy(light);
    close_manager();
}
END_TEST

START_TEST(a_maximum_below_use_grants_nothing_until_the_group_is_below_it)
{
    spw_buffer *mine[4], *more = NULL;
    spw_view view;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("shrunk", NULL, 0, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 4; i++)
        mine[i] = must_make_in(group, PIECE, i);
    must_hold(mine[3], &view);
    const spw_group_share share = {.max_bytes = PIECE, .weight = 1};
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, &share), SPW_OK);
    ck_assert_uint_eq(held(group), 4 * PIECE); /* overbooked, until somebody asks */
    ck_assert_uint_eq(usage_of(group, SPW_HOST).max_bytes, PIECE);
    ck_assert_int_eq(alloc_in(group, PIECE, 0, &more), SPW_ENOMEM);
    ck_assert_int_eq(spw_unmap(mine[3], &view, NULL), SPW_OK);
    ck_assert_int_eq(alloc_in(group, PIECE, SPW_TIMEOUT_DEFAULT, &more), SPW_OK);
    ck_assert_uint_eq(held(group), PIECE);
    for (unsigned i = 0; i < 4; i++)
        must_release(mine[i]);
    must_release(more);
    must_destroy(group);
    close_manager();
}
END_TEST

struct asker {
    spw_group *group;
    spw_buffer *buffer;
    int rc;
};

static void *ask(void *arg)
{
    struct asker *asker = arg;
    asker->rc = alloc_in(asker->group, PIECE, SPW_TIMEOUT_INFINITE, &asker->buffer);
    return NULL;
}

static void wait_for_a_waiter(void)
{
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)))
        (void)sched_yield();
}

START_TEST(a_higher_maximum_lets_those_who_wait_proceed)
{
    spw_buffer *buffer;
    open_manager(SMALL_HOST);
    struct asker asker = {.group = must_group("raised", NULL, 0, PIECE, 1)};
    ck_assert_int_eq(alloc_in(asker.group, PIECE, 0, &buffer), SPW_OK);
    const pthread_t thread = must_start(ask, &asker);
    wait_for_a_waiter();
    const spw_group_share share = {.max_bytes = 2 * PIECE, .weight = 1};
    ck_assert_int_eq(spw_group_set(asker.group, SPW_HOST, &share), SPW_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asker.rc, SPW_OK);
    must_release(buffer);
    must_release(asker.buffer);
    must_destroy(asker.group);
    close_manager();
}
END_TEST

START_TEST(one_that_its_own_group_refuses_does_not_hold_others_up)
{
    spw_buffer *fixed, *passing;
    open_manager(SMALL_HOST);
    struct asker asker = {.group = must_group("full", NULL, 0, PIECE, 1)};
    ck_assert_int_eq(alloc_in(asker.group, PIECE, 0, &fixed), SPW_OK); /* never sealed: it stays */
    const pthread_t thread = must_start(ask, &asker);
    wait_for_a_waiter();
    for (unsigned i = 0; i < 4 * SPW__WAIT_PASS_MAX; i++) {
        ck_assert_int_eq(alloc_in(NULL, PIECE, 0, &passing), SPW_OK);
        must_release(passing);
    }
    must_release(fixed);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asker.rc, SPW_OK);
    must_release(asker.buffer);
    must_destroy(asker.group);
    close_manager();
}
END_TEST

START_TEST(room_for_a_minimum_is_made_by_eviction_and_given_back)
{
    spw_buffer *others[8], *fixed, *none = NULL;
    spw_group *group = NULL;
    open_manager(SMALL_HOST);
    for (unsigned i = 0; i < 8; i++)
        others[i] = must_make_in(NULL, PIECE, i);
    group = must_group("late", NULL, 3 * PIECE, SPW_NO_LIMIT, 1);
    ck_assert_uint_eq(spw_buffer_place(others[0]), SPW_DISK);
    ck_assert_uint_eq(spw_buffer_place(others[7]), SPW_HOST);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 8 * PIECE + STAGING);
    must_destroy(group);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 5 * PIECE + STAGING);
    for (unsigned i = 0; i < 8; i++)
        must_release(others[i]);
    ck_assert_int_eq(alloc_in(NULL, 6 * PIECE, 0, &fixed), SPW_OK);
    ck_assert_int_eq(create_group("none", NULL, 3 * PIECE, SPW_NO_LIMIT, 1, 0, &group), SPW_ENOMEM);
    ck_assert_ptr_null(group);
    ck_assert_int_eq(alloc_in(NULL, 2 * PIECE, 0, &none), SPW_OK); /* nothing of it was kept */
    must_release(none);
    must_release(fixed);
    close_manager();
}
END_TEST

START_TEST(minima_that_can_never_be_had_are_too_big_at_once)
{
    spw_group *none = NULL;
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, 5 * PIECE, 1);
    spw_group *first = must_group("first", tenant, 3 * PIECE, SPW_NO_LIMIT, 1);
    ck_assert_int_eq(create_group("second", tenant, 3 * PIECE, SPW_NO_LIMIT, 1, -1, &none), SPW_ETOOBIG);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"tenant\" has at most 655360 there, and owes 393216"));
    ck_assert_int_eq(create_group("beside", NULL, 6 * PIECE, SPW_NO_LIMIT, 1, 0, &none), SPW_ENOMEM);
    ck_assert_int_eq(create_group("beside", NULL, 9 * PIECE, SPW_NO_LIMIT, 1, -1, &none), SPW_ETOOBIG);
    spw_group_share share = {.min_bytes = 6 * PIECE, .max_bytes = 8 * PIECE, .weight = 1};
    ck_assert_int_eq(spw_group_set(first, SPW_HOST, &share), SPW_ETOOBIG);
    share.min_bytes = 5 * PIECE;
    ck_assert_int_eq(spw_group_set(first, SPW_HOST, &share), SPW_OK);
    ck_assert_uint_eq(usage_of(tenant, SPW_HOST).committed_bytes, 5 * PIECE);
    must_destroy(first);
    must_destroy(tenant);
    close_manager();
}
END_TEST

START_TEST(a_higher_minimum_takes_what_is_free_or_changes_nothing)
{
    spw_buffer *fixed;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("more", NULL, PIECE, SPW_NO_LIMIT, 1);
    ck_assert_int_eq(alloc_in(NULL, 5 * PIECE, 0, &fixed), SPW_OK);
    spw_group_share share = {.min_bytes = 4 * PIECE, .max_bytes = 4 * PIECE, .weight = 1};
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, &share), SPW_ENOMEM);
    ck_assert_uint_eq(usage_of(group, SPW_HOST).min_bytes, PIECE);
    ck_assert_uint_eq(usage_of(group, SPW_HOST).max_bytes, SPW_NO_LIMIT);
    share.min_bytes = 3 * PIECE;
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, &share), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 8 * PIECE + STAGING);
    must_release(fixed);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(a_group_has_a_share_of_the_disk)
{
    spw_buffer *mine[3], *others[8], *none = NULL;
    spw_group_options options;
    spw_group *group;
    open_manager(SMALL_HOST);
    spw_group_options_init(&options);
    options.name = "no disk";
    options.shares[SPW_TIER_HOST].max_bytes = 2 * PIECE;
    options.shares[SPW_TIER_DISK].max_bytes = PIECE;
    ck_assert_int_eq(spw_group_create(manager, &options, &group), SPW_OK);
    for (unsigned i = 0; i < 3; i++)
        mine[i] = must_make_in(group, PIECE, i);
    ck_assert_uint_eq(usage_of(group, SPW_DISK).committed_bytes, PIECE);
    ck_assert_int_eq(alloc_in(group, PIECE, SPW_TIMEOUT_DEFAULT, &none), SPW_ENOSPC);
    ck_assert_str_eq(spw_error_detail()->group, "no disk");
    for (unsigned i = 0; i < 8; i++) /* others may still spill */
        others[i] = must_make_in(NULL, PIECE, 10 + i);
    must_release(mine[1]);
    check_at(mine[0], SPW_HOST, 0);
    must_release(mine[0]);
    must_release(mine[2]);
    for (unsigned i = 0; i < 8; i++)
        must_release(others[i]);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(raw_memory_and_copies_are_charged_to_their_group)
{
    spw_pool_options options;
    spw_block block;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("raw", NULL, 0, 4 * PIECE, 1);
    spw_pool_options_init(&options);
    options.group = group;
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, PIECE, 0, NULL, &options, &block), SPW_OK);
    spw_block small;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 100, 0, NULL, &options, &small), SPW_OK);
    ck_assert_uint_eq(held(group), PIECE + 128);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "charged for 131200 bytes of host"));
    ck_assert_int_eq(spw_pool_free(manager, &small, NULL), SPW_OK);
    ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);
    spw_buffer *buffer = must_make_in(group, PIECE, 1), *copy = buffer;
    ck_assert_int_eq(spw_buffer_retain(buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_make_writable(&copy, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_ne(copy, buffer);
    ck_assert_uint_eq(held(group), 2 * PIECE);
    must_release(copy);
    must_release(buffer);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(destroy_while_anything_belongs_to_it_is_busy_and_names_it)
{
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, SPW_NO_LIMIT, 1);
    spw_group *query = must_group("query", tenant, 0, SPW_NO_LIMIT, 1);
    spw_buffer *buffer = must_make_in(query, PIECE, 1);
    ck_assert_int_eq(spw_group_destroy(tenant), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"query\""));
    ck_assert_int_eq(spw_group_destroy(query), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"of a group\""));
    must_release(buffer);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "there are groups left: "));
    must_destroy(query);
    must_destroy(tenant);
    ck_assert_int_eq(spw_group_destroy(NULL), SPW_OK);
    close_manager();
}
END_TEST

START_TEST(a_forced_end_takes_groups_with_it)
{
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, PIECE, SPW_NO_LIMIT, 1);
    spw_group *query = must_group("query", tenant, PIECE, SPW_NO_LIMIT, 1);
    (void)must_make_in(query, PIECE, 1);
    spw_manager_destroy_force(manager);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    spw_group_options options;
    spw_group *group = NULL, *deep[16], *none = (spw_group *)(void *)&options;
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    spw_group_share share = {.max_bytes = 1};
    open_manager(SMALL_HOST);
    ck_assert_int_eq(spw_group_create(NULL, NULL, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_group_create(manager, NULL, NULL), SPW_EINVAL);
    spw_group_options_init(&options);
    options.shares[SPW_TIER_DISK].weight = 0;
    ck_assert_int_eq(spw_group_create(manager, &options, &none), SPW_EINVAL);
    ck_assert_ptr_null(none);
    spw_group_options_init(&options);
    options.shares[SPW_TIER_HOST] = (spw_group_share){.min_bytes = 2, .max_bytes = 1, .weight = 1};
    ck_assert_int_eq(spw_group_create(manager, &options, &none), SPW_EINVAL);
    spw_group_options_init(&options);
    options.name = "a name of thirty-two characters.";
    ck_assert_int_eq(spw_group_create(manager, &options, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_OK);
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, &share), SPW_EINVAL); /* weight 0 */
    share.weight = 1;
    ck_assert_int_eq(spw_group_set(group, SPW_META, &share), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set(group, SPW_HOST, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_group_set(NULL, SPW_HOST, &share), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_group_cancel(NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_group_usage_get(group, SPW_PLACE_NONE, &usage), SPW_EINVAL);
    usage.struct_size = 0;
    ck_assert_int_eq(spw_group_usage_get(group, SPW_HOST, &usage), SPW_EINVAL);
    share.min_bytes = 1; /* this manager has no device to give it of */
    ck_assert_int_eq(spw_group_set(group, SPW_DEVICE, &share), SPW_ETOOBIG);
    deep[0] = group;
    unsigned n = 1;
    while (create_group("deep", deep[n - 1], 0, SPW_NO_LIMIT, 1, 0, &deep[n]) == SPW_OK)
        n++;
    ck_assert_uint_eq(n, 13);
    while (n > 0)
        must_destroy(deep[--n]);
    spw_manager *other = create_with(NULL, "host=1M");
    ck_assert_int_eq(spw_group_create(other, NULL, &group), SPW_OK);
    spw_buffer *buffer = NULL;
    ck_assert_int_eq(alloc_in(group, 100, 0, &buffer), SPW_EINVAL);
    must_destroy(group);
    ck_assert_int_eq(spw_manager_destroy(other), SPW_OK);
    close_manager();
}
END_TEST

START_TEST(fault_META_ALLOC_gives_no_group)
{
    spw_group *group = (spw_group *)(void *)&manager;
    open_manager(SMALL_HOST);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_group_create(manager, NULL, &group), SPW_ENOMETA);
    ck_assert_ptr_null(group);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("group");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_buffer_is_charged_to_its_group_and_all_above);
    tcase_add_test(tcase, an_exact_fit_is_granted_and_one_byte_over_can_never_fit);
    tcase_add_test(tcase, a_refusal_names_the_group_its_maximum_and_its_use);
    tcase_add_test(tcase, a_group_over_its_maximum_spills_its_own_first);
    tcase_add_test(tcase, a_minimum_is_never_taken_by_others);
    tcase_add_test(tcase, a_group_may_push_out_its_own_below_its_minimum);
    tcase_add_loop_test(tcase, the_weight_decides_who_gives_way, 0, 2);
    tcase_add_test(tcase, a_maximum_below_use_grants_nothing_until_the_group_is_below_it);
    tcase_add_test(tcase, a_higher_maximum_lets_those_who_wait_proceed);
    tcase_add_test(tcase, one_that_its_own_group_refuses_does_not_hold_others_up);
    tcase_add_test(tcase, room_for_a_minimum_is_made_by_eviction_and_given_back);
    tcase_add_test(tcase, minima_that_can_never_be_had_are_too_big_at_once);
    tcase_add_test(tcase, a_higher_minimum_takes_what_is_free_or_changes_nothing);
    tcase_add_test(tcase, a_group_has_a_share_of_the_disk);
    tcase_add_test(tcase, raw_memory_and_copies_are_charged_to_their_group);
    tcase_add_test(tcase, destroy_while_anything_belongs_to_it_is_busy_and_names_it);
    tcase_add_test(tcase, a_forced_end_takes_groups_with_it);
    tcase_add_test(tcase, bad_arguments_are_refused);
    tcase_add_test(tcase, fault_META_ALLOC_gives_no_group);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
