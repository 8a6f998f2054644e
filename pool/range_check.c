/* The expensive check of a range: walks the address order, the bins and the tree. Neighbour: range.c. */
#include <stdio.h>

#include "pool/range_bins.h"
#include "pool/range_layout.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "spillway: range: not true: %s (line %d)\n", #condition, __LINE__);                  \
            return false;                                                                                              \
        }                                                                                                              \
    } while (0)

struct found {
    uint64_t nodes, holes, largest;
};

static bool in_claim(const struct spw__range *range, const struct node *node)
{
    return range->claim_bytes && node->offset < range->claim_offset + range->claim_bytes &&
           end_of(node) > range->claim_offset;
}

static bool check_addresses(const struct spw__range *range, struct found *found)
{
    uint64_t end = 0, taken = 0;
    uint32_t before = NONE;
    bool before_free = false;
    for (uint32_t i = range->first; i != NONE; before = i, i = at(range, i)->next) {
        const struct node *node = at(range, i);
        EXPECT(node->free_next != TAG_RECYCLED);
        EXPECT(!is_hole(range, i) || node->free_next == NONE || node->free_next < TAG_RECYCLED);
        EXPECT(is_hole(range, i) || node->free_next == TAG_LIVE || node->free_next == TAG_CLAIMED);
        EXPECT(node->prev == before && node->offset == end);
        EXPECT(node->bytes > 0 && (node->bytes >> range->shift << range->shift) == node->bytes);
        EXPECT(!(before_free && is_hole(range, i)));
        EXPECT(in_claim(range, node) ? !is_hole(range, i) : node->free_next != TAG_CLAIMED);
        before_free = is_hole(range, i);
        end += node->bytes;
        found->nodes++;
        if (before_free) {
            found->holes++;
            found->largest = node->bytes > found->largest ? node->bytes : found->largest;
        } else {
            taken += node->bytes;
        }
    }
    EXPECT(before == range->last && !before_free);
    EXPECT(end == range->top && end <= range->high && range->high <= range->size);
    EXPECT(!range->claim_bytes || range->claim_offset + range->claim_bytes <= range->top);
    EXPECT(taken + range->total_free == range->size);
    return true;
}

static bool check_bins(const struct spw__range *range, uint64_t n_holes)
{
    uint64_t seen = 0;
    for (uint32_t bin = 0; bin < range->n_bins; bin++) {
        EXPECT(((range->subs[bin / SUBS] >> bin % SUBS & 1) != 0) == (range->bins[bin].head != NONE));
        EXPECT(((range->levels >> bin / SUBS & 1) != 0) == (range->subs[bin / SUBS] != 0));
        uint32_t before = NONE;
        for (uint32_t i = range->bins[bin].head; i != NONE; before = i, i = at(range, i)->free_next) {
            EXPECT(is_hole(range, i) && at(range, i)->free_prev == before);
            EXPECT(bin_of(range, at(range, i)->bytes) == bin);
            EXPECT(before != NONE || (range->bins[bin].offset == at(range, i)->offset &&
                                      range->bins[bin].bytes == at(range, i)->bytes));
            EXPECT(++seen <= n_holes);
        }
    }
    EXPECT(seen == n_holes);
    return true;
}

/* Every hole is found from the root by its address, and none is larger than the one above it. */
static bool check_tree(const struct spw__range *range)
{
    for (uint32_t i = range->first; i != NONE; i = at(range, i)->next) {
        const struct node *node = at(range, i);
        uint64_t bytes = UINT64_MAX;
        uint32_t at_now = is_hole(range, i) ? range->root : i;
        while (at_now != i) {
            EXPECT(at_now != NONE && at(range, at_now)->bytes <= bytes);
            bytes = at(range, at_now)->bytes;
            at_now = node->offset < at(range, at_now)->offset ? at(range, at_now)->left : at(range, at_now)->right;
        }
        EXPECT(node->bytes <= bytes || !is_hole(range, i));
    }
    return true;
}

bool spw__range_check(const struct spw__range *range)
{
    struct found found = {0, 0, 0};
    uint64_t n_recycled = 0, spare = 0;
    if (!check_addresses(range, &found) ||
        !(range->address_ordered ? check_tree(range) : check_bins(range, found.holes)))
        return false;
    EXPECT(range->largest == NONE || at(range, range->largest)->bytes == range->largest_bytes);
    EXPECT(range->largest_bytes == UINT64_MAX || range->address_ordered || range->n_holes == 0 ||
           range->largest_bytes == found.largest);
    const uint64_t behind = range->size - range->top;
    EXPECT(spw__range_largest_free(range) == (found.largest > behind ? found.largest : behind));
    for (uint32_t i = range->recycled; i != NONE; i = at(range, i)->next, n_recycled++)
        EXPECT(at(range, i)->free_next == TAG_RECYCLED);
    EXPECT(found.nodes == range->n_nodes && found.holes == range->n_holes);
    spare = range->claim_bytes ? 2 : 0;
    EXPECT(found.nodes + n_recycled + spare == range->fresh);
    EXPECT(range->fresh <= (uint64_t)range->n_segments * SEGMENT_NODES);
    return true;
}
