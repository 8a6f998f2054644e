/* PARTSUPP and LINEITEM by the rules of the TPC-H specification, any range of rows on its own.
 *
 * Every value is a function of (scale factor, table, row): a counter-based generator, so that threads can make any part
 * in any order and always get the same table. Money is in cents.
 *
 * Threads: a struct tpch is read-only after tpch_init.
 */
#ifndef ENGINE_TPCH_H
#define ENGINE_TPCH_H

#include <stdint.h>

#include "error.h"

struct tpch {
    double scale_factor;
    int64_t suppliers; /* 10000 a unit of scale */
    int64_t parts;     /* 200000 */
    int64_t orders;    /* 1500000, each of 1 to 7 lines */
    int64_t partsupp_rows;
    int64_t lineitem_rows;
    int64_t *block_first_row; /* row of the first line of every TPCH_BLOCK_ORDERS-th order, and the total */
    int64_t n_blocks;
};

#define TPCH_BLOCK_ORDERS   4096
#define TPCH_SUPPLIERS_EACH 4 /* suppliers of a part */

struct tpch_partsupp {
    int64_t partkey, suppkey, availqty, supplycost;
};

struct tpch_line {
    int64_t orderkey, linenumber, partkey, suppkey, quantity, extendedprice;
};

/* Where a reader of LINEITEM stands. */
struct tpch_cursor {
    int64_t order; /* from 0 */
    int line;      /* from 0 */
    int lines;     /* of this order */
};

/* Fractions of a scale factor are allowed (0.01); every table has at least a few rows. */
int tpch_init(struct tpch *t, double scale_factor, struct eng_error *error);
void tpch_finish(struct tpch *t);

/* The specification's formulas. partkey and suppkey count from 1; which is 0 .. 3; order counts from 0. */
int64_t tpch_suppkey(const struct tpch *t, int64_t partkey, int64_t which);
int64_t tpch_retail_price(int64_t partkey);
int64_t tpch_order_key(int64_t order);
int tpch_order_lines(int64_t order);

void tpch_partsupp_row(const struct tpch *t, int64_t row, struct tpch_partsupp *out);

/* Places the cursor before row (0 <= row < lineitem_rows). */
void tpch_seek(const struct tpch *t, int64_t row, struct tpch_cursor *cursor);

/* Gives the line at the cursor and moves on. */
void tpch_next(const struct tpch *t, struct tpch_cursor *cursor, struct tpch_line *out);

#endif
