/* Structs that begin with their size, between programs and libraries built from different headers: an older program's
 * are shorter, a newer one's longer. Neither may make the other read or write beyond what it has. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/sized.h"
#include "tests/manager_fixture.h"

#include <spillway/pool.h>

/* The last field of each: padding behind it would carry an older program's garbage into the next field. */
#define NO_PADDING_BEHIND(type, last) _Static_assert(SPW__SIZED_FIRST(type, last) == sizeof(type), #type)
NO_PADDING_BEHIND(spw_options, log_arg);
NO_PADDING_BEHIND(spw_spec, model);
NO_PADDING_BEHIND(spw_admit_options, group);
NO_PADDING_BEHIND(spw_alloc_options, group);
NO_PADDING_BEHIND(spw_group_options, wait);
NO_PADDING_BEHIND(spw_group_usage, max_bytes);
NO_PADDING_BEHIND(spw_map_options, reservation);
NO_PADDING_BEHIND(spw_pool_options, group);
NO_PADDING_BEHIND(spw_reserve_options, group);
NO_PADDING_BEHIND(spw_stats, device_lost);
NO_PADDING_BEHIND(spw_task_options, reserved);
NO_PADDING_BEHIND(spw_task_usage, splits);

/* Of a library that has seen two versions. */
struct known {
    size_t struct_size;
    uint64_t first;  /* the last field of the first version */
    uint64_t second; /* added since, 7 unless set */
};

#define KNOWN_FIRST SPW__SIZED_FIRST(struct known, first)

static struct known defaults(void)
{
    return (struct known){.struct_size = sizeof(struct known), .first = 1, .second = 7};
}

START_TEST(a_shorter_struct_leaves_what_it_lacks_at_its_default)
{
    struct {
        size_t struct_size;
        uint64_t first;
    } older = {sizeof older, 5};
    struct known known = defaults();
    ck_assert_uint_eq(KNOWN_FIRST, sizeof older);
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &older, "older"), SPW_OK);
    ck_assert_uint_eq(known.struct_size, sizeof known);
    ck_assert_uint_eq(known.first, 5);
    ck_assert_uint_eq(known.second, 7);
}
END_TEST

START_TEST(a_longer_struct_is_taken_while_its_unknown_tail_is_zero)
{
    struct {
        struct known known;
        uint64_t third, fourth;
    } newer = {.known = {sizeof newer, 5, 6}};
    struct known known = defaults();
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &newer, "newer"), SPW_OK);
    ck_assert_uint_eq(known.struct_size, sizeof known);
    ck_assert_uint_eq(known.first, 5);
    ck_assert_uint_eq(known.second, 6);
    newer.fourth = UINT64_C(1) << 63; /* the very last byte, on this machine */
    newer.known.first = 8;
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &newer, "that struct"), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "that struct: byte 39 is set"));
    ck_assert_uint_eq(known.first, 5);
}
END_TEST

START_TEST(sizes_that_no_version_had_are_refused_and_nothing_given_means_the_defaults)
{
    struct known given = {.struct_size = KNOWN_FIRST - 1, .first = 5}, known = defaults();
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &given, "that struct"), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "that struct: struct_size is 15, not 24"));
    given.struct_size = 0;
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &given, "that struct"), SPW_EINVAL);
    given.struct_size = (size_t)UINT64_C(0xdeaddeaddeaddead); /* never initialised: not followed into the unknown */
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, &given, "that struct"), SPW_EINVAL);
    ck_assert_int_eq(spw__sized_take(&known, KNOWN_FIRST, NULL, "that struct"), SPW_OK);
    ck_assert_uint_eq(known.first, 1);
    ck_assert_uint_eq(known.second, 7);
}
END_TEST

START_TEST(initialisers_write_no_further_than_they_are_told_and_zero_what_they_do_not_know)
{
    const struct known known = defaults();
    uint64_t place[6];
    memset(place, 0xee, sizeof place);
    spw__sized_give(place, 16, &known);
    ck_assert_uint_eq(place[0], 16);
    ck_assert_uint_eq(place[1], 1);
    ck_assert_uint_eq(place[2], UINT64_C(0xeeeeeeeeeeeeeeee));
    spw__sized_give(place, 40, &known);
    ck_assert_uint_eq(place[0], 40);
    ck_assert_uint_eq(place[2], 7);
    ck_assert_uint_eq(place[3], 0);
    ck_assert_uint_eq(place[4], 0);
    ck_assert_uint_eq(place[5], UINT64_C(0xeeeeeeeeeeeeeeee));
    spw__sized_give(place, 4, &known); /* no room for a size even */
    ck_assert_uint_eq(place[0], 40);
}
END_TEST

/* A struct of a newer header: ours, and fields that this library has never heard of. */
#define NEWER(type)                                                                                                    \
    struct {                                                                                                           \
        type known;                                                                                                    \
        uint64_t unknown[3];                                                                                           \
        uint64_t beyond;                                                                                               \
    }
#define UNTOUCHED UINT64_C(0x1234567812345678)
#define NEWER_SIZE(newer) (sizeof((newer).known) + sizeof((newer).unknown))
#define INIT_NEWER(newer, init)                                                                                        \
    do {                                                                                                               \
        memset(&(newer), 0xee, sizeof(newer));                                                                         \
        (newer).beyond = UNTOUCHED;                                                                                    \
        init(&(newer).known, NEWER_SIZE(newer));                                                                       \
        ck_assert_uint_eq((newer).known.struct_size, NEWER_SIZE(newer));                                               \
        ck_assert_uint_eq((newer).unknown[2], 0);                                                                      \
        ck_assert_uint_eq((newer).beyond, UNTOUCHED);                                                                  \
    } while (0)

START_TEST(a_manager_takes_newer_options_and_fields_and_refuses_what_it_does_not_know)
{
    NEWER(spw_options) options;
    NEWER(spw_spec) fields;
    spw_manager *made = NULL;
    INIT_NEWER(options, spw_options_init_sized);
    INIT_NEWER(fields, spw_spec_init_empty_sized);
    options.known.spec = "host=1M";
    fields.known.n_pools[SPW_TIER_HOST] = 1;
    fields.known.pools[SPW_TIER_HOST][0].size_bytes = 2 * MIB;
    options.known.fields = &fields.known;
    ck_assert_int_eq(spw_manager_create(&options.known, &made), SPW_OK);
    ck_assert_uint_eq(spw_budget(made, SPW_HOST), 2 * MIB);
    ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);

    fields.unknown[1] = 1;
    ck_assert_int_eq(spw_manager_create(&options.known, &made), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "options.fields: byte"));
    fields.unknown[1] = 0;
    options.unknown[2] = 1;
    ck_assert_int_eq(spw_manager_create(&options.known, &made), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "spw_manager_create: options: byte"));
    ck_assert_ptr_null(made);
}
END_TEST

START_TEST(calls_take_newer_options_and_refuse_what_they_do_not_know)
{
    NEWER(spw_admit_options) admit;
    NEWER(spw_alloc_options) alloc;
    NEWER(spw_map_options) map;
    NEWER(spw_pool_options) pool;
    spw_buffer *buffer;
    spw_block block;
    spw_view view;
    open_manager("host=1M");
    INIT_NEWER(admit, spw_admit_options_init_sized);
    INIT_NEWER(alloc, spw_alloc_options_init_sized);
    INIT_NEWER(map, spw_map_options_init_sized);
    INIT_NEWER(pool, spw_pool_options_init_sized);
    ck_assert_int_eq(admit.known.wait.timeout_ms, SPW_TIMEOUT_DEFAULT);
    ck_assert_int_eq(spw_admit(manager, 100, &admit.known, &buffer), SPW_OK);
    must_release(buffer);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 100, &alloc.known, &buffer), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE, &map.known, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 100, 0, NULL, &pool.known, &block), SPW_OK);
    ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);

    admit.unknown[0] = alloc.unknown[0] = map.unknown[0] = pool.unknown[0] = 1;
    spw_buffer *none = buffer;
    ck_assert_int_eq(spw_admit(manager, 100, &admit.known, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 100, &alloc.known, &none), SPW_EINVAL);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, &map.known, &view), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 100, 0, NULL, &pool.known, &block), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "spw_pool_alloc: options: byte"));
    ck_assert_int_eq(spw_buffer_make_writable(&buffer, SPW_HOST, &alloc.known), SPW_EINVAL);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(what_is_reserved_in_the_wait_options_must_be_zero)
{
    spw_alloc_options options;
    spw_buffer *buffer;
    open_manager("host=1M");
    spw_alloc_options_init(&options);
    options.wait.reserved[3] = 1;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 100, &options, &buffer), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "wait.reserved[3]"));
    close_manager();
}
END_TEST

START_TEST(a_snapshot_fills_what_both_sides_know_and_keeps_the_rest)
{
    NEWER(spw_stats) newer = {.known = {.struct_size = 0}};
    open_manager("host=1M");
    newer.known.struct_size = NEWER_SIZE(newer);
    newer.unknown[0] = newer.beyond = UNTOUCHED;
    ck_assert_int_eq(spw_stats_snapshot(manager, &newer.known), SPW_OK);
    ck_assert_uint_eq(newer.known.struct_size, NEWER_SIZE(newer));
    ck_assert_uint_eq(newer.known.tiers[SPW_TIER_HOST].budget_bytes, MIB);
    ck_assert_uint_eq(newer.known.tiers[SPW_TIER_HOST].reserved[0], 0);
    ck_assert_uint_eq(newer.known.edges[0][1].reserved[3], 0);
    ck_assert_uint_eq(newer.unknown[0], UNTOUCHED);
    ck_assert_uint_eq(newer.beyond, UNTOUCHED);
    close_manager();
}
END_TEST

#define FIRST_SPEC SPW__SIZED_FIRST(spw_spec, grow)

START_TEST(an_older_programs_spec_is_shorter_and_what_it_cannot_hold_is_no_silent_loss)
{
    spw_spec spec, before;
    char text[64];
    memset(&spec, 0x5a, sizeof spec);
    before = spec;
    ck_assert_int_eq(spw_spec_parse_sized("host=3M; grow=vmm; driver=sim", &spec, FIRST_SPEC), SPW_OK);
    ck_assert_uint_eq(spec.struct_size, FIRST_SPEC);
    ck_assert_int_eq(spec.grow, SPW_GROW_VMM);
    ck_assert_uint_eq(spec.sim_seed, before.sim_seed); /* what lies behind is not its own */
    ck_assert_mem_eq(&spec.model, &before.model, sizeof spec.model);
    ck_assert_uint_gt(spw_spec_format(&spec, text, sizeof text), 0);
    ck_assert_str_eq(text, "device=0; host=3M; driver=sim; grow=vmm");
    ck_assert_int_eq(spw_spec_parse_sized("host=3M; driver=sim:7", &spec, FIRST_SPEC), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "newer <spillway/spec.h>"));
    ck_assert_int_eq(spw_spec_parse_sized("host=3M; driver=sim; model=h200", &spec, FIRST_SPEC), SPW_EINVAL);
    ck_assert_int_eq(spw_spec_parse_sized("host=3M; driver=sim:7", &spec, sizeof spec), SPW_OK);
}
END_TEST

START_TEST(specs_of_other_sizes_are_parsed_into_formatted_and_refused)
{
    NEWER(spw_spec) newer;
    char text[64] = "unchanged";
    newer.beyond = UNTOUCHED;
    ck_assert_int_eq(spw_spec_parse_sized("host=3M", &newer.known, NEWER_SIZE(newer)), SPW_OK);
    ck_assert_uint_eq(newer.known.struct_size, NEWER_SIZE(newer));
    ck_assert_uint_eq(newer.known.pools[SPW_TIER_HOST][0].size_bytes, 3 * MIB);
    ck_assert_uint_eq(newer.unknown[2], 0);
    ck_assert_uint_eq(newer.beyond, UNTOUCHED);
    ck_assert_uint_eq(spw_spec_format(&newer.known, text, sizeof text), strlen("device=0; host=3M"));
    ck_assert_str_eq(text, "device=0; host=3M");
    newer.unknown[0] = 1;
    ck_assert_uint_eq(spw_spec_format(&newer.known, text, sizeof text), 0);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(spw_error_detail()->code, SPW_EINVAL);
    ck_assert_int_eq(spw_spec_parse_sized("host=3M", &newer.known, FIRST_SPEC - 8), SPW_EINVAL);
    INIT_NEWER(newer, spw_spec_init_sized);
    ck_assert_uint_eq(newer.known.n_pools[SPW_TIER_DEVICE], 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("abi");
    TCase *tcase = tcase_create("abi");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, a_shorter_struct_leaves_what_it_lacks_at_its_default);
    tcase_add_test(tcase, a_longer_struct_is_taken_while_its_unknown_tail_is_zero);
    tcase_add_test(tcase, sizes_that_no_version_had_are_refused_and_nothing_given_means_the_defaults);
    tcase_add_test(tcase, initialisers_write_no_further_than_they_are_told_and_zero_what_they_do_not_know);
    tcase_add_test(tcase, a_manager_takes_newer_options_and_fields_and_refuses_what_it_does_not_know);
    tcase_add_test(tcase, calls_take_newer_options_and_refuse_what_they_do_not_know);
    tcase_add_test(tcase, what_is_reserved_in_the_wait_options_must_be_zero);
    tcase_add_test(tcase, a_snapshot_fills_what_both_sides_know_and_keeps_the_rest);
    tcase_add_test(tcase, an_older_programs_spec_is_shorter_and_what_it_cannot_hold_is_no_silent_loss);
    tcase_add_test(tcase, specs_of_other_sizes_are_parsed_into_formatted_and_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
