/* Range allocator: manages [0, size) of anything, with all metadata outside the managed range.
 *
 * Holes of the asked-for or nearly that size first, else the best by address and left-over; neighbours merge at once;
 * new space is not touched while old space would do. Nodes are 32-bit indices, recycled; an allocation is named by its
 * node, so that free is O(1). It knows neither memory nor locks: device memory, a host slab and the bytes of a spill
 * file are all ranges. The design, with figures: docs/allocator.md.
 *
 * Invariants (spw__range_check walks them all): nodes in address order tile [0, tail) exactly, the last one is no hole,
 * and [tail, size) is free; no two neighbours are both free; every hole is in the bin of its size and the bitmaps say
 * which bins are not empty (address-ordered: in the tree, lower addresses to the left, larger holes above).
 *
 * Threads: the caller holds one lock around every call (rank SPW__RANK_POOL or SPW__RANK_STORE).
 * Ownership: the range owns its nodes; they are charged to meta.
 */
#ifndef SPW_POOL_RANGE_H
#define SPW_POOL_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/meta.h"

#define SPW__RANGE_NONE UINT32_MAX

struct spw__range;

/* granularity is a power of two; size is rounded down to it. address_ordered: lowest address first fit, the plain
 * variant for tests, and what spill files use. Errors: SPW_ENOMETA, SPW_EINVAL. */
int spw__range_create(uint64_t size, uint32_t granularity, bool address_ordered, struct spw__meta *meta,
                      struct spw__range **out);
void spw__range_destroy(struct spw__range *range);

/* Allocates bytes (rounded up to the granularity, at least one grain) at an offset that is a multiple of align (a power
 * of two; 0 or 1 mean the granularity). SPW_ENOMEM: fewer bytes are free; SPW_EFRAG: enough are free but no hole fits;
 * SPW_ENOMETA: no memory for a node. No change on error. */
int spw__range_alloc(struct spw__range *range, uint64_t bytes, uint64_t align, uint32_t *node, uint64_t *offset);

/* Frees an allocation. SPW_EBADHANDLE (and no change) when node is not a live allocation. */
int spw__range_free(struct spw__range *range, uint32_t node);

/* Cuts a live allocation in two: node keeps the first bytes (a multiple of the granularity, inside it), *tail is a new
 * live allocation of the rest. SPW_ENOMETA, SPW_EINVAL, SPW_EBADHANDLE; no change on error. */
int spw__range_split(struct spw__range *range, uint32_t node, uint64_t bytes, uint32_t *tail);

/* Enlarges the managed range at its end. SPW_ENOMETA, SPW_EINVAL; no change on error. */
int spw__range_grow(struct spw__range *range, uint64_t new_size);

/* Takes free space off the end: new_size, a multiple of the granularity, lies between the tail and the size. */
void spw__range_shrink(struct spw__range *range, uint64_t new_size);

uint64_t spw__range_offset(const struct spw__range *range, uint32_t node);
uint64_t spw__range_bytes(const struct spw__range *range, uint32_t node); /* rounded size of a live allocation */
uint64_t spw__range_size(const struct spw__range *range);
uint64_t spw__range_total_free(const struct spw__range *range); /* without what is claimed */
uint64_t spw__range_largest_free(const struct spw__range *range); /* exact */
/* How often space was freed or added: while it stays the same, what did not fit does not fit. */
uint64_t spw__range_frees(const struct spw__range *range);
/* First free byte above which nothing is allocated: what a file could be cut back to. */
uint64_t spw__range_tail(const struct spw__range *range);

/* Opening a hole. All of these are linear in the number of nodes.
 *
 *     window -> claim -> (move the live allocations of the window away, free them) -> claim_take or claim_drop
 */

/* Finds where bytes could be emptied at the least cost: the window, aligned, with the fewest bytes in the live
 * allocations that it overlaps (each counts whole: that is what has to move), all of which satisfy movable. The lowest
 * of equals. movable is called under the caller's lock, once for each allocation looked at. SPW_EFRAG: there is none;
 * SPW_EINVAL. */
int spw__range_window(const struct spw__range *range, uint64_t bytes, uint64_t align,
                      bool (*movable)(void *arg, uint32_t node, uint64_t bytes), void *arg, uint64_t *offset);

/* Live allocations in address order: the first that ends behind offset, and the next after a live one.
 * SPW__RANGE_NONE when there is none. */
uint32_t spw__range_first_live(const struct spw__range *range, uint64_t offset);
uint32_t spw__range_next_live(const struct spw__range *range, uint32_t node);

/* Claims [offset, offset + bytes), both multiples of the granularity: nobody else is given space there, and what is
 * freed there (whoever frees it) stays claimed, until claim_take or claim_drop. One window at a time.
 * SPW_EBUSY: one is claimed; SPW_ENOMETA; SPW_EINVAL; no change on error. */
int spw__range_claim(struct spw__range *range, uint64_t offset, uint64_t bytes);
/* Whether no live allocation overlaps the claimed window any more. */
bool spw__range_claim_ready(const struct spw__range *range);
/* Makes the claimed window one live allocation. Cannot fail for want of memory. SPW_EBUSY: not ready; no change. */
int spw__range_claim_take(struct spw__range *range, uint32_t *node);
/* Gives back what is claimed, as one hole when the window is empty. Live allocations stay. No-op without a claim. */
void spw__range_claim_drop(struct spw__range *range);

/* Expensive: walks the whole structure; false (and a line on stderr) when an invariant is broken. */
bool spw__range_check(const struct spw__range *range);

#endif
