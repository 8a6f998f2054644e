/* What bench_join prints: one JSON object, or text for people. */
#ifndef BENCH_JOIN_REPORT_H
#define BENCH_JOIN_REPORT_H

#include <spillway/spillway.h>

#include "engine/join.h"

struct join_report {
    struct eng_answer answer;
    struct eng_times times;
    double wall_s;
    uint64_t input_bytes;
    spw_stats stats;    /* taken after the join */
    unsigned threads;
    spw_place work;     /* where rows were worked on */
    const char *config; /* for people: as the library's configuration string, where it can be one */
    int verified;       /* 1: the other algorithm gave the same */
    double verify_s;
};

void join_report_json(const struct join_report *report);
void join_report_text(const struct join_report *report);

#endif
