/* Parked memory: raw blocks of the device that were freed on a stream whose work may still use them.
 *
 *     spw_pool_free(stream) --park--> parked --the stream's event completed: mover or sweep--> free
 *                                       |  \--take: an allocation on the same stream--> live again
 *                                       \-- cut: the rest of a block that was taken stays parked
 *
 * Invariant: parked bytes stay committed, and nobody but their stream gets them. Each stream with parked blocks is
 * watched by one move without bytes, on its oldest event: so they are given back without anybody calling.
 *
 * Threads: any. Ownership: a parked block belongs to this module until it is taken or given back.
 */
#ifndef SPW_CORE_PARKED_H
#define SPW_CORE_PARKED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"
#include "pool/tier.h"

struct spw_manager;
struct spw__parked_stream;

struct spw__parked {
    struct spw__mutex lock;
    struct spw__parked_stream *streams; /* guarded by lock; kept, and used again by other streams */
    _Atomic uint64_t blocks;            /* atomic: changed under lock; 0: nothing to look for */
};

void spw__parked_init(struct spw__parked *parked);
void spw__parked_finish(struct spw_manager *manager); /* after the mover has finished every move */

/* Takes the block over. Without memory or an event for it the stream is waited for, and the block freed. */
void spw__park(struct spw_manager *manager, struct spw__block *block, void *stream);

/* A parked block of stream that is charged to group, from the pool that a request of bytes prefers, at least as large
 * and at a multiple of align; the rest of a much larger one stays parked. False: there is none. */
bool spw__parked_take(struct spw_manager *manager, const struct spw__group *group, void *stream, spw_tier tier,
                      uint64_t bytes, uint64_t align, struct spw__block *out);

/* Gives back what has completed. True if anything was. Never under a lock. */
bool spw__parked_sweep(struct spw_manager *manager);

#endif
