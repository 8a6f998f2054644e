/* Raw blocks by address: which memory was handed out as raw memory, and what it was charged.
 *
 * A hash table in metadata memory, in shards so that threads seldom meet. It is the one truth about raw blocks: what
 * is not in it cannot be freed. Each entry has a serial number (not 0), so that a stale copy of a block is told from a
 * later block at the same address.
 *
 * Threads: any. Ownership: the table owns its entries; insert takes a block over, look with take hands it back.
 */
#ifndef SPW_CORE_RAW_H
#define SPW_CORE_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"
#include "pool/base/meta.h"
#include "pool/base/units.h"
#include "pool/tier.h"

#include <spillway/pool.h>

#define SPW__RAW_SHARDS 32u
#define SPW__RAW_ANY UINT64_MAX /* a serial number that every entry has */

struct spw__raw_entry;

struct spw__raw_shard {
    struct spw__mutex lock;
    struct spw__raw_entry *entries; /* guarded by lock, as everything below: open addressing */
    uint32_t room;                  /* entries that there is space for: a power of two, or 0 */
    uint32_t used;
    uint32_t serial;                /* of the latest entry */
    uint64_t allocs[SPW__MEMORY_TIERS]; /* ever */
    uint64_t live[SPW__MEMORY_TIERS];
};

struct spw__raw {
    struct spw__meta *meta;
    struct spw__gate live_bytes[SPW__MEMORY_TIERS]; /* no budget: for the peak */
    struct spw__raw_shard shards[SPW__RAW_SHARDS];
};

void spw__raw_init(struct spw__raw *raw, struct spw__meta *meta);
void spw__raw_finish(struct spw__raw *raw); /* forgets what is left */

/* SPW_ENOMETA: no change. */
int spw__raw_insert(struct spw__raw *raw, const struct spw__block *block, uint64_t *serial);

/* Finds the block that begins at address and has that serial number; take: and removes it. False: there is none. */
bool spw__raw_look(struct spw__raw *raw, uint64_t address, uint64_t serial, bool take, struct spw__block *out);

struct spw__request;

/* Makes a block of what a request got; SPW_ENOMETA: it was given back, to stream. bytes 0: an empty one. (pool.c) */
int spw__raw_wrap(struct spw__request *request, void *stream, spw_block *block);

struct spw__raw_usage {
    uint64_t allocs;     /* ever */
    uint64_t live;       /* blocks */
    uint64_t live_bytes; /* charged */
    uint64_t peak_bytes;
};
struct spw__raw_usage spw__raw_usage(struct spw__raw *raw, spw_tier tier);

#endif
