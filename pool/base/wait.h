/* The wait primitive: queues of waiters with a deadline and a cancel token. Every wait of the library is one.
 *
 * A waiter waits for something to become possible, on one or more channels (a place whose memory may be freed), or for
 * an object's state to change. It is DONE exactly once, and is a resumable step, not a thread: whoever makes progress
 * possible runs the waiter's attempt and so hands the result over directly; a blocked thread only sleeps until that has
 * happened.
 *
 *     idle --enqueue--> WAITING --attempt or visit gives a result | object signalled
 *                               | deadline | cancel | shutdown--> DONE
 *
 * No lost wake-ups: a waiter is enqueued before it looks a last time, and a signaller looks for waiters after it has
 * freed; both with a full fence between. All waiters that could now proceed are considered, oldest first.
 *
 * Threads: any. attempt runs under the wait lock: it may take pool locks, but does no I/O, copy or callback.
 * Ownership: a waiter belongs to its user and is out of every queue once DONE.
 */
#ifndef SPW_BASE_WAIT_H
#define SPW_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/clock.h"
#include "pool/base/lock.h"

#include <spillway/wait.h>

#define SPW__CHANNEL(tier) (UINT32_C(1) << (tier)) /* something was freed in this tier */
#define SPW__CHANNEL_OBJECT (UINT32_C(1) << 16)    /* an object (waiter.object) changed */

struct spw__waitset;

struct spw__waiter {
    /* Set by the user before enqueue. attempt returns SPW_EAGAIN to go on waiting; NULL: there is nothing to try, the
     * waiter waits for a signal of its object. */
    int (*attempt)(struct spw__waiter *waiter);
    const void *object;
    uint32_t channels;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    spw_cancel *cancel;
    /* Guarded by the wait lock. */
    struct spw__waiter *prev, *next;
    bool waiting;
    int result;
    struct spw__cond done;
    /* Guarded by the cancel token's lock. */
    struct spw__waitset *set;
    struct spw__waiter *cancel_prev, *cancel_next;
};

struct spw__waitset {
    struct spw__mutex lock;
    struct spw__waiter *first, *last; /* guarded by lock: oldest first */
    _Atomic uint32_t n_waiting[32];   /* atomic: waiters per channel bit, changed under lock */
    bool shut_down;                   /* guarded by lock */
    uint32_t inside;                  /* guarded by lock: calls between enter and leave */
    struct spw__cond all_left;        /* inside became 0 */
    const struct spw__clock *clock;
    /* threads=0: called without locks by a blocked thread to make progress itself; NULL with a mover thread. */
    void (*drive)(void *arg);
    void *drive_arg;
};

void spw__waitset_init(struct spw__waitset *set, const struct spw__clock *clock);
void spw__waitset_finish(struct spw__waitset *set);

/* True when somebody waits on one of channels. */
bool spw__waitset_busy(struct spw__waitset *set, uint32_t channels);

/* Enqueues waiter (youngest), then runs the attempts of all waiters on its channels, its own last. */
void spw__wait_enqueue(struct spw__waitset *set, struct spw__waiter *waiter);

/* Blocks until the waiter is DONE; returns its result, or SPW_ETIMEDOUT, SPW_ECANCELED, SPW_ESHUTDOWN. */
int spw__wait_block(struct spw__waitset *set, struct spw__waiter *waiter);

/* Takes a waiter out without waiting: its result when DONE already, else SPW_ETIMEDOUT. */
int spw__wait_leave(struct spw__waitset *set, struct spw__waiter *waiter);

/* Something was freed on channels: runs the attempts of those who wait there, oldest first. */
void spw__waitset_signal(struct spw__waitset *set, uint32_t channels);

/* object changed: completes with 0 every waiter that waits for it. */
void spw__waitset_signal_object(struct spw__waitset *set, const void *object);

/* Visits every waiter on channels, oldest first, under the lock; visit may return a result other than SPW_EAGAIN to
 * complete the waiter with it. */
void spw__waitset_visit(struct spw__waitset *set, uint32_t channels,
                        int (*visit)(struct spw__waiter *waiter, void *arg), void *arg);

/* Completes those whose deadline has passed (a manual clock's tests call it; blocked threads time themselves). */
void spw__waitset_expire(struct spw__waitset *set);

/* Bracket a call that may wait, from before it enqueues until it has looked at its manager for
 * the last time. May nest. */
void spw__waitset_enter(struct spw__waitset *set);
void spw__waitset_leave(struct spw__waitset *set);

/* Ends every wait, now and from now on, with SPW_ESHUTDOWN; returns when every call that had entered has left. */
void spw__waitset_shut_down(struct spw__waitset *set);

bool spw__cancel_triggered(const spw_cancel *cancel);

#endif
