/* One device through the driver table: results become SPW_ codes, events are pooled, the context is made current.
 *
 * Which driver it is only open, close and launch know. A call leaves the application's current context as it found it:
 * engines keep contexts of their own, and the primary context is usually theirs already (one cheap look).
 */
#include "pool/device/device.h"

#include <assert.h>

#include "pool/device/inside.h"

#define LARGE_BYTES (2048u * 1024) /* from this size on an allocation has this alignment: huge pages line up */
#define SMALL_ALIGN 256u

static int find_cuda(struct spw__device *device, const struct spw__device_config *config)
{
    int count = 0;
    const int rc = spw__driver_cuda(&device->driver);
    if (rc != 0)
        return rc;
    spw__cu_result result = device->driver->init(0);
    if (result == SPW__CU_SUCCESS)
        result = device->driver->device_get_count(&count);
    if (result != SPW__CU_SUCCESS)
        return spw__fail(SPW_ENOTSUP, "the CUDA driver finds no device: %s (%u)", error_name(device->driver, result),
                         result);
    if (config->device_id >= (uint32_t)count)
        return spw__fail(SPW_ENOTSUP, "device_id=%u: the CUDA driver has %d device%s", config->device_id, count,
                         count == 1 ? "" : "s");
    return check(device, device->driver->device_get(&device->ordinal, (int)config->device_id), "cuDeviceGet");
}

static int find_device(struct spw__device *device, const struct spw__device_config *config)
{
    spw_error_info why;
    device->simulated = config->kind == SPW_DRIVER_SIM;
    if (device->simulated) {
        const struct spw__sim_config sim = {.capacity_bytes = config->capacity_bytes, .model = config->model,
                                            .seed = config->seed, .log = config->log};
        return config->capacity_bytes == 0 ? spw__fail(SPW_EINVAL, "a simulated device needs a capacity")
                                           : spw__driver_sim_add(&sim, &device->driver, &device->ordinal);
    }
    const int rc = find_cuda(device, config);
    if (rc != SPW_ENOTSUP)
        return rc;
    why = *spw_error_detail();
    return spw__fail_info(&why, rc, "%s; driver=sim gives a simulated device", why.message);
}

static int retain_context(struct spw__device *device)
{
    const spw__cu_result result = device->driver->primary_ctx_retain(&device->context, device->ordinal);
    const int rc = check(device, result, "cuDevicePrimaryCtxRetain");
    return result == SPW__CU_ERROR_OUT_OF_MEMORY
               ? spw__fail_info(spw_error_detail(), SPW_ENOMEM, "no memory for a context on device %d", device->ordinal)
               : rc;
}

int spw__device_open(const struct spw__device_config *config, struct spw__device **out)
{
    char name[128] = "?";
    int version = 0;
    struct spw__device *device = spw__meta_alloc(config->meta, sizeof *device);
    if (!device)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a device; raise meta=");
    device->meta = config->meta;
    int rc = find_device(device, config);
    if (rc != 0)
        goto fail_device;
    rc = retain_context(device);
    if (rc != 0)
        goto fail_context;
    spw__mutex_init(&device->lock, SPW__RANK_DEVICE);
    (void)device->driver->device_get_name(name, sizeof name, device->ordinal);
    (void)device->driver->driver_get_version(&version);
    spw__logf(config->log, SPW__LOG_INFO, "device %d: %s, driver of CUDA %d.%d", device->ordinal, name, version / 1000,
              version % 1000 / 10);
    *out = device;
    return 0;

fail_context:
    if (device->simulated)
        spw__driver_sim_remove(device->ordinal);
fail_device:
    spw__meta_free(config->meta, device, sizeof *device);
    return rc;
}

void spw__device_close(struct spw__device *device)
{
    if (!device)
        return;
    assert(atomic_load(&device->live) == 0);
    while (device->idle) {
        struct spw__event *event = device->idle;
        device->idle = event->next;
        (void)GIVE_BACK(device, event_destroy, event->event);
        spw__meta_free(device->meta, event, sizeof *event);
    }
    if (device->driver->primary_ctx_release(device->ordinal) != SPW__CU_SUCCESS)
        (void)device->driver->primary_ctx_release(device->ordinal);
    if (device->simulated)
        spw__driver_sim_remove(device->ordinal);
    spw__mutex_finish(&device->lock);
    spw__meta_free(device->meta, device, sizeof *device);
}

bool spw__device_is_simulated(const struct spw__device *device)
{
    return device->simulated;
}

int spw__device_no_memory(const struct spw__device *device, uint64_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    (void)CALL(device, mem_get_info, &free_bytes, &total_bytes);
    const spw_error_info info = {
        .place = SPW_DEVICE, .requested_bytes = bytes, .free_bytes = free_bytes, .limit_bytes = total_bytes};
    return spw__fail_info(&info, SPW_ENOMEM,
                          "device %d has no room for %llu bytes (%zu of %zu free): device= is too large",
                          device->ordinal, (unsigned long long)bytes, free_bytes, total_bytes);
}

int spw__device_alloc(struct spw__device *device, uint64_t bytes, uint64_t *address)
{
    spw__cu_deviceptr found = 0;
    const spw__cu_result result = CALL(device, mem_alloc, &found, (size_t)bytes);
    if (result == SPW__CU_ERROR_OUT_OF_MEMORY)
        return spw__device_no_memory(device, bytes);
    const int rc = check(device, result, "cuMemAlloc");
    if (rc != 0)
        return rc;
    /* CUDA promises 256 bytes; for large allocations every driver so far gives 2 MiB, and we build on it. */
    if (found % (bytes >= LARGE_BYTES ? LARGE_BYTES : SMALL_ALIGN) != 0) {
        (void)GIVE_BACK(device, mem_free, found);
        return spw__fail(SPW_EDEVICE, "device %d: cuMemAlloc gave %llu bytes at 0x%llx, which is not aligned",
                         device->ordinal, (unsigned long long)bytes, found);
    }
    (void)atomic_fetch_add_explicit(&device->live, 1, memory_order_relaxed);
    *address = found;
    return 0;
}

/* What is given back counts so even if the driver reports an error: that is then the device's, and sticky. */
static void put_live(struct spw__device *device)
{
    (void)atomic_fetch_sub_explicit(&device->live, 1, memory_order_relaxed);
}

int spw__device_free(struct spw__device *device, uint64_t address)
{
    put_live(device);
    return check(device, GIVE_BACK(device, mem_free, address), "cuMemFree");
}

int spw__device_stream_create(struct spw__device *device, spw__stream *out)
{
    spw__cu_stream stream = NULL;
    const int rc = check(device, CALL(device, stream_create, &stream, SPW__CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    if (rc != 0)
        return rc;
    (void)atomic_fetch_add_explicit(&device->live, 1, memory_order_relaxed);
    *out = stream;
    return 0;
}

int spw__device_stream_destroy(struct spw__device *device, spw__stream stream)
{
    const spw__cu_result waited = GIVE_BACK(device, stream_synchronize, stream);
    const spw__cu_result result = GIVE_BACK(device, stream_destroy, stream);
    put_live(device);
    return check(device, waited != SPW__CU_SUCCESS ? waited : result, "cuStreamDestroy");
}

int spw__device_copy_to(struct spw__device *device, spw__stream stream, uint64_t device_dst, const void *src,
                        uint64_t bytes)
{
    return check(device, CALL(device, memcpy_h_to_d_async, device_dst, src, (size_t)bytes, stream),
                 "cuMemcpyHtoDAsync");
}

int spw__device_copy_from(struct spw__device *device, spw__stream stream, void *dst, uint64_t device_src,
                          uint64_t bytes)
{
    return check(device, CALL(device, memcpy_d_to_h_async, dst, device_src, (size_t)bytes, stream),
                 "cuMemcpyDtoHAsync");
}

int spw__device_copy_within(struct spw__device *device, spw__stream stream, uint64_t device_dst, uint64_t device_src,
                            uint64_t bytes)
{
    return check(device, CALL(device, memcpy_d_to_d_async, device_dst, device_src, (size_t)bytes, stream),
                 "cuMemcpyDtoDAsync");
}

int spw__device_launch(struct spw__device *device, spw__stream stream, void (*fn)(void *arg), void *arg)
{
    bool pushed;
    if (!device->simulated)
        return spw__fail(SPW_ENOTSUP, "device %d is no simulated one: it runs no functions of the host",
                         device->ordinal);
    spw__cu_result result = enter(device, &pushed);
    if (result == SPW__CU_SUCCESS)
        result = spw__sim_launch(stream, fn, arg);
    leave(device, pushed);
    return check(device, result, "a launch");
}

int spw__device_synchronize(struct spw__device *device, spw__stream stream)
{
    return check(device, CALL(device, stream_synchronize, stream), "cuStreamSynchronize");
}

/* From the pool, or made anew. */
static int take_event(struct spw__device *device, struct spw__event **out)
{
    spw__mutex_lock(&device->lock);
    struct spw__event *event = device->idle;
    if (event)
        device->idle = event->next;
    spw__mutex_unlock(&device->lock);
    if (!event) {
        event = spw__meta_alloc(device->meta, sizeof *event);
        if (!event)
            return spw__fail(SPW_ENOMETA, "no metadata memory for an event; raise meta=");
        const int rc =
            check(device, CALL(device, event_create, &event->event, SPW__CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        if (rc != 0) {
            spw__meta_free(device->meta, event, sizeof *event);
            return rc;
        }
    }
    (void)atomic_fetch_add_explicit(&device->live, 1, memory_order_relaxed);
    *out = event;
    return 0;
}

int spw__device_event_record(struct spw__device *device, spw__stream stream, struct spw__event **out)
{
    struct spw__event *event = NULL;
    int rc = take_event(device, &event);
    if (rc != 0)
        return rc;
    rc = check(device, CALL(device, event_record, event->event, stream), "cuEventRecord");
    if (rc != 0) {
        spw__device_event_put(device, event);
        return rc;
    }
    *out = event;
    return 0;
}

int spw__device_event_query(struct spw__device *device, struct spw__event *event)
{
    const spw__cu_result result = CALL(device, event_query, event->event);
    /* Not done is an answer, no failure: the thread's detail stays as it is. */
    return result == SPW__CU_ERROR_NOT_READY ? SPW_EAGAIN : check(device, result, "cuEventQuery");
}

int spw__device_event_order(struct spw__device *device, spw__stream stream, struct spw__event *event)
{
    return check(device, CALL(device, stream_wait_event, stream, event->event, 0), "cuStreamWaitEvent");
}

/* The event may still be pending: recording it again does not disturb what waits for the earlier record. */
void spw__device_event_put(struct spw__device *device, struct spw__event *event)
{
    if (!event)
        return;
    put_live(device);
    spw__mutex_lock(&device->lock);
    event->next = device->idle;
    device->idle = event;
    spw__mutex_unlock(&device->lock);
}

int spw__device_host_register(struct spw__device *device, void *base, uint64_t bytes)
{
    const int rc = check(device, CALL(device, mem_host_register, base, (size_t)bytes, SPW__CU_MEMHOSTREGISTER_PORTABLE),
                         "cuMemHostRegister");
    if (rc == 0)
        (void)atomic_fetch_add_explicit(&device->live, 1, memory_order_relaxed);
    return rc;
}

void spw__device_host_unregister(struct spw__device *device, void *base)
{
    put_live(device);
    (void)GIVE_BACK(device, mem_host_unregister, base);
}
