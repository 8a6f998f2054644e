/* Bins, chunks and the scatter. Neighbours: rows.c (passes), worker.c (runs them, and makes chunks); pair.c and join.c
 * above. */
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

void eng_scatter_begin(struct eng_scatter *scatter, struct eng_worker *worker, const struct eng_format *format,
                       const char *tag, struct eng_bin *bins, uint32_t fanout, size_t chunk_bytes)
{
    scatter->worker = worker;
    scatter->format = format;
    scatter->tag = tag;
    scatter->bins = bins;
    scatter->lane = 0;
    scatter->full = ENG_NO_AREA;
    scatter->areas.fanout = fanout;
    scatter->areas.area_rows = (uint32_t)(chunk_bytes / format->row_bytes);
    memset(scatter->areas.fill, 0, fanout * sizeof scatter->areas.fill[0]);
}

/* Runs where the rows are. */
static void run_pass(void *arg)
{
    struct eng_scatter *scatter = arg;
    struct eng_pass *pass = &scatter->pass;
    struct eng_areas *areas = &scatter->areas;
    const struct eng_worker *worker = scatter->worker;
    const struct eng_format *format = scatter->format;
    areas->memory = eng_worker_at(worker, worker->view.data,
                                  (size_t)areas->fanout * areas->area_rows * format->row_bytes);
    if (scatter->packed != NULL) {
        pass->packed = eng_worker_at(worker, scatter->packed, (size_t)pass->rows * format->row_bytes);
    } else {
        for (unsigned c = 0; c < ENG_COLUMNS; c++)
            pass->columns[c] = eng_worker_at(worker, scatter->columns[c], (size_t)pass->rows * format->width[c]);
    }
    scatter->full = eng_pass_run(pass, areas);
}

int eng_scatter_columns(struct eng_scatter *scatter, unsigned lane, const spw_view views[ENG_COLUMNS], uint32_t rows,
                        struct eng_error *error)
{
    eng_pass_begin(&scatter->pass, scatter->format, 0, rows);
    scatter->lane = lane;
    scatter->packed = NULL;
    for (unsigned c = 0; c < ENG_COLUMNS; c++)
        scatter->columns[c] = views[c].data;
    return eng_worker_run(scatter->worker, lane, run_pass, scatter, error);
}

int eng_scatter_packed(struct eng_scatter *scatter, unsigned lane, const spw_view *view, uint32_t rows, unsigned depth,
                       struct eng_error *error)
{
    eng_pass_begin(&scatter->pass, scatter->format, depth, rows);
    scatter->lane = lane;
    scatter->packed = view->data;
    return eng_worker_run(scatter->worker, lane, run_pass, scatter, error);
}

static int flush_area(struct eng_scatter *scatter, uint32_t partition, struct eng_error *error)
{
    const struct eng_areas *areas = &scatter->areas;
    struct eng_worker *worker = scatter->worker;
    size_t row_bytes = scatter->format->row_bytes;
    const char *area = (const char *)worker->view.data + (size_t)partition * areas->area_rows * row_bytes;
    struct eng_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory for a chunk of %s", scatter->tag);
    chunk->rows = areas->fill[partition];
    if (eng_worker_keep(worker, scatter->lane, scatter->tag, area, chunk->rows * row_bytes, &chunk->buffer, error) !=
        0) {
        free(chunk);
        return -1;
    }
    bin_add(&scatter->bins[partition], chunk);
    scatter->areas.fill[partition] = 0;
    return 0;
}

int eng_scatter_complete(struct eng_scatter *scatter, struct eng_error *error)
{
    for (;;) {
        if (eng_worker_wait(scatter->worker, scatter->lane, error) != 0)
            return -1;
        if (scatter->full == ENG_NO_AREA)
            return 0;
        if (flush_area(scatter, scatter->full, error) != 0 ||
            eng_worker_run(scatter->worker, scatter->lane, run_pass, scatter, error) != 0)
            return -1;
    }
}

int eng_scatter_flush(struct eng_scatter *scatter, struct eng_error *error)
{
    for (uint32_t p = 0; p < scatter->areas.fanout; p++) {
        if (scatter->areas.fill[p] > 0 && flush_area(scatter, p, error) != 0)
            return -1;
    }
    return eng_worker_wait(scatter->worker, scatter->lane, error);
}
