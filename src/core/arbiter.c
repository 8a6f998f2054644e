/* The arbiter. Neighbours: pressure.c brings waits here by the wait set's hook, task.c parks tasks. */
#include "src/core/arbiter.h"

#include <stdarg.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/base/wait_pass.h"
#include "src/core/demand.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

static bool is_parked(const struct spw_task *task)
{
    for (const struct spw__turn *turn = task->turns; turn; turn = turn->next)
        if (turn->waiter.waiting) /* else it is about to wait, or was woken */
            return true;
    return false;
}

static void wake_locked(struct spw_manager *manager, struct spw_task *task)
{
    for (struct spw__turn *turn = task->turns; turn; turn = turn->next)
        if (turn->waiter.waiting)
            spw__wait_finish_locked(&manager->waits, &turn->waiter, SPW_OK);
}

/* True when a should rather give way than b. */
static bool gives_way(const struct spw_task *a, const struct spw_task *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->serial > b->serial;
}

void spw__arbiter_change_locked(struct spw_manager *manager, struct spw_task *task, int attached, int blocked)
{
    struct spw__arbiter *arbiter = &manager->arbiter;
    spw__mutex_assert_held(&manager->waits.lock);
    task->attached += (uint32_t)attached;
    task->blocked += (uint32_t)blocked;
    const bool runs = task->attached > task->blocked || (task->unheeded && task->blocked == task->n_outside);
    if (runs != task->running)
        arbiter->n_running += runs ? 1u : UINT32_MAX;
    task->running = runs;
    spw__reclaim_task_changed_locked(manager, task);
}

void spw__arbiter_blocked(void *arg, struct spw__waiter *waiter, int change)
{
    struct spw_manager *manager = arg;
    struct spw_task *task = waiter->task;
    if (!task)
        return;
    if (change > 0)
        waiter->mark = !spw__task_is_own(manager, task);
    if (waiter->mark)
        task->outsiders += (uint32_t)change;
    spw__arbiter_change_locked(manager, task, 0, change);
    if (change > 0)
        spw__arbiter_look_locked(manager);
}

enum { REFUSERS_MAX = 16 };

/* What a look finds among those who wait on behalf of tasks. */
struct scan {
    uint32_t waited; /* bits: where somebody waits for memory */
    uint32_t tiers;  /* bits: where it is memory that any holder could give back */
    struct refuser {
        const struct spw__group *group; /* whose maximum refuses somebody: only those below it can help */
        spw_tier tier;
    } refusers[REFUSERS_MAX];
    unsigned n_refusers;
    struct spw__waiter *retry; /* of the least important holder that was not asked yet */
    struct spw__waiter *split; /* of the most important task */
};

/* The wait of a thread for a ticket of its own task, or of another's: the ticket's waits stand for it. */
static bool is_represented(const struct spw__waiter *waiter)
{
    return waiter->what == SPW__WAIT_TICKET && ((const struct spw_ticket *)waiter->object)->wait.task;
}

static void note_refuser(struct scan *scan, const struct spw__group *group, spw_tier tier)
{
    for (unsigned i = 0; i < scan->n_refusers; i++)
        if (scan->refusers[i].group == group && scan->refusers[i].tier == tier)
            return;
    if (scan->n_refusers == REFUSERS_MAX) /* then anybody may be asked */
        scan->tiers |= SPW__CHANNEL(tier);
    else
        scan->refusers[scan->n_refusers++] = (struct refuser){.group = group, .tier = tier};
}

/* Notes who could help a request, which every waiter on a memory channel is. */
static void note_request(struct scan *scan, const struct spw__waiter *waiter)
{
    const struct spw__request *request = (const struct spw__request *)(const void *)waiter;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        if (!(waiter->channels & SPW__CHANNEL(tier)))
            continue;
        scan->waited |= SPW__CHANNEL(tier);
        const struct spw__group *refuser =
            spw__request_refused_by(request, spw__tier_of(request->manager, tier));
        if (refuser)
            note_refuser(scan, refuser, tier);
        else
            scan->tiers |= SPW__CHANNEL(tier);
    }
}

static int visit_needs(struct spw__waiter *waiter, void *arg)
{
    if (waiter->task && waiter->what == SPW__WAIT_TICKET) {
        const struct spw__waiter *current = ((const struct spw_ticket *)waiter->object)->current;
        if (current)
            note_request(arg, current);
    } else if (waiter->task) {
        note_request(arg, waiter);
    }
    return SPW_EAGAIN;
}

/* True when something that the task holds could help somebody who waits. */
static bool could_help(const struct spw_task *task, const struct scan *scan)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        if ((scan->tiers & SPW__CHANNEL(tier)) && spw__ledger_committed(&task->node, tier))
            return true;
    for (unsigned i = 0; i < scan->n_refusers; i++)
        if (spw__group_is_below(&task->node, scan->refusers[i].group) &&
            spw__ledger_committed(&task->node, scan->refusers[i].tier))
            return true;
    return false;
}

static uint64_t held_by(const struct spw_task *task)
{
    uint64_t bytes = 0;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        bytes += spw__ledger_committed(&task->node, tier);
    return bytes;
}

static int visit_candidates(struct spw__waiter *waiter, void *arg)
{
    struct scan *scan = arg;
    const struct spw_task *task = waiter->task;
    if (!task || waiter->what == SPW__WAIT_TURN || is_represented(waiter))
        return SPW_EAGAIN;
    const struct spw_task *retry = scan->retry ? scan->retry->task : NULL;
    const struct spw_task *split = scan->split ? scan->split->task : NULL;
    if (atomic_load(&task->asks) == 0 && could_help(task, scan) && (!retry || gives_way(task, retry)))
        scan->retry = waiter;
    /* Only a request for memory can be made smaller. */
    if (((waiter->channels & SPW__CHANNELS_MEMORY) || waiter->what == SPW__WAIT_TICKET) &&
        (!split || gives_way(split, task)))
        scan->split = waiter;
    return SPW_EAGAIN;
}

/* Notes what the task's request asked for, and ends its wait. */
static void ask(struct spw_manager *manager, struct spw__waiter *waiter, int code)
{
    struct spw_task *task = waiter->task;
    task->lacked = (struct spw__lacked){.bytes = 0};
    if (waiter->channels & SPW__CHANNELS_MEMORY) {
        const struct spw__request *request = (struct spw__request *)(void *)waiter;
        task->lacked = (struct spw__lacked){
            .bytes = request->bytes, .tier = request->lowest, .in_one = !request->charge_only,
            .charge = spw__request_charge(request, spw__tier_of(manager, request->lowest))};
    }
    task->held_when_asked = held_by(task);
    (void)atomic_fetch_add(&task->asks, 1);
    (void)atomic_fetch_add(code == SPW_ERETRY ? &task->retries : &task->splits, 1);
    spw__core_count(manager, code == SPW_ERETRY ? SPW__CORE_RETRIES : SPW__CORE_SPLITS, 1);
    spw__wait_finish_locked(&manager->waits, waiter, code);
}

/* Asked as often as it may be: the error says who holds the memory. */
static void give_up(struct spw_manager *manager, struct spw__waiter *waiter)
{
    struct spw_task *task = waiter->task;
    atomic_store(&task->asks, 0);
    atomic_store(&task->gave_up, true);
    task->lacked.bytes = 0;
    spw__wait_finish_locked(&manager->waits, waiter, SPW_ENOMEM);
}

static struct spw_task *most_important_parked_locked(struct spw__arbiter *arbiter)
{
    struct spw_task *best = NULL;
    for (struct spw_task *task = arbiter->tasks; task; task = task->next)
        if (is_parked(task) && (!best || gives_way(best, task)))
            best = task;
    return best;
}

void spw__arbiter_give_turn_locked(struct spw_manager *manager)
{
    struct spw_task *task = most_important_parked_locked(&manager->arbiter);
    if (task)
        wake_locked(manager, task);
}

/* True when nothing will happen by itself. */
static bool is_stuck_locked(struct spw_manager *manager)
{
    const struct spw__arbiter *arbiter = &manager->arbiter;
    return atomic_load(&arbiter->n_tasks) && arbiter->n_running == 0 && !spw__mover_busy(manager->mover) &&
           atomic_load(&manager->reclaim.n_running) == 0 && atomic_load(&manager->n_patient) == 0;
}

/* Lets those behind a barrier try; false: there is none. */
static bool lift_barriers_locked(struct spw__waitset *waits)
{
    const bool any = spw__waitset_barred(waits, SPW__CHANNELS_MEMORY);
    spw__wait_lapse_locked(waits, UINT64_MAX);
    spw__wait_settle_locked(waits);
    return any;
}

void spw__arbiter_look_locked(struct spw_manager *manager)
{
    struct spw__waitset *waits = &manager->waits;
    struct scan scan = {.waited = 0};
    if (!is_stuck_locked(manager))
        return;
    spw__waitset_visit_locked(waits, SPW__CHANNELS_MEMORY | SPW__CHANNEL_OBJECT, visit_needs, &scan);
    if (lift_barriers_locked(waits) && !is_stuck_locked(manager))
        return;
    if (spw__reclaim_summon_locked(manager, scan.waited))
        return;
    spw__waitset_visit_locked(waits, SPW__CHANNELS_MEMORY | SPW__CHANNEL_OBJECT, visit_candidates, &scan);
    const struct spw_task *parked = most_important_parked_locked(&manager->arbiter);
    struct spw__waiter *waiter = scan.retry ? scan.retry : parked ? NULL : scan.split;
    if (waiter && atomic_load(&((struct spw_task *)waiter->task)->asks) >= ((struct spw_task *)waiter->task)->asks_max)
        give_up(manager, waiter);
    else if (waiter)
        ask(manager, waiter, scan.retry ? SPW_ERETRY : SPW_ESPLIT);
    else if (parked)
        spw__arbiter_give_turn_locked(manager);
}

void spw__arbiter_look(struct spw_manager *manager)
{
    if (atomic_load(&manager->arbiter.n_tasks) == 0)
        return;
    spw__mutex_lock(&manager->waits.lock);
    spw__arbiter_look_locked(manager);
    spw__wait_settle_unlock(&manager->waits);
}

/* What the task lacked is free, and nobody waits for it. */
static bool is_satisfied_locked(struct spw_manager *manager, const struct spw_task *task)
{
    const struct spw__lacked *lacked = &task->lacked;
    if (!lacked->bytes || spw__waitset_busy(&manager->waits, SPW__CHANNEL(lacked->tier)) ||
        spw__clock_now_ns(manager->env.clock) < task->backoff_until_ns)
        return false;
    struct spw__tier *tier = spw__tier_of(manager, lacked->tier);
    return spw__ledger_free_on_path(&task->node, lacked->tier) >= lacked->charge &&
           (!lacked->in_one ||
            spw__tier_largest_free_from(tier, spw__tier_first_route(tier, lacked->bytes)) >= lacked->charge);
}

void spw__arbiter_wake_satisfied(struct spw_manager *manager)
{
    struct spw_task *best = NULL;
    if (atomic_load(&manager->arbiter.n_parked) == 0)
        return;
    spw__mutex_lock(&manager->waits.lock);
    /* One at a time: what is free is free for the first only. */
    for (struct spw_task *task = manager->arbiter.tasks; task; task = task->next)
        if (is_parked(task) && (!best || gives_way(best, task)) && is_satisfied_locked(manager, task))
            best = task;
    if (best)
        wake_locked(manager, best);
    spw__wait_settle_unlock(&manager->waits);
}

void spw__arbiter_granted(struct spw_manager *manager, struct spw_task *task, uint64_t bytes)
{
    if (atomic_load_explicit(&task->asks, memory_order_relaxed) == 0)
        return;
    spw__mutex_lock(&manager->waits.lock);
    if ((task->lacked.bytes && bytes >= task->lacked.bytes) || held_by(task) > task->held_when_asked) {
        atomic_store(&task->asks, 0);
        task->lacked.bytes = 0;
    }
    spw__mutex_unlock(&manager->waits.lock);
}

struct text {
    char *at;
    size_t size, used;
};

static void SPW_PRINTF(2, 3) add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text->at + text->used, text->size - text->used, format, args);
    va_end(args);
    text->used += n > 0 ? (size_t)n : 0;
    if (text->used >= text->size)
        text->used = text->size - 1;
}

static const char *state_of(const struct spw_task *task)
{
    return is_parked(task) ? "waits its turn" : task->outside ? "waits outside" : task->running ? "runs" : "waits";
}

void spw__arbiter_describe(struct spw_manager *manager, spw_tier tier, char *text, size_t size)
{
    struct text out = {.at = text, .size = size};
    uint64_t rest = atomic_load(&manager->root.gates[tier].committed);
    unsigned listed = 0;
    *text = 0;
    spw__mutex_lock(&manager->waits.lock);
    for (const struct spw_task *task = manager->arbiter.tasks; task; task = task->next) {
        const uint64_t bytes = spw__ledger_committed(&task->node, tier);
        if (bytes == 0 || out.used + 144 > size)
            continue;
        add(&out, "%s\"%s\" %llu (%s)", listed++ ? ", " : "", task->name, (unsigned long long)bytes, state_of(task));
        rest -= bytes < rest ? bytes : rest;
    }
    spw__mutex_unlock(&manager->waits.lock);
    const uint64_t staging = manager->tiers[tier].set_aside;
    rest -= staging < rest ? staging : rest;
    if (rest)
        add(&out, "%s %llu", listed ? ", others" : "no task", (unsigned long long)rest);
    if (staging)
        add(&out, "%sstaging %llu", listed || rest ? ", " : "", (unsigned long long)staging);
    const uint32_t n_waiting = atomic_load(&manager->waits.n_waiting[tier]);
    if (n_waiting)
        add(&out, "; %u other requests wait", n_waiting);
    struct spw__external_sum sum = {.tier = tier};
    for (listed = 0; spw__external_next(manager, &sum) && sum.tier == tier && out.used + 80 < size; listed++)
        add(&out, "%s\"%s\" %llu", listed ? ", " : "; of it charged from outside: ", sum.tag,
            (unsigned long long)sum.bytes);
}
