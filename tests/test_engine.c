/* The reference engine without files or the library's memory: generator, command line, hash table, verification.
 * Neighbours: test_engine_plan.c, test_engine_rows.c, test_engine_shards.c. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hash.h"
#include "engine/source.h"
#include "engine/tpch.h"
#include "engine/verify.h"
#include "join_options.h"

static struct eng_error error;

START_TEST(tpch_formulas_are_the_specification)
{
    struct tpch t;
    ck_assert_int_eq(tpch_init(&t, 1, &error), 0);
    ck_assert_int_eq(t.parts, 200000);
    ck_assert_int_eq(t.suppliers, 10000);
    ck_assert_int_eq(t.orders, 1500000);
    ck_assert_int_eq(t.partsupp_rows, 800000);
    ck_assert_int_gt(t.lineitem_rows, 5980000);
    ck_assert_int_lt(t.lineitem_rows, 6020000);
    /* The first rows of dbgen's partsupp and part at scale factor 1. */
    ck_assert_int_eq(tpch_suppkey(&t, 1, 0), 2);
    ck_assert_int_eq(tpch_suppkey(&t, 1, 1), 2502);
    ck_assert_int_eq(tpch_suppkey(&t, 1, 2), 5002);
    ck_assert_int_eq(tpch_suppkey(&t, 1, 3), 7502);
    ck_assert_int_eq(tpch_suppkey(&t, 10001, 1), 2503);
    ck_assert_int_eq(tpch_retail_price(1), 90100);
    ck_assert_int_eq(tpch_retail_price(2), 90200);
    ck_assert_int_eq(tpch_retail_price(10), 91001);
    ck_assert_int_eq(tpch_order_key(0), 1);
    ck_assert_int_eq(tpch_order_key(6), 7);
    ck_assert_int_eq(tpch_order_key(7), 32);
    ck_assert_int_eq(tpch_order_key(1499999), 6000000);
    tpch_finish(&t);
}
END_TEST

START_TEST(tpch_values_are_in_range_and_every_line_has_its_partsupp)
{
    struct tpch t;
    struct tpch_cursor cursor;
    struct tpch_partsupp ps;
    struct tpch_line line;
    int64_t order = 0, lines = 0;
    unsigned which[4] = {0, 0, 0, 0};
    ck_assert_int_eq(tpch_init(&t, 0.01, &error), 0);
    for (int64_t row = 0; row < t.partsupp_rows; row++) {
        tpch_partsupp_row(&t, row, &ps);
        ck_assert_int_eq(ps.partkey, row / 4 + 1);
        ck_assert(ps.suppkey >= 1 && ps.suppkey <= t.suppliers);
        ck_assert(ps.availqty >= 1 && ps.availqty <= 9999);
        ck_assert(ps.supplycost >= 100 && ps.supplycost <= 100000);
    }
    tpch_seek(&t, 0, &cursor);
    for (int64_t row = 0; row < t.lineitem_rows; row++) {
        unsigned matches = 0;
        tpch_next(&t, &cursor, &line);
        lines = line.linenumber == 1 ? 1 : lines + 1;
        order += line.linenumber == 1;
        ck_assert_int_eq(line.linenumber, lines);
        ck_assert_int_eq(line.orderkey, tpch_order_key(order - 1));
        ck_assert(line.partkey >= 1 && line.partkey <= t.parts && lines <= 7);
        ck_assert(line.quantity >= 1 && line.quantity <= 50);
        ck_assert_int_eq(line.extendedprice, line.quantity * tpch_retail_price(line.partkey));
        for (unsigned i = 0; i < 4; i++) {
            tpch_partsupp_row(&t, (line.partkey - 1) * 4 + i, &ps);
            which[i] += ps.suppkey == line.suppkey;
            matches += ps.suppkey == line.suppkey;
        }
        ck_assert_uint_eq(matches, 1);
    }
    ck_assert_int_eq(order, t.orders);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_gt(which[i], (unsigned)(t.lineitem_rows / 5));
    tpch_finish(&t);
}
END_TEST

START_TEST(tpch_any_range_equals_the_whole)
{
    struct tpch t;
    struct eng_source source;
    struct eng_reader reader;
    ck_assert_int_eq(tpch_init(&t, 0.01, &error), 0);
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        eng_source_open_tpch(&source, (enum eng_side)side, &t);
        eng_reader_init(&reader, &source);
        void *whole[ENG_COLUMNS], *part[ENG_COLUMNS];
        for (unsigned c = 0; c < ENG_COLUMNS; c++) {
            whole[c] = malloc((size_t)source.rows * source.width[c]);
            part[c] = malloc((size_t)source.rows * source.width[c]);
        }
        ck_assert_int_eq(eng_reader_read(&reader, 0, source.rows, whole, &error), 0);
        for (int64_t first = 0, n = 1; first < source.rows; first += n, n = n * 3 + 1) {
            n = n < source.rows - first ? n : source.rows - first;
            ck_assert_int_eq(eng_reader_read(&reader, first, n, part, &error), 0);
            for (unsigned c = 0; c < ENG_COLUMNS; c++)
                ck_assert_mem_eq(part[c], (char *)whole[c] + (size_t)first * source.width[c],
                                 (size_t)n * source.width[c]);
        }
        for (unsigned c = 0; c < ENG_COLUMNS; c++) {
            free(whole[c]);
            free(part[c]);
        }
        eng_reader_finish(&reader);
    }
    tpch_finish(&t);
}
END_TEST

START_TEST(tpch_scale_factor_out_of_range_is_refused)
{
    struct tpch t;
    ck_assert_int_eq(tpch_init(&t, 0, &error), -1);
    ck_assert_int_eq(error.status, ENG_USAGE);
    ck_assert_int_eq(tpch_init(&t, -1, &error), -1);
    ck_assert_int_eq(tpch_init(&t, 1e9, &error), -1);
}
END_TEST

/* Rows of n_keys keys; both factor and addend depend on the row. */
static void make_rows(struct eng_verify_row *rows, size_t n, uint64_t n_keys, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t key = (seed >> 33) % n_keys;
        rows[i] = (struct eng_verify_row){(int64_t)(key % 7) - 3, (int64_t)(key / 7) * INT64_C(-5000000000),
                                          (int64_t)(seed >> 3) % 100000 - 50000, (int64_t)i * 3 - 7};
    }
}

static struct eng_answer nested_loop(const struct eng_verify_row *ps, size_t n, const struct eng_verify_row *l,
                                     size_t m)
{
    struct eng_answer a = {0, 0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < m; j++) {
            if (ps[i].key1 != l[j].key1 || ps[i].key2 != l[j].key2)
                continue;
            a.rows++;
            a.sum_supplycost_x_quantity += (__int128)ps[i].factor * l[j].factor;
            a.sum_availqty += ps[i].addend;
            a.sum_extendedprice += l[j].addend;
        }
    }
    return a;
}

static void to_batch(const struct eng_verify_row *rows, size_t n, struct eng_batch *batch)
{
    for (size_t i = 0; i < n; i++) {
        batch->key1[i] = rows[i].key1;
        batch->key2[i] = rows[i].key2;
        batch->factor[i] = rows[i].factor;
        batch->addend[i] = rows[i].addend;
    }
    eng_hash_batch(batch, n, 0);
}

static struct eng_answer hash_join(const struct eng_verify_row *ps, size_t n, const struct eng_verify_row *l, size_t m)
{
    struct eng_hashtable table;
    struct eng_batch batch;
    struct eng_sums sums = {0, 0, 0, 0};
    size_t bytes = eng_hash_bytes(n);
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    ck_assert_uint_ge(eng_hash_capacity(bytes), n);
    eng_hash_begin(&table, memory, (uint32_t)n);
    for (size_t i = 0; i < n; i += ENG_BATCH) {
        size_t k = n - i < ENG_BATCH ? n - i : ENG_BATCH;
        to_batch(ps + i, k, &batch);
        eng_hash_add(&table, &batch, k);
    }
    eng_hash_finish(&table);
    for (size_t i = 0; i < m; i += ENG_BATCH) {
        size_t k = m - i < ENG_BATCH ? m - i : ENG_BATCH;
        to_batch(l + i, k, &batch);
        eng_hash_probe(&table, &batch, k, &sums);
    }
    free(memory);
    return (struct eng_answer){(__int128)sums.rows, (__int128)sums.probe_addend, (__int128)sums.products,
                               (__int128)sums.build_addend};
}

static void assert_same(const struct eng_answer *a, const struct eng_answer *b)
{
    ck_assert(a->rows == b->rows);
    ck_assert(a->sum_extendedprice == b->sum_extendedprice);
    ck_assert(a->sum_supplycost_x_quantity == b->sum_supplycost_x_quantity);
    ck_assert(a->sum_availqty == b->sum_availqty);
}

static const struct {
    size_t n, m;
    uint64_t keys;
} joins[] = {{0, 0, 1}, {0, 9, 3}, {9, 0, 3}, {1, 1, 1}, {700, 900, 5000}, {1000, 1500, 300},
             {1000, 1000, 30}, {513, 511, 1}, {1, 2000, 1}, {2000, 1, 1}, {17, 16, 1}, {16, 17, 1}};

START_TEST(R3_hash_and_sort_merge_join_equal_the_nested_loop)
{
    size_t n = joins[_i].n, m = joins[_i].m;
    struct eng_verify_row *ps = calloc(n + 1, sizeof *ps), *l = calloc(m + 1, sizeof *l);
    struct eng_answer merged;
    make_rows(ps, n, joins[_i].keys, 1);
    make_rows(l, m, joins[_i].keys, 2);
    struct eng_answer expected = nested_loop(ps, n, l, m), hashed = hash_join(ps, n, l, m);
    assert_same(&hashed, &expected);
    eng_verify_merge(ps, n, l, m, &merged);
    assert_same(&merged, &expected);
    for (size_t i = 1; i < n; i++)
        ck_assert(ps[i - 1].key1 < ps[i].key1 || (ps[i - 1].key1 == ps[i].key1 && ps[i - 1].key2 <= ps[i].key2));
    free(ps);
    free(l);
}
END_TEST

START_TEST(sums_of_extreme_values_are_exact_in_128_bits)
{
    struct eng_verify_row ps[2] = {{1, 1, INT64_MIN, INT64_MAX}, {1, 1, INT64_MIN, INT64_MAX}};
    struct eng_verify_row l[1] = {{1, 1, INT64_MAX, INT64_MIN}};
    struct eng_answer expected = nested_loop(ps, 2, l, 1), hashed = hash_join(ps, 2, l, 1), merged;
    char text[ENG_NUMBER_MAX];
    assert_same(&hashed, &expected);
    eng_verify_merge(ps, 2, l, 1, &merged);
    assert_same(&merged, &expected);
    ck_assert_str_eq(eng_number(merged.sum_supplycost_x_quantity, text), "-170141183460469231713240559642174554112");
    ck_assert_str_eq(eng_number(merged.sum_availqty, text), "18446744073709551614");
    ck_assert_str_eq(eng_number(0, text), "0");
}
END_TEST

static int parse(struct join_options *options, const char *a, const char *b, const char *c, const char *d)
{
    char *argv[] = {(char *)"bench_join", (char *)a, (char *)b, (char *)c, (char *)d, NULL};
    int argc = 1;
    while (argv[argc] != NULL)
        argc++;
    return join_options_parse(argc, argv, options, &error);
}

START_TEST(sizes_are_strict)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0}, {"1024", 1024}, {"64M", 67108864}, {"1G", 1073741824}, {"3K", 3072}, {"2T", 2199023255552}};
    static const char *const bad[] = {"", "M", "-1", "+1", " 1", "1 ", "1m", "1MB", "1.5G", "0x10",
                                      "99999999999999999999B"};
    static const char *const too_large[] = {"9000000T", "99999999999999999999", "99999999999999999999K",
                                            "9223372036854775808"};
    uint64_t bytes;
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_ptr_null(join_parse_size(good[i].text, &bytes));
        ck_assert_uint_eq(bytes, good[i].bytes);
    }
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(strstr(join_parse_size(bad[i], &bytes), "a size is wanted") != NULL, "'%s'", bad[i]);
    for (unsigned i = 0; i < sizeof too_large / sizeof too_large[0]; i++)
        ck_assert_msg(strstr(join_parse_size(too_large[i], &bytes), "too large") != NULL, "'%s'", too_large[i]);
}
END_TEST

START_TEST(disk_is_split_at_the_last_colon)
{
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--disk=/a:b:5G", "--disk", "/c"), 0);
    ck_assert_uint_eq(options.spec.n_folders, 2);
    ck_assert_uint_eq(options.spec.folders[0].path_length, 4);
    ck_assert_mem_eq(options.spec.folders[0].path, "/a:b", 4);
    ck_assert_uint_eq(options.spec.folders[0].quota_bytes, UINT64_C(5) << 30);
    ck_assert_mem_eq(options.spec.folders[1].path, "/c", 2);
    ck_assert_uint_eq(options.spec.folders[1].quota_bytes, 0);
    join_options_finish(&options);
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--disk=/a:5X", NULL, NULL), -1);
    ck_assert_int_eq(error.status, ENG_USAGE);
}
END_TEST

START_TEST(disk_folder_may_have_any_name)
{
    static const char name[] = "/a b,c;d:e'f";
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--disk=/a b,c;d:e'f:5G", "--disk=/plain",
                           "--host-limit=8M"), 0);
    ck_assert_uint_eq(options.spec.n_folders, 2);
    ck_assert_uint_eq(options.spec.folders[0].path_length, sizeof name - 1);
    ck_assert_mem_eq(options.spec.folders[0].path, name, sizeof name - 1);
    ck_assert_str_eq(options.spec_text, "device=0; host=8M; disk='/a b,c;d:e'f':5368709120,'/plain':0");
    join_options_finish(&options);
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--disk=/plain:5G", "--host-limit=8M", NULL), 0);
    ck_assert_str_eq(options.spec_text, "device=0; host=8M; disk=/plain:5G");
    join_options_finish(&options);
}
END_TEST

START_TEST(spill_folder_named_twice_is_refused)
{
    static const char *const twice[][2] = {{"--disk=/a", "--disk=/a:5G"}, {"--disk=.", "--disk=./:0"},
                                           {"--spec=disk=/b:1G,/b", NULL}};
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=1", twice[_i][0], twice[_i][1], NULL), -1);
    ck_assert_int_eq(error.status, ENG_USAGE);
    ck_assert_msg(strstr(error.text, "named twice") != NULL, "%s", error.text);
}
END_TEST

START_TEST(last_of_a_repeated_flag_counts)
{
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--threads=3", "--scale-factor=2", "--threads=5"), 0);
    ck_assert_uint_eq(options.threads, 5);
    ck_assert(options.scale_factor > 1.5);
    join_options_finish(&options);
}
END_TEST

START_TEST(flag_of_0_takes_a_tier_out_of_the_spec)
{
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=1", "--spec=host=1G; pinned=8M; io=threads", "--host-limit=0",
                           "--io=auto"), 0);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_HOST], 0);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_PINNED_HOST], 1);
    ck_assert_int_eq(options.spec.io, SPW_IO_AUTO);
    ck_assert_ptr_nonnull(strstr(options.string, "host=0"));
    ck_assert_ptr_nonnull(strstr(options.string, "io=auto"));
    join_options_finish(&options);
}
END_TEST

START_TEST(flag_overrides_the_same_part_of_the_spec)
{
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor=0.5", "--spec=pinned=8M; host=1G,512M:2M; disk=/x:1G; io=threads",
                           "--host-limit=64M", "--io=uring"), 0);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_DEVICE], 0);
    ck_assert_uint_eq(options.spec.pools[SPW_TIER_PINNED_HOST][0].size_bytes, 8u << 20);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_HOST], 1);
    ck_assert_uint_eq(options.spec.pools[SPW_TIER_HOST][0].size_bytes, 64u << 20);
    ck_assert_uint_eq(options.spec.n_folders, 1);
    ck_assert_int_eq(options.spec.io, SPW_IO_URING);
    join_options_finish(&options);
}
END_TEST

START_TEST(no_limit_at_all_means_half_of_the_memory_as_host)
{
    struct join_options options;
    ck_assert_int_eq(parse(&options, "--scale-factor", "1", NULL, NULL), 0);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_DEVICE], 0);
    ck_assert_uint_eq(options.spec.n_pools[SPW_TIER_HOST], 1);
    ck_assert_uint_gt(options.spec.pools[SPW_TIER_HOST][0].size_bytes, 1u << 20);
    join_options_finish(&options);
}
END_TEST

START_TEST(bad_arguments_are_named)
{
    static const struct {
        const char *a, *b, *named;
    } bad[] = {{NULL, NULL, "no input"},
               {"--lineitem=/x", NULL, "--partsupp DIR is missing"},
               {"--partsupp=/x", NULL, "--lineitem DIR is missing"},
               {"--scale-factor=1", "--host-limit=99999999999999999999", "99999999999999999999: that is too large"},
               {"--scale-factor=1", "--disk=/x:9000000T", "too large"},
               {"--scale-factor=1", "--lineitem=/x", "exclude"},
               {"--scale-factor=0", NULL, "--scale-factor 0"},
               {"--scale-factor=-1", NULL, "--scale-factor -1"},
               {"--scale-factor=nan", NULL, "--scale-factor nan"},
               {"--scale-factor=1x", NULL, "--scale-factor 1x"},
               {"--scale-factor=1", "--threads=0", "--threads 0"},
               {"--scale-factor=1", "--threads=x", "--threads x"},
               {"--scale-factor=1", "--mode=stream", "--mode stream"},
               {"--scale-factor=1", "--io=fast", "--io fast"},
               {"--scale-factor=1", "--work=gpu", "--work gpu"},
               {"--scale-factor=1", "--driver=gpu", "--driver gpu"},
               {"--scale-factor=1", "--host-limit=1Q", "--host-limit 1Q"},
               {"--scale-factor=1", "--host-limit=", "--host-limit wants a value"},
               {"--scale-factor=1", "--host-limit", "--host-limit wants a value"},
               {"--scale-factor=1", "--verbose", "'--verbose'"},
               {"--scale-factor=1", "--spec=host=", "--spec"},
               {"stray", NULL, "'stray'"}};
    struct join_options options;
    ck_assert_int_eq(parse(&options, bad[_i].a, bad[_i].b, NULL, NULL), -1);
    ck_assert_int_eq(error.status, ENG_USAGE);
    ck_assert_msg(strstr(error.text, bad[_i].named) != NULL, "'%s' lacks '%s'", error.text, bad[_i].named);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *other = tcase_create("other");
    tcase_set_timeout(other, 120);
    tcase_add_test(other, tpch_formulas_are_the_specification);
    tcase_add_test(other, tpch_values_are_in_range_and_every_line_has_its_partsupp);
    tcase_add_test(other, tpch_any_range_equals_the_whole);
    tcase_add_test(other, tpch_scale_factor_out_of_range_is_refused);
    tcase_add_loop_test(other, R3_hash_and_sort_merge_join_equal_the_nested_loop, 0, COUNT(joins));
    tcase_add_test(other, sums_of_extreme_values_are_exact_in_128_bits);
    tcase_add_test(other, sizes_are_strict);
    tcase_add_test(other, disk_is_split_at_the_last_colon);
    tcase_add_test(other, disk_folder_may_have_any_name);
    tcase_add_loop_test(other, spill_folder_named_twice_is_refused, 0, 3);
    tcase_add_test(other, last_of_a_repeated_flag_counts);
    tcase_add_test(other, flag_of_0_takes_a_tier_out_of_the_spec);
    tcase_add_test(other, flag_overrides_the_same_part_of_the_spec);
    tcase_add_test(other, no_limit_at_all_means_half_of_the_memory_as_host);
    tcase_add_loop_test(other, bad_arguments_are_named, 0, 22);
    suite_add_tcase(suite, other);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
