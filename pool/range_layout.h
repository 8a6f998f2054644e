/* Nodes and bins of a range: what range.c changes and range_check.c verifies. For these two files only.
 *
 * Sizes are sorted into bins by their highest bit (first level) and the five bits below it (second level), counted in
 * grains: below 64 grains a bin holds one size, above it spans 1/32 of its power of two. A node is a stretch of the
 * range and lies in two lists: its neighbours in address order, and, while free, the holes of its bin.
 */
#ifndef SPW_POOL_RANGE_LAYOUT_H
#define SPW_POOL_RANGE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/range.h"

#define SUB_BITS 5u
#define SUBS (1u << SUB_BITS)
#define MAX_SIZE (UINT64_C(1) << 56) /* so that sums of an offset, a size and an alignment stay far from 2^64 */
#define LEVELS (56u - SUB_BITS + 2)
#define BINS (LEVELS * SUBS)
#define SEGMENT_NODES 128u
#define SEGMENTS_MAX (UINT32_MAX / SEGMENT_NODES)

/* In node.free_next, instead of a link, when the node is not free. No node has these indices (SEGMENTS_MAX). */
#define TAG_LIVE (UINT32_MAX - 1)
#define TAG_RECYCLED (UINT32_MAX - 2)
#define NONE SPW__RANGE_NONE

struct node {
    uint64_t offset;
    uint64_t bytes;
    uint32_t prev; /* in address order; NONE at the ends */
    uint32_t next; /* the same; of a recycled node: the next recycled one */
    uint32_t free_prev;
    uint32_t free_next; /* or a TAG */
};
_Static_assert(sizeof(struct node) == 32, "two nodes a cache line");

/* Every field is guarded by the caller's lock. */
struct spw__range {
    struct spw__meta *meta;
    struct node **segments;
    uint32_t n_segments;
    uint32_t segments_room;
    uint32_t recycled; /* head of the list of nodes that stand for nothing */
    uint32_t first;    /* ends of the address order */
    uint32_t last;
    uint32_t n_nodes; /* in address order */
    uint32_t n_free;  /* the free ones of them */
    uint32_t lowest;  /* no free node lies before this one; NONE: none is free. Used by the address-ordered variant */
    uint32_t largest; /* cache: a largest free node, NONE when not known */
    unsigned shift;   /* log2 of the granularity */
    bool address_ordered;
    uint64_t size;
    uint64_t total_free;
    uint64_t levels;       /* bit l: subs[l] is not 0 */
    uint32_t subs[LEVELS]; /* bit s of subs[l]: bin l * SUBS + s is not empty */
    uint32_t bins[BINS];   /* heads */
};

static inline struct node *at(const struct spw__range *range, uint32_t index)
{
    return &range->segments[index / SEGMENT_NODES][index % SEGMENT_NODES];
}

static inline bool is_free(const struct node *node)
{
    return node->free_next != TAG_LIVE && node->free_next != TAG_RECYCLED;
}

static inline uint32_t bin_of(const struct spw__range *range, uint64_t bytes)
{
    const uint64_t grains = bytes >> range->shift;
    if (grains < SUBS)
        return (uint32_t)grains;
    const unsigned top = 63u - (unsigned)__builtin_clzll(grains);
    return (top - SUB_BITS + 1) * SUBS + (uint32_t)(grains >> (top - SUB_BITS)) % SUBS;
}

#endif
