/* Eviction of pieces: see evict.h. Neighbours: pump.c asks, and hole.c for windows; rank.c says which piece goes,
 * spill/mover carries, payload.c keeps the states. */
#include "src/core/evict.h"

#include "pool/base/error.h"
#include "src/core/group.h"
#include "src/core/hole.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/rank.h"
#include "src/core/use.h"

/* What a spill is taken to cost before any was measured. */
#define UNMEASURED_NS_PER_MIB UINT64_C(500000)

static struct spw__piece *piece_of(struct spw__item *item)
{
    return (struct spw__piece *)(void *)item;
}

bool spw__evict_claim(struct spw__item *item)
{
    return !spw__piece_pinned(piece_of(item)) && spw__payload_try_ref(piece_of(item)->payload);
}

/* Counts bytes as about to be free in a queue's pool, and for the group that they are charged to; gone: they are, or
 * stay. */
static void note_leaving(struct spw__victims *queue, struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    (void)atomic_fetch_add(&queue->leaving_bytes, bytes);
    spw__group_note_leaving(group, tier, (int64_t)bytes);
}

static void note_gone(struct spw__victims *queue, struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    (void)atomic_fetch_sub(&queue->leaving_bytes, bytes);
    spw__group_note_leaving(group, tier, -(int64_t)bytes);
}

static struct spw__victims *victims_of(struct spw_manager *manager, const struct spw__block *block)
{
    return &manager->victims[block->tier][block->pool];
}

/* A clean copy lies on disk: forget the one in memory. */
static void drop_locked(struct spw__piece *piece)
{
    struct spw_manager *manager = piece->payload->manager;
    spw__core_count(manager, SPW__CORE_DROP_BYTES + piece->mem.tier, piece->mem.bytes);
    spw__tier_free(spw__tier_of(manager, (spw_tier)piece->mem.tier), &piece->mem);
}

/* The first memory tier that what lies in tier may go to. Admission never causes a copy from device to pinned_host:
 * what came too late for the device is admitted there itself. */
static spw_tier first_lower(spw_tier tier, bool admission)
{
    return tier == SPW_TIER_DEVICE && admission ? SPW_TIER_HOST : (spw_tier)(tier + 1);
}

/* The first lower memory tier that has room at once; false: none. */
static bool find_lower_locked(struct spw__piece *piece, bool admission, struct spw__block *out)
{
    struct spw_manager *manager = piece->payload->manager;
    for (spw_tier tier = first_lower((spw_tier)piece->mem.tier, admission); tier < SPW__MEMORY_TIERS; tier++) {
        struct spw__tier *lower = spw__tier_of(manager, tier);
        if (!lower->present)
            continue;
        if (spw__tier_try(lower, piece->payload->group, spw__piece_bytes(piece), out) == SPW_OK)
            return true;
        spw__waitset_retry(&manager->waits, SPW__CHANNEL(tier));
    }
    return false;
}

/* What is published, and what is given back, when a move that was to evict a piece is over. */
static void settle_locked(struct spw__piece *piece, struct spw__move *move, int status, struct spw__block *to_free)
{
    struct spw_manager *manager = piece->payload->manager;
    const bool to_disk = move->to.tier == SPW_TIER_DISK;
    /* A map came in between, and what its stream was given is not over: the move came after earlier uses only. */
    struct spw__use *last_use = piece->payload->last_use;
    const bool used = last_use != move->use && spw__use_holds(manager, last_use);
    const bool stays = status != SPW_OK || spw__piece_pinned(piece) || used;
    *to_free = (struct spw__block){.bytes = 0};
    if (to_disk && status == SPW_OK && move->bytes) {
        piece->disk = move->to.extent;
        piece->sum = move->sum;
        piece->written_ns = spw__clock_now_ns(manager->env.clock);
    }
    if (!stays) {
        *to_free = piece->mem;
        piece->mem = (struct spw__block){.bytes = 0};
        const unsigned why = move->bytes == 0                  ? SPW__CORE_DROP_BYTES
                             : move->to.tier == move->from.tier ? SPW__CORE_HOLE_BYTES
                                                                : SPW__CORE_SPILL_BYTES;
        spw__core_count(manager, why + to_free->tier, to_free->bytes);
    }
    if (!to_disk && stays)
        *to_free = piece->to;
    else if (!to_disk)
        spw__piece_set_memory(piece, &piece->to);
    piece->to = (struct spw__block){.bytes = 0};
}

static void evict_done(struct spw__move *move, int status)
{
    struct spw__piece *piece = move->arg;
    struct spw__payload *payload = piece->payload;
    struct spw_manager *manager = payload->manager;
    struct spw__block to_free;
    spw__mutex_lock(&payload->lock);
    const struct spw__block source = piece->mem;
    settle_locked(piece, move, status, &to_free);
    piece->state = SPW__PIECE_IDLE;
    piece->move = NULL;
    spw__piece_requeue_locked(piece, status != SPW_OK && status != SPW_ECANCELED);
    struct spw__use *use = move->use;
    struct spw__hole *hole = piece->hole;
    piece->hole = NULL;
    const bool cancelled = payload->cancelled;
    spw__mutex_unlock(&payload->lock);

    if (status != SPW_OK && status != SPW_ECANCELED)
        spw__pressure_note_failure(manager, (spw_tier)source.tier);
    if (spw__block_is(&to_free))
        spw__tier_free(spw__tier_of(manager, (spw_tier)to_free.tier), &to_free);
    note_gone(victims_of(manager, &source), source.group, (spw_tier)source.tier, source.bytes);
    spw__group_unuse(manager, source.group);
    spw__use_unref(manager, use);
    spw__move_give(manager, move);
    if (cancelled)
        spw__payload_purge(payload);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
    if (hole)
        spw__hole_piece_done(hole);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* Sends the piece to the block found for it, or to disk. A piece that lies there already only waits for its last use on
 * the device; but when it moves within its tier its bytes go with it, wherever else they lie. */
static void describe_move_locked(struct spw__piece *piece, struct spw__move *move)
{
    struct spw__payload *payload = piece->payload;
    move->bytes = piece->disk.bytes && !spw__block_is(&piece->to) ? 0 : spw__piece_bytes(piece);
    move->group = payload->group;
    move->identity = payload->identity + piece->index;
    move->to = (struct spw__end){.tier = SPW_TIER_DISK};
    if (spw__block_is(&piece->to))
        move->to = (struct spw__end){.tier = (spw_tier)piece->to.tier, .address = piece->to.address,
                                     .capacity = piece->to.bytes};
    move->use = spw__use_ref(payload->last_use);
    move->done = evict_done;
    move->arg = piece;
    spw__piece_source_locked(piece, &move->from);
    piece->state = SPW__PIECE_SPILLING;
    piece->move = move;
    spw__group_use(piece->mem.group); /* not only charged: the count ends after the charge */
    note_leaving(victims_of(payload->manager, &piece->mem), piece->mem.group, (spw_tier)piece->mem.tier,
                 piece->mem.bytes);
}

/* What the victim may go to gets memory first, since it cannot once the payload is locked. */
static void grow_lower(struct spw_manager *manager, const struct spw__victim *victim)
{
    const struct spw__piece *piece = piece_of(victim->item);
    const uint64_t bytes = spw__piece_bytes(piece);
    for (spw_tier tier = first_lower(victim->tier, victim->admission); tier < SPW__MEMORY_TIERS; tier++)
        if (spw__ledger_free_on_path(piece->payload->group, tier) >= bytes &&
            spw__tier_grow_for(spw__tier_of(manager, tier), bytes))
            return;
}

/* Decides where the piece goes, and prepares its move if it takes one. */
static enum spw__evict_result start_locked(struct spw__piece *piece, struct spw__move *move,
                                           const struct spw__victim *victim)
{
    struct spw_manager *manager = piece->payload->manager;
    const bool clean = piece->disk.bytes != 0;
    /* Since it was popped it may have been mapped, moved to another tier, or queued again. */
    if (!spw__piece_evictable_locked(piece) || victims_of(manager, &piece->mem) != victim->queue)
        return SPW__EVICT_SKIPPED;
    spw__victims_remove(victim->queue, &piece->item);
    if (clean && !spw__use_holds(manager, piece->payload->last_use)) {
        drop_locked(piece);
        return SPW__EVICT_STARTED;
    }
    if (move && (clean || find_lower_locked(piece, victim->admission, &piece->to) ||
                 (manager->store && !victim->disk_full))) {
        describe_move_locked(piece, move);
        return SPW__EVICT_STARTED;
    }
    if (move && manager->store) {
        spw__piece_requeue_locked(piece, true);
        return SPW__EVICT_NO_DISK;
    }
    spw__victims_put_back(spw__piece_share_locked(piece), &piece->item, clean ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY);
    return SPW__EVICT_BUSY;
}

enum spw__evict_result spw__evict_start(const struct spw__victim *victim)
{
    struct spw__piece *piece = piece_of(victim->item);
    struct spw__payload *payload = piece->payload;
    struct spw_manager *manager = payload->manager;
    struct spw__move *move = spw__move_take(manager);
    grow_lower(manager, victim);
    spw__mutex_lock(&payload->lock);
    const enum spw__evict_result result = start_locked(piece, move, victim);
    const bool moves = piece->move && piece->move == move;
    spw__mutex_unlock(&payload->lock);
    note_gone(victim->queue, payload->group, victim->tier, victim->bytes); /* now counted by the move, or free */
    if (moves) {
        spw__mover_submit(manager->mover, move); /* the reference goes with it */
        return result;
    }
    if (move)
        spw__move_give(manager, move);
    spw__payload_unref(payload);
    return result;
}

/* Room in the hole's own tier; what is claimed for it is not offered. */
static bool find_beside_locked(struct spw__piece *piece, const struct spw__hole *hole)
{
    struct spw_manager *manager = piece->payload->manager;
    if (spw__tier_try(spw__tier_of(manager, hole->tier), piece->payload->group, spw__piece_bytes(piece), &piece->to) ==
        SPW_OK)
        return true;
    spw__waitset_retry(&manager->waits, SPW__CHANNEL(hole->tier));
    return false;
}

/* Takes the piece out of the window by whatever is cheapest; false: it stays. What its group's minimum protects may
 * move within the tier, and no further. */
static bool leave_window_locked(struct spw__piece *piece, struct spw__move *move, struct spw__hole *hole)
{
    struct spw_manager *manager = piece->payload->manager;
    const bool stays = atomic_load(&manager->n_groups) &&
                       spw__rank_protects(piece->payload->group, hole->tier, piece->mem.bytes, hole->requester);
    if (!stays && piece->disk.bytes && !spw__use_holds(manager, piece->payload->last_use)) {
        drop_locked(piece);
        return true;
    }
    if (!move)
        return false;
    const bool alone = piece->payload->n_pieces == 1; /* see is_movable in hole.c */
    if (stays ? !(alone && find_beside_locked(piece, hole))
              : !piece->disk.bytes && !(alone && find_beside_locked(piece, hole)) &&
                    !find_lower_locked(piece, hole->admission, &piece->to) && !manager->store)
        return false;
    piece->hole = hole;
    describe_move_locked(piece, move);
    return true;
}

bool spw__evict_for_hole(struct spw__piece *piece, uint32_t node, struct spw__hole *hole)
{
    struct spw__payload *payload = piece->payload;
    struct spw_manager *manager = payload->manager;
    struct spw__move *move = spw__move_take(manager);
    spw__mutex_lock(&payload->lock);
    if (spw__piece_evictable_locked(piece) && piece->mem.slot == 0 && piece->mem.node == node &&
        piece->mem.pool == hole->pool && piece->mem.tier == hole->tier) {
        spw__victims_remove(victims_of(manager, &piece->mem), &piece->item);
        if (!leave_window_locked(piece, move, hole))
            spw__piece_requeue_locked(piece, false);
    }
    const bool moves = piece->move && piece->move == move;
    spw__mutex_unlock(&payload->lock);
    if (moves) {
        spw__mover_submit(manager->mover, move); /* the reference goes with it */
        return true;
    }
    if (move)
        spw__move_give(manager, move);
    spw__payload_unref(payload);
    return false;
}

bool spw__victim_pop(struct spw_manager *manager, const struct spw__choice *choice, struct spw__victim *victim)
{
    if (!spw__rank_pop(manager, choice, victim))
        return false;
    victim->bytes = victim->item->bytes;
    note_leaving(victim->queue, piece_of(victim->item)->payload->group, victim->tier, victim->bytes);
    return true;
}

/* Where what leaves tier goes, when there is room: the next one that is present. */
static spw_tier below(const struct spw_manager *manager, spw_tier tier)
{
    do
        tier++;
    while (tier < SPW_TIER_DISK && !manager->tiers[tier].present);
    return tier;
}

static uint64_t edge_ns_per_mib(const struct spw_manager *manager, spw_tier from, spw_tier to)
{
    const unsigned edge = SPW__CORE_MOVER + SPW__MOVER_EDGES + 3 * ((unsigned)from * SPW_TIER_COUNT + (unsigned)to);
    if ((from == SPW_TIER_DISK || to == SPW_TIER_DISK) && !manager->store)
        return UINT64_MAX;
    const uint64_t bytes = spw__counter_sum(&manager->counters, edge + 1);
    const uint64_t ns = spw__counter_sum(&manager->counters, edge + 2);
    return bytes ? (uint64_t)((double)ns / (double)bytes * (1 << 20)) : UNMEASURED_NS_PER_MIB;
}

uint64_t spw__evict_ns_per_mib(const struct spw_manager *manager, spw_tier tier)
{
    return edge_ns_per_mib(manager, tier, below(manager, tier));
}

uint64_t spw__reload_ns_per_mib(const struct spw_manager *manager, spw_tier tier)
{
    return edge_ns_per_mib(manager, below(manager, tier), tier);
}

bool spw__evict_clean(struct spw_manager *manager, struct spw__group *requester, spw_tier tier, uint64_t bytes)
{
    const struct spw__group *short_of = spw__ledger_short(requester, tier, bytes);
    const struct spw__choice choice = {.tier = tier, .clean_only = true, .requester = requester,
                                       .lacking = short_of && short_of->parent ? short_of : &manager->root};
    struct spw__victim victim = {.item = NULL};
    bool any = false;
    while (spw__ledger_free_on_path(requester, tier) < bytes && spw__victim_pop(manager, &choice, &victim)) {
        const enum spw__evict_result result = spw__evict_start(&victim);
        any |= result == SPW__EVICT_STARTED;
        if (result == SPW__EVICT_BUSY)
            break;
    }
    return any;
}

/* A clean piece of those whose copies on disk are of use: any, or those of the group whose maximum is short. */
static struct spw__item *pop_clean(struct spw_manager *manager, spw_tier tier, uint32_t pool,
                                   const struct spw__group *below)
{
    return below ? spw__rank_pop_coldest_below(&below->shares[manager->first_share[tier] + pool])
                 : spw__victims_pop(&manager->victims[tier][pool], true, spw__evict_claim);
}

bool spw__evict_reclaim_disk(void *arg, struct spw__group *group, uint64_t bytes)
{
    struct spw_manager *manager = arg;
    const struct spw__group *lacking = spw__ledger_short(group, SPW_TIER_DISK, bytes);
    const struct spw__group *below = lacking && lacking->parent ? lacking : NULL;
    uint64_t freed = 0;
    for (unsigned tier = SPW__MEMORY_TIERS; tier-- > 0;)
        for (uint32_t pool = 0; pool < manager->tiers[tier].n_pools; pool++)
            while (freed < bytes) {
                struct spw__item *item = pop_clean(manager, (spw_tier)tier, pool, below);
                if (!item)
                    break;
                struct spw__piece *piece = piece_of(item);
                struct spw__payload *payload = piece->payload;
                struct spw__extent extent = {.bytes = 0};
                spw__mutex_lock(&payload->lock);
                if (spw__piece_evictable_locked(piece)) {
                    extent = piece->disk;
                    piece->disk = (struct spw__extent){.bytes = 0};
                }
                spw__piece_requeue_locked(piece, false);
                spw__mutex_unlock(&payload->lock);
                if (extent.bytes)
                    spw__store_free(manager->store, &extent);
                freed += extent.bytes;
                spw__payload_unref(payload);
            }
    return freed != 0;
}
