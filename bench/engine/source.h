/* Where a table comes from: folders of column shards, or the generator. Both give any range of rows.
 *
 * The join needs four columns of each table, and names them by their part in it:
 *     SELECT count(*), sum(l_extendedprice), sum(ps_supplycost * l_quantity), sum(ps_availqty) ...
 * key1 and key2 are joined on, a factor of one side is multiplied by the factor of the other, addends are summed.
 *
 * Threads: a source is read-only once open; a reader belongs to one thread.
 * Ownership: eng_source_close frees what open allocated; a generator must outlive the sources made from it.
 */
#ifndef ENGINE_SOURCE_H
#define ENGINE_SOURCE_H

#include <stdint.h>

#include "error.h"
#include "npy.h"
#include "tpch.h"

enum eng_side { ENG_PARTSUPP = 0, ENG_LINEITEM = 1, ENG_SIDES = 2 };
enum eng_role { ENG_KEY1 = 0, ENG_KEY2 = 1, ENG_FACTOR = 2, ENG_ADDEND = 3, ENG_COLUMNS = 4 };

/* "lineitem", "l_partkey", ... */
extern const char *const eng_table_name[ENG_SIDES];
extern const char *const eng_column_name[ENG_SIDES][ENG_COLUMNS];

struct eng_source {
    enum eng_side side;
    int64_t rows;
    unsigned width[ENG_COLUMNS];   /* bytes per value: 4 or 8 */
    const struct tpch *tpch;       /* NULL: shards */
    struct npy_column columns[ENG_COLUMNS];
};

int eng_source_open_folder(struct eng_source *source, enum eng_side side, const char *folder, struct eng_error *error);
void eng_source_open_tpch(struct eng_source *source, enum eng_side side, const struct tpch *tpch);
void eng_source_close(struct eng_source *source);

/* Bytes of a row of all four columns. */
unsigned eng_source_row_bytes(const struct eng_source *source);

struct eng_reader {
    const struct eng_source *source;
    struct npy_reader columns[ENG_COLUMNS];
};

void eng_reader_init(struct eng_reader *reader, const struct eng_source *source);
void eng_reader_finish(struct eng_reader *reader);

/* Reads or makes rows [first, first + n): column c goes to out[c], n values of width[c] bytes. */
int eng_reader_read(struct eng_reader *reader, int64_t first, int64_t n, void *const out[ENG_COLUMNS],
                    struct eng_error *error);

#endif
