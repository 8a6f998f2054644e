/* Metadata memory. Built twice: with jemalloc in the process (WITH_JEMALLOC), and without. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/fault.h"
#include "pool/base/meta.h"

#ifdef WITH_JEMALLOC
#  include <jemalloc/jemalloc.h>
#endif

#define KIB UINT64_C(1024)

static struct spw__meta meta;

static uint64_t committed(void)
{
    return atomic_load(&meta.gate.committed);
}

static void setup(void)
{
    spw__meta_init(&meta, 64 * KIB);
}

static void teardown(void)
{
    ck_assert_uint_eq(committed(), 0);
    spw__meta_finish(&meta);
    ck_assert_uint_eq(meta.arena, 0);
}

START_TEST(memory_is_zeroed_and_from_64_bytes_on_aligned)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000, 4096, 50000};
    for (unsigned round = 0; round < 2; round++) /* the second finds what the first has written */
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *ptr = spw__meta_alloc(&meta, sizes[i]);
            ck_assert_ptr_nonnull(ptr);
            ck_assert_uint_eq((uintptr_t)ptr % (sizes[i] >= 64 ? 64 : 8), 0);
            ck_assert_uint_eq(committed(), sizes[i]);
            for (size_t at = 0; at < sizes[i]; at++)
                ck_assert_uint_eq(ptr[at], 0);
            memset(ptr, 0xa5, sizes[i]);
            spw__meta_free(&meta, ptr, sizes[i]);
        }
}
END_TEST

START_TEST(the_budget_is_kept)
{
    void *most = spw__meta_alloc(&meta, 60 * KIB);
    ck_assert_ptr_nonnull(most);
    ck_assert_ptr_null(spw__meta_alloc(&meta, 4 * KIB + 1));
    ck_assert_uint_eq(committed(), 60 * KIB);
    void *rest = spw__meta_alloc(&meta, 4 * KIB);
    ck_assert_ptr_nonnull(rest);
    ck_assert_ptr_null(spw__meta_alloc(&meta, 1));
    spw__meta_free(&meta, most, 60 * KIB);
    spw__meta_free(&meta, rest, 4 * KIB);
    spw__meta_free(&meta, NULL, 4 * KIB);
}
END_TEST

START_TEST(fault_META_ALLOC_commits_nothing)
{
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_ptr_null(spw__meta_alloc(&meta, 100));
    ck_assert_uint_eq(committed(), 0);
    void *ptr = spw__meta_alloc(&meta, 100);
    ck_assert_ptr_nonnull(ptr);
    spw__meta_free(&meta, ptr, 100);
}
END_TEST

START_TEST(without_a_meta_it_is_plain_memory)
{
    void *ptr = spw__meta_alloc(NULL, 1024 * KIB);
    ck_assert_ptr_nonnull(ptr);
    spw__meta_free(NULL, ptr, 1024 * KIB);
    ptr = spw__meta_alloc(NULL, 100);
    free(ptr); /* malloc's own */
}
END_TEST

#ifdef WITH_JEMALLOC
static unsigned arena_of(void *ptr)
{
    unsigned arena = 0;
    size_t size = sizeof arena;
    ck_assert_int_eq(mallctl("arenas.lookup", &arena, &size, &ptr, sizeof ptr), 0);
    return arena;
}

START_TEST(with_jemalloc_each_meta_has_an_arena_that_nobody_shares)
{
    struct spw__meta other;
    spw__meta_init(&other, UINT64_MAX);
    ck_assert_uint_ne(meta.arena, 0);
    ck_assert_uint_ne(other.arena, 0);
    ck_assert_uint_ne(other.arena, meta.arena);
    void *mine = spw__meta_alloc(&meta, 100), *theirs = spw__meta_alloc(&other, 1024 * KIB), *plain = malloc(100);
    ck_assert_uint_eq(arena_of(mine), meta.arena - 1);
    ck_assert_uint_eq(arena_of(theirs), other.arena - 1);
    ck_assert_uint_ne(arena_of(plain), meta.arena - 1);
    ck_assert_uint_ge(spw__meta_resident_bytes(&other), 1024 * KIB);
    ck_assert_uint_gt(spw__meta_resident_bytes(&meta), 0);
    ck_assert_uint_lt(spw__meta_resident_bytes(&meta), 1024 * KIB);
    free(plain);
    spw__meta_free(&meta, mine, 100);
    const unsigned gone = other.arena;
    spw__meta_finish(&other); /* what was not freed goes with it */
    spw__meta_init(&other, UINT64_MAX);
    ck_assert_uint_eq(other.arena, gone); /* its number is free again */
    spw__meta_finish(&other);
}
END_TEST
#else
START_TEST(without_jemalloc_there_is_no_arena)
{
    ck_assert_uint_eq(meta.arena, 0);
    ck_assert_uint_eq(spw__meta_resident_bytes(&meta), 0);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("meta");
    TCase *tcase = tcase_create("meta");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, memory_is_zeroed_and_from_64_bytes_on_aligned);
    tcase_add_test(tcase, the_budget_is_kept);
    tcase_add_test(tcase, fault_META_ALLOC_commits_nothing);
    tcase_add_test(tcase, without_a_meta_it_is_plain_memory);
#ifdef WITH_JEMALLOC
    tcase_add_test(tcase, with_jemalloc_each_meta_has_an_arena_that_nobody_shares);
#else
    tcase_add_test(tcase, without_jemalloc_there_is_no_arena);
#endif
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
