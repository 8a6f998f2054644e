/* The slower choices among holes. Neighbour: range_bins.h, which has the bins and the usual choice. */
#include "pool/range_bins.h"

/* Cost of putting an allocation of bytes into [offset, offset + hole): low addresses are better, and so is filling a
 * hole rather than leaving most of it over. Weights, with few holes and with more: see docs/allocator.md. */
#define LEFT_OVER_FEW 0.4
#define LEFT_OVER_FAR 1.6

struct choice {
    double weight;
    double cost;
    uint32_t hole; /* NONE: what lies behind the last node, or nothing */
};

static void consider(struct choice *choice, const struct spw__range *range, uint32_t index, uint64_t offset,
                     uint64_t hole, uint64_t bytes)
{
    const double left_over = (double)(hole - bytes) / (double)hole;
    const double cost = (double)offset + choice->weight * (double)range->high * left_over;
    if (cost < choice->cost) {
        choice->cost = cost;
        choice->hole = index;
    }
}

/* Space behind the last node takes part as far as it has been used before. */
static struct choice start_behind(const struct spw__range *range, uint64_t bytes, uint64_t align, double weight)
{
    struct choice choice = {weight, __builtin_huge_val(), NONE};
    if (aligned_up(range->top, align) + bytes <= range->high)
        consider(&choice, range, NONE, range->top, range->high - range->top, bytes);
    return choice;
}

uint32_t spw__bins_find_few(const struct spw__range *range, uint64_t bytes, uint64_t align)
{
    struct choice choice = start_behind(range, bytes, align, LEFT_OVER_FEW);
    for (uint32_t bin = next_bin(range, bin_of(range, bytes)); bin != NO_BIN; bin = next_bin(range, bin + 1)) {
        for (uint32_t i = range->bins[bin].head; i != NONE; i = at(range, i)->free_next) {
            const struct node *hole = at(range, i);
            if (!fits(hole, bytes, align))
                continue;
            if (hole->bytes == bytes)
                return i;
            consider(&choice, range, i, hole->offset, hole->bytes, bytes);
        }
    }
    return choice.hole;
}

/* No hole of a near size is in sight: the best of the heads from bin on, each of which fits. */
uint32_t spw__bins_find_far(const struct spw__range *range, uint32_t bin, uint64_t bytes, uint64_t align)
{
    struct choice choice = start_behind(range, bytes, align, LEFT_OVER_FAR);
    for (; bin != NO_BIN; bin = next_bin(range, bin + 1)) {
        const struct bin *heads = &range->bins[bin];
        consider(&choice, range, heads->head, heads->offset, heads->bytes, bytes);
    }
    return choice.hole;
}

/* The smallest hole that fits among the first `tries` of a bin. */
static uint32_t best_of_bin(const struct spw__range *range, uint32_t bin, uint64_t bytes, uint64_t align,
                            uint32_t tries)
{
    uint32_t best = NONE;
    for (uint32_t i = range->bins[bin].head; i != NONE && tries > 0; i = at(range, i)->free_next, tries--) {
        const struct node *hole = at(range, i);
        if (fits(hole, bytes, align) && (best == NONE || hole->bytes < at(range, best)->bytes))
            best = i;
    }
    return best;
}

/* The tightest hole of the first near bin that has one. */
uint32_t spw__bins_find_tight(const struct spw__range *range, uint32_t sure, uint64_t bytes, uint64_t align)
{
    for (uint32_t bin = next_bin(range, bin_of(range, bytes)); bin < sure + NEAR_BINS; bin = next_bin(range, bin + 1)) {
        const uint32_t best = best_of_bin(range, bin, bytes, align, TIGHT_TRIES);
        if (best != NONE)
            return best;
    }
    return spw__bins_find_far(range, next_bin(range, sure), bytes, align);
}

/* Holes in the bins that may be too small, or lie badly for the alignment: so many tries in each. */
uint32_t spw__bins_find_hidden(const struct spw__range *range, uint64_t bytes, uint64_t align, uint32_t tries)
{
    const uint32_t sure = bin_of(range, bytes + align - (UINT64_C(1) << range->shift)) + 1;
    uint32_t found = NONE;
    for (uint32_t bin = next_bin(range, bin_of(range, bytes)); bin < sure && found == NONE;
         bin = next_bin(range, bin + 1))
        found = best_of_bin(range, bin, bytes, align, tries);
    return found;
}

/* Bytes of the largest hole, 0 when there is none. */
uint64_t spw__bins_largest(const struct spw__range *range, uint32_t *largest)
{
    *largest = NONE;
    if (!range->levels)
        return 0;
    const unsigned level = 63u - (unsigned)__builtin_clzll(range->levels);
    const uint32_t bin = level * SUBS + 31u - (unsigned)__builtin_clz(range->subs[level]);
    *largest = range->bins[bin].head;
    for (uint32_t i = *largest; level > 1 && i != NONE; i = at(range, i)->free_next)
        if (at(range, i)->bytes > at(range, *largest)->bytes)
            *largest = i;
    return at(range, *largest)->bytes;
}
