/* A lost device: see loss.h. Neighbours: pool/device/loss.c finds it out, map.c and pressure.c ask. */
#include "src/core/loss.h"

#include "pool/base/error.h"
#include "src/core/pressure.h"

void spw__loss_look(struct spw_manager *manager)
{
    if (!spw__loss_of(manager, SPW_TIER_DEVICE) || atomic_load_explicit(&manager->loss_seen, memory_order_relaxed) ||
        atomic_exchange(&manager->loss_seen, true))
        return;
    spw__logf(&manager->log, SPW__LOG_ERROR,
              "the device is lost: %s; what lay on it alone is gone, and what lies in other tiers stays in use",
              spw__device_loss(manager->device));
    spw__pressure_end_lost(manager);
}

int spw__loss_check(const struct spw_manager *manager)
{
    const spw_error_info info = {.place = SPW_DEVICE};
    return spw__loss_of(manager, SPW_TIER_DEVICE)
               ? spw__fail_info(&info, SPW_EDEVICE, "the device is lost: %s", spw__device_loss(manager->device))
               : SPW_OK;
}

int spw__loss_refuse(const struct spw_manager *manager, uint64_t bytes)
{
    const spw_error_info info = {.place = SPW_DEVICE, .requested_bytes = bytes};
    return spw__fail_info(&info, SPW_EDEVICE, "%llu bytes in device cannot be had: the device is lost: %s; a new "
                                              "manager in a new process may find it in order",
                          (unsigned long long)bytes, spw__device_loss(manager->device));
}

bool spw__piece_in_memory_locked(const struct spw__piece *piece)
{
    return spw__block_is(&piece->mem) && !spw__loss_of(piece->payload->manager, (spw_tier)piece->mem.tier);
}

int spw__payload_check_lost_locked(const struct spw__payload *payload, bool rewritten)
{
    const spw_error_info info = {.place = SPW_DEVICE, .requested_bytes = payload->size};
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        const struct spw__piece *piece = &payload->pieces[i];
        if (piece->lost)
            return spw__fail(piece->lost,
                             "piece %u of this buffer is lost: its only copy, on disk, differed from what was written",
                             i);
        const bool elsewhere = piece->disk.bytes || piece->state == SPW__PIECE_ARRIVING ||
                               piece->state == SPW__PIECE_STRANDED; /* then it lies where it came from */
        if (!rewritten && spw__block_is(&piece->mem) && !spw__piece_in_memory_locked(piece) && !elsewhere)
            return spw__fail_info(&info, SPW_EDEVICE,
                                  "piece %u of this buffer is lost: its only copy was on the device, which is lost: %s",
                                  i, spw__device_loss(payload->manager->device));
    }
    return SPW_OK;
}
