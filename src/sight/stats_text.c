/* The text dump: aligned, in human units, only tiers and edges that exist. */
#include "src/sight/stats.h"

#include <stdio.h>

#include "src/core/external.h"
#include "src/core/manager.h"

struct spw__human spw__human(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct spw__human result;
    double value = (double)bytes;
    unsigned unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    (void)snprintf(result.text, sizeof result.text, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return result;
}

static void tiers_text(const spw_stats *stats, struct spw__out *out)
{
    spw__outf(out, "%-12s %11s %11s %11s %11s %11s %11s %11s %11s\n", "tier", "budget", "committed", "peak", "raw",
              "admitted", "spilled", "dropped", "largest");
    for (unsigned tier = 0; tier < SPW_TIER_COUNT; tier++) {
        const spw_tier_stats *at = &stats->tiers[tier];
        if (at->budget_bytes == 0 && at->peak_bytes == 0)
            continue;
        spw__outf(out, "%-12s %11s %11s %11s %11s %11s %11s %11s %11s\n", spw_tier_name((spw_tier)tier),
                  spw__human(at->budget_bytes).text, spw__human(at->committed_bytes).text,
                  spw__human(at->peak_bytes).text,
                  spw__human(at->raw_bytes).text, spw__human(at->admit_bytes).text, spw__human(at->spill_bytes).text,
                  spw__human(at->drop_bytes).text, spw__human(at->largest_free_bytes).text);
    }
}

/* Only tiers that have something to show. */
static void reservations_text(const spw_stats *stats, struct spw__out *out)
{
    for (unsigned tier = 0; tier < SPW_TIER_COUNT; tier++) {
        const spw_tier_stats *at = &stats->tiers[tier];
        if (at->reserved_bytes || at->overbooks || at->overbooked_bytes)
            spw__outf(out, "%s: %s reserved; overbooked now %s, %llu times by %s in all\n",
                      spw_tier_name((spw_tier)tier), spw__human(at->reserved_bytes).text,
                      spw__human(at->overbooked_bytes).text,
                      (unsigned long long)at->overbooks, spw__human(at->overbook_bytes).text);
    }
}

/* What others allocated, and what reclaimers freed. */
static void outside_text(spw_manager *manager, const spw_stats *stats, struct spw__out *out)
{
    struct spw__external_sum at = {.bytes = 0};
    while (spw__external_next(manager, &at))
        spw__outf(out, "%s: %s charged for \"%s\"\n", spw_tier_name(at.tier), spw__human(at.bytes).text, at.tag);
    for (unsigned tier = 0; tier < SPW_TIER_COUNT; tier++)
        if (stats->tiers[tier].reclaims)
            spw__outf(out, "%s: reclaimers freed %s in %llu calls\n", spw_tier_name((spw_tier)tier),
                      spw__human(stats->tiers[tier].reclaim_bytes).text,
                      (unsigned long long)stats->tiers[tier].reclaims);
}

static void edges_text(const spw_stats *stats, struct spw__out *out)
{
    spw__outf(out, "\n%-32s %10s %11s %13s\n", "edge", "copies", "bytes", "time summed");
    for (unsigned from = 0; from < SPW_TIER_META; from++)
        for (unsigned to = 0; to < SPW_TIER_META; to++) {
            const spw_edge_stats *edge = &stats->edges[from][to];
            char name[64];
            if (edge->copies == 0)
                continue;
            (void)snprintf(name, sizeof name, "copy-%s-to-%s", spw_tier_name((spw_tier)from),
                           spw_tier_name((spw_tier)to));
            spw__outf(out, "%-32s %10llu %11s %11.3f s\n", name, (unsigned long long)edge->copies,
                      spw__human(edge->bytes).text, (double)edge->ns / 1e9);
        }
}

void spw__stats_text(spw_manager *manager, const spw_stats *stats, const struct spw__group_list *groups,
                     struct spw__out *out)
{
    tiers_text(stats, out);
    reservations_text(stats, out);
    outside_text(manager, stats, out);
    spw__groups_text(groups, out);
    edges_text(stats, out);
    spw__outf(out, "\ndisk: %s written, %s read, %s allocated (%s%s)\n", spw__human(stats->disk_written_bytes).text,
              spw__human(stats->disk_read_bytes).text, spw__human(stats->disk_allocated_bytes).text,
              stats->io_is_uring ? "io_uring" : "threads", stats->io_is_direct ? ", O_DIRECT" : "");
    spw__outf(out, "waits: %llu in %.3f s, %llu timed out; failed spills: %llu; corrupt pieces: %llu; buffers: %llu\n",
              (unsigned long long)stats->waits, (double)stats->wait_ns / 1e9, (unsigned long long)stats->wait_timeouts,
              (unsigned long long)stats->spill_failures, (unsigned long long)stats->corrupt_pieces,
              (unsigned long long)stats->buffers);
    if (stats->waits_chosen || stats->spills_chosen || stats->reloaded_within_1s_bytes)
        spw__outf(out, "served by releases: %llu waits, by making room: %llu; read back within 1 s: %s\n",
                  (unsigned long long)stats->waits_chosen, (unsigned long long)stats->spills_chosen,
                  spw__human(stats->reloaded_within_1s_bytes).text);
    if (stats->tasks || stats->retries || stats->splits)
        spw__outf(out, "tasks: %llu; asked to give back %llu times, to take less %llu times\n",
                  (unsigned long long)stats->tasks, (unsigned long long)stats->retries,
                  (unsigned long long)stats->splits);
    if (stats->device_lost)
        spw__outf(out, "device: lost: %s\n", spw__device_loss(manager->device));
    if (stats->meta_resident_bytes)
        spw__outf(out, "metadata: an arena of jemalloc with %s resident\n",
                  spw__human(stats->meta_resident_bytes).text);
}
