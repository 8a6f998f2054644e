/* Reclaimers: registration, who is next, and what a claim means. Neighbours: pump.c chooses, reclaim_use.c calls, and
 * has what callbacks and waiting threads meet, reclaim_serve.c calls for tickets. */
#include "src/core/reclaim.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/rank.h"

static const spw_reclaimer_options reclaimer_defaults = {.struct_size = sizeof(spw_reclaimer_options),
                                                         .priority = SPW_RECLAIMER_PRIORITY_TASK};

void spw_reclaimer_options_init_sized(spw_reclaimer_options *options, size_t size)
{
    spw__sized_give(options, size, &reclaimer_defaults);
}

void spw__reclaim_init(struct spw_manager *manager)
{
    spw__cond_init(&manager->reclaim.over);
    spw__cond_init(&manager->reclaim.called);
    manager->reclaim.server.waiting = true;
}

void spw__reclaim_finish(struct spw_manager *manager)
{
    for (struct spw_task *task = manager->arbiter.tasks; task; task = task->next)
        while (task->reclaimers) {
            spw_reclaimer *reclaimer = task->reclaimers;
            task->reclaimers = reclaimer->next;
            spw__meta_free(&manager->meta, reclaimer, sizeof *reclaimer);
        }
    while (manager->reclaim.dead) {
        spw_reclaimer *reclaimer = manager->reclaim.dead;
        manager->reclaim.dead = reclaimer->next;
        spw__meta_free(&manager->meta, reclaimer, sizeof *reclaimer);
    }
    spw__cond_finish(&manager->reclaim.called);
    spw__cond_finish(&manager->reclaim.over);
}

int spw__reclaimers_check_none(struct spw_manager *manager)
{
    const spw_reclaimer *found = NULL;
    spw__mutex_lock(&manager->waits.lock);
    for (const struct spw_task *task = manager->arbiter.tasks; task && !found; task = task->next)
        found = task->reclaimers;
    spw__mutex_unlock(&manager->waits.lock);
    return found ? spw__fail(SPW_EBUSY, "the reclaimer \"%s\" of the task \"%s\" is registered; unregister it first",
                             found->name, found->task->name)
                 : SPW_OK;
}

/* True when a should be called before b. */
static bool goes_first(const spw_reclaimer *a, const spw_reclaimer *b)
{
    if (a->cost_ns_per_mib != b->cost_ns_per_mib)
        return a->cost_ns_per_mib < b->cost_ns_per_mib;
    return a->priority != b->priority ? a->priority < b->priority : a->serial > b->serial;
}

/* The first of a task's, and of what was found before, that may be called. */
static spw_reclaimer *best_of_task(const struct spw_task *task, spw_tier tier, uint64_t below, spw_reclaimer *best)
{
    for (spw_reclaimer *at = task->reclaiming ? NULL : task->reclaimers; at; at = at->next)
        if (at->tier == tier && !at->spent && at->cost_ns_per_mib < below && (!best || goes_first(at, best)))
            best = at;
    return best;
}

/* What a task frees is of use to a choice: as a victim that is charged to it would be. NULL: to any. */
static bool is_of_use(const struct spw_task *task, const struct spw__choice *among, uint64_t bytes)
{
    return !among || (spw__group_is_below(&task->node, among->lacking) &&
                      !spw__rank_protects(&task->node, among->tier, bytes, among->requester));
}

static spw_reclaimer *best_locked(struct spw_manager *manager, spw_tier tier, const struct spw__choice *among,
                                  uint64_t bytes, uint64_t below)
{
    spw_reclaimer *best = NULL;
    for (const struct spw_task *task = manager->arbiter.tasks; task; task = task->next)
        if (task->reclaimers && spw__task_all_wait(task) && is_of_use(task, among, bytes))
            best = best_of_task(task, tier, below, best);
    return best;
}

static struct spw__reclaim_call claim_locked(spw_reclaimer *reclaimer, uint64_t bytes, bool own)
{
    struct spw__reclaim *reclaim = &reclaimer->manager->reclaim;
    reclaimer->running = true;
    reclaimer->task->reclaiming = true;
    (void)atomic_fetch_add(&reclaim->n_running, 1);
    (void)atomic_fetch_add(&reclaim->expected_bytes[reclaimer->tier], bytes);
    spw__group_note_leaving(&reclaimer->task->node, reclaimer->tier, (int64_t)bytes);
    return (struct spw__reclaim_call){.reclaimer = reclaimer, .bytes = bytes, .own = own};
}

enum spw__reclaim_choice spw__reclaim_choose(struct spw_manager *manager, const struct spw__choice *among,
                                             uint64_t bytes, uint64_t below, const struct spw__waiter *helper,
                                             struct spw__reclaim_call *call)
{
    enum spw__reclaim_choice choice = SPW__RECLAIM_NONE;
    if (atomic_load(&manager->reclaim.n[among->tier]) == 0)
        return SPW__RECLAIM_NONE;
    spw__mutex_lock(&manager->waits.lock);
    spw_reclaimer *best = best_locked(manager, among->tier, among, bytes, below);
    if (best && helper && helper->waiting) {
        *call = claim_locked(best, bytes, false);
        choice = SPW__RECLAIM_CLAIMED;
    } else if (best && spw__reclaim_summon_to_locked(manager, among->tier, false)) {
        choice = SPW__RECLAIM_SUMMONED;
    }
    spw__mutex_unlock(&manager->waits.lock);
    return choice;
}

void spw__reclaim_pass(struct spw_manager *manager, spw_tier tier)
{
    spw__mutex_lock(&manager->waits.lock);
    for (const struct spw_task *task = manager->arbiter.tasks; task; task = task->next)
        for (spw_reclaimer *at = spw__task_all_wait(task) ? task->reclaimers : NULL; at; at = at->next)
            at->spent |= at->tier == tier;
    spw__mutex_unlock(&manager->waits.lock);
}

bool spw__reclaim_claim_own(struct spw_task *task, spw_tier tier, uint64_t bytes, struct spw__reclaim_call *call)
{
    spw__mutex_lock(&task->manager->waits.lock);
    spw_reclaimer *best = best_of_task(task, tier, SPW__RECLAIM_ANY_COST, NULL);
    if (best)
        *call = claim_locked(best, bytes, true);
    spw__mutex_unlock(&task->manager->waits.lock);
    return best != NULL;
}

void spw__reclaim_renew_own(struct spw_task *task)
{
    spw__mutex_lock(&task->manager->waits.lock);
    for (spw_reclaimer *at = task->reclaimers; at; at = at->next)
        at->spent = false;
    spw__mutex_unlock(&task->manager->waits.lock);
}

bool spw__reclaim_summon_locked(struct spw_manager *manager, uint32_t tiers)
{
    for (unsigned tier = 0; tier < SPW__MEMORY_TIERS; tier++)
        if ((tiers & SPW__CHANNEL(tier)) && atomic_load(&manager->reclaim.n[tier]) &&
            best_locked(manager, (spw_tier)tier, NULL, 0, SPW__RECLAIM_ANY_COST) &&
            spw__reclaim_summon_to_locked(manager, (spw_tier)tier, true))
            return true;
    return false;
}

void spw__reclaim_task_changed_locked(struct spw_manager *manager, struct spw_task *task)
{
    const bool waits = spw__task_all_wait(task);
    for (spw_reclaimer *at = task->reclaimers; at; at = at->next) {
        at->spent = at->spent && waits; /* once its owner runs there may be more to free */
        if (waits)
            (void)spw__reclaim_summon_to_locked(manager, at->tier, false);
    }
}

void spw__reclaim_hold_locked(struct spw_manager *manager, const struct spw_task *task)
{
    while (task->reclaiming && !spw__reclaim_inside(manager))
        (void)spw__cond_wait(&manager->reclaim.over, &manager->waits.lock, -1);
}

void spw__reclaim_end_round(struct spw_manager *manager, spw_tier tier)
{
    if (atomic_load(&manager->reclaim.n[tier]) == 0 || spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)))
        return;
    spw__mutex_lock(&manager->waits.lock);
    for (struct spw_task *task = manager->arbiter.tasks; task; task = task->next)
        for (spw_reclaimer *at = task->reclaimers; at; at = at->next)
            at->spent = at->spent && at->tier != tier;
    spw__mutex_unlock(&manager->waits.lock);
}

/* Nobody calls it any more: its reserve is free, and its memory for the next one. */
static void bury(spw_reclaimer *reclaimer)
{
    struct spw_manager *manager = reclaimer->manager;
    (void)spw_reservation_release(reclaimer->reserve);
    reclaimer->reserve = NULL;
    spw__mutex_lock(&manager->waits.lock);
    reclaimer->next = manager->reclaim.dead;
    manager->reclaim.dead = reclaimer;
    spw__mutex_unlock(&manager->waits.lock);
}

void spw__reclaim_end_call(const struct spw__reclaim_call *call, bool spent)
{
    spw_reclaimer *reclaimer = call->reclaimer;
    struct spw_manager *manager = reclaimer->manager;
    spw__mutex_lock(&manager->waits.lock);
    const bool ends = reclaimer->ends;
    reclaimer->running = false;
    reclaimer->spent = spent && (call->own || spw__task_all_wait(reclaimer->task));
    reclaimer->task->reclaiming = false;
    (void)atomic_fetch_sub(&manager->reclaim.n_running, 1);
    (void)atomic_fetch_sub(&manager->reclaim.expected_bytes[reclaimer->tier], call->bytes);
    spw__group_note_leaving(&reclaimer->task->node, reclaimer->tier, -(int64_t)call->bytes);
    spw__cond_broadcast(&manager->reclaim.over);
    spw__mutex_unlock(&manager->waits.lock);
    if (ends)
        bury(reclaimer);
}

static int check_options(const spw_manager *manager, const spw_reclaimer_options *options)
{
    if (options->reserved || !options->estimate || !options->reclaim)
        return spw__fail(SPW_EINVAL, "spw_reclaimer_register: options.estimate or options.reclaim is NULL, or "
                                     "options.reserved is not 0");
    const int rc = spw__check_place(manager, options->place, "spw_reclaimer_register: options.place");
    if (rc != SPW_OK)
        return rc;
    if (options->name && strnlen(options->name, SPW__RECLAIMER_NAME_BYTES) == SPW__RECLAIMER_NAME_BYTES)
        return spw__fail(SPW_EINVAL, "spw_reclaimer_register: the name is longer than %d bytes",
                         SPW__RECLAIMER_NAME_BYTES - 1);
    return SPW_OK;
}

/* A dead one's memory, or new. */
static spw_reclaimer *take_memory(struct spw_manager *manager)
{
    spw__mutex_lock(&manager->waits.lock);
    spw_reclaimer *reclaimer = manager->reclaim.dead;
    if (reclaimer)
        manager->reclaim.dead = reclaimer->next;
    spw__mutex_unlock(&manager->waits.lock);
    if (!reclaimer)
        reclaimer = spw__meta_alloc(&manager->meta, sizeof *reclaimer);
    if (!reclaimer)
        (void)spw__fail(SPW_ENOMETA, "no metadata memory for a reclaimer; raise meta=");
    return reclaimer;
}

static void fill(spw_reclaimer *reclaimer, struct spw_task *task, const spw_reclaimer_options *options)
{
    *reclaimer = (spw_reclaimer){
        .manager = task->manager, .task = task, .tier = SPW_PLACE_TIER(options->place),
        .priority = options->priority == SPW_RECLAIMER_PRIORITY_TASK ? task->priority : options->priority,
        .cost_ns_per_mib = options->cost_ns_per_mib - (options->cost_ns_per_mib == SPW__RECLAIM_ANY_COST),
        .estimate = options->estimate, .reclaim = options->reclaim, .arg = options->arg,
        .reserve_bytes = options->reserve_bytes};
    if (options->name)
        memcpy(reclaimer->name, options->name, strlen(options->name));
}

static void publish(spw_reclaimer *reclaimer)
{
    struct spw_manager *manager = reclaimer->manager;
    spw__mutex_lock(&manager->waits.lock);
    reclaimer->serial = manager->reclaim.next_serial++;
    reclaimer->next = reclaimer->task->reclaimers;
    reclaimer->task->reclaimers = reclaimer;
    (void)atomic_fetch_add(&manager->reclaim.n[reclaimer->tier], 1);
    atomic_store(&reclaimer->magic, SPW__RECLAIMER_LIVE);
    spw__mutex_unlock(&manager->waits.lock);
}

int spw_reclaimer_register(spw_task *task, const spw_reclaimer_options *options, spw_reclaimer **out)
{
    spw_reclaimer_options taken = reclaimer_defaults;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_reclaimer_register: out is NULL");
    *out = NULL;
    int rc = spw__task_check_handle(task, "spw_reclaimer_register");
    if (rc == SPW_OK)
        rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_reclaimer_options, arg), options,
                             "spw_reclaimer_register: options");
    if (rc == SPW_OK)
        rc = check_options(task->manager, &taken);
    if (rc == SPW_OK)
        rc = spw__reclaim_start_serving(task->manager);
    spw_reclaimer *reclaimer = rc == SPW_OK ? take_memory(task->manager) : NULL;
    if (!reclaimer)
        return rc == SPW_OK ? SPW_ENOMETA : rc;
    fill(reclaimer, task, &taken);
    struct spw_manager *manager = task->manager;
    spw__waitset_enter(&manager->waits); /* the wait for its reserve may end by a forced destroy */
    if (taken.reserve_bytes)
        rc = spw__reserve_for(manager, &task->node, reclaimer->tier, taken.reserve_bytes, &reclaimer->reserve);
    if (rc == SPW_OK) {
        *out = reclaimer; /* before it may be called, and unregister itself */
        publish(reclaimer);
        spw__pressure_kick(manager, SPW_TIER_HOST); /* somebody may wait for what it can free */
    } else {
        bury(reclaimer);
    }
    spw__waitset_leave(&manager->waits);
    return rc;
}

/* Takes it out of its task's, so that it is not called any more. */
static void unlink_locked(spw_reclaimer *reclaimer)
{
    spw_reclaimer **link = &reclaimer->task->reclaimers;
    while (*link != reclaimer)
        link = &(*link)->next;
    *link = reclaimer->next;
    (void)atomic_fetch_sub(&reclaimer->manager->reclaim.n[reclaimer->tier], 1);
}

int spw_reclaimer_unregister(spw_reclaimer *reclaimer)
{
    if (!reclaimer)
        return SPW_OK;
    uint64_t live = atomic_load(&reclaimer->magic);
    if (live != SPW__RECLAIMER_LIVE)
        return spw__fail(SPW_EBADHANDLE, live == SPW__RECLAIMER_DEAD
                                             ? "spw_reclaimer_unregister: the reclaimer was unregistered already"
                                             : "spw_reclaimer_unregister: not a reclaimer of this library");
    struct spw_manager *manager = reclaimer->manager;
    const int rc = spw__check_process(manager);
    if (rc != SPW_OK)
        return rc;
    const spw_reclaimer *inside = spw__reclaim_inside(manager);
    spw__mutex_lock(&manager->waits.lock);
    const bool busy = inside && inside != reclaimer && reclaimer->running;
    const bool mine = !busy && atomic_compare_exchange_strong(&reclaimer->magic, &live, SPW__RECLAIMER_DEAD);
    if (mine)
        unlink_locked(reclaimer);
    if (mine && inside == reclaimer)
        reclaimer->ends = true;
    while (mine && !reclaimer->ends && reclaimer->running)
        (void)spw__cond_wait(&manager->reclaim.over, &manager->waits.lock, -1);
    const bool ends = reclaimer->ends;
    spw__mutex_unlock(&manager->waits.lock);
    if (busy)
        return spw__fail(SPW_EBUSY, "spw_reclaimer_unregister: the reclaimer \"%s\" runs, and this is the callback of "
                                    "another", reclaimer->name);
    if (!mine)
        return spw__fail(SPW_EBADHANDLE, "spw_reclaimer_unregister: the reclaimer was unregistered already");
    if (!ends)
        bury(reclaimer);
    return SPW_OK;
}
