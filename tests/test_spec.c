/* The configuration string: P1 to P15 for a bare string. Neighbour: test_spec_sections.c. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <spillway/spec.h>

#include "tests/spec_fixture.h"

START_TEST(P1_well_formed_strings)
{
    spw_spec spec = parsed("1024");
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 1);
    assert_pool(&spec, SPW_TIER_DEVICE, 0, 1024, 0);
    spec = parsed("4096:2048,8192,1024:1024,2048:0");
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 4);
    assert_pool(&spec, SPW_TIER_DEVICE, 0, 4096, 2048);
    assert_pool(&spec, SPW_TIER_DEVICE, 1, 8192, 0);
    assert_pool(&spec, SPW_TIER_DEVICE, 2, 1024, 1024);
    assert_pool(&spec, SPW_TIER_DEVICE, 3, 2048, 0);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_PINNED_HOST], 0);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_HOST], 0);
    ck_assert_uint_eq(spec.n_folders, 0);
}
END_TEST

static const struct {
    const char *string;
    size_t offset;
    const char *wanted;
} malformed[] = {
    {",", 0, "expected a pool size in bytes, found \",\""},
    {":", 0, "expected a pool size"},
    {" 1024", 0, "expected a pool size"},
    {"+1024", 0, "expected a pool size"},
    {"-1024", 0, "expected a pool size in bytes, found \"-1024\""},
    {"x", 0, "expected a pool size"},
    {"1024 ", 4, "expected a digit, ':', ',' or the end, found \" \""},
    {"1024,", 5, "expected a pool size in bytes, found the end"},
    {"1024,,2048", 5, "expected a pool size in bytes, found \",\""},
    {"1024, 2048", 5, "expected a pool size"},
    {"1024:", 5, "expected a limit in bytes, found the end"},
    {"1024:,2048", 5, "expected a limit in bytes, found \",\""},
    {"1024:-1", 5, "expected a limit"},
    {"1024: 1024", 5, "expected a limit"},
    {"2048:1024:1024", 9, "expected a digit, ',' or the end, found \":\""},
    {"2048:1024 ", 9, "expected a digit, ',' or the end"},
    {"0x400", 1, "found \"x400\""},
    {"1024x", 4, "found \"x\""},
    {"10G", 2, "found \"G\""},
    {"2097152K", 7, "found \"K\""},
    {"1e10", 1, "found \"e10\""},
    {"1024.5", 4, "found \".5\""},
    {"1024;2048", 4, "found \";\""},
    {"1024\n", 4, "found \"?\""},
    {"4096,4096\t", 9, "found \"?\""},
};

START_TEST(P1_malformed_strings_name_the_byte_and_what_was_expected)
{
    refused(malformed[_i].string, malformed[_i].offset, malformed[_i].wanted);
}
END_TEST

START_TEST(P2_128_pools_at_most)
{
    char string[1024];
    many_pools(string, 128);
    const spw_spec spec = parsed(string);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 128);
    assert_pool(&spec, SPW_TIER_DEVICE, 127, 1024, 0);
    many_pools(string, 129);
    refused(string, 128 * 5, "at most 128 pools");
}
END_TEST

START_TEST(P3_no_string_is_one_unlimited_pool_of_10_GiB)
{
    spw_spec spec = parsed(NULL), init;
    spw_spec_init(&init);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 1);
    assert_pool(&spec, SPW_TIER_DEVICE, 0, UINT64_C(10737418240), 0);
    ck_assert_mem_eq(&spec, &init, sizeof spec);
    refused("", 0, "empty string");
}
END_TEST

START_TEST(P4_pool_size_bounds)
{
    refused("1023", 0, "1024 to 274877906944 bytes, found \"1023\"");
    refused("0", 0, "1024 to 274877906944");
    ck_assert_uint_eq(parsed("1024").pools[SPW_TIER_DEVICE][0].size_bytes, 1024);
    ck_assert_uint_eq(parsed("274877906944").pools[SPW_TIER_DEVICE][0].size_bytes, UINT64_C(1) << 38);
    refused("274877906945", 0, "1024 to 274877906944");
    refused("1024,18446744073709551616", 5, "1024 to 274877906944"); /* 2^64 */
    refused("18446744073709552640", 0, "1024 to 274877906944");      /* 2^64 + 1024 */
    refused("99999999999999999999999999999999999999999999", 0, "1024 to 274877906944");
}
END_TEST

START_TEST(P5_all_pools_together_at_most_256_GiB)
{
    const spw_spec spec = parsed("137438953472,137438953472");
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 2);
    refused("137438953472,137438953473", 13, "274877906944 bytes together");
    refused("214748364800,214748364800", 13, "274877906944 bytes together"); /* 200G + 200G */
    refused("274877906944,1024", 13, "274877906944 bytes together");
}
END_TEST

START_TEST(P6_limit_bounds)
{
    assert_pool(&(spw_spec[]){parsed("4294967296:0")}[0], SPW_TIER_DEVICE, 0, UINT64_C(1) << 32, 0);
    assert_pool(&(spw_spec[]){parsed("4294967296:1024")}[0], SPW_TIER_DEVICE, 0, UINT64_C(1) << 32, 1024);
    assert_pool(&(spw_spec[]){parsed("4294967296:2147483648")}[0], SPW_TIER_DEVICE, 0, UINT64_C(1) << 32,
                UINT64_C(1) << 31);
    refused("4294967296:1", 11, "0 (unlimited) or from 1024 to 2147483648");
    refused("4294967296:1023", 11, "0 (unlimited) or from 1024 to 2147483648");
    refused("4294967296:2147483649", 11, "0 (unlimited) or from 1024 to 2147483648");
    refused("4294967296:18446744073709551616", 11, "0 (unlimited) or from 1024 to 2147483648");
}
END_TEST

START_TEST(P7_limit_at_most_its_pools_size)
{
    assert_pool(&(spw_spec[]){parsed("4096:4096")}[0], SPW_TIER_DEVICE, 0, 4096, 4096);
    refused("4096:4097", 5, "at most the size of its pool, 4096 bytes, found 4097");
    refused("8192,4096:8192", 10, "at most the size of its pool, 4096 bytes");
}
END_TEST

START_TEST(P8_limits_are_kept_to_the_byte)
{
    const spw_spec spec = parsed("4097:1025");
    assert_pool(&spec, SPW_TIER_DEVICE, 0, 4097, 1025);
    assert_route(&spec, SPW_TIER_DEVICE, 1025, "0");
    assert_route(&spec, SPW_TIER_DEVICE, 1026, "");
}
END_TEST

START_TEST(P9_every_pool_limited_is_valid_and_more_is_too_big)
{
    const spw_spec spec = parsed("4096:1024,8192:2048");
    assert_route(&spec, SPW_TIER_DEVICE, 1024, "01");
    assert_route(&spec, SPW_TIER_DEVICE, 2048, "1");
    assert_route(&spec, SPW_TIER_DEVICE, 2049, "");
    assert_route(&(spw_spec[]){parsed("4096")}[0], SPW_TIER_DEVICE, 4097, ""); /* unlimited, yet too small for ever */
    assert_route(&(spw_spec[]){parsed("4096")}[0], SPW_TIER_DEVICE, 4096, "0");
}
END_TEST

START_TEST(P10_parsing_does_not_ask_for_the_memory)
{
    const spw_spec spec = parsed("device=4194304T");
    assert_pool(&spec, SPW_TIER_DEVICE, 0, UINT64_C(1) << 62, 0);
}
END_TEST

START_TEST(P11_two_pools_route_by_limit)
{
    const spw_spec spec = parsed(EXAMPLE_2);
    assert_route(&spec, SPW_TIER_DEVICE, 1, "10");
    assert_route(&spec, SPW_TIER_DEVICE, 2097152, "10");
    assert_route(&spec, SPW_TIER_DEVICE, 2097153, "0");
}
END_TEST

START_TEST(P12_three_pools_and_above_20_MiB_only_the_unlimited_one)
{
    const spw_spec spec = parsed(EXAMPLE_3);
    assert_route(&spec, SPW_TIER_DEVICE, 2097152, "210");
    assert_route(&spec, SPW_TIER_DEVICE, 2097153, "10");
    assert_route(&spec, SPW_TIER_DEVICE, 20971520, "10");
    assert_route(&spec, SPW_TIER_DEVICE, 20971521, "0");
}
END_TEST

START_TEST(P13_smallest_limit_first_ties_as_written_unlimited_last)
{
    spw_spec spec = parsed("8192,8192:2048,8192:1024,8192:2048,8192:0,8192:1024");
    assert_route(&spec, SPW_TIER_DEVICE, 0, "251304");
    assert_route(&spec, SPW_TIER_DEVICE, 1024, "251304");
    assert_route(&spec, SPW_TIER_DEVICE, 1025, "1304");
    assert_route(&spec, SPW_TIER_DEVICE, 2049, "04");
    spec = parsed("1073741824:2097152,2147483648:20971520,10737418240"); /* example 3 backwards */
    assert_route(&spec, SPW_TIER_DEVICE, 2097152, "012");
    assert_route(&spec, SPW_TIER_DEVICE, 20971521, "2");
}
END_TEST

START_TEST(P14_fallback_goes_upward_never_downward)
{
    char string[2048], *p = string;
    for (unsigned i = 0; i < 100; i++) /* limits in no order, some equal */
        p += sprintf(p, "%s1048576:%u", i ? "," : "", 1024 + i * 37 % 50 * 1000);
    const spw_spec spec = parsed(string);
    for (uint64_t bytes = 0; bytes < 52000; bytes += 333) {
        uint32_t order[SPW_SPEC_POOLS_MAX];
        const size_t n = spw_spec_route(&spec, SPW_TIER_DEVICE, bytes, order);
        size_t holding = 0;
        for (uint32_t i = 0; i < 100; i++)
            holding += spec.pools[SPW_TIER_DEVICE][i].limit_bytes >= bytes;
        ck_assert_uint_eq(n, holding);
        for (size_t i = 0; i < n; i++) {
            const uint64_t limit = spec.pools[SPW_TIER_DEVICE][order[i]].limit_bytes;
            ck_assert_uint_ge(limit, bytes);
            if (i == 0)
                continue;
            const uint64_t before = spec.pools[SPW_TIER_DEVICE][order[i - 1]].limit_bytes;
            ck_assert(before < limit || (before == limit && order[i - 1] < order[i]));
        }
    }
}
END_TEST

START_TEST(P15_a_payload_of_the_limit_fits_its_own_pool)
{
    assert_route(&(spw_spec[]){parsed(EXAMPLE_2)}[0], SPW_TIER_DEVICE, 2097152, "10"); /* no head is added */
}
END_TEST

static void add_conformance(TCase *tests)
{
    tcase_add_test(tests, P1_well_formed_strings);
    tcase_add_loop_test(tests, P1_malformed_strings_name_the_byte_and_what_was_expected, 0,
                        sizeof malformed / sizeof malformed[0]);
    tcase_add_test(tests, P2_128_pools_at_most);
    tcase_add_test(tests, P3_no_string_is_one_unlimited_pool_of_10_GiB);
    tcase_add_test(tests, P4_pool_size_bounds);
    tcase_add_test(tests, P5_all_pools_together_at_most_256_GiB);
    tcase_add_test(tests, P6_limit_bounds);
    tcase_add_test(tests, P7_limit_at_most_its_pools_size);
    tcase_add_test(tests, P8_limits_are_kept_to_the_byte);
    tcase_add_test(tests, P9_every_pool_limited_is_valid_and_more_is_too_big);
    tcase_add_test(tests, P10_parsing_does_not_ask_for_the_memory);
    tcase_add_test(tests, P11_two_pools_route_by_limit);
    tcase_add_test(tests, P12_three_pools_and_above_20_MiB_only_the_unlimited_one);
    tcase_add_test(tests, P13_smallest_limit_first_ties_as_written_unlimited_last);
    tcase_add_test(tests, P14_fallback_goes_upward_never_downward);
    tcase_add_test(tests, P15_a_payload_of_the_limit_fits_its_own_pool);
}

int main(void)
{
    Suite *suite = suite_create("spec");
    TCase *conformance = tcase_create("conformance");
    add_conformance(conformance);
    suite_add_tcase(suite, conformance);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
