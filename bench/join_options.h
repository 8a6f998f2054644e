/* The command line of bench_join, and the configuration string that it amounts to.
 *
 * Ownership: texts point into argv or into the options themselves; join_options_finish frees what parse allocated.
 */
#ifndef BENCH_JOIN_OPTIONS_H
#define BENCH_JOIN_OPTIONS_H

#include <spillway/spillway.h>

#include "engine/error.h"

struct join_options {
    const char *lineitem, *partsupp; /* folders of columns; NULL: generated */
    double scale_factor;             /* 0: folders */
    const char *write;               /* NULL: what is generated is not kept */
    unsigned threads;                /* 0: one a CPU */
    int verify, json, help;
    spw_spec spec;                   /* with the flags applied */
    char *spec_text;                 /* the same as a string, which spec's folders point into */
};

/* Parses and checks everything that can be checked without touching a file. On error nothing is to be freed. */
int join_options_parse(int argc, char *const argv[], struct join_options *options, struct eng_error *error);
void join_options_finish(struct join_options *options);

/* Bytes of "64M", "1G", "1024", "0". Returns 0, or -1 when text is no size. */
int join_parse_size(const char *text, uint64_t *bytes);

extern const char join_help[];

#endif
