/* The figures of bench_device as one table, and as JSON. */
#include "device_bench.h"

/* Bytes in so many nanoseconds as GB/s: the slowest tenth is the high end of the times. */
static struct figure rate(const struct figure *ns, size_t bytes)
{
    const double amount = (double)bytes;
    return ns->median > 0 ? (struct figure){amount / ns->median, amount / ns->high, amount / ns->low} : *ns;
}

static struct figure in_us(const struct figure *ns)
{
    return (struct figure){ns->median / 1e3, ns->low / 1e3, ns->high / 1e3};
}

/* better: what counts as one when Spillway is as good as the driver, more when it is better. */
static void row(const char *what, const char *unit, const struct figure *ours, const struct figure *plain, bool rates)
{
    printf("%-34s %10.2f %-4s (%.2f to %.2f)", what, ours->median, unit, ours->low, ours->high);
    if (plain->median > 0)
        printf("   %10.2f (%.2f to %.2f)   %5.2f", plain->median, plain->low, plain->high,
               rates ? ours->median / plain->median : plain->median / ours->median);
    putchar('\n');
}

void report_table(const struct result *result, const struct options *options)
{
    const struct costs *ours = &result->spillway, *plain = &result->plain;
    char line[64];
    puts(result->machine);
    if (options->cuda)
        printf("%s, driver of CUDA %d.%d; plain: the driver's own calls, %s host memory\n", result->device,
               result->driver_version / 1000, result->driver_version % 1000 / 10,
               result->allocated ? "its own pinned" : "registered");
    else
        puts("simulated device: the figures are this machine's own memory and processor, not a GPU's");
    printf("%zu MiB each way in pieces of %zu MiB; median (10th to 90th percentile) of %u\n\n",
           options->bytes / MIB, PIECE_BYTES / MIB, options->repeats);
    printf("%-34s %s\n", "", options->cuda ? "Spillway                         plain                          ratio"
                                            : "Spillway");
    const struct figure rates[][2] = {{rate(&ours->h2d, options->bytes), rate(&plain->h2d, options->bytes)},
                                      {rate(&ours->d2h, options->bytes), rate(&plain->d2h, options->bytes)},
                                      {rate(&ours->both, 2 * options->bytes), rate(&plain->both, 2 * options->bytes)}};
    row("host to device", "GB/s", &rates[0][0], &rates[0][1], true);
    row("device to host", "GB/s", &rates[1][0], &rates[1][1], true);
    row("both at once, the sum", "GB/s", &rates[2][0], &rates[2][1], true);
    for (unsigned i = 0; i < RELOADS; i++) {
        const struct figure a = in_us(&ours->reload[i]), b = in_us(&plain->reload[i]);
        (void)snprintf(line, sizeof line, "reload of %zu MiB", reload_bytes[i] / MIB);
        row(line, "us", &a, &b, false);
    }
    const struct figure a = in_us(&ours->pair), b = in_us(&plain->pair);
    row("1 MiB allocated and freed", "us", &a, &b, false);
}

static void json_figure(FILE *out, const char *key, const struct figure *figure, const char *end)
{
    if (figure->median > 0)
        (void)fprintf(out, "\"%s\":%.3f,\"%s_spread\":[%.3f,%.3f]%s", key, figure->median, key, figure->low,
                      figure->high, end);
    else
        (void)fprintf(out, "\"%s\":null%s", key, end);
}

static void json_times(FILE *out, const char *key, const struct costs *times, size_t bytes)
{
    const struct figure h2d = rate(&times->h2d, bytes), d2h = rate(&times->d2h, bytes),
                        both = rate(&times->both, 2 * bytes);
    char name[64];
    (void)fprintf(out, "\"%s\":{", key);
    json_figure(out, "h2d_gb_per_s", &h2d, ",");
    json_figure(out, "d2h_gb_per_s", &d2h, ",");
    json_figure(out, "both_gb_per_s", &both, ",");
    for (unsigned i = 0; i < RELOADS; i++) {
        (void)snprintf(name, sizeof name, "reload_%zum_ns", reload_bytes[i] / MIB);
        json_figure(out, name, &times->reload[i], ",");
    }
    json_figure(out, "pair_ns", &times->pair, "}");
}

static void json_ratio(FILE *out, const char *key, const struct figure *ours, const struct figure *plain,
                       const char *end)
{
    if (ours->median > 0 && plain->median > 0)
        (void)fprintf(out, "\"%s\":%.3f%s", key, plain->median / ours->median, end);
    else
        (void)fprintf(out, "\"%s\":null%s", key, end);
}

/* A text of ours or of the system, without what JSON would have to escape. */
static void json_text(FILE *out, const char *key, const char *text)
{
    (void)fprintf(out, "\"%s\":\"", key);
    for (; *text; text++)
        (void)fputc(*text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? ' ' : *text, out);
    (void)fprintf(out, "\",");
}

void report_json(const struct result *result, const struct options *options, FILE *out)
{
    const struct costs *ours = &result->spillway, *plain = &result->plain;
    (void)fputc('{', out);
    json_text(out, "machine", result->machine);
    json_text(out, "device", result->device);
    (void)fprintf(out, "\"simulated\":%s,\"driver_version\":%d,\"plain_host_memory\":\"%s\",\"bytes\":%zu,"
                       "\"piece_bytes\":%zu,\"repeats\":%u,", options->cuda ? "false" : "true", result->driver_version,
                  !options->cuda ? "none" : result->allocated ? "allocated" : "registered", options->bytes,
                  PIECE_BYTES, options->repeats);
    json_times(out, "spillway", ours, options->bytes);
    (void)fputc(',', out);
    json_times(out, "plain", plain, options->bytes);
    (void)fprintf(out, ",\"ratio\":{");
    json_ratio(out, "h2d", &ours->h2d, &plain->h2d, ",");
    json_ratio(out, "d2h", &ours->d2h, &plain->d2h, ",");
    json_ratio(out, "both", &ours->both, &plain->both, "}}\n");
}
