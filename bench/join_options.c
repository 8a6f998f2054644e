/* Flags of bench_join. Neighbours: bench_join.c (uses them), engine/sizing.c (judges the budgets). */
#include "join_options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/sysmem.h"

#define THREADS_MAX 256u

const char join_help[] =
    "usage: bench_join --scale-factor F [--write DIR] [options]\n"
    "       bench_join --lineitem DIR --partsupp DIR [options]\n"
    "\n"
    "Joins LINEITEM with PARTSUPP (TPC-H) within fixed memory budgets and prints\n"
    "  SELECT count(*), sum(l_extendedprice), sum(ps_supplycost*l_quantity), sum(ps_availqty)\n"
    "  FROM lineitem JOIN partsupp ON l_partkey=ps_partkey AND l_suppkey=ps_suppkey\n"
    "\n"
    "input\n"
    "  --scale-factor F     make both tables by the TPC-H rules; fractions allowed (0.01)\n"
    "  --write DIR          keep what was made, as DIR/lineitem and DIR/partsupp; DIR is created\n"
    "                       when only it is missing\n"
    "  --lineitem DIR       folder of columns: DIR/l_partkey/shard_0000.npy, ...\n"
    "  --partsupp DIR       the same with ps_partkey ps_suppkey ps_supplycost ps_availqty;\n"
    "                       int32 or int64 each, other columns are ignored\n"
    "budgets (bytes, 64M, 1G; 0: no such tier)\n"
    "  --device-limit N     device memory; without a GPU, together with --driver sim\n"
    "  --pinned-limit N     pinned host memory\n"
    "  --host-limit N       pageable host memory. No limit at all: half of the memory\n"
    "                       that this process may use, as host\n"
    "  --disk DIR[:SIZE]    spill folder and quota, split at the last colon; may be repeated\n"
    "                       with other folders. Any name; one with a colon in it wants a size\n"
    "                       (0: no quota). A missing folder is created, and removed at the end.\n"
    "                       Without --disk everything must fit into memory\n"
    "  --spec STRING        configuration string of the library; a flag overrides the same\n"
    "                       part of it\n"
    "  The smallest budget: host alone (or pinned alone) with 2M for each thread, so 2M with\n"
    "  --threads 1, 4M with --threads 2; every other tier is 0 or at least 1M. All three\n"
    "  tiers: device 1M, pinned 1M, host 1536K for each thread. Device alone does not do.\n"
    "  With --work device: device 1536K for each thread, and pinned or host 1M.\n"
    "running\n"
    "  --mode hold          both tables are held in buffers before the join (the only mode)\n"
    "  --threads N          1 to 256; not given: one a CPU, fewer when budgets are small\n"
    "  --io KIND            auto, uring, threads\n"
    "  --driver KIND        auto, cuda, sim (with a seed: --spec 'driver=sim:SEED')\n"
    "  --work PLACE         where rows are worked on: host, device (a simulated one only), or\n"
    "                       auto: device where it has 1536K for each thread and, without\n"
    "                       --disk, all tiers together hold twice the tables\n"
    "  --verify             afterwards, compare with a sort-merge join (outside the budgets)\n"
    "  --json               the result as one JSON object\n"
    "  --help               this text\n"
    "A flag that is given twice counts as given last, but for --disk.\n"
    "\n"
    "exit status: 0 the answer was printed (and verified); 2 bad arguments: budgets below the\n"
    "smallest and a GPU that is not there among them; 1 everything else: tables that want --disk\n"
    "too; 128+N ended by signal N (INT, TERM, HUP), with nothing left on disk\n";

/* What the command line said, before it is checked as a whole. */
struct raw {
    const char *scale_factor, *mode, *threads, *io, *driver, *work, *spec;
    const char *limits[3]; /* by spw_tier */
    const char *disks[SPW_SPEC_FOLDERS_MAX];
    unsigned n_disks;
};

const char *join_parse_size(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "KMGT";
    static const char malformed[] = "a size is wanted (1024, 64M, 1G)", too_large[] = "that is too large for a size";
    int exceeds = 0;
    uint64_t value = 0;
    unsigned shift = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        exceeds |= value > (UINT64_MAX - 9) / 10;
        value = value * 10 + (uint64_t)(*at - '0');
    }
    if (at == text)
        return malformed;
    if (*at != 0) {
        const char *suffix = strchr(suffixes, *at);
        if (suffix == NULL || at[1] != 0)
            return malformed;
        shift = 10 * (unsigned)(suffix - suffixes + 1);
    }
    if (exceeds || value > (uint64_t)INT64_MAX >> shift)
        return too_large;
    *bytes = value << shift;
    return NULL;
}

static int usage(struct eng_error *error, const char *flag, const char *value, const char *wanted)
{
    return eng_fail(error, ENG_USAGE, "%s %s: %s", flag, value, wanted);
}

/* Sets the text of a flag; NULL when there is no such flag with a value. */
static const char **find_value(struct raw *raw, struct join_options *options, const char *name, size_t length)
{
    const struct {
        const char *name;
        const char **value;
    } flags[] = {
        {"--lineitem", &options->lineitem},    {"--partsupp", &options->partsupp},
        {"--write", &options->write},          {"--scale-factor", &raw->scale_factor},
        {"--mode", &raw->mode},                {"--device-limit", &raw->limits[SPW_TIER_DEVICE]},
        {"--threads", &raw->threads},          {"--pinned-limit", &raw->limits[SPW_TIER_PINNED_HOST]},
        {"--io", &raw->io},                    {"--host-limit", &raw->limits[SPW_TIER_HOST]},
        {"--driver", &raw->driver},            {"--spec", &raw->spec},
        {"--work", &raw->work},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strlen(flags[i].name) == length && memcmp(flags[i].name, name, length) == 0)
            return flags[i].value;
    }
    if (length == 6 && memcmp(name, "--disk", 6) == 0 && raw->n_disks < SPW_SPEC_FOLDERS_MAX)
        return &raw->disks[raw->n_disks++];
    return NULL;
}

static int read_flags(int argc, char *const argv[], struct raw *raw, struct join_options *options,
                      struct eng_error *error)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        const char *equals = strchr(name, '=');
        if (strcmp(name, "--verify") == 0) {
            options->verify = 1;
        } else if (strcmp(name, "--json") == 0) {
            options->json = 1;
        } else if (strcmp(name, "--help") == 0) {
            options->help = 1;
        } else {
            size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
            const char **value = find_value(raw, options, name, length);
            if (value == NULL && raw->n_disks == SPW_SPEC_FOLDERS_MAX && length == 6 && memcmp(name, "--disk", 6) == 0)
                return eng_fail(error, ENG_USAGE, "--disk may be given %u times", SPW_SPEC_FOLDERS_MAX);
            if (value == NULL)
                return eng_fail(error, ENG_USAGE, "unknown argument '%s' (--help lists all)", name);
            if (equals == NULL && i + 1 == argc)
                return eng_fail(error, ENG_USAGE, "%s wants a value", name);
            *value = equals != NULL ? equals + 1 : argv[++i];
            if (**value == 0)
                return eng_fail(error, ENG_USAGE, "%.*s wants a value", (int)length, name);
        }
    }
    return 0;
}

static int read_input(const struct raw *raw, struct join_options *options, struct eng_error *error)
{
    char *end;
    if (raw->mode != NULL && strcmp(raw->mode, "hold") != 0)
        return usage(error, "--mode", raw->mode, "the only mode is hold");
    if (raw->scale_factor == NULL) {
        if (options->lineitem == NULL && options->partsupp == NULL)
            return eng_fail(error, ENG_USAGE,
                            "no input: --scale-factor F, or --lineitem DIR and --partsupp DIR (--help lists all)");
        if (options->lineitem == NULL || options->partsupp == NULL)
            return eng_fail(error, ENG_USAGE, "%s is missing: a join wants both tables",
                            options->lineitem == NULL ? "--lineitem DIR" : "--partsupp DIR");
        if (options->write != NULL)
            return eng_fail(error, ENG_USAGE, "--write keeps generated tables: it wants --scale-factor");
        return 0;
    }
    if (options->lineitem != NULL || options->partsupp != NULL)
        return eng_fail(error, ENG_USAGE, "--scale-factor and folders of columns exclude each other");
    errno = 0;
    options->scale_factor = strtod(raw->scale_factor, &end);
    if (end == raw->scale_factor || *end != 0 || errno != 0 || !isfinite(options->scale_factor) ||
        options->scale_factor <= 0)
        return usage(error, "--scale-factor", raw->scale_factor, "a number above 0 is wanted");
    return 0;
}

static int read_threads(const struct raw *raw, struct join_options *options, struct eng_error *error)
{
    uint64_t threads;
    if (raw->threads == NULL)
        return 0;
    if (join_parse_size(raw->threads, &threads) != NULL || threads < 1 || threads > THREADS_MAX)
        return usage(error, "--threads", raw->threads, "a number from 1 to 256 is wanted");
    options->threads = (unsigned)threads;
    return 0;
}

/* Which of three words text is; NULL leaves *kind as it is. */
static int read_kind(const char *flag, const char *text, const char *const words[3], unsigned *kind,
                     struct eng_error *error)
{
    unsigned i = 0;
    if (text == NULL)
        return 0;
    while (i < 3 && strcmp(text, words[i]) != 0)
        i++;
    *kind = i;
    return i < 3 ? 0 : eng_fail(error, ENG_USAGE, "%s %s: %s, %s or %s is wanted", flag, text, words[0], words[1],
                                words[2]);
}

static int apply_kinds(const struct raw *raw, struct join_options *options, struct eng_error *error)
{
    static const char *const ios[3] = {"auto", "uring", "threads"};
    static const char *const drivers[3] = {"auto", "cuda", "sim"};
    static const char *const works[3] = {"auto", "host", "device"};
    if (raw->driver != NULL && strchr(raw->driver, ':') != NULL)
        return usage(error, "--driver", raw->driver, "a kind alone is wanted; a seed comes with --spec "
                                                     "'driver=sim:SEED' or the variable SPILLWAY_SIM_SEED");
    unsigned io = options->spec.io, driver = options->spec.driver, work = options->work;
    if (read_kind("--io", raw->io, ios, &io, error) != 0 ||
        read_kind("--driver", raw->driver, drivers, &driver, error) != 0 ||
        read_kind("--work", raw->work, works, &work, error) != 0)
        return -1;
    options->spec.io = (spw_io_kind)io;
    options->spec.driver = (spw_driver_kind)driver;
    options->work = (enum eng_work)work;
    return 0;
}

static int apply_limits(const struct raw *raw, spw_spec *spec, struct eng_error *error)
{
    static const char *const flags[3] = {"--device-limit", "--pinned-limit", "--host-limit"};
    int any = 0;
    for (unsigned tier = 0; tier < 3; tier++) {
        uint64_t bytes;
        if (raw->limits[tier] != NULL) {
            const char *wrong = join_parse_size(raw->limits[tier], &bytes);
            if (wrong != NULL)
                return usage(error, flags[tier], raw->limits[tier], wrong);
            spec->n_pools[tier] = bytes > 0;
            spec->pools[tier][0] = (spw_spec_pool){bytes, 0};
            any = 1;
        }
        any |= spec->n_pools[tier] > 0;
    }
    if (!any) {
        spec->n_pools[SPW_TIER_HOST] = 1;
        spec->pools[SPW_TIER_HOST][0] = (spw_spec_pool){eng_memory_allowed() / 2 / 4096 * 4096, 0};
    }
    return 0;
}

/* The same folder under two names would count its free space twice. */
static int is_same_folder(const spw_spec_folder *a, const spw_spec_folder *b)
{
    char names[2][4096];
    struct stat st[2];
    if (a->path_length == b->path_length && memcmp(a->path, b->path, a->path_length) == 0)
        return 1;
    (void)snprintf(names[0], sizeof names[0], "%.*s", (int)a->path_length, a->path);
    (void)snprintf(names[1], sizeof names[1], "%.*s", (int)b->path_length, b->path);
    return stat(names[0], &st[0]) == 0 && stat(names[1], &st[1]) == 0 && st[0].st_dev == st[1].st_dev &&
           st[0].st_ino == st[1].st_ino;
}

static int apply_disks(const struct raw *raw, spw_spec *spec, struct eng_error *error)
{
    if (raw->n_disks > 0)
        spec->n_folders = 0;
    for (unsigned i = 0; i < raw->n_disks; i++) {
        const char *text = raw->disks[i], *colon = strrchr(text, ':');
        spw_spec_folder *folder = &spec->folders[spec->n_folders++];
        folder->path = text;
        folder->path_length = colon != NULL ? (size_t)(colon - text) : strlen(text);
        folder->quota_bytes = 0;
        if (folder->path_length == 0)
            return usage(error, "--disk", text, "a folder is wanted");
        const char *wrong = colon != NULL ? join_parse_size(colon + 1, &folder->quota_bytes) : NULL;
        if (wrong != NULL)
            return eng_fail(error, ENG_USAGE, "--disk %s: behind the last colon, %s; 0: no quota", text, wrong);
    }
    for (uint32_t i = 0; i < spec->n_folders; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const spw_spec_folder *folder = &spec->folders[i];
            if (is_same_folder(folder, &spec->folders[j]))
                return eng_fail(error, ENG_USAGE, "the spill folder '%.*s' is named twice", (int)folder->path_length,
                                folder->path);
        }
    }
    return 0;
}

/* Folders whose names a configuration string cannot hold are shown in quotes. */
static int is_plain(const spw_spec_folder *folder)
{
    for (size_t i = 0; i < folder->path_length; i++) {
        if (strchr(" ,;'", folder->path[i]) != NULL)
            return 0;
    }
    return 1;
}

/* What a simulated device has from the environment, to stand behind the configuration. Returns what snprintf does. */
static size_t describe_environment(const struct raw *raw, const spw_spec *spec, char *text, size_t size)
{
    static const spw_device_model none;
    const int driver_open = spec->driver == SPW_DRIVER_AUTO && raw->driver == NULL;
    const char *driver = driver_open ? getenv("SPILLWAY_DRIVER") : NULL;
    const int simulated = spec->driver == SPW_DRIVER_SIM || (driver != NULL && strncmp(driver, "sim", 3) == 0);
    const int seeded = spec->sim_seed != 0 || (driver != NULL && strchr(driver, ':') != NULL);
    const char *model = memcmp(&spec->model, &none, sizeof none) == 0 ? getenv("SPILLWAY_MODEL") : NULL;
    const char *seed = seeded ? NULL : getenv("SPILLWAY_SIM_SEED");
    const char *const values[3] = {driver, model, seed};
    static const char *const names[3] = {"DRIVER", "MODEL", "SIM_SEED"};
    size_t used = 0;
    for (unsigned i = 0; simulated && i < 3; i++) {
        if (values[i] != NULL && values[i][0] != 0)
            used += (size_t)snprintf(used < size ? text + used : NULL, used < size ? size - used : 0,
                                     "; SPILLWAY_%s=%s", names[i], values[i]);
    }
    return used;
}

/* The configuration for people: a string of the library's where it can be one. */
static int describe(const struct raw *raw, struct join_options *options, struct eng_error *error)
{
    spw_spec shown = options->spec;
    size_t length = 1;
    int plain = 1;
    for (uint32_t i = 0; i < shown.n_folders; i++) {
        plain &= is_plain(&shown.folders[i]);
        length += shown.folders[i].path_length + 32;
    }
    if (!plain)
        shown.n_folders = 0;
    length += spw_spec_format(&shown, NULL, 0) + describe_environment(raw, &shown, NULL, 0);
    char *text = malloc(length);
    if (text == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory");
    size_t used = spw_spec_format(&shown, text, length);
    for (uint32_t i = 0; !plain && i < options->spec.n_folders; i++) {
        const spw_spec_folder *folder = &options->spec.folders[i];
        int n = snprintf(text + used, length - used, "%s'%.*s':%" PRIu64, i == 0 ? "; disk=" : ",",
                         (int)folder->path_length, folder->path, folder->quota_bytes);
        used += (size_t)n;
    }
    (void)describe_environment(raw, &shown, text + used, length - used);
    options->spec_text = text;
    return 0;
}

int join_options_parse(int argc, char *const argv[], struct join_options *options, struct eng_error *error)
{
    static const char nothing[] = "device=0; pinned=0; host=0; disk=0; meta=0; staging=0; piece=0";
    struct raw raw;
    memset(&raw, 0, sizeof raw);
    memset(options, 0, sizeof *options);
    if (read_flags(argc, argv, &raw, options, error) != 0)
        return -1;
    if (options->help)
        return 0;
    spw_spec_init(&options->spec);
    options->spec.n_pools[SPW_TIER_DEVICE] = 0; /* a tier that nobody names is absent */
    if (raw.spec != NULL) {
        int code = spw_spec_parse(raw.spec, &options->spec);
        if (code != 0) {
            (void)eng_fail_library(error, code, "--spec");
            error->status = ENG_USAGE;
            return -1;
        }
    }
    if (read_input(&raw, options, error) != 0 || read_threads(&raw, options, error) != 0 ||
        apply_kinds(&raw, options, error) != 0 || apply_limits(&raw, &options->spec, error) != 0 ||
        apply_disks(&raw, &options->spec, error) != 0)
        return -1;
    (void)snprintf(options->string, sizeof options->string, "%s%s%s", nothing, raw.io != NULL ? "; io=auto" : "",
                   raw.driver != NULL ? "; driver=auto" : "");
    return describe(&raw, options, error);
}

void join_options_finish(struct join_options *options)
{
    free(options->spec_text);
    options->spec_text = NULL;
}
