/* Integrity sums: the same value from every instruction set, bound to what was summed and where it belongs. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "spill/integrity.h"
#include "spill/integrity_simd.h"

enum { SEGMENT_BYTES = 1 << 20 };

static unsigned char *data; /* a segment and some room for odd alignments */

static void setup(void)
{
    uint64_t state = 1;
    data = malloc(SEGMENT_BYTES + 64);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < SEGMENT_BYTES + 64; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(state >> 56);
    }
}

static void teardown(void)
{
    free(data);
}

START_TEST(the_hash_is_XXH3_64)
{
    ck_assert_uint_eq(spw__xxh3_base("", 0, 0), UINT64_C(0x2d06800538d394c2)); /* published for empty input, seed 0 */
}
END_TEST

static void expect_like_base(spw__xxh3_fn hash)
{
    for (size_t bytes = 0; bytes < 3000; bytes += bytes < 300 ? 1 : 37)
        for (size_t shift = 0; shift < 64; shift += 13)
            ck_assert_uint_eq(hash(data + shift, bytes, bytes * 31), spw__xxh3_base(data + shift, bytes, bytes * 31));
    for (size_t shift = 0; shift < 64; shift += 7)
        ck_assert_uint_eq(hash(data + shift, SEGMENT_BYTES, shift),
                          spw__xxh3_base(data + shift, SEGMENT_BYTES, shift));
}

START_TEST(every_instruction_set_gives_the_same_value)
{
    const char *expected = "scalar";
#if defined(__x86_64__)
    expected = "sse2";
    if (__builtin_cpu_supports("avx2")) {
        expected = "avx2";
        expect_like_base(spw__xxh3_avx2);
    }
    if (__builtin_cpu_supports("avx512f")) {
        expected = "avx512";
        expect_like_base(spw__xxh3_avx512);
    }
#endif
    expect_like_base(spw__xxh3_base);
    ck_assert_str_eq(spw__integrity_variant(), expected);
}
END_TEST

START_TEST(a_sum_is_bound_to_identity_index_length_and_every_bit)
{
    const size_t bytes = SEGMENT_BYTES;
    const uint64_t sum = spw__integrity_segment(7, 3, data, bytes);
    ck_assert_uint_eq(spw__integrity_segment(7, 3, data, bytes), sum);
    ck_assert_uint_ne(spw__integrity_segment(8, 3, data, bytes), sum);
    ck_assert_uint_ne(spw__integrity_segment(7, 4, data, bytes), sum);
    ck_assert_uint_ne(spw__integrity_segment(8, 2, data, bytes), sum);
    ck_assert_uint_ne(spw__integrity_segment(3, 7, data, bytes), sum);
    ck_assert_uint_ne(spw__integrity_segment(7, 3, data, bytes - 1), sum);
    for (size_t at = 0; at < bytes; at += 4099) {
        data[at] ^= (unsigned char)(1u << (at % 8));
        ck_assert_uint_ne(spw__integrity_segment(7, 3, data, bytes), sum);
        data[at] ^= (unsigned char)(1u << (at % 8));
    }
}
END_TEST

static uint64_t piece_sum(const unsigned char *first, const unsigned char *second, size_t bytes)
{
    return spw__integrity_segment(1, 0, first, bytes) + spw__integrity_segment(1, 1, second, bytes);
}

START_TEST(segments_that_change_places_change_the_sum_of_the_piece)
{
    ck_assert_uint_ne(piece_sum(data, data + 4096, 4096), piece_sum(data + 4096, data, 4096));
    /* Equal segments do not cancel out or add up to something simple. */
    ck_assert_uint_ne(spw__integrity_segment(1, 0, data, 4096), spw__integrity_segment(1, 1, data, 4096));
}
END_TEST

START_TEST(seeds_of_neighbouring_identities_and_indices_do_not_meet)
{
    uint64_t sums[64 * 64];
    for (unsigned i = 0; i < 64 * 64; i++) {
        sums[i] = spw__integrity_segment(i / 64, i % 64, data, 16);
        for (unsigned other = 0; other < i; other++)
            if (sums[other] == sums[i])
                ck_abort_msg("%u and %u", other, i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("integrity");
    TCase *tests = tcase_create("sums");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, the_hash_is_XXH3_64);
    tcase_add_test(tests, every_instruction_set_gives_the_same_value);
    tcase_add_test(tests, a_sum_is_bound_to_identity_index_length_and_every_bit);
    tcase_add_test(tests, segments_that_change_places_change_the_sum_of_the_piece);
    tcase_add_test(tests, seeds_of_neighbouring_identities_and_indices_do_not_meet);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
