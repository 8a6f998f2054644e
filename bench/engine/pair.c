/* The join of a pair of partitions. Neighbours: rows.c (what is run on chunks), partition.c (bins), join.c (hands out
 * pairs). */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  6u /* levels of repartitioning */
#define FANOUT_MIN 8u /* so that a part of more than half of its whole means a key that dominates */

static uint64_t rows_of(struct eng_bin *bin)
{
    return atomic_load_explicit(&bin->rows, memory_order_relaxed);
}

/* Waits for what a lane does with its chunk, and lets go of that. */
static int end_visit(struct eng_joiner *joiner, unsigned lane, struct eng_error *error)
{
    struct eng_visit *visit = &joiner->visits[lane];
    int result = eng_worker_wait(joiner->worker, lane, error);
    if (visit->buffer != NULL && visit->last)
        eng_store_drop(visit->buffer, &visit->view);
    else if (visit->buffer != NULL)
        eng_store_unmap(visit->buffer, &visit->view);
    visit->buffer = NULL;
    return result;
}

/* The same for all lanes; result is what came of the work so far, and its error stays. */
static int end_visits(struct eng_joiner *joiner, int result, struct eng_error *error)
{
    struct eng_error ignored;
    for (unsigned lane = 0; lane < joiner->worker->lanes; lane++) {
        if (end_visit(joiner, lane, result == 0 ? error : &ignored) != 0)
            result = -1;
    }
    return result;
}

/* Maps a chunk for a lane that visits none; last: it is the first of its bin, which is taken out of there. */
static int begin_visit(struct eng_joiner *joiner, unsigned lane, enum eng_side side, struct eng_bin *bin,
                       struct eng_chunk *chunk, int last, struct eng_error *error)
{
    struct eng_visit *visit = &joiner->visits[lane];
    if (eng_worker_map(joiner->worker, lane, chunk->buffer, &visit->view, error) != 0)
        return -1;
    visit->joiner = joiner;
    visit->format = &joiner->formats[side];
    visit->buffer = chunk->buffer;
    visit->last = last;
    visit->first = 0;
    visit->rows = chunk->rows;
    if (last)
        free(eng_bin_take(bin));
    return 0;
}

static struct eng_chunk *first_chunk(struct eng_bin *bin)
{
    return atomic_load_explicit(&bin->first, memory_order_acquire);
}

/* What runs where the rows are: on the host, or on the device as launched functions. */
static void *find_memory(const struct eng_joiner *joiner)
{
    return eng_worker_at(joiner->worker, joiner->worker->view.data, joiner->worker->view.size);
}

static const char *find_rows(const struct eng_visit *visit)
{
    const char *rows = (const char *)visit->view.data + (size_t)visit->first * visit->format->row_bytes;
    return eng_worker_at(visit->joiner->worker, rows, (size_t)visit->rows * visit->format->row_bytes);
}

static void begin_table(void *arg)
{
    struct eng_joiner *joiner = arg;
    eng_hash_begin(&joiner->table, find_memory(joiner), joiner->table.capacity);
}

static void add_rows(void *arg)
{
    struct eng_visit *visit = arg;
    struct eng_hashtable *table = &visit->joiner->table;
    eng_hash_find(table, find_memory(visit->joiner));
    eng_rows_add(table, visit->format, find_rows(visit), visit->rows);
}

static void finish_table(void *arg)
{
    struct eng_joiner *joiner = arg;
    eng_hash_find(&joiner->table, find_memory(joiner));
    eng_hash_finish(&joiner->table);
}

static void probe_rows(void *arg)
{
    struct eng_visit *visit = arg;
    struct eng_hashtable table = visit->joiner->table;
    eng_hash_find(&table, find_memory(visit->joiner));
    eng_rows_probe(&table, visit->format, find_rows(visit), visit->rows, &visit->sums);
}

/* Streams a bin past the table; with two lanes, a chunk is brought while the one before it is worked on. */
static int probe_bin(struct eng_joiner *joiner, enum eng_side side, struct eng_bin *bin, int last,
                     struct eng_error *error)
{
    struct eng_worker *worker = joiner->worker;
    struct eng_chunk *chunk = first_chunk(bin);
    unsigned lane = 0;
    int result = 0;
    for (; result == 0 && chunk != NULL && !eng_crew_stopped(joiner->crew); lane = (lane + 1) % worker->lanes) {
        struct eng_chunk *next = chunk->next;
        result = end_visit(joiner, lane, error);
        if (result == 0)
            result = begin_visit(joiner, lane, side, bin, chunk, last, error);
        if (result == 0)
            result = eng_worker_run(worker, lane, probe_rows, &joiner->visits[lane], error);
        chunk = next;
    }
    return end_visits(joiner, result, error);
}

/* Builds a table of capacity rows from the front of the bin, until it is full or the bin is empty. *skip rows of the
 * first chunk were taken before. A chunk is brought while the one before it is added, as above; adding is one lane's
 * at a time. */
static int build_block(struct eng_joiner *joiner, enum eng_side side, struct eng_bin *bin, uint32_t capacity,
                       uint32_t *skip, struct eng_error *error)
{
    struct eng_worker *worker = joiner->worker;
    struct eng_chunk *chunk;
    uint32_t room = capacity;
    unsigned lane = 0, before;
    joiner->table.capacity = capacity;
    int result = eng_worker_run(worker, 0, begin_table, joiner, error);
    while (result == 0 && room > 0 && (chunk = first_chunk(bin)) != NULL) {
        struct eng_visit *visit = &joiner->visits[lane];
        uint32_t left = chunk->rows - *skip;
        before = (lane + 1) % worker->lanes;
        result = end_visit(joiner, lane, error);
        if (result == 0)
            result = begin_visit(joiner, lane, side, bin, chunk, left <= room, error);
        if (result == 0)
            result = eng_worker_wait(worker, before, error);
        if (result != 0)
            break;
        visit->first = *skip;
        visit->rows = left <= room ? left : room;
        *skip = left <= room ? 0 : *skip + room;
        room -= visit->rows;
        result = eng_worker_run(worker, lane, add_rows, visit, error);
        lane = before;
    }
    result = end_visits(joiner, result, error);
    if (result == 0)
        result = eng_worker_run(worker, 0, finish_table, joiner, error);
    return result == 0 ? eng_worker_wait(worker, 0, error) : -1;
}

static int join_blocks(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], enum eng_side build,
                       struct eng_error *error)
{
    enum eng_side probe = build == ENG_PARTSUPP ? ENG_LINEITEM : ENG_PARTSUPP;
    uint64_t left = rows_of(sides[build]);
    uint32_t most = eng_hash_capacity(joiner->plan->work_bytes), skip = 0;
    for (unsigned lane = 0; lane < ENG_LANES; lane++)
        joiner->visits[lane].sums = (struct eng_sums){0, 0, 0, 0};
    while (left > 0 && !eng_crew_stopped(joiner->crew)) {
        uint32_t capacity = left < most ? (uint32_t)left : most;
        if (build_block(joiner, build, sides[build], capacity, &skip, error) != 0)
            return -1;
        left -= capacity;
        if (probe_bin(joiner, probe, sides[probe], left == 0, error) != 0)
            return -1;
    }
    for (unsigned lane = 0; lane < ENG_LANES; lane++) {
        const struct eng_sums *sums = &joiner->visits[lane].sums;
        joiner->totals.rows += sums->rows;
        joiner->totals.products += sums->products;
        joiner->totals.addend[build] += sums->build_addend;
        joiner->totals.addend[probe] += sums->probe_addend;
    }
    return 0;
}

/* Moves all rows of a bin into parts, by the hash of this depth; with two lanes, a chunk is brought while the one
 * before it is scattered. */
static int scatter_bin(struct eng_joiner *joiner, enum eng_side side, struct eng_bin *bin, struct eng_bin *parts,
                       uint32_t fanout, uint32_t chunk_bytes, unsigned depth, struct eng_error *error)
{
    struct eng_scatter *scatter = joiner->scatter;
    struct eng_chunk *chunk;
    unsigned lane = 0;
    int result = 0;
    eng_scatter_begin(scatter, joiner->worker, &joiner->formats[side], eng_table_name[side], parts, fanout,
                      chunk_bytes);
    for (; result == 0 && !eng_crew_stopped(joiner->crew) && (chunk = first_chunk(bin)) != NULL;
         lane = (lane + 1) % joiner->worker->lanes) {
        uint32_t rows = chunk->rows;
        if (joiner->worker->lanes == 1)
            result = eng_scatter_complete(scatter, error);
        if (result == 0)
            result = end_visit(joiner, lane, error);
        if (result == 0)
            result = begin_visit(joiner, lane, side, bin, chunk, 1, error);
        if (result == 0)
            result = eng_scatter_complete(scatter, error);
        if (result == 0)
            result = eng_scatter_packed(scatter, lane, &joiner->visits[lane].view, rows, depth, error);
    }
    if (result == 0)
        result = eng_scatter_complete(scatter, error);
    result = end_visits(joiner, result, error);
    return result == 0 ? eng_scatter_flush(scatter, error) : -1;
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
