/* The two tables' formulas. Neighbours: source.c (fills columns), verify.c (a second user that takes rows one by one).
 *
 * Lines of an order vary, so a row number says nothing about its order. The first row of every 4096th order is counted
 * once at init (30 ms for scale factor 10); from there tpch_seek walks. */
#include "tpch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Streams of random numbers: one constant each, so that no two values share their randomness. */
#define STREAM_LINES      UINT64_C(0x8f5d3ac1b2e94c67)
#define STREAM_LINE       UINT64_C(0x1c6ef372fe94f82a)
#define STREAM_LINE_MORE  UINT64_C(0xa54ff53a5f1d36f1)
#define STREAM_AVAILQTY   UINT64_C(0x510e527fade682d1)
#define STREAM_SUPPLYCOST UINT64_C(0x9b05688c2b3e6c1f)

#define SCALE_MAX 1000000.0

/* The finaliser of splitmix64 over a Weyl sequence: value number counter of a stream. */
static inline uint64_t draw(uint64_t stream, uint64_t counter)
{
    uint64_t x = stream + counter * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 0 .. n-1; the bias is below n / 2^64. */
static inline int64_t uniform(uint64_t random, int64_t n)
{
    return (int64_t)(((unsigned __int128)random * (uint64_t)n) >> 64);
}

int tpch_order_lines(int64_t order)
{
    return 1 + (int)uniform(draw(STREAM_LINES, (uint64_t)order), 7);
}

/* Of each 32 keys the first 8 are used. */
int64_t tpch_order_key(int64_t order)
{
    int64_t number = order + 1;
    return (number >> 3) << 5 | (number & 7);
}

int64_t tpch_suppkey(const struct tpch *t, int64_t partkey, int64_t which)
{
    int64_t s = t->suppliers;
    return (partkey + which * (s / TPCH_SUPPLIERS_EACH + (partkey - 1) / s)) % s + 1;
}

int64_t tpch_retail_price(int64_t partkey)
{
    return 90000 + (partkey / 10) % 20001 + 100 * (partkey % 1000);
}

static int64_t scaled(double factor, double unit)
{
    double n = floor(factor * unit + 0.5);
    return n < 1 ? 1 : (int64_t)n;
}

int tpch_init(struct tpch *t, double scale_factor, struct eng_error *error)
{
    memset(t, 0, sizeof *t);
    if (!(scale_factor > 0 && scale_factor <= SCALE_MAX))
        return eng_fail(error, ENG_USAGE, "the scale factor must be above 0 and at most %.0f", SCALE_MAX);
    t->scale_factor = scale_factor;
    t->suppliers = scaled(scale_factor, 10000);
    t->parts = scaled(scale_factor, 200000);
    t->orders = scaled(scale_factor, 1500000);
    t->partsupp_rows = t->parts * TPCH_SUPPLIERS_EACH;
    t->n_blocks = (t->orders + TPCH_BLOCK_ORDERS - 1) / TPCH_BLOCK_ORDERS;
    t->block_first_row = malloc(((size_t)t->n_blocks + 1) * sizeof *t->block_first_row);
    if (t->block_first_row == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory for scale factor %g", scale_factor);
    int64_t rows = 0;
    for (int64_t order = 0; order < t->orders; order++) {
        if (order % TPCH_BLOCK_ORDERS == 0)
            t->block_first_row[order / TPCH_BLOCK_ORDERS] = rows;
        rows += tpch_order_lines(order);
    }
    t->block_first_row[t->n_blocks] = rows;
    t->lineitem_rows = rows;
    return 0;
}

void tpch_finish(struct tpch *t)
{
    free(t->block_first_row);
    t->block_first_row = NULL;
}

void tpch_partsupp_row(const struct tpch *t, int64_t row, struct tpch_partsupp *out)
{
    out->partkey = row / TPCH_SUPPLIERS_EACH + 1;
    out->suppkey = tpch_suppkey(t, out->partkey, row % TPCH_SUPPLIERS_EACH);
    out->availqty = 1 + uniform(draw(STREAM_AVAILQTY, (uint64_t)row), 9999);
    out->supplycost = 100 + uniform(draw(STREAM_SUPPLYCOST, (uint64_t)row), 99901);
}

void tpch_seek(const struct tpch *t, int64_t row, struct tpch_cursor *cursor)
{
    int64_t low = 0, high = t->n_blocks - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (t->block_first_row[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    int64_t left = row - t->block_first_row[low];
    cursor->order = low * TPCH_BLOCK_ORDERS;
    cursor->lines = tpch_order_lines(cursor->order);
    while (left >= cursor->lines) {
        left -= cursor->lines;
        cursor->lines = tpch_order_lines(++cursor->order);
    }
    cursor->line = (int)left;
}

void tpch_next(const struct tpch *t, struct tpch_cursor *cursor, struct tpch_line *out)
{
    uint64_t counter = (uint64_t)cursor->order * 8 + (uint64_t)cursor->line;
    uint64_t more = draw(STREAM_LINE_MORE, counter);
    out->orderkey = tpch_order_key(cursor->order);
    out->linenumber = cursor->line + 1;
    out->partkey = 1 + uniform(draw(STREAM_LINE, counter), t->parts);
    out->suppkey = tpch_suppkey(t, out->partkey, (int64_t)(more & 3));
    out->quantity = 1 + uniform(more, 50);
    out->extendedprice = out->quantity * tpch_retail_price(out->partkey);
    if (++cursor->line == cursor->lines) {
        cursor->line = 0;
        cursor->lines = tpch_order_lines(++cursor->order);
    }
}
