/* Pressure: requests, see pressure.h. Neighbours: pool/tier tries, pool/base/wait queues, pump.c makes room. */
#include "src/core/pressure.h"

#include "pool/base/error.h"
#include "src/core/arbiter.h"
#include "src/core/demand.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/parked.h"
#include "src/core/refusal.h"
#include "src/core/reserve.h"

/* Beside the keys of alignments (see set_needs). */
#define KEY_OF_RESERVATIONS 32

uint64_t spw__deadline_ns(const struct spw_manager *manager, const spw_wait_options *wait)
{
    int64_t timeout_ms = wait ? wait->timeout_ms : SPW_TIMEOUT_DEFAULT;
    if (timeout_ms < 0)
        timeout_ms = manager->default_timeout_ms;
    const uint64_t now = spw__clock_now_ns(manager->env.clock);
    if (timeout_ms >= (int64_t)((UINT64_MAX - now) / 1000000 / 2))
        return UINT64_MAX;
    return now + (uint64_t)timeout_ms * 1000000;
}

int spw__check_wait(struct spw_manager *manager, const spw_wait_options *wait)
{
    for (unsigned i = 0; i < sizeof wait->reserved / sizeof wait->reserved[0]; i++)
        if (wait->reserved[i])
            return spw__fail(SPW_EINVAL, "wait.reserved[%u] is not 0; use the options' init function", i);
    if (spw__cancel_triggered(wait->cancel))
        return spw__fail(SPW_ECANCELED, "the call's cancel token was triggered before it began");
    return spw__task_check(manager, wait);
}

/* False: not even with nothing else in it could the tier hold the request, as budgets are now. */
static bool fits_empty(const struct spw__request *request, spw_tier tier)
{
    const struct spw__tier *at = spw__tier_of(request->manager, tier);
    if (request->charge_only)
        return !spw__ledger_never_fits(request->group, tier, request->bytes, at->set_aside);
    return at->present && request->bytes <= at->largest_request &&
           (request->reservation ||
            !spw__ledger_never_fits(request->group, tier, spw__tier_charge(at, request->bytes), at->set_aside));
}

bool spw__request_possible(const struct spw__request *request)
{
    bool possible = request->min_of != NULL; /* which was checked */
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        possible |= fits_empty(request, tier);
    return possible;
}

static int try_tier(struct spw__request *request, struct spw__tier *tier, enum spw__grow grow)
{
    if (request->charge_only)
        return spw__tier_reserve(tier, request->group, request->bytes);
    if (request->reservation)
        return spw__tier_alloc_charged(tier, request->bytes, request->align, grow, &request->block);
    return spw__tier_alloc_aligned(tier, request->group, request->bytes, request->align, grow, &request->block);
}

/* Nothing but the lost device could serve it. */
static bool is_hopeless(const struct spw__request *request)
{
    return spw__loss_of(request->manager, request->lowest);
}

/* One try over the tiers of the request, best first, but those that are barred. SPW_EAGAIN: no room anywhere. */
static int try_tiers(struct spw__request *request, enum spw__grow grow, uint32_t barred)
{
    bool possible = false, lost = false;
    if (spw__ledger_cancelled(spw__request_payer(request)))
        return SPW_ECANCELED;
    if (is_hopeless(request))
        return SPW_EDEVICE;
    if (request->min_of) {
        request->block.tier = (uint8_t)request->lowest;
        return !barred && spw__ledger_set_min(request->min_of, request->lowest, request->bytes) ? SPW_OK : SPW_EAGAIN;
    }
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        struct spw__tier *at = spw__tier_of(request->manager, tier);
        lost |= spw__loss_of(request->manager, tier);
        if (!at->present || spw__loss_of(request->manager, tier))
            continue;
        if (barred & SPW__CHANNEL(tier)) {
            possible |= fits_empty(request, tier);
            continue;
        }
        int rc = try_tier(request, at, grow);
        /* What lies on disk as well is room: an admission takes it before it goes to a lower tier. */
        if (rc == SPW_ENOMEM && request->admission && grow != SPW__GROW_NOT &&
            spw__evict_clean(request->manager, request->group, tier, spw__request_charge(request, at)))
            rc = try_tier(request, at, grow);
        if (rc == SPW_OK && request->admission)
            spw__headroom_admitted(request->manager, tier);
        if (rc == SPW_OK || rc == SPW_ENOMETA)
            return rc;
        possible |= rc != SPW_ETOOBIG;
        request->failed = rc;
    }
    return possible ? SPW_EAGAIN : lost ? SPW_EDEVICE : SPW_ETOOBIG;
}

/* Where a served request took what others wait for; what a reservation pays for was nobody else's. */
static uint32_t taken_from(const struct spw__request *request)
{
    if (request->reservation)
        return 0;
    const bool nothing = request->charge_only || request->min_of;
    return SPW__CHANNEL(nothing ? request->lowest : (spw_tier)request->block.tier);
}

/* It is groups that refuse it, wherever it may go: what others get is not taken from it. */
static bool is_held_back(const struct spw__request *request)
{
    bool held_back = true;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        const struct spw__tier *at = spw__tier_of(request->manager, tier);
        held_back &= !at->present || spw__request_refused_by(request, at);
    }
    return held_back;
}

static int attempt(struct spw__waiter *waiter)
{
    struct spw__request *request = (struct spw__request *)(void *)waiter;
    const int rc = try_tiers(request, SPW__GROW_NOT, waiter->barred);
    waiter->held_back = rc == SPW_EAGAIN && is_held_back(request);
    waiter->what = request->failed == SPW_EFRAG ? SPW__WAIT_HOLE : SPW__WAIT_ROOM;
    if (rc == SPW_OK)
        waiter->served = taken_from(request);
    return rc;
}

static uint32_t channels_of(const struct spw__request *request)
{
    uint32_t channels = 0;
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        if (spw__tier_of(request->manager, tier)->present)
            channels |= SPW__CHANNEL(tier);
    return channels;
}

/* Tells the waiter what it needs. Of one key must be only requests of which a larger one never fits where a smaller one
 * does not: a stricter alignment may be all that is missing, so that each has a key of its own, a place in the group.
 * Small objects fit by what is left in the slabs of their size, and what a reservation pays for needs nothing of the
 * budget: nothing is said about them. */
static void set_needs(struct spw__request *request)
{
    struct spw__waiter *waiter = &request->waiter;
    if (request->reservation)
        return;
    if (request->min_of) { /* takes no memory, and so has a key of its own */
        waiter->key = request->min_of;
        return;
    }
    if (request->charge_only) {
        waiter->key = (const char *)request->group + KEY_OF_RESERVATIONS;
        waiter->need[request->lowest] = request->bytes;
        waiter->net_bytes = request->net_bytes;
        return;
    }
    waiter->key = (const char *)request->group + (request->align ? 1 + __builtin_ctzll(request->align) : 0);
    for (spw_tier tier = request->first; tier <= request->lowest; tier++) {
        const struct spw__tier *at = spw__tier_of(request->manager, tier);
        if (at->n_small == 0 || request->bytes > SPW__SMALL_LIMIT)
            waiter->need[tier] = spw__tier_charge(at, request->bytes);
    }
}

static void enqueue(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns, bool patient)
{
    struct spw_manager *manager = request->manager;
    struct spw_task *task = request->completed ? wait->task : spw__task_of(manager, wait);
    const struct spw__group *group = spw__request_payer(request); /* the request may be over once it was enqueued */
    const bool first = request->begun_ns == 0;
    const spw_tier lowest = request->lowest;
    request->begun_ns = first ? spw__clock_now_ns(manager->env.clock) : request->begun_ns;
    request->waiter = (struct spw__waiter){.attempt = attempt, .completed = request->completed,
                                           .channels = channels_of(request),
                                           .demands = patient ? 0 : SPW__CHANNEL(request->lowest),
                                           .deadline_ns = deadline_ns,
                                           .task = task, .what = SPW__WAIT_ROOM,
                                           .helps = !wait || wait->timeout_ms != 0,
                                           .cancel = wait ? wait->cancel : NULL};
    set_needs(request);
    spw__pressure_begin_round(manager, request->lowest);
    if (request->admission && !patient)
        spw__headroom_shortfall(manager, request->first, request->lowest);
    spw__core_count(manager, SPW__CORE_WAITS, first);
    if (task)
        (void)atomic_fetch_add(&task->waits, first);
    spw__wait_enqueue(&manager->waits, &request->waiter);
    if (spw__ledger_cancelled(group)) /* it may not have been attempted */
        spw__pressure_end_cancelled(manager);
    if (spw__loss_of(manager, lowest))
        spw__pressure_end_lost(manager);
}

static int visit_hopeless(struct spw__waiter *waiter, void *arg)
{
    (void)arg;
    return is_hopeless((const struct spw__request *)(const void *)waiter) ? SPW_EDEVICE : SPW_EAGAIN;
}

void spw__pressure_end_lost(struct spw_manager *manager)
{
    spw__waitset_visit(&manager->waits, SPW__CHANNEL(SPW_TIER_DEVICE), visit_hopeless, NULL);
}

/* After the wait. */
static void note_wait(struct spw__request *request, int rc)
{
    struct spw_manager *manager = request->manager;
    spw__core_count(manager, SPW__CORE_WAIT_NS, spw__clock_now_ns(manager->env.clock) - request->begun_ns);
    /* Who was not served must not leave the others' round open, nor who was summoned its summons to nobody. */
    if (rc != SPW_OK || request->waiter.summoned)
        spw__pressure_kick(manager, request->lowest);
}

/* Waits for releases, where they are the better choice; SPW_ETIMEDOUT: they are not, or did not come. */
static int wait_patiently(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw_manager *manager = request->manager;
    const uint64_t patience_ns = wait && wait->timeout_ms == 0 ? 0 : spw__patience_ns(manager, request);
    const uint64_t until_ns = spw__clock_now_ns(manager->env.clock) + patience_ns;
    if (patience_ns == 0 || until_ns >= deadline_ns)
        return SPW_ETIMEDOUT;
    (void)atomic_fetch_add(&manager->n_patient, 1);
    enqueue(request, wait, until_ns, true);
    const int rc = spw__wait_block(&manager->waits, &request->waiter);
    (void)atomic_fetch_sub(&manager->n_patient, 1);
    if (rc == SPW_ETIMEDOUT)
        return rc;
    if (rc == SPW_OK)
        spw__core_count(manager, SPW__CORE_WAITS_CHOSEN, 1);
    note_wait(request, rc);
    spw__arbiter_look(manager); /* nobody was asked while this one might have demanded room */
    return rc;
}

static int wait_for_room(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw_manager *manager = request->manager;
    const uint64_t deadline_ns = spw__deadline_ns(manager, wait);
    if (wait_patiently(request, wait, deadline_ns) != SPW_ETIMEDOUT)
        return request->waiter.result;
    const bool was_patient = request->begun_ns != 0;
    enqueue(request, wait, deadline_ns, false);
    for (spw_tier tier = request->first; tier <= request->lowest; tier++)
        while (spw__pressure_grow(manager, tier, request)) { /* until it is enough for all, or nothing is left */
        }
    spw__pressure_kick(manager, request->lowest);
    spw__core_count(manager, SPW__CORE_SPILLS_CHOSEN, 1);
    if (was_patient)
        spw__arbiter_look(manager);
    const int rc = wait && wait->timeout_ms == 0 ? spw__wait_leave(&manager->waits, &request->waiter)
                                                 : spw__wait_block(&manager->waits, &request->waiter);
    note_wait(request, rc);
    if (request->waiter.summoned)
        spw__arbiter_look(manager);
    return rc;
}

/* What a reservation pays for a request, which has one tier then. */
static uint64_t paid_bytes(const struct spw__request *request)
{
    return spw__request_charge(request, spw__tier_of(request->manager, request->lowest));
}

/* The reservation that pays for a request has its bytes back, or has spent them. */
static int settle(const struct spw__request *request, int rc)
{
    if (request->reservation)
        spw__reservation_settle(request->reservation, paid_bytes(request), rc == SPW_OK);
    return rc;
}

static int try_at_once(struct spw__request *request)
{
    struct spw__waitset *waits = &request->manager->waits;
    const enum spw__grow grow = request->nowait || request->completed ? SPW__GROW_ALONE : SPW__GROW_FREELY;
    const uint32_t channels = channels_of(request);
    /* What it was promised before, by a reservation or its group's minimum, is left to nobody. */
    const bool promised = request->reservation ||
                          (!request->min_of && request->first == request->lowest &&
                           spw__ledger_within_min(request->group, request->lowest, paid_bytes(request)));
    const uint32_t heeded = promised ? 0 : channels;
    int rc = is_hopeless(request) ? SPW_EDEVICE : SPW_EAGAIN;
    /* Those who wait already go first, unless the caller cannot wait at all; and even then one that waited for long. */
    if (rc == SPW_EAGAIN && (request->nowait || promised || !spw__waitset_busy(waits, channels))) {
        rc = try_tiers(request, grow, spw__waitset_barred_of(waits, heeded));
        if (rc == SPW_EAGAIN && spw__parked_sweep(request->manager))
            rc = try_tiers(request, grow, spw__waitset_barred_of(waits, heeded));
        if (rc == SPW_EAGAIN)
            spw__waitset_retry(waits, channels);
    }
    if (rc == SPW_EAGAIN && !spw__request_possible(request)) /* it may be barred from every attempt */
        rc = SPW_ETOOBIG;
    if (rc == SPW_OK) { /* a pool may have grown for it, or a try before held bytes: who met that looks again */
        spw__waitset_granted(waits, taken_from(request));
        spw__waitset_retry(waits, channels);
        spw__pressure_kick(request->manager, SPW_TIER_HOST);
    }
    return rc;
}

static int run(struct spw__request *request, const spw_wait_options *wait)
{
    struct spw__waitset *waits = &request->manager->waits;
    int rc = request->reservation ? spw__reservation_spend(request->reservation, paid_bytes(request)) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    rc = try_at_once(request);
    if (rc != SPW_EAGAIN || request->nowait)
        return settle(request, spw__request_conclude(request, rc));
    spw__waitset_enter(waits);
    request->inside = true;
    return settle(request, spw__request_conclude(request, wait_for_room(request, wait)));
}

void spw__request_over(const struct spw__request *request)
{
    if (request->inside)
        spw__waitset_leave(&request->manager->waits);
}

int spw__request_run(struct spw__request *request, const spw_wait_options *wait)
{
    const struct spw_reclaimer *inside = spw__reclaim_inside(request->manager);
    if (inside) {
        const int rc = spw__reclaim_divert(inside, request);
        return rc == SPW_OK ? spw__reclaim_conclude(inside, request, run(request, NULL)) : rc;
    }
    struct spw_task *task = spw__task_of(request->manager, wait);
    if (!request->group)
        request->group = spw__task_node(request->manager, task);
    if (!task)
        return run(request, wait);
    (void)atomic_fetch_add(&task->users, 1);
    const int rc = run(request, wait);
    if (rc == SPW_OK)
        spw__arbiter_granted(request->manager, task, request->bytes);
    (void)atomic_fetch_sub(&task->users, 1);
    return rc;
}

/* What the end of an asynchronous request means to its task. */
static int grant(struct spw__request *request, struct spw_task *task, int rc)
{
    rc = settle(request, spw__request_conclude(request, rc));
    if (rc == SPW_OK && task)
        spw__arbiter_granted(request->manager, task, request->bytes);
    return rc;
}

int spw__request_start(struct spw__request *request, const spw_wait_options *wait, uint64_t deadline_ns)
{
    if (!request->group)
        request->group = spw__task_node(request->manager, wait->task);
    int rc = request->reservation ? spw__reservation_spend(request->reservation, paid_bytes(request)) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    rc = try_at_once(request);
    if (rc != SPW_EAGAIN)
        return grant(request, wait->task, rc);
    enqueue(request, wait, deadline_ns, false);
    return SPW__REQUEST_WAITS;
}

int spw__request_finish(struct spw__request *request, int rc)
{
    note_wait(request, rc);
    return grant(request, request->waiter.task, rc);
}
