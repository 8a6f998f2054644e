/* The value of model=: presets, their parts, and the scale that divides them. For the configuration grammar's files.
 * Threads: any; a cursor and a model are their caller's. */
#ifndef SPW_POOL_SPEC_MODEL_H
#define SPW_POOL_SPEC_MODEL_H

#include "pool/spec.h"
#include "pool/spec_cursor.h"

#define SPW__SPEC_LATENCY_MAX_NS UINT64_C(1000000000)

enum spw__spec_part_kind {
    SPW__SPEC_PART_SIZE,    /* bytes, or bytes per second; divided by the scale */
    SPW__SPEC_PART_DUPLEX,  /* the same, or "free" */
    SPW__SPEC_PART_LATENCY, /* a time, never divided */
};

/* A figure of a model; its field is an uint64_t. */
struct spw__spec_part {
    const char *name;
    enum spw__spec_part_kind kind;
    size_t field; /* in spw_device_model */
};

extern const struct spw__spec_part spw__spec_parts[]; /* in the order of the canonical form; ends with name NULL */

/* Parses up to the cursor's end. */
int spw__spec_parse_model(struct spw__spec_cursor *c, spw_device_model *model);

#endif
