/* The join of a pair of partitions. Neighbours: hash.c (the table), partition.c (bins), join.c (hands out pairs). */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  6u /* levels of repartitioning */
#define FANOUT_MIN 8u /* so that a part of more than half of its whole means a key that dominates */

static uint64_t rows_of(struct eng_bin *bin)
{
    return atomic_load_explicit(&bin->rows, memory_order_relaxed);
}

static size_t batch_size(uint32_t rows, uint32_t done)
{
    return rows - done < ENG_BATCH ? rows - done : ENG_BATCH;
}

/* Streams a chunk past the table. */
static void probe_chunk(const struct eng_format *format, const struct eng_hashtable *table, const char *data,
                        uint32_t rows, struct eng_sums *sums)
{
    struct eng_batch batch;
    for (uint32_t done = 0; done < rows; done += ENG_BATCH) {
        size_t n = batch_size(rows, done);
        eng_format_unpack(format, data + (size_t)done * format->row_bytes, n, &batch);
        eng_hash_batch(&batch, n, 0);
        eng_hash_probe(table, &batch, n, sums);
    }
}

static int probe_bin(struct eng_joiner *joiner, const struct eng_hashtable *table, const struct eng_format *format,
                     struct eng_bin *bin, int last, struct eng_sums *sums, struct eng_error *error)
{
    struct eng_chunk *chunk = atomic_load_explicit(&bin->first, memory_order_acquire);
    while (chunk != NULL && !eng_crew_stopped(joiner->crew)) {
        struct eng_chunk *next = chunk->next;
        spw_view view;
        if (eng_store_map(joiner->store, chunk->buffer, &view, error) != 0)
            return -1;
        probe_chunk(format, table, view.data, chunk->rows, sums);
        if (last) {
            eng_store_drop(chunk->buffer, &view);
            free(eng_bin_take(bin));
        } else {
            eng_store_unmap(chunk->buffer, &view);
        }
        chunk = next;
    }
    return 0;
}

/* Adds rows from the front of the bin until the table is full or the bin is empty. *skip rows of its first chunk were
 * added before. */
static int build_block(struct eng_joiner *joiner, struct eng_hashtable *table, const struct eng_format *format,
                       struct eng_bin *bin, uint32_t *skip, struct eng_error *error)
{
    struct eng_batch batch;
    struct eng_chunk *chunk;
    while (table->used < table->capacity &&
           (chunk = atomic_load_explicit(&bin->first, memory_order_acquire)) != NULL) {
        spw_view view;
        if (eng_store_map(joiner->store, chunk->buffer, &view, error) != 0)
            return -1;
        while (*skip < chunk->rows && table->used < table->capacity) {
            size_t n = batch_size(chunk->rows, *skip), room = table->capacity - table->used;
            n = n < room ? n : room;
            eng_format_unpack(format, (const char *)view.data + (size_t)*skip * format->row_bytes, n, &batch);
            eng_hash_batch(&batch, n, 0);
            eng_hash_add(table, &batch, n);
            *skip += (uint32_t)n;
        }
        if (*skip < chunk->rows) {
            eng_store_unmap(chunk->buffer, &view);
            break;
        }
        eng_store_drop(chunk->buffer, &view);
        free(eng_bin_take(bin));
        *skip = 0;
    }
    return 0;
}

static int join_blocks(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], enum eng_side build,
                       struct eng_error *error)
{
    enum eng_side probe = build == ENG_PARTSUPP ? ENG_LINEITEM : ENG_PARTSUPP;
    uint64_t left = rows_of(sides[build]);
    uint32_t capacity = eng_hash_capacity(joiner->plan->work_bytes), skip = 0;
    struct eng_sums sums = {0, 0, 0, 0};
    while (left > 0 && !eng_crew_stopped(joiner->crew)) {
        struct eng_hashtable table;
        eng_hash_begin(&table, joiner->memory, left < capacity ? (uint32_t)left : capacity);
        if (build_block(joiner, &table, &joiner->formats[build], sides[build], &skip, error) != 0)
            return -1;
        eng_hash_finish(&table);
        left -= table.used;
        if (probe_bin(joiner, &table, &joiner->formats[probe], sides[probe], left == 0, &sums, error) != 0)
            return -1;
    }
    joiner->totals.rows += sums.rows;
    joiner->totals.products += sums.products;
    joiner->totals.addend[build] += sums.build_addend;
    joiner->totals.addend[probe] += sums.probe_addend;
    return 0;
}

/* Moves all rows of a bin into parts, by the hash of this depth. */
static int scatter_bin(struct eng_joiner *joiner, enum eng_side side, struct eng_bin *bin, struct eng_bin *parts,
                       uint32_t fanout, uint32_t chunk_bytes, unsigned depth, struct eng_error *error)
{
    const struct eng_format *format = &joiner->formats[side];
    struct eng_scatter scatter;
    struct eng_batch batch;
    struct eng_chunk *chunk;
    int result = eng_scatter_init(&scatter, joiner->store, format, eng_table_name[side], parts, fanout, joiner->memory,
                                  chunk_bytes, error);
    while (result == 0 && !eng_crew_stopped(joiner->crew) &&
           (chunk = atomic_load_explicit(&bin->first, memory_order_acquire)) != NULL) {
        spw_view view;
        result = eng_store_map(joiner->store, chunk->buffer, &view, error);
        if (result != 0)
            break;
        for (uint32_t done = 0; done < chunk->rows && result == 0; done += ENG_BATCH) {
            const char *rows = (const char *)view.data + (size_t)done * format->row_bytes;
            size_t n = batch_size(chunk->rows, done);
            eng_format_unpack_keys(format, rows, n, &batch);
            eng_hash_batch(&batch, n, depth);
            result = eng_scatter_rows(&scatter, rows, &batch, n, error);
        }
        eng_store_drop(chunk->buffer, &view);
        free(eng_bin_take(bin));
    }
    if (result == 0)
        result = eng_scatter_flush(&scatter, error);
    eng_scatter_finish(&scatter);
    return result;
}

static int join_level(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], unsigned depth, int dominated,
                      struct eng_error *error);

static int join_parts(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], enum eng_side build,
                      unsigned depth, struct eng_error *error)
{
    uint32_t fanout, chunk_bytes;
    uint64_t whole = rows_of(sides[build]);
    int result = 0;
    eng_plan_scatter(joiner->plan, whole, FANOUT_MIN, &fanout, &chunk_bytes);
    struct eng_bin *parts = calloc((size_t)fanout * ENG_SIDES, sizeof *parts);
    if (parts == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory for %u partitions", fanout);
    for (unsigned side = 0; side < ENG_SIDES && result == 0; side++)
        result = scatter_bin(joiner, (enum eng_side)side, sides[side], &parts[side * fanout], fanout, chunk_bytes,
                             depth + 1, error);
    for (uint32_t p = 0; p < fanout && result == 0; p++) {
        struct eng_bin *const pair[ENG_SIDES] = {&parts[p], &parts[fanout + p]};
        result = join_level(joiner, pair, depth + 1, rows_of(pair[build]) > whole / 2, error);
    }
    for (uint32_t i = 0; i < fanout * ENG_SIDES; i++)
        eng_bin_discard(&parts[i]);
    free(parts);
    return result;
}

static int join_level(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], unsigned depth, int dominated,
                      struct eng_error *error)
{
    uint64_t capacity = eng_hash_capacity(joiner->plan->work_bytes);
    uint64_t partsupp = rows_of(sides[ENG_PARTSUPP]), lineitem = rows_of(sides[ENG_LINEITEM]);
    if (partsupp == 0 || lineitem == 0) {
        eng_bin_discard(sides[ENG_PARTSUPP]);
        eng_bin_discard(sides[ENG_LINEITEM]);
        return 0;
    }
    enum eng_side build = partsupp <= capacity || partsupp <= lineitem ? ENG_PARTSUPP : ENG_LINEITEM;
    uint64_t rows = build == ENG_PARTSUPP ? partsupp : lineitem;
    if (rows <= 2 * capacity || dominated || depth >= DEPTH_MAX)
        return join_blocks(joiner, sides, build, error);
    return join_parts(joiner, sides, build, depth, error);
}

int eng_pair_join(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], struct eng_error *error)
{
    return join_level(joiner, sides, 0, 0, error);
}
