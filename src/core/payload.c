/* Payloads and their pieces. Neighbours: buffer.c makes and releases them, map.c and evict.c move them. */
#include "src/core/payload.h"

#include <string.h>

#include "pool/base/error.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/use.h"

enum { SPARES_MAX = 128 };

static size_t payload_size(uint32_t n_pieces)
{
    return sizeof(struct spw__payload) + n_pieces * sizeof(struct spw__piece);
}

/* A spare, as new; NULL: there is none. */
static struct spw__payload *take_spare(struct spw_manager *manager)
{
    struct spw__spares *spares = &manager->spares;
    spw__mutex_lock(&spares->lock);
    struct spw__payload *payload = spares->first;
    if (payload) {
        spares->first = payload->next_spare;
        spares->n--;
    }
    spw__mutex_unlock(&spares->lock);
    if (payload)
        memset((char *)payload + sizeof payload->lock, 0, payload_size(1) - sizeof payload->lock);
    return payload;
}

/* False: it is none of those that are kept, or there are enough. */
static bool give_spare(struct spw_manager *manager, struct spw__payload *payload)
{
    struct spw__spares *spares = &manager->spares;
    if (payload->n_pieces != 1)
        return false;
    spw__mutex_lock(&spares->lock);
    const bool kept = spares->n < SPARES_MAX;
    if (kept) {
        payload->next_spare = spares->first;
        spares->first = payload;
        spares->n++;
    }
    spw__mutex_unlock(&spares->lock);
    return kept;
}

static void free_memory(struct spw_manager *manager, struct spw__payload *payload, uint32_t n_pieces)
{
    spw__mutex_finish(&payload->lock);
    spw__meta_free(&manager->meta, payload, payload_size(n_pieces));
}

void spw__payload_spares_finish(struct spw_manager *manager)
{
    struct spw__payload *payload;
    while ((payload = take_spare(manager)) != NULL)
        free_memory(manager, payload, 1);
    spw__mutex_finish(&manager->spares.lock);
}

void spw__payload_set_paid_locked(struct spw__payload *payload, const spw_reservation *reservation)
{
    spw__mutex_assert_held(&payload->lock);
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        payload->pieces[i].mem.group = reservation->group;
    payload->overbooked = spw__reservation_overbooked(reservation);
}

uint64_t spw__piece_bytes(const struct spw__piece *piece)
{
    const uint64_t unit = piece->payload->manager->piece_bytes;
    const uint64_t left = piece->payload->size - piece->index * unit;
    return left < unit ? left : unit;
}

void spw__piece_set_memory(struct spw__piece *piece, const struct spw__block *block)
{
    piece->mem = *block;
    spw__tier_set_owner(spw__tier_of(piece->payload->manager, (spw_tier)block->tier), block, piece);
}

/* Cuts block into the payload's pieces. On failure block is whole again as far as its owner can tell: every part is
 * freed with it, since parts are blocks of their own. */
static int cut_block(struct spw__payload *payload, struct spw__block *block)
{
    struct spw__tier *tier = spw__tier_of(payload->manager, (spw_tier)block->tier);
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        spw__piece_set_memory(piece, block);
        block->bytes = 0;
        if (i + 1 < payload->n_pieces) {
            const int rc = spw__tier_split(tier, &piece->mem, payload->manager->piece_bytes, block);
            if (rc != SPW_OK)
                return rc;
        }
    }
    return SPW_OK;
}

int spw__payload_create(struct spw_manager *manager, struct spw__group *group, uint64_t size, struct spw__block *block,
                        struct spw__payload **out)
{
    const uint64_t n_pieces = (size + manager->piece_bytes - 1) / manager->piece_bytes;
    struct spw__payload *payload = NULL;
    *out = NULL;
    if (n_pieces == 1)
        payload = take_spare(manager);
    if (!payload && n_pieces <= UINT32_MAX) {
        payload = spw__meta_alloc(&manager->meta, payload_size((uint32_t)n_pieces));
        if (payload)
            spw__mutex_init(&payload->lock, SPW__RANK_PAYLOAD);
    }
    if (!payload)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a buffer of %llu pieces; raise meta= or piece=",
                         (unsigned long long)n_pieces);
    payload->views.ids = payload->views.few;
    payload->views.room = SPW__FEW_VIEWS;
    payload->manager = manager;
    payload->group = group;
    spw__group_use(group);
    payload->size = size;
    payload->n_pieces = (uint32_t)n_pieces;
    payload->identity = atomic_fetch_add(&manager->next_identity, n_pieces);
    atomic_init(&payload->refs, 1);
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        payload->pieces[i].payload = payload;
        payload->pieces[i].index = i;
    }
    if (payload->n_pieces && cut_block(payload, block) != SPW_OK) {
        spw__payload_unref(payload);
        return spw__fail(SPW_ENOMETA, "no metadata memory to cut a buffer into %u pieces; raise meta= or piece=",
                         (unsigned)n_pieces);
    }
    *out = payload;
    return SPW_OK;
}

void spw__payload_ref(struct spw__payload *payload)
{
    (void)atomic_fetch_add_explicit(&payload->refs, 1, memory_order_relaxed);
}

bool spw__payload_try_ref(struct spw__payload *payload)
{
    uint32_t refs = atomic_load_explicit(&payload->refs, memory_order_relaxed);
    while (refs != 0)
        if (atomic_compare_exchange_weak_explicit(&payload->refs, &refs, refs + 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return true;
    return false;
}

static void free_disk(struct spw__piece *piece)
{
    if (piece->disk.bytes)
        spw__store_free(piece->payload->manager->store, &piece->disk);
    piece->disk = (struct spw__extent){.bytes = 0};
}

static void free_piece(struct spw__piece *piece)
{
    struct spw_manager *manager = piece->payload->manager;
    if (spw__block_is(&piece->mem)) {
        spw__victims_remove(&manager->victims[piece->mem.tier][piece->mem.pool], &piece->item);
        spw__core_count(manager, SPW__CORE_RELEASE_BYTES + piece->mem.tier, piece->mem.bytes);
        spw__tier_free(spw__tier_of(manager, (spw_tier)piece->mem.tier), &piece->mem);
    }
    if (spw__block_is(&piece->from)) /* stranded, when a forced destroy took its views away */
        spw__tier_free(spw__tier_of(manager, (spw_tier)piece->from.tier), &piece->from);
    free_disk(piece);
}

static void free_payload(struct spw__payload *payload)
{
    struct spw_manager *manager = payload->manager;
    struct spw__group *group = payload->group;
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        free_piece(&payload->pieces[i]);
    spw__use_unref(manager, payload->last_use);
    if (payload->views.ids != payload->views.few)
        spw__meta_free(&manager->meta, payload->views.ids, payload->views.room * sizeof *payload->views.ids);
    if (!give_spare(manager, payload))
        free_memory(manager, payload, payload->n_pieces);
    spw__group_unuse(manager, group);
}

/* The last use has completed (or can never complete: the context is lost). */
static void after_last_use(struct spw__move *move, int status)
{
    struct spw__payload *payload = move->arg;
    struct spw_manager *manager = payload->manager;
    (void)status;
    free_payload(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* Frees at once, or once the last use on a stream has completed: memory counts as free only then. */
static void free_when_unused(struct spw__payload *payload)
{
    if (spw__use_holds(payload->manager, payload->last_use))
        spw__use_when_over(payload, after_last_use);
    else
        free_payload(payload);
}

void spw__payload_unref(struct spw__payload *payload)
{
    if (atomic_fetch_sub_explicit(&payload->refs, 1, memory_order_acq_rel) == 1)
        free_when_unused(payload);
}

void spw__payload_purge(struct spw__payload *payload)
{
    struct spw_manager *manager = payload->manager;
    struct spw__move *watch = NULL;
    spw__mutex_lock(&payload->lock);
    const bool due = payload->cancelled && payload->views.n == 0 && !payload->fetch;
    const bool used = due && spw__use_holds(manager, payload->last_use);
    if (used)
        watch = spw__use_watch_locked(payload);
    for (uint32_t i = 0; due && !used && i < payload->n_pieces; i++)
        if (payload->pieces[i].state == SPW__PIECE_IDLE && !spw__piece_pinned(&payload->pieces[i]))
            free_piece(&payload->pieces[i]);
    spw__mutex_unlock(&payload->lock);
    if (watch)
        spw__mover_submit(manager->mover, watch);
}

int spw__payload_check_locked(const struct spw__payload *payload)
{
    return payload->cancelled ? spw__fail(SPW_ECANCELED, "the group \"%s\" of this buffer was cancelled",
                                          spw__group_of(payload->group)->name)
                              : SPW_OK;
}

bool spw__piece_evictable_locked(const struct spw__piece *piece)
{
    const struct spw__payload *payload = piece->payload;
    return (payload->sealed || payload->spillable) && !payload->cancelled && !payload->gathering &&
           piece->state == SPW__PIECE_IDLE && !spw__piece_pinned(piece) && spw__block_is(&piece->mem);
}

struct spw__victim_share *spw__piece_share_locked(const struct spw__piece *piece)
{
    const struct spw__payload *payload = piece->payload;
    return &payload->group->shares[payload->manager->first_share[piece->mem.tier] + piece->mem.pool];
}

void spw__piece_requeue_locked(struct spw__piece *piece, bool failed)
{
    const struct spw__payload *payload = piece->payload;
    spw__mutex_assert_held(&payload->lock);
    if (!spw__block_is(&piece->mem))
        return;
    struct spw__victim_share *share = spw__piece_share_locked(piece);
    if (!spw__piece_evictable_locked(piece)) {
        spw__victims_remove(share->queue, &piece->item);
        return;
    }
    piece->item.bytes = piece->mem.bytes;
    const enum spw__item_state state = piece->disk.bytes ? SPW__ITEM_CLEAN
                                       : failed          ? SPW__ITEM_FAILED
                                                         : SPW__ITEM_DIRTY;
    if (payload->overbooked == piece->mem.tier + 1)
        spw__victims_put_back(share, &piece->item, state);
    else
        spw__victims_add(share, &piece->item, state);
}

bool spw__payload_idle_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].state != SPW__PIECE_IDLE)
            return false;
    return true;
}

bool spw__payload_leaving_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].state == SPW__PIECE_SPILLING)
            return true;
    return false;
}

bool spw__payload_on_disk_locked(const struct spw__payload *payload)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        if (payload->pieces[i].disk.bytes)
            return true;
    return false;
}

void spw__payload_drop_disk_locked(struct spw__payload *payload)
{
    spw__mutex_assert_held(&payload->lock);
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        free_disk(&payload->pieces[i]);
}

bool spw__payload_contiguous_locked(const struct spw__payload *payload, spw_tier *tier, uint64_t *address)
{
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        const struct spw__block *mem = &payload->pieces[i].mem;
        if (!spw__block_is(mem) || payload->pieces[i].state == SPW__PIECE_FETCHING)
            return false;
        if (i > 0 && (mem->tier != payload->pieces[0].mem.tier ||
                      mem->address != payload->pieces[i - 1].mem.address + payload->pieces[i - 1].mem.bytes))
            return false;
    }
    if (payload->n_pieces) {
        *tier = (spw_tier)payload->pieces[0].mem.tier;
        *address = payload->pieces[0].mem.address;
    }
    return payload->n_pieces != 0;
}

void spw__piece_source_locked(const struct spw__piece *piece, struct spw__end *from)
{
    if (spw__piece_in_memory_locked(piece) || piece->disk.bytes == 0)
        *from = (struct spw__end){.tier = (spw_tier)piece->mem.tier, .address = piece->mem.address,
                                  .capacity = piece->mem.bytes};
    else
        *from = (struct spw__end){.tier = SPW_TIER_DISK, .extent = piece->disk};
}
