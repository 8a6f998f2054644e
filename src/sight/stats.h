/* Formats of the statistics dump: each writes one snapshot through a writer. */
#ifndef SPW_SIGHT_STATS_H
#define SPW_SIGHT_STATS_H

#include "src/core/group.h"

#include <spillway/stats.h>

/* Output in pieces: remembers the first refusal of the writer. */
struct spw__out {
    spw_writer writer;
    void *arg;
    int rc; /* 0, or what the writer returned */
};

void spw__outf(struct spw__out *out, const char *format, ...) SPW_PRINTF(2, 3);

/* A size in human units: "1.5 MiB". */
struct spw__human {
    char text[24];
};
struct spw__human spw__human(uint64_t bytes);

void spw__stats_text(spw_manager *manager, const spw_stats *stats, const struct spw__group_list *groups,
                     struct spw__out *out);
void spw__stats_json(spw_manager *manager, const spw_stats *stats, const struct spw__group_list *groups,
                     struct spw__out *out);

/* The part of each that is about groups. (stats_groups.c) */
void spw__groups_text(const struct spw__group_list *groups, struct spw__out *out);
void spw__groups_json(const struct spw__group_list *groups, struct spw__out *out);

#endif
