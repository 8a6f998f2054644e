/* Sort-merge join for --verify. Neighbours: tpch.c (rows of a generated table), bench_join.c (compares). */
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

#define SMALL 32   /* runs that insertion sort takes */
#define BLOCK 4096 /* values read at once */

struct rows {
    struct eng_verify_row *at;
    size_t n, capacity;
};

static inline int less(const struct eng_verify_row *a, const struct eng_verify_row *b)
{
    return a->key1 < b->key1 || (a->key1 == b->key1 && a->key2 < b->key2);
}

/* Byte number digit of the 16-byte key, most significant first, in an order that agrees with signed comparison. */
static inline unsigned digit_of(const struct eng_verify_row *row, unsigned digit)
{
    uint64_t key = (uint64_t)(digit < 8 ? row->key1 : row->key2) ^ UINT64_C(0x8000000000000000);
    return (unsigned)(key >> (56 - 8 * (digit & 7))) & 0xff;
}

static void insertion_sort(struct eng_verify_row *rows, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct eng_verify_row row = rows[i];
        size_t at = i;
        for (; at > 0 && less(&row, &rows[at - 1]); at--)
            rows[at] = rows[at - 1];
        rows[at] = row;
    }
}

/* The first digit in which not all rows agree, 16 when they are all equal. */
static unsigned first_difference(const struct eng_verify_row *rows, size_t n)
{
    uint64_t key1 = 0, key2 = 0;
    for (size_t i = 1; i < n; i++) {
        key1 |= (uint64_t)(rows[i].key1 ^ rows[0].key1);
        key2 |= (uint64_t)(rows[i].key2 ^ rows[0].key2);
    }
    if (key1 != 0)
        return (unsigned)__builtin_clzll(key1) / 8;
    return key2 != 0 ? 8 + (unsigned)__builtin_clzll(key2) / 8 : 16;
}

/* In-place radix sort, most significant digit first. */
static void radix_sort(struct eng_verify_row *rows, size_t n)
{
    size_t begin[257], next[256];
    if (n <= SMALL) {
        insertion_sort(rows, n);
        return;
    }
    unsigned digit = first_difference(rows, n);
    if (digit == 16)
        return;
    memset(begin, 0, sizeof begin);
    for (size_t i = 0; i < n; i++)
        begin[digit_of(&rows[i], digit) + 1]++;
    for (unsigned d = 0; d < 256; d++) {
        begin[d + 1] += begin[d];
        next[d] = begin[d];
    }
    for (unsigned d = 0; d < 256; d++) {
        while (next[d] < begin[d + 1]) {
            struct eng_verify_row row = rows[next[d]];
            unsigned to = digit_of(&row, digit);
            while (to != d) {
                struct eng_verify_row other = rows[next[to]];
                rows[next[to]++] = row;
                row = other;
                to = digit_of(&row, digit);
            }
            rows[next[d]++] = row;
        }
    }
    for (unsigned d = 0; d < 256; d++)
        radix_sort(rows + begin[d], begin[d + 1] - begin[d]);
}

struct run {
    size_t n;
    eng_u128 factor, addend;
};

/* Sums up the rows that share the key of rows[0]. */
static struct run take_run(const struct eng_verify_row *rows, size_t n)
{
    struct run run = {0, 0, 0};
    for (; run.n < n && !less(&rows[0], &rows[run.n]); run.n++) {
        __int128 factor = rows[run.n].factor, addend = rows[run.n].addend;
        run.factor += (eng_u128)factor;
        run.addend += (eng_u128)addend;
    }
    return run;
}

void eng_verify_merge(struct eng_verify_row *partsupp, size_t n_partsupp, struct eng_verify_row *lineitem,
                      size_t n_lineitem, struct eng_answer *answer)
{
    eng_u128 rows = 0, products = 0, availqty = 0, price = 0;
    radix_sort(partsupp, n_partsupp);
    radix_sort(lineitem, n_lineitem);
    for (size_t p = 0, l = 0; p < n_partsupp && l < n_lineitem;) {
        if (less(&partsupp[p], &lineitem[l])) {
            p++;
        } else if (less(&lineitem[l], &partsupp[p])) {
            l++;
        } else {
            struct run of_p = take_run(partsupp + p, n_partsupp - p), of_l = take_run(lineitem + l, n_lineitem - l);
            rows += (eng_u128)of_p.n * of_l.n;
            products += of_p.factor * of_l.factor;
            availqty += of_p.addend * of_l.n;
            price += of_l.addend * of_p.n;
            p += of_p.n;
            l += of_l.n;
        }
    }
    answer->rows = (__int128)rows;
    answer->sum_supplycost_x_quantity = (__int128)products;
    answer->sum_availqty = (__int128)availqty;
    answer->sum_extendedprice = (__int128)price;
}

static int rows_reserve(struct rows *rows, size_t n, struct eng_error *error)
{
    if (n <= rows->capacity)
        return 0;
    size_t capacity = rows->capacity * 2 > n ? rows->capacity * 2 : n;
    struct eng_verify_row *grown = realloc(rows->at, capacity * sizeof *grown);
    if (grown == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory while verifying %zu rows", n);
    rows->at = grown;
    rows->capacity = capacity;
    return 0;
}

static int make_rows(const struct tpch *tpch, enum eng_side side, struct rows *rows, struct eng_error *error)
{
    int64_t n = side == ENG_PARTSUPP ? tpch->partsupp_rows : tpch->lineitem_rows;
    struct tpch_cursor cursor;
    if (rows_reserve(rows, (size_t)n, error) != 0)
        return -1;
    tpch_seek(tpch, 0, &cursor);
    for (int64_t i = 0; i < n; i++) {
        if (side == ENG_PARTSUPP) {
            struct tpch_partsupp row;
            tpch_partsupp_row(tpch, i, &row);
            rows->at[i] = (struct eng_verify_row){row.partkey, row.suppkey, row.supplycost, row.availqty};
        } else {
            struct tpch_line row;
            tpch_next(tpch, &cursor, &row);
            rows->at[i] = (struct eng_verify_row){row.partkey, row.suppkey, row.quantity, row.extendedprice};
        }
    }
    rows->n = (size_t)n;
    return 0;
}

static void set_value(struct eng_verify_row *row, unsigned column, int64_t value)
{
    switch (column) {
    case ENG_KEY1: row->key1 = value; break;
    case ENG_KEY2: row->key2 = value; break;
    case ENG_FACTOR: row->factor = value; break;
    default: row->addend = value; break;
    }
}

/* Reads the header with scanf where npy.c parses it, and trusts what discovery has checked already. */
static int read_prologue(FILE *file, unsigned *width, size_t *n)
{
    unsigned char head[12];
    const char *descr, *shape;
    char text[4096];
    if (fread(head, 1, 10, file) != 10)
        return -1;
    size_t length = head[8] + 256u * head[9];
    if (head[6] > 1) {
        if (fread(head + 10, 1, 2, file) != 2)
            return -1;
        length += 65536u * head[10] + 16777216u * head[11];
    }
    size_t kept = length < sizeof text ? length : sizeof text - 1;
    if (fread(text, 1, kept, file) != kept || fseek(file, (long)(length - kept), SEEK_CUR) != 0)
        return -1;
    text[kept] = 0;
    descr = strstr(text, "<i");
    shape = strchr(text, '(');
    if (descr == NULL || shape == NULL)
        return -1;
    *width = descr[2] == '8' ? 8 : 4;
    return sscanf(shape, "(%zu", n) == 1 ? 0 : -1;
}

/* Appends the values of one file to a column; the rows' other columns are untouched. */
static int read_file(FILE *file, unsigned column, struct rows *rows, size_t *at, struct eng_error *error)
{
    unsigned width;
    size_t n;
    if (read_prologue(file, &width, &n) != 0)
        return eng_fail(error, ENG_FAILED, "verification cannot read a header");
    if (rows_reserve(rows, *at + n, error) != 0)
        return -1;
    for (size_t done = 0; done < n;) {
        union {
            int32_t narrow[BLOCK];
            int64_t wide[BLOCK];
        } block;
        size_t wanted = n - done < BLOCK ? n - done : BLOCK;
        if (fread(&block, width, wanted, file) != wanted)
            return eng_fail(error, ENG_FAILED, "verification found fewer than the %zu values that are promised", n);
        for (size_t i = 0; i < wanted; i++)
            set_value(&rows->at[(*at)++], column, width == 8 ? block.wide[i] : block.narrow[i]);
        done += wanted;
    }
    return 0;
}

static int read_rows(const char *folder, enum eng_side side, struct rows *rows, struct eng_error *error)
{
    char path[4096], about[sizeof error->text];
    for (unsigned column = 0; column < ENG_COLUMNS; column++) {
        size_t at = 0;
        for (unsigned shard = 0;; shard++) {
            int n = snprintf(path, sizeof path, "%s/%s/shard_%04u.npy", folder, eng_column_name[side][column], shard);
            FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
            if (file == NULL && errno == ENOENT && shard > 0)
                break;
            if (file == NULL)
                return eng_fail(error, ENG_FAILED, "verification cannot open '%s': %s", path, strerror(errno));
            int result = read_file(file, column, rows, &at, error);
            (void)fclose(file);
            if (result != 0) {
                memcpy(about, error->text, sizeof about);
                return eng_fail(error, ENG_FAILED, "%.300s (in '%.400s')", about, path);
            }
        }
        rows->n = at;
    }
    return 0;
}

int eng_verify(const struct eng_verify_input inputs[ENG_SIDES], struct eng_answer *answer, struct eng_error *error)
{
    struct rows rows[ENG_SIDES] = {{NULL, 0, 0}, {NULL, 0, 0}};
    int result = 0;
    for (unsigned side = 0; side < ENG_SIDES && result == 0; side++) {
        if (inputs[side].tpch != NULL)
            result = make_rows(inputs[side].tpch, (enum eng_side)side, &rows[side], error);
        else
            result = read_rows(inputs[side].folder, (enum eng_side)side, &rows[side], error);
    }
    if (result == 0)
        eng_verify_merge(rows[ENG_PARTSUPP].at, rows[ENG_PARTSUPP].n, rows[ENG_LINEITEM].at, rows[ENG_LINEITEM].n,
                         answer);
    free(rows[ENG_PARTSUPP].at);
    free(rows[ENG_LINEITEM].at);
    return result;
}
