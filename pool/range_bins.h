/* Holes by size, and the choice among them: the default placement of a range. For range.c and range_check.c only; in a
 * header because these are the few instructions that every allocation runs through.
 *
 * Sizes are sorted into bins by their highest bit (first level) and the five bits below it (second level), counted in
 * grains: below 64 grains a bin holds one size, above it spans 1/32 of its power of two. Bitmaps find the next bin that
 * is not empty. A bin's list is kept with a low address in front: whatever comes in below the head becomes the head,
 * everything else lines up behind it. That is enough for most of the gains of address order (docs/allocator.md), for
 * nothing.
 *
 * The choice. Few holes: one of the exact size, else the best of all bins' heads by address and by how much of the hole
 * would be left over. More: one of nearly the same size, which nearly always exists, so that the rest stays whole; the
 * tightest of its bin, unless there are so many that the first one is as good. No new space is touched while a hole
 * would do.
 */
#ifndef SPW_POOL_RANGE_BINS_H
#define SPW_POOL_RANGE_BINS_H

#include "pool/range_layout.h"

#define FEW_HOLES 64u
#define MANY_HOLES 2048u
#define NEAR_BINS 8u   /* a quarter more than asked for, at most */
#define TIGHT_TRIES 16u /* holes of a bin among which the smallest that fits is taken while they are not too many */
#define LAST_TRIES 32u /* holes of a bin that are looked at before new space is touched */
#define EVERY UINT32_MAX

static inline uint32_t bin_of(const struct spw__range *range, uint64_t bytes)
{
    const uint64_t grains = bytes >> range->shift;
    /* Below SUBS grains as if there were SUBS: no branch, which would be mispredicted once a pair. */
    const unsigned step = 63u - SUB_BITS - (unsigned)__builtin_clzll(grains | SUBS);
    return step * SUBS + (uint32_t)(grains >> step);
}

/* First bin at or above bin that is not empty; NO_BIN when there is none. */
static inline uint32_t next_bin(const struct spw__range *range, uint32_t bin)
{
    unsigned level = bin / SUBS;
    if (level >= LEVELS)
        return NO_BIN;
    const uint32_t subs = range->subs[level] & (UINT32_MAX << (bin % SUBS));
    if (subs)
        return level * SUBS + (unsigned)__builtin_ctz(subs);
    const uint64_t levels = range->levels & ~((UINT64_C(2) << level) - 1);
    if (!levels)
        return NO_BIN;
    level = (unsigned)__builtin_ctzll(levels);
    return level * SUBS + (unsigned)__builtin_ctz(range->subs[level]);
}

static inline void bins_insert(struct spw__range *range, uint32_t index)
{
    struct node *node = at(range, index);
    const uint32_t number = bin_of(range, node->bytes);
    struct bin *bin = &range->bins[number];
    const uint32_t head = bin->head;
    if (head != NONE && node->offset > bin->offset) {
        struct node *before = at(range, head);
        node->free_prev = head;
        node->free_next = before->free_next;
        if (node->free_next != NONE)
            at(range, node->free_next)->free_prev = index;
        before->free_next = index;
        return;
    }
    node->free_prev = NONE;
    node->free_next = head;
    *bin = (struct bin){node->offset, node->bytes, index};
    if (head != NONE) {
        at(range, head)->free_prev = index;
        return;
    }
    range->subs[number / SUBS] |= UINT32_C(1) << (number % SUBS);
    range->levels |= UINT64_C(1) << (number / SUBS);
}

static inline void bins_remove(struct spw__range *range, uint32_t index)
{
    const struct node *node = at(range, index);
    const uint32_t next = node->free_next;
    if (next != NONE)
        at(range, next)->free_prev = node->free_prev;
    if (node->free_prev != NONE) {
        at(range, node->free_prev)->free_next = next;
        return;
    }
    const uint32_t number = bin_of(range, node->bytes);
    struct bin *bin = &range->bins[number];
    bin->head = next;
    if (next != NONE) {
        bin->offset = at(range, next)->offset;
        bin->bytes = at(range, next)->bytes;
        return;
    }
    range->subs[number / SUBS] &= ~(UINT32_C(1) << (number % SUBS));
    if (!range->subs[number / SUBS])
        range->levels &= ~(UINT64_C(1) << (number / SUBS));
}

/* A hole's new extent, of a size that belongs into the same bin. */
static inline void bins_reshape(struct spw__range *range, uint32_t index, uint64_t offset, uint64_t bytes)
{
    struct node *node = at(range, index);
    node->offset = offset;
    node->bytes = bytes;
    if (node->free_prev == NONE)
        range->bins[bin_of(range, bytes)] = (struct bin){offset, bytes, index};
}

static inline bool bin_head_fits(const struct bin *bin, uint64_t bytes, uint64_t align)
{
    return aligned_up(bin->offset, align) + bytes <= bin->offset + bin->bytes;
}

uint32_t spw__bins_find_few(const struct spw__range *range, uint64_t bytes, uint64_t align);
uint32_t spw__bins_find_tight(const struct spw__range *range, uint32_t sure, uint64_t bytes, uint64_t align);
uint32_t spw__bins_find_far(const struct spw__range *range, uint32_t bin, uint64_t bytes, uint64_t align);

/* NONE: no hole is good enough; what lies behind the last node may be. */
static inline uint32_t bins_find(const struct spw__range *range, uint64_t bytes, uint64_t align)
{
    if (range->n_holes <= FEW_HOLES)
        return spw__bins_find_few(range, bytes, align);
    const uint64_t slack = align - (UINT64_C(1) << range->shift);
    uint32_t bin = bin_of(range, bytes);
    const uint32_t sure = (slack ? bin_of(range, bytes + slack) : bin) + 1;
    if (range->n_holes <= MANY_HOLES)
        return spw__bins_find_tight(range, sure, bytes, align);
    /* From `sure` on every hole fits; before, it depends. */
    while (bin < sure && (range->bins[bin].head == NONE || !bin_head_fits(&range->bins[bin], bytes, align)))
        bin++;
    if (bin < sure)
        return range->bins[bin].head;
    bin = next_bin(range, sure);
    return bin < sure + NEAR_BINS ? range->bins[bin].head : spw__bins_find_far(range, bin, bytes, align);
}

#endif
