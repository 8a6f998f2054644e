/* Partitions: rows packed row by row into chunks, each chunk a sealed buffer in whichever tier had room.
 *
 * A scatter divides a worker's memory into one area for each partition; a full area becomes a chunk of its bin. Several
 * scatters (of several threads) may feed the same bins.
 *
 * Threads: bins are lock-free for adding; everything else belongs to one thread at a time.
 */
#ifndef ENGINE_PARTITION_H
#define ENGINE_PARTITION_H

#include <stdatomic.h>
#include <stdint.h>

#include "rows.h"
#include "worker.h"

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

/* Lasts until its worker is finished, since a launched function may run on it until then. */
struct eng_scatter {
    struct eng_worker *worker;
    const struct eng_format *format;
    const char *tag;
    struct eng_bin *bins;   /* as many as there are areas */
    unsigned lane;          /* of the pass */
    struct eng_areas areas; /* memory is set whenever the pass runs, as are the pass's rows */
    struct eng_pass pass;
    const void *columns[ENG_COLUMNS]; /* as mapped; not used when packed is not NULL */
    const void *packed;
    uint32_t full;          /* what the pass's last run returned */
};

/* Begins a scatter into fanout bins of rows of one format, with empty areas of chunk_bytes in the worker's memory. */
void eng_scatter_begin(struct eng_scatter *scatter, struct eng_worker *worker, const struct eng_format *format,
                       const char *tag, struct eng_bin *bins, uint32_t fanout, size_t chunk_bytes);

/* Starts to scatter rows that are mapped for the lane, as columns by the hash of depth 0, or packed by that of any. */
int eng_scatter_columns(struct eng_scatter *scatter, unsigned lane, const spw_view views[ENG_COLUMNS], uint32_t rows,
                        struct eng_error *error);
int eng_scatter_packed(struct eng_scatter *scatter, unsigned lane, const spw_view *view, uint32_t rows, unsigned depth,
                       struct eng_error *error);

/* Ends what was started, if anything: all of its rows are in areas or chunks then. Blocks when a chunk is full and
 * memory is short. */
int eng_scatter_complete(struct eng_scatter *scatter, struct eng_error *error);

/* Turns what is left in the areas into chunks. */
int eng_scatter_flush(struct eng_scatter *scatter, struct eng_error *error);

#endif
