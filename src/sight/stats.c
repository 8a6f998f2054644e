/* Statistics: the snapshot, and the dump's choice of format. Neighbours: stats_text.c, stats_json.c. */
#include "src/sight/stats.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "src/core/loss.h"
#include "src/core/manager.h"

static uint64_t sum(const spw_manager *manager, unsigned which)
{
    return spw__counter_sum(&manager->counters, which);
}

static void fill_gate(spw_tier_stats *stats, const struct spw__gate *gate)
{
    stats->budget_bytes = atomic_load(&gate->budget);
    stats->committed_bytes = atomic_load(&gate->committed);
    stats->peak_bytes = atomic_load(&gate->peak);
    stats->overbooked_bytes =
        stats->committed_bytes > stats->budget_bytes ? stats->committed_bytes - stats->budget_bytes : 0;
    stats->free_bytes =
        stats->budget_bytes > stats->committed_bytes ? stats->budget_bytes - stats->committed_bytes : 0;
}

static void fill_memory_tier(spw_manager *manager, spw_tier tier, spw_tier_stats *stats)
{
    const unsigned first = SPW__CORE_TIERS + (unsigned)tier * SPW__TIER_COUNTERS;
    /* What threads cache is in nobody's hands: taken back, so that committed is what the engine holds. */
    (void)spw__tier_drain(&manager->tiers[tier]);
    fill_gate(stats, &manager->root.gates[tier]);
    stats->largest_free_bytes = spw__tier_largest_free(&manager->tiers[tier]);
    stats->allocs = sum(manager, first + SPW__TIER_ALLOCS);
    stats->alloc_bytes = sum(manager, first + SPW__TIER_ALLOC_BYTES);
    stats->fallback_allocs = sum(manager, first + SPW__TIER_FALLBACKS);
    stats->fail_budget = sum(manager, first + SPW__TIER_FAIL_BUDGET);
    stats->fail_fragmented = sum(manager, first + SPW__TIER_FAIL_FRAGMENTED);
    stats->admits = sum(manager, SPW__CORE_ADMITS + (unsigned)tier);
    stats->admit_bytes = sum(manager, SPW__CORE_ADMIT_BYTES + (unsigned)tier);
    stats->spill_bytes = sum(manager, SPW__CORE_SPILL_BYTES + (unsigned)tier);
    stats->drop_bytes = sum(manager, SPW__CORE_DROP_BYTES + (unsigned)tier);
    stats->headroom_bytes = sum(manager, SPW__CORE_HEADROOM_BYTES + (unsigned)tier);
    stats->holes = sum(manager, SPW__CORE_HOLES + (unsigned)tier);
    stats->hole_bytes = sum(manager, SPW__CORE_HOLE_BYTES + (unsigned)tier);
    stats->reserved_bytes = spw__reservations_look(manager, tier).bytes;
    stats->overbooks = sum(manager, SPW__CORE_OVERBOOKS + (unsigned)tier);
    stats->overbook_bytes = sum(manager, SPW__CORE_OVERBOOK_BYTES + (unsigned)tier);
    stats->external_bytes = spw__external_bytes(manager, tier);
    stats->reclaims = sum(manager, SPW__CORE_RECLAIMS + (unsigned)tier);
    stats->reclaim_bytes = sum(manager, SPW__CORE_RECLAIM_BYTES + (unsigned)tier);
    const struct spw__raw_usage raw = spw__raw_usage(&manager->raw, tier);
    stats->raw_bytes = raw.live_bytes;
    stats->raw_peak_bytes = raw.peak_bytes;
    stats->raw_allocs = raw.allocs;
}

static void fill_edges(spw_manager *manager, spw_stats *stats)
{
    for (unsigned from = 0; from < SPW_TIER_COUNT; from++)
        for (unsigned to = 0; to < SPW_TIER_COUNT; to++) {
            const unsigned at = SPW__CORE_MOVER + SPW__MOVER_EDGES + 3 * (from * SPW_TIER_COUNT + to);
            stats->edges[from][to] = (spw_edge_stats){.copies = sum(manager, at), .bytes = sum(manager, at + 1),
                                                      .ns = sum(manager, at + 2)};
        }
}

int spw_stats_snapshot(spw_manager *manager, spw_stats *out)
{
    if (!manager || !out || out->struct_size < SPW__SIZED_FIRST(spw_stats, device_lost))
        return spw__fail(SPW_EINVAL, "spw_stats_snapshot: manager or stats is NULL, or stats->struct_size is %zu, not "
                                     "%zu; use SPW_STATS_INIT", out ? out->struct_size : 0, sizeof *out);
    const int rc = spw__check_process(manager);
    if (rc != SPW_OK)
        return rc;
    spw_stats filled = SPW_STATS_INIT, *const stats = &filled;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        if (manager->tiers[tier].present)
            fill_memory_tier(manager, tier, &stats->tiers[tier]);
    if (manager->store)
        fill_gate(&stats->tiers[SPW_TIER_DISK], &manager->root.gates[SPW_TIER_DISK]);
    fill_gate(&stats->tiers[SPW_TIER_META], &manager->meta.gate);
    fill_edges(manager, stats);
    stats->disk_written_bytes = sum(manager, SPW__CORE_MOVER + SPW__MOVER_DISK_WRITTEN);
    stats->disk_read_bytes = sum(manager, SPW__CORE_MOVER + SPW__MOVER_DISK_READ);
    stats->disk_allocated_bytes = manager->store ? spw__store_file_bytes(manager->store) : 0;
    stats->waits = sum(manager, SPW__CORE_WAITS);
    stats->wait_ns = sum(manager, SPW__CORE_WAIT_NS);
    stats->wait_timeouts = sum(manager, SPW__CORE_WAIT_TIMEOUTS);
    stats->spill_failures = sum(manager, SPW__CORE_SPILL_FAILURES);
    stats->corrupt_pieces = sum(manager, SPW__CORE_MOVER + SPW__MOVER_CORRUPT);
    spw__mutex_lock(&manager->handles.lock);
    stats->buffers = manager->handles.live;
    spw__mutex_unlock(&manager->handles.lock);
    stats->io_is_uring = manager->store && spw__mover_io_is_uring(manager->mover);
    stats->io_is_direct = manager->store && spw__store_is_direct(manager->store);
    stats->meta_resident_bytes = spw__meta_resident_bytes(&manager->meta);
    stats->tasks = atomic_load(&manager->arbiter.n_tasks);
    stats->retries = sum(manager, SPW__CORE_RETRIES);
    stats->splits = sum(manager, SPW__CORE_SPLITS);
    stats->waits_chosen = sum(manager, SPW__CORE_WAITS_CHOSEN);
    stats->spills_chosen = sum(manager, SPW__CORE_SPILLS_CHOSEN);
    stats->reloaded_within_1s_bytes = sum(manager, SPW__CORE_RELOADED_SOON_BYTES);
    stats->device_lost = spw__loss_of(manager, SPW_TIER_DEVICE);
    /* Never beyond what either side knows: the caller's size is kept, and so is what a newer header has behind it. */
    stats->struct_size = out->struct_size;
    memcpy(out, stats, stats->struct_size < sizeof *stats ? stats->struct_size : sizeof *stats);
    return SPW_OK;
}

void spw__outf(struct spw__out *out, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (out->rc != 0)
        return;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0)
        out->rc = out->writer(out->arg, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

int spw_stats_dump(spw_manager *manager, spw_stats_format format, spw_writer writer, void *arg)
{
    spw_stats stats = SPW_STATS_INIT;
    struct spw__out out = {.writer = writer, .arg = arg};
    if (!writer || (format != SPW_STATS_TEXT && format != SPW_STATS_JSON))
        return spw__fail(SPW_EINVAL, "spw_stats_dump: writer is NULL, or format %d is not known", (int)format);
    struct spw__group_list groups;
    int rc = spw_stats_snapshot(manager, &stats);
    if (rc == SPW_OK)
        rc = spw__groups_list(manager, &groups);
    if (rc != SPW_OK)
        return rc;
    if (format == SPW_STATS_TEXT)
        spw__stats_text(manager, &stats, &groups, &out);
    else
        spw__stats_json(manager, &stats, &groups, &out);
    spw__groups_list_finish(manager, &groups);
    return out.rc == 0 ? SPW_OK : spw__fail(SPW_EIO, "spw_stats_dump: the writer returned %d", out.rc);
}
