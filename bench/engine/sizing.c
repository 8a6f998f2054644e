/* The plan of a join. Neighbours: join.c (asks for it), hash.c (how many rows fit into how many bytes), rows.h. */
#include "sizing.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "rows.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

#define CHUNK_MIN      (16 * KIB)
#define CHUNK_MAX      (1 * MIB)
#define WORK_MAX       (64 * MIB)  /* a larger hash table only has more cache misses */
#define WORK_MIN       (16 * CHUNK_MIN)
#define TABLE_MAX      (16 * MIB)  /* what a partition's hash table is aimed at, memory permitting */
#define FANOUT_MIN     8u          /* a chunk is at most an eighth of the working memory */
#define GROUP_ROWS_MIN 1024u
#define META_DEFAULT   (64 * MIB)
#define META_BUFFER    512u        /* metadata of a buffer, generously */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t eng_tier_bytes(const spw_spec *spec, spw_tier tier)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < spec->n_pools[tier]; i++)
        total += spec->pools[tier][i].size_bytes;
    return total;
}

static unsigned cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : (unsigned)n;
}

static uint64_t smallest_tier(const spw_spec *spec)
{
    uint64_t smallest = UINT64_MAX;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++) {
        uint64_t bytes = eng_tier_bytes(spec, (spw_tier)tier);
        if (bytes > 0)
            smallest = min_u64(smallest, bytes);
    }
    return smallest;
}

/* The largest pool of a tier, since working memory is contiguous, less staging where that is paid there. */
static uint64_t usable_bytes(const struct eng_plan *plan, const spw_spec *spec, spw_tier tier, uint64_t *limit)
{
    const spw_spec_pool *largest = &spec->pools[tier][0];
    for (uint32_t i = 1; i < spec->n_pools[tier]; i++) {
        if (spec->pools[tier][i].size_bytes > largest->size_bytes)
            largest = &spec->pools[tier][i];
    }
    int pays = tier == SPW_TIER_PINNED_HOST || (tier == SPW_TIER_HOST && spec->n_pools[SPW_TIER_PINNED_HOST] == 0);
    uint64_t staging = pays ? plan->staging_bytes : 0;
    *limit = largest->limit_bytes == 0 ? UINT64_MAX : largest->limit_bytes;
    return largest->size_bytes > staging ? largest->size_bytes - staging : 0;
}

/* Chunks made on the device have to fit there, as they are made: without a disk it is chosen only where there is room to
 * spare, twice the tables in all tiers. */
static int device_suffices(const struct eng_plan *plan, const spw_spec *spec, unsigned threads,
                           const struct eng_source sources[ENG_SIDES])
{
    uint64_t limit, memory = 0, tables = 0;
    if (spec->n_pools[SPW_TIER_DEVICE] == 0)
        return 0;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++)
        memory += eng_tier_bytes(spec, (spw_tier)tier);
    for (unsigned side = 0; side < ENG_SIDES; side++)
        tables += (uint64_t)sources[side].rows * eng_source_row_bytes(&sources[side]);
    if (spec->n_folders == 0 && memory / 2 < tables)
        return 0;
    return usable_bytes(plan, spec, SPW_TIER_DEVICE, &limit) / (threads != 0 ? threads : cpu_count()) >= ENG_WORK_MIN &&
           limit >= WORK_MIN;
}

static int choose_work(struct eng_plan *plan, const spw_spec *spec, enum eng_work work, unsigned threads,
                       const struct eng_source sources[ENG_SIDES], struct eng_error *error)
{
    if (spec->n_pools[SPW_TIER_HOST] > 0)
        plan->work = SPW_HOST;
    else if (spec->n_pools[SPW_TIER_PINNED_HOST] > 0)
        plan->work = SPW_PINNED_HOST;
    else
        return eng_fail(error, ENG_USAGE, "%s: this engine wants host memory, --host-limit or --pinned-limit, beside a "
                        "device", smallest_tier(spec) == UINT64_MAX ? "no memory at all" : "only a device tier");
    if (work == ENG_WORK_DEVICE && spec->n_pools[SPW_TIER_DEVICE] == 0)
        return eng_fail(error, ENG_USAGE, "--work device: there is no device tier without --device-limit");
    if (work == ENG_WORK_DEVICE || (work == ENG_WORK_AUTO && device_suffices(plan, spec, threads, sources)))
        plan->work = SPW_DEVICE;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++) {
        uint64_t bytes = eng_tier_bytes(spec, (spw_tier)tier);
        if (bytes > 0 && bytes < ENG_TIER_MIN)
            return eng_fail(error, ENG_USAGE, "%s is given %" PRIu64 " bytes; the smallest workable budget of a tier "
                            "is %" PRIu64 " (or 0: no such tier)", spw_tier_name((spw_tier)tier), bytes, ENG_TIER_MIN);
    }
    return 0;
}

static int choose_threads(struct eng_plan *plan, uint64_t usable, unsigned threads, struct eng_error *error)
{
    uint64_t possible = usable / ENG_WORK_MIN;
    plan->threads = threads != 0 ? threads : (unsigned)max_u64(1, min_u64(cpu_count(), possible));
    if (possible >= plan->threads)
        return 0;
    const char *name = spw_tier_name(SPW_PLACE_TIER(plan->work)), *some = plan->threads == 1 ? "" : "s";
    const char *wants = plan->threads == 1 ? "s" : "";
    if (plan->work == SPW_DEVICE)
        return eng_fail(error, ENG_USAGE, "the budget is too small: %u thread%s want%s %" PRIu64 " bytes of device, "
                        "and there are %" PRIu64 "; the smallest is --device-limit with 1536K for each thread, beside "
                        "--pinned-limit 1M or --host-limit 1M", plan->threads, some, wants,
                        plan->threads * ENG_WORK_MIN, usable);
    return eng_fail(error, ENG_USAGE, "the budget is too small: %u thread%s want%s %" PRIu64 " bytes of %s beside "
                    "staging (%" PRIu64 " each), and there are %" PRIu64 "; the smallest is %s alone with 2M for each "
                    "thread (staging, a quarter, included)", plan->threads, some, wants,
                    plan->threads * ENG_WORK_MIN, name, ENG_WORK_MIN, usable, name);
}

void eng_plan_scatter(const struct eng_plan *plan, uint64_t build_rows, uint32_t least, uint32_t *fanout,
                      uint32_t *chunk_bytes)
{
    /* A fifth more than the mean, since partitions differ in size. */
    uint64_t wanted = eng_hash_bytes(build_rows + build_rows / 5) / min_u64(plan->work_bytes, TABLE_MAX) + 1;
    uint64_t most = min_u64(max_u64(plan->work_bytes / CHUNK_MIN, 2), ENG_FANOUT_MAX);
    uint64_t n = min_u64(max_u64(wanted, least), most);
    uint64_t chunk = min_u64(plan->work_bytes / n, CHUNK_MAX);
    *fanout = (uint32_t)n;
    *chunk_bytes = (uint32_t)chunk;
}

/* The number of buffers alive at once must fit into the metadata budget; where it does not, chunks get larger. */
static int fit_metadata(struct eng_plan *plan, const spw_spec *spec, const struct eng_source sources[ENG_SIDES],
                        struct eng_error *error)
{
    uint64_t meta = spec->meta_bytes != 0 ? spec->meta_bytes : META_DEFAULT;
    uint64_t most = meta / META_BUFFER, groups = 0, bytes = 0, chunks;
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        groups += (uint64_t)sources[side].rows / plan->group_rows + 1;
        bytes += (uint64_t)sources[side].rows * eng_source_row_bytes(&sources[side]);
    }
    for (;;) {
        chunks = bytes / plan->chunk_bytes + (uint64_t)plan->threads * plan->fanout * ENG_SIDES;
        if (max_u64(chunks, groups * ENG_COLUMNS) <= most || plan->fanout <= FANOUT_MIN)
            break;
        plan->fanout /= 2;
        plan->chunk_bytes = (uint32_t)min_u64(plan->work_bytes / plan->fanout, CHUNK_MAX);
    }
    uint64_t buffers = max_u64(chunks, groups * ENG_COLUMNS);
    if (buffers <= most)
        return 0;
    return eng_fail(error, ENG_USAGE, "the metadata budget is too small: %" PRIu64 " buffers want --spec 'meta=%" PRIu64
                    "M' or larger memory budgets", buffers, buffers * META_BUFFER / MIB + 1);
}

/* A hash table of all build rows, but not above what pays: memory that is touched for nothing costs time too. */
static uint64_t work_wanted(const struct eng_source *build)
{
    uint64_t rows = (uint64_t)build->rows;
    return max_u64(min_u64(eng_hash_bytes(rows + rows / 5), WORK_MAX), WORK_MIN);
}

int eng_plan_make(struct eng_plan *plan, const spw_spec *spec, enum eng_work work, unsigned threads,
                  const struct eng_source sources[ENG_SIDES], struct eng_error *error)
{
    uint64_t limit, row_bytes = 0;
    memset(plan, 0, sizeof *plan);
    uint64_t smallest = smallest_tier(spec);
    uint64_t piece = spec->piece_bytes != 0 ? spec->piece_bytes : min_u64(16 * MIB, smallest / 8);
    plan->staging_bytes = spec->staging_bytes != 0 ? spec->staging_bytes : min_u64(64 * MIB, smallest / 4);
    if (choose_work(plan, spec, work, threads, sources, error) != 0)
        return -1;
    uint64_t usable = usable_bytes(plan, spec, SPW_PLACE_TIER(plan->work), &limit);
    if (choose_threads(plan, usable, threads, error) != 0)
        return -1;
    uint64_t share = usable / 2 / plan->threads;
    plan->work_bytes = min_u64(min_u64(share / 8 * 5, work_wanted(&sources[ENG_PARTSUPP])), limit) / 4096 * 4096;
    if (plan->work_bytes < WORK_MIN)
        return eng_fail(error, ENG_USAGE, "the largest pool of %s takes requests of %" PRIu64 " bytes at most; %" PRIu64
                        " are wanted", spw_tier_name(SPW_PLACE_TIER(plan->work)), limit, WORK_MIN);
    eng_plan_scatter(plan, (uint64_t)sources[ENG_PARTSUPP].rows, FANOUT_MIN + 4 * (plan->threads - 1), &plan->fanout,
                     &plan->chunk_bytes);
    plan->chunk_bytes = (uint32_t)min_u64(plan->chunk_bytes, max_u64(piece, CHUNK_MIN));

    /* A group is mapped as a whole, one buffer a column, and two of them on the device; none of the buffers above a
     * chunk's best size. */
    for (unsigned side = 0; side < ENG_SIDES; side++)
        row_bytes = max_u64(row_bytes, eng_source_row_bytes(&sources[side]));
    uint64_t groups = plan->work == SPW_DEVICE ? 2 : 1;
    uint64_t rows = min_u64(share / 4 / groups / row_bytes, min_u64(CHUNK_MAX, max_u64(piece, CHUNK_MIN)) / 8);
    plan->group_rows = (uint32_t)max_u64(min_u64(rows, limit / 8) / GROUP_ROWS_MIN * GROUP_ROWS_MIN, GROUP_ROWS_MIN);
    return fit_metadata(plan, spec, sources, error);
}
