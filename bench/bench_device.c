/* bench_device: how fast the mover fills and empties a device, both ways at once too, what a reload and an allocation
 * take, beside the driver's own calls in the same run. On the simulated device (--driver sim) there is nothing to
 * compare with, and the figures say nothing of a GPU. Neighbours: device_bench.h and its parts.
 *
 * Ends with 77 where there is no GPU, and with 3 where a real one's rates are less of the driver's than asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_bench.h"
#include "device_bench.h"

enum { NO_DEVICE = 77, TOO_SLOW = 3 };

const size_t reload_bytes[RELOADS] = {MIB, 16 * MIB, 256 * MIB};

struct figure figure_from(double *ns, unsigned n)
{
    return (struct figure){quantile(ns, n, 0.5), quantile(ns, n, 0.1), quantile(ns, n, 0.9)};
}

static const char help[] =
    "usage: bench_device [--driver cuda|sim] [--device N] [--json] [--json-file PATH] [--quick]\n"
    "                    [--at-least RATIO]   (of the driver's rate, else ends with 3)\n"
    "       bench_device --help\n";

static int usage(void)
{
    (void)fputs(help, stderr);
    return 2;
}

/* 0, or the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            options->quick = true;
        } else if (strcmp(argv[i], "--driver") == 0 && (strcmp(value, "cuda") == 0 || strcmp(value, "sim") == 0)) {
            options->cuda = strcmp(argv[++i], "cuda") == 0;
        } else if (strcmp(argv[i], "--device") == 0 && *value) {
            char *end;
            options->device = (unsigned)strtoul(argv[++i], &end, 10);
            if (*end)
                return usage();
        } else if (strcmp(argv[i], "--at-least") == 0 && *value) {
            char *end;
            options->at_least = strtod(argv[++i], &end);
            if (*end)
                return usage();
        } else if (strcmp(argv[i], "--json-file") == 0 && *value) {
            options->json_file = argv[++i];
        } else {
            return usage();
        }
    }
    if (options->quick) {
        options->bytes = 256 * MIB;
        options->repeats = 3;
        options->pairs = 100;
    }
    return 0;
}

static int write_json(const struct result *result, const struct options *options)
{
    FILE *out = fopen(options->json_file, "w");
    if (!out) {
        perror(options->json_file);
        return 1;
    }
    report_json(result, options, out);
    return fclose(out) == 0 ? 0 : 1;
}

/* A simulated device, be it behind a libcuda.so.1 of the tests, says nothing of the mover. */
static int verdict(const struct result *result, const struct options *options)
{
    const struct costs *ours = &result->spillway, *plain = &result->plain;
    if (options->at_least <= 0 || strncmp(result->device, "simulated", strlen("simulated")) == 0)
        return 0;
    const bool fast = plain->h2d.median / ours->h2d.median >= options->at_least &&
                      plain->d2h.median / ours->d2h.median >= options->at_least;
    if (!fast)
        (void)fprintf(stderr, "bench_device: a direction is below %.2f of the driver's own rate\n", options->at_least);
    return fast ? 0 : TOO_SLOW;
}

int main(int argc, char **argv)
{
    struct options options = {.cuda = true, .bytes = GIB, .warm_up = 2, .repeats = 15, .pairs = 2000};
    struct result result = {.device = "simulated"};
    struct plain *plain = NULL;
    char why[256] = "";
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    int status = parse(&options, argc, argv);
    if (status)
        return status;
    machine_line(result.machine, sizeof result.machine);
    const bool opened = !options.cuda || plain_open(&options, &result, &plain, why);
    if (!opened || !moves_measure(&options, &result.spillway, why)) {
        (void)fprintf(stderr, "bench_device: %s\n", why);
        plain_close(plain);
        return NO_DEVICE;
    }
    if (plain)
        plain_measure(plain, &options, &result.plain);
    plain_close(plain);
    if (options.json)
        report_json(&result, &options, stdout);
    else
        report_table(&result, &options);
    if (options.json_file)
        status = write_json(&result, &options);
    return status ? status : verdict(&result, &options);
}
