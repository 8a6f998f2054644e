/* Slots of reservations: see reserve.h. Neighbours: reserve.c gives them their meaning. */
#include "src/core/reserve.h"

#include <stdio.h>

#include "pool/base/error.h"
#include "src/core/manager.h"

/* The chunk that slot index lies in, and its place there: see SPW__RESERVATION_CHUNK. */
static uint32_t chunk_of(uint32_t index, uint32_t *offset)
{
    const uint32_t chunks = index / SPW__RESERVATION_CHUNK; /* of the size of chunk 0 */
    const uint32_t chunk = chunks ? 32 - (uint32_t)__builtin_clz(chunks) : 0;
    *offset = chunk ? index - ((uint32_t)SPW__RESERVATION_CHUNK << (chunk - 1)) : index;
    return chunk;
}

static uint32_t chunk_slots(uint32_t chunk)
{
    return (uint32_t)SPW__RESERVATION_CHUNK << (chunk ? chunk - 1 : 0);
}

static spw_reservation *slot_at(struct spw__reservation_shard *shard, uint32_t index)
{
    uint32_t offset;
    const uint32_t chunk = chunk_of(index, &offset);
    return atomic_load_explicit(&shard->chunks[chunk], memory_order_acquire) + offset;
}

/* Takes the next dead slot among so many. NULL: they are all live. */
static spw_reservation *walk(struct spw__reservation_shard *shard, uint32_t room, uint32_t slots)
{
    uint32_t at = atomic_load_explicit(&shard->cursor, memory_order_relaxed);
    for (uint32_t i = 0; i < slots; i++, at++) {
        spw_reservation *slot = slot_at(shard, at & (room - 1));
        uint64_t dead = SPW__SLOT_DEAD;
        if (atomic_load_explicit(&slot->magic, memory_order_relaxed) != SPW__SLOT_DEAD ||
            !atomic_compare_exchange_strong_explicit(&slot->magic, &dead, SPW__SLOT_CLAIMED, memory_order_acquire,
                                                     memory_order_relaxed))
            continue;
        atomic_store_explicit(&shard->cursor, at + 1, memory_order_relaxed); /* others' steps may be lost: no harm */
        return slot;
    }
    return NULL;
}

/* Doubles the shard's slots, unless another thread has. False: no metadata memory. */
static bool grow_shard(struct spw_manager *manager, struct spw__reservation_shard *shard, uint32_t room)
{
    uint32_t offset;
    const uint32_t chunk = chunk_of(room, &offset), slots = chunk_slots(chunk);
    if (chunk == SPW__RESERVATION_CHUNKS)
        return false;
    spw_reservation *made = spw__meta_alloc(&manager->meta, slots * sizeof *made), *none = NULL;
    if (!made)
        return false;
    for (uint32_t i = 0; i < slots; i++)
        atomic_init(&made[i].magic, SPW__SLOT_DEAD);
    if (atomic_compare_exchange_strong(&shard->chunks[chunk], &none, made))
        atomic_store_explicit(&shard->cursor, room, memory_order_relaxed);
    else
        spw__meta_free(&manager->meta, made, slots * sizeof *made);
    /* Whichever thread comes first, so that nobody waits for the one whose chunk it is. */
    (void)atomic_compare_exchange_strong(&shard->room, &room, room + slots);
    return true;
}

/* Where more than half of the slots are live there are to be more, so that a walk is short again; but they all do
 * before there is an error. */
spw_reservation *spw__reservation_claim(struct spw_manager *manager)
{
    struct spw__reservation_shard *shard = &manager->reservations.shards[spw__counter_shard()];
    for (;;) {
        const uint32_t room = atomic_load_explicit(&shard->room, memory_order_acquire);
        spw_reservation *slot = walk(shard, room, room > SPW__RESERVATION_CHUNK ? room / 2 + 1 : room);
        if (!slot && !grow_shard(manager, shard, room)) {
            slot = walk(shard, room, room);
            if (!slot)
                (void)spw__fail(SPW_ENOMETA, "no metadata memory for a reservation; raise meta=");
            return slot;
        }
        if (slot)
            return slot;
    }
}

spw_reservation *spw__reservation_fill(spw_reservation *slot, struct spw_manager *manager, struct spw__group *group,
                                       spw_tier tier, uint64_t bytes, bool overbooks)
{
    slot->manager = manager;
    atomic_store_explicit(&slot->group, group, memory_order_relaxed);
    atomic_store_explicit(&slot->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&slot->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->tier, (uint32_t)tier, memory_order_relaxed);
    atomic_store_explicit(&slot->overbooks, overbooks, memory_order_relaxed);
    atomic_store_explicit(&slot->magic, SPW__SLOT_LIVE, memory_order_release);
    return slot;
}

void spw__reservation_bury(spw_reservation *slot)
{
    atomic_store_explicit(&slot->magic, SPW__SLOT_DEAD, memory_order_release);
}

void spw__reservations_finish(struct spw_manager *manager)
{
    for (uint32_t i = 0; i < SPW__COUNTER_SHARDS; i++)
        for (uint32_t chunk = 0; chunk < SPW__RESERVATION_CHUNKS; chunk++)
            spw__meta_free(&manager->meta, atomic_load(&manager->reservations.shards[i].chunks[chunk]),
                           chunk_slots(chunk) * sizeof(spw_reservation));
}

/* Counts those that are live and, where they are given, of tier and at or below group. */
static struct spw__reserved count(struct spw_manager *manager, const spw_tier *tier, const struct spw__group *group)
{
    struct spw__reserved found = {0, 0};
    for (uint32_t i = 0; i < SPW__COUNTER_SHARDS; i++) {
        struct spw__reservation_shard *shard = &manager->reservations.shards[i];
        const uint32_t room = atomic_load(&shard->room);
        for (uint32_t at = 0; at < room; at++) {
            spw_reservation *slot = slot_at(shard, at);
            if (atomic_load(&slot->magic) != SPW__SLOT_LIVE || (tier && atomic_load(&slot->tier) != (uint32_t)*tier) ||
                (group && !spw__group_is_below(atomic_load(&slot->group), group)))
                continue;
            found.live++;
            found.bytes += atomic_load(&slot->bytes) + atomic_load(&slot->pending);
        }
    }
    return found;
}

struct spw__reserved spw__reservations_look(struct spw_manager *manager, spw_tier tier)
{
    return count(manager, &tier, NULL);
}

/* Under the lock that a group leaves the tree under before it is freed, and a dead task before its memory is used anew:
 * a reservation that is live here names a node that is there until the lock is free. */
struct spw__reserved spw__reservations_of(struct spw_manager *manager, const struct spw__group *group)
{
    spw__mutex_lock(&manager->groups_lock);
    const struct spw__reserved found = count(manager, NULL, group);
    spw__mutex_unlock(&manager->groups_lock);
    return found;
}

int spw__reservations_check_none(struct spw_manager *manager)
{
    char text[160] = "";
    size_t used = 0;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        const struct spw__reserved reserved = spw__reservations_look(manager, tier);
        if (reserved.live == 0)
            continue;
        const int n = snprintf(text + used, sizeof text - used, "%s%llu of %s (%llu bytes)", used ? ", " : "",
                               (unsigned long long)reserved.live, spw_tier_name(tier),
                               (unsigned long long)reserved.bytes);
        used += (size_t)(n > 0 ? n : 0);
    }
    return used ? spw__fail(SPW_EBUSY, "reservations are live: %s; release them first", text) : SPW_OK;
}
