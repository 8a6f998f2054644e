/* Columns on disk: a folder of shard_0000.npy, shard_0001.npy, ... that together are one vector of int32 or int64.
 *
 * Discovery reads names, sizes and headers only; rows are then read by range, wherever the shards were cut.
 *
 * Threads: an opened column is read-only and may be shared; a reader belongs to one thread.
 * Ownership: npy_column_close frees what npy_column_open allocated; npy_reader_finish closes the descriptor.
 */
#ifndef ENGINE_NPY_H
#define ENGINE_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* What a header says. descr is cut to what fits; a structured type reads as "[". */
struct npy_header {
    char descr[24];
    int fortran_order;
    unsigned dimensions;
    uint64_t rows; /* first dimension, 0 when there is none */
};

/* Parses the dictionary of a header (the text after the length field). Returns NULL, or what is wrong with it. */
const char *npy_parse_dictionary(const char *text, size_t length, struct npy_header *header);

/* Writes a complete version 1.0 header for rows values of 4 or 8 bytes. Returns its length, a multiple of 64. */
#define NPY_HEADER_MAX 128u
size_t npy_format_header(char out[NPY_HEADER_MAX], unsigned width, int64_t rows);

struct npy_column {
    char *folder;
    uint32_t n_shards;
    unsigned width;        /* bytes per value: 4 or 8 */
    int64_t rows;
    int64_t *first_row;    /* n_shards + 1 entries: the cumulative row table */
    uint64_t *data_offset; /* n_shards entries */
};

int npy_column_open(struct npy_column *column, const char *folder, struct eng_error *error);
void npy_column_close(struct npy_column *column);

/* The shard that holds row (0 <= row < rows); shards without rows are never the answer. */
uint32_t npy_column_locate(const struct npy_column *column, int64_t row);

/* "FOLDER/shard_0000.npy". Returns 0, or -1 when it does not fit. */
int npy_shard_path(char *out, size_t size, const char *folder, uint32_t shard);

struct npy_reader {
    const struct npy_column *column;
    int fd;         /* of the shard below, -1: none */
    uint32_t shard;
};

void npy_reader_init(struct npy_reader *reader, const struct npy_column *column);
void npy_reader_finish(struct npy_reader *reader);

/* Reads rows [first, first + n) into out (n * width bytes), and lets the page cache forget them: what is read once must
 * not push anything else out of memory. Blocks on the file. */
int npy_reader_read(struct npy_reader *reader, int64_t first, int64_t n, void *out, struct eng_error *error);

#endif
