/* Reclaimers in use: a call, what its callback may allocate, and the threads that come to help. Neighbours: reclaim.c
 * says who is next. */
#include "src/core/reclaim.h"

#include "pool/base/error.h"
#include "src/core/demand.h"
#include "src/core/evict.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

/* The callbacks that a thread is inside, of one manager each. */
struct frame {
    spw_reclaimer *reclaimer;
    struct frame *outer;
};
static _Thread_local struct frame *frames;

struct spw_reclaimer *spw__reclaim_inside_slow(const struct spw_manager *manager)
{
    for (const struct frame *frame = frames; frame; frame = frame->outer)
        if (frame->reclaimer->manager == manager)
            return frame->reclaimer;
    return NULL;
}

int spw__reclaim_check_outside(const struct spw_manager *manager, const char *call)
{
    const spw_reclaimer *inside = spw__reclaim_inside(manager);
    if (!inside)
        return SPW_OK;
    return spw__fail(SPW_EINVAL, "%s: not from inside the callback of a reclaimer (\"%s\")", call, inside->name);
}

/* What the reserve is short of. */
static uint64_t reserve_lacks(const spw_reclaimer *reclaimer)
{
    if (!reclaimer->reserve)
        return 0;
    const uint64_t held = atomic_load(&reclaimer->reserve->bytes);
    return held < reclaimer->reserve_bytes ? reclaimer->reserve_bytes - held : 0;
}

/* What its task has in use, its reserve not counted: what it gains is not freed. */
static uint64_t used_by_task(const spw_reclaimer *reclaimer)
{
    const uint64_t committed = spw__ledger_committed(&reclaimer->task->node, reclaimer->tier);
    const uint64_t held = reclaimer->reserve ? atomic_load(&reclaimer->reserve->bytes) : 0;
    return committed - (held < committed ? held : committed);
}

uint64_t spw__reclaim_call(const struct spw__reclaim_call *call)
{
    spw_reclaimer *reclaimer = call->reclaimer;
    struct spw_manager *manager = reclaimer->manager;
    const spw_tier tier = reclaimer->tier;
    struct frame frame = {.reclaimer = reclaimer, .outer = frames};
    const uint64_t before = used_by_task(reclaimer);
    const uint64_t all_before = spw__ledger_committed(&manager->root, tier);
    spw_error_info kept; /* what fails in there is not the error of this thread's call */
    spw__error_save(&kept);
    frames = &frame;
    const uint64_t could = reclaimer->estimate(reclaimer->arg), wanted = call->bytes + reserve_lacks(reclaimer);
    const uint64_t asked = could < wanted ? could : wanted;
    const uint64_t freed = asked ? reclaimer->reclaim(reclaimer->arg, asked) : 0;
    frames = frame.outer;
    (void)spw__error_restore(&kept);
    if (asked) {
        spw__core_count(manager, SPW__CORE_RECLAIMS + (unsigned)tier, 1);
        spw__core_count(manager, SPW__CORE_RECLAIM_BYTES + (unsigned)tier, freed);
    }
    /* One that says more than it does is not asked for ever. */
    const bool fell = used_by_task(reclaimer) < before ||
                      spw__ledger_committed(&manager->root, tier) < all_before;
    spw__reclaim_end_call(call, asked == 0 || freed < asked || !fell);
    return freed;
}

/* Calls the cheapest reclaimer for a request to which nothing else that is known would help. */
static bool call_for(struct spw_manager *manager, const struct spw__request *request, struct spw__waiter *waiter)
{
    const struct spw__tier *tier = spw__tier_of(manager, request->lowest);
    const struct spw__group *refuser = spw__request_refused_by(request, tier);
    const struct spw__choice among = {.tier = request->lowest, .lacking = refuser ? refuser : &manager->root,
                                      .requester = request->group};
    struct spw__reclaim_call call;
    const enum spw__reclaim_choice choice = spw__reclaim_choose(
        manager, &among, spw__request_charge(request, tier), SPW__RECLAIM_ANY_COST, waiter, &call);
    if (choice == SPW__RECLAIM_NONE)
        spw__reclaim_pass(manager, request->lowest);
    if (choice == SPW__RECLAIM_CLAIMED)
        (void)spw__reclaim_call(&call);
    return choice == SPW__RECLAIM_CLAIMED;
}

void spw__reclaim_help(void *arg, struct spw__waiter *waiter, bool urgent)
{
    struct spw_manager *manager = arg;
    const struct spw__request *request = (struct spw__request *)(void *)waiter;
    spw_error_info kept;
    spw__error_save(&kept);
    bool called = spw__pressure_help(manager, request->lowest, waiter);
    if (!called && urgent)
        called = call_for(manager, request, waiter);
    if (called)
        spw__pressure_kick(manager, SPW_TIER_HOST);
    spw__arbiter_look(manager);
    (void)spw__error_restore(&kept);
}

void spw__reclaim_leaving(void *arg, struct spw__waiter *waiter)
{
    if (waiter->task)
        spw__reclaim_hold_locked(arg, waiter->task);
}

static int refuse(const spw_reclaimer *reclaimer, const struct spw__request *request, const char *why)
{
    const uint64_t held = reclaimer->reserve ? atomic_load(&reclaimer->reserve->bytes) : 0;
    const spw_error_info info = {.place = SPW_PLACE(request->lowest, 0), .requested_bytes = request->bytes,
                                 .free_bytes = held, .limit_bytes = reclaimer->reserve_bytes};
    return spw__fail_info(&info, SPW_ENOMEM, "a request of %llu bytes in %s from inside the reclaimer \"%s\", whose "
                                             "reserve has %llu of %llu bytes of %s: %s",
                          (unsigned long long)request->bytes, spw_tier_name(request->lowest), reclaimer->name,
                          (unsigned long long)held, (unsigned long long)reclaimer->reserve_bytes,
                          spw_tier_name(reclaimer->tier), why);
}

int spw__reclaim_divert(const spw_reclaimer *reclaimer, struct spw__request *request)
{
    struct spw_manager *manager = reclaimer->manager;
    request->nowait = true;
    if (request->charge_only || request->min_of)
        return refuse(reclaimer, request, "nothing can be reserved there");
    if (request->reservation)
        return SPW_OK;
    if (request->first > reclaimer->tier || request->lowest < reclaimer->tier)
        return refuse(reclaimer, request, "only what the reserve holds can be allocated there");
    if (!reclaimer->reserve || request->bytes > spw__tier_of(manager, reclaimer->tier)->largest_request ||
        spw__tier_charge(spw__tier_of(manager, reclaimer->tier), request->bytes) >
            atomic_load(&reclaimer->reserve->bytes))
        return refuse(reclaimer, request, "only what the reserve holds can be allocated there; raise "
                                          "options.reserve_bytes");
    request->first = request->lowest = reclaimer->tier;
    request->reservation = reclaimer->reserve;
    request->group = reclaimer->reserve->group;
    return SPW_OK;
}

int spw__reclaim_conclude(const spw_reclaimer *reclaimer, const struct spw__request *request, int rc)
{
    return rc == SPW_EAGAIN ? refuse(reclaimer, request, "no hole of that size is free") : rc;
}

bool spw__reclaim_keeps(const struct spw_manager *manager, const struct spw__block *block)
{
    const spw_reclaimer *inside = spw__reclaim_inside(manager);
    return inside && inside->reserve && block->slot == 0 && (spw_tier)block->tier == inside->tier &&
           block->group == inside->reserve->group && reserve_lacks(inside);
}

void spw__reclaim_keep(struct spw_manager *manager, uint64_t bytes)
{
    const spw_reclaimer *inside = spw__reclaim_inside(manager);
    const uint64_t lacks = reserve_lacks(inside), kept = bytes < lacks ? bytes : lacks;
    spw__reservation_put_back(inside->reserve, kept);
    if (bytes == kept)
        return;
    spw__ledger_uncommit(inside->reserve->group, inside->tier, bytes - kept);
    spw__waitset_signal(&manager->waits, SPW__CHANNEL(inside->tier));
}

int spw_task_pressure(spw_task *task, spw_place place, uint64_t *bytes)
{
    struct spw__reclaim_call call;
    if (bytes)
        *bytes = 0;
    int rc = spw__task_check_own(task, "spw_task_pressure");
    if (rc == SPW_OK)
        rc = spw__check_place(task->manager, place, "spw_task_pressure");
    if (rc != SPW_OK || spw__reclaim_inside(task->manager))
        return rc;
    const spw_tier tier = SPW_PLACE_TIER(place);
    uint64_t lack = spw__pressure_lack(task->manager, tier, task);
    bool called = false;
    if (bytes)
        *bytes = lack;
    spw__reclaim_renew_own(task);
    while (lack && spw__reclaim_claim_own(task, tier, lack, &call)) {
        const uint64_t freed = spw__reclaim_call(&call);
        lack -= freed < lack ? freed : lack;
        called = true;
    }
    spw__reclaim_renew_own(task);
    if (called) {
        spw__pressure_kick(task->manager, SPW_TIER_HOST);
        spw__arbiter_look(task->manager);
    }
    return SPW_OK;
}
