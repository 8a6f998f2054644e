/* bench_sim: how closely copies of the simulated device keep to the model's time, and what processor time that takes.
 * Neighbour: alloc_load.c (clock, quantiles, the machine's name).
 *
 * Each row copies to the device, from it, or in both directions at once with a duplex of three quarters of their sum,
 * from the call to the end of synchronize; the model's time is computed here, without the code that is measured. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "alloc_bench.h"
#include "pool/base/error.h"
#include "pool/device/device.h"

#define MIB        (1024.0 * 1024)
#define RATE       2.56e9 /* bytes per second: 256 MiB take 105 ms */
#define DUPLEX     (RATE * 3 / 2)
#define LATENCY_NS 10000.0

enum { REPEATS_MAX = 21, SIZES = 3 };
enum way { TO_DEVICE, FROM_DEVICE, BOTH, WAYS };

static const double sizes[SIZES] = {1 * MIB, 16 * MIB, 256 * MIB};
static const char *const names[WAYS] = {"h2d", "d2h", "both"};

struct row {
    double model_ns, median_ns, low_ns, high_ns;
    double busy; /* processor time over wall time */
};

static struct spw__meta meta;
static struct spw__device *device;
static spw__stream streams[2];
static uint64_t memory[2];
static char *host[2];

static void must(int rc)
{
    if (rc == SPW_OK)
        return;
    (void)fprintf(stderr, "bench_sim: %s\n", spw_error_detail()->message);
    exit(1);
}

static void open_device(void)
{
    static const struct spw__log to_stderr;
    const size_t most = (size_t)sizes[SIZES - 1];
    const struct spw__device_config config = {.kind = SPW_DRIVER_SIM,
                                              .capacity_bytes = 2 * most,
                                              .log = &to_stderr,
                                              .meta = &meta,
                                              .model = {.h2d_bytes_per_s = (uint64_t)RATE,
                                                        .d2h_bytes_per_s = (uint64_t)RATE,
                                                        .duplex_bytes_per_s = (uint64_t)DUPLEX,
                                                        .latency_ns = (uint64_t)LATENCY_NS}};
    (void)unsetenv("SPILLWAY_SIM_SEED"); /* a seed knows no time */
    spw__meta_init(&meta, 1u << 20);
    must(spw__device_open(&config, &device));
    for (unsigned i = 0; i < 2; i++) {
        must(spw__device_stream_create(device, &streams[i]));
        must(spw__device_alloc(device, most, &memory[i]));
        host[i] = malloc(most);
        if (!host[i])
            abort();
        memset(host[i], (int)i, most);
        must(spw__device_copy_to(device, streams[i], memory[i], host[i], most)); /* all pages are there */
        must(spw__device_synchronize(device, streams[i]));
    }
}

static void close_device(void)
{
    for (unsigned i = 0; i < 2; i++) {
        must(spw__device_free(device, memory[i]));
        must(spw__device_stream_destroy(device, streams[i]));
        free(host[i]);
    }
    spw__device_close(device);
}

static double processor_ns(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static double copy_once(enum way way, size_t bytes)
{
    const double start = now_ns();
    if (way != FROM_DEVICE)
        must(spw__device_copy_to(device, streams[0], memory[0], host[0], bytes));
    if (way != TO_DEVICE)
        must(spw__device_copy_from(device, streams[1], host[1], memory[1], bytes));
    for (unsigned i = 0; i < 2; i++)
        must(spw__device_synchronize(device, streams[i]));
    return now_ns() - start;
}

static struct row measure(enum way way, double bytes, unsigned repeats)
{
    double times[REPEATS_MAX];
    const double rate = way == BOTH ? DUPLEX / 2 : RATE;
    const double busy = processor_ns(), start = now_ns();
    for (unsigned i = 0; i < repeats; i++)
        times[i] = copy_once(way, (size_t)bytes);
    struct row row = {.model_ns = LATENCY_NS + bytes / rate * 1e9};
    row.busy = (processor_ns() - busy) / (now_ns() - start);
    row.median_ns = quantile(times, repeats, 0.5);
    row.low_ns = quantile(times, repeats, 0.1);
    row.high_ns = quantile(times, repeats, 0.9);
    return row;
}

static void print_row(enum way way, double bytes, const struct row *row, bool json, bool last)
{
    if (json)
        printf("\"%s_%.0fMiB\":{\"model_ms\":%.4f,\"median_ms\":%.4f,\"p10_ms\":%.4f,\"p90_ms\":%.4f,\"busy\":%.3f}%s",
               names[way], bytes / MIB, row->model_ns / 1e6, row->median_ns / 1e6, row->low_ns / 1e6,
               row->high_ns / 1e6, row->busy, last ? "}\n" : ",");
    else
        printf("%-5s %4.0f MiB  model %9.3f ms  measured %9.3f ms (%.3f to %.3f)  %+6.2f %%  processor %3.0f %%\n",
               names[way], bytes / MIB, row->model_ns / 1e6, row->median_ns / 1e6, row->low_ns / 1e6,
               row->high_ns / 1e6, (row->median_ns / row->model_ns - 1) * 100, row->busy * 100);
}

int main(int argc, char **argv)
{
    bool json = false;
    unsigned repeats = REPEATS_MAX;
    static const char help[] = "usage: bench_sim [--json] [--quick] | --help\n";
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            repeats = 3;
        } else {
            (void)fputs(help, stderr);
            return 2;
        }
    }
    if (json) {
        putchar('{');
    } else {
        print_machine();
        printf("%.2f GB/s each way, %.2f GB/s both together, latency %.0f us; %u times each, median (10 %% to 90 %%)\n",
               RATE / 1e9, DUPLEX / 1e9, LATENCY_NS / 1e3, repeats);
    }
    open_device();
    for (int way = 0; way < WAYS; way++) {
        for (unsigned i = 0; i < SIZES; i++) {
            const struct row row = measure((enum way)way, sizes[i], repeats);
            print_row((enum way)way, sizes[i], &row, json, way == WAYS - 1 && i == SIZES - 1);
        }
    }
    close_device();
    return 0;
}
