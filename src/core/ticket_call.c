/* Tickets: the public calls on one that was started. Neighbours: ticket.c lets the call go on and end. */
#include "pool/base/error.h"
#include "pool/base/wait_pass.h"
#include "src/core/manager.h"
#include "src/core/ticket.h"

static int check_live(const spw_ticket *ticket, const char *call)
{
    if (!ticket)
        return spw__fail(SPW_EBADHANDLE, "%s: the ticket is NULL", call);
    const uint64_t magic = atomic_load_explicit(&ticket->magic, memory_order_acquire);
    if (magic == SPW__TICKET_LIVE)
        return spw__check_process(ticket->manager);
    return spw__fail(SPW_EBADHANDLE, magic == SPW__TICKET_DEAD ? "%s: the ticket was destroyed already"
                                                               : "%s: not a ticket of this library", call);
}

/* SPW_EAGAIN while it is under way, else the call's own result and detail. */
static int result_of(spw_ticket *ticket)
{
    if (!atomic_load(&ticket->ended))
        return spw__fail(SPW_EAGAIN, "the ticket is under way");
    spw__loop_note_look(ticket);
    spw__ticket_heed(ticket);
    return ticket->result == SPW_OK ? SPW_OK : spw__error_restore(&ticket->error);
}

int spw_ticket_poll(spw_ticket *ticket)
{
    const int rc = check_live(ticket, "spw_ticket_poll");
    return rc == SPW_OK ? result_of(ticket) : rc;
}

/* Blocks until the ticket has ended or the wait does; the result of either. */
static int wait_for_end(spw_ticket *ticket, const spw_wait_options *wait)
{
    spw_manager *manager = ticket->manager;
    struct spw__waitset *waits = &manager->waits;
    spw_task *task = spw__task_of(manager, wait);
    struct spw__waiter waiter = {.object = ticket, .channels = SPW__CHANNEL_OBJECT, .task = task,
                                 .what = SPW__WAIT_TICKET, .cancel = wait->cancel,
                                 .deadline_ns = spw__deadline_ns(manager, wait)};
    int rc = SPW_OK;
    spw__waitset_enter(waits);
    if (task)
        (void)atomic_fetch_add(&task->users, 1);
    spw__wait_enqueue(waits, &waiter);
    /* Ended before it was enqueued: nobody will signal it. */
    if (atomic_load(&ticket->ended) || wait->timeout_ms == 0)
        rc = spw__wait_leave(waits, &waiter);
    else
        rc = spw__wait_block(waits, &waiter);
    if (task)
        (void)atomic_fetch_sub(&task->users, 1);
    rc = atomic_load(&ticket->ended)
             ? result_of(ticket)
             : spw__fail(rc, "the wait for a ticket ended: %s; the ticket is under way", spw_strerror(rc));
    spw__waitset_leave(waits); /* a forced destroy may go on */
    return rc;
}

int spw_ticket_wait(spw_ticket *ticket, const spw_wait_options *wait)
{
    const spw_wait_options defaults = {.timeout_ms = SPW_TIMEOUT_DEFAULT};
    int rc = check_live(ticket, "spw_ticket_wait");
    if (rc != SPW_OK || atomic_load(&ticket->ended))
        return rc == SPW_OK ? result_of(ticket) : rc;
    wait = wait ? wait : &defaults;
    rc = spw__reclaim_check_outside(ticket->manager, "spw_ticket_wait");
    if (rc == SPW_OK)
        rc = spw__check_wait(ticket->manager, wait);
    return rc == SPW_OK ? wait_for_end(ticket, wait) : rc;
}

/* The ticket ends as cancelled, unless it has ended. */
static void cancel(spw_ticket *ticket)
{
    struct spw__waitset *waits = &ticket->manager->waits;
    spw__mutex_lock(&waits->lock);
    ticket->cancelled = true;
    if (ticket->current)
        spw__wait_finish_locked(waits, ticket->current, SPW_ECANCELED);
    if (ticket->writable.copying)
        spw__mover_drop(&ticket->next_step);
    spw__wait_settle_unlock(waits);
}

int spw_ticket_cancel(spw_ticket *ticket)
{
    const int rc = check_live(ticket, "spw_ticket_cancel");
    if (rc == SPW_OK && !atomic_load(&ticket->ended))
        cancel(ticket);
    return rc;
}

int spw_ticket_destroy(spw_ticket *ticket)
{
    uint64_t live = SPW__TICKET_LIVE;
    if (!ticket)
        return SPW_OK;
    const int rc = check_live(ticket, "spw_ticket_destroy");
    if (rc != SPW_OK)
        return rc;
    if (!atomic_compare_exchange_strong(&ticket->magic, &live, SPW__TICKET_DEAD))
        return spw__fail(SPW_EBADHANDLE, "spw_ticket_destroy: the ticket was destroyed already");
    (void)atomic_fetch_sub(&ticket->manager->tickets.live, 1);
    spw__loop_note_look(ticket);
    cancel(ticket);
    /* It has ended by now, or will as cancelled. */
    if (atomic_load(&ticket->ended) && ticket->result == SPW_OK && !atomic_exchange(&ticket->taken, true))
        spw__ticket_give_back(ticket);
    spw__ticket_heed(ticket);
    spw__ticket_unref(ticket);
    return SPW_OK;
}

/* Whether what the ticket brought may be taken, now and once. */
static int take(spw_ticket *ticket, enum spw__ticket_kind kind, const char *call)
{
    const int rc = check_live(ticket, call);
    if (rc != SPW_OK)
        return rc;
    if (ticket->kind != kind && !(kind == SPW__TICKET_BUFFER && ticket->kind == SPW__TICKET_WRITABLE))
        return spw__fail(SPW_EINVAL, "%s: the ticket is of another kind of call", call);
    if (!atomic_load(&ticket->ended))
        return spw__fail(SPW_EINVAL, "%s: the ticket is under way", call);
    if (ticket->result != SPW_OK)
        return spw__fail(SPW_EINVAL, "%s: the call failed: %s", call, spw_strerror(ticket->result));
    spw__loop_note_look(ticket);
    spw__ticket_heed(ticket);
    if (atomic_exchange(&ticket->taken, true))
        return spw__fail(SPW_EINVAL, "%s: it was taken already", call);
    return SPW_OK;
}

static int fail_null(const char *call)
{
    return spw__fail(SPW_EINVAL, "%s: out is NULL", call);
}

int spw_ticket_take_buffer(spw_ticket *ticket, spw_buffer **out)
{
    if (!out)
        return fail_null("spw_ticket_take_buffer");
    int rc = take(ticket, SPW__TICKET_BUFFER, "spw_ticket_take_buffer");
    if (rc == SPW_OK && ticket->kind == SPW__TICKET_WRITABLE) {
        rc = spw__ticket_writable_take(ticket);
        atomic_store(&ticket->taken, rc == SPW_OK);
    }
    *out = rc == SPW_OK ? ticket->got.buffer : NULL;
    return rc;
}

int spw_ticket_take_view(spw_ticket *ticket, spw_view *out)
{
    if (!out)
        return fail_null("spw_ticket_take_view");
    const int rc = take(ticket, SPW__TICKET_VIEW, "spw_ticket_take_view");
    *out = rc == SPW_OK ? ticket->got.view : (spw_view){.data = NULL};
    if (rc == SPW_OK)
        spw__ticket_map_close(ticket, false);
    return rc;
}

int spw_ticket_take_reservation(spw_ticket *ticket, spw_reservation **out)
{
    if (!out)
        return fail_null("spw_ticket_take_reservation");
    const int rc = take(ticket, SPW__TICKET_RESERVATION, "spw_ticket_take_reservation");
    *out = rc == SPW_OK ? ticket->got.reservation : NULL;
    return rc;
}

int spw_ticket_take_block(spw_ticket *ticket, spw_block *out)
{
    if (!out)
        return fail_null("spw_ticket_take_block");
    const int rc = take(ticket, SPW__TICKET_BLOCK, "spw_ticket_take_block");
    *out = rc == SPW_OK ? ticket->got.block : (spw_block){.ptr = NULL};
    return rc;
}
