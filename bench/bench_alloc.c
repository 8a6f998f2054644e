/* bench_alloc: how fast the range allocator is, how full it packs, and what it costs in metadata, beside jemalloc
 * (which this program runs on) and glibc (in a child process) in the same run. Neighbours:
 * alloc_bench.h and its parts. */
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <spillway/error.h>

#include "alloc_bench.h"
#include "pool/base/meta.h"
#include "pool/range.h"

#define GRAIN 64u
#define REGION_BYTES (UINT64_C(64) << 30)
#define SEED 1u
#define SCALES 5u

/* Present when jemalloc is linked. */
extern void *mallocx(size_t size, int flags) __attribute__((weak));

struct options {
    bool json, quick;
    size_t warm_up, singles;
    unsigned chunks, failures;
};

/* A range with live objects that pairs are played on. */
struct player {
    struct spw__range *range;
    const struct load *load;
    uint32_t *live;
    size_t step;
};

struct result {
    struct times range, jemalloc, glibc;
    bool has_jemalloc, has_glibc;
    double pair_ns_2t;
    double small_ns_2t;
    double uses[5];
    double meta_bytes;
    double ns_at[SCALES];
    unsigned n_scales;
};

static void check(int rc)
{
    if (rc == SPW_OK)
        return;
    (void)fprintf(stderr, "bench_alloc: %s\n", spw_strerror(rc));
    exit(1);
}

static void replace(struct player *player, uint32_t *node, uint32_t bytes)
{
    uint64_t offset;
    check(spw__range_free(player->range, *node));
    check(spw__range_alloc(player->range, bytes, 0, node, &offset));
}

static void play(struct player *player, size_t pairs)
{
    const struct load *load = player->load;
    for (; pairs > 0; pairs--) {
        const size_t i = player->step;
        player->step = i + 1 == load->length ? 0 : i + 1;
        replace(player, &player->live[load->victims[i]], load->sizes[i]);
    }
}

static void fill(struct player *player)
{
    uint64_t offset;
    player->live = malloc(player->load->live * sizeof *player->live);
    if (!player->live)
        abort();
    for (size_t i = 0; i < player->load->live; i++)
        check(spw__range_alloc(player->range, player->load->sizes[i], 0, &player->live[i], &offset));
}

static double mean_of_chunks(struct player *player, unsigned chunks)
{
    double *means = malloc(chunks * sizeof *means);
    if (!means)
        abort();
    for (unsigned i = 0; i < chunks; i++) {
        const double start = now_ns();
        play(player, CHUNK_PAIRS);
        means[i] = (now_ns() - start) / CHUNK_PAIRS;
    }
    const double median = quantile(means, chunks, 0.5);
    free(means);
    return median;
}

static double p99_of_singles(struct player *player, size_t singles)
{
    double *times = malloc(singles * sizeof *times);
    if (!times)
        abort();
    for (size_t i = 0; i < singles; i++) {
        const double start = now_ns();
        play(player, 1);
        times[i] = now_ns() - start;
    }
    const double p99 = quantile(times, singles, 0.99) - clock_cost_ns();
    free(times);
    return p99;
}

/* Objects that fill half of the region on average. */
static size_t half_of(uint64_t region)
{
    return (size_t)((double)region / 2 / log_uniform_mean(SIZE_MIN, SIZE_MAX_MIXED));
}

static struct times one_thread(const struct load *load, const struct options *options)
{
    struct player player = {.load = load};
    check(spw__range_create(REGION_BYTES, GRAIN, false, NULL, &player.range));
    fill(&player);
    play(&player, options->warm_up);
    const struct times times = {mean_of_chunks(&player, options->chunks), p99_of_singles(&player, options->singles)};
    spw__range_destroy(player.range);
    free(player.live);
    return times;
}

/* From a thousand to ten million live objects, half of a region that grows along. */
static void scales(struct result *result, const struct options *options)
{
    size_t live = 1000;
    result->n_scales = options->quick ? 3 : SCALES;
    for (unsigned i = 0; i < result->n_scales; i++, live *= 10) {
        struct spw__meta meta;
        struct load load;
        struct player player = {.load = &load};
        const double region = (double)live * 2 * log_uniform_mean(SIZE_MIN, SIZE_MAX_MIXED);
        spw__meta_init(&meta, UINT64_MAX);
        load_make(&load, live, SEED);
        check(spw__range_create((uint64_t)region, GRAIN, false, &meta, &player.range));
        fill(&player);
        play(&player, live > options->warm_up ? live : options->warm_up);
        result->ns_at[i] = mean_of_chunks(&player, options->chunks);
        result->meta_bytes = (double)atomic_load(&meta.gate.committed) / (double)live;
        spw__range_destroy(player.range);
        free(player.live);
        load_free(&load);
    }
}

static bool glibc_times(const struct load *load, const struct options *options, struct times *times)
{
    char path[4096], command[4352];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    (void)snprintf(command, sizeof command, "'%s/bench_alloc_glibc' %zu %u %zu %u %zu", dirname(path), load->live, SEED,
                   options->warm_up, options->chunks, options->singles);
    FILE *child = popen(command, "r");
    if (!child)
        return false;
    const int read = fscanf(child, "%lf %lf", &times->mean_ns, &times->p99_ns);
    return pclose(child) == 0 && read == 2;
}

static void measure(struct result *result, const struct options *options)
{
    static const struct {
        enum use use;
        unsigned pools;
    } uses[5] = {{USE_LOGNORMAL, 1}, {USE_LOGNORMAL, 8}, {USE_POW2_64, 1}, {USE_UNIFORM, 1}, {USE_SMALL, 1}};
    struct load load;
    load_make(&load, half_of(REGION_BYTES), SEED);
    result->range = one_thread(&load, options);
    result->has_jemalloc = mallocx && peer_times(&load, options->warm_up, options->chunks, options->singles,
                                                 &result->jemalloc) == 0;
    result->has_glibc = glibc_times(&load, options, &result->glibc);
    load_free(&load);
    result->pair_ns_2t = pair_ns_2t(REGION_BYTES, half_of(REGION_BYTES) / 2, options->warm_up,
                                    (size_t)options->chunks * CHUNK_PAIRS, SEED);
    result->small_ns_2t = small_ns_2t(options->chunks, SEED);
    for (unsigned i = 0; i < 5; i++)
        result->uses[i] = use_of(uses[i].use, uses[i].pools, options->failures);
    scales(result, options);
}

static void json_number(const char *key, bool known, double value)
{
    if (known)
        printf("\"%s\":%.1f,", key, value);
    else
        printf("\"%s\":null,", key);
}

static void print_json(const struct result *r)
{
    putchar('{');
    json_number("pair_ns_mean", true, r->range.mean_ns);
    json_number("pair_ns_p99", true, r->range.p99_ns);
    json_number("jemalloc_ns_mean", r->has_jemalloc, r->jemalloc.mean_ns);
    json_number("jemalloc_ns_p99", r->has_jemalloc, r->jemalloc.p99_ns);
    json_number("glibc_ns_mean", r->has_glibc, r->glibc.mean_ns);
    json_number("pair_ns_2t", true, r->pair_ns_2t);
    json_number("small_ns_2t", true, r->small_ns_2t);
    printf("\"utilisation\":{\"lognormal_1\":%.4f,\"lognormal_8\":%.4f,\"pow2_64\":%.4f,\"uniform\":%.4f,"
           "\"small\":%.4f},", r->uses[0], r->uses[1], r->uses[2], r->uses[3], r->uses[4]);
    json_number("metadata_bytes_per_alloc", true, r->meta_bytes);
    printf("\"ns_at\":{");
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("%s\"1e%u\":%.1f", i ? "," : "", i + 3, r->ns_at[i]);
    printf("}}\n");
}

static void print_text(const struct result *r, const struct options *options)
{
    print_machine();
    printf("64 GiB, half live, log-uniform 256 B to 4 MiB, seed %u; warm-up %zu pairs, median of %u chunks of %u "
           "pairs, p99 of %zu single pairs\n", SEED, options->warm_up, options->chunks, CHUNK_PAIRS, options->singles);
    printf("range      %8.1f ns mean %8.1f ns p99\n", r->range.mean_ns, r->range.p99_ns);
    if (r->has_jemalloc)
        printf("jemalloc   %8.1f ns mean %8.1f ns p99   ratio %.2f mean, %.2f p99\n", r->jemalloc.mean_ns,
               r->jemalloc.p99_ns, r->range.mean_ns / r->jemalloc.mean_ns, r->range.p99_ns / r->jemalloc.p99_ns);
    if (r->has_glibc)
        printf("glibc      %8.1f ns mean %8.1f ns p99\n", r->glibc.mean_ns, r->glibc.p99_ns);
    printf("2 threads  %8.1f ns mean, raw memory of one tier, wall time of each\n", r->pair_ns_2t);
    printf("small      %8.1f ns mean, 64 B to 64 KiB, 2 threads with 2000 live each, 1 GiB\n", r->small_ns_2t);
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("1e%u live   %8.1f ns mean\n", i + 3, r->ns_at[i]);
    printf("metadata   %8.1f bytes an allocation at 1e%u live\n", r->meta_bytes, r->n_scales + 2);
    printf("live / region at failure, %u failures: lognormal %.4f, in eight pools %.4f (64 GiB); 2^k+64 %.4f (4 GiB); "
           "uniform 1-64 MiB %.4f (8 GiB); 64 B-64 KiB %.4f (4 GiB)\n", options->failures, r->uses[0], r->uses[1],
           r->uses[2], r->uses[3], r->uses[4]);
}

int main(int argc, char **argv)
{
    struct options options = {.warm_up = 1000000, .singles = 400000, .chunks = 400, .failures = 1500};
    struct result result = {.n_scales = 0};
    for (int i = 1; i < argc; i++) {
        options.json |= strcmp(argv[i], "--json") == 0;
        options.quick |= strcmp(argv[i], "--quick") == 0;
        if (strcmp(argv[i], "--json") != 0 && strcmp(argv[i], "--quick") != 0) {
            (void)fprintf(stderr, "usage: bench_alloc [--json] [--quick]\n");
            return 2;
        }
    }
    if (options.quick) {
        options.warm_up = 20000;
        options.singles = 20000;
        options.chunks = 20;
        options.failures = 150;
    }
    measure(&result, &options);
    if (options.json)
        print_json(&result);
    else
        print_text(&result, &options);
    return 0;
}
