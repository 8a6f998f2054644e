/* The same through Spillway: buffers that are mapped at the device and in pinned memory in turn, so that the mover
 * carries them there and back. Nothing else fits the pools, and nothing has to be evicted. */
#include <stdlib.h>
#include <string.h>

#include "alloc_bench.h"
#include "device_bench.h"

enum { BUFFERS = 8 };

static void must(int rc)
{
    if (rc == SPW_OK)
        return;
    (void)fprintf(stderr, "bench_device: %s: %s\n", spw_error_name(rc), spw_error_detail()->message);
    exit(1);
}

static spw_buffer *make(spw_manager *manager, spw_place place, size_t bytes)
{
    spw_buffer *buffer = NULL;
    char *data = malloc(MIB);
    if (!data)
        abort();
    memset(data, 1, MIB);
    must(spw_alloc(manager, place, bytes, NULL, &buffer));
    for (size_t at = 0; at < bytes; at += MIB)
        must(spw_buffer_write(buffer, at, data, bytes - at < MIB ? bytes - at : MIB));
    must(spw_buffer_seal(buffer));
    free(data);
    return buffer;
}

/* A map under way. */
struct way {
    spw_buffer *buffer;
    spw_ticket *ticket;
};

static void start(struct way *way, spw_place place)
{
    must(spw_map_start(way->buffer, place, SPW_MAP_READ, NULL, &way->ticket));
}

static void arrive(struct way *way)
{
    spw_view view;
    must(spw_ticket_wait(way->ticket, NULL));
    must(spw_ticket_take_view(way->ticket, &view));
    must(spw_unmap(way->buffer, &view, NULL));
    must(spw_ticket_destroy(way->ticket));
}

/* Brings the first set to one place and the second (NULL: none) to another. Nanoseconds until all are there. */
static double carry(struct way *first, spw_place first_to, struct way *second, spw_place second_to)
{
    const double begin = now_ns();
    for (unsigned i = 0; i < BUFFERS; i++) {
        start(&first[i], first_to);
        if (second)
            start(&second[i], second_to);
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        arrive(&first[i]);
        if (second)
            arrive(&second[i]);
    }
    return now_ns() - begin;
}

/* There and back with one set, then with two that pass each other. */
static void measure_moves(spw_manager *manager, const struct options *options, struct costs *times)
{
    struct way low[BUFFERS], high[BUFFERS];
    double up[REPEATS_MAX], down[REPEATS_MAX], both[2 * REPEATS_MAX];
    for (unsigned i = 0; i < BUFFERS; i++)
        low[i] = (struct way){.buffer = make(manager, SPW_PINNED_HOST, options->bytes / BUFFERS)};
    for (unsigned i = 0; i < options->warm_up + options->repeats; i++) {
        const unsigned at = i < options->warm_up ? 0 : i - options->warm_up;
        up[at] = carry(low, SPW_DEVICE, NULL, 0);
        down[at] = carry(low, SPW_PINNED_HOST, NULL, 0);
    }
    times->h2d = figure_from(up, options->repeats);
    times->d2h = figure_from(down, options->repeats);
    for (unsigned i = 0; i < BUFFERS; i++)
        high[i] = (struct way){.buffer = make(manager, SPW_DEVICE, options->bytes / BUFFERS)};
    for (unsigned i = 0; i < options->warm_up + options->repeats; i++) {
        const unsigned at = i < options->warm_up ? 0 : 2 * (i - options->warm_up);
        both[at] = carry(low, SPW_DEVICE, high, SPW_PINNED_HOST);
        both[at + 1] = carry(low, SPW_PINNED_HOST, high, SPW_DEVICE);
    }
    times->both = figure_from(both, 2 * options->repeats);
    for (unsigned i = 0; i < BUFFERS; i++) {
        must(spw_buffer_release(low[i].buffer));
        must(spw_buffer_release(high[i].buffer));
    }
}

static double map_at(spw_buffer *buffer, spw_place place)
{
    spw_view view;
    const double begin = now_ns();
    must(spw_map(buffer, place, SPW_MAP_READ, NULL, &view));
    const double ns = now_ns() - begin;
    must(spw_unmap(buffer, &view, NULL));
    return ns;
}

static struct figure measure_reload(spw_manager *manager, const struct options *options, size_t bytes)
{
    double ns[REPEATS_MAX];
    spw_buffer *buffer = make(manager, SPW_PINNED_HOST, bytes);
    for (unsigned i = 0; i < options->warm_up + options->repeats; i++) {
        ns[i < options->warm_up ? 0 : i - options->warm_up] = map_at(buffer, SPW_DEVICE);
        (void)map_at(buffer, SPW_PINNED_HOST);
    }
    must(spw_buffer_release(buffer));
    return figure_from(ns, options->repeats);
}

static struct figure measure_pairs(spw_manager *manager, const struct options *options)
{
    double ns[REPEATS_MAX];
    for (unsigned i = 0; i < options->repeats; i++) {
        spw_block block;
        const double begin = now_ns();
        for (unsigned n = 0; n < options->pairs; n++) {
            must(spw_pool_alloc(manager, SPW_DEVICE, MIB, 0, NULL, NULL, &block));
            must(spw_pool_free(manager, &block, NULL));
        }
        ns[i] = (now_ns() - begin) / options->pairs;
    }
    return figure_from(ns, options->repeats);
}

bool moves_measure(const struct options *options, struct costs *times, char why[256])
{
    char spec[256];
    spw_options manager_options;
    spw_manager *manager;
    const size_t pool = 2 * options->bytes + 64 * MIB; /* both sets at once */
    (void)snprintf(spec, sizeof spec, "device=%zu; pinned=%zu; piece=%zu; driver=%s; device_id=%u", pool, pool,
                   PIECE_BYTES, options->cuda ? "cuda" : "sim", options->device);
    spw_options_init(&manager_options);
    manager_options.spec = spec;
    const int rc = spw_manager_create(&manager_options, &manager);
    if (rc == SPW_ENOTSUP) {
        (void)snprintf(why, 256, "%.255s", spw_error_detail()->message);
        return false;
    }
    must(rc);
    measure_moves(manager, options, times);
    for (unsigned i = 0; i < RELOADS; i++)
        times->reload[i] = measure_reload(manager, options, reload_bytes[i]);
    times->pair = measure_pairs(manager, options);
    must(spw_manager_destroy(manager));
    return true;
}
