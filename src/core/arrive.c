/* Arrivals: see arrive.h. Neighbours: map.c asks, spill/mover has the copy streams and watches the event, use.c orders
 * what comes after. */
#include "src/core/arrive.h"

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/use.h"

struct spw__arrival {
    struct spw__payload *payload; /* one reference */
    bool to_device;
    bool carried;                 /* bytes were copied, and are counted */
    uint64_t started_ns;
    struct spw__move watch;       /* without bytes: the mover's until the event has completed */
};

static bool is_registered(const struct spw_manager *manager, const struct spw__block *block)
{
    return manager->tiers[block->tier].pools[block->pool].registered;
}

/* True if copy engines alone can bring the piece to where it is to go. What a driver reads from pageable memory it may
 * read at once, whatever the stream was told to wait for. What lies on disk alone is not there to fall back on once a
 * writer has come. */
static bool is_within_reach_locked(const struct spw__piece *piece, bool used, bool discard)
{
    const struct spw__block *mem = &piece->mem;
    if (!spw__piece_in_memory_locked(piece))
        return false;
    if (discard || mem->tier == SPW_TIER_DEVICE)
        return true;
    return piece->to.tier == SPW_TIER_DEVICE && (!used || is_registered(piece->payload->manager, mem));
}

static bool all_within_reach_locked(const struct spw__payload *payload, bool discard)
{
    const bool used = spw__use_pending(payload->manager, payload->last_use);
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (!is_within_reach_locked(&payload->pieces[i], used, discard))
            return false;
    return true;
}

static void set_states_locked(struct spw__payload *payload, enum spw__piece_state state)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        payload->pieces[i].state = (uint8_t)state;
}

/* Enqueues the copies; *use: their end. On failure nothing of them runs any more. Payload unlocked: its pieces are
 * FETCHING, and nobody else touches them. */
static int enqueue(const struct spw__arrival *arrival, struct spw__use **use)
{
    const struct spw__payload *payload = arrival->payload;
    struct spw_manager *manager = payload->manager;
    int rc = SPW_OK;
    for (uint32_t i = 0; rc == SPW_OK && i < payload->n_pieces; i++) {
        const struct spw__piece *piece = &payload->pieces[i];
        const struct spw__end to = {.tier = (spw_tier)piece->to.tier, .address = piece->to.address};
        struct spw__end from;
        spw__piece_source_locked(piece, &from);
        rc = spw__mover_enqueue(manager->mover, &from, &to, spw__piece_bytes(piece), payload->last_use);
    }
    void *stream = spw__mover_copy_stream(manager->mover, arrival->to_device);
    if (rc == SPW_OK)
        rc = spw__use_create(manager, stream, use);
    if (rc != SPW_OK) {
        spw_error_info kept;
        spw__error_save(&kept);
        (void)spw__device_settle(manager->device, stream);
        (void)spw__error_restore(&kept);
    }
    return rc;
}

/* The new place is where the payload lies from now on. */
static void publish_locked(struct spw__payload *payload, struct spw__group *group)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        const struct spw__block old = piece->mem;
        piece->to.group = group;
        spw__piece_set_memory(piece, &piece->to);
        piece->from = old;
        piece->state = SPW__PIECE_ARRIVING;
    }
}

/* The payload lies where it came from; what it was to be copied to is given back. */
static void revert_locked(struct spw__payload *payload)
{
    struct spw_manager *manager = payload->manager;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        struct spw__block failed = piece->mem;
        piece->mem = piece->from;
        piece->from = (struct spw__block){.bytes = 0};
        piece->state = SPW__PIECE_IDLE;
        if (spw__block_is(&failed))
            (void)spw__tier_free(spw__tier_of(manager, (spw_tier)failed.tier), &failed);
        spw__piece_requeue_locked(piece, false);
    }
}

/* The copies have completed: the old place is free. */
static void settle_locked(const struct spw__arrival *arrival)
{
    struct spw__payload *payload = arrival->payload;
    struct spw_manager *manager = payload->manager;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        struct spw__block old = piece->from;
        piece->from = (struct spw__block){.bytes = 0};
        piece->state = SPW__PIECE_IDLE;
        if (arrival->carried)
            spw__mover_count_copy(manager->mover, (spw_tier)old.tier, (spw_tier)piece->mem.tier,
                                  spw__piece_bytes(piece), arrival->started_ns);
        if (spw__block_is(&old))
            (void)spw__tier_free(spw__tier_of(manager, (spw_tier)old.tier), &old);
        spw__piece_requeue_locked(piece, false);
    }
}

static void arrived(struct spw__move *watch, int status)
{
    struct spw__arrival *arrival = watch->arg;
    struct spw__payload *payload = arrival->payload;
    struct spw_manager *manager = payload->manager;
    /* On a lost device uses count as over, and what had completed cannot be told: the old place is good in any case.
     * An event that cannot be asked is no failed copy yet: its stream is. */
    if (status == SPW_OK)
        status = spw__loss_check(manager);
    else
        status = spw__device_settle(manager->device, spw__mover_copy_stream(manager->mover, arrival->to_device));
    spw__mutex_lock(&payload->lock);
    if (status == SPW_OK)
        settle_locked(arrival);
    else if (payload->views.n)
        set_states_locked(payload, SPW__PIECE_STRANDED);
    else
        revert_locked(payload);
    spw__mutex_unlock(&payload->lock);
    spw__use_unref(manager, watch->use);
    spw__meta_free(&manager->meta, arrival, sizeof *arrival);
    spw__payload_purge(payload);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

int spw__arrive_locked(struct spw__payload *payload, struct spw__group *group, bool discard)
{
    struct spw_manager *manager = payload->manager;
    struct spw__use *use = NULL;
    struct spw__arrival *arrival =
        all_within_reach_locked(payload, discard) ? spw__meta_alloc(&manager->meta, sizeof *arrival) : NULL;
    if (!arrival)
        return SPW_EAGAIN;
    *arrival = (struct spw__arrival){.payload = payload, .carried = !discard,
                                     .to_device = payload->pieces[0].to.tier == SPW_TIER_DEVICE,
                                     .started_ns = spw__clock_now_ns(manager->env.clock)};
    int rc = SPW_OK;
    if (discard) {
        use = payload->last_use; /* the old place is in use until then, and nothing else is awaited */
    } else {
        set_states_locked(payload, SPW__PIECE_FETCHING);
        spw__mutex_unlock(&payload->lock);
        rc = enqueue(arrival, &use);
        spw__mutex_lock(&payload->lock);
    }
    if (rc != SPW_OK) {
        set_states_locked(payload, SPW__PIECE_IDLE);
        spw__meta_free(&manager->meta, arrival, sizeof *arrival);
        return spw__loss_of(manager, SPW_TIER_DEVICE) ? SPW_EAGAIN : rc; /* moves find another copy, if there is one */
    }
    publish_locked(payload, group);
    spw__payload_ref(payload);
    arrival->watch = (struct spw__move){.done = arrived, .arg = arrival};
    if (!spw__fault(SPW__FAULT_SKIP_FREE_WAIT))
        arrival->watch.use = spw__use_ref(use);
    if (!discard) {
        spw__use_unref(manager, payload->last_use);
        payload->last_use = use;
    }
    spw__mover_submit(manager->mover, &arrival->watch);
    return SPW_OK;
}

int spw__arrival_check_locked(const struct spw__payload *payload)
{
    const bool fails = spw__payload_arrives_locked(payload) && payload->views.n &&
                       spw__loss_of(payload->manager, SPW_TIER_DEVICE);
    if (!fails && (payload->n_pieces == 0 || payload->pieces[0].state != SPW__PIECE_STRANDED))
        return SPW_OK;
    const spw_error_info info = {.place = SPW_DEVICE, .requested_bytes = payload->size};
    return spw__fail_info(&info, SPW_EDEVICE,
                          "the device was lost while it copied this buffer to %s, where it is mapped: %s; once it is "
                          "unmapped it lies in %s as before",
                          spw_tier_name((spw_tier)payload->pieces[0].mem.tier),
                          spw__device_loss(payload->manager->device),
                          spw_tier_name((spw_tier)payload->pieces[0].from.tier));
}

int spw__arrival_look_locked(const struct spw__payload *payload)
{
    return spw__payload_arrives_locked(payload) ? SPW_EAGAIN : spw__arrival_check_locked(payload);
}

void spw__arrival_unstrand_locked(struct spw__payload *payload)
{
    if (payload->views.n == 0 && payload->n_pieces && payload->pieces[0].state == SPW__PIECE_STRANDED)
        revert_locked(payload);
}
