/* spillway plan: the pools that serve an allocation log with the least memory. Neighbour: pool/replay/plan.c (the
 * search). */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spillway/spillway.h>

#include "pool/replay/plan.h"
#include "src/cmd/cmd.h"

struct arguments {
    const char *file;
    const char *place; /* or NULL */
    uint32_t pools;
    bool json;
};

/* Where the pools of a log belong. RMM's and Umpire's do not say; what they log is device memory. */
static bool find_tier(const struct spw__alloc_log *log, spw_tier *out)
{
    const size_t length = strcspn(log->place, ":");
    *out = SPW_TIER_DEVICE;
    if (length == 0)
        return true;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++) {
        const char *const name = spw_tier_name((spw_tier)tier);
        *out = (spw_tier)tier;
        if (strlen(name) == length && memcmp(name, log->place, length) == 0)
            return true;
    }
    return false;
}

/* The bare form where it can say it, else a section. The text is the caller's to free; NULL: out of memory. */
static char *write_spec(const struct spw__plan *plan, spw_tier tier)
{
    static spw_spec spec; /* large for a stack */
    size_t room = 40 * (size_t)plan->n_pools + 1, used = 0;
    char *text = malloc(room);
    if (!text)
        return NULL;
    for (uint32_t i = 0; i < plan->n_pools; i++) {
        const spw_spec_pool *pool = &plan->pools[i];
        used += (size_t)snprintf(text + used, room - used, "%s%" PRIu64, i ? "," : "", pool->size_bytes);
        if (pool->limit_bytes)
            used += (size_t)snprintf(text + used, room - used, ":%" PRIu64, pool->limit_bytes);
    }
    if (tier == SPW_TIER_DEVICE && spw_spec_parse(text, &spec) == SPW_OK)
        return text;
    spw_spec_init_empty(&spec);
    spec.n_pools[tier] = plan->n_pools;
    memcpy(spec.pools[tier], plan->pools, plan->n_pools * sizeof plan->pools[0]);
    room = spw_spec_format(&spec, NULL, 0) + 1;
    free(text);
    text = malloc(room);
    if (text)
        (void)spw_spec_format(&spec, text, room);
    return text;
}

static void print_json(const struct spw__alloc_log *log, const struct spw__plan *plan, const char *spec)
{
    const double peak = (double)log->peak_live_bytes;
    printf("{\"spec\":\"%s\",\"pools\":%" PRIu32 ",\"range_bytes\":%" PRIu64 ",\"ratio\":%.6f,"
           "\"single_range_bytes\":%" PRIu64 ",\"single_ratio\":%.6f,\"peak_live_bytes\":%" PRIu64
           ",\"events\":%" PRIu64 ",\"unknown_frees\":%" PRIu64 ",\"runs\":%" PRIu32 "}\n",
           spec, plan->n_pools, plan->total_bytes, (double)plan->total_bytes / peak, plan->single_bytes,
           (double)plan->single_bytes / peak, log->peak_live_bytes, log->events, log->unknown_frees, plan->runs);
}

static void print_text(const char *file, const struct spw__alloc_log *log, const struct spw__plan *plan,
                       const char *spec)
{
    char text[CMD_SIZE_MAX];
    const double peak = (double)log->peak_live_bytes;
    printf("log      %s: %s, %" PRIu64 " events\n", file, log->form, log->events);
    if (log->unknown_frees || log->lost_frees || log->logged_failures)
        printf("         %" PRIu64 " frees of unknown pointers, %" PRIu64 " lost frees, %" PRIu64 " logged failures\n",
               log->unknown_frees, log->lost_frees, log->logged_failures);
    printf("peak     %s live at once\n", cmd_size(log->peak_live_bytes, text));
    printf("single   %s in one pool: range/peak %.3f\n", cmd_size(plan->single_bytes, text),
           (double)plan->single_bytes / peak);
    printf("planned  %s in %" PRIu32 " pool%s: range/peak %.3f, found in %" PRIu32 " replays\n",
           cmd_size(plan->total_bytes, text), plan->n_pools, plan->n_pools == 1 ? "" : "s",
           (double)plan->total_bytes / peak, plan->runs);
    printf("spec     %s\n", spec);
}

static enum cmd_status read_arguments(int argc, char *const argv[], struct arguments *arguments)
{
    *arguments = (struct arguments){.pools = SPW_SPEC_POOLS_MAX};
    for (int i = 0; i < argc; i++) {
        const char *const name = argv[i];
        const bool pools = strcmp(name, "--pools") == 0, place = strcmp(name, "--place") == 0;
        if ((pools || place) && ++i == argc)
            return cmd_fail(CMD_USAGE, "plan", "%s wants a value", name);
        if (pools) {
            char *end;
            const long n = strtol(argv[i], &end, 10);
            if (argv[i][0] < '0' || argv[i][0] > '9' || *end != '\0' || n < 1 || n > (long)SPW_SPEC_POOLS_MAX)
                return cmd_fail(CMD_USAGE, "plan", "--pools %s: a number from 1 to %u is wanted", argv[i],
                                SPW_SPEC_POOLS_MAX);
            arguments->pools = (uint32_t)n;
        } else if (place) {
            arguments->place = argv[i];
        } else if (strcmp(name, "--json") == 0) {
            arguments->json = true;
        } else if (name[0] == '-' || arguments->file) {
            return cmd_fail(CMD_USAGE, "plan", "unknown argument '%s' (spillway --help lists all)", name);
        } else {
            arguments->file = name;
        }
    }
    return arguments->file ? CMD_DONE : cmd_fail(CMD_USAGE, "plan", "the file of an allocation log is wanted");
}

static enum cmd_status plan_log(const struct arguments *arguments, const struct spw__alloc_log *log)
{
    static struct spw__plan plan; /* large for a stack */
    struct spw__replay *replay;
    spw_tier tier;
    if (!find_tier(log, &tier))
        return cmd_fail(CMD_USAGE, "plan", "%s: a log of %s: only memory is cut into pools", arguments->file,
                        log->place);
    int rc =
        spw__replay_create(log, tier == SPW_TIER_DEVICE ? SPW__REPLAY_GRAIN_DEVICE : SPW__REPLAY_GRAIN_HOST, &replay);
    if (rc == SPW_OK)
        rc = spw__plan_search(replay, arguments->pools, &plan);
    spw__replay_destroy(replay);
    char *spec = rc == SPW_OK ? write_spec(&plan, tier) : NULL;
    if (!spec)
        return cmd_fail(CMD_FAILED, "plan", "%s: %s", arguments->file, spw_strerror(rc == SPW_OK ? SPW_ENOMETA : rc));
    if (arguments->json)
        print_json(log, &plan, spec);
    else
        print_text(arguments->file, log, &plan, spec);
    free(spec);
    return CMD_DONE;
}

enum cmd_status cmd_plan(int argc, char *const argv[])
{
    struct arguments arguments;
    struct spw__alloc_log log;
    const enum cmd_status read = read_arguments(argc, argv, &arguments);
    if (read != CMD_DONE)
        return read;
    const int rc = spw__alloc_log_read(arguments.file, arguments.place, &log);
    if (rc != SPW_OK)
        return cmd_fail(rc == SPW_EINVAL ? CMD_USAGE : CMD_FAILED, "plan", "%s: %s", arguments.file,
                        spw_error_detail()->message);
    const enum cmd_status status = plan_log(&arguments, &log);
    spw__alloc_log_finish(&log);
    return status;
}
