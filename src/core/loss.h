/* A lost device (device.h): what that means to buffers, requests and waits.
 *
 * A piece whose only copy lay there is lost: whoever wants its content is told so, by the buffer's name. One with a
 * copy on disk is served from there. Requests that only the device could serve fail at once, those that wait for it are
 * ended; admission goes to the tiers below. Uses that are pending on a stream count as over. Releases and destroy give
 * memory back as always: the books outlive the device.
 *
 * Nobody is told when a device is lost: it is seen by whoever looks next. Every change of what waits may depend on ends
 * in spw__pressure_kick, which looks here.
 * Threads: any.
 */
#ifndef SPW_CORE_LOSS_H
#define SPW_CORE_LOSS_H

#include "src/core/manager.h"
#include "src/core/payload.h"

/* True when tier lies on a device that is lost. */
static inline bool spw__loss_of(const struct spw_manager *manager, spw_tier tier)
{
    return tier == SPW_TIER_DEVICE && manager->device && spw__device_is_lost(manager->device);
}

/* The first look after the loss says so in the log and ends the waits that have become hopeless. Not under a lock. */
void spw__loss_look(struct spw_manager *manager);

/* Ends the waits for room that only the lost device could give. (pressure.c) */
void spw__pressure_end_lost(struct spw_manager *manager);

/* SPW_OK, or SPW_EDEVICE with detail when the device is lost. */
int spw__loss_check(const struct spw_manager *manager);

/* SPW_EDEVICE, with detail: bytes of the lost device cannot be had. */
int spw__loss_refuse(const struct spw_manager *manager, uint64_t bytes);

/* True when the piece has a copy in memory that can be read. Payload locked. */
bool spw__piece_in_memory_locked(const struct spw__piece *piece);

/* SPW_OK, or with detail the error of the first piece whose content is lost; rewritten: what lay on the device is not
 * needed. Payload locked. */
int spw__payload_check_lost_locked(const struct spw__payload *payload, bool rewritten);

#endif
