/* bench_replay: replays an allocation log against the range allocator and says how much address space it took.
 *
 * No memory stands behind the ranges, so that logs of machines larger than this one can be replayed. Neighbours:
 * pool/replay (reading, replaying), docs/logs.md (the forms of logs). */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spillway/spillway.h>

#include "pool/base/clock.h"
#include "pool/replay/replay.h"

/* The median of repeated runs is shown: at least so many, then until so much time has gone. */
#define RUNS_MIN    3u
#define RUNS_MAX    1001u
#define TIME_MAX_NS UINT64_C(200000000)

static const char help[] =
    "usage: bench_replay FILE [options]\n"
    "\n"
    "Replays an allocation log (RMM's CSV, Umpire's JSON lines, Spillway's CSV) and prints the bytes of address\n"
    "space that it took, beside the most that were live at once.\n"
    "\n"
    "  --spec S          the device pools of this configuration string, each a range of its own; without it one pool\n"
    "  --capacity BYTES  size of the one pool (4096, 64M, 1G); without it, it is as large as needed\n"
    "  --movable         live blocks may move within their pool to open a hole\n"
    "  --place P         the place to replay, of a log in Spillway's form that has several; pools of --spec are those\n"
    "                    of its tier\n"
    "  --json            the result as one JSON object\n"
    "  --help            this text\n"
    "\n"
    "exit status: 0 replayed, whether or not requests failed; 2 wrong arguments or log; 1 everything else\n";

struct arguments {
    const char *file;
    const char *spec;
    const char *place;
    uint64_t capacity_bytes; /* 0: as large as needed */
    bool movable;
    bool json;
    bool help;
};

static int usage(const char *what, const char *value)
{
    fprintf(stderr, "bench_replay: %s%s%s\n", what, value ? ": " : "", value ? value : "");
    return 2;
}

/* A size as in a configuration string's section, which is what reads it. */
static bool read_size(const char *text, uint64_t *bytes)
{
    static spw_spec spec; /* large for a stack */
    char section[64];
    if (snprintf(section, sizeof section, "host=%s", text) >= (int)sizeof section ||
        spw_spec_parse(section, &spec) != SPW_OK || spec.n_pools[SPW_TIER_HOST] != 1 ||
        spec.pools[SPW_TIER_HOST][0].limit_bytes != 0 ||
        spec.pools[SPW_TIER_HOST][0].size_bytes > SPW__ALLOC_LOG_LIVE_MAX)
        return false;
    *bytes = spec.pools[SPW_TIER_HOST][0].size_bytes;
    return true;
}

static int read_arguments(int argc, char *const argv[], struct arguments *arguments)
{
    const char *capacity = NULL;
    const struct {
        const char *name;
        const char **value;
    } values[] = {{"--spec", &arguments->spec}, {"--capacity", &capacity}, {"--place", &arguments->place}};
    for (int i = 1; i < argc; i++) {
        const char **value = NULL;
        for (size_t at = 0; at < sizeof values / sizeof values[0]; at++)
            if (strcmp(argv[i], values[at].name) == 0)
                value = values[at].value;
        if (value && i + 1 == argc)
            return usage("a value is wanted", argv[i]);
        if (value)
            *value = argv[++i];
        else if (strcmp(argv[i], "--movable") == 0)
            arguments->movable = true;
        else if (strcmp(argv[i], "--json") == 0)
            arguments->json = true;
        else if (strcmp(argv[i], "--help") == 0)
            arguments->help = true;
        else if (argv[i][0] == '-' || arguments->file)
            return usage("unknown argument (--help lists all)", argv[i]);
        else
            arguments->file = argv[i];
    }
    if (arguments->help)
        return 0;
    if (!arguments->file)
        return usage("the file of an allocation log is wanted (--help lists all)", NULL);
    if (capacity && arguments->spec)
        return usage("--spec gives the sizes of the pools: it excludes --capacity", NULL);
    if (capacity && !read_size(capacity, &arguments->capacity_bytes))
        return usage("--capacity wants bytes from 1024 to 2^50 (4096, 64M, 1G)", capacity);
    return 0;
}

/* Pools */

struct setting {
    struct spw__replay_config config;
    spw_spec_pool single;
    spw_spec spec;
    spw_tier tier;
};

static spw_tier tier_of(const struct spw__alloc_log *log)
{
    const size_t length = strcspn(log->place, ":");
    for (int tier = SPW_TIER_DEVICE; tier < SPW_TIER_META && length > 0; tier++)
        if (strlen(spw_tier_name((spw_tier)tier)) == length &&
            memcmp(spw_tier_name((spw_tier)tier), log->place, length) == 0)
            return (spw_tier)tier;
    return SPW_TIER_DEVICE;
}

static int choose_pools(const struct arguments *arguments, const struct spw__alloc_log *log, struct setting *setting)
{
    setting->tier = tier_of(log);
    setting->single = (spw_spec_pool){.size_bytes = arguments->capacity_bytes};
    setting->config =
        (struct spw__replay_config){.pools = &setting->single, .n_pools = 1, .movable = arguments->movable};
    if (!arguments->spec)
        return 0;
    if (spw_spec_parse(arguments->spec, &setting->spec) != SPW_OK)
        return usage("--spec", spw_error_detail()->message);
    if (setting->tier > SPW_TIER_HOST || setting->spec.n_pools[setting->tier] == 0)
        return usage("--spec has no pools of the log's tier", spw_tier_name(setting->tier));
    setting->config.pools = setting->spec.pools[setting->tier];
    setting->config.n_pools = setting->spec.n_pools[setting->tier];
    setting->config.address_ordered = setting->spec.placement == SPW_PLACEMENT_ADDRESS;
    return 0;
}

/* Running */

struct outcome {
    struct spw__replay_result result;
    struct spw__replay_result first_fit; /* the same pools, lowest address first: the baseline */
    double ns_per_op[3];                 /* median, fastest, slowest */
    unsigned runs;
};

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int run(const struct spw__alloc_log *log, const struct setting *setting, struct outcome *outcome)
{
    static uint64_t times[RUNS_MAX];
    struct spw__replay *replay;
    struct spw__replay_config config = setting->config;
    uint64_t spent = 0;
    int rc = spw__replay_create(
        log, setting->tier == SPW_TIER_DEVICE ? SPW__REPLAY_GRAIN_DEVICE : SPW__REPLAY_GRAIN_HOST, &replay);
    config.address_ordered = true;
    if (rc == SPW_OK)
        rc = spw__replay_run(replay, &config, &outcome->first_fit); /* and a warm-up */
    for (outcome->runs = 0; rc == SPW_OK && outcome->runs < RUNS_MAX;) {
        const uint64_t start = spw__clock_monotonic_ns();
        rc = spw__replay_run(replay, &setting->config, &outcome->result);
        times[outcome->runs] = spw__clock_monotonic_ns() - start;
        spent += times[outcome->runs++];
        if (outcome->runs >= RUNS_MIN && spent >= TIME_MAX_NS)
            break;
    }
    spw__replay_destroy(replay);
    qsort(times, outcome->runs, sizeof *times, compare);
    const double n = (double)log->n_ops;
    outcome->ns_per_op[0] = (double)times[outcome->runs / 2] / n;
    outcome->ns_per_op[1] = (double)times[0] / n;
    outcome->ns_per_op[2] = (double)times[outcome->runs ? outcome->runs - 1 : 0] / n;
    return rc;
}

static void print_json(const struct spw__alloc_log *log, const struct outcome *outcome)
{
    const struct spw__replay_result *result = &outcome->result;
    printf("{\"events\":%" PRIu64 ",\"peak_live_bytes\":%" PRIu64 ",\"range_bytes\":%" PRIu64 ",\"ratio\":%.6f,"
           "\"failures\":%" PRIu64 ",\"moved_bytes\":%" PRIu64 ",\"ns_per_op\":%.2f}\n",
           log->events, log->peak_live_bytes, result->range_bytes,
           (double)result->range_bytes / (double)log->peak_live_bytes, result->failures, result->moved_bytes,
           outcome->ns_per_op[0]);
}

static void print_text(const struct arguments *arguments, const struct spw__alloc_log *log,
                       const struct outcome *outcome)
{
    const struct spw__replay_result *result = &outcome->result;
    const double peak = (double)log->peak_live_bytes;
    printf("log        %s: %s%s%s, %" PRIu64 " events\n", arguments->file, log->form, log->place[0] ? ", " : "",
           log->place, log->events);
    if (log->unknown_frees || log->lost_frees || log->logged_failures)
        printf("           %" PRIu64 " frees of unknown pointers, %" PRIu64
               " pointers allocated anew without a free, %" PRIu64 " logged failures\n",
               log->unknown_frees, log->lost_frees, log->logged_failures);
    printf("peak       %" PRIu64 " bytes live at once\n", log->peak_live_bytes);
    printf("range      %" PRIu64 " bytes, range/peak %.3f (lowest address first: %.3f)\n", result->range_bytes,
           (double)result->range_bytes / peak, (double)outcome->first_fit.range_bytes / peak);
    printf("failures   %" PRIu64 " of %" PRIu32 " requests; %" PRIu64 " fell to a larger pool\n", result->failures,
           log->n_blocks, result->fallbacks);
    if (arguments->movable)
        printf("moved      %" PRIu64 " bytes in %" PRIu64 " moves to open %" PRIu64 " holes\n", result->moved_bytes,
               result->moves, result->holes);
    printf("time       %.1f ns an operation, the median of %u runs (%.1f to %.1f)\n", outcome->ns_per_op[0],
           outcome->runs, outcome->ns_per_op[1], outcome->ns_per_op[2]);
}

static int replay_file(const struct arguments *arguments)
{
    static struct setting setting; /* both large for a stack */
    static struct outcome outcome;
    struct spw__alloc_log log;
    int rc = spw__alloc_log_read(arguments->file, arguments->place, &log);
    if (rc != SPW_OK) {
        fprintf(stderr, "bench_replay: %s: %s\n", arguments->file, spw_error_detail()->message);
        return rc == SPW_EINVAL ? 2 : 1;
    }
    int status = choose_pools(arguments, &log, &setting);
    rc = status == 0 ? run(&log, &setting, &outcome) : SPW_OK;
    if (rc != SPW_OK) {
        fprintf(stderr, "bench_replay: %s: %s\n", arguments->file, spw_strerror(rc));
        status = 1;
    } else if (status == 0 && arguments->json) {
        print_json(&log, &outcome);
    } else if (status == 0) {
        print_text(arguments, &log, &outcome);
    }
    spw__alloc_log_finish(&log);
    return status;
}

int main(int argc, char *argv[])
{
    struct arguments arguments = {.file = NULL};
    int status = read_arguments(argc, argv, &arguments);
    if (status == 0 && arguments.help)
        fputs(help, stdout);
    else if (status == 0)
        status = replay_file(&arguments);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "bench_replay: cannot write to standard output\n");
        return 1;
    }
    return status;
}
