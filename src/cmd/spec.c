/* spillway spec: what a configuration string means, or where it is wrong. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spillway/spillway.h>

#include "pool/spec.h"
#include "src/cmd/cmd.h"

#define TIERS 3
/* Of a long string so many bytes before and behind the wrong one are shown. */
#define CONTEXT 60u
/* Each pool gives a request of its limit, one of a byte more, and one of its size. */
#define SAMPLES_MAX (3 * SPW_SPEC_POOLS_MAX + 8)

/* One column a byte, whatever the byte is, so that the caret stands under the right one. */
static void show_error(const char *string, const spw_error_info *error)
{
    const size_t length = strlen(string);
    const size_t at = error->offset_bytes < length ? (size_t)error->offset_bytes : length;
    const size_t begin = at > CONTEXT ? at - CONTEXT : 0;
    const size_t end = length - at > CONTEXT ? at + CONTEXT : length;
    fprintf(stderr, "spillway spec: %s\n  %s", error->message, begin > 0 ? "..." : "");
    for (size_t i = begin; i < end; i++)
        fputc(string[i] >= ' ' && string[i] <= '~' ? string[i] : '?', stderr);
    const size_t indent = strlen(begin > 0 ? "  ..." : "  ") + at - begin;
    fprintf(stderr, "%s\n%*s^\n", end < length ? "..." : "", (int)indent, "");
}

/* Pools */

static void print_pools(const spw_spec *spec, int tier)
{
    char text[CMD_SIZE_MAX];
    const uint32_t n = spec->n_pools[tier];
    printf("%s: %" PRIu32 " pool%s, %s\n", spw_tier_name((spw_tier)tier), n, n == 1 ? "" : "s",
           cmd_size(spw__spec_tier_bytes(spec, (unsigned)tier), text));
    for (uint32_t i = 0; i < n; i++) {
        const spw_spec_pool *pool = &spec->pools[tier][i];
        printf("  pool %-4" PRIu32 " %-36s requests ", i, cmd_size(pool->size_bytes, text));
        if (pool->limit_bytes)
            printf("up to %s\n", cmd_size(pool->limit_bytes, text));
        else
            printf("of any size\n");
    }
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sizes at which the route changes, and some everyday ones. Returns how many, in order, each once. */
static size_t collect_samples(const spw_spec *spec, int tier, uint64_t samples[SAMPLES_MAX])
{
    uint64_t largest = 0;
    size_t n = 0, kept = 0;
    for (uint32_t i = 0; i < spec->n_pools[tier]; i++) {
        const spw_spec_pool *pool = &spec->pools[tier][i];
        const uint64_t reach = pool->limit_bytes ? pool->limit_bytes : pool->size_bytes;
        samples[n++] = reach;
        samples[n++] = reach + 1;
        largest = reach > largest ? reach : largest;
    }
    for (unsigned shift = 10; shift <= 40; shift += 10)
        if (UINT64_C(1) << shift <= largest)
            samples[n++] = UINT64_C(1) << shift;
    qsort(samples, n, sizeof *samples, compare);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || samples[kept - 1] != samples[i])
            samples[kept++] = samples[i];
    return kept;
}

static void print_route(const spw_spec *spec, int tier)
{
    uint64_t samples[SAMPLES_MAX];
    uint32_t order[SPW_SPEC_POOLS_MAX];
    char text[CMD_SIZE_MAX];
    const size_t n = collect_samples(spec, tier, samples);
    for (size_t i = 0; i < n; i++) {
        const size_t pools = spw_spec_route(spec, (spw_tier)tier, samples[i], order);
        printf("  a request of %-36s ", cmd_size(samples[i], text));
        if (pools == 0)
            printf("too big: no pool can ever hold it");
        for (size_t at = 0; at < pools; at++)
            printf("%s%" PRIu32, at ? ", then " : pools > 1 ? "pools " : "pool ", order[at]);
        putchar('\n');
    }
}

/* Folders and settings */

static void print_folders(const spw_spec *spec)
{
    char text[CMD_SIZE_MAX];
    uint64_t total = 0;
    bool unlimited = false;
    for (uint32_t i = 0; i < spec->n_folders; i++) {
        unlimited |=
            spec->folders[i].quota_bytes == 0 || __builtin_add_overflow(total, spec->folders[i].quota_bytes, &total);
    }
    printf("disk: %" PRIu32 " folder%s, %s\n", spec->n_folders, spec->n_folders == 1 ? "" : "s",
           unlimited ? "as much as the file systems have free" : cmd_size(total, text));
    for (uint32_t i = 0; i < spec->n_folders; i++) {
        const spw_spec_folder *folder = &spec->folders[i];
        printf("  %.*s  %s\n", (int)folder->path_length, folder->path,
               folder->quota_bytes ? cmd_size(folder->quota_bytes, text) : "no quota");
    }
}

static void print_bytes(const char *name, uint64_t bytes, const char *by_default)
{
    char text[CMD_SIZE_MAX];
    printf("  %-12s %s\n", name, bytes ? cmd_size(bytes, text) : by_default);
}

static void print_rate(const char *name, uint64_t bytes_per_s, const char *without)
{
    char text[CMD_SIZE_MAX];
    printf("    %-10s %s%s\n", name, bytes_per_s ? cmd_size(bytes_per_s, text) : without,
           bytes_per_s ? " a second" : "");
}

static void print_model(const spw_spec *spec)
{
    const spw_device_model *model = &spec->model;
    char text[CMD_SIZE_MAX];
    if (!spw__spec_has_model(spec))
        return;
    printf("  %-12s a simulated device\n", "model");
    printf("    %-10s %s\n", "memory",
           model->memory_bytes ? cmd_size(model->memory_bytes, text) : "what the pools need");
    print_rate("h2d", model->h2d_bytes_per_s, "without limit");
    print_rate("d2h", model->d2h_bytes_per_s, "without limit");
    print_rate("d2d", model->d2d_bytes_per_s, "without limit");
    print_rate("duplex", model->duplex_bytes_per_s, "free: neither direction slows the other");
    printf("    %-10s %" PRIu64 " ns a copy\n", "latency", model->latency_ns);
    if (spec->sim_seed)
        printf("    without effect but for the memory: an adversarial schedule knows no time\n");
}

static void print_settings(const spw_spec *spec)
{
    static const char *const drivers[] = {"auto", "cuda", "sim"};
    static const char *const grows[] = {"plain: one allocation a pool", "vmm: mapped as it is needed"};
    static const char *const ios[] = {"auto", "uring", "threads"};
    static const char *const placements[] = {"auto: good fit", "address: lowest address first"};
    printf("settings\n");
    print_bytes("meta", spec->meta_bytes, "default: 67108864 bytes (64 MiB)");
    print_bytes("staging", spec->staging_bytes, "default: 64 MiB, at most a quarter of the smallest memory tier");
    print_bytes("piece", spec->piece_bytes, "default: 16 MiB, at most an eighth of the smallest memory tier");
    printf("  %-12s %s, device %" PRIu32, "driver", drivers[spec->driver], spec->device_id);
    if (spec->sim_seed)
        printf(", adversarial schedule %" PRIu64, spec->sim_seed);
    putchar('\n');
    print_model(spec);
    printf("  %-12s %s\n", "grow", grows[spec->grow]);
    printf("  %-12s %s", "io", ios[spec->io]);
    if (spec->io_threads)
        printf(", %" PRIu32 " thread%s", spec->io_threads, spec->io_threads == 1 ? "" : "s");
    printf("\n  %-12s %s\n", "threads", spec->threads == 0 ? "0: the engine drives all moves" : "1: a mover thread");
    printf("  %-12s %s\n", "verify", spec->verify == 0 ? "0: off" : "1: what is read back from disk is checked");
    printf("  %-12s %s\n", "placement", placements[spec->placement]);
    if (spec->headroom_percent >= 0)
        printf("  %-12s %d %%\n", "headroom", spec->headroom_percent);
    else
        printf("  %-12s default: 6 %% of pinned_host and of host, where one has 64 MiB or more\n", "headroom");
    if (spec->numa_node >= 0)
        printf("  %-12s node %d\n", "numa", spec->numa_node);
}

static enum cmd_status print_canonical(const spw_spec *spec)
{
    const size_t length = spw_spec_format(spec, NULL, 0);
    char *text = malloc(length + 1);
    if (!text)
        return cmd_fail(CMD_FAILED, "spec", "out of memory");
    (void)spw_spec_format(spec, text, length + 1);
    printf("canonical form\n  %s\n", text);
    free(text);
    return CMD_DONE;
}

enum cmd_status cmd_spec(int argc, char *const argv[])
{
    static spw_spec spec; /* large for a stack */
    uint32_t named;
    if (argc != 1)
        return cmd_fail(CMD_USAGE, "spec", "one configuration string is wanted (in quotes, where it has a ';')");
    if (spw__spec_parse(argv[0], &spec, &named) != SPW_OK) {
        show_error(argv[0], spw_error_detail());
        return CMD_USAGE;
    }
    if (spw__spec_check(&spec, named) != SPW_OK)
        return cmd_fail(CMD_USAGE, "spec", "%s", spw_error_detail()->message);
    for (int tier = 0; tier < TIERS; tier++)
        if (spec.n_pools[tier] > 0) {
            print_pools(&spec, tier);
            print_route(&spec, tier);
        }
    if (spec.n_folders > 0)
        print_folders(&spec);
    print_settings(&spec);
    return print_canonical(&spec);
}
