/* The configuration string: sections, fields, environment, round trip. Neighbour: test_spec.c. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spillway/error.h>
#include <spillway/spec.h>

#include "pool/spec.h"
#include "tests/spec_fixture.h"

START_TEST(sections_set_every_field)
{
    const spw_spec spec = parsed("device=10737418240,2147483648:20971520,1073741824:2097152; pinned=64G,4G:2M;host=1T;"
                                 "  disk=/nvme0/spill:500G,/nvme1/spill; meta=32M; staging=8M; piece=1M; device_id=3; "
                                 "driver=sim; io=threads; io_threads=4; threads=0; verify=1; placement=address; "
                                 "numa=3");
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 3);
    assert_pool(&spec, SPW_TIER_DEVICE, 1, UINT64_C(2) << 30, 20 << 20);
    assert_pool(&spec, SPW_TIER_PINNED_HOST, 0, UINT64_C(64) << 30, 0);
    assert_pool(&spec, SPW_TIER_PINNED_HOST, 1, UINT64_C(4) << 30, 2 << 20);
    assert_pool(&spec, SPW_TIER_HOST, 0, UINT64_C(1) << 40, 0);
    ck_assert_uint_eq(spec.n_folders, 2);
    ck_assert_uint_eq(spec.folders[0].path_length, 12);
    ck_assert_mem_eq(spec.folders[0].path, "/nvme0/spill", 12);
    ck_assert_uint_eq(spec.folders[0].quota_bytes, UINT64_C(500) << 30);
    ck_assert_mem_eq(spec.folders[1].path, "/nvme1/spill", 12);
    ck_assert_uint_eq(spec.folders[1].quota_bytes, 0);
    ck_assert_uint_eq(spec.meta_bytes, 32 << 20);
    ck_assert_uint_eq(spec.staging_bytes, 8 << 20);
    ck_assert_uint_eq(spec.piece_bytes, 1 << 20);
    ck_assert_uint_eq(spec.device_id, 3);
    ck_assert_uint_eq(spec.io_threads, 4);
    ck_assert_int_eq(spec.threads, 0);
    ck_assert_int_eq(spec.verify, 1);
    ck_assert_int_eq(spec.driver, SPW_DRIVER_SIM);
    ck_assert_int_eq(spec.io, SPW_IO_THREADS);
    ck_assert_int_eq(spec.placement, SPW_PLACEMENT_ADDRESS);
    ck_assert_int_eq(spec.numa_node, 3);
}
END_TEST

START_TEST(what_sections_do_not_name_is_absent_or_default)
{
    const spw_spec spec = parsed("host=64M");
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 0);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_PINNED_HOST], 0);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_HOST], 1);
    ck_assert_uint_eq(spec.n_folders, 0);
    ck_assert_uint_eq(spec.meta_bytes, 0);
    ck_assert_uint_eq(spec.staging_bytes, 0);
    ck_assert_uint_eq(spec.piece_bytes, 0);
    ck_assert_uint_eq(spec.device_id, 0);
    ck_assert_uint_eq(spec.io_threads, 0);
    ck_assert_int_eq(spec.threads, -1);
    ck_assert_int_eq(spec.verify, -1);
    ck_assert_int_eq(spec.driver, SPW_DRIVER_AUTO);
    ck_assert_int_eq(spec.io, SPW_IO_AUTO);
    ck_assert_int_eq(spec.placement, SPW_PLACEMENT_AUTO);
    ck_assert_int_eq(spec.numa_node, -1);
    ck_assert_int_eq(spec.headroom_percent, -1);
    assert_route(&spec, SPW_TIER_DEVICE, 1, "");
    assert_route(&spec, SPW_TIER_DISK, 1, "");
}
END_TEST

START_TEST(a_tier_of_0_is_no_tier)
{
    const spw_spec spec = parsed("device=0; pinned_host=0; host=0; disk=0");
    for (unsigned tier = 0; tier < 3; tier++)
        ck_assert_uint_eq(spec.n_pools[tier], 0);
    ck_assert_uint_eq(spec.n_folders, 0);
    refused("host=0,1M", 5, "from 1024 bytes");
    refused("host=0:0", 5, "from 1024 bytes");
}
END_TEST

START_TEST(sections_keep_all_bounds_but_the_upper_ones_of_sizes)
{
    char string[1024] = "host=";
    assert_pool(&(spw_spec[]){parsed("host=1T,1T")}[0], SPW_TIER_HOST, 1, UINT64_C(1) << 40, 0);
    assert_pool(&(spw_spec[]){parsed("host=16777215T")}[0], SPW_TIER_HOST, 0, UINT64_C(16777215) << 40, 0);
    refused("host=16777216T", 5, "below 2^64");
    refused("host=18446744073709551616", 5, "below 2^64");
    refused("host=8388608T,8388608T", 14, "less than 2^64 bytes together");
    refused("host=1023", 5, "from 1024 bytes");
    refused("host=1M:1023", 8, "from 1024 to 2147483648");
    refused("host=8G:3G", 8, "from 1024 to 2147483648");
    refused("host=1M:2M", 8, "at most the size of its pool, 1048576 bytes, found 2097152");
    many_pools(string + 5, 129);
    refused(string, 5 + 128 * 5, "at most 128 pools");
}
END_TEST

static const struct {
    const char *string;
    size_t offset;
    const char *wanted;
} malformed_sections[] = {
    {"=", 0, "expected a key"},
    {"=1G", 0, "expected a key"},
    {"cpu=1G", 0, "expected a key"},
    {"Host=1G", 0, "expected a key"},
    {"10G; host=1G", 0, "expected a key"},
    {"host;device=1G", 4, "expected '='"},
    {"host =1G", 4, "expected '=', found \" \""},
    {" host=1G", 0, "expected a key"},
    {"host= 1G", 5, "expected a pool size, such as 10G, found \" \""},
    {"host=1G ;meta=1M", 7, "found \" \""},
    {"host=1G;", 8, "expected a key"},
    {"host=1G; ", 9, "expected a key"},
    {"host=1G;;meta=1M", 8, "expected a key"},
    {"host=1G;\tmeta=1M", 8, "expected a key"},
    {"host=", 5, "expected a pool size, such as 10G, found the end"},
    {"host=;meta=1M", 5, "found the end"},
    {"host=1G,;meta=1M", 8, "found the end"},
    {"host=1GB", 7, "expected ':', ',' or the end, found \"B\""},
    {"host=1g", 6, "expected a digit, K, M, G, T, ':', ',' or the end"},
    {"host=1G:2MiB", 10, "found \"iB\""},
    {"host=1G; host=2G", 9, "each section once, found \"host\""},
    {"pinned=1G; pinned_host=1G", 11, "each section once"},
    {"headroom=51", 9, "expected a number from 0 to 50"},
    {"meta=", 5, "expected a size"},
    {"meta=12Q", 7, "expected a digit, K, M, G, T, or the end, found \"Q\""},
    {"piece=16777216T", 6, "expected a size below 2^64"},
    {"piece=1M,1M", 8, "expected the end, found \",\""},
    {"device_id=256", 10, "expected a number from 0 to 255, found \"256\""},
    {"device_id=1K", 11, "expected a digit, or the end, found \"K\""},
    {"io_threads=257", 11, "0 to 256"},
    {"threads=2", 8, "0 to 1"},
    {"threads=-1", 8, "0 to 1"},
    {"verify=on", 7, "0 to 1"},
    {"driver=opencl", 7, "expected auto, cuda or sim, found \"opencl\""},
    {"driver=", 7, "expected auto, cuda or sim, found the end"},
    {"io=uring2", 3, "expected auto, uring or threads, found \"uring2\""},
    {"placement=addr", 10, "expected auto or address"},
    {"numa=1024", 5, "expected a number from 0 to 1023"},
    {"numa=any", 5, "expected a number from 0 to 1023"},
    {"disk=", 5, "expected a folder, found the end"},
    {"disk=/a,", 8, "expected a folder, found the end"},
    {"disk=:500G", 5, "expected a folder"},
    {"disk=/a:", 8, "expected a quota"},
    {"disk=/a:500GB", 12, "expected the end of the quota"},
    {"disk=/a:16777216T", 8, "expected a quota"},
    {"disk=/a b", 7, "expected a folder's name without spaces"},
    {"disk=/a:1G ,/b", 10, "expected the end of the quota"},
};

START_TEST(malformed_sections_name_the_byte_and_what_was_expected)
{
    refused(malformed_sections[_i].string, malformed_sections[_i].offset, malformed_sections[_i].wanted);
}
END_TEST

START_TEST(a_folder_ends_at_the_last_colon_before_a_size)
{
    const spw_spec spec = parsed("disk=/a:b:1G,/c:d,/e:5,/f:5:0,/g=h,0:0");
    static const struct {
        const char *path;
        uint64_t quota;
    } wanted[] = {{"/a:b", 1 << 30}, {"/c:d", 0}, {"/e", 5}, {"/f:5", 0}, {"/g=h", 0}, {"0", 0}};
    ck_assert_uint_eq(spec.n_folders, 6);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_uint_eq(spec.folders[i].path_length, strlen(wanted[i].path));
        ck_assert_mem_eq(spec.folders[i].path, wanted[i].path, strlen(wanted[i].path));
        ck_assert_uint_eq(spec.folders[i].quota_bytes, wanted[i].quota);
    }
}
END_TEST

START_TEST(at_most_16_folders)
{
    char string[128] = "disk=/f", *p = string + 7;
    for (unsigned i = 1; i < 16; i++)
        p += sprintf(p, ",/f");
    ck_assert_uint_eq(parsed(string).n_folders, 16);
    (void)sprintf(p, ",/f");
    refused(string, 5 + 16 * 3, "at most 16 folders");
}
END_TEST

static int take_fields(const spw_spec *fields)
{
    static spw_spec spec;
    uint32_t named = 0;
    spw_spec_init(&spec);
    return spw__spec_fields(&spec, &named, fields);
}

START_TEST(fields_keep_the_bounds_of_the_text)
{
    static const struct {
        size_t field;
        int32_t good, bad, as_bad;
    } numbers[] = {{offsetof(spw_spec, device_id), 255, 256, -1}, {offsetof(spw_spec, io_threads), 256, 257, -1},
                   {offsetof(spw_spec, threads), 1, 2, -2},       {offsetof(spw_spec, verify), -1, 2, -2},
                   {offsetof(spw_spec, numa_node), 1023, 1024, -2}, {offsetof(spw_spec, headroom_percent), 50, 51, -2},
                   {offsetof(spw_spec, driver), 2, 3, -1},
                   {offsetof(spw_spec, io), 2, 3, -1},            {offsetof(spw_spec, placement), 1, 2, -1}};
    const uint64_t big = UINT64_C(8) << 30, limit = UINT64_C(2) << 30;
    const spw_spec_pool pools[] = {{1023, 0}, {big, limit + 1}, {big, 1023}, {4096, 4097}, {UINT64_MAX, 0}};
    static spw_spec fields;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const int32_t values[] = {numbers[i].good, numbers[i].bad, numbers[i].as_bad};
        for (unsigned v = 0; v < 3; v++) {
            spw_spec_init_empty(&fields);
            memcpy((char *)&fields + numbers[i].field, &values[v], sizeof values[v]);
            ck_assert_msg(take_fields(&fields) == (v ? SPW_EINVAL : SPW_OK), "field %u, %d", i, values[v]);
        }
    }
    for (unsigned i = 0; i < sizeof pools / sizeof *pools; i++) {
        spw_spec_init_empty(&fields);
        fields.n_pools[SPW_TIER_HOST] = 1;
        fields.pools[SPW_TIER_HOST][0] = pools[i];
        ck_assert_int_eq(take_fields(&fields), SPW_EINVAL);
    }
    fields.pools[SPW_TIER_HOST][0] = (spw_spec_pool){big, limit};
    ck_assert_int_eq(take_fields(&fields), SPW_OK);
    fields.staging_bytes = UINT64_MAX;
    ck_assert_int_eq(take_fields(&fields), SPW_EINVAL);
}
END_TEST

START_TEST(nothing_to_route_or_format_gives_nothing)
{
    static spw_spec spec;
    uint32_t order[SPW_SPEC_POOLS_MAX];
    char text[8] = "before";
    spw_spec_init(&spec);
    ck_assert_uint_eq(spw_spec_route(NULL, SPW_TIER_DEVICE, 1, order), 0);
    ck_assert_uint_eq(spw_spec_route(&spec, SPW_TIER_DEVICE, 1, NULL), 0);
    ck_assert_uint_eq(spw_spec_format(NULL, text, sizeof text), 0);
    ck_assert_uint_eq(spw_spec_format(&spec, NULL, 100), strlen("device=10G"));
}
END_TEST

START_TEST(no_spec_to_parse_into_is_EINVAL)
{
    ck_assert_int_eq(spw_spec_parse("1024", NULL), SPW_EINVAL);
}
END_TEST

/* Sizes */

START_TEST(sizes_are_digits_and_one_suffix)
{
    spw_spec spec;
    ck_assert_uint_eq(parsed("meta=64M").meta_bytes, 64 << 20);
    ck_assert_uint_eq(parsed("meta=64").meta_bytes, 64);
    ck_assert_uint_eq(parsed("meta=0").meta_bytes, 0);
    ck_assert_uint_eq(parsed("meta=3T").meta_bytes, UINT64_C(3) << 40);
    static const char *const bad[] = {"meta=", "meta=M", "meta=1MM", "meta=1 M", "meta=-1", "meta=1.5G",
                                      "meta=18446744073709551615", "meta=99999999T"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(spw_spec_parse(bad[i], &spec), SPW_ESPEC);
}
END_TEST

/* Round trip */

static void assert_equal(const spw_spec *a, const spw_spec *b)
{
    for (unsigned tier = 0; tier < 3; tier++) {
        ck_assert_uint_eq(a->n_pools[tier], b->n_pools[tier]);
        for (uint32_t i = 0; i < a->n_pools[tier]; i++)
            assert_pool(a, (spw_tier)tier, i, b->pools[tier][i].size_bytes, b->pools[tier][i].limit_bytes);
    }
    ck_assert_uint_eq(a->n_folders, b->n_folders);
    for (uint32_t i = 0; i < a->n_folders; i++) {
        ck_assert_uint_eq(a->folders[i].path_length, b->folders[i].path_length);
        ck_assert_mem_eq(a->folders[i].path, b->folders[i].path, a->folders[i].path_length);
        ck_assert_uint_eq(a->folders[i].quota_bytes, b->folders[i].quota_bytes);
    }
    ck_assert_uint_eq(a->meta_bytes, b->meta_bytes);
    ck_assert_uint_eq(a->staging_bytes, b->staging_bytes);
    ck_assert_uint_eq(a->piece_bytes, b->piece_bytes);
    ck_assert_uint_eq(a->device_id, b->device_id);
    ck_assert_uint_eq(a->io_threads, b->io_threads);
    ck_assert_int_eq(a->threads, b->threads);
    ck_assert_int_eq(a->verify, b->verify);
    ck_assert_int_eq(a->driver, b->driver);
    ck_assert_int_eq(a->io, b->io);
    ck_assert_int_eq(a->placement, b->placement);
    ck_assert_int_eq(a->numa_node, b->numa_node);
    ck_assert_int_eq(a->headroom_percent, b->headroom_percent);
    ck_assert_int_eq(a->grow, b->grow);
    ck_assert_uint_eq(a->sim_seed, b->sim_seed);
    ck_assert_mem_eq(&a->model, &b->model, sizeof a->model);
}

static const struct {
    const char *string, *canonical;
} trips[] = {
    {NULL, "device=10G"},
    {EXAMPLE_3, "device=10G,2G:20M,1G:2M"},
    {"1025:1024,1099511627:0", "device=1025:1K,1099511627"},
    {"host=0", "device=0"},
    {"pinned_host=1048576K;disk=/a:1G,/b:c:0,/d", "device=0; pinned=1G; disk=/a:1G,/b:c:0,/d"},
    {"disk=0:0", "device=0; disk=0:0"},
    {"numa=0;host=1M", "device=0; host=1M; numa=0"},
    {"headroom=0;host=1M", "device=0; host=1M; headroom=0"},
    {"placement=address;verify=0;threads=1;io_threads=2;io=uring;driver=cuda;piece=3K;staging=5000;meta=1T;device_id=7",
     "device=0; device_id=7; meta=1T; staging=5000; piece=3K; driver=cuda; io=uring; io_threads=2; threads=1; "
     "verify=0; placement=address"},
};

START_TEST(format_is_canonical_and_parses_back)
{
    char text[512];
    const spw_spec spec = parsed(trips[_i].string);
    const size_t length = spw_spec_format(&spec, text, sizeof text);
    ck_assert_str_eq(text, trips[_i].canonical);
    ck_assert_uint_eq(length, strlen(text));
    const spw_spec back = parsed(text);
    assert_equal(&spec, &back);
}
END_TEST

START_TEST(format_counts_what_does_not_fit)
{
    const spw_spec spec = parsed(EXAMPLE_3);
    char text[64];
    ck_assert_uint_eq(spw_spec_format(&spec, NULL, 0), 23);
    for (size_t size = 1; size < sizeof text; size++) {
        memset(text, '!', sizeof text);
        ck_assert_uint_eq(spw_spec_format(&spec, text, size), 23);
        ck_assert_uint_eq(strlen(text), size - 1 < 23 ? size - 1 : 23);
        ck_assert_int_eq(strncmp(text, "device=10G,2G:20M,1G:2M", size - 1), 0);
        ck_assert_int_eq(text[size], '!');
    }
}
END_TEST

/* Environment */

static char two_gib[] = "2G";
static char four[] = "4";
static char nothing[] = "";
static char nonsense[] = "X";

static char *some_variables(const char *name)
{
    if (strcmp(name, "SPILLWAY_HOST") == 0)
        return two_gib;
    if (strcmp(name, "SPILLWAY_IO_THREADS") == 0)
        return four;
    return strcmp(name, "SPILLWAY_PIECE") == 0 ? nothing : NULL;
}

static char *bad_variable(const char *name)
{
    return strcmp(name, "SPILLWAY_PINNED_HOST") == 0 ? nonsense : NULL;
}

START_TEST(environment_fills_what_the_string_does_not_name)
{
    spw_spec spec;
    uint32_t named = 0;
    ck_assert_int_eq(spw__spec_parse("device=1G; meta=5M", &spec, &named), SPW_OK);
    ck_assert_uint_eq(named, SPW__SPEC_BIT(SPW__SPEC_DEVICE) | SPW__SPEC_BIT(SPW__SPEC_META));
    ck_assert_int_eq(spw__spec_environment(&spec, &named, some_variables), SPW_OK);
    assert_pool(&spec, SPW_TIER_HOST, 0, UINT64_C(2) << 30, 0);
    assert_pool(&spec, SPW_TIER_DEVICE, 0, UINT64_C(1) << 30, 0);
    ck_assert_uint_eq(spec.meta_bytes, 5 << 20);
    ck_assert_uint_eq(spec.io_threads, 4);
    ck_assert_uint_eq(spec.piece_bytes, 0);
    ck_assert_uint_eq(named, SPW__SPEC_BIT(SPW__SPEC_DEVICE) | SPW__SPEC_BIT(SPW__SPEC_META) |
                                 SPW__SPEC_BIT(SPW__SPEC_HOST) | SPW__SPEC_BIT(SPW__SPEC_IO_THREADS));
}
END_TEST

START_TEST(the_string_wins_over_the_environment)
{
    spw_spec spec;
    uint32_t named = 0;
    ck_assert_int_eq(spw__spec_parse("host=1G", &spec, &named), SPW_OK);
    ck_assert_int_eq(spw__spec_environment(&spec, &named, some_variables), SPW_OK);
    assert_pool(&spec, SPW_TIER_HOST, 0, UINT64_C(1) << 30, 0);
}
END_TEST

START_TEST(a_bad_variable_is_named_and_changes_nothing)
{
    spw_spec spec, before;
    uint32_t named = 0;
    ck_assert_int_eq(spw__spec_parse("host=1G", &spec, &named), SPW_OK);
    memcpy(&before, &spec, sizeof spec);
    ck_assert_int_eq(spw__spec_environment(&spec, &named, bad_variable), SPW_ESPEC);
    ck_assert_int_eq(strncmp(spw_error_detail()->message, "SPILLWAY_PINNED_HOST, byte 0: expected", 38), 0);
    ck_assert_mem_eq(&spec, &before, sizeof spec);
    ck_assert_uint_eq(named, SPW__SPEC_BIT(SPW__SPEC_HOST));
    ck_assert_int_eq(spw__spec_parse("pinned=1G", &spec, &named), SPW_OK); /* the alias counts as named */
    ck_assert_int_eq(spw__spec_environment(&spec, &named, bad_variable), SPW_OK);
}
END_TEST

static void add_sections(TCase *tests)
{
    tcase_add_test(tests, sections_set_every_field);
    tcase_add_test(tests, what_sections_do_not_name_is_absent_or_default);
    tcase_add_test(tests, a_tier_of_0_is_no_tier);
    tcase_add_test(tests, sections_keep_all_bounds_but_the_upper_ones_of_sizes);
    tcase_add_loop_test(tests, malformed_sections_name_the_byte_and_what_was_expected, 0,
                        sizeof malformed_sections / sizeof malformed_sections[0]);
    tcase_add_test(tests, a_folder_ends_at_the_last_colon_before_a_size);
    tcase_add_test(tests, at_most_16_folders);
    tcase_add_test(tests, fields_keep_the_bounds_of_the_text);
    tcase_add_test(tests, nothing_to_route_or_format_gives_nothing);
    tcase_add_test(tests, no_spec_to_parse_into_is_EINVAL);
    tcase_add_test(tests, sizes_are_digits_and_one_suffix);
    tcase_add_loop_test(tests, format_is_canonical_and_parses_back, 0, sizeof trips / sizeof trips[0]);
    tcase_add_test(tests, format_counts_what_does_not_fit);
    tcase_add_test(tests, environment_fills_what_the_string_does_not_name);
    tcase_add_test(tests, the_string_wins_over_the_environment);
    tcase_add_test(tests, a_bad_variable_is_named_and_changes_nothing);
}

int main(void)
{
    Suite *suite = suite_create("spec_sections");
    TCase *sections = tcase_create("sections");
    add_sections(sections);
    suite_add_tcase(suite, sections);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
