/* What an event loop is told: a descriptor that is readable exactly as long as there is something for it to do.
 *
 *     dark --a ticket has ended | with threads=0: something to do, I/O completed, a time has come--> readable
 *     readable --every such ticket was looked at, and spw_progress has left nothing to do--> dark
 *
 * It is a descriptor over three: an eventfd for what happens, a timer for what comes due, and with threads=0 that of
 * the I/O engine. Whatever changes what there is to do changes it first and calls spw__loop_changed then, which looks
 * under its lock, so that the last caller leaves the descriptor as things are: nothing is ever "cleared", and nobody
 * can take a wake-up from another thread.
 *
 * Threads: any, also under locks that rank before its own. Ownership: the manager's; nothing is opened until asked for.
 */
#ifndef SPW_CORE_LOOP_H
#define SPW_CORE_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"

#include <spillway/ticket.h>

struct spw_manager;

/* Whether an end is to be looked at, for a ticket. */
enum spw__seen { SPW__SEEN_NOT_ENDED, SPW__SEEN_NOT, SPW__SEEN };

struct spw__loop {
    struct spw__mutex lock;
    _Atomic int fd;          /* atomic, set under lock: -1 until somebody asks for it */
    int event_fd, timer_fd;  /* constant once fd is set */
    bool lit;                /* guarded by lock: event_fd is readable */
    uint64_t armed_ns;       /* guarded by lock: when timer_fd is readable; UINT64_MAX: never */
    _Atomic uint64_t unseen; /* atomic: tickets that have ended and that nobody has looked at */
};

void spw__loop_init(struct spw_manager *manager);
void spw__loop_finish(struct spw_manager *manager); /* before the mover, whose descriptor it has */

/* What there is to do may have changed, for a manager. Never blocks. */
void spw__loop_changed(void *manager);

/* The ticket has ended; somebody looks at it, or nobody ever will. */
void spw__loop_note_end(spw_ticket *ticket);
void spw__loop_note_look(spw_ticket *ticket);

#endif
