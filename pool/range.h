/* Range allocator: manages [0, size) of anything, with all metadata outside the managed range.
 *
 * Two-level segregated fit with 32 second levels and immediate coalescing. Nodes are 32-bit indices, recycled; an
 * allocation is named by its node, so that free is O(1). It knows neither memory nor locks: device memory, a host slab
 * and the bytes of a spill file are all ranges.
 *
 * Invariants (spw__range_check walks them all): nodes in address order tile [0, size) exactly; no two neighbours are
 * both free; every free node is in the bin of its size and the bitmaps say which bins are not empty.
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
 * variant for tests. Errors: SPW_ENOMETA, SPW_EINVAL. */
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

/* Enlarges the managed range at its end. SPW_ENOMETA, SPW_EINVAL. */
int spw__range_grow(struct spw__range *range, uint64_t new_size);

uint64_t spw__range_offset(const struct spw__range *range, uint32_t node);
uint64_t spw__range_bytes(const struct spw__range *range, uint32_t node); /* rounded size of a live allocation */
uint64_t spw__range_size(const struct spw__range *range);
uint64_t spw__range_total_free(const struct spw__range *range);
uint64_t spw__range_largest_free(const struct spw__range *range); /* exact */
/* First free byte above which nothing is allocated: what a file could be cut back to. */
uint64_t spw__range_tail(const struct spw__range *range);

/* Expensive: walks the whole structure; false (and a line on stderr) when an invariant is broken. */
bool spw__range_check(const struct spw__range *range);

#endif
