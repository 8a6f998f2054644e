/* Maps: pinning a payload where it is, or fetching it first. Neighbours: pressure.c finds room, spill/mover carries.
 *
 * A fetch is a resumable state machine; the mapping thread steps it and sleeps between the steps, or a ticket does it
 * without a thread (ticket_map.c). When its caller gives up while bytes are on their way, the fetch finishes by itself
 * and the bytes stay where they were asked for.
 *
 *     ROOM   --one block for all pieces granted: fetch_settle--> SETTLE
 *     SETTLE --no piece is on its way any more: start_moves--> MOVING      (a spill in the queue is cancelled, one in
 *        |                                                                  flight awaited, as are arrivals)
 *        |--the content is not needed, nor used: discard--> DONE
 *        \--for a stream, and copy engines can do it: spw__arrive_locked--> DONE, though the copies are under way
 *     MOVING --last move done: fetch_done--> DONE
 *
 * While a fetch exists other maps of the payload wait for it. In ROOM its pieces may still be victims (room for the
 * whole may have to come from its own parts); from SETTLE on (payload.gathering) they are not.
 */
#include "src/core/map.h"

#include <string.h>

#include "pool/base/error.h"
#include "src/core/arrive.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/use.h"

/* What comes back from disk so soon after it was written might rather have stayed. */
#define RELOADED_SOON_NS UINT64_C(1000000000)

enum phase { ROOM, SETTLE, MOVING, DONE };

struct spw__fetch {
    struct spw__request request;
    struct spw__payload *payload;
    spw_tier tier;
    enum phase phase;     /* guarded by the payload's lock from SETTLE on, as all below */
    uint32_t outstanding; /* moves in flight */
    bool abandoned;       /* nobody waits for it any more */
    bool discard;         /* the old content is not needed */
    bool enqueues;        /* a stream will use the view: it need not be there yet */
    int status;
    spw_error_info error;
    uint32_t n_pieces;
    struct spw__move moves[];
};

static size_t fetch_size(uint32_t n_pieces)
{
    return sizeof(struct spw__fetch) + n_pieces * sizeof(struct spw__move);
}

static void free_fetch(struct spw_manager *manager, struct spw__fetch *fetch)
{
    spw__meta_free(&manager->meta, fetch, fetch_size(fetch->n_pieces));
}

static void end_fetch_locked(struct spw__payload *payload)
{
    payload->fetch = NULL;
    payload->gathering = false;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        spw__piece_requeue_locked(&payload->pieces[i], false);
}

/* The new memory takes the old one's place; a reservation's group is charged from here on. */
static void publish_locked(struct spw__fetch *fetch, struct spw__piece *piece)
{
    piece->to.group = fetch->request.group;
    spw__piece_set_memory(piece, &piece->to);
    piece->to = (struct spw__block){.bytes = 0};
}

/* Frees memory that the fetch does not use. A reservation has its bytes back, unless its owner's call has returned. */
static void give_back_locked(struct spw__fetch *fetch, struct spw__block *block)
{
    spw_reservation *reservation = fetch->abandoned ? NULL : fetch->request.reservation;
    if (!spw__block_is(block))
        return;
    if (reservation)
        spw__reservation_put_back(reservation, block->bytes);
    block->group = reservation ? NULL : fetch->request.group;
    spw__tier_free(spw__tier_of(fetch->payload->manager, fetch->tier), block);
}

/* A move of the fetch is over: publish the new place, or give the new memory back. */
static void fetch_done(struct spw__move *move, int status)
{
    struct spw__piece *piece = move->arg;
    struct spw__payload *payload = piece->payload;
    struct spw_manager *manager = payload->manager;
    spw__mutex_lock(&payload->lock);
    struct spw__fetch *fetch = payload->fetch;
    struct spw__block to_free = {.bytes = 0};
    if (status == SPW_OK) {
        if (move->from.tier == SPW_TIER_DISK && move->bytes &&
            spw__clock_now_ns(manager->env.clock) - piece->written_ns < RELOADED_SOON_NS)
            spw__core_count(manager, SPW__CORE_RELOADED_SOON_BYTES, move->bytes);
        to_free = piece->mem;
        publish_locked(fetch, piece);
    } else if (fetch->status == SPW_OK) {
        fetch->status = status;
        fetch->error = *spw_error_detail();
    }
    if (status == SPW_ECORRUPT && !spw__block_is(&piece->mem))
        piece->lost = SPW_ECORRUPT; /* the sole copy is gone */
    give_back_locked(fetch, &piece->to);
    piece->state = SPW__PIECE_IDLE;
    piece->move = NULL;
    struct spw__use *use = move->use;
    const bool last = --fetch->outstanding == 0;
    if (last)
        fetch->phase = DONE;
    const bool abandoned = last && fetch->abandoned;
    if (abandoned)
        end_fetch_locked(payload);
    spw__mutex_unlock(&payload->lock);

    if (spw__block_is(&to_free))
        spw__tier_free(spw__tier_of(manager, (spw_tier)to_free.tier), &to_free);
    spw__use_unref(manager, use);
    if (abandoned) {
        free_fetch(manager, fetch);
        spw__payload_purge(payload);
    }
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* True when a piece is still being spilled, or arrives: spills that have not started are cancelled. */
static bool unsettled_locked(struct spw__payload *payload)
{
    bool unsettled = false;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].state != SPW__PIECE_IDLE) {
            if (payload->pieces[i].move)
                spw__mover_cancel(payload->pieces[i].move);
            unsettled = true;
        }
    return unsettled;
}

static void give_back_all_locked(struct spw__fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->n_pieces; i++)
        give_back_locked(fetch, &fetch->payload->pieces[i].to);
}

/* Cuts the fetch's block into the pieces' destinations. On failure everything is given back. */
static int cut_destination_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    struct spw__tier *tier = spw__tier_of(payload->manager, fetch->tier);
    struct spw__block *rest = &fetch->request.block;
    int rc = SPW_OK;
    for (uint32_t i = 0; rc == SPW_OK && i < payload->n_pieces; i++) {
        struct spw__block *to = &payload->pieces[i].to;
        *to = *rest;
        rest->bytes = 0;
        if (i + 1 < payload->n_pieces)
            rc = spw__tier_split(tier, to, payload->manager->piece_bytes, rest);
    }
    if (rc == SPW_OK)
        return SPW_OK;
    give_back_all_locked(fetch);
    return spw__fail(SPW_ENOMETA, "no metadata memory to map a buffer of %u pieces; raise meta= or piece=",
                     payload->n_pieces);
}

/* Content that nobody needs is not carried: the new memory simply takes the old one's place, wherever that was. */
static void discard_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        struct spw__block old = piece->mem;
        publish_locked(fetch, piece);
        if (spw__block_is(&old))
            spw__tier_free(spw__tier_of(payload->manager, (spw_tier)old.tier), &old);
    }
    spw__payload_drop_disk_locked(payload);
    fetch->phase = DONE;
}

/* Starts the moves of all pieces. */
static void start_moves_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    fetch->phase = MOVING;
    fetch->outstanding = payload->n_pieces;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        struct spw__move *move = &fetch->moves[i];
        *move = (struct spw__move){.bytes = spw__piece_bytes(piece), .identity = payload->identity + i, .demand = true,
                                   .sum = piece->sum, .use = spw__use_ref(payload->last_use), .done = fetch_done,
                                   .arg = piece};
        move->to = (struct spw__end){.tier = fetch->tier, .address = piece->to.address, .capacity = piece->to.bytes};
        spw__piece_source_locked(piece, &move->from);
        piece->state = SPW__PIECE_FETCHING;
        piece->move = move;
        spw__payload_ref(payload);
    }
}

/* Sends what is to be fetched on its way. */
static int set_out_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    int rc = cut_destination_locked(fetch);
    if (rc != SPW_OK)
        return rc;
    if (fetch->discard && !spw__use_holds(payload->manager, payload->last_use)) {
        discard_locked(fetch);
        return SPW_OK;
    }
    rc = fetch->enqueues ? spw__arrive_locked(payload, fetch->request.group, fetch->discard) : SPW_EAGAIN;
    if (rc == SPW_EAGAIN) {
        start_moves_locked(fetch);
        const uint32_t n = payload->n_pieces;
        struct spw__move *moves = fetch->moves;
        spw__mutex_unlock(&payload->lock);
        for (uint32_t i = 0; i < n; i++)
            spw__mover_submit(payload->manager->mover, &moves[i]);
        spw__mutex_lock(&payload->lock);
        return SPW_OK;
    }
    if (rc == SPW_OK)
        fetch->phase = DONE;
    else
        give_back_all_locked(fetch);
    return rc;
}

int spw__fetch_step_locked(struct spw__fetch *fetch)
{
    const bool ready = fetch->phase == SETTLE && !unsettled_locked(fetch->payload);
    const int rc = ready ? set_out_locked(fetch) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    return fetch->phase == DONE ? SPW_OK : SPW_EAGAIN;
}

struct spw__request *spw__fetch_request(struct spw__fetch *fetch)
{
    return &fetch->request;
}

void spw__fetch_settle_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    fetch->phase = SETTLE;
    payload->gathering = true;
    payload->overbooked = fetch->request.reservation ? spw__reservation_overbooked(fetch->request.reservation) : 0;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        spw__piece_requeue_locked(&payload->pieces[i], false);
}

/* A device that was lost on the way leaves what has another copy: another look finds it, or says what is lost. */
static bool is_lost_on_the_way(const struct spw__fetch *fetch)
{
    return fetch->status == SPW_EDEVICE && spw__loss_of(fetch->payload->manager, SPW_TIER_DEVICE);
}

int spw__fetch_end_locked(struct spw__fetch *fetch, int rc)
{
    struct spw__payload *payload = fetch->payload;
    if (rc != SPW_OK && fetch->phase == MOVING) {
        fetch->abandoned = true; /* fetch_done of the last move frees it */
        return rc;
    }
    if (rc == SPW_OK && fetch->status != SPW_OK && !is_lost_on_the_way(fetch))
        rc = spw__error_restore(&fetch->error);
    give_back_locked(fetch, &fetch->request.block);
    end_fetch_locked(payload);
    free_fetch(payload->manager, fetch);
    return rc;
}

/* Runs a fetch to its end. Payload unlocked on entry, locked on return, with payload->fetch cleared. */
static int run_fetch(struct spw__fetch *fetch, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw__payload *payload = fetch->payload;
    int rc = spw__request_run(&fetch->request, wait);
    spw__request_over(&fetch->request); /* the map is inside by itself */
    spw__mutex_lock(&payload->lock);
    if (rc == SPW_OK)
        spw__fetch_settle_locked(fetch);
    while (rc == SPW_OK && (rc = spw__fetch_step_locked(fetch)) == SPW_EAGAIN) {
        rc = spw__payload_wait_unlock(payload, wait, deadline_ns);
        spw__mutex_lock(&payload->lock);
    }
    return spw__fetch_end_locked(fetch, rc);
}

static bool all_in_memory_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (!spw__piece_in_memory_locked(&payload->pieces[i]))
            return false;
    return true;
}

/* Gives a new view its id. SPW_ENOMETA when there are many and no memory for one more. */
static int open_view_locked(struct spw__payload *payload, bool held, uint32_t *id)
{
    struct spw__views *views = &payload->views;
    struct spw__meta *meta = &payload->manager->meta;
    if (views->n == views->room) {
        uint32_t *more = spw__meta_alloc(meta, 2 * views->room * sizeof *more);
        if (!more)
            return spw__fail(SPW_ENOMETA, "no metadata memory for view %u of one buffer; raise meta=", views->n + 1);
        memcpy(more, views->ids, views->n * sizeof *more);
        if (views->ids != views->few)
            spw__meta_free(meta, views->ids, views->room * sizeof *views->ids);
        views->ids = more;
        views->room *= 2;
    }
    views->next = (views->next + 1) & ~SPW__VIEW_HELD;
    views->held += held;
    *id = views->ids[views->n++] = views->next | (held ? SPW__VIEW_HELD : 0);
    return SPW_OK;
}

static bool close_view_locked(struct spw__payload *payload, uint32_t id)
{
    struct spw__views *views = &payload->views;
    for (uint32_t i = 0; i < views->n; i++)
        if (views->ids[i] == id) {
            views->ids[i] = views->ids[--views->n];
            views->held -= (id & SPW__VIEW_HELD) != 0;
            return true;
        }
    return false;
}

/* Holds every piece where it is. A spill of one that has not started is called off. One in flight leaves a clean copy,
 * unless the map is a writer's: it waits for the spill to end (spw__use_order), of which as little as can be is still
 * done. A piece that is queued as a victim stays there: see payload.h. */
static void pin_locked(struct spw__payload *payload, bool write)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        spw__piece_pin_locked(piece, 1);
        if (piece->state == SPW__PIECE_SPILLING && write)
            spw__mover_drop(piece->move);
        else if (piece->state == SPW__PIECE_SPILLING)
            spw__mover_cancel(piece->move);
    }
    payload->writers += write;
}

/* Opens a view of what lies together where it is wanted. */
static int open_locked(struct spw__payload *payload, uint32_t flags, struct spw__mapped *mapped)
{
    const bool write = (flags & SPW_MAP_WRITE) != 0;
    const bool moving = write && spw__payload_leaving_locked(payload);
    if (moving && (flags & SPW_MAP_NOWAIT))
        return spw__fail(SPW_EAGAIN, "mapping it for writing would have to wait for a spill of it to end");
    const int rc = open_view_locked(payload, (flags & SPW__MAP_HELD) != 0, &mapped->view_id);
    if (rc != SPW_OK)
        return rc;
    pin_locked(payload, write);
    mapped->used = payload->last_use || moving || (write && spw__payload_on_disk_locked(payload));
    return SPW_OK;
}

static int create_fetch_locked(struct spw__payload *payload, spw_tier tier, uint32_t flags,
                               const spw_map_options *options, struct spw__fetch **out)
{
    struct spw_manager *manager = payload->manager;
    spw_reservation *reservation = options->reservation;
    struct spw__fetch *fetch = spw__meta_alloc(&manager->meta, fetch_size(payload->n_pieces));
    *out = fetch;
    if (!fetch)
        return spw__fail(SPW_ENOMETA,
                         "no metadata memory to map a buffer of %u pieces; raise meta=", payload->n_pieces);
    fetch->payload = payload;
    fetch->tier = tier;
    fetch->n_pieces = payload->n_pieces;
    fetch->discard = (flags & SPW_MAP_DISCARD) != 0;
    fetch->enqueues = options->stream && manager->device;
    fetch->request = (struct spw__request){.manager = manager, .first = tier, .lowest = tier,
                                           .group = reservation ? reservation->group : payload->group,
                                           .reservation = reservation, .bytes = payload->size,
                                           .nowait = (flags & SPW_MAP_NOWAIT) != 0};
    payload->fetch = fetch;
    return SPW_OK;
}

int spw__map_look_locked(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                         struct spw__mapped *mapped, struct spw__fetch **fetch)
{
    const spw_tier *tier = &mapped->tier;
    const bool together = spw__payload_contiguous_locked(payload, &mapped->tier, &mapped->address);
    const bool lost = together && spw__loss_of(payload->manager, mapped->tier);
    const bool here = together && !lost && ((flags & SPW_MAP_HERE) || *tier == SPW_PLACE_TIER(place));
    int rc = payload->cancelled ? spw__payload_check_locked(payload) : SPW_OK;
    *fetch = NULL;
    if (rc == SPW_OK)
        rc = spw__payload_check_lost_locked(payload, (flags & SPW_MAP_DISCARD) != 0);
    if (rc == SPW_OK)
        rc = spw__arrival_check_locked(payload);
    if (rc != SPW_OK)
        return rc;
    if ((flags & SPW_MAP_WRITE) && payload->sealed)
        return spw__fail(SPW_ESEALED, "it is sealed: its content is immutable (see spw_buffer_make_writable)");
    if (!payload->fetch && (here || payload->n_pieces == 0))
        return open_locked(payload, flags, mapped);
    if (payload->views.n)
        return spw__fail(SPW_EMAPPED, "it is mapped in %s at this moment; unmap it there first",
                         spw_tier_name(*tier));
    if ((flags & SPW_MAP_NOMOVE) && !here)
        return spw__fail(SPW_EWRONGTIER, "it does not lie in %s; map it without NOMOVE to move it",
                         spw_tier_name(SPW_PLACE_TIER(place)));
    if ((flags & SPW_MAP_NOWAIT) && (payload->fetch || !all_in_memory_locked(payload)))
        return spw__fail(SPW_EAGAIN, "mapping it would have to wait for a move");
    if (payload->fetch)
        return SPW_EAGAIN;
    rc = create_fetch_locked(payload, SPW_PLACE_TIER(place), flags, options, fetch);
    return rc == SPW_OK ? SPW_EAGAIN : rc;
}

void spw__map_fetched(struct spw__payload *payload)
{
    spw__payload_purge(payload);
    spw__waitset_signal_object(&payload->manager->waits, payload);
    spw__pressure_kick(payload->manager, SPW_TIER_HOST);
}

int spw__payload_map(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                     struct spw__mapped *mapped)
{
    const spw_wait_options *wait = &options->wait;
    uint64_t deadline_ns = 0; /* the clock is asked only when there is something to wait for */
    struct spw__waitset *waits = &payload->manager->waits;
    struct spw__fetch *fetch = NULL;
    bool fetched = false, entered = false;
    int rc;
    *mapped = (struct spw__mapped){.tier = SPW_PLACE_TIER(place)};
    spw__mutex_lock(&payload->lock);
    while ((rc = spw__map_look_locked(payload, place, flags, options, mapped, &fetch)) == SPW_EAGAIN &&
           !(flags & SPW_MAP_NOWAIT && !fetch)) {
        if (!entered) {
            deadline_ns = spw__deadline_ns(payload->manager, wait);
            spw__waitset_enter(waits);
        }
        entered = true;
        if (fetch) {
            fetched = true;
            spw__mutex_unlock(&payload->lock);
            rc = run_fetch(fetch, wait, deadline_ns);
        } else {
            rc = spw__payload_wait_unlock(payload, wait, deadline_ns);
            spw__mutex_lock(&payload->lock);
        }
        if (rc != SPW_OK)
            break;
    }
    spw__mutex_unlock(&payload->lock);
    if (fetched)
        spw__map_fetched(payload);
    mapped->inside = entered;
    return rc;
}

int spw__payload_unmap(struct spw__payload *payload, uint32_t view_id, bool write, void *stream)
{
    struct spw_manager *manager = payload->manager;
    int rc = SPW_OK;
    spw__mutex_lock(&payload->lock);
    if (!close_view_locked(payload, view_id)) { /* a copy of a view that was closed */
        spw__mutex_unlock(&payload->lock);
        return spw__fail(SPW_EBADHANDLE, "spw_unmap: the view was closed already");
    }
    if (stream && manager->device && payload->n_pieces && spw__use_note_locked(payload, stream) != SPW_OK) {
        /* What cannot be remembered is waited for, while the pieces are still held. */
        spw__mutex_unlock(&payload->lock);
        rc = spw__device_settle(manager->device, stream);
        spw__mutex_lock(&payload->lock);
    }
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        spw__piece_pin_locked(&payload->pieces[i], -1);
        if (!spw__piece_pinned(&payload->pieces[i]))
            spw__piece_requeue_locked(&payload->pieces[i], false);
    }
    payload->writers -= write;
    spw__arrival_unstrand_locked(payload);
    const bool cancelled = payload->cancelled;
    spw__mutex_unlock(&payload->lock);
    if (cancelled)
        spw__payload_purge(payload);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
    return rc;
}
