/* Nodes of a range: what range.c changes, range_bins.c, range_tree.c and range_window.c search, range_check.c verifies.
 * For these files only.
 *
 * A node is a stretch of the range between two others in address order. Holes also belong to one of two structures:
 * bins by size (the default), or a tree in address order (the address-ordered variant). What lies behind the last node
 * has none of its own: `top` says where it begins.
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
#define NO_BIN UINT32_MAX
#define SEGMENT_NODES 512u
#define SEGMENTS_MAX (UINT32_MAX / SEGMENT_NODES)
#define NONE SPW__RANGE_NONE

/* In node.free_next, instead of a link, when the node is no hole. No node has these indices (SEGMENTS_MAX). */
#define TAG_LIVE (UINT32_MAX - 1)
#define TAG_CLAIMED (UINT32_MAX - 2) /* empty, in the claimed window */
#define TAG_RECYCLED (UINT32_MAX - 3)

struct node {
    uint64_t offset;
    uint64_t bytes;
    uint32_t prev; /* in address order; NONE at the ends */
    uint32_t next; /* the same; of a recycled node: the next recycled one */
    union {
        uint32_t free_prev; /* in the list of its bin */
        uint32_t left;      /* in the tree: holes at lower addresses */
    };
    union {
        uint32_t free_next; /* or a TAG */
        uint32_t right;     /* holes at higher addresses, or a TAG */
    };
};
_Static_assert(sizeof(struct node) == 32, "two nodes a cache line");

/* Holes of about one size. The head's extent is repeated here: most choices are made without a look at a node. */
struct bin {
    uint64_t offset;
    uint64_t bytes;
    uint32_t head;
};

/* Every field is guarded by the caller's lock. */
struct spw__range {
    struct spw__meta *meta;
    struct node **segments;
    uint32_t n_segments;
    uint32_t segments_room;
    uint64_t *hole_bits; /* one for each node: whether it is a hole; as many as the segments' table has room for */
    uint32_t recycled; /* head of the list of nodes that stand for nothing */
    uint32_t fresh;    /* nodes from here on have never been used */
    uint32_t first;    /* ends of the address order */
    uint32_t last;
    uint32_t n_nodes; /* in address order */
    uint32_t n_holes; /* the free ones of them */
    uint64_t size;
    uint64_t total_free;
    uint64_t frees; /* how often space was freed or added */
    uint64_t top;  /* end of the last node; nothing is allocated from here on */
    uint64_t high; /* highest top so far: what lies behind has never been touched */
    unsigned shift; /* log2 of the granularity */
    bool address_ordered;
    uint32_t largest;       /* cache: a largest hole, NONE when there is none or it is not known */
    uint64_t largest_bytes; /* its size, while there are holes; UINT64_MAX when not known */
    uint64_t claim_offset;
    uint64_t claim_bytes;   /* 0: no window is claimed */
    uint32_t claim_spare[2];
    uint32_t root;         /* of the tree */
    uint64_t levels;       /* bit l: subs[l] is not 0 */
    uint32_t subs[LEVELS]; /* bit s of subs[l]: bin l * SUBS + s is not empty */
    uint32_t n_bins;
    struct bin *bins; /* up to the one that a hole of the whole size is in; address-ordered: none */
};

static inline struct node *at(const struct spw__range *range, uint32_t index)
{
    return &range->segments[index / SEGMENT_NODES][index % SEGMENT_NODES];
}

/* Of a node in address order. The neighbours of a freed node are mostly live, and in a bitmap that is known without
 * fetching them. */
static inline bool is_hole(const struct spw__range *range, uint32_t index)
{
    return (range->hole_bits[index / 64] >> index % 64 & 1) != 0;
}

static inline uint64_t end_of(const struct node *node)
{
    return node->offset + node->bytes;
}

static inline uint64_t aligned_up(uint64_t offset, uint64_t align)
{
    return (offset + align - 1) & ~(align - 1);
}

static inline bool fits(const struct node *hole, uint64_t bytes, uint64_t align)
{
    return aligned_up(hole->offset, align) + bytes <= end_of(hole);
}

/* Whether a hole at the end would do, old space and new. */
static inline bool fits_behind(const struct spw__range *range, uint64_t bytes, uint64_t align)
{
    return aligned_up(range->top, align) + bytes <= range->size;
}

/* range.c */
struct node *spw__range_live(const struct spw__range *range, uint32_t index); /* NULL: not a live allocation */
int spw__range_take_nodes(struct spw__range *range, uint32_t *nodes, unsigned count); /* all or none */
void spw__range_recycle(struct spw__range *range, uint32_t index);
void spw__range_link(struct spw__range *range, uint32_t prev, uint32_t next, uint32_t fresh, uint64_t offset,
                     uint64_t bytes);
void spw__range_unlink(struct spw__range *range, uint32_t index);
/* Makes [start, start + bytes) of a hole, or of the space behind the last node (hole NONE), a live node. */
int spw__range_carve(struct spw__range *range, uint32_t hole, uint64_t start, uint64_t bytes, uint32_t *out);
/* Makes a live node a hole and merges it with its neighbours. Returns the hole; NONE when it went to the end. */
uint32_t spw__range_give(struct spw__range *range, uint32_t index);

/* range_bins.c */
uint32_t spw__bins_find_hidden(const struct spw__range *range, uint64_t bytes, uint64_t align, uint32_t tries);
uint64_t spw__bins_largest(const struct spw__range *range, uint32_t *largest);

/* range_tree.c */
void spw__tree_insert(struct spw__range *range, uint32_t index);
void spw__tree_remove(struct spw__range *range, uint32_t index);
uint32_t spw__tree_find(const struct spw__range *range, uint64_t bytes, uint64_t align);

#endif
