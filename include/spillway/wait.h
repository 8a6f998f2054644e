/* Waiting: the options that every call which may wait takes, and cancellation.
 *
 * Besides the errors that a call names, each that takes these options gives SPW_EINVAL, SPW_EBADHANDLE or SPW_ECANCELED
 * when it could not wait with their task or token, and SPW_ERETRY or SPW_ESPLIT when it waits for memory on behalf of a
 * task and that is to give way (task.h). A call without a task never gives the latter two.
 *
 * Ownership: a cancel token belongs to the caller and must outlive the calls and tickets that were given it.
 * Threads: a token may be triggered from any thread, and be used by any number of calls at once.
 */
#ifndef SPILLWAY_WAIT_H
#define SPILLWAY_WAIT_H

#include <stdint.h>

#include <spillway/export.h>

SPW_BEGIN_DECLS

typedef struct spw_task spw_task;     /* a unit of the engine's work (task.h) */
typedef struct spw_group spw_group;   /* a query or tenant, in the tree of budgets (group.h) */
typedef struct spw_cancel spw_cancel; /* something that ends waits early */

#define SPW_TIMEOUT_DEFAULT INT64_C(-1)      /* the manager's default_timeout_ms */
#define SPW_TIMEOUT_INFINITE INT64_MAX       /* wait until it happens, is cancelled, or the manager shuts down */

/* How long and on whose behalf a call may wait. Zero-initialised except for timeout_ms, which the *_init functions (of
 * the options that it lies in, or its own) set to SPW_TIMEOUT_DEFAULT; 0 means one try, including the eviction that
 * needs no wait. */
typedef struct spw_wait_options {
    spw_task *task;     /* NULL: the one that the calling thread is attached to, if any */
    int64_t timeout_ms; /* milliseconds, SPW_TIMEOUT_DEFAULT or SPW_TIMEOUT_INFINITE */
    spw_cancel *cancel; /* NULL: cannot be cancelled. Not owned */
    uint64_t reserved[4]; /* must be 0: room for later versions, since this struct lies inside others */
} spw_wait_options;

/* Sets every field to its default. Never blocks; any thread. Since 0.1. */
static inline void spw_wait_options_init(spw_wait_options *wait)
{
    static const spw_wait_options zero = {0, 0, 0, {0}};
    *wait = zero;
    wait->timeout_ms = SPW_TIMEOUT_DEFAULT;
}

/* Creates a token that is not triggered. Never blocks. SPW_ENOMETA when there is no memory. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_cancel_create(spw_cancel **out);

/* Ends every wait that was given this token with SPW_ECANCELED, now and from now on. Does not block; any thread.
 * NULL is a no-op. Since 0.1. */
SPW_API void spw_cancel_trigger(spw_cancel *cancel);

/* Frees the token. No call or ticket that was given it may still be under way. NULL is a no-op. Since 0.1. */
SPW_API void spw_cancel_destroy(spw_cancel *cancel);

SPW_END_DECLS

#endif
