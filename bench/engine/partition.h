/* Partitions: rows packed row by row into chunks, each chunk a sealed buffer in whichever tier had room.
 *
 * A row is its four values in native width, keys first. A scatter divides working memory into one area for each
 * partition; a full area becomes a chunk of its bin. Several scatters (of several threads) may feed the same bins.
 *
 * Threads: bins are lock-free for adding; everything else belongs to one thread at a time.
 */
#ifndef ENGINE_PARTITION_H
#define ENGINE_PARTITION_H

#include <stdatomic.h>
#include <stdint.h>

#include "hash.h"
#include "source.h"
#include "store.h"

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

struct eng_chunk {
    spw_buffer *buffer;
    struct eng_chunk *next;
    uint32_t rows;
};

/* One partition of one side. */
struct eng_bin {
    _Atomic(struct eng_chunk *) first; /* atomic: newest first; chunks are only ever added until the phase is over */
    atomic_uint_least64_t rows;        /* atomic */
};

/* Gives all chunks of a bin back, unread. */
void eng_bin_discard(struct eng_bin *bin);

/* Takes a bin's first chunk off; NULL when it is empty. The caller then owns the buffer and frees the chunk. */
struct eng_chunk *eng_bin_take(struct eng_bin *bin);

struct eng_scatter {
    const struct eng_store *store;
    const struct eng_format *format;
    const char *tag;
    struct eng_bin *bins; /* fanout of them */
    uint32_t fanout;
    char *areas;          /* fanout areas of chunk_rows rows */
    uint32_t chunk_rows;
    uint32_t *fill;       /* rows in each area */
};

int eng_scatter_init(struct eng_scatter *scatter, const struct eng_store *store, const struct eng_format *format,
                     const char *tag, struct eng_bin *bins, uint32_t fanout, char *memory, size_t chunk_bytes,
                     struct eng_error *error);

/* Adds n packed rows (at most ENG_BATCH) by the hashes of batch. Blocks when a chunk is full and memory is short. */
int eng_scatter_rows(struct eng_scatter *scatter, const char *rows, const struct eng_batch *batch, size_t n,
                     struct eng_error *error);

/* Turns what is left in the areas into chunks. */
int eng_scatter_flush(struct eng_scatter *scatter, struct eng_error *error);
void eng_scatter_finish(struct eng_scatter *scatter);

#endif
