/* Bins, chunks and the scatter. Neighbours: format.c (rows), store.c (chunks become buffers), pair.c and join.c. */
#include "partition.h"

#include <stdlib.h>
#include <string.h>

static void bin_add(struct eng_bin *bin, struct eng_chunk *chunk)
{
    struct eng_chunk *first = atomic_load_explicit(&bin->first, memory_order_relaxed);
    do
        chunk->next = first;
    while (!atomic_compare_exchange_weak_explicit(&bin->first, &first, chunk, memory_order_release,
                                                  memory_order_relaxed));
    atomic_fetch_add_explicit(&bin->rows, chunk->rows, memory_order_relaxed);
}

struct eng_chunk *eng_bin_take(struct eng_bin *bin)
{
    struct eng_chunk *first = atomic_load_explicit(&bin->first, memory_order_acquire);
    if (first != NULL)
        atomic_store_explicit(&bin->first, first->next, memory_order_relaxed);
    return first;
}

void eng_bin_discard(struct eng_bin *bin)
{
    struct eng_chunk *chunk;
    while ((chunk = eng_bin_take(bin)) != NULL) {
        (void)spw_buffer_release(chunk->buffer);
        free(chunk);
    }
}

int eng_scatter_init(struct eng_scatter *scatter, const struct eng_store *store, const struct eng_format *format,
                     const char *tag, struct eng_bin *bins, uint32_t fanout, char *memory, size_t chunk_bytes,
                     struct eng_error *error)
{
    scatter->store = store;
    scatter->format = format;
    scatter->tag = tag;
    scatter->bins = bins;
    scatter->fanout = fanout;
    scatter->areas = memory;
    scatter->chunk_rows = (uint32_t)(chunk_bytes / format->row_bytes);
    scatter->fill = calloc(fanout, sizeof *scatter->fill);
    return scatter->fill != NULL ? 0 : eng_fail(error, ENG_FAILED, "out of memory for %u partitions", fanout);
}

void eng_scatter_finish(struct eng_scatter *scatter)
{
    free(scatter->fill);
    scatter->fill = NULL;
}

static char *area_of(const struct eng_scatter *scatter, uint32_t partition)
{
    return scatter->areas + (size_t)partition * scatter->chunk_rows * scatter->format->row_bytes;
}

static int flush_area(struct eng_scatter *scatter, uint32_t partition, struct eng_error *error)
{
    struct eng_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory for a chunk of %s", scatter->tag);
    chunk->rows = scatter->fill[partition];
    if (eng_store_keep(scatter->store, scatter->tag, area_of(scatter, partition),
                       (size_t)chunk->rows * scatter->format->row_bytes, &chunk->buffer, error) != 0) {
        free(chunk);
        return -1;
    }
    bin_add(&scatter->bins[partition], chunk);
    scatter->fill[partition] = 0;
    return 0;
}

/* With row_bytes a constant at each call, the copy is a few moves. */
static inline __attribute__((always_inline)) int scatter_rows(struct eng_scatter *scatter, const char *rows,
                                                              const struct eng_batch *batch, size_t n, size_t row_bytes,
                                                              struct eng_error *error)
{
    uint32_t *fill = scatter->fill;
    char *areas = scatter->areas;
    size_t area_bytes = (size_t)scatter->chunk_rows * row_bytes;
    for (size_t i = 0; i < n; i++) {
        /* The upper half chooses the partition; the hash table takes its buckets from the lower one. */
        uint32_t p = (uint32_t)(((batch->hash[i] >> 32) * scatter->fanout) >> 32);
        memcpy(areas + p * area_bytes + fill[p] * row_bytes, rows + i * row_bytes, row_bytes);
        if (++fill[p] == scatter->chunk_rows && flush_area(scatter, p, error) != 0)
            return -1;
    }
    return 0;
}

int eng_scatter_rows(struct eng_scatter *scatter, const char *rows, const struct eng_batch *batch, size_t n,
                     struct eng_error *error)
{
    switch (scatter->format->row_bytes) {
    case 16: return scatter_rows(scatter, rows, batch, n, 16, error);
    case 20: return scatter_rows(scatter, rows, batch, n, 20, error);
    case 24: return scatter_rows(scatter, rows, batch, n, 24, error);
    case 28: return scatter_rows(scatter, rows, batch, n, 28, error);
    default: return scatter_rows(scatter, rows, batch, n, 32, error);
    }
}

int eng_scatter_flush(struct eng_scatter *scatter, struct eng_error *error)
{
    for (uint32_t p = 0; p < scatter->fanout; p++) {
        if (scatter->fill[p] > 0 && flush_area(scatter, p, error) != 0)
            return -1;
    }
    return 0;
}
