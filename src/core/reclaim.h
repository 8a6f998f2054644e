/* Reclaimers inside: who may be called now, calls one at a time, and what a callback may allocate.
 *
 *     idle --claim: its owner waits, the cheapest--> running --the callback is over--> idle
 *       |                                               |  \--freed less than it was asked for--> idle, spent
 *       \--unregister--> gone <--unregister: waits, or from inside: when it is over--/
 *     spent --its owner runs | the place's round of pressure ends--> not spent
 *
 * Whoever lacks room chooses (pump.c): a thread that waits for it may claim and call; anybody else summons such a
 * thread (spw__waitset_summon_locked). A summons is never lost: the thread comes, or passes it on when it leaves first.
 * Where only tickets wait there is no such thread, and the summons goes to one that serves them (reclaim_serve.c): the
 * manager's own, which does nothing else, or, with threads=0, whoever makes progress.
 * Who begins to wait makes its reclaimers available, and summons as well. A spent reclaimer is not claimed again, so
 * that calls end.
 *
 * While a callback runs the arbiter asks nobody, and the threads of its task are held where they wait
 * (spw__reclaim_hold_locked).
 *
 * Threads: all state is guarded by the manager's wait lock, but for what is marked atomic.
 */
#ifndef SPW_CORE_RECLAIM_H
#define SPW_CORE_RECLAIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/units.h"
#include "pool/base/wait.h"
#include "pool/tier.h"
#include "src/core/task.h"

#include <spillway/reclaim.h>
#include <spillway/reserve.h>

struct spw__choice;
struct spw__request;

#define SPW__RECLAIMER_LIVE UINT64_C(0x7370775f7265636c)
#define SPW__RECLAIMER_DEAD UINT64_C(0x7370775f7265636d)
#define SPW__RECLAIMER_NAME_BYTES 32

struct spw_reclaimer {
    _Atomic uint64_t magic; /* atomic */
    spw_manager *manager;   /* constant while it lives, as all up to reserve */
    struct spw_task *task;
    char name[SPW__RECLAIMER_NAME_BYTES];
    spw_tier tier;
    int64_t priority;
    uint64_t serial; /* the age: lower is older */
    uint64_t cost_ns_per_mib;
    uint64_t (*estimate)(void *arg);
    uint64_t (*reclaim)(void *arg, uint64_t bytes);
    void *arg;
    uint64_t reserve_bytes; /* what its reserve is filled up to */
    spw_reservation *reserve; /* NULL: none */
    /* Guarded by the wait lock. */
    struct spw_reclaimer *next; /* of its task's, or the dead */
    bool running, spent;
    bool ends; /* unregistered from inside its callback */
};

/* A manager's. */
struct spw__reclaim {
    struct spw_reclaimer *dead; /* guarded by the wait lock: used again */
    uint64_t next_serial;       /* guarded by the wait lock */
    struct spw__cond over;      /* a callback is over */
    _Atomic uint32_t n_running; /* atomic, changed under the lock: callbacks */
    _Atomic uint32_t n[SPW__MEMORY_TIERS];              /* atomic, changed under the lock: live ones */
    _Atomic uint32_t wanted;    /* atomic, changed under the lock: bits: tiers where tickets are to be served */
    uint32_t urgent;            /* guarded by the wait lock: of these, what else there is to help was tried */
    struct spw__cond called;    /* wanted, or ends, was set */
    bool starting, has_thread;  /* guarded by the wait lock: somebody starts our thread, or has; it is there */
    bool ends;                  /* guarded by the wait lock: it is to end */
    pthread_t thread;           /* constant while has_thread */
    struct spw__waiter server;  /* constant: stands for whoever serves; it always waits */
    _Atomic uint64_t expected_bytes[SPW__MEMORY_TIERS]; /* atomic: what those that run were asked for */
};

/* One call of a claimed reclaimer. */
struct spw__reclaim_call {
    struct spw_reclaimer *reclaimer;
    uint64_t bytes;
    bool own; /* by its own task, which runs */
};

enum spw__reclaim_choice { SPW__RECLAIM_NONE, SPW__RECLAIM_SUMMONED, SPW__RECLAIM_CLAIMED };

/* No reclaimer costs as much: the limit that all are below. */
#define SPW__RECLAIM_ANY_COST UINT64_MAX

void spw__reclaim_init(struct spw_manager *manager);
void spw__reclaim_finish(struct spw_manager *manager); /* when no callback can be running */

/* The cheapest reclaimer below a cost, of among->tier and of use to whom that says, if there is one that may be called
 * now: claimed for helper while that still waits, for the caller to call; else a waiting thread is summoned. NONE also
 * where nobody could be. Wait lock not held. */
enum spw__reclaim_choice spw__reclaim_choose(struct spw_manager *manager, const struct spw__choice *among,
                                             uint64_t bytes, uint64_t below, const struct spw__waiter *helper,
                                             struct spw__reclaim_call *call);

/* A helper found none of use: all of tier that may be called now count as spent, so that the arbiter goes on. */
void spw__reclaim_pass(struct spw_manager *manager, spw_tier tier);

/* The cheapest of task's own in tier that is neither spent nor running, claimed whatever the task does. False: there is
 * none. renew, before and after a round of that: what was spent is not any more. */
bool spw__reclaim_claim_own(struct spw_task *task, spw_tier tier, uint64_t bytes, struct spw__reclaim_call *call);
void spw__reclaim_renew_own(struct spw_task *task);

/* Calls what was claimed; returns what it says that it freed. Not under a lock. */
uint64_t spw__reclaim_call(const struct spw__reclaim_call *call); /* (reclaim_use.c) */
/* The callback is over: the threads that were held go on. spent: it freed less than it was asked for. */
void spw__reclaim_end_call(const struct spw__reclaim_call *call, bool spent);

/* Summons a thread to call reclaimers of tier: of one who waits for room there, or that serves tickets which do. False:
 * there is none. Wait lock held. (reclaim_serve.c, as all up to end_serving) */
bool spw__reclaim_summon_to_locked(struct spw_manager *manager, spw_tier tier, bool urgent);
/* Starts the thread that serves tickets, unless it is there or threads=0. SPW_ENOMEM. */
int spw__reclaim_start_serving(struct spw_manager *manager);
/* Does what was summoned so far; at once when nothing was. Not under a lock, nor from inside a callback. */
void spw__reclaim_serve(struct spw_manager *manager);
/* The same by a thread in spw_progress: while it does, it counts as waiting. */
void spw__reclaim_serve_as_waiting(struct spw_manager *manager);
void spw__reclaim_end_serving(struct spw_manager *manager); /* when nobody waits any more */

/* Before the arbiter asks somebody: true when a thread was summoned to call a reclaimer of tiers (bits) first. */
bool spw__reclaim_summon_locked(struct spw_manager *manager, uint32_t tiers);

/* Threads of task have come, gone, or wait. Wait lock held. */
void spw__reclaim_task_changed_locked(struct spw_manager *manager, struct spw_task *task);

/* Returns when no callback of task runs, unless the calling thread is inside one. Wait lock held, and let go of. */
void spw__reclaim_hold_locked(struct spw_manager *manager, const struct spw_task *task);

/* Nothing is done for tier any more: unless somebody waits there all the same, what was spent is not any more. */
void spw__reclaim_end_round(struct spw_manager *manager, spw_tier tier);

/* The wait set's hooks, of a manager. (reclaim_use.c, as all below) */
void spw__reclaim_help(void *manager, struct spw__waiter *waiter, bool urgent);
void spw__reclaim_leaving(void *manager, struct spw__waiter *waiter);

/* The reclaimer of the manager's in whose callback the calling thread is; NULL: none. */
struct spw_reclaimer *spw__reclaim_inside_slow(const struct spw_manager *manager);

/* Prepares a request made inside the callback: its reserve pays, and it does not wait. SPW_ENOMEM: it cannot be. */
int spw__reclaim_divert(const struct spw_reclaimer *reclaimer, struct spw__request *request);
/* What became of it. */
int spw__reclaim_conclude(const struct spw_reclaimer *reclaimer, const struct spw__request *request, int rc);

/* True when the charge of a block that the calling thread frees is kept, to fill up a reserve. */
bool spw__reclaim_keeps(const struct spw_manager *manager, const struct spw__block *block);
/* Such a block of so many bytes was freed, its charge kept: what the reserve does not need of it is given back. */
void spw__reclaim_keep(struct spw_manager *manager, uint64_t bytes);

/* SPW_EINVAL, with call in the detail, inside a callback: what it does is not for callbacks. */
int spw__reclaim_check_outside(const struct spw_manager *manager, const char *call);

/* SPW_EBUSY, with one of them, while any is live. */
int spw__reclaimers_check_none(struct spw_manager *manager);

#endif
