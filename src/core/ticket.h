/* Tickets inside: calls that go on without a thread.
 *
 * A ticket is driven in steps. The first runs on the thread that starts it; whenever a waiter of the ticket's is DONE,
 * its completed hook hands the next step to the mover, as a move without bytes, which runs it without locks on the
 * thread that drives the mover: one step at a time. None blocks.
 *
 *     begin --nothing to wait for--> end
 *       \--a waiter enqueued--> WAITING --completed: woken--> step --> WAITING again | end
 *
 *     end --not cancelled--> ENDED, with the call's result       (published under the wait lock, as is the cancelling)
 *         \--cancelled-----> give_back --> ENDED, with SPW_ECANCELED
 *
 * Who waits for room is served as its attempt finds it; what must not happen under the wait lock (growing pools by the
 * system's leave, choosing victims) the mover does for all tickets at once (make_room). Deadlines of tickets are kept
 * by the mover's thread (due, timer) or by spw_progress.
 *
 * Tickets lie in chunks that the manager keeps until it is destroyed, and are used again oldest first, so that a stale
 * handle is found dead.
 *
 * Threads: the fields say what guards them. Ownership: one reference of the caller's handle, one of the call under way.
 */
#ifndef SPW_CORE_TICKET_H
#define SPW_CORE_TICKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"
#include "spill/mover.h"
#include "src/core/loop.h"
#include "src/core/map.h"
#include "src/core/pressure.h"
#include "src/core/stream.h"
#include "src/core/task.h"

#include <spillway/group.h>
#include <spillway/ticket.h>

#define SPW__TICKET_LIVE UINT64_C(0x7370775f7469636b)
#define SPW__TICKET_DEAD UINT64_C(0x7370775f74646561)

enum spw__ticket_kind {
    SPW__TICKET_BUFFER, SPW__TICKET_VIEW, SPW__TICKET_RESERVATION, SPW__TICKET_BLOCK,
    SPW__TICKET_WRITABLE, /* brings a buffer, as it is taken */
    /* These bring nothing. */
    SPW__TICKET_TURN, SPW__TICKET_STREAM,
    SPW__TICKET_GROWTH, /* got.reservation grows as the ticket ends */
    SPW__TICKET_SHARE,  /* group gets got.share as the ticket ends */
};

/* Where a map's ticket is, while it waits or between its steps. */
enum spw__map_phase {
    SPW__MAP_LOOK,  /* for another fetch to end */
    SPW__MAP_ROOM,  /* for its fetch's request */
    SPW__MAP_MOVES, /* for its fetch's moves */
    SPW__MAP_USE,   /* for the end of an earlier use */
};

struct spw__ticket_map {
    struct spw__payload *payload; /* one reference, until the view is taken or closed; NULL: none */
    struct spw__fetch *fetch;
    struct spw__mapped mapped;
    spw_place place;
    uint32_t flags;
    spw_map_options options; /* but for its wait: see the ticket's own */
    enum spw__map_phase phase;
    bool fetched;
};

/* Where a make_writable's ticket is. */
enum spw__writable_phase {
    SPW__WRITABLE_MAP,    /* as map says */
    SPW__WRITABLE_SETTLE, /* for the end of a move */
    SPW__WRITABLE_ROOM,   /* for the copy's request */
};

struct spw__ticket_writable {
    spw_buffer *buffer; /* the caller's; got.buffer is the same unless a copy is needed. Once the ticket was cancelled
                           the caller may release it: only its references are looked at then, which stay readable */
    struct spw_head *head; /* that a copy will have; NULL: none */
    spw_reservation *reservation;
    spw_view to;  /* of the copy, while it is filled */
    enum spw__writable_phase phase;
    bool copying; /* guarded by the wait lock: next_step carries bytes, and may be dropped */
};

struct spw_ticket {
    _Atomic uint64_t magic; /* atomic: changed under the wait lock when it dies */
    _Atomic uint32_t refs;  /* atomic */
    atomic_bool ended;      /* atomic: set under the wait lock; from then on result, error and got are constant */
    atomic_bool taken;      /* atomic: nothing is left in got */
    atomic_bool unheeded;   /* atomic, set under the wait lock: it has ended after a wait for a task, and nobody has
                               looked */
    _Atomic int seen;       /* atomic: enum spw__seen */
    spw_manager *manager;   /* constant while it lives, as kind, group, wait and deadline_ns */
    enum spw__ticket_kind kind;
    struct spw__group *group; /* that is used until the call has ended; NULL: none */
    spw_wait_options wait;  /* its task: on whose behalf, which counts it among its users until it has ended */
    uint64_t deadline_ns;
    char tag[32];
    /* Of the step that runs. */
    union {
        struct spw__request request; /* of what asks for memory */
        struct spw__waiter change;   /* VIEW, STREAM: for a change of map.payload, for stream_end */
        struct spw__turn turn;       /* TURN: in its task's list while it waits */
    };
    struct spw__ticket_map map;
    struct spw__ticket_writable writable;
    uint64_t backoff_until_ns; /* TURN */
    struct spw__stream_end *stream_end; /* STREAM: one reference while it waits */
    uint64_t old_min;          /* SHARE: the group's at the start */
    int result;
    spw_error_info error;
    union {
        spw_buffer *buffer;
        spw_reservation *reservation;
        spw_block block;
        spw_view view;
        spw_group_share share;
    } got;
    struct spw__move next_step; /* the mover's from woken until the step runs, and while a copy is filled */
    /* Guarded by the wait lock. */
    struct spw__waiter *current; /* that cancelling would end; NULL: none */
    uint32_t wakes;              /* waiters of this ticket that were DONE */
    int woken;                   /* result of the last one; the next step reads it */
    bool cancelled;
    spw_ticket *next_free; /* guarded by the tickets' lock */
};

struct spw__ticket_chunk;
struct spw__tickets {
    struct spw__mutex lock;
    struct spw__cond idle;               /* under_way became 0 */
    struct spw__ticket_chunk *chunks;    /* guarded by lock */
    spw_ticket *free_first, *free_last;  /* guarded by lock */
    _Atomic uint32_t live;               /* atomic: handles */
    _Atomic uint32_t under_way;          /* atomic, lowered under lock: calls, of destroyed tickets too */
    atomic_bool making_room;             /* atomic: the move is submitted */
    _Atomic uint32_t tries;              /* atomic: tickets that try once, for which the next one makes room */
    struct spw__move room_move;
};

void spw__tickets_init(struct spw_manager *manager);
void spw__tickets_finish(struct spw_manager *manager); /* after the mover */

/* SPW_EBUSY while tickets are live; else waits for what destroyed ones have under way, which ends soon. */
int spw__tickets_check_none(struct spw_manager *manager);
/* After the waits were shut down: destroys every ticket, and returns when none is under way. */
void spw__tickets_end_all(struct spw_manager *manager);

/* The mover's due hook and the waits' timer hook, of a manager. */
int64_t spw__tickets_due(void *manager);
void spw__tickets_timer(void *manager, uint64_t due_ns);

/* A live ticket with a call under way, on behalf of the task that wait or the thread names; group: that its request
 * will name (NULL: it names its payload's). SPW_ENOMETA. */
int spw__ticket_create(struct spw_manager *manager, enum spw__ticket_kind kind, const spw_wait_options *wait,
                       struct spw__group *group, spw_ticket **out);
/* SPW_EINVAL: a call that does not wait has no use for a ticket. */
int spw__ticket_refuse_nowait(const char *call);

/* Begins the ticket's request; what it gets becomes a buffer, a reservation or a block. Returns the ticket. */
spw_ticket *spw__ticket_begin_request(spw_ticket *ticket);

/* The same of a request of a part of the call: SPW__REQUEST_WAITS, and there will be another step, or what it ended
 * with. */
int spw__ticket_start_request(spw_ticket *ticket, struct spw__request *request);

/* Waits for a change of the map's payload, which is locked; then there is another step. SPW__REQUEST_WAITS. */
int spw__ticket_await_change(spw_ticket *ticket);

/* Waits for the end of object, which cannot come before this returns; then there is another step. */
void spw__ticket_await_object(spw_ticket *ticket, const void *object);

/* The call has ended, with the thread's error detail. The ticket is the caller's no more. */
void spw__ticket_end(spw_ticket *ticket, int rc);

/* Gives back what the call brought, and leaves the thread's error detail alone. */
void spw__ticket_give_back(spw_ticket *ticket);

/* Somebody looks at the end of the ticket: until then its task counts as running. */
void spw__ticket_heed(spw_ticket *ticket);

/* Drops a reference. */
void spw__ticket_unref(spw_ticket *ticket);

/* Notes a waiter of the ticket's that was enqueued when so many had been DONE: from now on cancelling ends it, as it
 * does when that was before. */
void spw__ticket_note_enqueued(spw_ticket *ticket, struct spw__waiter *waiter, uint32_t wakes);
/* A waiter of the ticket's is DONE: hands the next step to the mover. Wait lock held. */
void spw__ticket_wake_locked(spw_ticket *ticket, const struct spw__waiter *waiter);

/* A share's ticket: the minimum is set and the rest is to be (wait lock held); the minimum is not to stay; the ticket
 * is over. (group_share.c) */
void spw__group_share_granted(spw_ticket *ticket);
void spw__group_share_revoke(spw_ticket *ticket);
void spw__group_share_over(spw_ticket *ticket);

/* What a turn's wait ended with: as below. (ticket_turn.c) */
int spw__ticket_turn_step(spw_ticket *ticket, int woken);

/* What the wait for a stream ended with: as below. (stream.c) */
int spw__ticket_stream_step(spw_ticket *ticket, int woken);

/* A map's steps: SPW__REQUEST_WAITS or what it ended with. (ticket_map.c) */
int spw__ticket_map_step(spw_ticket *ticket, int woken);
int spw__ticket_map_begin(spw_ticket *ticket); /* the first */
/* Closes the view that nobody took, and lets go of the payload. */
void spw__ticket_map_close(spw_ticket *ticket, bool open);

/* A make_writable's steps: as a map's. (ticket_writable.c) */
int spw__ticket_writable_step(spw_ticket *ticket, int woken);
void spw__ticket_writable_give_back(spw_ticket *ticket);
/* Makes the result the caller's. SPW_EBUSY or SPW_EMAPPED: nothing has changed. */
int spw__ticket_writable_take(spw_ticket *ticket);

#endif
