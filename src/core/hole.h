/* Opening a hole: when enough bytes of a pool are free but no hole fits, the window in which the fewest movable bytes
 * lie is cleared. Pieces in it are dropped where a clean copy lies on disk, moved within the tier where there is room
 * outside the window, and else spilled. Fragmentation costs a small copy, not a failure.
 *
 *     idle --a window found (spw__hole_open)--> clearing --last piece gone--> idle, what was held back given back
 *
 * Invariants: one hole per tier at a time; the window is claimed in its range until the end, so that clearing cannot
 * fill what it clears; committed never exceeds the budget (a moved piece is charged twice while it moves, out of the
 * free bytes that made the hole possible).
 *
 * Where no window can be cleared (what is mapped, not spillable or raw lies everywhere), that is remembered until
 * something of the tier was freed or has become movable: others who wait are served meanwhile, and nobody looks again
 * in vain.
 *
 * Threads: any; the fields say what guards them. Ownership: the manager owns one per tier.
 */
#ifndef SPW_CORE_HOLE_H
#define SPW_CORE_HOLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/tier.h"

struct spw_manager;
struct spw__piece;

enum { SPW__HOLE_IN_FLIGHT = 16, SPW__HOLE_TRIES_MAX = 4 };

struct spw__hole_piece {
    struct spw__piece *piece; /* with a reference to its payload */
    uint32_t node;
};

/* What had no window when the tier had seen so many changes: bytes at a multiple of align, and all that is more. */
struct spw__hole_none {
    uint64_t bytes; /* UINT64_MAX: nothing is known */
    uint64_t align;
    uint64_t changes;
};

struct spw__hole {
    struct spw_manager *manager;
    spw_tier tier;
    bool active;           /* guarded by the tier's pressure lock, as the next two */
    unsigned tries;        /* opened, since the last round ended */
    struct spw__hole_none none;
    _Atomic uint32_t working; /* atomic: moves in flight, and one for whoever starts them; who takes it to 0 closes */
    struct spw__mutex lock;
    uint32_t next_piece; /* guarded by lock */
    /* Written by who opens, before any piece moves, and by who closes, after the last: constant in between. */
    struct spw__hole_piece *pieces;
    uint32_t room, n_pieces;
    uint32_t pool;
    uint64_t offset, bytes; /* of the window */
    bool admission;         /* it is for an admission: nothing goes from device to pinned_host */
    struct spw__group *requester; /* whom it is for: its groups' minima do not protect what lies in the window */
};

void spw__hole_init(struct spw__hole *hole, struct spw_manager *manager, spw_tier tier);
void spw__hole_finish(struct spw__hole *hole);

/* What a request's alignment means for a window: 0 is that of an I/O block. */
static inline uint64_t spw__hole_align(uint64_t align)
{
    return align ? align : SPW__IO_BLOCK;
}

enum spw__hole_result {
    SPW__HOLE_CLEARING, /* or cleared already */
    SPW__HOLE_NONE,     /* no pool has a window that can be cleared: remembered */
    SPW__HOLE_REFUSED,  /* no metadata memory for it: this round does without holes */
};

/* Starts clearing a window in tier for a request of bytes at a multiple of align; the caller has set active, which is
 * cleared at the end. admission: the request is one; requester: its group, which the caller uses (spw__group_use) and
 * the hole from here on. Not under a lock. */
enum spw__hole_result spw__hole_open(struct spw_manager *manager, spw_tier tier, uint64_t bytes, uint64_t align,
                                     bool admission, struct spw__group *requester);

/* What is known to have no window, as things are. The tier's pressure lock is held. */
struct spw__hole_none spw__hole_none_locked(const struct spw__hole *hole);

/* A piece's move is over, however it ended. */
void spw__hole_piece_done(struct spw__hole *hole);

#endif
