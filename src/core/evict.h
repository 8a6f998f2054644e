/* Eviction of one piece: a drop, a move to a lower memory tier, or a write to disk. Never waits for a budget.
 * Threads: any; what a call needs to be locked is said with it. */
#ifndef SPW_CORE_EVICT_H
#define SPW_CORE_EVICT_H

#include "spill/victim.h"
#include "src/core/hole.h"
#include "src/core/payload.h"

enum spw__evict_result {
    SPW__EVICT_STARTED, /* dropped at once, or leaving */
    SPW__EVICT_SKIPPED, /* it was not a victim any more */
    SPW__EVICT_NO_DISK, /* it could only go to the disk, which is full: filed as failed */
    SPW__EVICT_BUSY,    /* not now: ask again when a move completes or lower memory is freed */
};

/* A victim that was popped (spw__victim_pop), and what its queue counts as leaving for it. */
struct spw__victim {
    struct spw__item *item;
    struct spw__victims *queue;
    spw_tier tier;
    uint64_t bytes;
    bool admission; /* it makes room for an admission: it does not go from device to pinned_host */
    bool disk_full; /* the disk had no room in this round */
};

/* A choice among the victims of a tier. */
struct spw__choice {
    spw_tier tier;
    uint32_t route;       /* the pools from there on are of use, */
    uint64_t least_bytes; /* if they can hold that much */
    bool clean_only;
    const struct spw__group *lacking;   /* what has no room: only what lies below it is of use */
    const struct spw__group *requester; /* for whom: the groups that it belongs to are not held to their minima */
};

/* Pops the victim that is to go first, which counts as leaving from now on. False: there is none. */
bool spw__victim_pop(struct spw_manager *manager, const struct spw__choice *choice, struct spw__victim *victim);

/* Drops clean copies of tier, those first that are to go first, until bytes are free to requester, or there is none
 * that helps. True: some went. Not under a lock. */
bool spw__evict_clean(struct spw_manager *manager, struct spw__group *requester, spw_tier tier, uint64_t bytes);

/* What spilling a MiB of tier to where its pieces go next, the tier below it or the disk, has taken so far; 0.5 ms
 * before any was, and UINT64_MAX where nothing can go. reload: the same for the way back from there. */
uint64_t spw__evict_ns_per_mib(const struct spw_manager *manager, spw_tier tier);
uint64_t spw__reload_ns_per_mib(const struct spw_manager *manager, spw_tier tier);

/* Takes over the claim's reference and the count. May let lower pools grow: not under a lock. */
enum spw__evict_result spw__evict_start(const struct spw__victim *victim);

/* Clears a piece, if it still lies at node, out of the window of hole: dropped, moved within its tier, or spilled.
 * Takes over a reference to its payload. True: it is moving, and spw__hole_piece_done is called when that is over. */
bool spw__evict_for_hole(struct spw__piece *piece, uint32_t node, struct spw__hole *hole);

/* Gives up clean copies on disk, coldest first, until bytes are free there or there are none. When it is a group's
 * maximum that refuses a charge of bytes to group, only those of that group are of use. True if any was. */
bool spw__evict_reclaim_disk(void *manager, struct spw__group *group, uint64_t bytes);

/* For spw__victims_pop. */
bool spw__evict_claim(struct spw__item *item);

#endif
