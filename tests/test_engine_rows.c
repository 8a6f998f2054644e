/* Rows in the reference engine: packing, hashing, scattering. Neighbour: test_engine.c. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rows.h"

/* R4: int32 and int64 columns of equal values take the same way. */
START_TEST(R4_rows_of_any_width_unpack_and_hash_alike)
{
    static const int64_t values[ENG_COLUMNS][3] = {{1, -2, INT32_MAX}, {-1, 7, INT32_MIN}, {50, 0, -5}, {9, 8, 7}};
    uint64_t hashes[3];
    for (unsigned mask = 0; mask < 16; mask++) {
        struct eng_source source = {.rows = 3};
        struct eng_format format;
        struct eng_batch batch;
        char rows[3 * 32];
        int64_t wide[ENG_COLUMNS][3];
        int32_t narrow[ENG_COLUMNS][3];
        const void *columns[ENG_COLUMNS];
        for (unsigned c = 0; c < ENG_COLUMNS; c++) {
            source.width[c] = mask >> c & 1 ? 8 : 4;
            for (unsigned i = 0; i < 3; i++) {
                wide[c][i] = values[c][i];
                narrow[c][i] = (int32_t)values[c][i];
            }
            columns[c] = mask >> c & 1 ? (const void *)wide[c] : (const void *)narrow[c];
        }
        eng_format_init(&format, &source);
        ck_assert_uint_eq(format.row_bytes, eng_source_row_bytes(&source));
        eng_format_pack(&format, columns, 0, 3, rows);
        eng_format_unpack(&format, rows, 3, &batch);
        eng_hash_batch(&batch, 3, 0);
        for (unsigned i = 0; i < 3; i++) {
            ck_assert_int_eq(batch.key1[i], values[0][i]);
            ck_assert_int_eq(batch.key2[i], values[1][i]);
            ck_assert_int_eq(batch.factor[i], values[2][i]);
            ck_assert_int_eq(batch.addend[i], values[3][i]);
            if (mask == 0)
                hashes[i] = batch.hash[i];
            ck_assert_uint_eq(batch.hash[i], hashes[i]);
        }
    }
}
END_TEST

/* Scatters rows into areas that are far too small and empties each when it is full: every row comes out once, in the
 * partition of its hash, in the order in which it went in. */
START_TEST(pass_stops_at_a_full_area_and_goes_on)
{
    enum { ROWS = 5000, FANOUT = 7, AREA_ROWS = 13 };
    static const struct eng_source source = {.width = {4, 8, 4, 4}};
    static int32_t key1[ROWS], factor[ROWS], addend[ROWS];
    static int64_t key2[ROWS];
    static struct eng_pass pass;
    static struct eng_areas areas;
    static char packed[ROWS * ENG_ROW_MAX], memory[FANOUT * AREA_ROWS * ENG_ROW_MAX];
    const void *const columns[ENG_COLUMNS] = {key1, key2, factor, addend};
    struct eng_format format;
    eng_format_init(&format, &source);
    for (int32_t i = 0; i < ROWS; i++) {
        key1[i] = i % 1000;
        key2[i] = -i;
        factor[i] = i; /* tells which row it is */
        addend[i] = 7;
    }
    for (size_t i = 0; i < ROWS; i += ENG_BATCH)
        eng_format_pack(&format, columns, i, ROWS - i < ENG_BATCH ? ROWS - i : ENG_BATCH,
                        packed + i * format.row_bytes);
    for (unsigned depth = 0; depth < 2; depth++) { /* columns, then packed rows by another hash */
        int32_t last[FANOUT] = {-1, -1, -1, -1, -1, -1, -1}, total = 0;
        uint32_t full;
        eng_pass_begin(&pass, &format, depth, ROWS);
        areas = (struct eng_areas){.memory = memory, .fanout = FANOUT, .area_rows = AREA_ROWS};
        memcpy(pass.columns, columns, sizeof columns);
        pass.packed = depth == 0 ? NULL : packed;
        do {
            full = eng_pass_run(&pass, &areas);
            for (uint32_t p = 0; p < FANOUT; p++) {
                if (full != ENG_NO_AREA && full != p)
                    continue;
                ck_assert(full == ENG_NO_AREA || areas.fill[p] == AREA_ROWS);
                for (uint32_t i = 0; i < areas.fill[p]; i++) {
                    struct eng_batch batch;
                    eng_format_unpack(&format, memory + (size_t)(p * AREA_ROWS + i) * format.row_bytes, 1, &batch);
                    eng_hash_batch(&batch, 1, depth);
                    ck_assert_uint_eq(((batch.hash[0] >> 32) * FANOUT) >> 32, p);
                    ck_assert_int_eq(batch.key1[0], batch.factor[0] % 1000);
                    ck_assert_int_eq(batch.key2[0], -batch.factor[0]);
                    ck_assert_int_gt(batch.factor[0], last[p]);
                    last[p] = (int32_t)batch.factor[0];
                    total++;
                }
                areas.fill[p] = 0;
            }
        } while (full != ENG_NO_AREA);
        ck_assert_int_eq(total, ROWS);
    }
}
END_TEST

START_TEST(each_depth_hashes_on_its_own)
{
    unsigned same = 0, counts[8] = {0};
    struct eng_batch batch;
    uint64_t level0[ENG_BATCH];
    for (unsigned i = 0; i < ENG_BATCH; i++) {
        batch.key1[i] = i;
        batch.key2[i] = 3 * (int64_t)i;
    }
    eng_hash_batch(&batch, ENG_BATCH, 0);
    memcpy(level0, batch.hash, sizeof level0);
    eng_hash_batch(&batch, ENG_BATCH, 1);
    for (unsigned i = 0; i < ENG_BATCH; i++) {
        same += level0[i] >> 61 == batch.hash[i] >> 61;
        counts[batch.hash[i] >> 61]++;
    }
    ck_assert_uint_lt(same, ENG_BATCH / 4);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_gt(counts[i], ENG_BATCH / 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_rows");
    TCase *rows = tcase_create("rows");
    tcase_add_test(rows, R4_rows_of_any_width_unpack_and_hash_alike);
    tcase_add_test(rows, pass_stops_at_a_full_area_and_goes_on);
    tcase_add_test(rows, each_depth_hashes_on_its_own);
    suite_add_tcase(suite, rows);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
