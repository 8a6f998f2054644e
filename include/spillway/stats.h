/* Statistics: what is where, what moved, and what it cost.
 *
 * Exact for tiers and pools at the moment of the snapshot; event counters only ever grow.
 *
 * Threads: any. Ownership: snapshots are plain values of the caller.
 */
#ifndef SPILLWAY_STATS_H
#define SPILLWAY_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>

SPW_BEGIN_DECLS

/* One tier. All in bytes unless named otherwise. */
typedef struct spw_tier_stats {
    uint64_t budget_bytes;
    uint64_t committed_bytes;  /* allocated, reserved and in flight: never above the budget, unless that was lowered or
                                  overbooked */
    uint64_t peak_bytes;       /* highest committed_bytes so far */
    uint64_t free_bytes;       /* budget not committed */
    uint64_t largest_free_bytes; /* largest contiguous hole; 0 for disk and meta */
    uint64_t allocs;           /* granted requests */
    uint64_t alloc_bytes;
    uint64_t admits;           /* the part of them that spw_admit placed here */
    uint64_t admit_bytes;
    uint64_t fallback_allocs;  /* served by a pool above the preferred one, because that was full */
    uint64_t fail_budget;      /* tries refused by the budget */
    uint64_t fail_fragmented;  /* tries refused for want of a contiguous hole */
    uint64_t spill_bytes;      /* moved out of this tier, downward, to make room */
    uint64_t drop_bytes;       /* evicted without a write, since a valid copy lay below */
    uint64_t raw_bytes;        /* live raw memory (pool.h), as charged: part of committed_bytes */
    uint64_t raw_peak_bytes;   /* highest raw_bytes so far */
    uint64_t raw_allocs;       /* raw blocks handed out: part of allocs */
    uint64_t holes;            /* windows cleared for requests that only lacked a hole */
    uint64_t hole_bytes;       /* moved within the tier to clear them */
    uint64_t reserved_bytes;   /* held by reservations: part of committed_bytes */
    uint64_t overbooked_bytes; /* committed_bytes beyond the budget */
    uint64_t overbooks;        /* reservations granted beyond the budget, since OVERBOOK asked for it, and external
                                  charges that exceeded it */
    uint64_t overbook_bytes;   /* by how much, summed */
    uint64_t headroom_bytes;   /* chosen for spilling ahead of demand */
    uint64_t external_bytes;   /* memory of others that was charged here (reclaim.h): part of committed_bytes */
    uint64_t reclaims;         /* calls of reclaimers */
    uint64_t reclaim_bytes;    /* that they said they freed */
    uint64_t reserved[3];      /* 0: room for later versions, since this struct lies inside spw_stats */
} spw_tier_stats;

/* One edge: bytes moved from one tier to another, counted from source to final place. */
typedef struct spw_edge_stats {
    uint64_t copies;
    uint64_t bytes;
    uint64_t ns; /* time from start to completion, summed over copies (several run at once) */
    uint64_t reserved[4]; /* 0, as in spw_tier_stats */
} spw_edge_stats;

typedef struct spw_stats {
    size_t struct_size;
    spw_tier_stats tiers[SPW_TIER_COUNT];
    spw_edge_stats edges[SPW_TIER_COUNT][SPW_TIER_COUNT]; /* [source][destination] */
    uint64_t disk_written_bytes; /* given to the kernel, block padding included */
    uint64_t disk_read_bytes;
    uint64_t disk_allocated_bytes; /* size of the spill files now */
    uint64_t waits;              /* requests that had to wait */
    uint64_t wait_ns;
    uint64_t wait_timeouts;
    uint64_t spill_failures;     /* victims that could not be written and stayed where they were */
    uint64_t corrupt_pieces;     /* reads whose checksum did not match */
    uint64_t buffers;            /* live handles */
    uint32_t io_is_uring;        /* 1: io_uring; 0: threads, or no disk tier */
    uint32_t io_is_direct;       /* 1: every spill folder takes O_DIRECT */
    uint64_t meta_resident_bytes; /* what jemalloc holds for metadata; 0: metadata is of the process's malloc */
    uint64_t tasks;              /* live */
    uint64_t retries;            /* waits that ended with SPW_ERETRY */
    uint64_t splits;             /* waits that ended with SPW_ESPLIT */
    uint64_t waits_chosen;       /* of waits: served by releases, which were expected to be quicker than a spill */
    uint64_t spills_chosen;      /* of waits: those that were not, or no longer, left to releases */
    uint64_t reloaded_within_1s_bytes; /* read back from disk within a second after they were written there */
    uint64_t device_lost;        /* 1: its driver has given the device up, with what lay there alone (docs/device.md) */
} spw_stats;

/* Initialiser of a spw_stats: everything 0 but struct_size. */
#ifdef __cplusplus
#  define SPW_STATS_INIT spw_stats{sizeof(spw_stats), {}, {}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
                                     0}
#else
#  define SPW_STATS_INIT (spw_stats){.struct_size = sizeof(spw_stats)}
#endif

/* Takes a snapshot. stats->struct_size must be set (SPW_STATS_INIT does it) and is kept: a library that knows more
 * fields fills no more than so many bytes, one that knows fewer leaves the rest as it was. Small objects that threads'
 * caches hold free are given back to their pools first, so that committed_bytes is what the engine holds: the next
 * small allocations of each thread are slower. Waits for nobody, but takes the library's locks, each for the time it
 * takes to copy counters or empty caches. SPW_EINVAL (NULL, or no struct_size), SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_stats_snapshot(spw_manager *manager, spw_stats *stats);

typedef enum spw_stats_format { SPW_STATS_TEXT = 0, SPW_STATS_JSON = 1 } spw_stats_format;

/* Receives a part of the dump. Returns 0 to go on; anything else ends the dump, which then returns SPW_EIO. */
typedef int (*spw_writer)(void *arg, const char *bytes, size_t length);

/* Writes a snapshot (see above for what taking one means) as aligned text in human units, or as one JSON object with
 * exact integers. Both list the groups as well (in JSON "groups", parents before their children: "parent" is the place
 * in the list of the one above, counted from 1, or 0; a "max_bytes" of null is no limit). The writer is called on the
 * calling thread, several times, without locks: it may block, and may call the library. SPW_EINVAL (NULL, an unknown
 * format), SPW_ENOMETA (no memory for the list of groups), SPW_EIO (the writer ended it; what was written stays),
 * SPW_EFORK. Any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_stats_dump(spw_manager *manager, spw_stats_format format, spw_writer writer, void *arg);

SPW_END_DECLS

#endif
