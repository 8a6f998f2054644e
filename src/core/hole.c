/* Opening holes. Neighbours: pressure.c decides when, pool/range_window.c finds the window, evict.c moves the pieces. */
#include "src/core/hole.h"

#include "pool/base/error.h"
#include "src/core/evict.h"
#include "src/core/manager.h"
#include "src/core/payload.h"
#include "src/core/pressure.h"

void spw__hole_init(struct spw__hole *hole, struct spw_manager *manager, spw_tier tier)
{
    hole->manager = manager;
    hole->tier = tier;
    spw__mutex_init(&hole->lock, SPW__RANK_HOLE);
}

void spw__hole_finish(struct spw__hole *hole)
{
    spw__mutex_finish(&hole->lock);
}

/* A look without the payload's lock: evict_start looks again under it. The pool's lock keeps the piece alive, since its
 * block is live there. */
static bool is_movable(void *arg, uint32_t node, uint64_t bytes)
{
    const struct spw__pool *pool = arg;
    const struct spw__piece *piece = spw__pool_owner(pool, node);
    (void)bytes;
    return piece && atomic_load(&piece->item.state) != SPW__ITEM_OUT;
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

/* Lists the pieces that overlap the window, each with a reference. Pool locked. */
static void list_pieces_locked(struct spw__hole *hole, const struct spw__pool *pool, uint64_t begin, uint64_t end)
{
    for (uint32_t node = spw__range_first_live(pool->range, begin);
         node != SPW__RANGE_NONE && spw__range_offset(pool->range, node) < end;
         node = spw__range_next_live(pool->range, node)) {
        struct spw__piece *piece = spw__pool_owner(pool, node);
        if (piece && spw__payload_try_ref(piece->payload))
            hole->pieces[hole->n_pieces++] = (struct spw__hole_piece){.piece = piece, .node = node};
    }
}

/* Finds and claims the window in one pool, and lists what lies in it. */
static bool find_window(struct spw__hole *hole, uint32_t index, uint64_t bytes, uint64_t align)
{
    struct spw__tier *tier = spw__tier_of(hole->manager, hole->tier);
    struct spw__pool *pool = &tier->pools[index];
    const uint64_t charge = spw__tier_charge(tier, bytes);
    uint64_t begin = 0;
    bool found = false;
    spw__mutex_lock(&pool->lock);
    if (spw__range_window(pool->range, charge, align ? align : SPW__IO_BLOCK, is_movable, pool, &begin) == SPW_OK &&
        spw__range_claim(pool->range, begin, charge) == SPW_OK) {
        hole->pool = index;
        hole->room = count_live_locked(pool, begin, begin + charge);
        hole->n_pieces = hole->next_piece = 0;
        hole->pieces = spw__meta_alloc(&hole->manager->meta, hole->room * sizeof *hole->pieces);
        found = hole->pieces != NULL;
        if (found)
            list_pieces_locked(hole, pool, begin, begin + charge);
        else
            spw__range_claim_drop(pool->range);
    }
    spw__mutex_unlock(&pool->lock);
    return found;
}

/* Another hole may be opened from here on. */
static void deactivate(struct spw__hole *hole, bool opened)
{
    struct spw__pressure *pressure = &hole->manager->pressure[hole->tier];
    spw__mutex_lock(&pressure->lock);
    hole->active = false;
    hole->tries += opened;
    spw__mutex_unlock(&pressure->lock);
}

/* The window is as clear as it gets: gives it back, and lets those who wait for it have it. */
static void close_hole(struct spw__hole *hole)
{
    struct spw_manager *manager = hole->manager;
    const spw_tier tier = hole->tier;
    struct spw__pool *pool = &spw__tier_of(manager, tier)->pools[hole->pool];
    spw__meta_free(&manager->meta, hole->pieces, hole->room * sizeof *hole->pieces);
    hole->pieces = NULL;
    spw__core_count(manager, SPW__CORE_HOLES + (unsigned)tier, 1);
    spw__mutex_lock(&pool->lock);
    spw__range_claim_drop(pool->range);
    spw__mutex_unlock(&pool->lock);
    spw__waitset_signal(&manager->waits, SPW__CHANNEL(tier));
    deactivate(hole, true);
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

void spw__hole_open(struct spw_manager *manager, spw_tier which, uint64_t bytes, uint64_t align)
{
    struct spw__hole *hole = &manager->holes[which];
    const struct spw__tier *tier = spw__tier_of(manager, which);
    bool found = false;
    for (uint32_t at = spw__tier_first_route(tier, bytes); at < tier->n_pools && !found; at++)
        found = find_window(hole, tier->route[at], bytes, align);
    if (!found) {
        deactivate(hole, false);
        return;
    }
    atomic_store(&hole->working, 1);
    work(hole);
}
