/* The command line of bench_join, and the configuration that it amounts to.
 *
 * Ownership: texts point into argv or into the options themselves; join_options_finish frees what parse allocated.
 */
#ifndef BENCH_JOIN_OPTIONS_H
#define BENCH_JOIN_OPTIONS_H

#include <spillway/spillway.h>

#include "engine/sizing.h"

struct join_options {
    const char *lineitem, *partsupp; /* folders of columns; NULL: generated */
    double scale_factor;             /* 0: folders */
    const char *write;               /* NULL: what is generated is not kept */
    unsigned threads;                /* 0: one a CPU */
    enum eng_work work;
    int verify, json, help;
    spw_spec spec;                   /* --spec with the flags applied; folders of any name, so no string can hold it */
    char string[160];                /* what spec is laid over: tiers, folders and sizes that it leaves out are
                                        absent or at their default, whatever the environment says */
    char *spec_text;                 /* spec for people */
};

/* Parses and checks everything that can be checked without opening a file. On error nothing is to be freed. */
int join_options_parse(int argc, char *const argv[], struct join_options *options, struct eng_error *error);
void join_options_finish(struct join_options *options);

/* Bytes of "64M", "1G", "1024", "0". Returns NULL, or what is wrong with text: "a size is wanted ...". */
const char *join_parse_size(const char *text, uint64_t *bytes);

extern const char join_help[];

#endif
