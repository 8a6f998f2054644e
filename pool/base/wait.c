/* The wait primitive and cancel tokens. Neighbours: the pools and the mover signal, src/core waits. */
#include "pool/base/wait.h"

#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"

struct spw_cancel {
    struct spw__mutex lock;
    atomic_bool triggered;     /* atomic: set under lock, never cleared */
    struct spw__waiter *first; /* guarded by lock: waits that were given this token */
};

void spw__waitset_init(struct spw__waitset *set, const struct spw__clock *clock)
{
    *set = (struct spw__waitset){.clock = clock};
    spw__mutex_init(&set->lock, SPW__RANK_WAIT);
    spw__cond_init(&set->all_left);
}

void spw__waitset_finish(struct spw__waitset *set)
{
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

bool spw__waitset_busy(struct spw__waitset *set, uint32_t channels)
{
    for (; channels; channels &= channels - 1)
        if (atomic_load(&set->n_waiting[__builtin_ctz(channels)]) != 0)
            return true;
    return false;
}

static void count_channels(struct spw__waitset *set, uint32_t channels, uint32_t delta)
{
    for (; channels; channels &= channels - 1)
        (void)atomic_fetch_add(&set->n_waiting[__builtin_ctz(channels)], delta);
}

static void finish_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result)
{
    if (waiter->prev)
        waiter->prev->next = waiter->next;
    else
        set->first = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        set->last = waiter->prev;
    count_channels(set, waiter->channels, UINT32_MAX);
    waiter->waiting = false;
    waiter->result = result;
    spw__cond_signal(&waiter->done);
}

static void attempt_all_locked(struct spw__waitset *set, uint32_t channels)
{
    for (struct spw__waiter *waiter = set->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if (!(waiter->channels & channels) || !waiter->attempt)
            continue;
        const int result = waiter->attempt(waiter);
        if (result != SPW_EAGAIN)
            finish_locked(set, waiter, result);
    }
}

static void join_cancel(struct spw__waitset *set, struct spw__waiter *waiter)
{
    spw_cancel *cancel = waiter->cancel;
    if (!cancel)
        return;
    spw__mutex_lock(&cancel->lock);
    waiter->set = set;
    waiter->cancel_prev = NULL;
    waiter->cancel_next = cancel->first;
    if (cancel->first)
        cancel->first->cancel_prev = waiter;
    cancel->first = waiter;
    spw__mutex_unlock(&cancel->lock);
}

static void leave_cancel(struct spw__waiter *waiter)
{
    spw_cancel *cancel = waiter->cancel;
    if (!cancel)
        return;
    spw__mutex_lock(&cancel->lock);
    if (waiter->cancel_prev)
        waiter->cancel_prev->cancel_next = waiter->cancel_next;
    else
        cancel->first = waiter->cancel_next;
    if (waiter->cancel_next)
        waiter->cancel_next->cancel_prev = waiter->cancel_prev;
    spw__mutex_unlock(&cancel->lock);
}

void spw__wait_enqueue(struct spw__waitset *set, struct spw__waiter *waiter)
{
    spw__cond_init(&waiter->done);
    spw__mutex_lock(&set->lock);
    waiter->waiting = true;
    waiter->result = SPW_EAGAIN;
    waiter->next = NULL;
    waiter->prev = set->last;
    if (set->last)
        set->last->next = waiter;
    else
        set->first = waiter;
    set->last = waiter;
    count_channels(set, waiter->channels, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (set->shut_down)
        finish_locked(set, waiter, SPW_ESHUTDOWN);
    else
        attempt_all_locked(set, waiter->channels);
    spw__mutex_unlock(&set->lock);
}

static void end_wait_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result)
{
    if (waiter->waiting)
        finish_locked(set, waiter, result);
}

int spw__wait_leave(struct spw__waitset *set, struct spw__waiter *waiter)
{
    spw__mutex_lock(&set->lock);
    end_wait_locked(set, waiter, SPW_ETIMEDOUT);
    spw__mutex_unlock(&set->lock);
    spw__cond_finish(&waiter->done);
    return waiter->result;
}

/* Nanoseconds until the waiter's deadline, -1 for ever. A manual clock does not run by itself: its tests expire. */
static long long remaining_ns(const struct spw__waitset *set, const struct spw__waiter *waiter)
{
    if (waiter->deadline_ns == UINT64_MAX || (set->clock && set->clock->now_ns))
        return -1;
    const uint64_t now = spw__clock_now_ns(set->clock);
    return waiter->deadline_ns > now ? (long long)(waiter->deadline_ns - now) : 0;
}

int spw__wait_block(struct spw__waitset *set, struct spw__waiter *waiter)
{
    join_cancel(set, waiter);
    spw__mutex_lock(&set->lock);
    while (waiter->waiting) {
        if (waiter->cancel && atomic_load(&waiter->cancel->triggered)) {
            end_wait_locked(set, waiter, SPW_ECANCELED);
            break;
        }
        const long long left_ns = remaining_ns(set, waiter);
        if (left_ns == 0) {
            end_wait_locked(set, waiter, SPW_ETIMEDOUT);
            break;
        }
        if (set->drive) {
            spw__mutex_unlock(&set->lock);
            set->drive(set->drive_arg);
            spw__mutex_lock(&set->lock);
        } else {
            (void)spw__cond_wait(&waiter->done, &set->lock, left_ns);
        }
    }
    spw__mutex_unlock(&set->lock);
    leave_cancel(waiter);
    spw__cond_finish(&waiter->done);
    return waiter->result;
}

void spw__waitset_signal(struct spw__waitset *set, uint32_t channels)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!spw__waitset_busy(set, channels))
        return;
    spw__mutex_lock(&set->lock);
    attempt_all_locked(set, channels);
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_signal_object(struct spw__waitset *set, const void *object)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!spw__waitset_busy(set, SPW__CHANNEL_OBJECT))
        return;
    spw__mutex_lock(&set->lock);
    for (struct spw__waiter *waiter = set->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if ((waiter->channels & SPW__CHANNEL_OBJECT) && waiter->object == object)
            finish_locked(set, waiter, 0);
    }
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_visit(struct spw__waitset *set, uint32_t channels,
                        int (*visit)(struct spw__waiter *waiter, void *arg), void *arg)
{
    spw__mutex_lock(&set->lock);
    for (struct spw__waiter *waiter = set->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if (!(waiter->channels & channels))
            continue;
        const int result = visit(waiter, arg);
        if (result != SPW_EAGAIN)
            finish_locked(set, waiter, result);
    }
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_expire(struct spw__waitset *set)
{
    const uint64_t now = spw__clock_now_ns(set->clock);
    spw__mutex_lock(&set->lock);
    for (struct spw__waiter *waiter = set->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if (waiter->deadline_ns <= now)
            finish_locked(set, waiter, SPW_ETIMEDOUT);
    }
    spw__mutex_unlock(&set->lock);
}

void spw__waitset_shut_down(struct spw__waitset *set)
{
    spw__mutex_lock(&set->lock);
    set->shut_down = true;
    while (set->first)
        finish_locked(set, set->first, SPW_ESHUTDOWN);
    while (set->inside)
        (void)spw__cond_wait(&set->all_left, &set->lock, -1);
    spw__mutex_unlock(&set->lock);
}

int spw_cancel_create(spw_cancel **out)
{
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_cancel_create: out is NULL");
    *out = spw__fault(SPW__FAULT_META_ALLOC) ? NULL : calloc(1, sizeof **out);
    if (!*out)
        return spw__fail(SPW_ENOMETA, "no memory for a cancel token of %zu bytes", sizeof **out);
    spw__mutex_init(&(*out)->lock, SPW__RANK_CANCEL);
    return SPW_OK;
}

void spw_cancel_trigger(spw_cancel *cancel)
{
    if (!cancel)
        return;
    spw__mutex_lock(&cancel->lock);
    atomic_store(&cancel->triggered, true);
    for (struct spw__waiter *waiter = cancel->first; waiter; waiter = waiter->cancel_next) {
        spw__mutex_lock(&waiter->set->lock);
        end_wait_locked(waiter->set, waiter, SPW_ECANCELED);
        spw__mutex_unlock(&waiter->set->lock);
    }
    spw__mutex_unlock(&cancel->lock);
}

void spw_cancel_destroy(spw_cancel *cancel)
{
    if (!cancel)
        return;
    spw__mutex_finish(&cancel->lock);
    free(cancel);
}

bool spw__cancel_triggered(const spw_cancel *cancel)
{
    return cancel && atomic_load(&cancel->triggered);
}
