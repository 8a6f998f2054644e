/* The JSON dump: one object, exact integers, names as in the statistics everywhere. */
#include "src/core/external.h"
#include "src/sight/stats.h"

static void tier_json(const spw_tier_stats *tier, const char *name, const char *separator, struct spw__out *out)
{
    spw__outf(out,
              "%s\"%s\":{\"budget_bytes\":%llu,\"committed_bytes\":%llu,\"peak_bytes\":%llu,\"free_bytes\":%llu,"
              "\"largest_free_bytes\":%llu,\"allocs\":%llu,\"alloc_bytes\":%llu,\"admits\":%llu,\"admit_bytes\":%llu,"
              "\"fallback_allocs\":%llu,\"fail_budget\":%llu,\"fail_fragmented\":%llu,\"spill_bytes\":%llu,"
              "\"drop_bytes\":%llu,\"headroom_bytes\":%llu,\"raw_bytes\":%llu,\"raw_peak_bytes\":%llu,"
              "\"raw_allocs\":%llu,"
              "\"holes\":%llu,\"hole_bytes\":%llu,\"reserved_bytes\":%llu,\"overbooked_bytes\":%llu,"
              "\"overbooks\":%llu,\"overbook_bytes\":%llu,\"external_bytes\":%llu,\"reclaims\":%llu,"
              "\"reclaim_bytes\":%llu}",
              separator, name, (unsigned long long)tier->budget_bytes, (unsigned long long)tier->committed_bytes,
              (unsigned long long)tier->peak_bytes, (unsigned long long)tier->free_bytes,
              (unsigned long long)tier->largest_free_bytes, (unsigned long long)tier->allocs,
              (unsigned long long)tier->alloc_bytes, (unsigned long long)tier->admits,
              (unsigned long long)tier->admit_bytes, (unsigned long long)tier->fallback_allocs,
              (unsigned long long)tier->fail_budget, (unsigned long long)tier->fail_fragmented,
              (unsigned long long)tier->spill_bytes, (unsigned long long)tier->drop_bytes,
              (unsigned long long)tier->headroom_bytes,
              (unsigned long long)tier->raw_bytes, (unsigned long long)tier->raw_peak_bytes,
              (unsigned long long)tier->raw_allocs, (unsigned long long)tier->holes,
              (unsigned long long)tier->hole_bytes, (unsigned long long)tier->reserved_bytes,
              (unsigned long long)tier->overbooked_bytes, (unsigned long long)tier->overbooks,
              (unsigned long long)tier->overbook_bytes, (unsigned long long)tier->external_bytes,
              (unsigned long long)tier->reclaims, (unsigned long long)tier->reclaim_bytes);
}

static void edges_json(const spw_stats *stats, struct spw__out *out)
{
    const char *separator = "";
    spw__outf(out, "\"edges\":{");
    for (unsigned from = 0; from < SPW_TIER_META; from++)
        for (unsigned to = 0; to < SPW_TIER_META; to++) {
            const spw_edge_stats *edge = &stats->edges[from][to];
            if (from == to && edge->copies == 0)
                continue;
            spw__outf(out, "%s\"copy-%s-to-%s\":{\"copies\":%llu,\"bytes\":%llu,\"ns\":%llu}", separator,
                      spw_tier_name((spw_tier)from), spw_tier_name((spw_tier)to), (unsigned long long)edge->copies,
                      (unsigned long long)edge->bytes, (unsigned long long)edge->ns);
            separator = ",";
        }
    spw__outf(out, "}");
}

/* Per tier, bytes by tag: tags need no escapes. */
static void external_json(spw_manager *manager, struct spw__out *out)
{
    struct spw__external_sum at = {.bytes = 0};
    int tier = -1;
    spw__outf(out, ",\"external\":{");
    while (spw__external_next(manager, &at)) {
        if ((int)at.tier != tier)
            spw__outf(out, "%s\"%s\":{", tier < 0 ? "" : "},", spw_tier_name(at.tier));
        spw__outf(out, "%s\"%s\":%llu", (int)at.tier != tier ? "" : ",", at.tag, (unsigned long long)at.bytes);
        tier = (int)at.tier;
    }
    spw__outf(out, "%s}", tier < 0 ? "" : "}");
}

void spw__stats_json(spw_manager *manager, const spw_stats *stats, const struct spw__group_list *groups,
                     struct spw__out *out)
{
    spw__outf(out, "{\"tiers\":{");
    for (unsigned tier = 0; tier < SPW_TIER_COUNT; tier++)
        tier_json(&stats->tiers[tier], spw_tier_name((spw_tier)tier), tier ? "," : "", out);
    spw__outf(out, "},");
    edges_json(stats, out);
    spw__groups_json(groups, out);
    external_json(manager, out);
    spw__outf(out,
              ",\"disk_written_bytes\":%llu,\"disk_read_bytes\":%llu,\"disk_allocated_bytes\":%llu,\"waits\":%llu,"
              "\"wait_ns\":%llu,\"wait_timeouts\":%llu,\"spill_failures\":%llu,\"corrupt_pieces\":%llu,"
              "\"buffers\":%llu,\"io_is_uring\":%u,\"io_is_direct\":%u,\"meta_resident_bytes\":%llu,"
              "\"tasks\":%llu,\"retries\":%llu,\"splits\":%llu,\"waits_chosen\":%llu,"
              "\"spills_chosen\":%llu,\"reloaded_within_1s_bytes\":%llu,\"device_lost\":%llu}\n",
              (unsigned long long)stats->disk_written_bytes, (unsigned long long)stats->disk_read_bytes,
              (unsigned long long)stats->disk_allocated_bytes, (unsigned long long)stats->waits,
              (unsigned long long)stats->wait_ns, (unsigned long long)stats->wait_timeouts,
              (unsigned long long)stats->spill_failures, (unsigned long long)stats->corrupt_pieces,
              (unsigned long long)stats->buffers, stats->io_is_uring, stats->io_is_direct,
              (unsigned long long)stats->meta_resident_bytes, (unsigned long long)stats->tasks,
              (unsigned long long)stats->retries, (unsigned long long)stats->splits,
              (unsigned long long)stats->waits_chosen, (unsigned long long)stats->spills_chosen,
              (unsigned long long)stats->reloaded_within_1s_bytes, (unsigned long long)stats->device_lost);
}
