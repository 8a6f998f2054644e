/* Tasks: the public calls. Neighbours: arbiter.c decides who gives way. */
#include "src/core/task.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "pool/base/wait_pass.h"
#include "src/core/arbiter.h"
#include "src/core/group.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/reserve.h"

/* What a thread works for. Managers are told apart by their number, since a new one may lie where another was. */
enum { ATTACHED_MAX = 4 };
struct attachment {
    uint64_t manager; /* 0: none */
    spw_task *task;
    bool outside; /* between block_begin and _end */
};
static _Thread_local struct attachment attachments[ATTACHED_MAX];

static const spw_task_options task_defaults = {.struct_size = sizeof(spw_task_options)};
static const spw_task_usage usage_defaults = {.struct_size = sizeof(spw_task_usage)};

void spw_task_options_init_sized(spw_task_options *options, size_t size)
{
    spw__sized_give(options, size, &task_defaults);
}

void spw_task_usage_init_sized(spw_task_usage *usage, size_t size)
{
    spw__sized_give(usage, size, &usage_defaults);
}

/* This thread's attachment for a manager; 0: a free one. */
static struct attachment *find_attachment(uint64_t manager)
{
    for (unsigned i = 0; i < ATTACHED_MAX; i++)
        if (attachments[i].manager == manager)
            return &attachments[i];
    return NULL;
}

spw_task *spw__task_of(spw_manager *manager, const spw_wait_options *wait)
{
    if (wait && wait->task)
        return wait->task;
    if (atomic_load_explicit(&manager->arbiter.n_tasks, memory_order_relaxed) == 0)
        return NULL;
    const struct attachment *attachment = find_attachment(manager->serial);
    return attachment ? attachment->task : NULL;
}

int spw__task_check_handle(const spw_task *task, const char *call)
{
    if (!task)
        return spw__fail(SPW_EBADHANDLE, "%s: task is NULL", call);
    const uint64_t magic = atomic_load(&task->magic);
    if (magic == SPW__TASK_LIVE)
        return spw__check_process(task->manager);
    return spw__fail(SPW_EBADHANDLE, magic == SPW__TASK_DEAD ? "%s: the task was destroyed already"
                                                             : "%s: not a task of this library", call);
}

static int fail_cancelled(const spw_task *task)
{
    return spw__fail(SPW_ECANCELED, "the task \"%s\" was cancelled", task->name);
}

int spw__task_check(spw_manager *manager, const spw_wait_options *wait)
{
    spw_task *task = spw__task_of(manager, wait);
    if (!task)
        return SPW_OK;
    const int rc = spw__task_check_handle(task, "wait.task");
    if (rc != SPW_OK)
        return rc;
    if (task->manager != manager)
        return spw__fail(SPW_EINVAL, "wait.task: the task \"%s\" belongs to another manager", task->name);
    const struct attachment *attachment = find_attachment(manager->serial);
    if (attachment && attachment->task != task)
        return spw__fail(SPW_EINVAL, "wait.task: this thread works for the task \"%s\", not for \"%s\"",
                         attachment->task->name, task->name);
    if (attachment && attachment->outside)
        return spw__fail(SPW_EINVAL, "a call between spw_task_block_begin and _end of the task \"%s\" may wait: end "
                                     "the wait outside first", task->name);
    return atomic_load(&task->cancelled) ? fail_cancelled(task) : SPW_OK;
}

struct spw__group *spw__task_node(spw_manager *manager, spw_task *task)
{
    return task ? &task->node : &manager->root;
}

/* A dead task that nothing names any more: no charge, no payload, no reservation. */
static bool is_forgotten(const spw_task *task)
{
    for (unsigned tier = 0; tier < SPW_TIER_META; tier++)
        if (spw__ledger_committed(&task->node, (spw_tier)tier))
            return false;
    return atomic_load(&task->node.users) == 0 && spw__reservations_of(task->manager, &task->node).live == 0;
}

/* Memory for a task: that of a dead one that is forgotten, else new. */
static spw_task *take_memory_locked(spw_manager *manager)
{
    for (spw_task **link = &manager->arbiter.dead; *link; link = &(*link)->next)
        if (is_forgotten(*link)) {
            spw_task *task = *link;
            *link = task->next;
            return task;
        }
    return NULL;
}

static void append_locked(struct spw__arbiter *arbiter, spw_task *task)
{
    task->next = NULL;
    if (arbiter->tasks)
        arbiter->last->next = task;
    else
        arbiter->tasks = task;
    arbiter->last = task;
}

static void remove_locked(struct spw__arbiter *arbiter, spw_task *task)
{
    spw_task *before = NULL;
    for (spw_task *at = arbiter->tasks; at != task; at = at->next)
        before = at;
    if (before)
        before->next = task->next;
    else
        arbiter->tasks = task->next;
    if (arbiter->last == task)
        arbiter->last = before;
    task->next = arbiter->dead;
    arbiter->dead = task;
}

int spw_task_create(spw_manager *manager, const spw_task_options *options, spw_task **out)
{
    spw_task_options taken = task_defaults;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_task_create: manager or out is NULL");
    *out = NULL;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_task_options, reserved), options, "spw_task_create: options");
    if (rc == SPW_OK && taken.reserved)
        rc = spw__fail(SPW_EINVAL, "spw_task_create: options.reserved is not 0");
    if (rc == SPW_OK && taken.name && strnlen(taken.name, SPW__TASK_NAME_BYTES) == SPW__TASK_NAME_BYTES)
        rc = spw__fail(SPW_EINVAL, "spw_task_create: the name is longer than %d bytes", SPW__TASK_NAME_BYTES - 1);
    if (rc == SPW_OK && taken.group)
        rc = spw__group_check_handle(taken.group, "spw_task_create: options.group");
    if (rc == SPW_OK && taken.group && taken.group->manager != manager)
        rc = spw__fail(SPW_EINVAL, "spw_task_create: options.group belongs to another manager");
    if (rc == SPW_OK && taken.group)
        rc = spw__group_check(&taken.group->node);
    if (rc != SPW_OK)
        return rc;
    spw__mutex_lock(&manager->waits.lock);
    spw_task *task = take_memory_locked(manager);
    spw__mutex_unlock(&manager->waits.lock);
    if (!task)
        task = spw__meta_alloc(&manager->meta, spw__group_size(manager, sizeof *task));
    if (!task)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a task; raise meta=");
    *task = (struct spw_task){.manager = manager, .priority = taken.priority,
                              .asks_max = taken.asks_max ? taken.asks_max : SPW_TASK_ASKS_MAX};
    spw__group_init(&task->node, taken.group ? &taken.group->node : &manager->root, &manager->ledger);
    spw__group_init_shares(manager, &task->node, spw__group_shares_behind(task, sizeof *task));
    if (taken.name)
        memcpy(task->name, taken.name, strlen(taken.name));
    memcpy(task->node.name, task->name, sizeof task->node.name);
    spw__group_enter(manager, &task->node);
    spw__mutex_lock(&manager->waits.lock);
    task->serial = manager->arbiter.next_serial++;
    append_locked(&manager->arbiter, task);
    (void)atomic_fetch_add(&manager->arbiter.n_tasks, 1);
    atomic_store(&task->magic, SPW__TASK_LIVE);
    spw__mutex_unlock(&manager->waits.lock);
    *out = task;
    return SPW_OK;
}

int spw_task_destroy(spw_task *task)
{
    if (!task)
        return SPW_OK;
    int rc = spw__task_check_handle(task, "spw_task_destroy");
    if (rc != SPW_OK)
        return rc;
    spw_manager *manager = task->manager;
    spw__mutex_lock(&manager->waits.lock);
    const uint32_t attached = task->attached, users = atomic_load(&task->users) + task->unheeded;
    const bool reclaims = task->reclaimers || task->reclaiming;
    uint64_t live = SPW__TASK_LIVE;
    const bool dies = attached == 0 && users == 0 && !reclaims &&
                      atomic_compare_exchange_strong(&task->magic, &live, SPW__TASK_DEAD);
    if (dies) {
        spw__group_leave(manager, &task->node);
        remove_locked(&manager->arbiter, task);
        (void)atomic_fetch_sub(&manager->arbiter.n_tasks, 1);
        spw__arbiter_give_turn_locked(manager);
        spw__arbiter_look_locked(manager);
    }
    spw__wait_settle_unlock(&manager->waits);
    if (dies)
        return SPW_OK;
    if (live != SPW__TASK_LIVE)
        return spw__fail(SPW_EBADHANDLE, "spw_task_destroy: the task was destroyed already");
    if (reclaims)
        return spw__fail(SPW_EBUSY, "spw_task_destroy: the task \"%s\" has reclaimers; unregister them first",
                         task->name);
    return spw__fail(SPW_EBUSY, "spw_task_destroy: the task \"%s\" has %u thread%s, and %u call%s under way on its "
                                "behalf; detach the threads, and let calls and tickets end, first", task->name,
                     attached, attached == 1 ? "" : "s", users, users == 1 ? "" : "s");
}

int spw_task_attach(spw_task *task)
{
    const int rc = spw__task_check_handle(task, "spw_task_attach");
    if (rc != SPW_OK)
        return rc;
    spw_manager *manager = task->manager;
    const int inside = spw__reclaim_check_outside(manager, "spw_task_attach");
    if (inside != SPW_OK)
        return inside;
    if (find_attachment(manager->serial))
        return spw__fail(SPW_EBUSY, "spw_task_attach: this thread works for the task \"%s\" already",
                         find_attachment(manager->serial)->task->name);
    struct attachment *attachment = find_attachment(0);
    if (!attachment)
        return spw__fail(SPW_EINVAL, "spw_task_attach: this thread works for tasks of %d managers already",
                         ATTACHED_MAX);
    *attachment = (struct attachment){.manager = manager->serial, .task = task};
    spw__mutex_lock(&manager->waits.lock);
    spw__arbiter_change_locked(manager, task, 1, 0);
    spw__reclaim_hold_locked(manager, task);
    spw__mutex_unlock(&manager->waits.lock);
    return SPW_OK;
}

/* The calling thread's attachment to task; NULL, with detail, when it has none. */
static struct attachment *attachment_to(spw_task *task, const char *call)
{
    struct attachment *attachment = find_attachment(task->manager->serial);
    if (attachment && attachment->task == task)
        return attachment;
    (void)spw__fail(SPW_EINVAL, "%s: this thread does not work for the task \"%s\"", call, task->name);
    return NULL;
}

int spw_task_detach(spw_task *task)
{
    const int rc = spw__task_check_handle(task, "spw_task_detach");
    if (rc != SPW_OK)
        return rc;
    struct attachment *attachment = attachment_to(task, "spw_task_detach");
    if (!attachment || spw__reclaim_check_outside(task->manager, "spw_task_detach") != SPW_OK)
        return SPW_EINVAL;
    if (attachment->outside)
        return spw__fail(SPW_EINVAL, "spw_task_detach: this thread is between spw_task_block_begin and _end");
    *attachment = (struct attachment){.manager = 0};
    spw__mutex_lock(&task->manager->waits.lock);
    spw__arbiter_change_locked(task->manager, task, -1, 0);
    spw__arbiter_look_locked(task->manager);
    spw__wait_settle_unlock(&task->manager->waits);
    return SPW_OK;
}

bool spw__task_is_own(const spw_manager *manager, const spw_task *task)
{
    const struct attachment *attachment = find_attachment(manager->serial);
    return attachment && attachment->task == task;
}

int spw__task_check_own(spw_task *task, const char *call)
{
    const int rc = spw__task_check_handle(task, call);
    if (rc != SPW_OK)
        return rc;
    const struct attachment *attachment = attachment_to(task, call);
    if (!attachment)
        return SPW_EINVAL;
    return attachment->outside ? spw__fail(SPW_EINVAL, "%s: this thread is between spw_task_block_begin and _end", call)
                               : SPW_OK;
}

static int change_outside(spw_task *task, bool begins, const char *what, const char *call)
{
    const int rc = spw__task_check_handle(task, call);
    if (rc != SPW_OK)
        return rc;
    struct attachment *attachment = attachment_to(task, call);
    if (!attachment || spw__reclaim_check_outside(task->manager, call) != SPW_OK)
        return SPW_EINVAL;
    if (attachment->outside == begins)
        return spw__fail(SPW_EINVAL, begins ? "%s: a wait outside has begun already on this thread"
                                            : "%s: no wait outside has begun on this thread", call);
    attachment->outside = begins;
    spw__mutex_lock(&task->manager->waits.lock);
    task->outside = begins ? what : NULL;
    task->n_outside += begins ? 1u : UINT32_MAX;
    spw__arbiter_change_locked(task->manager, task, 0, begins ? 1 : -1);
    spw__arbiter_look_locked(task->manager);
    if (!begins) {
        spw__wait_settle_locked(&task->manager->waits);
        spw__reclaim_hold_locked(task->manager, task);
    }
    spw__wait_settle_unlock(&task->manager->waits);
    return SPW_OK;
}

int spw_task_block_begin(spw_task *task, const char *what)
{
    return change_outside(task, true, what ? what : "", "spw_task_block_begin");
}

int spw_task_block_end(spw_task *task)
{
    return change_outside(task, false, NULL, "spw_task_block_end");
}

/* How long a task that was asked so often in a row waits at least before mere room lets it go on: a microsecond,
 * doubled from the second time on, up to 16 ms. */
static uint64_t backoff_ns(uint32_t asks)
{
    return asks < 2 ? 0 : UINT64_C(1000) << (asks < 16 ? asks - 2 : 14);
}

uint64_t spw__task_backoff_until_ns(const spw_task *task)
{
    return spw__clock_now_ns(task->manager->env.clock) + backoff_ns(atomic_load(&task->asks));
}

static void list_turn(spw_task *task, struct spw__turn *turn, uint64_t backoff_until_ns)
{
    spw__mutex_lock(&task->manager->waits.lock);
    turn->next = task->turns;
    task->turns = turn;
    task->backoff_until_ns = backoff_until_ns;
    (void)atomic_fetch_add(&task->manager->arbiter.n_parked, 1);
    spw__mutex_unlock(&task->manager->waits.lock);
}

void spw__task_unlist_turn(spw_task *task, struct spw__turn *turn)
{
    spw__mutex_lock(&task->manager->waits.lock);
    struct spw__turn **link = &task->turns;
    while (*link != turn)
        link = &(*link)->next;
    *link = turn->next;
    (void)atomic_fetch_sub(&task->manager->arbiter.n_parked, 1);
    spw__mutex_unlock(&task->manager->waits.lock);
}

bool spw__task_enqueue_turn(spw_task *task, struct spw__turn *turn, uint64_t backoff_until_ns, uint64_t deadline_ns)
{
    spw_manager *manager = task->manager;
    const bool backs_off = backoff_until_ns < deadline_ns && spw__clock_now_ns(manager->env.clock) < backoff_until_ns;
    turn->waiter.object = &task->turns;
    turn->waiter.channels = SPW__CHANNEL_OBJECT;
    turn->waiter.task = task;
    turn->waiter.what = SPW__WAIT_TURN;
    turn->waiter.deadline_ns = backs_off ? backoff_until_ns : deadline_ns;
    list_turn(task, turn, backoff_until_ns);
    spw__wait_enqueue(&manager->waits, &turn->waiter);
    spw__arbiter_wake_satisfied(manager);
    return backs_off;
}

/* Parks the task until its turn, its deadline, or the end of its back-off, when it has not been satisfied meanwhile. */
static int park(spw_task *task, const spw_wait_options *wait, uint64_t deadline_ns)
{
    spw_manager *manager = task->manager;
    const uint64_t backoff_until_ns = spw__task_backoff_until_ns(task);
    for (;;) {
        struct spw__turn turn = {.waiter = {.cancel = wait->cancel}};
        const bool backs_off = spw__task_enqueue_turn(task, &turn, backoff_until_ns, deadline_ns);
        const int rc = spw__wait_block(&manager->waits, &turn.waiter);
        spw__task_unlist_turn(task, &turn);
        if (rc != SPW_ETIMEDOUT || !backs_off)
            return rc;
    }
}

int spw__task_turn_check(spw_task *task, const spw_wait_options *wait, spw_wait_options *own)
{
    int rc = spw__task_check_handle(task, "spw_task_wait_turn");
    if (rc != SPW_OK)
        return rc;
    if (wait && wait->task && wait->task != task)
        return spw__fail(SPW_EINVAL, "spw_task_wait_turn: wait.task is another task than \"%s\"", task->name);
    *own = wait ? *wait : (spw_wait_options){.timeout_ms = SPW_TIMEOUT_DEFAULT};
    own->task = task;
    rc = spw__reclaim_check_outside(task->manager, "spw_task_wait_turn");
    return rc == SPW_OK ? spw__check_wait(task->manager, own) : rc;
}

int spw_task_wait_turn(spw_task *task, const spw_wait_options *wait)
{
    spw_wait_options own;
    int rc = spw__task_turn_check(task, wait, &own);
    if (rc != SPW_OK || atomic_load(&task->asks) == 0)
        return rc;
    spw_manager *manager = task->manager;
    spw__waitset_enter(&manager->waits);
    (void)atomic_fetch_add(&task->users, 1);
    rc = park(task, &own, spw__deadline_ns(manager, &own));
    (void)atomic_fetch_sub(&task->users, 1);
    rc = spw__task_turn_conclude(task, rc);
    spw__waitset_leave(&manager->waits);
    return rc;
}

int spw__task_turn_conclude(const spw_task *task, int rc)
{
    return rc == SPW_OK ? rc : spw__fail(rc, "the wait of the task \"%s\" for its turn ended: %s", task->name,
                                         spw_strerror(rc));
}

static int visit_cancelled(struct spw__waiter *waiter, void *arg)
{
    return waiter->task == arg ? SPW_ECANCELED : SPW_EAGAIN;
}

int spw_task_cancel(spw_task *task)
{
    const int rc = spw__task_check_handle(task, "spw_task_cancel");
    if (rc != SPW_OK)
        return rc;
    struct spw__waitset *waits = &task->manager->waits;
    atomic_store(&task->cancelled, true);
    spw__mutex_lock(&waits->lock);
    spw__waitset_visit_locked(waits, SPW__CHANNELS_MEMORY | SPW__CHANNEL_OBJECT, visit_cancelled, task);
    spw__arbiter_look_locked(task->manager);
    spw__wait_settle_unlock(waits);
    spw__pressure_kick(task->manager, SPW_TIER_HOST); /* who waited behind it may go first now */
    return SPW_OK;
}

int spw_task_usage_get(spw_task *task, spw_task_usage *usage)
{
    spw_task_usage found = usage_defaults;
    int rc = spw__task_check_handle(task, "spw_task_usage_get");
    if (rc == SPW_OK && (!usage || usage->struct_size < SPW__SIZED_FIRST(spw_task_usage, splits)))
        rc = spw__fail(SPW_EINVAL, "spw_task_usage_get: usage is NULL or its struct_size too small; use "
                                   "spw_task_usage_init");
    if (rc != SPW_OK)
        return rc;
    for (unsigned tier = 0; tier < SPW_TIER_META; tier++) {
        found.committed_bytes[tier] = spw__ledger_committed(&task->node, (spw_tier)tier);
        found.peak_bytes[tier] = atomic_load(&task->node.gates[tier].peak);
    }
    found.waits = atomic_load(&task->waits);
    found.retries = atomic_load(&task->retries);
    found.splits = atomic_load(&task->splits);
    spw__sized_give(usage, usage->struct_size, &found);
    return SPW_OK;
}

void spw__tasks_finish(spw_manager *manager)
{
    struct spw__arbiter *arbiter = &manager->arbiter;
    for (unsigned i = 0; i < 2; i++)
        for (spw_task **list = i ? &arbiter->dead : &arbiter->tasks; *list;) {
            spw_task *task = *list;
            *list = task->next;
            spw__meta_free(&manager->meta, task, spw__group_size(manager, sizeof *task));
        }
}
