/* What the device's driver brings: registered host memory. */
#ifndef SPW_POOL_SOURCE_DEVICE_H
#define SPW_POOL_SOURCE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/log.h"
#include "pool/device/device.h"

/* Makes [base, base + bytes), which is populated, known to the driver, so that its copy engines reach it: of memory
 * that is in place already this takes a fifth of what the driver's own allocation call does. One registration, since a
 * copy may not cross from one into another. Blocks. False when the driver refuses: copies are slower, and that is said
 * in the log. */
bool spw__pinned_register(struct spw__device *device, void *base, uint64_t bytes, const struct spw__log *log);

#endif
