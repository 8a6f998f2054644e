/* Maps: pinning a payload where it is, or fetching it first. Neighbours: pressure.c finds room, spill/mover carries.
 *
 * A fetch is a resumable state machine; the mapping thread steps it and sleeps between the steps. When its caller gives
 * up while bytes are on their way, the fetch finishes by itself and the bytes stay where they were asked for.
 *
 *     ROOM   --one block for all pieces granted-->  SETTLE
 *     SETTLE --no piece is being spilled any more-->  MOVING    (a spill in the queue is cancelled, one in flight awaited)
 *     MOVING --last move done (fetch_done)-->  DONE
 *
 * While a fetch exists other maps of the payload wait for it. In ROOM its pieces may still be victims (room for the whole
 * may have to come from its own parts); from SETTLE on (payload.gathering) they are not.
 */
#include "src/core/map.h"

#include <sched.h>

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

enum phase { ROOM, SETTLE, MOVING, DONE };

struct spw__fetch {
    struct spw__request request;
    struct spw__payload *payload;
    spw_tier tier;
    enum phase phase;     /* guarded by the payload's lock from SETTLE on, as all below */
    uint32_t outstanding; /* moves in flight */
    bool abandoned;       /* nobody waits for it any more */
    bool discard;         /* the old content is not needed */
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

/* Waits until the payload's state changes; the payload is locked on entry and unlocked on return. */
static int wait_for_change_unlock(struct spw__payload *payload, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw__waitset *waits = &payload->manager->waits;
    struct spw__waiter waiter = {.object = payload, .channels = SPW__CHANNEL_OBJECT, .deadline_ns = deadline_ns,
                                 .cancel = wait ? wait->cancel : NULL};
    spw__wait_enqueue(waits, &waiter);
    spw__mutex_unlock(&payload->lock);
    const int rc = spw__wait_block(waits, &waiter);
    return rc == SPW_OK ? rc : spw__fail(rc, "the wait for a move of this buffer ended: %s", spw_strerror(rc));
}

static void end_fetch_locked(struct spw__payload *payload)
{
    payload->fetch = NULL;
    payload->gathering = false;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        spw__piece_requeue_locked(&payload->pieces[i], false);
}

/* A move of the fetch is over: publish the new place, or give the new memory back. */
static void fetch_done(struct spw__move *move, int status)
{
    struct spw__piece *piece = move->arg;
    struct spw__payload *payload = piece->payload;
    struct spw_manager *manager = payload->manager;
    struct spw__fetch *fetch = payload->fetch;
    spw__mutex_lock(&payload->lock);
    struct spw__block to_free = piece->to;
    if (status == SPW_OK) {
        to_free = piece->mem;
        spw__piece_set_memory(piece, &piece->to);
    } else if (fetch->status == SPW_OK) {
        fetch->status = status;
        fetch->error = *spw_error_detail();
    }
    if (status == SPW_ECORRUPT && !spw__block_is(&piece->mem))
        piece->lost = SPW_ECORRUPT; /* the sole copy is gone */
    piece->to = (struct spw__block){.bytes = 0};
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
    if (abandoned)
        free_fetch(manager, fetch);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* True when a piece is still being spilled: those that have not started are cancelled. */
static bool unsettled_locked(struct spw__payload *payload)
{
    bool unsettled = false;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].state != SPW__PIECE_IDLE) {
            spw__mover_cancel(payload->pieces[i].move);
            unsettled = true;
        }
    return unsettled;
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
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (spw__block_is(&payload->pieces[i].to))
            spw__tier_free(tier, &payload->pieces[i].to);
    return spw__fail(SPW_ENOMETA, "no metadata memory to map a buffer of %u pieces; raise meta= or piece=",
                     payload->n_pieces);
}

/* Content that nobody needs is not carried: the new memory simply takes the old one's place. */
static void discard_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        struct spw__block old = piece->mem;
        spw__piece_set_memory(piece, &piece->to);
        piece->to = (struct spw__block){.bytes = 0};
        if (spw__block_is(&old))
            spw__tier_free(spw__tier_of(payload->manager, (spw_tier)old.tier), &old);
    }
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

/* Does what can be done now: SPW_OK when DONE, SPW_EAGAIN (payload locked) when the next step waits for a change. */
static int step_locked(struct spw__fetch *fetch)
{
    struct spw__payload *payload = fetch->payload;
    if (fetch->phase == SETTLE && !unsettled_locked(payload)) {
        const int rc = cut_destination_locked(fetch);
        if (rc != SPW_OK)
            return rc;
        if (fetch->discard && !spw__use_pending(payload->manager, payload->last_use)) {
            discard_locked(fetch);
        } else {
            start_moves_locked(fetch);
            const uint32_t n = payload->n_pieces;
            struct spw__move *moves = fetch->moves;
            spw__mutex_unlock(&payload->lock);
            for (uint32_t i = 0; i < n; i++)
                spw__mover_submit(payload->manager->mover, &moves[i]);
            spw__mutex_lock(&payload->lock);
        }
    }
    return fetch->phase == DONE ? SPW_OK : SPW_EAGAIN;
}

/* Runs a fetch to its end. Payload unlocked on entry, locked on return, with payload->fetch cleared. */
static int run_fetch(struct spw__fetch *fetch, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw__payload *payload = fetch->payload;
    struct spw_manager *manager = payload->manager;
    int rc = spw__request_run(&fetch->request, wait);
    spw__mutex_lock(&payload->lock);
    if (rc == SPW_OK) {
        fetch->phase = SETTLE;
        payload->gathering = true;
        for (uint32_t i = 0; i < payload->n_pieces; i++)
            spw__piece_requeue_locked(&payload->pieces[i], false);
    }
    while (rc == SPW_OK && (rc = step_locked(fetch)) == SPW_EAGAIN) {
        rc = wait_for_change_unlock(payload, wait, deadline_ns);
        spw__mutex_lock(&payload->lock);
    }
    if (rc != SPW_OK && fetch->phase == MOVING) {
        fetch->abandoned = true; /* fetch_done of the last move frees it */
        return rc;
    }
    if (rc == SPW_OK && fetch->status != SPW_OK)
        rc = spw__error_restore(&fetch->error);
    struct spw__block unused = fetch->request.block;
    end_fetch_locked(payload);
    if (spw__block_is(&unused))
        spw__tier_free(spw__tier_of(manager, fetch->tier), &unused);
    free_fetch(manager, fetch);
    return rc;
}

static bool all_in_memory_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (!spw__block_is(&payload->pieces[i].mem))
            return false;
    return true;
}

static int lost_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].lost)
            return spw__fail(payload->pieces[i].lost, "piece %u of this buffer is lost: its only copy, on disk, differed "
                                                      "from what was written", i);
    return SPW_OK;
}

/* Holds every piece where it is. A spill of one that has not started is called off, one in flight leaves a clean copy. */
static void pin_locked(struct spw__payload *payload, bool write)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        piece->pins++;
        if (piece->state == SPW__PIECE_SPILLING)
            spw__mover_cancel(piece->move);
        spw__piece_requeue_locked(piece, false);
    }
    payload->views++;
    payload->writers += write;
}

static int create_fetch_locked(struct spw__payload *payload, spw_tier tier, uint32_t flags, struct spw__fetch **out)
{
    struct spw_manager *manager = payload->manager;
    struct spw__fetch *fetch = spw__meta_alloc(&manager->meta, fetch_size(payload->n_pieces));
    *out = fetch;
    if (!fetch)
        return spw__fail(SPW_ENOMETA, "no metadata memory to map a buffer of %u pieces; raise meta=", payload->n_pieces);
    fetch->payload = payload;
    fetch->tier = tier;
    fetch->n_pieces = payload->n_pieces;
    fetch->discard = (flags & SPW_MAP_DISCARD) != 0;
    fetch->request = (struct spw__request){.manager = manager, .group = payload->group, .first = tier, .lowest = tier,
                                           .bytes = payload->size, .nowait = (flags & SPW_MAP_NOWAIT) != 0};
    payload->fetch = fetch;
    return SPW_OK;
}

/* What a map finds: SPW_OK and pinned; SPW_EAGAIN and *fetch set or NULL (another fetch is at work); or an error. */
static int look_locked(struct spw__payload *payload, spw_place place, uint32_t flags, spw_tier *tier, uint64_t *address,
                       struct spw__fetch **fetch)
{
    const bool together = spw__payload_contiguous_locked(payload, tier, address);
    const bool here = together && ((flags & SPW_MAP_HERE) || *tier == SPW_PLACE_TIER(place));
    int rc = lost_locked(payload);
    *fetch = NULL;
    if (rc != SPW_OK)
        return rc;
    if (!payload->fetch && (here || payload->n_pieces == 0)) {
        pin_locked(payload, (flags & SPW_MAP_WRITE) != 0);
        return SPW_OK;
    }
    if (payload->views)
        return spw__fail(SPW_EMAPPED, "the buffer is mapped in %s at this moment; unmap it there first",
                         spw_tier_name(*tier));
    if ((flags & SPW_MAP_NOMOVE) && !here)
        return spw__fail(SPW_EWRONGTIER, "the buffer does not lie in %s; map it without NOMOVE to move it",
                         spw_tier_name(SPW_PLACE_TIER(place)));
    if ((flags & SPW_MAP_NOWAIT) && (payload->fetch || !all_in_memory_locked(payload)))
        return spw__fail(SPW_EAGAIN, "mapping this buffer would have to wait for a move");
    if (payload->fetch)
        return SPW_EAGAIN;
    rc = create_fetch_locked(payload, SPW_PLACE_TIER(place), flags, fetch);
    return rc == SPW_OK ? SPW_EAGAIN : rc;
}

int spw__payload_map(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                     spw_tier *tier, uint64_t *address)
{
    const spw_wait_options *wait = options ? &options->wait : NULL;
    const uint64_t deadline_ns = spw__deadline_ns(payload->manager, wait);
    struct spw__waitset *waits = &payload->manager->waits;
    struct spw__fetch *fetch = NULL;
    bool fetched = false, entered = false;
    int rc;
    *tier = place == SPW_PLACE_NONE ? SPW_TIER_HOST : SPW_PLACE_TIER(place);
    *address = 0;
    spw__mutex_lock(&payload->lock);
    while ((rc = look_locked(payload, place, flags, tier, address, &fetch)) == SPW_EAGAIN &&
           !(flags & SPW_MAP_NOWAIT && !fetch)) {
        if (!entered)
            spw__waitset_enter(waits);
        entered = true;
        if (fetch) {
            fetched = true;
            spw__mutex_unlock(&payload->lock);
            rc = run_fetch(fetch, wait, deadline_ns);
        } else {
            rc = wait_for_change_unlock(payload, wait, deadline_ns);
            spw__mutex_lock(&payload->lock);
        }
        if (rc != SPW_OK)
            break;
    }
    spw__mutex_unlock(&payload->lock);
    if (fetched) { /* other maps of this payload waited for the fetch to end */
        spw__waitset_signal_object(waits, payload);
        spw__pressure_kick(payload->manager, SPW_TIER_HOST);
    }
    if (entered)
        spw__waitset_leave(waits);
    return rc;
}

/* The watched use has completed: whoever waits for the payload looks again. */
static void use_completed(struct spw__move *move, int status)
{
    struct spw__payload *payload = move->arg;
    struct spw_manager *manager = payload->manager;
    struct spw__use *use = move->use;
    (void)status; /* a lost context ends the use as well; who reads the bytes is told by the copy that fails */
    spw__mutex_lock(&payload->lock);
    payload->watched = false;
    spw__mutex_unlock(&payload->lock);
    spw__use_unref(manager, use);
    spw__move_give(manager, move);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
}

/* Lets the mover watch the last use, unless it does already, or has no move to spare: then it is looked at again soon,
 * since all moves in flight end in a signal. */
static void watch_use_locked(struct spw__payload *payload)
{
    struct spw__move *move = payload->watched ? NULL : spw__move_take(payload->manager);
    if (!move)
        return;
    payload->watched = true;
    move->use = spw__use_ref(payload->last_use);
    move->done = use_completed;
    move->arg = payload;
    spw__payload_ref(payload);
    spw__mover_submit(payload->manager->mover, move);
}

int spw__payload_order_use(struct spw__payload *payload, void *stream, const spw_wait_options *wait)
{
    struct spw_manager *manager = payload->manager;
    const uint64_t deadline_ns = spw__deadline_ns(manager, wait);
    int rc = SPW_OK;
    spw__waitset_enter(&manager->waits);
    spw__mutex_lock(&payload->lock);
    if (stream && payload->last_use)
        rc = spw__device_event_order(manager->device, stream, payload->last_use->event);
    while (rc == SPW_OK && !stream && spw__use_pending(manager, payload->last_use)) {
        watch_use_locked(payload);
        if (!payload->watched) {
            spw__mutex_unlock(&payload->lock);
            (void)sched_yield();
        } else {
            rc = wait_for_change_unlock(payload, wait, deadline_ns);
        }
        spw__mutex_lock(&payload->lock);
    }
    spw__mutex_unlock(&payload->lock);
    spw__waitset_leave(&manager->waits);
    return rc;
}

int spw__payload_await_piece(struct spw__piece *piece)
{
    struct spw__payload *payload = piece->payload;
    int rc = SPW_OK;
    spw__mutex_lock(&payload->lock);
    while (rc == SPW_OK && piece->state != SPW__PIECE_IDLE) {
        rc = wait_for_change_unlock(payload, NULL, UINT64_MAX); /* ends with the move: it is in flight */
        spw__mutex_lock(&payload->lock);
    }
    spw__mutex_unlock(&payload->lock);
    return rc;
}

int spw__payload_unmap(struct spw__payload *payload, bool write, void *stream)
{
    int rc = SPW_OK;
    spw__mutex_lock(&payload->lock);
    if (payload->views == 0) { /* a copy of a view that was closed */
        spw__mutex_unlock(&payload->lock);
        return spw__fail(SPW_EBADHANDLE, "spw_unmap: no view is open on this buffer");
    }
    if (stream && payload->n_pieces && payload->pieces[0].mem.tier == SPW_TIER_DEVICE)
        rc = spw__payload_note_use_locked(payload, stream);
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        payload->pieces[i].pins--;
        spw__piece_requeue_locked(&payload->pieces[i], false);
    }
    payload->views--;
    payload->writers -= write;
    spw__mutex_unlock(&payload->lock);
    spw__waitset_signal_object(&payload->manager->waits, payload);
    spw__pressure_kick(payload->manager, SPW_TIER_HOST);
    return rc;
}
