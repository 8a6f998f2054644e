/* What touches rows: packing, hashing, scattering, the steps of the hash table over packed rows.
 *
 * Plain functions of memory that they are given: host memory, or what a launched function sees of a device's. They call
 * nothing of the library, so that the same code works on both.
 *
 * A row is its four values in native width, keys first. A pass takes rows, as columns or packed, and scatters them by
 * hash into areas, one for each partition. It stops when an area is full, and goes on from there once that is empty.
 *
 * Threads: everything belongs to one thread at a time. Ownership: all memory is the caller's.
 */
#ifndef ENGINE_ROWS_H
#define ENGINE_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "hash.h"
#include "source.h"

#define ENG_ROW_MAX    32u   /* bytes */
#define ENG_FANOUT_MAX 1024u /* partitions of a scatter */

struct eng_format {
    unsigned width[ENG_COLUMNS];
    unsigned offset[ENG_COLUMNS];
    unsigned row_bytes;
};

void eng_format_init(struct eng_format *format, const struct eng_source *source);

/* Packs n rows (at most ENG_BATCH) from columns, beginning at row first of them. */
void eng_format_pack(const struct eng_format *format, const void *const columns[ENG_COLUMNS], size_t first, size_t n,
                     char *rows);

/* Unpacks n rows (at most ENG_BATCH): the keys only, or everything. Hashes are not touched. */
void eng_format_unpack_keys(const struct eng_format *format, const char *rows, size_t n, struct eng_batch *batch);
void eng_format_unpack(const struct eng_format *format, const char *rows, size_t n, struct eng_batch *batch);

struct eng_areas {
    char *memory;                  /* fanout areas of area_rows packed rows */
    uint32_t fanout, area_rows;
    uint32_t fill[ENG_FANOUT_MAX]; /* rows in each */
};

#define ENG_NO_AREA UINT32_MAX

struct eng_pass {
    const struct eng_format *format;
    unsigned depth;                     /* whose hash decides */
    const void *columns[ENG_COLUMNS];   /* of rows values each; not used when packed is not NULL */
    const char *packed;
    uint32_t rows, done;                /* done: those of all batches up to the current one */
    uint32_t batch_rows, batch_done;
    struct eng_batch batch;
    char batch_packed[ENG_BATCH * ENG_ROW_MAX];
};

/* Begins a pass over rows, whose columns or packed rows are set before each run. */
void eng_pass_begin(struct eng_pass *pass, const struct eng_format *format, unsigned depth, uint32_t rows);

/* Goes on until all rows are scattered, ENG_NO_AREA then, or an area is full, which is to be emptied before the next
 * run. */
uint32_t eng_pass_run(struct eng_pass *pass, struct eng_areas *areas);

/* Adds packed rows, at most as many as the table has room for; joins packed rows with it. */
void eng_rows_add(struct eng_hashtable *table, const struct eng_format *format, const char *rows, uint32_t n);
void eng_rows_probe(const struct eng_hashtable *table, const struct eng_format *format, const char *rows, uint32_t n,
                    struct eng_sums *sums);

#endif
