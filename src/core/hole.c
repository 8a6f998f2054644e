/* Opening holes. Neighbours: pressure.c decides when, pool/range_window.c finds the window, evict.c moves the pieces.
 */
#include "src/core/hole.h"

#include "pool/base/error.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/manager.h"
#include "src/core/payload.h"
#include "src/core/pressure.h"
#include "src/core/rank.h"

void spw__hole_init(struct spw__hole *hole, struct spw_manager *manager, spw_tier tier)
{
    hole->manager = manager;
    hole->tier = tier;
    hole->none.bytes = UINT64_MAX;
    spw__mutex_init(&hole->lock, SPW__RANK_HOLE);
}

void spw__hole_finish(struct spw__hole *hole)
{
    spw__mutex_finish(&hole->lock);
}

struct search {
    const struct spw__hole *hole;
    const struct spw__pool *pool;
};

/* A look without the payload's lock: evict_start looks again under it. The pool's lock keeps the piece alive, since its
 * block is live there. */
static bool is_movable(void *arg, uint32_t node, uint64_t bytes)
{
    const struct search *search = arg;
    const struct spw__hole *hole = search->hole;
    const struct spw__piece *piece = spw__pool_owner_locked(search->pool, node);
    if (piece && piece->payload->n_pieces > 1 &&
        spw__rank_protects(piece->payload->group, hole->tier, bytes, hole->requester))
        return false;
    /* Pieces of one buffer are not scattered over memory: to bring them together takes a second block of the whole
     * size. They may go to disk, from where any victim comes back in the same way. */
    return piece && spw__item_is_queued(&piece->item) && !spw__piece_pinned(piece) &&
           (piece->payload->n_pieces == 1 || piece->payload->manager->store);
}

static uint32_t count_live_locked(const struct spw__pool *pool, uint64_t begin, uint64_t end)
{
    uint32_t n = 0;
    for (uint32_t node = spw__range_first_live(pool->range, begin);
         node != SPW__RANGE_NONE && spw__range_offset(pool->range, node) < end;
         node = spw__range_next_live(pool->range, node))
        n++;
    return n;
}

/* Lists the pieces that overlap the window, each with a reference. */
static void list_pieces_locked(struct spw__hole *hole, const struct spw__pool *pool, uint64_t begin, uint64_t end)
{
    for (uint32_t node = spw__range_first_live(pool->range, begin);
         node != SPW__RANGE_NONE && spw__range_offset(pool->range, node) < end;
         node = spw__range_next_live(pool->range, node)) {
        struct spw__piece *piece = spw__pool_owner_locked(pool, node);
        if (piece && spw__payload_try_ref(piece->payload))
            hole->pieces[hole->n_pieces++] = (struct spw__hole_piece){.piece = piece, .node = node};
    }
}

/* Finds and claims the window in one pool, and lists what lies in it. */
static enum spw__hole_result find_window(struct spw__hole *hole, uint32_t index, uint64_t bytes, uint64_t align)
{
    struct spw__tier *tier = spw__tier_of(hole->manager, hole->tier);
    struct spw__pool *pool = &tier->pools[index];
    struct search search = {.hole = hole, .pool = pool};
    const uint64_t charge = spw__tier_charge(tier, bytes);
    uint64_t begin = 0;
    enum spw__hole_result result = SPW__HOLE_NONE;
    spw__mutex_lock(&pool->lock);
    if (spw__range_window(pool->range, charge, spw__hole_align(align), is_movable, &search, &begin) == SPW_OK) {
        const uint32_t room = count_live_locked(pool, begin, begin + charge);
        struct spw__hole_piece *pieces = spw__meta_alloc(&hole->manager->meta, room * sizeof *pieces);
        if (pieces && spw__range_claim(pool->range, begin, charge) == SPW_OK) {
            hole->pool = index;
            hole->offset = begin;
            hole->bytes = charge;
            hole->room = room;
            hole->pieces = pieces;
            hole->n_pieces = 0;
            list_pieces_locked(hole, pool, begin, begin + charge);
            result = SPW__HOLE_CLEARING;
        } else {
            spw__meta_free(&hole->manager->meta, pieces, room * sizeof *pieces);
            result = SPW__HOLE_REFUSED;
        }
    }
    spw__mutex_unlock(&pool->lock);
    return result;
}

/* Counts what may make a window where there was none: memory freed or added, and what becomes movable. */
static uint64_t count_changes(const struct spw__hole *hole)
{
    const struct spw__tier *tier = spw__tier_of(hole->manager, hole->tier);
    uint64_t changes = 0;
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        struct spw__pool *pool = &tier->pools[i];
        changes += atomic_load(&hole->manager->victims[hole->tier][i].arrivals);
        spw__mutex_lock(&pool->lock);
        changes += spw__range_frees(pool->range);
        spw__mutex_unlock(&pool->lock);
    }
    return changes;
}

struct spw__hole_none spw__hole_none_locked(const struct spw__hole *hole)
{
    struct spw__hole_none none = hole->none;
    if (none.bytes != UINT64_MAX && none.changes != count_changes(hole))
        none.bytes = UINT64_MAX;
    return none;
}

/* Another hole may be opened from here on, in this round as often as is left. */
static void deactivate(struct spw__hole *hole, unsigned tries, const struct spw__hole_none *none)
{
    struct spw__group *requester = hole->requester;
    struct spw__pressure *pressure = &hole->manager->pressure[hole->tier];
    spw__mutex_lock(&pressure->lock);
    hole->active = false;
    hole->tries += tries;
    if (none)
        hole->none = *none;
    spw__mutex_unlock(&pressure->lock);
    spw__group_unuse(hole->manager, requester);
}

/* Gives the window up: to who waits for one like it, if it is clear, and else to all who wait. */
static void give_window(struct spw__hole *hole)
{
    struct spw__tier *tier = spw__tier_of(hole->manager, hole->tier);
    struct spw__pool *pool = &tier->pools[hole->pool];
    struct spw__block window = {.address = pool->base + hole->offset, .bytes = hole->bytes,
                                .pool = (uint16_t)hole->pool, .tier = (uint8_t)hole->tier};
    spw__mutex_lock(&pool->lock);
    const bool clear = spw__range_claim_ready(pool->range) &&
                       spw__range_claim_take(pool->range, &window.node) == SPW_OK;
    if (!clear)
        spw__range_claim_drop(pool->range);
    spw__mutex_unlock(&pool->lock);
    if (clear && !spw__pressure_grant(hole->manager, &window)) {
        spw__mutex_lock(&pool->lock);
        (void)spw__range_free(pool->range, window.node);
        spw__mutex_unlock(&pool->lock);
    }
    spw__waitset_signal(&hole->manager->waits, SPW__CHANNEL(hole->tier));
}

/* The window is as clear as it gets. */
static void close_hole(struct spw__hole *hole)
{
    struct spw_manager *manager = hole->manager;
    spw__meta_free(&manager->meta, hole->pieces, hole->room * sizeof *hole->pieces);
    hole->pieces = NULL;
    spw__core_count(manager, SPW__CORE_HOLES + (unsigned)hole->tier, 1);
    give_window(hole);
    deactivate(hole, 1, NULL);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

static bool take_next(struct spw__hole *hole, struct spw__hole_piece *next)
{
    spw__mutex_lock(&hole->lock);
    const bool any = hole->next_piece < hole->n_pieces;
    if (any)
        *next = hole->pieces[hole->next_piece++];
    spw__mutex_unlock(&hole->lock);
    return any;
}

/* Starts moves until enough are in flight; the caller holds one count of working, which it gives back. */
static void work(struct spw__hole *hole)
{
    struct spw__hole_piece next;
    while (atomic_load(&hole->working) <= SPW__HOLE_IN_FLIGHT && take_next(hole, &next)) {
        (void)atomic_fetch_add(&hole->working, 1);
        if (!spw__evict_for_hole(next.piece, next.node, hole))
            (void)atomic_fetch_sub(&hole->working, 1);
    }
    if (atomic_fetch_sub(&hole->working, 1) == 1)
        close_hole(hole);
}

void spw__hole_piece_done(struct spw__hole *hole)
{
    work(hole);
}

enum spw__hole_result spw__hole_open(struct spw_manager *manager, spw_tier which, uint64_t bytes, uint64_t align,
                                     bool admission, struct spw__group *requester)
{
    struct spw__hole *hole = &manager->holes[which];
    const struct spw__tier *tier = spw__tier_of(manager, which);
    const struct spw__hole_none none = {.bytes = bytes, .align = spw__hole_align(align),
                                        .changes = count_changes(hole)};
    enum spw__hole_result result = SPW__HOLE_NONE;
    hole->requester = requester;
    for (uint32_t at = spw__tier_first_route(tier, bytes); at < tier->n_pools && result == SPW__HOLE_NONE; at++)
        result = find_window(hole, tier->route[at], bytes, align);
    if (result != SPW__HOLE_CLEARING) {
        deactivate(hole, result == SPW__HOLE_REFUSED ? SPW__HOLE_TRIES_MAX : 0,
                   result == SPW__HOLE_NONE ? &none : NULL);
        return result;
    }
    hole->admission = admission;
    hole->next_piece = 0;
    atomic_store(&hole->working, 1);
    work(hole);
    return SPW__HOLE_CLEARING;
}
