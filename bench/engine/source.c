/* Sources of tables. Neighbours: npy.c and tpch.c below, load.c above. */
#include "source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 1024 /* generated rows held as int64 before they are narrowed column by column */

const char *const eng_table_name[ENG_SIDES] = {"partsupp", "lineitem"};
const char *const eng_column_name[ENG_SIDES][ENG_COLUMNS] = {
    {"ps_partkey", "ps_suppkey", "ps_supplycost", "ps_availqty"},
    {"l_partkey", "l_suppkey", "l_quantity", "l_extendedprice"},
};

int eng_source_open_folder(struct eng_source *source, enum eng_side side, const char *folder, struct eng_error *error)
{
    char path[4096];
    struct stat st;
    memset(source, 0, sizeof *source);
    source->side = side;
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return eng_fail(error, ENG_FAILED, "cannot read the %s table: '%s' is not a folder", eng_table_name[side],
                        folder);
    if (access(folder, R_OK | X_OK) != 0)
        return eng_fail(error, ENG_FAILED, "cannot read the %s folder '%s': %s", eng_table_name[side], folder,
                        strerror(errno));
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        const char *name = eng_column_name[side][c];
        int n = snprintf(path, sizeof path, "%s/%s", folder, name);
        int result = 0;
        if (n < 0 || (size_t)n >= sizeof path)
            result = eng_fail(error, ENG_FAILED, "the path '%s' is too long", folder);
        else if (access(path, F_OK) != 0 && errno == ENOENT)
            result = eng_fail(error, ENG_FAILED, "column %s is missing: there is no folder '%s'", name, path);
        else
            result = npy_column_open(&source->columns[c], path, error);
        if (result == 0 && source->columns[c].rows != source->columns[0].rows)
            result = eng_fail(error, ENG_FAILED, "column %s has %" PRId64 " rows, column %s has %" PRId64 " (in '%s')",
                              name, source->columns[c].rows, eng_column_name[side][0], source->columns[0].rows, folder);
        if (result != 0) {
            eng_source_close(source);
            return -1;
        }
        source->width[c] = source->columns[c].width;
    }
    source->rows = source->columns[0].rows;
    return 0;
}

/* Keys and counts are int32 while they fit, money is int64. */
void eng_source_open_tpch(struct eng_source *source, enum eng_side side, const struct tpch *tpch)
{
    memset(source, 0, sizeof *source);
    source->side = side;
    source->tpch = tpch;
    source->rows = side == ENG_PARTSUPP ? tpch->partsupp_rows : tpch->lineitem_rows;
    source->width[ENG_KEY1] = tpch->parts <= INT32_MAX ? 4 : 8;
    source->width[ENG_KEY2] = tpch->suppliers <= INT32_MAX ? 4 : 8;
    source->width[ENG_FACTOR] = side == ENG_PARTSUPP ? 8 : 4; /* supplycost, quantity */
    source->width[ENG_ADDEND] = side == ENG_PARTSUPP ? 4 : 8; /* availqty, extendedprice */
}

void eng_source_close(struct eng_source *source)
{
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        npy_column_close(&source->columns[c]);
}

unsigned eng_source_row_bytes(const struct eng_source *source)
{
    unsigned bytes = 0;
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        bytes += source->width[c];
    return bytes;
}

void eng_reader_init(struct eng_reader *reader, const struct eng_source *source)
{
    reader->source = source;
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        npy_reader_init(&reader->columns[c], &source->columns[c]);
}

void eng_reader_finish(struct eng_reader *reader)
{
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        npy_reader_finish(&reader->columns[c]);
}

static void narrow(void *out, unsigned width, int64_t at, const int64_t *values, int64_t n)
{
    if (width == 8) {
        memcpy((int64_t *)out + at, values, (size_t)n * 8);
        return;
    }
    int32_t *to = (int32_t *)out + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int32_t)values[i];
}

static void make_partsupp(const struct tpch *tpch, int64_t first, int64_t n, int64_t values[ENG_COLUMNS][BATCH])
{
    struct tpch_partsupp row;
    for (int64_t i = 0; i < n; i++) {
        tpch_partsupp_row(tpch, first + i, &row);
        values[ENG_KEY1][i] = row.partkey;
        values[ENG_KEY2][i] = row.suppkey;
        values[ENG_FACTOR][i] = row.supplycost;
        values[ENG_ADDEND][i] = row.availqty;
    }
}

static void make_lineitem(const struct tpch *tpch, struct tpch_cursor *cursor, int64_t n,
                          int64_t values[ENG_COLUMNS][BATCH])
{
    struct tpch_line line;
    for (int64_t i = 0; i < n; i++) {
        tpch_next(tpch, cursor, &line);
        values[ENG_KEY1][i] = line.partkey;
        values[ENG_KEY2][i] = line.suppkey;
        values[ENG_FACTOR][i] = line.quantity;
        values[ENG_ADDEND][i] = line.extendedprice;
    }
}

static void make_rows(const struct eng_source *source, int64_t first, int64_t n, void *const out[ENG_COLUMNS])
{
    int64_t values[ENG_COLUMNS][BATCH];
    struct tpch_cursor cursor = {0, 0, 0};
    if (source->side == ENG_LINEITEM)
        tpch_seek(source->tpch, first, &cursor);
    for (int64_t done = 0; done < n;) {
        int64_t batch = n - done < BATCH ? n - done : BATCH;
        if (source->side == ENG_LINEITEM)
            make_lineitem(source->tpch, &cursor, batch, values);
        else
            make_partsupp(source->tpch, first + done, batch, values);
        for (unsigned c = 0; c < ENG_COLUMNS; c++)
            narrow(out[c], source->width[c], done, values[c], batch);
        done += batch;
    }
}

int eng_reader_read(struct eng_reader *reader, int64_t first, int64_t n, void *const out[ENG_COLUMNS],
                    struct eng_error *error)
{
    if (n == 0)
        return 0;
    if (reader->source->tpch != NULL) {
        make_rows(reader->source, first, n, out);
        return 0;
    }
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        if (npy_reader_read(&reader->columns[c], first, n, out[c], error) != 0)
            return -1;
    }
    return 0;
}
