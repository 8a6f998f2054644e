/* Formats of the statistics dump: each writes one snapshot through a writer. */
#ifndef SPW_SIGHT_STATS_H
#define SPW_SIGHT_STATS_H

#include <spillway/stats.h>

/* Output in pieces: remembers the first refusal of the writer. */
struct spw__out {
    spw_writer writer;
    void *arg;
    int rc; /* 0, or what the writer returned */
};

void spw__outf(struct spw__out *out, const char *format, ...) SPW_PRINTF(2, 3);

void spw__stats_text(const spw_stats *stats, struct spw__out *out);
void spw__stats_json(const spw_stats *stats, struct spw__out *out);

#endif
