/* Buffers: life cycle and queries. Neighbours: admit.c makes them, view.c maps them, payload.c holds the bytes. */
#include "src/core/handle.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

#include "pool/base/error.h"

int spw_buffer_seal(spw_buffer *buffer)
{
    int rc = spw__handle_check(buffer, "spw_buffer_seal");
    if (rc != SPW_OK)
        return rc;
    struct spw__payload *payload = buffer->payload;
    spw__mutex_lock(&payload->lock);
    if (payload->sealed)
        rc = spw__fail(SPW_ESEALED, "spw_buffer_seal: the buffer \"%s\" is sealed already", buffer->tag);
    else if (payload->writers)
        rc = spw__fail(SPW_EMAPPED, "spw_buffer_seal: the buffer \"%s\" is mapped for writing; unmap it first",
                       buffer->tag);
    else
        payload->sealed = true;
    for (uint32_t i = 0; rc == SPW_OK && i < payload->n_pieces; i++)
        spw__piece_requeue_locked(&payload->pieces[i], false);
    spw__mutex_unlock(&payload->lock);
    if (rc == SPW_OK)
        spw__pressure_kick(buffer->manager, SPW_TIER_HOST);
    return rc;
}

int spw_buffer_set_spillable(spw_buffer *buffer, bool spillable)
{
    int rc = spw__handle_check(buffer, "spw_buffer_set_spillable");
    if (rc != SPW_OK)
        return rc;
    struct spw__payload *payload = buffer->payload;
    spw__mutex_lock(&payload->lock);
    if (payload->sealed && !spillable)
        rc = spw__fail(SPW_ESEALED, "spw_buffer_set_spillable: the buffer \"%s\" is sealed: what nobody changes can "
                                    "always be spilled", buffer->tag);
    const bool changes = !payload->sealed && payload->spillable != spillable;
    if (changes)
        payload->spillable = spillable;
    for (uint32_t i = 0; changes && i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        if (!spillable && piece->state == SPW__PIECE_SPILLING)
            spw__mover_drop(piece->move);
        spw__piece_requeue_locked(piece, false);
    }
    spw__mutex_unlock(&payload->lock);
    if (changes && spillable)
        spw__pressure_kick(buffer->manager, SPW_TIER_HOST);
    return rc;
}

int spw_buffer_retain(spw_buffer *buffer)
{
    int rc = spw__handle_check(buffer, "spw_buffer_retain");
    if (rc != SPW_OK)
        return rc;
    spw__mutex_lock(&buffer->payload->lock);
    const bool sealed = buffer->payload->sealed;
    if (sealed) /* under the lock: make_writable looks for other owners there */
        (void)atomic_fetch_add(&buffer->refs, 1);
    spw__mutex_unlock(&buffer->payload->lock);
    if (!sealed)
        return spw__fail(SPW_EINVAL, "spw_buffer_retain: the buffer \"%s\" is not sealed: until then it has one owner",
                         buffer->tag);
    return SPW_OK;
}

static bool is_mapped(struct spw__payload *payload)
{
    spw__mutex_lock(&payload->lock);
    const bool mapped = payload->views.n != payload->views.held;
    spw__mutex_unlock(&payload->lock);
    return mapped;
}

int spw_buffer_release(spw_buffer *buffer)
{
    if (!buffer)
        return SPW_OK;
    const int rc = spw__handle_check(buffer, "spw_buffer_release");
    if (rc != SPW_OK)
        return rc;
    spw_manager *manager = buffer->manager;
    struct spw__payload *payload = buffer->payload;
    uint32_t refs = atomic_load(&buffer->refs);
    do {
        if (refs == 0)
            return spw__fail(SPW_EBADHANDLE, "spw_buffer_release: the buffer was released already");
        if (refs == 1 && is_mapped(payload))
            return spw__fail(SPW_EMAPPED, "spw_buffer_release: the buffer \"%s\" is still mapped; unmap it first",
                             buffer->tag);
    } while (!atomic_compare_exchange_weak(&buffer->refs, &refs, refs - 1));
    if (refs > 1)
        return SPW_OK;
    spw__handle_destroy(buffer);
    spw__payload_unref(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
    return SPW_OK;
}

size_t spw_buffer_size(const spw_buffer *buffer)
{
    return spw__handle_check(buffer, "spw_buffer_size") == SPW_OK ? buffer->payload->size : 0;
}

spw_place spw_buffer_place(const spw_buffer *buffer)
{
    if (spw__handle_check(buffer, "spw_buffer_place") != SPW_OK)
        return SPW_PLACE_NONE;
    struct spw__payload *payload = buffer->payload;
    spw_tier lowest = SPW_TIER_DEVICE;
    bool gone = true; /* so it stays when the buffer's group was cancelled */
    spw__mutex_lock(&payload->lock);
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        const struct spw__piece *piece = &payload->pieces[i];
        const bool in_memory = spw__piece_in_memory_locked(piece) || (spw__block_is(&piece->mem) && !piece->disk.bytes);
        const spw_tier tier = in_memory ? (spw_tier)piece->mem.tier : SPW_TIER_DISK;
        lowest = tier > lowest ? tier : lowest;
        gone &= !spw__block_is(&piece->mem) && piece->disk.bytes == 0;
    }
    spw__mutex_unlock(&payload->lock);
    return payload->n_pieces && !gone ? SPW_PLACE(lowest, 0) : SPW_PLACE_NONE;
}

const char *spw_buffer_tag(const spw_buffer *buffer)
{
    return spw__handle_check(buffer, "spw_buffer_tag") == SPW_OK ? buffer->tag : "";
}
