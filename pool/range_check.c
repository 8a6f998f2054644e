/* The expensive check of a range: walks both lists of every node. Neighbour: range.c. */
#include <stdio.h>

#include "pool/range_layout.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "spillway: range: not true: %s (line %d)\n", #condition, __LINE__);                  \
            return false;                                                                                              \
        }                                                                                                              \
    } while (0)

static bool check_addresses(const struct spw__range *range, uint64_t *n_nodes, uint64_t *n_free, uint64_t *largest)
{
    uint64_t end = 0, total_free = 0;
    uint32_t before = NONE;
    bool before_free = false, past_lowest = false;
    *n_nodes = *n_free = *largest = 0;
    for (uint32_t i = range->first; i != NONE; before = i, i = at(range, i)->next) {
        const struct node *node = at(range, i);
        EXPECT(node->free_next != TAG_RECYCLED);
        EXPECT(node->prev == before && node->offset == end);
        EXPECT(node->bytes > 0 && (node->bytes >> range->shift << range->shift) == node->bytes);
        EXPECT(!(before_free && is_free(node)));
        before_free = is_free(node);
        past_lowest = past_lowest || i == range->lowest;
        EXPECT(!before_free || past_lowest);
        end += node->bytes;
        ++*n_nodes;
        if (before_free) {
            ++*n_free;
            total_free += node->bytes;
            *largest = node->bytes > *largest ? node->bytes : *largest;
        }
    }
    EXPECT(before == range->last && end == range->size && total_free == range->total_free);
    return true;
}

static bool check_bins(const struct spw__range *range, uint64_t n_free)
{
    uint64_t found = 0;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        EXPECT(((range->subs[bin / SUBS] >> bin % SUBS & 1) != 0) == (range->bins[bin] != NONE));
        EXPECT(((range->levels >> bin / SUBS & 1) != 0) == (range->subs[bin / SUBS] != 0));
        uint32_t before = NONE;
        for (uint32_t i = range->bins[bin]; i != NONE; before = i, i = at(range, i)->free_next) {
            EXPECT(is_free(at(range, i)) && at(range, i)->free_prev == before);
            EXPECT(bin_of(range, at(range, i)->bytes) == bin);
            EXPECT(++found <= n_free);
        }
    }
    EXPECT(found == n_free);
    return true;
}

bool spw__range_check(const struct spw__range *range)
{
    uint64_t n_nodes, n_free, largest, n_recycled = 0;
    if (!check_addresses(range, &n_nodes, &n_free, &largest) || !check_bins(range, n_free))
        return false;
    EXPECT(spw__range_largest_free(range) == largest);
    for (uint32_t i = range->recycled; i != NONE; i = at(range, i)->next, n_recycled++)
        EXPECT(at(range, i)->free_next == TAG_RECYCLED);
    EXPECT(n_nodes == range->n_nodes && n_free == range->n_free);
    EXPECT(n_nodes + n_recycled == (uint64_t)range->n_segments * SEGMENT_NODES);
    return true;
}
