/* Requests for memory, and what happens when one does not fit: the one place where that is decided.
 *
 *     try -> (no room) -> wait for releases alone, where they should be quicker than a spill (patience.h)
 *         -> drop clean copies -> spill the deficit, coldest first, or call reclaimers for it, whichever is cheaper
 *         (reclaim.h) -> wait for it, oldest waiter first
 *         -> granted | SPW_ENOMEM or SPW_EFRAG at the deadline | SPW_ENOSPC or SPW_EIO when nothing can be spilled
 *
 * A request is a waiter whose attempt allocates: whoever frees memory serves it. It lacks two things, bytes of the
 * budget and memory; a reservation wants the former alone, an allocation under one the latter alone. Nothing evicts but
 * pump.c, one thread per tier at a time, which counts what is leaving already: victims are never more than the deficit
 * plus one piece.
 */
#ifndef SPW_CORE_PRESSURE_H
#define SPW_CORE_PRESSURE_H

#include "pool/base/wait.h"
#include "pool/tier.h"

#include <spillway/reserve.h>
#include <spillway/wait.h>

struct spw_manager;

struct spw__request {
    struct spw__waiter waiter; /* first */
    struct spw_manager *manager;
    struct spw__group *group; /* NULL: the task's, or the manager's own */
    spw_tier first, lowest; /* tiers tried, in order; victims come from the lowest */
    struct spw__group *min_of; /* bytes are set aside for it, and nothing is allocated; NULL: a block is asked for */
    uint64_t bytes;
    uint64_t align; /* of the address: a power of two up to SPW__ALIGN_MAX; 0: what disks ask for */
    bool nowait;
    bool admission; /* nothing may go from device to pinned_host for it */
    int64_t net_bytes; /* of a reservation: what memory in use grows by in the end */
    bool charge_only; /* a reservation: it wants bytes of the budget, and no memory */
    spw_reservation *reservation; /* pays for it: it wants memory, and nothing of the budget. NULL: group is charged */
    bool spill_failed;      /* guarded by the wait lock once enqueued: it ended because nothing more could be spilled */
    int failed;             /* guarded by the wait lock once enqueued: why the last attempt at lowest did not succeed */
    struct spw__block block; /* out */
    /* Asynchronous, see spw__request_start: what to call under the wait lock once it waits no more (NULL: its thread
     * blocks), and for whom. */
    void (*completed)(struct spw__waiter *waiter);
    void *arg;
    uint64_t begun_ns; /* when its wait began; 0: it has not */
    bool inside;       /* its thread has waited, and is to leave: see spw__request_over */
};

/* Who pays for it, and whose cancelling ends it. */
static inline struct spw__group *spw__request_payer(const struct spw__request *request)
{
    return request->min_of ? request->min_of : request->group;
}

/* Bytes that the request is charged in tier. */
static inline uint64_t spw__request_charge(const struct spw__request *request, const struct spw__tier *tier)
{
    if (request->min_of)
        return spw__ledger_min_lack(request->min_of, tier->tier, request->bytes);
    return request->charge_only ? request->bytes : spw__tier_charge(tier, request->bytes);
}

/* Blocks as wait says, and is followed by spw__request_over. On success request->block is the caller's; what a
 * reservation paid for names no group yet (see reserve.h). On error the thread's detail is set, and a reservation has
 * its bytes back. */
int spw__request_run(struct spw__request *request, const spw_wait_options *wait);

/* The call has looked at its manager, and its task, for the last time: a forced destroy, which waits for calls that
 * waited, may go on. */
void spw__request_over(const struct spw__request *request);

/* The asynchronous form. start ends as run does, without waiting, or gives SPW__REQUEST_WAITS: then room is still to be
 * made for it (make_room in ticket.c), and once completed was called finish is given the waiter's result, and ends as
 * run does. The request stays where it is until then; wait.task is the task, if any, and counts the call as a user. */
#define SPW__REQUEST_WAITS 1
int spw__request_start(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns);
int spw__request_finish(struct spw__request *request, int rc);

/* False: it can never fit, as budgets are now, whatever is freed. */
bool spw__request_possible(const struct spw__request *request);

/* Something in tier became evictable or free: serves its waiters and picks victims for those that are left. */
void spw__pressure_kick(struct spw_manager *manager, spw_tier tier);

/* The same by the thread of waiter, which waits for room there: it may also call reclaimers. True when it has. */
bool spw__pressure_help(struct spw_manager *manager, spw_tier tier, struct spw__waiter *waiter);

/* Before somebody begins to wait for room: what failed after the last one had left is not held against it. (pump.c, as
 * all from kick on) */
void spw__pressure_begin_round(struct spw_manager *manager, spw_tier tier);

/* Bytes that those who wait for room in tier lack, or in groups of that task, but for who waits on behalf of it.
 * (demand.c) */
uint64_t spw__pressure_lack(struct spw_manager *manager, spw_tier tier, const struct spw_task *but);

/* A window of tier's memory was cleared, for which nobody is charged: it goes to the oldest waiter that asks for just
 * as much, barred or not, since it was cleared for one that lacks just that. False: it is still the caller's. (grow.c)
 */
bool spw__pressure_grant(struct spw_manager *manager, struct spw__block *window);

/* Lets tier's pools grow for those who wait for it: their attempts run under the wait lock and cannot. own: for that
 * request and the oldest; NULL: for all. It blocks on the system, so nothing that must not block calls it. True when a
 * pool grew. (grow.c) */
bool spw__pressure_grow(struct spw_manager *manager, spw_tier tier, const struct spw__request *own);

/* A budget of tier was changed: those who wait and whom it cannot hold any more end, and pools grow for the others.
 * (grow.c) */
void spw__pressure_budget_changed(struct spw_manager *manager, spw_tier tier);

/* Ends the waits that are charged to a cancelled group. (group_cancel.c) */
void spw__pressure_end_cancelled(struct spw_manager *manager);

/* The waits' room hook, of a manager: what one request may get of a memory tier now is not more. (grow.c) */
uint64_t spw__pressure_room(void *manager, unsigned channel);

/* Notes that a victim of tier could not be written, with the calling thread's error detail. */
void spw__pressure_note_failure(struct spw_manager *manager, spw_tier tier);

uint64_t spw__deadline_ns(const struct spw_manager *manager, const spw_wait_options *wait);

/* SPW_EINVAL, SPW_EBADHANDLE or SPW_ECANCELED when a call with these options cannot wait. */
int spw__check_wait(struct spw_manager *manager, const spw_wait_options *wait);

#endif
