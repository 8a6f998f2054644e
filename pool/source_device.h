/* What the device's driver brings: memory on the device, and registration of host memory.
 *
 * A pool on the device is one plain allocation, or (grow=vmm) addresses for its whole size, behind which memory is
 * mapped from the beginning on:
 *
 *     [0, mapped) has memory --reach: needed up to end--> mapped = end, rounded up to chunks
 *                            --cut: given back from end on--> mapped = end, rounded up
 *
 * A chunk is what one call of the driver maps, and what it must be given back by.
 *
 * Threads: one at a time on the same memory; register by any.
 */
#ifndef SPW_POOL_SOURCE_DEVICE_H
#define SPW_POOL_SOURCE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/log.h"
#include "pool/device/device.h"

/* Constant once opened where nothing else is said. */
struct spw__device_memory {
    struct spw__device *device;
    uint64_t base;
    uint64_t span;   /* addresses that are reserved; 0: a plain allocation */
    uint64_t chunk;
    uint64_t mapped; /* guarded by whoever sees to it that there is one thread at a time */
};

/* Memory of size bytes at a multiple of 2 MiB: whole, or (unit, the device's spw__device_map_unit, is not 0) none of it
 * yet. Managed memory is refused. SPW_ENOMEM, SPW_EDEVICE: there is nothing to close. */
int spw__device_memory_open(struct spw__device_memory *memory, struct spw__device *device, uint64_t size,
                            uint64_t unit);
void spw__device_memory_close(struct spw__device_memory *memory); /* of memory that is all zero a no-op */

/* Maps what [0, end) lacks. SPW_ENOMEM, SPW_EDEVICE: mapped is as it was. */
int spw__device_memory_reach(struct spw__device_memory *memory, uint64_t end, const struct spw__log *log);

/* Gives back the chunks that lie behind end. Returns their bytes; less than asked for when the driver refuses. */
uint64_t spw__device_memory_cut(struct spw__device_memory *memory, uint64_t end);

/* Makes [base, base + bytes), which is populated, known to the driver, so that its copy engines reach it: the driver's
 * own allocation call would touch the pages too, with one thread. One registration, since a copy may not cross from one
 * into another. Blocks. False when the driver refuses: copies are slower, and that is said in the log. */
bool spw__pinned_register(struct spw__device *device, void *base, uint64_t bytes, const struct spw__log *log);

#endif
