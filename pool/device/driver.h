/* The driver table: the CUDA driver API's entry points that Spillway uses, as one struct of function pointers.
 *
 * Filled from libcuda.so.1 (driver_cuda.c) or by the simulated driver (driver_sim.c); device.c is the only user. Both
 * fillers, the structure and the proof against CUDA's header are made from SPW__DRIVER_LIST.
 * Threads: any. Ownership: tables live as long as the process.
 */
#ifndef SPW_DEVICE_DRIVER_H
#define SPW_DEVICE_DRIVER_H

#include "pool/base/log.h"
#include "pool/device/cuda_abi.h"

/* field, name for cuGetProcAddress, exported symbol with the same signature, CUDA version of that signature,
 * parameters, the same as arguments. A driver that lacks one of the required entries cannot be used; none of them is
 * younger than CUDA 11.0. */
#define SPW__DRIVER_REQUIRED_LIST(X)                                                                                   \
    X(get_error_name, cuGetErrorName, cuGetErrorName, 6000,                                                            \
      (spw__cu_result result, const char **name), (result, name))                                                      \
    X(init, cuInit, cuInit, 2000, (unsigned flags), (flags))                                                           \
    X(driver_get_version, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version), (version))                     \
    X(device_get_count, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count), (count))                               \
    X(device_get, cuDeviceGet, cuDeviceGet, 2000, (spw__cu_device *device, int ordinal), (device, ordinal))            \
    X(device_get_name, cuDeviceGetName, cuDeviceGetName, 2000,                                                         \
      (char *name, int size, spw__cu_device device), (name, size, device))                                             \
    X(device_get_attribute, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                                          \
      (int *value, spw__cu_device_attribute attribute, spw__cu_device device), (value, attribute, device))             \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                                    \
      (spw__cu_context *context, spw__cu_device device), (context, device))                                            \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000,                             \
      (spw__cu_device device), (device))                                                                               \
    X(ctx_get_current, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (spw__cu_context *context), (context))                  \
    X(ctx_push_current, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (spw__cu_context context), (context))             \
    X(ctx_pop_current, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (spw__cu_context *context), (context))               \
    X(mem_get_info, cuMemGetInfo, cuMemGetInfo_v2, 3020,                                                               \
      (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes))                                            \
    X(mem_alloc, cuMemAlloc, cuMemAlloc_v2, 3020, (spw__cu_deviceptr *address, size_t bytes), (address, bytes))        \
    X(mem_free, cuMemFree, cuMemFree_v2, 3020, (spw__cu_deviceptr address), (address))                                 \
    X(mem_host_register, cuMemHostRegister, cuMemHostRegister_v2, 6050,                                                \
      (void *base, size_t bytes, unsigned flags), (base, bytes, flags))                                                \
    X(mem_host_unregister, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *base), (base))                       \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,             \
      (size_t *granularity, const struct CUmemAllocationProp_st *prop, spw__cu_granularity option),                    \
      (granularity, prop, option))                                                                                     \
    X(mem_address_reserve, cuMemAddressReserve, cuMemAddressReserve, 10020,                                            \
      (spw__cu_deviceptr *address, size_t bytes, size_t align, spw__cu_deviceptr hint, unsigned long long flags),      \
      (address, bytes, align, hint, flags))                                                                            \
    X(mem_address_free, cuMemAddressFree, cuMemAddressFree, 10020,                                                     \
      (spw__cu_deviceptr address, size_t bytes), (address, bytes))                                                     \
    X(mem_create, cuMemCreate, cuMemCreate, 10020,                                                                     \
      (spw__cu_mem_handle *handle, size_t bytes, const struct CUmemAllocationProp_st *prop,                            \
       unsigned long long flags),                                                                                      \
      (handle, bytes, prop, flags))                                                                                    \
    X(mem_release, cuMemRelease, cuMemRelease, 10020, (spw__cu_mem_handle handle), (handle))                           \
    X(mem_map, cuMemMap, cuMemMap, 10020,                                                                              \
      (spw__cu_deviceptr address, size_t bytes, size_t offset, spw__cu_mem_handle handle,                              \
       unsigned long long flags),                                                                                      \
      (address, bytes, offset, handle, flags))                                                                         \
    X(mem_unmap, cuMemUnmap, cuMemUnmap, 10020, (spw__cu_deviceptr address, size_t bytes), (address, bytes))           \
    X(mem_set_access, cuMemSetAccess, cuMemSetAccess, 10020,                                                           \
      (spw__cu_deviceptr address, size_t bytes, const struct CUmemAccessDesc_st *access, size_t count),                \
      (address, bytes, access, count))                                                                                 \
    X(pointer_get_attribute, cuPointerGetAttribute, cuPointerGetAttribute, 4000,                                       \
      (void *value, spw__cu_pointer_attribute attribute, spw__cu_deviceptr address), (value, attribute, address))      \
    X(pointer_set_attribute, cuPointerSetAttribute, cuPointerSetAttribute, 6000,                                       \
      (const void *value, spw__cu_pointer_attribute attribute, spw__cu_deviceptr address),                             \
      (value, attribute, address))                                                                                     \
    X(stream_create, cuStreamCreate, cuStreamCreate, 2000, (spw__cu_stream *stream, unsigned flags), (stream, flags))  \
    X(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, 4000, (spw__cu_stream stream), (stream))                    \
    X(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, 2000, (spw__cu_stream stream), (stream))           \
    X(stream_wait_event, cuStreamWaitEvent, cuStreamWaitEvent, 3020,                                                   \
      (spw__cu_stream stream, spw__cu_event event, unsigned flags), (stream, event, flags))                            \
    X(memcpy_h_to_d_async, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                                              \
      (spw__cu_deviceptr dst, const void *src, size_t bytes, spw__cu_stream stream), (dst, src, bytes, stream))        \
    X(memcpy_d_to_h_async, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                                              \
      (void *dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream), (dst, src, bytes, stream))              \
    X(memcpy_d_to_d_async, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                                              \
      (spw__cu_deviceptr dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream), (dst, src, bytes, stream))  \
    X(event_create, cuEventCreate, cuEventCreate, 2000, (spw__cu_event *event, unsigned flags), (event, flags))        \
    X(event_destroy, cuEventDestroy, cuEventDestroy_v2, 4000, (spw__cu_event event), (event))                          \
    X(event_record, cuEventRecord, cuEventRecord, 2000,                                                                \
      (spw__cu_event event, spw__cu_stream stream), (event, stream))                                                   \
    X(event_query, cuEventQuery, cuEventQuery, 2000, (spw__cu_event event), (event))

/* NULL where the driver lacks them. CUDA 13 gave the batched copy another signature under its old name. */
#define SPW__DRIVER_OPTIONAL_LIST(X)                                                                                   \
    X(memcpy_batch_async, cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080,                                               \
      (spw__cu_deviceptr *dsts, spw__cu_deviceptr *srcs, size_t *sizes, size_t count,                                  \
       struct CUmemcpyAttributes_st *attributes, size_t *first_of, size_t n_attributes, size_t *failed,                \
       spw__cu_stream stream),                                                                                         \
      (dsts, srcs, sizes, count, attributes, first_of, n_attributes, failed, stream))                                  \
    X(memcpy_batch_async_v2, cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, 13000,                                         \
      (spw__cu_deviceptr *dsts, spw__cu_deviceptr *srcs, size_t *sizes, size_t count,                                  \
       struct CUmemcpyAttributes_st *attributes, size_t *first_of, size_t n_attributes, spw__cu_stream stream),        \
      (dsts, srcs, sizes, count, attributes, first_of, n_attributes, stream))

#define SPW__DRIVER_LIST(X)                                                                                            \
    SPW__DRIVER_REQUIRED_LIST(X)                                                                                       \
    SPW__DRIVER_OPTIONAL_LIST(X)

struct spw__driver {
#define SPW__X(field, name, symbol, version, params, args) spw__cu_result(*field) params;
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};

enum spw__driver_entry {
#define SPW__X(field, name, symbol, version, params, args) SPW__ENTRY_##field,
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
        SPW__ENTRY_COUNT
};

/* Loads libcuda.so.1, once per process; cuInit is left to the caller. SPW_ENOTSUP: there is none, or it is too old. */
int spw__driver_cuda(const struct spw__driver **out);

/* The link of a simulated device; zero: without limit. duplex is what both directions reach together while both are
 * busy. latency is each copy's own. */
struct spw__sim_model {
    uint64_t h2d_bytes_per_s, d2h_bytes_per_s, d2d_bytes_per_s, duplex_bytes_per_s;
    uint64_t latency_ns;
};

struct spw__sim_config {
    uint64_t capacity_bytes;
    struct spw__sim_model model; /* copies take this time; not with a seed, whose schedule knows no time */
    uint64_t seed;               /* of the adversarial schedule; 0: SPILLWAY_SIM_SEED's, and without it no schedule */
    const struct spw__log *log;  /* may be NULL; outlives the device */
};

/* Adds a simulated device of its own to the process and names it; it has no context yet. The device goes with
 * spw__driver_sim_remove once its primary context is released. SPW_ENOMEM: no address space, no host memory, or too
 * many simulated devices; SPW_ESPEC: SPILLWAY_SIM_SEED is no seed. docs/simulated-device.md says what the driver
 * models. */
int spw__driver_sim_add(const struct spw__sim_config *config, const struct spw__driver **out, spw__cu_device *device);
void spw__driver_sim_remove(spw__cu_device device);

/* Enqueues fn(arg), run once in stream order by a thread of the device with no lock held; not at all after a sticky
 * error. It may run beside other streams' work. It may not call the driver: CUDA_ERROR_NOT_PERMITTED. */
spw__cu_result spw__sim_launch(spw__cu_stream stream, void (*fn)(void *arg), void *arg);

/* Inside a launched function: where the bytes behind a device address lie, until the function returns. NULL elsewhere,
 * and if one live allocation of the function's device does not hold them all. */
void *spw__sim_translate(uint64_t address, uint64_t bytes);

/* Faults, in every simulated device of the process: the nth call (from 1) of entry since then and the following
 * count - 1 (0: for ever) report result and do nothing else. A result that is sticky on CUDA is the answer of every
 * later call on the calling thread's device too. nth 0 disarms. */
void spw__sim_fail(enum spw__driver_entry entry, long nth, long count, spw__cu_result result);
/* Calls of entry since it was armed. */
long spw__sim_calls(enum spw__driver_entry entry);

/* For white-box tests: how much was not given back to the devices that were removed so far, in all: allocations,
 * reserved addresses, physical memory, registrations, streams, events and contexts. */
long spw__sim_left_behind(void);

/* For white-box tests: where the byte behind a simulated device address lies, NULL if no live allocation holds it. */
void *spw__sim_host_pointer(uint64_t address);

#endif
