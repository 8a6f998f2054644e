/* Metadata memory: handles, allocator nodes and bookkeeping, held to the meta budget and apart from every other tier.
 *
 * In a process that carries jemalloc a meta has an arena of its own: metadata neither lies between the engine's objects
 * nor keeps their pages, and goes as a whole. Elsewhere it is the process's malloc. The library never brings jemalloc.
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
    unsigned arena; /* jemalloc's number of it + 1; 0: plain malloc */
};

void spw__meta_init(struct spw__meta *meta, uint64_t budget_bytes);
/* Gives the arena back, with whatever was not freed. */
void spw__meta_finish(struct spw__meta *meta);

/* size bytes, zeroed, aligned for any type (64 bytes when size >= 64, 2 MiB, on huge pages, from 2 MiB on). */
void *spw__meta_alloc(struct spw__meta *meta, size_t size);
void spw__meta_free(struct spw__meta *meta, void *ptr, size_t size);

/* Bytes that the arena occupies, what was freed and not yet given back included; 0 without one. */
uint64_t spw__meta_resident_bytes(const struct spw__meta *meta);

#endif
