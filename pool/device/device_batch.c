/* Several copies at once. Neighbours: device.c has the copies one by one.
 *
 * CUDA 12.8 brought a call for it, and 13 changed its signature. It is asked for copies in stream order, as the single
 * ones are; what it refuses is enqueued one by one, which also tells the copy that is at fault (a copy that the driver
 * took already is then made twice, which does no harm).
 */
#include "pool/device/device.h"

#include "pool/device/inside.h"

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

static spw__cu_result call(struct spw__device *device, spw__stream stream, const struct spw__device_copy *copies,
                           unsigned n)
{
    spw__cu_deviceptr dsts[SPW__COPIES_MAX], srcs[SPW__COPIES_MAX];
    size_t sizes[SPW__COPIES_MAX], first = 0, failed = 0;
    struct spw__cu_copy_attributes attributes = {.src_access_order = SPW__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    struct CUmemcpyAttributes_st *const all = spw__cu_copy_attributes(&attributes);
    for (unsigned i = 0; i < n; i++) {
        dsts[i] = copies[i].dst;
        srcs[i] = copies[i].src;
        sizes[i] = (size_t)copies[i].bytes;
    }
    if (device->driver->memcpy_batch_async_v2)
        return CALL(device, memcpy_batch_async_v2, dsts, srcs, sizes, n, all, &first, 1, stream);
    return CALL(device, memcpy_batch_async, dsts, srcs, sizes, n, all, &first, 1, &failed, stream);
}

static bool has_call(const struct spw__device *device)
{
    return (device->driver->memcpy_batch_async_v2 || device->driver->memcpy_batch_async) &&
           !atomic_load_explicit(&device->never_batches, memory_order_relaxed);
}

int spw__device_copy_batch(struct spw__device *device, spw__stream stream, const struct spw__device_copy *copies,
                           unsigned n, unsigned *done)
{
    int rc = 0;
    if (n > 1 && n <= SPW__COPIES_MAX && has_call(device)) {
        const spw__cu_result result = call(device, stream, copies, n);
        if (result == SPW__CU_ERROR_NOT_SUPPORTED)
            atomic_store(&device->never_batches, true);
        *done = n;
        if (result == SPW__CU_SUCCESS)
            return 0;
    }
    for (*done = 0; *done < n && rc == 0; *done += rc == 0)
        rc = copy_one(device, stream, &copies[*done]);
    return rc;
}
