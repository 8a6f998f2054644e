/* make_writable without a thread: the steps of spw_buffer_make_writable_start. Neighbours: ticket_map.c brings the
 * bytes together, writable.c decides, pressure.c finds room for a copy, the mover carries its bytes.
 *
 *     MAP --the ticket's view is open--> SETTLE --sole owner, nothing is in the way--> ended; taken: unsealed
 *                                          | \-a move is: await its end--> SETTLE
 *                                          \--shared--> ROOM --granted--> COPY --the move is over--> ended
 *
 * Nothing is unsealed, and no reference given back, before the result is taken: until then everything is as before.
 */
#include "src/core/ticket.h"

#include <string.h>

#include "pool/base/error.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/use.h"
#include "src/core/view.h"
#include "src/core/writable.h"

/* Lets go of the source, and of the head that no copy took. */
static void let_go(spw_ticket *ticket, bool mapped)
{
    struct spw__ticket_writable *writable = &ticket->writable;
    spw__meta_free(&ticket->manager->meta, writable->head, sizeof *writable->head);
    writable->head = NULL;
    if (mapped)
        spw__ticket_map_close(ticket, true);
}

/* The call is at its end, the source being held by the ticket's view. In place it is held on until it is taken. */
static int conclude(spw_ticket *ticket, int rc)
{
    const bool in_place = rc == SPW_OK && ticket->got.buffer == ticket->writable.buffer;
    spw_error_info kept;
    spw__error_save(&kept);
    if (rc != SPW_OK && ticket->got.buffer != ticket->writable.buffer)
        (void)spw_buffer_release(ticket->got.buffer);
    let_go(ticket, !in_place);
    (void)spw__error_restore(&kept);
    return rc;
}

static void copied(struct spw__move *move, int status)
{
    spw_ticket *ticket = move->arg;
    struct spw__waitset *waits = &ticket->manager->waits;
    spw_error_info kept;
    spw__error_save(&kept);
    spw__mutex_lock(&waits->lock);
    ticket->writable.copying = false;
    spw__mutex_unlock(&waits->lock);
    (void)spw_unmap(ticket->got.buffer, &ticket->writable.to, NULL);
    (void)spw__error_restore(&kept);
    spw__ticket_end(ticket, conclude(ticket, status));
}

/* The copy has its memory: the mover fills it. */
static int copy(spw_ticket *ticket)
{
    struct spw__ticket_writable *writable = &ticket->writable;
    struct spw__waitset *waits = &ticket->manager->waits;
    const struct spw__mapped *from = &ticket->map.mapped;
    ticket->got.buffer = NULL;
    int rc = spw__buffer_wrap(&ticket->request, ticket->tag, &ticket->got.buffer);
    if (rc != SPW_OK)
        return conclude(ticket, rc);
    ticket->got.buffer->head = writable->head; /* nobody else knows the buffer yet */
    writable->head = NULL;
    rc = spw_map(ticket->got.buffer, SPW_PLACE(from->tier, 0), SPW_MAP_WRITE, NULL, &writable->to); /* it lies there */
    if (rc != SPW_OK)
        return conclude(ticket, rc);
    const uint64_t bytes = ticket->map.payload->size;
    ticket->next_step = (struct spw__move){
        .from = {.tier = from->tier, .address = from->address, .capacity = bytes},
        .to = {.tier = from->tier, .address = (uintptr_t)writable->to.data, .capacity = bytes},
        .bytes = bytes, .demand = true, .done = copied, .arg = ticket};
    spw__mutex_lock(&waits->lock);
    writable->copying = true;
    if (ticket->cancelled)
        spw__mover_drop(&ticket->next_step);
    spw__mutex_unlock(&waits->lock);
    spw__mover_submit(ticket->manager->mover, &ticket->next_step);
    return SPW__REQUEST_WAITS;
}

/* The request for the copy has ended with rc. */
static int after_room(spw_ticket *ticket, int rc)
{
    return rc == SPW_OK ? copy(ticket) : conclude(ticket, rc);
}

/* The content is shared: asks for the memory of a copy, in the tier where it lies. */
static int ask_for_room(spw_ticket *ticket)
{
    struct spw__payload *payload = ticket->map.payload;
    const spw_alloc_options options = {.struct_size = sizeof options, .wait = ticket->wait,
                                       .reservation = ticket->writable.reservation};
    ticket->writable.phase = SPW__WRITABLE_ROOM;
    int rc = spw__alloc_request(ticket->manager, ticket->group, SPW_PLACE(ticket->map.mapped.tier, 0), payload->size,
                                &options, &ticket->request);
    if (rc == SPW_OK && payload->size)
        rc = spw__ticket_start_request(ticket, &ticket->request);
    return rc == SPW__REQUEST_WAITS ? rc : after_room(ticket, rc);
}

static int settle(spw_ticket *ticket)
{
    struct spw__payload *payload = ticket->map.payload;
    bool sole;
    ticket->writable.phase = SPW__WRITABLE_SETTLE;
    spw__mutex_lock(&payload->lock);
    const int rc = spw__writable_look_locked(ticket->writable.buffer, payload, ticket->tag, true, &sole);
    if (rc == SPW_EAGAIN)
        return spw__ticket_await_change(ticket);
    spw__mutex_unlock(&payload->lock);
    return rc != SPW_OK || sole ? conclude(ticket, rc) : ask_for_room(ticket);
}

/* The map has ended with rc, or waits. */
static int after_map(spw_ticket *ticket, int rc)
{
    if (rc == SPW_OK)
        return settle(ticket);
    if (rc != SPW__REQUEST_WAITS)
        let_go(ticket, false);
    return rc;
}

int spw__ticket_writable_step(spw_ticket *ticket, int woken)
{
    switch (ticket->writable.phase) {
    case SPW__WRITABLE_MAP: return after_map(ticket, spw__ticket_map_step(ticket, woken));
    case SPW__WRITABLE_SETTLE:
        return woken == SPW_OK ? settle(ticket)
                               : conclude(ticket, spw__handle_name(spw__use_fail_wait(ticket->map.payload, woken),
                                                                   ticket->tag));
    default: return after_room(ticket, spw__request_finish(&ticket->request, woken));
    }
}

void spw__ticket_writable_give_back(spw_ticket *ticket)
{
    if (ticket->got.buffer != ticket->writable.buffer)
        (void)spw_buffer_release(ticket->got.buffer);
    else if (ticket->map.payload) /* NULL: it was not sealed */
        spw__ticket_map_close(ticket, true);
}

int spw__ticket_writable_take(spw_ticket *ticket)
{
    spw_buffer *buffer = ticket->writable.buffer;
    struct spw__payload *payload = ticket->map.payload;
    bool sole;
    int rc = spw__handle_check(buffer, "spw_ticket_take_buffer");
    if (rc != SPW_OK)
        return rc;
    if (ticket->got.buffer != buffer)
        return spw_buffer_release(buffer); /* fails when the others are gone, and left a view open */
    if (!payload)
        return SPW_OK;
    spw__mutex_lock(&payload->lock);
    rc = spw__writable_look_locked(buffer, payload, buffer->tag, true, &sole);
    if (rc == SPW_OK && sole)
        spw__writable_unseal_locked(payload);
    spw__mutex_unlock(&payload->lock);
    if (rc == SPW_EAGAIN || (rc == SPW_OK && !sole))
        rc = spw__fail(SPW_EBUSY, "spw_ticket_take_buffer: the buffer \"%s\" got another reference, or another ticket, "
                                  "since the ticket has ended; release it and take again, or destroy the ticket",
                       buffer->tag);
    if (rc != SPW_OK)
        return rc;
    spw__ticket_map_close(ticket, true);
    return SPW_OK;
}

/* What the copy, if there is to be one, gets of the buffer and the options. */
static int remember(spw_ticket *ticket, spw_buffer *buffer, const spw_alloc_options *options)
{
    struct spw__ticket_writable *writable = &ticket->writable;
    const char *tag = options->tag ? options->tag : buffer->tag;
    spw_head head;
    *writable = (struct spw__ticket_writable){.buffer = buffer, .reservation = options->reservation};
    ticket->got.buffer = buffer;
    memcpy(ticket->tag, tag, strlen(tag));
    spw__mutex_lock(&buffer->payload->lock);
    const bool set = buffer->head != NULL;
    if (set)
        head = *buffer->head;
    spw__mutex_unlock(&buffer->payload->lock);
    if (!set)
        return SPW_OK;
    writable->head = spw__meta_alloc(&ticket->manager->meta, sizeof head);
    if (!writable->head)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a head of %u bytes; raise meta=", SPW_HEAD_BYTES);
    *writable->head = head;
    return SPW_OK;
}

static bool is_sealed(struct spw__payload *payload)
{
    spw__mutex_lock(&payload->lock);
    const bool sealed = payload->sealed;
    spw__mutex_unlock(&payload->lock);
    return sealed;
}

/* Goes as far as it goes at once. */
static int begin(spw_ticket *ticket, spw_place place)
{
    struct spw__payload *payload = ticket->writable.buffer->payload;
    if (!is_sealed(payload))
        return SPW_OK;
    ticket->map = (struct spw__ticket_map){.payload = payload, .place = place,
                                           .flags = SPW_MAP_READ | SPW_MAP_HERE | SPW__MAP_HELD};
    spw__payload_ref(payload);
    return after_map(ticket, spw__ticket_map_begin(ticket));
}

int spw_buffer_make_writable_start(spw_buffer *buffer, spw_place place, const spw_alloc_options *options,
                                   spw_ticket **out)
{
    static const char call[] = "spw_buffer_make_writable_start";
    spw_alloc_options taken;
    spw_map_options map_taken;
    struct spw__group *group;
    spw_ticket *ticket = NULL;
    if (!out)
        return spw__fail(SPW_EINVAL, "%s: out is NULL", call);
    *out = NULL;
    int rc = spw__handle_check(buffer, call);
    if (rc == SPW_OK)
        rc = spw__alloc_options_take(&taken, options, "spw_buffer_make_writable: options");
    if (rc == SPW_OK)
        rc = spw__alloc_options_check(buffer->manager, call, &taken);
    if (rc == SPW_OK && (taken.flags & SPW_NOWAIT))
        rc = spw__ticket_refuse_nowait(call);
    if (rc == SPW_OK && is_sealed(buffer->payload))
        rc = spw__map_check(buffer, place, SPW_MAP_READ | SPW_MAP_HERE, NULL, &map_taken);
    if (rc == SPW_OK)
        rc = spw__writable_charged(buffer->payload, &taken, &group);
    if (rc == SPW_OK)
        rc = spw__ticket_create(buffer->manager, SPW__TICKET_WRITABLE, &taken.wait, group, &ticket);
    if (rc != SPW_OK)
        return rc;
    rc = remember(ticket, buffer, &taken);
    if (rc == SPW_OK)
        rc = begin(ticket, place);
    if (rc != SPW__REQUEST_WAITS)
        spw__ticket_end(ticket, rc);
    *out = ticket;
    return SPW_OK;
}
