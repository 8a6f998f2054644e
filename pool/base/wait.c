/* The wait primitive: see wait.h. Neighbours: wait_pass.c runs the attempts, wait_cancel.c has the tokens; the pools
 * and the mover signal, src/core waits. */
#include "pool/base/wait.h"

#include <assert.h>

#include "pool/base/error.h"
#include "pool/base/wait_pass.h"
#include "pool/base/wait_walk.h"

void spw__waitset_init(struct spw__waitset *set, const struct spw__clock *clock)
{
    *set = (struct spw__waitset){.clock = clock, .due_ns = UINT64_MAX};
    spw__mutex_init(&set->lock, SPW__RANK_WAIT);
    spw__cond_init(&set->all_left);
}

void spw__waitset_finish(struct spw__waitset *set)
{
    spw__mutex_lock(&set->lock);
    while (atomic_load(&set->visitors) != 0)
        (void)spw__cond_wait(&set->all_left, &set->lock, -1);
    spw__mutex_unlock(&set->lock);
    spw__cond_finish(&set->all_left);
    spw__mutex_finish(&set->lock);
}

void spw__waitset_enter(struct spw__waitset *set)
{
    spw__mutex_lock(&set->lock);
    set->inside++;
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_leave(struct spw__waitset *set)
{
    spw__mutex_lock(&set->lock);
    if (--set->inside == 0)
        spw__cond_broadcast(&set->all_left);
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_granted(struct spw__waitset *set, uint32_t channels)
{
    if (!spw__waitset_busy(set, channels))
        return;
    spw__mutex_lock(&set->lock);
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (channels & SPW__CHANNEL(channel))
            spw__wait_pass_over_locked(set, channel, NULL);
    spw__wait_settle_unlock(set);
}

void spw__wait_enqueue(struct spw__waitset *set, struct spw__waiter *waiter)
{
    assert(waiter->channels && !(waiter->channels & ~(SPW__CHANNELS_MEMORY | SPW__CHANNEL_OBJECT)));
    if (!waiter->completed)
        spw__cond_init(&waiter->done);
    spw__mutex_lock(&set->lock);
    waiter->set = set;
    waiter->waiting = true;
    waiter->tried = waiter->blocked = waiter->joined = false;
    waiter->summoned = waiter->urgent = waiter->helping = false;
    waiter->result = SPW_EAGAIN;
    set->enqueuing = waiter; /* where it is not any more, the waiter is DONE, and its memory not ours */
    spw__wait_insert_locked(set, waiter);
    atomic_thread_fence(memory_order_seq_cst);
    if (set->shut_down)
        spw__wait_finish_locked(set, waiter, SPW_ESHUTDOWN);
    else
        spw__wait_pass_locked(set, waiter->channels & SPW__CHANNELS_MEMORY);
    /* Skipped with reason; but what it can never have it is to be told at once, and why it failed is asked later. */
    if (set->enqueuing && !waiter->tried) {
        const int result = spw__wait_attempt_locked(set, waiter);
        if (result != SPW_EAGAIN)
            spw__wait_give_locked(set, waiter, result);
    }
    if (set->enqueuing && waiter->cancel && !spw__wait_join_cancel_locked(waiter))
        spw__wait_finish_locked(set, waiter, SPW_ECANCELED);
    set->enqueuing = NULL;
    spw__wait_settle_unlock(set);
}

int spw__wait_leave(struct spw__waitset *set, struct spw__waiter *waiter)
{
    const bool blocks = !waiter->completed;
    spw__mutex_lock(&set->lock);
    const int result = !waiter->waiting ? waiter->result : blocks ? SPW_ETIMEDOUT : SPW_ECANCELED;
    if (waiter->waiting)
        spw__wait_finish_locked(set, waiter, result);
    spw__wait_settle_unlock(set);
    if (blocks)
        spw__cond_finish(&waiter->done);
    return result;
}

/* Does what has come due for a blocked waiter, and returns the nanoseconds until the next such moment; -1: there is
 * none. A manual clock does not run by itself: its tests expire. */
static long long keep_time_locked(struct spw__waitset *set, struct spw__waiter *waiter)
{
    if (!spw__wait_times_itself(set, waiter))
        return -1;
    const uint64_t now = spw__clock_now_ns(set->clock);
    uint64_t due_ns = waiter->deadline_ns;
    if (due_ns <= now)
        spw__wait_finish_locked(set, waiter, SPW_ETIMEDOUT);
    spw__wait_lapse_locked(set, now);
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (set->barriers[channel] == waiter && spw__wait_lapse_ns_locked(set, channel) < due_ns)
            due_ns = spw__wait_lapse_ns_locked(set, channel);
    return due_ns == UINT64_MAX ? -1 : (long long)(due_ns > now ? due_ns - now : 0);
}

/* A waiter's thread does what it was summoned for. */
static void help_locked(struct spw__waitset *set, struct spw__waiter *waiter)
{
    const bool urgent = waiter->urgent;
    waiter->summoned = waiter->urgent = false;
    waiter->helping = true;
    spw__wait_settle_unlock(set);
    set->help(set->help_arg, waiter, urgent);
    spw__mutex_lock(&set->lock);
    waiter->helping = false;
}

int spw__wait_block(struct spw__waitset *set, struct spw__waiter *waiter)
{
    spw__mutex_lock(&set->lock);
    const bool blocks = waiter->waiting;
    waiter->blocked = blocks;
    if (blocks && set->blocked)
        set->blocked(set->blocked_arg, waiter, 1);
    while (waiter->waiting) {
        if (waiter->summoned) {
            help_locked(set, waiter);
            continue;
        }
        const long long left_ns = keep_time_locked(set, waiter);
        const bool passes = set->again != 0;
        spw__wait_settle_locked(set);
        if (passes || !waiter->waiting) /* a pass may have served it, or made it a barrier that it is to time */
            continue;
        if (set->drive) {
            spw__mutex_unlock(&set->lock);
            set->drive(set->drive_arg);
            spw__mutex_lock(&set->lock);
        } else {
            (void)spw__cond_wait(&waiter->done, &set->lock, left_ns);
        }
    }
    if (blocks && set->leaving) {
        spw__wait_settle_locked(set);
        set->leaving(set->leaving_arg, waiter);
    }
    spw__wait_settle_unlock(set);
    spw__cond_finish(&waiter->done);
    return waiter->result;
}

/* After a free: the fence orders it before the look for waiters, as enqueue's orders its own look after its entry. */
static bool look_for_waiters(struct spw__waitset *set, uint32_t channels)
{
    atomic_thread_fence(memory_order_seq_cst);
    return spw__waitset_busy(set, channels);
}

void spw__waitset_signal(struct spw__waitset *set, uint32_t channels)
{
    if (!look_for_waiters(set, channels))
        return;
    spw__mutex_lock(&set->lock);
    spw__wait_note_freed_locked(set, channels);
    spw__wait_pass_locked(set, channels);
    spw__wait_settle_unlock(set);
}

void spw__waitset_retry(struct spw__waitset *set, uint32_t channels)
{
    if (!look_for_waiters(set, channels))
        return;
    spw__mutex_lock(&set->lock);
    spw__wait_pass_locked(set, channels);
    spw__wait_settle_unlock(set);
}

void spw__waitset_signal_object(struct spw__waitset *set, const void *object)
{
    const struct spw__wait_order start = {.band = (uintptr_t)object, .net_bytes = INT64_MIN};
    const struct spw__wait_node *node;
    if (!look_for_waiters(set, SPW__CHANNEL_OBJECT))
        return;
    spw__mutex_lock(&set->lock);
    while ((node = spw__wait_queue_next(&set->trees[SPW__WAIT_TREE_OBJECT], &start, NULL)) &&
           node->order.band == start.band)
        spw__wait_finish_locked(set, node->owner, 0);
    spw__wait_settle_unlock(set);
}

/* The first after a place in the order on any of channels. */
static struct spw__waiter *next_of(const struct spw__waitset *set, uint32_t channels,
                                   const struct spw__wait_order *after)
{
    const struct spw__wait_node *best = NULL;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        const struct spw__wait_node *node = channels & SPW__CHANNEL(channel)
                                                ? spw__wait_queue_next(&set->trees[channel], after, NULL)
                                                : NULL;
        if (node && (!best || spw__wait_before(&node->order, &best->order)))
            best = node;
    }
    return best ? best->owner : NULL;
}

static void visit_memory_locked(struct spw__waitset *set, uint32_t channels,
                                int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    struct spw__wait_order at;
    struct spw__waiter *waiter;
    int result = SPW_EAGAIN;
    for (const struct spw__wait_order *after = NULL;
         result != SPW__VISIT_STOP && (waiter = next_of(set, channels, after)); after = &at) {
        at = waiter->nodes[0].order;
        waiter->served = channels;
        result = visit(waiter, arg);
        if (result != SPW_EAGAIN && result != SPW__VISIT_STOP)
            spw__wait_give_locked(set, waiter, result);
    }
}

static void visit_objects_locked(struct spw__waitset *set, int (*visit)(struct spw__waiter *waiter, void *arg),
                                 void *arg)
{
    struct spw__wait_order at;
    const struct spw__wait_node *node;
    for (const struct spw__wait_order *after = NULL;
         (node = spw__wait_queue_next(&set->trees[SPW__WAIT_TREE_OBJECT], after, NULL)); after = &at) {
        at = node->order;
        const int result = visit(node->owner, arg);
        if (result != SPW_EAGAIN)
            spw__wait_finish_locked(set, node->owner, result);
    }
}

void spw__waitset_visit_locked(struct spw__waitset *set, uint32_t channels,
                               int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    visit_memory_locked(set, channels & SPW__CHANNELS_MEMORY, visit, arg);
    if (channels & SPW__CHANNEL_OBJECT)
        visit_objects_locked(set, visit, arg);
}

static void visit_walk(struct spw__waitset *set, uint32_t channels, bool demands_only,
                       int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    struct spw__wait_walk walk = {.channels = channels, .marked_only = demands_only};
    struct spw__waiter *waiter;
    int result = SPW_EAGAIN;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        walk.most[channel] = SPW__WAIT_UNBOUNDED;
    spw__mutex_lock(&set->lock);
    spw__wait_walk_begin(&walk, set);
    while (result != SPW__VISIT_STOP && (waiter = spw__wait_walk_next(&walk))) {
        waiter->served = channels;
        result = visit(waiter, arg);
        if (result == SPW__VISIT_ENOUGH)
            spw__wait_walk_leave_out(&walk, waiter, channels);
        else if (result != SPW_EAGAIN && result != SPW__VISIT_STOP)
            spw__wait_give_locked(set, waiter, result);
    }
    spw__wait_walk_end(&walk);
    spw__wait_settle_unlock(set);
}

void spw__waitset_visit(struct spw__waitset *set, uint32_t channels,
                        int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    visit_walk(set, channels, false, visit, arg);
}

void spw__waitset_visit_demands(struct spw__waitset *set, uint32_t channels,
                                int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    visit_walk(set, channels, true, visit, arg);
}

bool spw__waitset_summon_locked(struct spw__waitset *set, unsigned channel, bool urgent)
{
    const struct spw__wait_filter filter = {.bound = SPW__WAIT_UNBOUNDED, .marked_only = true};
    const struct spw__wait_node *node = NULL;
    struct spw__waiter *found = NULL;
    while ((!found || found->helping) &&
           (node = spw__wait_queue_next(&set->trees[channel], node ? &node->order : NULL, &filter))) {
        struct spw__waiter *waiter = node->owner;
        /* Who helps already comes again, if need be. */
        if (waiter->helps && !waiter->completed && (!found || !waiter->helping))
            found = waiter;
    }
    if (!found)
        return false;
    found->summoned = true;
    found->urgent |= urgent;
    spw__cond_signal(&found->done);
    return true;
}

uint64_t spw__waitset_expire(struct spw__waitset *set)
{
    const uint64_t now = spw__clock_now_ns(set->clock);
    const uint64_t due_ns = atomic_load(&set->due_ns);
    const struct spw__wait_node *first;
    if (now < due_ns)
        return due_ns;
    spw__mutex_lock(&set->lock);
    if (atomic_load(&set->deferring) == 0) {
        while ((first = set->trees[SPW__WAIT_TREE_DEADLINE].first) && first->order.band <= now)
            spw__wait_finish_locked(set, first->owner, SPW_ETIMEDOUT);
        spw__wait_lapse_locked(set, now);
    }
    spw__wait_settle_unlock(set);
    return atomic_load(&set->due_ns);
}

void spw__waitset_shut_down(struct spw__waitset *set)
{
    spw__mutex_lock(&set->lock);
    set->shut_down = true;
    for (unsigned tree = 0; tree <= SPW__WAIT_TREE_OBJECT; tree++)
        while (set->trees[tree].first)
            spw__wait_finish_locked(set, set->trees[tree].first->owner, SPW_ESHUTDOWN);
    while (set->inside)
        (void)spw__cond_wait(&set->all_left, &set->lock, -1);
    spw__wait_settle_unlock(set);
}
