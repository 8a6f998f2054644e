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

/* The error of piece i. Apart from the look, which every map takes: the detail is large. */
static int fail_lost(const struct spw__payload *payload, uint32_t i)
{
    const spw_error_info info = {.place = SPW_DEVICE, .requested_bytes = payload->size};
    if (payload->pieces[i].lost)
        return spw__fail(payload->pieces[i].lost,
                         "piece %u of this buffer is lost: its only copy, on disk, differed from what was written", i);
    return spw__fail_info(&info, SPW_EDEVICE,
                          "piece %u of this buffer is lost: its only copy was on the device, which is lost: %s", i,
                          spw__device_loss(payload->manager->device));
}

int spw__payload_check_lost_locked(const struct spw__payload *payload, bool rewritten)
{
    const bool device_lost = spw__loss_of(payload->manager, SPW_TIER_DEVICE);
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        const struct spw__piece *piece = &payload->pieces[i];
        const bool on_device = spw__block_is(&piece->mem) && piece->mem.tier == SPW_TIER_DEVICE;
        const bool elsewhere = piece->disk.bytes || piece->state == SPW__PIECE_ARRIVING ||
                               piece->state == SPW__PIECE_STRANDED; /* then it lies where it came from */
        if (piece->lost || (device_lost && !rewritten && on_device && !elsewhere))
            return fail_lost(payload, i);
    }
    return SPW_OK;
}
