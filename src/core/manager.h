/* The manager's insides: wiring and what the rest of src/core shares. No policy lives here. */
#ifndef SPW_CORE_MANAGER_H
#define SPW_CORE_MANAGER_H

#include <stdatomic.h>

#include "pool/base/counters.h"
#include "pool/base/log.h"
#include "pool/base/units.h"
#include "pool/tier.h"
#include "spill/mover.h"
#include "spill/store.h"
#include "spill/victim.h"
#include "src/core/arbiter.h"
#include "src/core/external.h"
#include "src/core/headroom.h"
#include "src/core/hole.h"
#include "src/core/parked.h"
#include "src/core/patience.h"
#include "src/core/raw.h"
#include "src/core/reclaim.h"
#include "src/core/reserve.h"
#include "src/core/stream.h"
#include "src/core/ticket.h"

#include <spillway/manager.h>
#include <spillway/spec.h>

/* Counters of the manager beside those of tiers and mover. */
enum spw__core_counter {
    SPW__CORE_ADMITS = 0,                             /* per memory tier */
    SPW__CORE_ADMIT_BYTES = SPW__CORE_ADMITS + SPW__MEMORY_TIERS,
    SPW__CORE_SPILL_BYTES = SPW__CORE_ADMIT_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_DROP_BYTES = SPW__CORE_SPILL_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_HEADROOM_BYTES = SPW__CORE_DROP_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_RELEASE_BYTES = SPW__CORE_HEADROOM_BYTES + SPW__MEMORY_TIERS, /* by the engine */
    SPW__CORE_HOLES = SPW__CORE_RELEASE_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_HOLE_BYTES = SPW__CORE_HOLES + SPW__MEMORY_TIERS,
    SPW__CORE_OVERBOOKS = SPW__CORE_HOLE_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_OVERBOOK_BYTES = SPW__CORE_OVERBOOKS + SPW__MEMORY_TIERS,
    SPW__CORE_RECLAIMS = SPW__CORE_OVERBOOK_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_RECLAIM_BYTES = SPW__CORE_RECLAIMS + SPW__MEMORY_TIERS,
    SPW__CORE_WAITS = SPW__CORE_RECLAIM_BYTES + SPW__MEMORY_TIERS,
    SPW__CORE_WAIT_NS,
    SPW__CORE_WAIT_TIMEOUTS,
    SPW__CORE_SPILL_FAILURES,
    SPW__CORE_WAITS_CHOSEN,
    SPW__CORE_SPILLS_CHOSEN,
    SPW__CORE_RELOADED_SOON_BYTES,
    SPW__CORE_RETRIES,
    SPW__CORE_SPLITS,
    SPW__CORE_TIERS,                                  /* SPW__TIER_COUNTERS per memory tier */
    SPW__CORE_MOVER = SPW__CORE_TIERS + SPW__MEMORY_TIERS * SPW__TIER_COUNTERS,
    SPW__CORE_COUNTERS = SPW__CORE_MOVER + SPW__MOVER_COUNTERS
};
_Static_assert((int)SPW__CORE_COUNTERS <= (int)SPW__COUNTERS_MAX, "raise SPW__COUNTERS_MAX");

/* What happens when a request does not fit, per memory tier. */
struct spw__pressure {
    struct spw__mutex lock;  /* one choice of victims at a time */
    bool failed;             /* guarded by lock: a victim could not be written in this round */
    spw_error_info failure;  /* guarded by lock: why */
    _Atomic uint64_t looks;  /* atomic: how often somebody began to look what is to be done, whatever had happened */
};

/* Handles lie in chunks that are never given back while the manager lives, so that a stale one is recognised. */
struct spw__handle_chunk;
struct spw__handles {
    struct spw__mutex lock;
    struct spw__handle_chunk *chunks; /* guarded by lock */
    struct spw_buffer *free_first, *free_last; /* guarded by lock: reused oldest first */
    uint64_t live;                    /* guarded by lock */
};

/* Payloads of one piece that were freed and wait for the next buffers: where buffers come and go, making one needs no
 * memory and no new lock. They stay charged to the metadata budget, and there are few. */
struct spw__payload;
struct spw__spares {
    struct spw__mutex lock;
    struct spw__payload *first; /* guarded by lock */
    uint32_t n;                 /* guarded by lock */
};

/* What tests replace. */
struct spw__env {
    const struct spw__clock *clock; /* NULL: the real one */
};

struct spw_manager {
    struct spw__env env;
    struct spw__log log;
    struct spw__meta meta;
    struct spw__ledger ledger;
    struct spw__mutex groups_lock; /* the tree below root */
    _Atomic uint32_t n_groups;     /* atomic: groups below root, tasks not counted; changed under groups_lock */
    spw_group *groups;             /* guarded by groups_lock: all that the caller owns */
    spw_group *dead_groups, *last_dead_group; /* guarded by groups_lock: destroyed, for longest first */
    uint32_t n_dead_groups;        /* guarded by groups_lock */
    struct spw__group root; /* gates of all places but meta, whose gate is in meta */
    struct spw__waitset waits;
    struct spw__arbiter arbiter;
    struct spw__reclaim reclaim;
    struct spw__external external;
    struct spw__counters counters;
    struct spw__tier tiers[SPW__MEMORY_TIERS];
    struct spw__victims *victims[SPW__MEMORY_TIERS]; /* one per pool */
    struct spw__victim_share *root_shares; /* of all queues, as each node of the tree of groups has them: */
    uint32_t first_share[SPW__MEMORY_TIERS]; /* constant: those of a tier begin there, in the order of its pools */
    uint32_t n_shares;                       /* constant */
    struct spw__pressure pressure[SPW__MEMORY_TIERS];
    struct spw__hole holes[SPW__MEMORY_TIERS];
    struct spw__headroom headroom[SPW__MEMORY_TIERS];
    struct spw__patience patience[SPW__MEMORY_TIERS];
    uint64_t patience_max_ns;       /* constant, but for tests */
    _Atomic uint32_t n_patient;     /* atomic: requests that will demand room if nothing is released */
    struct spw__device *device;
    atomic_bool loss_seen; /* atomic: the device is lost, and who waits for it knows */
    struct spw__store *store;
    struct spw__mover *mover;
    struct spw__block staging_block; /* of the tier that pays for staging */
    void *staging_meta;              /* staging paid by meta */
    uint64_t staging_bytes;
    uint64_t piece_bytes;
    int64_t default_timeout_ms;
    uint64_t serial;          /* constant: of all managers that this process ever made; not 0 */
    unsigned fork_generation; /* constant: of the process that made it */
    struct spw__handles handles;
    struct spw__spares spares;
    struct spw__reservations reservations;
    struct spw__tickets tickets;
    struct spw__loop loop;
    struct spw__raw raw;
    struct spw__parked parked;
    struct spw__streams streams;
    struct spw__mutex moves_lock;
    struct spw__move *free_moves; /* guarded by moves_lock: set aside, so that a spill needs no memory */
    struct spw__move *moves;
    _Atomic uint64_t next_identity; /* atomic: of a piece; never the same again */
};

/* Set-aside moves: more than the mover has in flight, fewer than would let a burst of victims run ahead of the need. */
enum { SPW__SPILL_MOVES = 64 };

/* spw_manager_create with parts replaced; for tests. */
int spw__manager_create_env(const spw_options *options, const struct spw__env *env, struct spw_manager **out);

/* Non-zero, with detail, when the calling process is a fork of the one that made the manager. */
int spw__check_process(const struct spw_manager *manager);

struct spw__move *spw__move_take(struct spw_manager *manager); /* NULL: all in flight */
void spw__move_give(struct spw_manager *manager, struct spw__move *move);

/* The wait set's drive hook with threads=0, of a manager. (progress.c) */
void spw__progress_drive(void *manager);

static inline void spw__core_count(struct spw_manager *manager, unsigned which, uint64_t amount)
{
    spw__count(&manager->counters, which, amount);
}

/* See spw__reclaim_inside_slow. */
static inline struct spw_reclaimer *spw__reclaim_inside(const struct spw_manager *manager)
{
    return atomic_load_explicit(&manager->reclaim.n_running, memory_order_relaxed) == 0
               ? NULL
               : spw__reclaim_inside_slow(manager);
}

static inline struct spw__tier *spw__tier_of(struct spw_manager *manager, spw_tier tier)
{
    return &manager->tiers[tier];
}

/* True when place names a memory tier that this manager has. */
static inline bool spw__memory_place(const struct spw_manager *manager, spw_place place)
{
    return place != SPW_PLACE_NONE && SPW_PLACE_INDEX(place) == 0 &&
           (unsigned)SPW_PLACE_TIER(place) < SPW__MEMORY_TIERS && manager->tiers[SPW_PLACE_TIER(place)].present;
}

/* SPW_OK, or SPW_EINVAL when it is not so, with the memory tiers there are. what: the public function, and the option
 * where it is one. (budget.c) */
int spw__check_place(const struct spw_manager *manager, spw_place place, const char *what);

#endif
