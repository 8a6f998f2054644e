/* Turns without a thread: spw_task_wait_turn_start. Neighbours: task.c parks, arbiter.c gives turns, ticket.c runs the
 * steps. */
#include <stddef.h>

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/ticket.h"

static void turn_completed(struct spw__waiter *waiter)
{
    spw__ticket_wake_locked((spw_ticket *)(void *)((char *)waiter - offsetof(struct spw_ticket, turn.waiter)), waiter);
}

/* Parks the task until its turn, the end of its back-off, or the deadline. */
static int park(spw_ticket *ticket)
{
    const uint32_t wakes = ticket->wakes;
    struct spw__waiter *waiter = &ticket->turn.waiter;
    const uint64_t until_ns = ticket->backoff_until_ns, deadline_ns = ticket->deadline_ns;
    ticket->turn = (struct spw__turn){.waiter = {.cancel = ticket->wait.cancel, .completed = turn_completed}};
    (void)spw__task_enqueue_turn(ticket->wait.task, &ticket->turn, until_ns, deadline_ns);
    spw__ticket_note_enqueued(ticket, waiter, wakes);
    spw__mover_wake(ticket->manager->mover); /* it keeps the time */
    return SPW__REQUEST_WAITS;
}

int spw__ticket_turn_step(spw_ticket *ticket, int woken)
{
    const bool backs_off = ticket->turn.waiter.deadline_ns != ticket->deadline_ns;
    spw__task_unlist_turn(ticket->wait.task, &ticket->turn);
    return woken == SPW_ETIMEDOUT && backs_off ? park(ticket) : spw__task_turn_conclude(ticket->wait.task, woken);
}

int spw_task_wait_turn_start(spw_task *task, const spw_wait_options *wait, spw_ticket **out)
{
    spw_wait_options own;
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_task_wait_turn_start: out is NULL");
    *out = NULL;
    int rc = spw__task_turn_check(task, wait, &own);
    if (rc == SPW_OK)
        rc = spw__ticket_create(task->manager, SPW__TICKET_TURN, &own, NULL, &ticket);
    if (rc != SPW_OK)
        return rc;
    if (atomic_load(&task->asks) == 0) {
        spw__ticket_end(ticket, SPW_OK);
    } else {
        ticket->backoff_until_ns = spw__task_backoff_until_ns(task);
        (void)park(ticket);
    }
    *out = ticket;
    return SPW_OK;
}
