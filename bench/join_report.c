/* Output of bench_join. Neighbour: bench_join.c. */
#include "join_report.h"

#include <inttypes.h>
#include <stdio.h>

#define MEMORY_TIERS 3
#define MOVE_TIERS   4

static uint64_t dropped_bytes(const spw_stats *stats)
{
    uint64_t total = 0;
    for (unsigned tier = 0; tier < MOVE_TIERS; tier++)
        total += stats->tiers[tier].drop_bytes;
    return total;
}

static void json_number(const char *key, __int128 value)
{
    char text[ENG_NUMBER_MAX];
    printf("\"%s\":%s,", key, eng_number(value, text));
}

static void json_tiers(const char *key, const spw_stats *stats, unsigned n, int admitted)
{
    printf("\"%s\":{", key);
    for (unsigned tier = 0; tier < n; tier++)
        printf("%s\"%s\":%" PRIu64, tier == 0 ? "" : ",", spw_tier_name((spw_tier)tier),
               admitted ? stats->tiers[tier].admit_bytes : stats->tiers[tier].peak_bytes);
    printf("},");
}

static void json_edges(const spw_stats *stats)
{
    const char *separator = "";
    printf("\"copy_bytes\":{");
    for (unsigned from = 0; from < MOVE_TIERS; from++) {
        for (unsigned to = 0; to < MOVE_TIERS; to++) {
            if (from == to)
                continue;
            printf("%s\"%s-to-%s\":%" PRIu64, separator, spw_tier_name((spw_tier)from), spw_tier_name((spw_tier)to),
                   stats->edges[from][to].bytes);
            separator = ",";
        }
    }
    printf("},");
}

void join_report_json(const struct join_report *report)
{
    const spw_stats *stats = &report->stats;
    putchar('{');
    json_number("rows", report->answer.rows);
    json_number("sum_extendedprice", report->answer.sum_extendedprice);
    json_number("sum_supplycost_x_quantity", report->answer.sum_supplycost_x_quantity);
    json_number("sum_availqty", report->answer.sum_availqty);
    printf("\"work\":\"%s\",", spw_tier_name(SPW_PLACE_TIER(report->work)));
    printf("\"wall_s\":%.6f,\"load_s\":%.6f,\"partition_s\":%.6f,\"join_s\":%.6f,", report->wall_s,
           report->times.load_s, report->times.partition_s, report->times.join_s);
    printf("\"input_bytes\":%" PRIu64 ",", report->input_bytes);
    json_tiers("peak_bytes", stats, SPW_TIER_COUNT, 0);
    json_edges(stats);
    printf("\"disk_written_bytes\":%" PRIu64 ",\"disk_read_bytes\":%" PRIu64 ",", stats->disk_written_bytes,
           stats->disk_read_bytes);
    json_tiers("admitted_bytes", stats, MEMORY_TIERS, 1);
    printf("\"dropped_bytes\":%" PRIu64 "%s}\n", dropped_bytes(stats), report->verified ? ",\"verified\":true" : "");
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static void text_moves(const spw_stats *stats)
{
    printf("moved                             MiB      copies   seconds, summed over copies\n");
    for (unsigned from = 0; from < MOVE_TIERS; from++) {
        for (unsigned to = 0; to < MOVE_TIERS; to++) {
            const spw_edge_stats *edge = &stats->edges[from][to];
            char name[40];
            if (edge->copies == 0)
                continue;
            (void)snprintf(name, sizeof name, "%s -> %s", spw_tier_name((spw_tier)from), spw_tier_name((spw_tier)to));
            printf("  %-24s %10.1f  %10" PRIu64 "  %8.2f\n", name, mib(edge->bytes), edge->copies,
                   1e-9 * (double)edge->ns);
        }
    }
    if (dropped_bytes(stats) > 0)
        printf("  %-24s %10.1f\n", "dropped, copy below", mib(dropped_bytes(stats)));
}

static void text_tiers(const spw_stats *stats)
{
    printf("tier, MiB                      budget        peak    admitted\n");
    for (unsigned tier = 0; tier < SPW_TIER_COUNT; tier++) {
        const spw_tier_stats *t = &stats->tiers[tier];
        if (t->budget_bytes == 0 && t->peak_bytes == 0)
            continue;
        printf("  %-24s %10.1f  %10.1f", spw_tier_name((spw_tier)tier), mib(t->budget_bytes), mib(t->peak_bytes));
        if (tier < MEMORY_TIERS)
            printf("  %10.1f", mib(t->admit_bytes));
        putchar('\n');
    }
}

static void text_line(const char *name, __int128 value)
{
    char text[ENG_NUMBER_MAX];
    printf("  %-34s %24s\n", name, eng_number(value, text));
}

void join_report_text(const struct join_report *report)
{
    const spw_stats *stats = &report->stats;
    printf("answer\n");
    text_line("count(*)", report->answer.rows);
    text_line("sum(l_extendedprice)", report->answer.sum_extendedprice);
    text_line("sum(ps_supplycost*l_quantity)", report->answer.sum_supplycost_x_quantity);
    text_line("sum(ps_availqty)", report->answer.sum_availqty);
    if (report->verified)
        printf("verified by a sort-merge join in %.2f s: the same\n", report->verify_s);
    printf("\n");
    text_moves(stats);
    printf("\n");
    text_tiers(stats);
    printf("\ntime    load %.2f s, partition %.2f s, join %.2f s; in all %.2f s with %u thread%s on %s\n",
           report->times.load_s, report->times.partition_s, report->times.join_s, report->wall_s, report->threads,
           report->threads == 1 ? "" : "s", spw_tier_name(SPW_PLACE_TIER(report->work)));
    printf("input   %.1f MiB held in buffers", mib(report->input_bytes));
    if (stats->tiers[SPW_TIER_DISK].peak_bytes > 0)
        printf("; disk written %.1f MiB, read %.1f MiB through %s%s", mib(stats->disk_written_bytes),
               mib(stats->disk_read_bytes), stats->io_is_uring ? "io_uring" : "threads",
               stats->io_is_direct ? ", O_DIRECT" : "");
    printf("\nconfig  %s\n", report->config);
}
