/* The reference engine's shards: what is read, refused and written. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/npy.h"
#include "engine/source.h"
#include "engine/tpch.h"
#include "engine/verify.h"
#include "engine/write.h"

static char folder[64];
static struct eng_error error;

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/test_engine.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static char *path_of(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A file of a header of the given version and text, and bytes of data that count up from first as int32. */
static void put_shard(const char *name, unsigned version, const char *text, int32_t first, size_t values)
{
    FILE *file = fopen(path_of(name), "wb");
    size_t length = strlen(text);
    unsigned char head[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)version, 0};
    ck_assert_ptr_nonnull(file);
    head[8] = (unsigned char)(length & 0xff);
    head[9] = (unsigned char)(length >> 8);
    ck_assert_uint_eq(fwrite(head, 1, version == 1 ? 10 : 12, file), version == 1 ? 10 : 12);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    for (size_t i = 0; i < values; i++) {
        int32_t value = first + (int32_t)i;
        ck_assert_uint_eq(fwrite(&value, 4, 1, file), 1);
    }
    ck_assert_int_eq(fclose(file), 0);
}

static void put_int32(unsigned shard, int32_t first, size_t values)
{
    char name[32], text[96];
    (void)snprintf(name, sizeof name, "shard_%04u.npy", shard);
    (void)snprintf(text, sizeof text, "{'descr': '<i4', 'fortran_order': False, 'shape': (%zu,), }\n", values);
    put_shard(name, 1, text, first, values);
}

static void assert_refused(const char *reason)
{
    struct npy_column column;
    ck_assert_int_eq(npy_column_open(&column, folder, &error), -1);
    ck_assert_int_eq(error.status, ENG_FAILED);
    ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' lacks '%s'", error.text, reason);
    ck_assert_msg(strstr(error.text, folder) != NULL, "'%s' lacks the folder", error.text);
    ck_assert_msg(strchr(error.text, '\n') == NULL, "'%s' is more than a line", error.text);
}

START_TEST(L1_missing_folder_is_an_error)
{
    remove_folder();
    assert_refused("No such file or directory");
}
END_TEST

START_TEST(L1_folder_without_shards_is_an_error)
{
    assert_refused("holds no shards");
}
END_TEST

START_TEST(L1_gap_names_up_to_five_missing_shards)
{
    put_int32(0, 0, 1);
    put_int32(8, 0, 1);
    assert_refused("7 of 9 shards are missing, among them shard_0001.npy, shard_0002.npy, shard_0003.npy, "
                   "shard_0004.npy, shard_0005.npy");
    ck_assert_ptr_null(strstr(error.text, "shard_0006"));
}
END_TEST

START_TEST(L1_first_shard_missing_is_a_gap)
{
    put_int32(1, 0, 1);
    assert_refused("shard_0000.npy");
}
END_TEST

START_TEST(L1_stray_names_are_listed_and_refused)
{
    put_int32(0, 0, 1);
    put_shard("notes.txt", 1, "", 0, 0);
    assert_refused("notes.txt");
}
END_TEST

START_TEST(L1_wrong_digits_are_stray)
{
    static const char *const names[] = {"shard_00000.npy", "shard_001.npy", "shard_+001.npy", "shard_0001.npy.bak",
                                        "Shard_0001.npy"};
    put_int32(0, 0, 1);
    put_shard(names[_i], 1, "", 0, 0);
    assert_refused(names[_i]);
}
END_TEST

START_TEST(L1_from_10000_on_names_have_five_digits)
{
    struct npy_column column;
    for (unsigned shard = 0; shard <= 10001; shard++)
        put_int32(shard, (int32_t)shard, 1);
    ck_assert_int_eq(npy_column_open(&column, folder, &error), 0);
    ck_assert_uint_eq(column.n_shards, 10002);
    ck_assert_int_eq(column.rows, 10002);
    npy_column_close(&column);
}
END_TEST

static const struct {
    const char *text;
    const char *reason;
} bad_headers[] = {
    {"{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }", "foreign byte order"},
    {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "dtype '<f8'"},
    {"{'descr': '<i2', 'fortran_order': False, 'shape': (4,), }", "dtype '<i2'"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }", "dtype '|u1'"},
    {"{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }", "dtype '<u4'"},
    {"{'descr': [('a', '<i4'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,), }", "structured dtype"},
    {"{'descr': '<i4', 'fortran_order': True, 'shape': (2,), }", "Fortran order"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (), }", "0-dimensional"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }", "2 dimensions"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }",
     "truncated: 3 rows want 12 bytes of data, it holds 8"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", "too long"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape is malformed"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (9000000000000000000,), }", "claims 9000000000000000000 rows"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (-2,), }", "shape is malformed"},
    {"{'descr': '<i4', 'fortran_order': False, }", "lacks descr, fortran_order or shape"},
    {"{'descr': '<i4', 'fortran_order': 0, 'shape': (2,), }", "neither True nor False"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "unknown key"},
    {"{'descr': '<i4', 'fortran_order': False, 'shape': (2,)", "malformed"},
    {"descr", "no dictionary"},
};

START_TEST(L2_header_is_refused_with_its_reason)
{
    put_shard("shard_0000.npy", 1, bad_headers[_i].text, 0, 2);
    assert_refused(bad_headers[_i].reason);
}
END_TEST

START_TEST(L2_dtype_is_fixed_by_the_first_shard)
{
    put_int32(0, 0, 4);
    put_shard("shard_0001.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }", 0, 2);
    assert_refused("shard_0001.npy' has dtype '<i8', the first shard has '<i4'");
}
END_TEST

START_TEST(L3_versions_1_to_3_are_read_and_others_refused)
{
    struct npy_column column;
    const char *text = "{'shape': (3,), 'fortran_order': False, 'descr': \"<i4\"}";
    for (unsigned version = 1; version <= 3; version++) {
        put_shard("shard_0000.npy", version, text, 0, 3);
        ck_assert_int_eq(npy_column_open(&column, folder, &error), 0);
        ck_assert_uint_eq(column.data_offset[0], (version == 1 ? 10 : 12) + strlen(text));
        npy_column_close(&column);
    }
    put_shard("shard_0000.npy", 4, text, 0, 3);
    assert_refused("version 4.0");
}
END_TEST

START_TEST(L3_file_shorter_than_its_header_is_refused)
{
    put_int32(0, 0, 4);
    ck_assert_int_eq(truncate(path_of("shard_0000.npy"), _i), 0);
    assert_refused("shard_0000.npy");
}
END_TEST

/* Holes: data that was never written cannot have been read, and a column of 2^40 rows opens at once. */
START_TEST(L3_discovery_reads_headers_only)
{
    struct npy_column column;
    put_shard("shard_0000.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,), }", 0, 0);
    struct stat st;
    ck_assert_int_eq(stat(path_of("shard_0000.npy"), &st), 0);
    if (truncate(path_of("shard_0000.npy"), st.st_size + (INT64_C(1) << 43)) != 0)
        return; /* a file system without files that large */
    ck_assert_int_eq(npy_column_open(&column, folder, &error), 0);
    ck_assert_int_eq(column.rows, INT64_C(1) << 40);
    npy_column_close(&column);
}
END_TEST

START_TEST(L6_any_range_equals_the_concatenation)
{
    static const size_t rows[] = {5, 0, 1, 0, 0, 7, 3, 0};
    struct npy_column column;
    struct npy_reader reader;
    int32_t value = 0;
    for (unsigned shard = 0; shard < 8; shard++) {
        put_int32(shard, value, rows[shard]);
        value += (int32_t)rows[shard];
    }
    ck_assert_int_eq(npy_column_open(&column, folder, &error), 0);
    ck_assert_int_eq(column.rows, 16);
    npy_reader_init(&reader, &column);
    for (int64_t first = 0; first < 16; first++) {
        for (int64_t n = 0; n <= 16 - first; n++) {
            int32_t out[16];
            ck_assert_int_eq(npy_reader_read(&reader, first, n, out, &error), 0);
            for (int64_t i = 0; i < n; i++)
                ck_assert_int_eq(out[i], first + i);
        }
    }
    npy_reader_finish(&reader);
    npy_column_close(&column);
}
END_TEST

START_TEST(L10_file_truncated_while_loading_is_an_error)
{
    struct npy_column column;
    struct npy_reader reader;
    int32_t out[8];
    put_int32(0, 0, 8);
    ck_assert_int_eq(npy_column_open(&column, folder, &error), 0);
    ck_assert_int_eq(truncate(path_of("shard_0000.npy"), (off_t)column.data_offset[0] + 16), 0);
    npy_reader_init(&reader, &column);
    ck_assert_int_eq(npy_reader_read(&reader, 0, 8, out, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "truncated while it was loaded"));
    npy_reader_finish(&reader);
    npy_column_close(&column);
}
END_TEST

START_TEST(columns_of_unequal_length_are_refused)
{
    struct eng_source source;
    char base[64];
    memcpy(base, folder, sizeof base);
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        (void)snprintf(folder, sizeof folder, "%.32s/%s", base, eng_column_name[ENG_PARTSUPP][c]);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
        put_int32(0, 0, c == 2 ? 4 : 5);
    }
    memcpy(folder, base, sizeof folder);
    ck_assert_int_eq(eng_source_open_folder(&source, ENG_PARTSUPP, folder, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "ps_supplycost has 4 rows, column ps_partkey has 5"));
}
END_TEST

START_TEST(missing_column_is_named)
{
    struct eng_source source;
    ck_assert_int_eq(eng_source_open_folder(&source, ENG_LINEITEM, folder, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "column l_partkey is missing"));
}
END_TEST

START_TEST(written_tables_read_back_as_they_were_made)
{
    static const volatile sig_atomic_t go_on = 0;
    struct tpch t;
    struct eng_verify_input made[ENG_SIDES], kept[ENG_SIDES];
    struct eng_answer a, b;
    char lineitem[128], partsupp[128];
    ck_assert_int_eq(tpch_init(&t, 0.01, &error), 0);
    ck_assert_int_eq(eng_write_tables(&t, folder, &go_on, &error), 0);
    (void)snprintf(lineitem, sizeof lineitem, "%s/lineitem", folder);
    (void)snprintf(partsupp, sizeof partsupp, "%s/partsupp", folder);
    made[ENG_PARTSUPP] = made[ENG_LINEITEM] = (struct eng_verify_input){&t, NULL};
    kept[ENG_PARTSUPP] = (struct eng_verify_input){NULL, partsupp};
    kept[ENG_LINEITEM] = (struct eng_verify_input){NULL, lineitem};
    ck_assert_int_eq(eng_verify(made, &a, &error), 0);
    ck_assert_int_eq(eng_verify(kept, &b, &error), 0);
    ck_assert(a.rows == t.lineitem_rows);
    ck_assert(a.rows == b.rows && a.sum_extendedprice == b.sum_extendedprice);
    ck_assert(a.sum_supplycost_x_quantity == b.sum_supplycost_x_quantity && a.sum_availqty == b.sum_availqty);

    struct eng_source file, generator;
    struct eng_reader from_file, from_generator;
    int64_t x[ENG_COLUMNS][256], y[ENG_COLUMNS][256];
    void *xs[ENG_COLUMNS] = {x[0], x[1], x[2], x[3]}, *ys[ENG_COLUMNS] = {y[0], y[1], y[2], y[3]};
    ck_assert_int_eq(eng_source_open_folder(&file, ENG_LINEITEM, lineitem, &error), 0);
    eng_source_open_tpch(&generator, ENG_LINEITEM, &t);
    ck_assert_int_eq(file.rows, t.lineitem_rows);
    eng_reader_init(&from_file, &file);
    eng_reader_init(&from_generator, &generator);
    ck_assert_int_eq(eng_reader_read(&from_file, 1000, 256, xs, &error), 0);
    ck_assert_int_eq(eng_reader_read(&from_generator, 1000, 256, ys, &error), 0);
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        ck_assert_uint_eq(file.width[c], generator.width[c]);
        ck_assert_mem_eq(x[c], y[c], 256 * file.width[c]);
    }
    eng_reader_finish(&from_file);
    eng_source_close(&file);

    ck_assert_int_eq(eng_write_tables(&t, folder, &go_on, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "exists already"));
    tpch_finish(&t);
}
END_TEST

START_TEST(stopped_write_leaves_nothing)
{
    static const volatile sig_atomic_t stop = 15;
    struct tpch t;
    char target[128];
    ck_assert_int_eq(tpch_init(&t, 0.01, &error), 0);
    (void)snprintf(target, sizeof target, "%s/new", folder);
    ck_assert_int_eq(eng_write_tables(&t, target, &stop, &error), -1);
    ck_assert_int_eq(error.status, ENG_STOPPED);
    ck_assert_int_eq(access(target, F_OK), -1);
    tpch_finish(&t);
}
END_TEST

START_TEST(write_names_the_folder_that_is_missing)
{
    static const volatile sig_atomic_t go_on = 0;
    struct tpch t;
    char target[128], missing[128];
    ck_assert_int_eq(tpch_init(&t, 0.01, &error), 0);
    (void)snprintf(missing, sizeof missing, "the folder '%s/a' is missing", folder);
    (void)snprintf(target, sizeof target, "%s/a/b", folder);
    ck_assert_int_eq(eng_write_tables(&t, target, &go_on, &error), -1);
    ck_assert_msg(strstr(error.text, missing) != NULL, "%s", error.text);
    put_int32(0, 0, 1);
    ck_assert_int_eq(eng_write_tables(&t, path_of("shard_0000.npy"), &go_on, &error), -1);
    ck_assert_msg(strstr(error.text, "is not a folder") != NULL, "%s", error.text);
    tpch_finish(&t);
}
END_TEST

START_TEST(table_that_is_a_file_is_no_folder)
{
    struct eng_source source;
    put_int32(0, 0, 1);
    ck_assert_int_eq(eng_source_open_folder(&source, ENG_LINEITEM, path_of("shard_0000.npy"), &error), -1);
    ck_assert_msg(strstr(error.text, "is not a folder") != NULL, "%s", error.text);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

int main(void)
{
    Suite *suite = suite_create("engine_shards");
    TCase *shards = tcase_create("shards");
    tcase_add_checked_fixture(shards, make_folder, remove_folder);
    tcase_set_timeout(shards, 60);
    tcase_add_test(shards, L1_missing_folder_is_an_error);
    tcase_add_test(shards, L1_folder_without_shards_is_an_error);
    tcase_add_test(shards, L1_gap_names_up_to_five_missing_shards);
    tcase_add_test(shards, L1_first_shard_missing_is_a_gap);
    tcase_add_test(shards, L1_stray_names_are_listed_and_refused);
    tcase_add_loop_test(shards, L1_wrong_digits_are_stray, 0, 5);
    tcase_add_test(shards, L1_from_10000_on_names_have_five_digits);
    tcase_add_loop_test(shards, L2_header_is_refused_with_its_reason, 0, COUNT(bad_headers));
    tcase_add_test(shards, L2_dtype_is_fixed_by_the_first_shard);
    tcase_add_test(shards, L3_versions_1_to_3_are_read_and_others_refused);
    tcase_add_loop_test(shards, L3_file_shorter_than_its_header_is_refused, 0, 12);
    tcase_add_test(shards, L3_discovery_reads_headers_only);
    tcase_add_test(shards, L6_any_range_equals_the_concatenation);
    tcase_add_test(shards, L10_file_truncated_while_loading_is_an_error);
    tcase_add_test(shards, columns_of_unequal_length_are_refused);
    tcase_add_test(shards, missing_column_is_named);
    tcase_add_test(shards, written_tables_read_back_as_they_were_made);
    tcase_add_test(shards, stopped_write_leaves_nothing);
    tcase_add_test(shards, write_names_the_folder_that_is_missing);
    tcase_add_test(shards, table_that_is_a_file_is_no_folder);
    suite_add_tcase(suite, shards);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
