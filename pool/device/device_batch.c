/* Several copies at once. Neighbours: device.c has the copies one by one. */
#include "pool/device/device.h"

static int copy_one(struct spw__device *device, spw__stream stream, const struct spw__device_copy *copy)
{
    switch (copy->kind) {
    case SPW__COPY_TO:
        return spw__device_copy_to(device, stream, copy->dst, (const void *)(uintptr_t)copy->src, copy->bytes);
    case SPW__COPY_FROM:
        return spw__device_copy_from(device, stream, (void *)(uintptr_t)copy->dst, copy->src, copy->bytes);
    default: return spw__device_copy_within(device, stream, copy->dst, copy->src, copy->bytes);
    }
}

int spw__device_copy_batch(struct spw__device *device, spw__stream stream, const struct spw__device_copy *copies,
                           unsigned n, unsigned *done)
{
    int rc = 0;
    for (*done = 0; *done < n && rc == 0; *done += rc == 0)
        rc = copy_one(device, stream, &copies[*done]);
    return rc;
}
