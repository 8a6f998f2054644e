/* Passes of rows: into areas, into a hash table, past it. Neighbours: format.c (rows), hash.c (the table); partition.c
 * and pair.c, which run them on the host or on the device. */
#include "rows.h"

#include <string.h>

static uint32_t batch_size(uint32_t rows, uint32_t done)
{
    return rows - done < ENG_BATCH ? rows - done : ENG_BATCH;
}

void eng_pass_begin(struct eng_pass *pass, const struct eng_format *format, unsigned depth, uint32_t rows)
{
    pass->format = format;
    pass->depth = depth;
    pass->packed = NULL;
    pass->rows = rows;
    pass->done = pass->batch_rows = pass->batch_done = 0;
}

/* Rows of the current batch: packed rows are taken where they lie. */
static const char *batch_rows(const struct eng_pass *pass)
{
    return pass->packed != NULL ? pass->packed + (size_t)(pass->done - pass->batch_rows) * pass->format->row_bytes
                                : pass->batch_packed;
}

static void next_batch(struct eng_pass *pass)
{
    uint32_t n = batch_size(pass->rows, pass->done);
    if (pass->packed == NULL)
        eng_format_pack(pass->format, pass->columns, pass->done, n, pass->batch_packed);
    pass->done += n;
    pass->batch_rows = n;
    pass->batch_done = 0;
    eng_format_unpack_keys(pass->format, batch_rows(pass), n, &pass->batch);
    eng_hash_batch(&pass->batch, n, pass->depth);
}

/* With row_bytes a constant at each call, the copy is a few moves. */
static inline __attribute__((always_inline)) uint32_t scatter(struct eng_pass *pass, struct eng_areas *areas,
                                                              size_t row_bytes)
{
    const char *rows = batch_rows(pass);
    const uint64_t *hash = pass->batch.hash;
    uint32_t *fill = areas->fill;
    char *memory = areas->memory;
    uint32_t n = pass->batch_rows, fanout = areas->fanout, area_rows = areas->area_rows;
    size_t area_bytes = (size_t)area_rows * row_bytes;
    for (uint32_t i = pass->batch_done; i < n; i++) {
        /* The upper half chooses the partition; the hash table takes its buckets from the lower one. */
        uint32_t p = (uint32_t)(((hash[i] >> 32) * fanout) >> 32);
        memcpy(memory + p * area_bytes + fill[p] * row_bytes, rows + i * row_bytes, row_bytes);
        if (++fill[p] == area_rows) {
            pass->batch_done = i + 1;
            return p;
        }
    }
    pass->batch_done = n;
    return ENG_NO_AREA;
}

static uint32_t scatter_batch(struct eng_pass *pass, struct eng_areas *areas)
{
    switch (pass->format->row_bytes) {
    case 16: return scatter(pass, areas, 16);
    case 20: return scatter(pass, areas, 20);
    case 24: return scatter(pass, areas, 24);
    case 28: return scatter(pass, areas, 28);
    default: return scatter(pass, areas, 32);
    }
}

uint32_t eng_pass_run(struct eng_pass *pass, struct eng_areas *areas)
{
    for (;;) {
        uint32_t full = scatter_batch(pass, areas);
        if (full != ENG_NO_AREA || pass->done == pass->rows)
            return full;
        next_batch(pass);
    }
}

void eng_rows_add(struct eng_hashtable *table, const struct eng_format *format, const char *rows, uint32_t n)
{
    struct eng_batch batch;
    for (uint32_t done = 0; done < n; done += ENG_BATCH) {
        uint32_t count = batch_size(n, done);
        eng_format_unpack(format, rows + (size_t)done * format->row_bytes, count, &batch);
        eng_hash_batch(&batch, count, 0);
        eng_hash_add(table, &batch, count);
    }
}

void eng_rows_probe(const struct eng_hashtable *table, const struct eng_format *format, const char *rows, uint32_t n,
                    struct eng_sums *sums)
{
    struct eng_batch batch;
    for (uint32_t done = 0; done < n; done += ENG_BATCH) {
        uint32_t count = batch_size(n, done);
        eng_format_unpack(format, rows + (size_t)done * format->row_bytes, count, &batch);
        eng_hash_batch(&batch, count, 0);
        eng_hash_probe(table, &batch, count, sums);
    }
}
