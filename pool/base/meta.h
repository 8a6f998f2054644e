/* Metadata memory: handles, allocator nodes and bookkeeping, held to the meta budget and apart from every other tier.
 *
 * spw__meta_alloc never waits: NULL means the budget is used up (or the system refuses), and the caller returns
 * SPW_ENOMETA. A NULL meta is allowed everywhere and means plain memory without a budget (for tests and tools).
 * Threads: any. Ownership: memory belongs to the caller until spw__meta_free with the same size.
 */
#ifndef SPW_BASE_META_H
#define SPW_BASE_META_H

#include <stddef.h>

#include "pool/base/gate.h"

struct spw__meta {
    struct spw__gate gate;
};

void spw__meta_init(struct spw__meta *meta, uint64_t budget_bytes);

/* size bytes, zeroed, aligned for any type (64 bytes when size >= 64). */
void *spw__meta_alloc(struct spw__meta *meta, size_t size);
void spw__meta_free(struct spw__meta *meta, void *ptr, size_t size);

#endif
