/* The wait primitive: ordered queues of waiters with a deadline and a cancel token. Every wait of the library is one.
 *
 * A waiter waits for something to become possible, on one or more channels (a tier whose memory may be freed), or for
 * an object's state to change. It is DONE exactly once, and is a resumable step, not a thread: whoever makes progress
 * possible runs the waiter's attempt and so hands the result over directly. A blocked thread only sleeps until that has
 * happened; an asynchronous waiter (completed is set) has no thread at all.
 *
 *     idle --enqueue--> WAITING --attempt or visit gives a result | object signalled
 *                               | deadline | cancel | leave | shutdown--> DONE
 *
 * No lost wake-ups: a waiter is enqueued before it looks a last time, and a signaller looks for waiters after it has
 * freed; both with a full fence between. A pass considers all waiters that could now proceed, in this order: oldest
 * first in bands of 100 ms, within a band by net_bytes (who frees most first), then by arrival. What cannot proceed is
 * skipped in O(log n): who needs more than there is room for, and who needs at least as much, on all of the pass's
 * channels where it waits, as one of the same key that has just failed there. wait_pass.c says why that is sound. So a
 * pass costs something for each key of which somebody needs no more than there is room for, and not for each waiter.
 *
 * Nobody starves. The front of a channel that SPW__WAIT_PASS_MAX grants have passed over becomes a barrier:
 *
 *     open --16 grants passed over the front--> barred: nobody else is attempted on the channel
 *          (the front: the first that is not held back by a limit of its own, which what others get does not change)
 *     barred --the front is DONE | nothing was freed for 100 ms | lapse (by the arbiter)--> open, and a pass over the
 *          others
 *
 * Threads: any. attempt, visit, completed and the hooks run under the wait lock: they may take pool locks, but do no
 * I/O, copy or callback, and call nothing of this header but spw__waitset_barred. The blocked hook may also visit,
 * summon, and end waits (wait_pass.h), when a thread begins to block. help alone is called without locks.
 * Ownership: a waiter belongs to its user and is out of every queue once DONE. An asynchronous one must live until
 * completed was called, which is the last that is seen of it here.
 */
#ifndef SPW_BASE_WAIT_H
#define SPW_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/clock.h"
#include "pool/base/lock.h"
#include "pool/base/wait_queue.h"

#include <spillway/wait.h>

enum { SPW__WAIT_CHANNELS = 3 }; /* the memory tiers, by number */

#define SPW__CHANNEL(tier) (UINT32_C(1) << (tier)) /* something was freed in this memory tier */
#define SPW__CHANNEL_OBJECT (UINT32_C(1) << 16)    /* an object (waiter.object) changed */
#define SPW__CHANNELS_MEMORY (SPW__CHANNEL(SPW__WAIT_CHANNELS) - 1)

#define SPW__WAIT_BAND_NS (UINT64_C(100) * 1000 * 1000)  /* waiters of one band count as of one age */
#define SPW__WAIT_STALL_NS (UINT64_C(100) * 1000 * 1000) /* a barrier under which nothing is freed ends after this */
#define SPW__WAIT_PASS_MAX 16

/* What a visit returns beside results: the waiter goes on waiting. */
#define SPW__VISIT_STOP 1   /* and the walk ends */
#define SPW__VISIT_ENOUGH 2 /* and those of its key that need as much are left out; not of visit_locked */

struct spw__waitset;

/* What a waiter waits for, for the arbiter and for messages. */
enum spw__wait_what {
    SPW__WAIT_ROOM,
    SPW__WAIT_HOLE,
    SPW__WAIT_MOVE,
    SPW__WAIT_TURN,
    SPW__WAIT_TICKET,
};

/* The trees that a waiter may be in; those of the memory tiers come first, by number: in order, then the same by key.
 */
enum {
    SPW__WAIT_TREE_KEYS = SPW__WAIT_CHANNELS,
    SPW__WAIT_TREE_OBJECT = SPW__WAIT_TREE_KEYS + SPW__WAIT_CHANNELS,
    SPW__WAIT_TREE_DEADLINE,
    SPW__WAIT_TREES
};

struct spw__waiter {
    /* Set by the user before enqueue, and constant until DONE. attempt returns SPW_EAGAIN to go on waiting; NULL: there
     * is nothing to try, the waiter waits for a signal of its object. */
    int (*attempt)(struct spw__waiter *waiter);
    void (*completed)(struct spw__waiter *waiter); /* called once when DONE, in place of waking a thread; it only hands
                                                      the waiter over to who goes on with it */
    const void *object;
    uint32_t channels;
    uint32_t demands;     /* of channels: those where room should be made for it (spw__waitset_visit_demands) */
    uint64_t deadline_ns; /* UINT64_MAX: none */
    spw_cancel *cancel;
    uint64_t need[SPW__WAIT_CHANNELS]; /* bytes it needs there; 0: unknown, always considered */
    int64_t net_bytes;                 /* what memory in use grows by once it is served: negative frees */
    const void *key;                   /* who is charged: compared, never followed */
    void *task;                        /* on whose behalf; for the arbiter */
    bool helps;                        /* its thread will come to spw__wait_block, and may be summoned to help there; an
                                          asynchronous one: others may be summoned for it, which is the user's matter */
    /* Set by the user before enqueue, then guarded by the wait lock: an attempt may change it. */
    enum spw__wait_what what;
    /* Guarded by the wait lock. */
    uint32_t barred; /* for attempt: channels that it must leave to an older waiter */
    uint32_t served; /* out of a successful attempt: the channels that were taken from; all, unless it says less */
    bool waiting;
    bool tried;   /* there was an attempt */
    bool held_back; /* out of a failed attempt: it lacks nothing that others take */
    bool blocked; /* a thread sleeps in spw__wait_block */
    bool joined;  /* on its cancel token's list */
    bool summoned, urgent; /* its thread is to help, as spw__waitset_summon_locked says */
    bool helping; /* its thread does */
    bool mark;    /* the blocked hook's own */
    uint8_t passed[SPW__WAIT_CHANNELS]; /* grants to others while it was the front */
    int result;
    struct spw__waitset *set;
    struct spw__wait_node nodes[SPW__WAIT_TREES];
    bool candidate;                           /* of its key, in the walk under way (wait_walk.h): */
    struct spw__wait_node walk_node;          /* its place there, */
    uint64_t walk_bounds[SPW__WAIT_CHANNELS]; /* and what the walk still looks at of its key */
    struct spw__cond done;
    /* Guarded by the cancel token's lock. */
    struct spw__waiter *cancel_prev, *cancel_next;
};

struct spw__wait_walk;

struct spw__waitset {
    struct spw__mutex lock;
    struct spw__wait_queue trees[SPW__WAIT_TREES];      /* guarded by lock */
    struct spw__wait_walk *walk;                        /* guarded by lock: the one under way, or NULL */
    struct spw__waiter *barriers[SPW__WAIT_CHANNELS];   /* guarded by lock: for whom a channel is barred, or NULL */
    uint64_t freed_ns[SPW__WAIT_CHANNELS];              /* guarded by lock: last progress under a barrier */
    struct spw__waiter *enqueuing;                      /* guarded by lock: until it is DONE */
    uint64_t sequence;                                  /* guarded by lock: waiters so far */
    uint64_t attempts, passes;                          /* guarded by lock: so far */
    uint32_t again;                                     /* guarded by lock: channels that need another pass */
    bool shut_down;                                     /* guarded by lock */
    uint32_t inside;                                    /* guarded by lock: calls between enter and leave */
    struct spw__cond all_left;                          /* inside or visitors became 0 */
    _Atomic uint32_t n_waiting[32]; /* atomic: waiters per channel bit, changed under lock */
    _Atomic uint32_t barred;        /* atomic: channels with a barrier, changed under lock */
    _Atomic uint64_t due_ns;        /* atomic: when spw__waitset_expire has something to do, changed under lock */
    _Atomic uint32_t deferring;     /* atomic, raised before a waiter is enqueued whose time may be up before it was
                                       given what it is to have first: until then nobody's time is up in expire */
    _Atomic uint32_t visitors;      /* atomic: threads on their way here from a cancel token; they leave under lock */
    const struct spw__clock *clock;
    /* Hooks, set before anybody waits; each may be NULL. */
    void (*drive)(void *arg); /* threads=0: called without locks by a blocked thread to make progress itself; NULL with
                                 a mover thread */
    void *drive_arg;
    uint64_t (*room)(void *arg, unsigned channel); /* an upper bound of what one request may get there now */
    void *room_arg;
    void (*blocked)(void *arg, struct spw__waiter *waiter, int change); /* +1: a thread begins to block in
                                 spw__wait_block; -1: its waiter is DONE */
    void *blocked_arg;
    void (*help)(void *arg, struct spw__waiter *waiter, bool urgent); /* called without locks by the blocked thread of a
                                 waiter that was summoned, which may be DONE by then */
    void *help_arg;
    void (*leaving)(void *arg, struct spw__waiter *waiter); /* a thread that was blocked is about to go on: may wait on
                                 a condition of the lock until it may */
    void *leaving_arg;
    void (*timer)(void *arg, uint64_t due_ns); /* spw__waitset_expire is due earlier than it last said */
    void *timer_arg;
};

void spw__waitset_init(struct spw__waitset *set, const struct spw__clock *clock);
void spw__waitset_finish(struct spw__waitset *set);

/* True when somebody waits on one of channels. */
static inline bool spw__waitset_busy(const struct spw__waitset *set, uint32_t channels)
{
    for (; channels; channels &= channels - 1)
        if (atomic_load(&set->n_waiting[__builtin_ctz(channels)]) != 0)
            return true;
    return false;
}

/* Those of channels that are left to a waiter which was passed over too often: who does not queue takes nothing there.
 */
static inline uint32_t spw__waitset_barred_of(const struct spw__waitset *set, uint32_t channels)
{
    return atomic_load_explicit(&set->barred, memory_order_relaxed) & channels;
}

static inline bool spw__waitset_barred(const struct spw__waitset *set, uint32_t channels)
{
    return spw__waitset_barred_of(set, channels) != 0;
}

/* Who did not queue was served from channels: their fronts were passed over once more. */
void spw__waitset_granted(struct spw__waitset *set, uint32_t channels);

/* Enqueues waiter, makes a pass over its channels, and attempts it at least once unless all of them are barred. Only
 * then does a token that was triggered before end it. */
void spw__wait_enqueue(struct spw__waitset *set, struct spw__waiter *waiter);

/* Blocks until the waiter is DONE; returns its result, or SPW_ETIMEDOUT, SPW_ECANCELED, SPW_ESHUTDOWN. */
int spw__wait_block(struct spw__waitset *set, struct spw__waiter *waiter);

/* Takes a waiter out without waiting: its result when DONE already, else SPW_ETIMEDOUT. An asynchronous one ends with
 * SPW_ECANCELED, and completed is called for it; the caller keeps it alive until this returns. */
int spw__wait_leave(struct spw__waitset *set, struct spw__waiter *waiter);

/* Something was freed on channels: runs the attempts of those who wait there and could now proceed. */
void spw__waitset_signal(struct spw__waitset *set, uint32_t channels);

/* The same where nothing was freed, but an attempt may have failed for a moment: no barrier lasts longer for it. */
void spw__waitset_retry(struct spw__waitset *set, uint32_t channels);

/* object changed: completes with 0 every waiter that waits for it. */
void spw__waitset_signal_object(struct spw__waitset *set, const void *object);

/* Visits the waiters on channels (memory tiers), in order, under the lock. visit returns SPW_EAGAIN, SPW__VISIT_STOP,
 * or a result to complete the waiter with. _demands: only those who ask for room to be made there; the others cost
 * nothing; nor do those that SPW__VISIT_ENOUGH leaves out. _locked: for hooks and who holds the lock already; with
 * SPW__CHANNEL_OBJECT also those who wait for an object, last. */
void spw__waitset_visit(struct spw__waitset *set, uint32_t channels,
                        int (*visit)(struct spw__waiter *waiter, void *arg), void *arg);
void spw__waitset_visit_locked(struct spw__waitset *set, uint32_t channels,
                               int (*visit)(struct spw__waiter *waiter, void *arg), void *arg);
void spw__waitset_visit_demands(struct spw__waitset *set, uint32_t channels,
                                int (*visit)(struct spw__waiter *waiter, void *arg), void *arg);

/* Summons the thread of the first waiter that asks for room in a memory tier and helps: it calls the help hook, with
 * urgent if any summons was, as soon as it blocks. False: there is none. A waiter that is DONE before its thread came
 * to it keeps summoned, and whoever enqueued it passes that on. Lock held. */
bool spw__waitset_summon_locked(struct spw__waitset *set, unsigned channel, bool urgent);

/* Completes those whose deadline has passed, ends barriers that stall, and returns when it is to be called next
 * (UINT64_MAX: not before the timer hook says so; a time that has passed: deferring). One load while nothing is due.
 * For asynchronous waiters and manual clocks: blocked threads time themselves. */
uint64_t spw__waitset_expire(struct spw__waitset *set);

/* Bracket a call that may wait, from before it enqueues until it has looked at its manager for the last time. May nest.
 */
void spw__waitset_enter(struct spw__waitset *set);
void spw__waitset_leave(struct spw__waitset *set);

/* Ends every wait, now and from now on, with SPW_ESHUTDOWN; returns when every call that had entered has left. */
void spw__waitset_shut_down(struct spw__waitset *set);

bool spw__cancel_triggered(const spw_cancel *cancel);

#endif
