/* Reclaimers for tickets, which have no thread that could call one. Neighbours: reclaim.c summons, pump.c and
 * reclaim_use.c call.
 *
 *     nothing wanted --summon_to: a ticket waits, and no thread that could come--> wanted --serve--> nothing wanted
 *
 * It is neither the mover's thread, which a slow callback would keep from every move, and which a callback may wait
 * for, nor one of the engine's, unless that makes progress for us.
 */
#include "src/core/reclaim.h"

#include "pool/base/error.h"
#include "pool/base/thread.h"
#include "src/core/demand.h"
#include "src/core/evict.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

struct look {
    uint32_t channel;
    bool found;
};

/* A ticket that may wait for a callback. */
static int visit_ticket(struct spw__waiter *waiter, void *arg)
{
    struct look *look = arg;
    look->found = waiter->completed && waiter->helps && (waiter->demands & look->channel);
    return look->found ? SPW__VISIT_STOP : SPW_EAGAIN;
}

bool spw__reclaim_summon_to_locked(struct spw_manager *manager, spw_tier tier, bool urgent)
{
    struct spw__reclaim *reclaim = &manager->reclaim;
    struct look look = {.channel = SPW__CHANNEL(tier)};
    if (spw__waitset_summon_locked(&manager->waits, (unsigned)tier, urgent))
        return true;
    if (!reclaim->has_thread && !manager->waits.drive)
        return false;
    spw__waitset_visit_locked(&manager->waits, look.channel, visit_ticket, &look);
    if (!look.found)
        return false;
    (void)atomic_fetch_or(&reclaim->wanted, look.channel);
    reclaim->urgent |= urgent ? look.channel : 0;
    spw__cond_signal(&reclaim->called);
    spw__loop_changed(manager);
    return true;
}

/* What the oldest ticket lacks in a tier. */
struct needy {
    struct spw__tier *tier;
    struct spw__choice among;
    uint64_t bytes; /* 0: there is none */
};

static int visit_needy(struct spw__waiter *waiter, void *arg)
{
    struct needy *needy = arg;
    const struct spw__request *request = (const struct spw__request *)(const void *)waiter;
    if (!waiter->completed || !waiter->helps)
        return SPW_EAGAIN;
    const struct spw__group *refuser = spw__request_refused_by(request, needy->tier);
    needy->among = (struct spw__choice){.tier = needy->tier->tier, .requester = request->group,
                                        .lacking = refuser ? refuser : &request->manager->root};
    needy->bytes = spw__request_charge(request, needy->tier);
    return SPW__VISIT_STOP;
}

/* Calls the cheapest reclaimer for a ticket to which nothing else that is known would help. The pressure lock keeps the
 * groups that were found. */
static bool call_for_oldest(struct spw_manager *manager, spw_tier tier)
{
    struct needy needy = {.tier = spw__tier_of(manager, tier)};
    struct spw__reclaim_call call;
    enum spw__reclaim_choice choice = SPW__RECLAIM_NONE;
    spw__mutex_lock(&manager->pressure[tier].lock);
    spw__waitset_visit_demands(&manager->waits, SPW__CHANNEL(tier), visit_needy, &needy);
    if (needy.bytes)
        choice = spw__reclaim_choose(manager, &needy.among, needy.bytes, SPW__RECLAIM_ANY_COST,
                                     &manager->reclaim.server, &call);
    spw__mutex_unlock(&manager->pressure[tier].lock);
    if (choice == SPW__RECLAIM_NONE)
        spw__reclaim_pass(manager, tier);
    if (choice == SPW__RECLAIM_CLAIMED)
        (void)spw__reclaim_call(&call);
    return choice == SPW__RECLAIM_CLAIMED;
}

static void serve_tier(struct spw_manager *manager, spw_tier tier, bool urgent)
{
    spw_error_info kept;
    spw__error_save(&kept);
    bool called = spw__pressure_help(manager, tier, &manager->reclaim.server);
    if (!called && urgent)
        called = call_for_oldest(manager, tier);
    if (called)
        spw__pressure_kick(manager, SPW_TIER_HOST);
    (void)spw__error_restore(&kept);
}

/* Takes what is wanted in a tier, for the caller to do. */
static bool take(struct spw_manager *manager, spw_tier tier, bool *urgent)
{
    struct spw__reclaim *reclaim = &manager->reclaim;
    const uint32_t bit = SPW__CHANNEL(tier);
    spw__mutex_lock(&manager->waits.lock);
    const bool wanted = atomic_fetch_and(&reclaim->wanted, ~bit) & bit;
    *urgent = reclaim->urgent & bit;
    reclaim->urgent &= ~bit;
    spw__mutex_unlock(&manager->waits.lock);
    return wanted;
}

void spw__reclaim_serve(struct spw_manager *manager)
{
    bool urgent;
    if (atomic_load(&manager->reclaim.wanted) == 0)
        return;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        if (take(manager, tier, &urgent))
            serve_tier(manager, tier, urgent);
    spw__arbiter_look(manager); /* nobody was asked before */
}

/* The calling thread's task, unless it counts it as waiting already; NULL: none. */
static struct spw_task *own_task(struct spw_manager *manager)
{
    spw_error_info kept;
    struct spw_task *task = spw__task_of(manager, NULL);
    spw__error_save(&kept);
    if (task && spw__task_check_own(task, "spw_progress") != SPW_OK)
        task = NULL;
    (void)spw__error_restore(&kept);
    return task;
}

void spw__reclaim_serve_as_waiting(struct spw_manager *manager)
{
    uint32_t live = 0;
    for (unsigned tier = 0; tier < SPW__MEMORY_TIERS; tier++)
        live += atomic_load(&manager->reclaim.n[tier]);
    if (live == 0 || spw__reclaim_inside(manager))
        return;
    struct spw_task *task = own_task(manager);
    if (task) {
        spw__mutex_lock(&manager->waits.lock);
        spw__arbiter_change_locked(manager, task, 0, 1); /* which summons for its own reclaimers */
        spw__mutex_unlock(&manager->waits.lock);
    }
    spw__reclaim_serve(manager);
    if (task) {
        spw__mutex_lock(&manager->waits.lock);
        spw__reclaim_hold_locked(manager, task);
        spw__arbiter_change_locked(manager, task, 0, -1);
        spw__mutex_unlock(&manager->waits.lock);
    }
}

/* Our thread: serves until it is to end. */
static void *serve_main(void *arg)
{
    struct spw_manager *manager = arg;
    struct spw__reclaim *reclaim = &manager->reclaim;
    spw__mutex_lock(&manager->waits.lock);
    while (!reclaim->ends) {
        if (atomic_load(&reclaim->wanted) == 0) {
            (void)spw__cond_wait(&reclaim->called, &manager->waits.lock, -1);
            continue;
        }
        spw__mutex_unlock(&manager->waits.lock);
        spw__reclaim_serve(manager);
        spw__mutex_lock(&manager->waits.lock);
    }
    spw__mutex_unlock(&manager->waits.lock);
    return NULL;
}

int spw__reclaim_start_serving(struct spw_manager *manager)
{
    struct spw__reclaim *reclaim = &manager->reclaim;
    pthread_t thread;
    spw__mutex_lock(&manager->waits.lock);
    const bool starts = !reclaim->starting && !manager->waits.drive;
    reclaim->starting |= starts;
    spw__mutex_unlock(&manager->waits.lock);
    if (!starts)
        return SPW_OK;
    const bool started = spw__thread_create(&thread, serve_main, manager) == 0;
    spw__mutex_lock(&manager->waits.lock);
    reclaim->starting = reclaim->has_thread = started;
    if (started)
        reclaim->thread = thread;
    spw__mutex_unlock(&manager->waits.lock);
    return started ? SPW_OK
                   : spw__fail(SPW_ENOMEM, "the thread that calls reclaimers for tickets could not be started; raise "
                                           "the limit of threads (ulimit -u, or pids.max of the control group)");
}

void spw__reclaim_end_serving(struct spw_manager *manager)
{
    struct spw__reclaim *reclaim = &manager->reclaim;
    spw__mutex_lock(&manager->waits.lock);
    const bool has_thread = reclaim->has_thread;
    reclaim->ends = true;
    reclaim->has_thread = reclaim->starting = false;
    spw__cond_broadcast(&reclaim->called);
    spw__mutex_unlock(&manager->waits.lock);
    if (has_thread)
        (void)pthread_join(reclaim->thread, NULL);
}
