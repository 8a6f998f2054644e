/* Groups in the statistics dump, as text and as JSON. Neighbours: stats_text.c and stats_json.c, which call it. */
#include "src/sight/stats.h"

#include <stdio.h>

static bool has_share(const struct spw__group_report *group, spw_tier tier)
{
    return group->tiers[tier].peak_bytes || group->tiers[tier].min_bytes ||
           group->tiers[tier].max_bytes != SPW_NO_LIMIT;
}

/* One line for each place of which the group has, or may have, something of its own; at least one. */
static void group_text(const struct spw__group_report *group, const char *parent, struct spw__out *out)
{
    bool any = false;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++) {
        if (!has_share(group, tier) && (any || tier < SPW_TIER_DISK))
            continue;
        const struct spw__human max = spw__human(group->tiers[tier].max_bytes);
        spw__outf(out, "%-20.20s %-20.20s %-12s %11s %11s %11s %11s %6u%s\n", any ? "" : group->name, any ? "" : parent,
                  spw_tier_name(tier), spw__human(group->tiers[tier].committed_bytes).text,
                  spw__human(group->tiers[tier].peak_bytes).text, spw__human(group->tiers[tier].min_bytes).text,
                  group->tiers[tier].max_bytes == SPW_NO_LIMIT ? "-" : max.text, group->tiers[tier].weight,
                  group->cancelled && !any ? "  cancelled" : "");
        any = true;
    }
}

void spw__groups_text(const struct spw__group_list *groups, struct spw__out *out)
{
    if (groups->n)
        spw__outf(out, "\n%-20s %-20s %-12s %11s %11s %11s %11s %6s\n", "group", "below", "tier", "committed", "peak",
                  "min", "max", "weight");
    for (uint32_t i = 0; i < groups->n; i++) {
        const struct spw__group_report *group = &groups->reports[i];
        group_text(group, group->parent ? groups->reports[group->parent - 1].name : "-", out);
    }
}

/* Names come from the engine: what JSON does not take as it is goes out as an escape. */
static void name_json(const char *name, struct spw__out *out)
{
    char text[6 * sizeof((struct spw__group_report *)0)->name + 1];
    size_t used = 0;
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(text + used, sizeof text - used, "\\u%04x", c);
        else
            used += (size_t)snprintf(text + used, sizeof text - used, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    text[used] = 0;
    spw__outf(out, "\"name\":\"%s\"", text);
}

static void share_json(const struct spw__group_report *group, spw_tier tier, struct spw__out *out)
{
    char max[24] = "null"; /* no limit */
    if (group->tiers[tier].max_bytes != SPW_NO_LIMIT)
        (void)snprintf(max, sizeof max, "%llu", (unsigned long long)group->tiers[tier].max_bytes);
    spw__outf(out, "%s\"%s\":{\"committed_bytes\":%llu,\"peak_bytes\":%llu,\"min_bytes\":%llu,\"max_bytes\":%s,"
                   "\"weight\":%u}", tier ? "," : "", spw_tier_name(tier),
              (unsigned long long)group->tiers[tier].committed_bytes,
              (unsigned long long)group->tiers[tier].peak_bytes, (unsigned long long)group->tiers[tier].min_bytes, max,
              group->tiers[tier].weight);
}

void spw__groups_json(const struct spw__group_list *groups, struct spw__out *out)
{
    spw__outf(out, ",\"groups\":[");
    for (uint32_t i = 0; i < groups->n; i++) {
        const struct spw__group_report *group = &groups->reports[i];
        spw__outf(out, "%s{", i ? "," : "");
        name_json(group->name, out);
        spw__outf(out, ",\"parent\":%u,\"cancelled\":%u,\"tiers\":{", group->parent, group->cancelled);
        for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++)
            share_json(group, tier, out);
        spw__outf(out, "}}");
    }
    spw__outf(out, "]");
}
