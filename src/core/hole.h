/* Opening a hole: when enough bytes of a pool are free but no hole fits, the window in which the fewest movable bytes lie
 * is cleared. Pieces in it are dropped where a clean copy lies on disk, moved within the tier where there is room outside
 * the window, and else spilled. Fragmentation costs a small copy, not a failure.
 *
 *     idle --a window found (spw__hole_open)--> clearing --last piece gone--> idle, what was held back given back
 *
 * Invariants: one hole per tier at a time; the window is claimed in its range until the end, so that clearing cannot fill
 * what it clears; committed never exceeds the budget (a moved piece
 * is charged twice while it moves, out of the free bytes that made the hole possible).
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

struct spw__hole {
    bool active;               /* guarded by the tier's pressure lock */
    unsigned tries;            /* guarded by the tier's pressure lock: opened, since the last round ended */
    struct spw_manager *manager;
    spw_tier tier;
    _Atomic uint32_t working;  /* atomic: moves in flight, and one for whoever starts them; who takes it to 0 closes */
    struct spw__mutex lock;
    struct spw__hole_piece *pieces; /* guarded by lock, as all below */
    uint32_t room, n_pieces, next_piece;
    uint32_t pool;
};

void spw__hole_init(struct spw__hole *hole, struct spw_manager *manager, spw_tier tier);
void spw__hole_finish(struct spw__hole *hole);

/* Starts clearing a window for a request of bytes at a multiple of align (0: of an I/O block) in tier; the caller has set active, which is cleared at the end, or at
 * once when no pool has a window that can be cleared. Not under a lock. */
void spw__hole_open(struct spw_manager *manager, spw_tier tier, uint64_t bytes, uint64_t align);

/* A piece's move is over, however it ended. */
void spw__hole_piece_done(struct spw__hole *hole);

#endif
