/* Writing generated tables. Neighbours: tpch.c (the rows), npy_header.c (the header). */
#include "write.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "source.h"

#define BATCH       4096
#define COLUMNS_MAX 6

struct output {
    const char *name;
    const char *columns[COLUMNS_MAX];
    unsigned width[COLUMNS_MAX];
    unsigned n_columns;
    int64_t rows;
    char folder[3072]; /* while it is written */
    FILE *files[COLUMNS_MAX];
    char *buffer; /* BATCH values of 8 bytes for each column */
};

static void *column_buffer(const struct output *o, unsigned column)
{
    return o->buffer + (size_t)column * BATCH * sizeof(int64_t);
}

static void put(const struct output *o, unsigned column, int64_t at, int64_t value)
{
    if (o->width[column] == 8)
        ((int64_t *)column_buffer(o, column))[at] = value;
    else
        ((int32_t *)column_buffer(o, column))[at] = (int32_t)value;
}

/* The four columns of a join first, in the order of enum eng_role. */
static void describe(struct output *o, const struct tpch *tpch, enum eng_side side)
{
    struct eng_source source;
    eng_source_open_tpch(&source, side, tpch);
    memset(o, 0, sizeof *o);
    o->name = eng_table_name[side];
    o->rows = source.rows;
    for (; o->n_columns < ENG_COLUMNS; o->n_columns++) {
        o->columns[o->n_columns] = eng_column_name[side][o->n_columns];
        o->width[o->n_columns] = source.width[o->n_columns];
    }
    if (side == ENG_LINEITEM) {
        o->columns[o->n_columns] = "l_orderkey";
        o->width[o->n_columns++] = tpch_order_key(tpch->orders) <= INT32_MAX ? 4 : 8;
        o->columns[o->n_columns] = "l_linenumber";
        o->width[o->n_columns++] = 4;
    }
}

static void make_batch(struct output *o, const struct tpch *tpch, enum eng_side side, int64_t first, int64_t n,
                       struct tpch_cursor *cursor)
{
    for (int64_t i = 0; i < n; i++) {
        if (side == ENG_PARTSUPP) {
            struct tpch_partsupp row;
            tpch_partsupp_row(tpch, first + i, &row);
            put(o, ENG_KEY1, i, row.partkey);
            put(o, ENG_KEY2, i, row.suppkey);
            put(o, ENG_FACTOR, i, row.supplycost);
            put(o, ENG_ADDEND, i, row.availqty);
        } else {
            struct tpch_line line;
            tpch_next(tpch, cursor, &line);
            put(o, ENG_KEY1, i, line.partkey);
            put(o, ENG_KEY2, i, line.suppkey);
            put(o, ENG_FACTOR, i, line.quantity);
            put(o, ENG_ADDEND, i, line.extendedprice);
            put(o, ENG_COLUMNS, i, line.orderkey);
            put(o, ENG_COLUMNS + 1, i, line.linenumber);
        }
    }
}

static int shard_path(const struct output *o, unsigned column, uint32_t shard, char *path, size_t size)
{
    char folder[3200];
    (void)snprintf(folder, sizeof folder, "%s/%s", o->folder, o->columns[column]);
    return npy_shard_path(path, size, folder, shard);
}

static int open_shard(struct output *o, uint32_t shard, int64_t rows, struct eng_error *error)
{
    char path[4096], header[NPY_HEADER_MAX];
    for (unsigned c = 0; c < o->n_columns; c++) {
        (void)shard_path(o, c, shard, path, sizeof path);
        o->files[c] = fopen(path, "wxe");
        if (o->files[c] == NULL)
            return eng_fail(error, ENG_FAILED, "cannot create '%s': %s", path, strerror(errno));
        size_t length = npy_format_header(header, o->width[c], rows);
        if (fwrite(header, 1, length, o->files[c]) != length)
            return eng_fail(error, ENG_FAILED, "cannot write '%s': %s", path, strerror(errno));
    }
    return 0;
}

static int close_shard(struct output *o, uint32_t shard, struct eng_error *error)
{
    char path[4096];
    int result = 0;
    for (unsigned c = 0; c < o->n_columns; c++) {
        FILE *file = o->files[c];
        o->files[c] = NULL;
        if (file != NULL && fclose(file) != 0 && result == 0) {
            (void)shard_path(o, c, shard, path, sizeof path);
            result = eng_fail(error, ENG_FAILED, "cannot write '%s': %s", path, strerror(errno));
        }
    }
    return result;
}

static int write_shard(struct output *o, const struct tpch *tpch, enum eng_side side, uint32_t shard, int64_t first,
                       int64_t rows, const volatile sig_atomic_t *stop, struct eng_error *error)
{
    struct tpch_cursor cursor = {0, 0, 0};
    struct eng_error ignored;
    int result = open_shard(o, shard, rows, error);
    if (side == ENG_LINEITEM)
        tpch_seek(tpch, first, &cursor);
    for (int64_t done = 0; result == 0 && done < rows;) {
        int64_t n = rows - done < BATCH ? rows - done : BATCH;
        make_batch(o, tpch, side, first + done, n, &cursor);
        for (unsigned c = 0; c < o->n_columns && result == 0; c++) {
            if (fwrite(column_buffer(o, c), o->width[c], (size_t)n, o->files[c]) != (size_t)n)
                result = eng_fail(error, ENG_FAILED, "cannot write column %s below '%s': %s", o->columns[c], o->folder,
                                  strerror(errno));
        }
        if (result == 0 && *stop != 0)
            result = eng_fail(error, ENG_STOPPED, "while writing %s; nothing was kept", o->name);
        done += n;
    }
    if (close_shard(o, shard, result == 0 ? error : &ignored) != 0)
        result = -1;
    return result;
}

static int make_folders(const struct output *o, struct eng_error *error)
{
    char path[4096];
    if (mkdir(o->folder, 0777) != 0)
        return eng_fail(error, ENG_FAILED, "cannot create '%s': %s", o->folder, strerror(errno));
    for (unsigned c = 0; c < o->n_columns; c++) {
        (void)snprintf(path, sizeof path, "%s/%s", o->folder, o->columns[c]);
        if (mkdir(path, 0777) != 0)
            return eng_fail(error, ENG_FAILED, "cannot create '%s': %s", path, strerror(errno));
    }
    return 0;
}

/* Removes what write_table made below o->folder; what is not there is no matter. */
static void remove_table(const struct output *o)
{
    char path[4096];
    for (unsigned c = 0; c < o->n_columns; c++) {
        for (uint32_t shard = 0; shard_path(o, c, shard, path, sizeof path) == 0 && unlink(path) == 0; shard++)
            ;
        (void)snprintf(path, sizeof path, "%s/%s", o->folder, o->columns[c]);
        (void)rmdir(path);
    }
    (void)rmdir(o->folder);
}

static int write_table(struct output *o, const struct tpch *tpch, enum eng_side side, const volatile sig_atomic_t *stop,
                       struct eng_error *error)
{
    int result = make_folders(o, error);
    o->buffer = malloc((size_t)o->n_columns * BATCH * sizeof(int64_t));
    if (result == 0 && o->buffer == NULL)
        result = eng_fail(error, ENG_FAILED, "out of memory while writing %s", o->name);
    for (int64_t first = 0; result == 0 && first < o->rows; first += ENG_SHARD_ROWS) {
        int64_t rows = o->rows - first < ENG_SHARD_ROWS ? o->rows - first : ENG_SHARD_ROWS;
        result = write_shard(o, tpch, side, (uint32_t)(first / ENG_SHARD_ROWS), first, rows, stop, error);
    }
    free(o->buffer);
    o->buffer = NULL;
    return result;
}

/* A final name that is free, and the temporary one beside it. */
static int choose_names(struct output *o, const char *folder, char *final, size_t size, struct eng_error *error)
{
    int n = snprintf(final, size, "%s/%s", folder, o->name);
    int m = snprintf(o->folder, sizeof o->folder, "%s/.%s-%ld", folder, o->name, (long)getpid());
    if (n < 0 || (size_t)n >= size || m < 0 || (size_t)m >= sizeof o->folder)
        return eng_fail(error, ENG_FAILED, "the path '%s' is too long", folder);
    if (access(final, F_OK) == 0)
        return eng_fail(error, ENG_FAILED, "'%s' exists already: remove it, or name another folder", final);
    return 0;
}

/* Makes the folder itself, but not what it lies in: a mistyped path is not to become a tree of folders. */
static int make_target(const char *folder, int *created, struct eng_error *error)
{
    char parent[4096];
    struct stat st;
    *created = mkdir(folder, 0777) == 0;
    if (*created)
        return 0;
    if (errno == EEXIST)
        return stat(folder, &st) == 0 && S_ISDIR(st.st_mode)
                   ? 0
                   : eng_fail(error, ENG_FAILED, "cannot write to '%s': it is not a folder", folder);
    int reason = errno;
    (void)snprintf(parent, sizeof parent, "%s", folder);
    const char *around = dirname(parent);
    if (reason == ENOENT && stat(around, &st) != 0)
        return eng_fail(error, ENG_FAILED, "cannot create '%s': the folder '%s' is missing", folder, around);
    return eng_fail(error, ENG_FAILED, "cannot create '%s': %s", folder, strerror(reason));
}

int eng_write_tables(const struct tpch *tpch, const char *folder, const volatile sig_atomic_t *stop,
                     struct eng_error *error)
{
    struct output outputs[ENG_SIDES];
    char final[ENG_SIDES][3072];
    unsigned renamed = 0;
    int created, result = 0;
    if (make_target(folder, &created, error) != 0)
        return -1;
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        describe(&outputs[side], tpch, (enum eng_side)side);
        if (result == 0)
            result = choose_names(&outputs[side], folder, final[side], sizeof final[side], error);
    }
    if (result != 0) {
        if (created)
            (void)rmdir(folder);
        return result;
    }
    for (unsigned side = 0; side < ENG_SIDES && result == 0; side++)
        result = write_table(&outputs[side], tpch, (enum eng_side)side, stop, error);
    while (renamed < ENG_SIDES && result == 0) {
        if (rename(outputs[renamed].folder, final[renamed]) == 0)
            renamed++; /* from here on it is ours to remove under that name */
        else
            result = eng_fail(error, ENG_FAILED, "cannot rename '%s' to '%s': %s", outputs[renamed].folder,
                              final[renamed], strerror(errno));
    }
    for (unsigned side = 0; side < ENG_SIDES && result != 0; side++) {
        if (side < renamed)
            memcpy(outputs[side].folder, final[side], sizeof final[side]);
        remove_table(&outputs[side]);
    }
    if (result != 0 && created)
        (void)rmdir(folder);
    return result;
}
