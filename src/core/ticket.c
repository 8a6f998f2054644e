/* The life of tickets: see ticket.h. Neighbours: ticket_call.c has the public calls, ticket_map.c the steps of maps,
 * pressure.c the requests; the mover runs the steps. */
#include "src/core/ticket.h"

#include <stddef.h>

#include "pool/base/error.h"
#include "pool/base/wait_pass.h"
#include "src/core/group.h"
#include "src/core/handle.h"
#include "src/core/manager.h"

enum { TICKETS_PER_CHUNK = 16, DEFERRED_NS = 20000 };

struct spw__ticket_chunk {
    struct spw__ticket_chunk *next;
    struct spw_ticket tickets[TICKETS_PER_CHUNK];
};

void spw__tickets_init(struct spw_manager *manager)
{
    struct spw__tickets *tickets = &manager->tickets;
    spw__mutex_init(&tickets->lock, SPW__RANK_TICKETS);
    spw__cond_init(&tickets->idle);
}

void spw__tickets_finish(struct spw_manager *manager)
{
    struct spw__tickets *tickets = &manager->tickets;
    while (tickets->chunks) {
        struct spw__ticket_chunk *chunk = tickets->chunks;
        tickets->chunks = chunk->next;
        spw__meta_free(&manager->meta, chunk, sizeof *chunk);
    }
    spw__cond_finish(&tickets->idle);
    spw__mutex_finish(&tickets->lock);
}

static void push_free_locked(struct spw__tickets *tickets, spw_ticket *ticket)
{
    ticket->next_free = NULL;
    if (tickets->free_first)
        tickets->free_last->next_free = ticket;
    else
        tickets->free_first = ticket;
    tickets->free_last = ticket;
}

static spw_ticket *take_slot(struct spw_manager *manager)
{
    struct spw__tickets *tickets = &manager->tickets;
    spw__mutex_lock(&tickets->lock);
    if (!tickets->free_first) {
        struct spw__ticket_chunk *chunk = spw__meta_alloc(&manager->meta, sizeof *chunk);
        if (chunk) {
            chunk->next = tickets->chunks;
            tickets->chunks = chunk;
            for (unsigned i = 0; i < TICKETS_PER_CHUNK; i++)
                push_free_locked(tickets, &chunk->tickets[i]);
        }
    }
    spw_ticket *ticket = tickets->free_first;
    if (ticket)
        tickets->free_first = ticket->next_free;
    spw__mutex_unlock(&tickets->lock);
    return ticket;
}

int spw__ticket_create(struct spw_manager *manager, enum spw__ticket_kind kind, const spw_wait_options *wait,
                       struct spw__group *group, spw_ticket **out)
{
    *out = NULL;
    const int rc = spw__reclaim_check_outside(manager, "starting a call");
    if (rc != SPW_OK)
        return rc;
    spw_ticket *ticket = take_slot(manager);
    if (!ticket)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a ticket; raise meta=");
    *ticket = (struct spw_ticket){.manager = manager, .kind = kind, .group = group, .wait = *wait,
                                  .deadline_ns = spw__deadline_ns(manager, wait)};
    ticket->wait.task = spw__task_of(manager, wait);
    atomic_init(&ticket->refs, 2);
    if (ticket->wait.task)
        (void)atomic_fetch_add(&ticket->wait.task->users, 1);
    if (group)
        spw__group_use(group);
    (void)atomic_fetch_add(&manager->tickets.live, 1);
    (void)atomic_fetch_add(&manager->tickets.under_way, 1);
    atomic_store_explicit(&ticket->magic, SPW__TICKET_LIVE, memory_order_release);
    *out = ticket;
    return SPW_OK;
}

int spw__ticket_refuse_nowait(const char *call)
{
    return spw__fail(SPW_EINVAL, "%s: a call that must not wait needs no ticket; use the other form", call);
}

void spw__ticket_give_back(spw_ticket *ticket)
{
    spw_error_info kept;
    spw__error_save(&kept);
    switch (ticket->kind) {
    case SPW__TICKET_BUFFER: (void)spw_buffer_release(ticket->got.buffer); break;
    case SPW__TICKET_VIEW: spw__ticket_map_close(ticket, true); break;
    case SPW__TICKET_RESERVATION: (void)spw_reservation_release(ticket->got.reservation); break;
    case SPW__TICKET_BLOCK: (void)spw_pool_free(ticket->manager, &ticket->got.block, NULL); break;
    case SPW__TICKET_WRITABLE: spw__ticket_writable_give_back(ticket); break;
    case SPW__TICKET_GROWTH: spw__reservation_ungrant(&ticket->request); break;
    case SPW__TICKET_SHARE: spw__group_share_revoke(ticket); break;
    case SPW__TICKET_TURN:
    case SPW__TICKET_STREAM: break;
    }
    (void)spw__error_restore(&kept);
}

void spw__ticket_unref(spw_ticket *ticket)
{
    struct spw__tickets *tickets = &ticket->manager->tickets;
    if (atomic_fetch_sub(&ticket->refs, 1) != 1)
        return;
    spw__mutex_lock(&tickets->lock);
    push_free_locked(tickets, ticket);
    spw__mutex_unlock(&tickets->lock);
}

/* Whoever sees the end may destroy the task. */
static void leave_task_locked(spw_ticket *ticket, struct spw_task *task)
{
    (void)atomic_fetch_sub(&task->users, 1);
    if (ticket->wakes == 0 || atomic_load(&ticket->magic) != SPW__TICKET_LIVE)
        return;
    task->unheeded++;
    atomic_store(&ticket->unheeded, true);
    spw__arbiter_change_locked(ticket->manager, task, 0, 0);
}

/* What is not to be taken takes effect now. */
static void hand_over_locked(spw_ticket *ticket)
{
    if (ticket->kind == SPW__TICKET_GROWTH)
        spw__reservation_put_back(ticket->got.reservation, ticket->request.bytes);
    else if (ticket->kind == SPW__TICKET_SHARE)
        spw__group_share_granted(ticket);
    else
        return;
    atomic_store(&ticket->taken, true);
}

/* Ends a ticket for everybody: unless it was cancelled before, when it says false, and has not ended. */
static bool publish(spw_ticket *ticket, int rc, bool cancelled)
{
    struct spw__waitset *waits = &ticket->manager->waits;
    spw__mutex_lock(&waits->lock);
    const bool ends = cancelled || !ticket->cancelled;
    if (ends) {
        ticket->result = rc;
        if (rc == SPW_OK)
            hand_over_locked(ticket);
        if (ticket->wait.task)
            leave_task_locked(ticket, ticket->wait.task);
        atomic_store(&ticket->ended, true);
    }
    spw__mutex_unlock(&waits->lock);
    return ends;
}

void spw__ticket_end(spw_ticket *ticket, int rc)
{
    struct spw_manager *manager = ticket->manager;
    struct spw__tickets *tickets = &manager->tickets;
    if (rc != SPW_OK)
        spw__error_save(&ticket->error);
    if (!publish(ticket, rc, false)) {
        if (rc == SPW_OK)
            spw__ticket_give_back(ticket);
        rc = spw__fail(SPW_ECANCELED, "the call was cancelled by its ticket");
        spw__error_save(&ticket->error);
        (void)publish(ticket, rc, true);
    }
    if (ticket->kind == SPW__TICKET_SHARE)
        spw__group_share_over(ticket);
    if (ticket->group)
        spw__group_unuse(manager, ticket->group);
    spw__loop_note_end(ticket);
    spw__waitset_signal_object(&manager->waits, ticket);
    spw__ticket_unref(ticket);
    spw__mutex_lock(&tickets->lock);
    if (atomic_fetch_sub(&tickets->under_way, 1) == 1)
        spw__cond_broadcast(&tickets->idle);
    spw__mutex_unlock(&tickets->lock);
}

/* What the request got becomes what the caller takes. */
static int wrap(spw_ticket *ticket)
{
    switch (ticket->kind) {
    case SPW__TICKET_BUFFER: return spw__buffer_wrap(&ticket->request, ticket->tag, &ticket->got.buffer);
    case SPW__TICKET_RESERVATION: return spw__reservation_wrap(&ticket->request, &ticket->got.reservation);
    case SPW__TICKET_GROWTH:
    case SPW__TICKET_SHARE: return SPW_OK; /* see hand_over_locked */
    default: return spw__raw_wrap(&ticket->request, NULL, &ticket->got.block);
    }
}

static void step(struct spw__move *move, int status)
{
    spw_ticket *ticket = move->arg;
    int rc;
    (void)status; /* a move without bytes cannot fail */
    if (ticket->kind == SPW__TICKET_VIEW) {
        rc = spw__ticket_map_step(ticket, ticket->woken);
    } else if (ticket->kind == SPW__TICKET_WRITABLE) {
        rc = spw__ticket_writable_step(ticket, ticket->woken);
    } else if (ticket->kind == SPW__TICKET_TURN) {
        rc = spw__ticket_turn_step(ticket, ticket->woken);
    } else if (ticket->kind == SPW__TICKET_STREAM) {
        rc = spw__ticket_stream_step(ticket, ticket->woken);
    } else {
        rc = spw__request_finish(&ticket->request, ticket->woken);
        rc = rc == SPW_OK ? wrap(ticket) : rc;
    }
    if (rc != SPW__REQUEST_WAITS)
        spw__ticket_end(ticket, rc);
}

void spw__ticket_wake_locked(spw_ticket *ticket, const struct spw__waiter *waiter)
{
    ticket->current = NULL;
    ticket->wakes++;
    ticket->woken = waiter->result;
    ticket->next_step = (struct spw__move){.done = step, .arg = ticket, .demand = true};
    spw__mover_submit(ticket->manager->mover, &ticket->next_step);
}

static void request_completed(struct spw__waiter *waiter)
{
    spw__ticket_wake_locked(((struct spw__request *)(void *)waiter)->arg, waiter);
}

static void change_completed(struct spw__waiter *waiter)
{
    spw__ticket_wake_locked((spw_ticket *)(void *)((char *)waiter - offsetof(struct spw_ticket, change)), waiter);
}

void spw__ticket_heed(spw_ticket *ticket)
{
    struct spw_manager *manager = ticket->manager;
    if (!atomic_load(&ticket->unheeded))
        return;
    spw__mutex_lock(&manager->waits.lock);
    if (atomic_exchange(&ticket->unheeded, false)) {
        ticket->wait.task->unheeded--;
        spw__arbiter_change_locked(manager, ticket->wait.task, 0, 0);
        spw__arbiter_look_locked(manager);
    }
    spw__wait_settle_unlock(&manager->waits);
}

void spw__ticket_note_enqueued(spw_ticket *ticket, struct spw__waiter *waiter, uint32_t wakes)
{
    struct spw__waitset *waits = &ticket->manager->waits;
    const struct spw_task *task = ticket->wait.task;
    spw__mutex_lock(&waits->lock);
    if (ticket->wakes == wakes) { /* else it is DONE, and the next step may have run */
        ticket->current = waiter;
        if (ticket->cancelled || (task && atomic_load(&task->cancelled)))
            spw__wait_finish_locked(waits, waiter, SPW_ECANCELED);
    }
    spw__wait_settle_unlock(waits);
}

/* The mover's: lets pools grow and victims be chosen for all that wait. */
static void make_room(struct spw__move *move, int status)
{
    struct spw_manager *manager = move->arg;
    (void)status;
    atomic_store(&manager->tickets.making_room, false);
    const uint32_t tries = atomic_exchange(&manager->tickets.tries, 0);
    /* Everybody who waits is asked what he needs: not where no pool could grow. */
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        while (spw__waitset_busy(&manager->waits, SPW__CHANNEL(tier)) &&
               spw__tier_can_grow(spw__tier_of(manager, tier)) && spw__pressure_grow(manager, tier, NULL)) {
        }
    spw__pressure_kick(manager, SPW_TIER_HOST);
    (void)atomic_fetch_sub(&manager->waits.deferring, tries);
    (void)spw__waitset_expire(&manager->waits); /* those whose deadline was to try once */
}

int spw__ticket_start_request(spw_ticket *ticket, struct spw__request *request)
{
    struct spw_manager *manager = ticket->manager;
    struct spw__tickets *tickets = &manager->tickets;
    const uint32_t wakes = ticket->wakes;
    const int64_t timeout_ms = ticket->wait.timeout_ms < 0 ? manager->default_timeout_ms : ticket->wait.timeout_ms;
    const uint32_t tries = timeout_ms == 0;
    request->completed = request_completed;
    request->arg = ticket;
    if (tries)
        (void)atomic_fetch_add(&manager->waits.deferring, 1);
    const int rc = spw__request_start(request, &ticket->wait, ticket->deadline_ns);
    if (rc != SPW__REQUEST_WAITS) {
        if (tries)
            (void)atomic_fetch_sub(&manager->waits.deferring, 1);
        return rc;
    }
    (void)atomic_fetch_add(&tickets->tries, tries);
    spw__ticket_note_enqueued(ticket, &request->waiter, wakes);
    if (!atomic_exchange(&tickets->making_room, true)) {
        tickets->room_move = (struct spw__move){.done = make_room, .arg = manager, .demand = true};
        spw__mover_submit(manager->mover, &tickets->room_move);
    }
    return rc;
}

spw_ticket *spw__ticket_begin_request(spw_ticket *ticket)
{
    const int rc = ticket->request.bytes ? spw__ticket_start_request(ticket, &ticket->request) : SPW_OK;
    if (rc != SPW__REQUEST_WAITS)
        spw__ticket_end(ticket, rc == SPW_OK ? wrap(ticket) : rc);
    return ticket;
}

static void enqueue_change(spw_ticket *ticket, const void *object)
{
    ticket->change = (struct spw__waiter){.object = object, .channels = SPW__CHANNEL_OBJECT,
                                          .completed = change_completed, .deadline_ns = ticket->deadline_ns,
                                          .cancel = ticket->wait.cancel, .what = SPW__WAIT_MOVE,
                                          .task = ticket->wait.task};
    spw__wait_enqueue(&ticket->manager->waits, &ticket->change);
}

void spw__ticket_await_object(spw_ticket *ticket, const void *object)
{
    const uint32_t wakes = ticket->wakes;
    enqueue_change(ticket, object);
    spw__ticket_note_enqueued(ticket, &ticket->change, wakes);
    spw__mover_wake(ticket->manager->mover); /* it keeps the time */
}

int spw__ticket_await_change(spw_ticket *ticket)
{
    struct spw__payload *payload = ticket->map.payload;
    struct spw_manager *manager = ticket->manager;
    const uint32_t wakes = ticket->wakes;
    enqueue_change(ticket, payload);
    spw__mutex_unlock(&payload->lock);
    spw__ticket_note_enqueued(ticket, &ticket->change, wakes);
    spw__mover_wake(manager->mover); /* it keeps the time */
    return SPW__REQUEST_WAITS;
}

static bool is_manual(const struct spw__clock *clock)
{
    return clock && clock->now_ns;
}

int64_t spw__tickets_due(void *arg)
{
    struct spw_manager *manager = arg;
    const struct spw__tickets *tickets = &manager->tickets;
    /* Room is made before the time of those that try but once is up; and then there is another round. */
    if (atomic_load(&tickets->under_way) == 0 || atomic_load(&tickets->making_room))
        return -1;
    const uint64_t due_ns = spw__waitset_expire(&manager->waits);
    if (due_ns == UINT64_MAX || is_manual(manager->env.clock))
        return -1;
    const uint64_t now = spw__clock_now_ns(manager->env.clock);
    return due_ns > now ? (int64_t)(due_ns - now) : DEFERRED_NS;
}

void spw__tickets_timer(void *arg, uint64_t due_ns)
{
    struct spw_manager *manager = arg;
    (void)due_ns;
    if (atomic_load(&manager->tickets.under_way) == 0)
        return;
    spw__mover_wake(manager->mover);
    spw__loop_changed(manager);
}

/* With threads=0 nobody else runs the steps. */
static void until_idle(struct spw_manager *manager)
{
    struct spw__tickets *tickets = &manager->tickets;
    while (manager->waits.drive && atomic_load(&tickets->under_way))
        manager->waits.drive(manager->waits.drive_arg);
    spw__mutex_lock(&tickets->lock);
    while (atomic_load(&tickets->under_way))
        (void)spw__cond_wait(&tickets->idle, &tickets->lock, -1);
    spw__mutex_unlock(&tickets->lock);
}

int spw__tickets_check_none(struct spw_manager *manager)
{
    const uint32_t live = atomic_load(&manager->tickets.live);
    if (live)
        return spw__fail(SPW_EBUSY, "%u ticket%s first (spw_ticket_destroy)", live,
                         live == 1 ? " is live; destroy it" : "s are live; destroy them");
    until_idle(manager);
    return SPW_OK;
}

void spw__tickets_end_all(struct spw_manager *manager)
{
    for (struct spw__ticket_chunk *chunk = manager->tickets.chunks; chunk; chunk = chunk->next)
        for (unsigned i = 0; i < TICKETS_PER_CHUNK; i++)
            if (atomic_load(&chunk->tickets[i].magic) == SPW__TICKET_LIVE)
                (void)spw_ticket_destroy(&chunk->tickets[i]);
    until_idle(manager);
}
