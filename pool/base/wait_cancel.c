/* Cancel tokens. Neighbours: wait.c enqueues the waits that were given one, wait_pass.c ends them.
 *
 * A waiter joins and leaves its token's list under the lock of its waitset, so that it is on the list while it waits
 * and never after, whoever ends it. The token's lock therefore lies inside that of the set. A trigger knows only the
 * token: it looks up a set under the token's lock, announces itself there (visitors), lets go, and takes the locks in
 * their order. A set with a visitor is not finished, and a waiter that waits keeps its set from being finished before.
 */
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/wait_pass.h"

struct spw_cancel {
    struct spw__mutex lock;
    atomic_bool triggered;     /* atomic: set under lock, never cleared */
    struct spw__waiter *first; /* guarded by lock: waits that were given this token */
};

bool spw__wait_join_cancel_locked(struct spw__waiter *waiter)
{
    spw_cancel *cancel = waiter->cancel;
    spw__mutex_lock(&cancel->lock);
    waiter->joined = !atomic_load(&cancel->triggered);
    if (waiter->joined) {
        waiter->cancel_prev = NULL;
        waiter->cancel_next = cancel->first;
        if (cancel->first)
            cancel->first->cancel_prev = waiter;
        cancel->first = waiter;
    }
    spw__mutex_unlock(&cancel->lock);
    return waiter->joined;
}

void spw__wait_leave_cancel_locked(struct spw__waiter *waiter)
{
    spw_cancel *cancel = waiter->cancel;
    spw__mutex_lock(&cancel->lock);
    if (waiter->cancel_prev)
        waiter->cancel_prev->cancel_next = waiter->cancel_next;
    else
        cancel->first = waiter->cancel_next;
    if (waiter->cancel_next)
        waiter->cancel_next->cancel_prev = waiter->cancel_prev;
    waiter->joined = false;
    spw__mutex_unlock(&cancel->lock);
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

/* A waiter of set on the token's list: it waits, and will as long as the set is locked. */
static struct spw__waiter *find_of_set_locked(spw_cancel *cancel, const struct spw__waitset *set)
{
    spw__mutex_lock(&cancel->lock);
    struct spw__waiter *waiter = cancel->first;
    while (waiter && waiter->set != set)
        waiter = waiter->cancel_next;
    spw__mutex_unlock(&cancel->lock);
    return waiter;
}

/* Ends the token's waits in set, where the caller is a visitor. */
static void cancel_in(struct spw__waitset *set, spw_cancel *cancel)
{
    struct spw__waiter *waiter;
    spw__mutex_lock(&set->lock);
    while ((waiter = find_of_set_locked(cancel, set)))
        spw__wait_finish_locked(set, waiter, SPW_ECANCELED);
    if (atomic_fetch_sub(&set->visitors, 1) == 1)
        spw__cond_broadcast(&set->all_left);
    spw__wait_settle_unlock(set);
}

void spw_cancel_trigger(spw_cancel *cancel)
{
    if (!cancel)
        return;
    spw__mutex_lock(&cancel->lock);
    atomic_store(&cancel->triggered, true);
    while (cancel->first) {
        struct spw__waitset *set = cancel->first->set;
        (void)atomic_fetch_add(&set->visitors, 1);
        spw__mutex_unlock(&cancel->lock);
        cancel_in(set, cancel);
        spw__mutex_lock(&cancel->lock);
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
