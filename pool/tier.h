/* A tier: one place's memory, cut into pools, behind its part of the ledger.
 *
 * A request is routed to the pool with the smallest limit that holds it, then upward, never down (conformance P11-P14).
 * The ledger is asked first and gives the bytes back when no pool has a hole: committed never exceeds the budget, and
 * every byte given back by spw__tier_free signals the tier's waiters. Nothing here waits or evicts: it returns a code.
 *
 * Threads: any. Ownership: a block belongs to whoever allocated it until spw__tier_free.
 */
#ifndef SPW_POOL_TIER_H
#define SPW_POOL_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/counters.h"
#include "pool/base/lock.h"
#include "pool/base/meta.h"
#include "pool/base/units.h"
#include "pool/base/wait.h"
#include "pool/device/device.h"
#include "pool/ledger.h"
#include "pool/range.h"
#include "pool/small.h"
#include "pool/source_device.h"
#include "pool/spare.h"

#include <spillway/spec.h>

/* Memory in a tier. bytes == 0: none. The charge (group, bytes) is in it. */
struct spw__block {
    uint64_t address; /* CPU address, or device address in the device tier */
    uint64_t bytes;   /* as charged: rounded up */
    struct spw__group *group; /* NULL: nobody is charged for it, and its free gives nobody anything back */
    uint32_t node;    /* of the pool's range; of a small object its slab */
    uint16_t pool;
    uint8_t tier;
    uint8_t slot; /* of a small object, counted from 1; 0: the block is an allocation of the range itself */
};

/* A pool's range covers what has been given memory; it grows to the pool's size when nothing in it fits any more:
 *
 *     still --no hole, and the rest would help--> growing (no lock held) --populated--> still, larger
 *                                                                        --the system refuses--> still, as before
 *
 * So no new memory is touched while old memory is free. Device pools are grown from the start, unless their memory is
 * mapped as it is needed (source_device.h). */
struct spw__pool {
    struct spw__mutex lock;
    struct spw__cond grown_cond;
    struct spw__range *range; /* guarded by lock */
    void **owners;            /* guarded by lock: by node, who may be asked to move; NULL: nobody */
    uint32_t n_owners;        /* guarded by lock */
    struct spw__small *small; /* NULL: every block is an allocation of the range */
    struct spw__spare *spare; /* NULL: no block is kept when it is freed */
    uint64_t grown;           /* guarded by lock: size of the range */
    uint64_t reach;           /* guarded by lock: what counts as free ends here: at its size, or where the device had no
                                 more memory for it; the next request tries again */
    uint64_t step;            /* guarded by lock: next growth */
    uint64_t unit;            /* constant: it grows to multiples of this, or to its size */
    bool growing;             /* guarded by lock: one thread at a time; also while it is trimmed */
    bool trimming;            /* guarded by lock: it is trimmed, which no request may fail for */
    uint64_t base;
    uint64_t size;
    uint64_t limit; /* UINT64_MAX: unlimited */
    uint64_t set_aside; /* bytes at its beginning that are never given back: no request can have them */
    bool registered; /* with the device's driver: it may have refused */
    struct spw__device_memory on_device; /* guarded by growing; device tier only */
};

struct spw__tier {
    spw_tier tier;
    bool present;
    uint32_t n_pools;
    uint32_t n_small;         /* pools with caches of small objects */
    uint32_t n_cached;        /* pools with caches of these or of spare blocks */
    uint64_t small_max_bytes; /* larger requests are never small objects: they may have to be split */
    struct spw__pool *pools;  /* in the order of the specification */
    uint32_t *route;          /* pool numbers, smallest limit first, unlimited last */
    uint64_t size;            /* of all pools */
    uint64_t largest_request; /* what the largest eligible pool could hold when empty */
    uint64_t set_aside;       /* of all pools */
    uint32_t granularity;
    struct spw__device *device; /* device tier only; not owned */
    uint64_t map_unit;          /* of device memory that is mapped as it is needed; 0: plain allocations */
    unsigned numa;              /* node + 1 of host memory; 0: any */
    const struct spw__log *log;
    struct spw__meta *meta;
    struct spw__waitset *waits;
    struct spw__counters *counters;
    unsigned first_counter; /* of enum spw__tier_counter */
};

/* Counters of one tier, from first_counter on. */
enum spw__tier_counter {
    SPW__TIER_ALLOCS,
    SPW__TIER_ALLOC_BYTES,
    SPW__TIER_FALLBACKS,
    SPW__TIER_FAIL_BUDGET,
    SPW__TIER_FAIL_FRAGMENTED,
    SPW__TIER_COUNTERS
};

/* Pools begin at multiples of this: the largest alignment that a request may ask for. */
#define SPW__ALIGN_MAX SPW__HUGE_PAGE

/* Whether a request may let a pool grow: FREELY also waits for another thread that does, ALONE only for a trim. */
enum spw__grow { SPW__GROW_NOT, SPW__GROW_FREELY, SPW__GROW_ALONE };

struct spw__tier_config {
    spw_tier tier;
    const spw_spec_pool *pools;
    uint32_t n_pools;
    bool address_ordered;
    uint64_t piece_bytes; /* blocks up to this size are never split; 0: none is */
    unsigned numa;        /* host memory lies on node numa - 1; 0: wherever */
    struct spw__device *device;
    bool maps; /* device memory is mapped as it is needed, where the device can */
    const struct spw__log *log;
    struct spw__meta *meta;
    struct spw__waitset *waits;
    struct spw__counters *counters;
    unsigned first_counter;
};

/* Reserves the memory of every pool, all or nothing. n_pools 0 gives a tier that is not present.
 * SPW_ENOMEM, SPW_EDEVICE, SPW_ENOMETA. finish gives everything back; all blocks must have been freed. */
int spw__tier_init(struct spw__tier *tier, const struct spw__tier_config *config);
void spw__tier_finish(struct spw__tier *tier);

/* Bytes that a request of bytes will be charged; a small object may cost up to a tenth more when there is room, and raw
 * memory in a large pool a sixteenth. (Requests of all sizes come through here in turn: the choice is no branch.) */
static inline uint64_t spw__tier_charge(const struct spw__tier *tier, uint64_t bytes)
{
    const uint64_t direct = (uint64_t)0 - (bytes >= SPW__DIRECT_MIN_BYTES); /* all bits or none */
    const uint64_t last = ((SPW__IO_BLOCK - 1) & direct) | ((tier->granularity - 1u) & ~direct);
    return (bytes + last) & ~last;
}

/* One try; may let a pool grow, so never under a lock (see spw__tier_try). SPW_ENOMEM: no room in a budget or the
 * pools; SPW_EFRAG: room, but no hole; SPW_ETOOBIG: no pool can ever hold it, or a budget on the way from its group to
 * the root can never grant it; SPW_ENOMETA. Leaves the thread's error detail alone: callers try several tiers and
 * describe the failure themselves. A try that failed held its bytes in the ledger for a moment, in which an older
 * waiter's attempt may have been refused: outside an attempt, a failure is followed by spw__waitset_retry. */
int spw__tier_alloc(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, struct spw__block *out);

/* The same within the memory that the pools have already: for attempts, which run under the wait lock. */
int spw__tier_try(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, struct spw__block *out);

/* All of them, at an address that is a multiple of align: a power of two up to SPW__ALIGN_MAX, or 0 for what disks ask
 * for, and for what may get an owner. */
int spw__tier_alloc_aligned(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, uint64_t align,
                            enum spw__grow grow, struct spw__block *out);

/* The same for a request whose bytes are charged already, by a reservation: it takes memory only, and never a small
 * object. The block names no group until its owner gives the charge to it. */
int spw__tier_alloc_charged(struct spw__tier *tier, uint64_t bytes, uint64_t align, enum spw__grow grow,
                            struct spw__block *out);

/* Charges group for bytes and takes no memory. SPW_ENOMEM: no room in the budget; SPW_ETOOBIG: there never is.
 * (tier_charge.c) */
int spw__tier_reserve(struct spw__tier *tier, struct spw__group *group, uint64_t bytes);

/* Gives memory to the first pool that a request of bytes may use, unless one has a hole for it, so that a later try
 * under a lock, which may not block, finds it. False: no pool has one now. May block on the system; never under a
 * lock. */
bool spw__tier_grow_for(struct spw__tier *tier, uint64_t bytes);

/* False: the pools have all the memory that they will ever have. */
bool spw__tier_can_grow(struct spw__tier *tier);

/* The same in all pools for several requests, the smallest of least_bytes, total_bytes together. True when a pool grew
 * meanwhile: then the tier's waiters are to be signalled. */
bool spw__tier_grow_for_all(struct spw__tier *tier, uint64_t least_bytes, uint64_t total_bytes);

/* Gives free memory back until keep_bytes of it still have theirs: whole huge pages of a host tier to the system; of
 * device memory that is mapped as it is needed, chunks behind a pool's last allocation. Returns the bytes that were
 * there and went. Blocks on the system; never under a lock. (trim.c) */
uint64_t spw__tier_trim(struct spw__tier *tier, uint64_t keep_bytes);

/* Takes back what threads cache: done by every try before it reports that there is no room. Returns the bytes that are
 * no longer committed. (tier_small.c) */
uint64_t spw__tier_drain(struct spw__tier *tier);

/* No more than this lies in caches. (tier_small.c) */
uint64_t spw__tier_cached_most(const struct spw__tier *tier);

/* Gives a block back to its pool and its group, then signals those who wait for the tier; a small object, and raw
 * memory in a large pool, may stay in the thread's cache as long as nobody waits. SPW_EBADHANDLE, and nothing is
 * changed, when it is not live. */
int spw__tier_free(struct spw__tier *tier, struct spw__block *block);

/* The block, the first of its pool, will stay for ever (staging): what could only fit in its place is too big. */
void spw__tier_set_aside(struct spw__tier *tier, const struct spw__block *block);

/* Counts block, an allocation of its pool's range that nobody was charged for, as granted, and charges group for it
 * (NULL: nobody, as spw__tier_alloc_charged). False, and no change: the budget has no room. */
bool spw__tier_adopt(struct spw__tier *tier, struct spw__group *group, struct spw__block *block);

/* Cuts a block: *block keeps the first bytes, *tail is the rest. SPW_ENOMETA; SPW_EINVAL: a small object has no
 * parts. */
int spw__tier_split(struct spw__tier *tier, struct spw__block *block, uint64_t bytes, struct spw__block *tail);

/* Names who may be asked to move what lies in block: a piece, for opening holes. Forgotten when the block is freed.
 * Best effort: without metadata memory, or for a small object, the block just stays where it is. */
void spw__tier_set_owner(struct spw__tier *tier, const struct spw__block *block, void *owner);

/* The owner of a live node, or NULL. Pool locked. */
static inline void *spw__pool_owner_locked(const struct spw__pool *pool, uint32_t node)
{
    return node < pool->n_owners ? pool->owners[node] : NULL;
}

/* The first pool of the route for a request of bytes, as an index into route; n_pools when none can hold it. */
static inline uint32_t spw__tier_first_route(const struct spw__tier *tier, uint64_t bytes)
{
    uint32_t low = 0, high = tier->n_pools;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (tier->pools[tier->route[middle]].limit < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All count what a pool can still grow by. From: of the pools from that place in the route on, which are those that a
 * request may use. */
uint64_t spw__tier_largest_free_from(struct spw__tier *tier, uint32_t route);
uint64_t spw__tier_free_from(struct spw__tier *tier, uint32_t route);
uint64_t spw__tier_largest_free(struct spw__tier *tier);
uint64_t spw__pool_free(struct spw__pool *pool);

/* True when memory comes as it is needed, and may go; else the driver knows each pool as one region for good. */
static inline bool spw__tier_grows(const struct spw__tier *tier)
{
    return tier->tier == SPW_TIER_DEVICE ? tier->map_unit != 0 : tier->tier == SPW_TIER_HOST || !tier->device;
}

static inline bool spw__block_is(const struct spw__block *block)
{
    return block->bytes != 0;
}

#endif
