/* The driver table: the CUDA driver API's entry points that Spillway uses, as one struct of function pointers.
 *
 * Filled from libcuda.so.1 (driver_cuda.c) or by the simulated driver (driver_sim.c); device.c is the only user. Both
 * fillers, the structure and the proof against CUDA's header are made from SPW__DRIVER_LIST.
 * Threads: any. Ownership: tables live as long as the process.
 */
#ifndef SPW_DEVICE_DRIVER_H
#define SPW_DEVICE_DRIVER_H

#include "pool/device/cuda_abi.h"

/* field, name for cuGetProcAddress, exported symbol with the same signature, CUDA version of that signature,
 * parameters. No signature here is younger than CUDA 11.0. */
#define SPW__DRIVER_LIST(X)                                                                                            \
    X(get_error_name, cuGetErrorName, cuGetErrorName, 6000, (spw__cu_result result, const char **name))                \
    X(init, cuInit, cuInit, 2000, (unsigned flags))                                                                    \
    X(driver_get_version, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version))                                \
    X(device_get_count, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count))                                        \
    X(device_get, cuDeviceGet, cuDeviceGet, 2000, (spw__cu_device *device, int ordinal))                               \
    X(device_get_name, cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int size, spw__cu_device device))          \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                                    \
      (spw__cu_context *context, spw__cu_device device))                                                               \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (spw__cu_device device))    \
    X(ctx_get_current, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (spw__cu_context *context))                             \
    X(ctx_push_current, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (spw__cu_context context))                        \
    X(ctx_pop_current, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (spw__cu_context *context))                          \
    X(mem_get_info, cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free_bytes, size_t *total_bytes))                    \
    X(mem_alloc, cuMemAlloc, cuMemAlloc_v2, 3020, (spw__cu_deviceptr *address, size_t bytes))                          \
    X(mem_free, cuMemFree, cuMemFree_v2, 3020, (spw__cu_deviceptr address))                                            \
    X(mem_host_register, cuMemHostRegister, cuMemHostRegister_v2, 6050, (void *base, size_t bytes, unsigned flags))    \
    X(mem_host_unregister, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *base))                               \
    X(stream_create, cuStreamCreate, cuStreamCreate, 2000, (spw__cu_stream *stream, unsigned flags))                   \
    X(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, 4000, (spw__cu_stream stream))                              \
    X(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, 2000, (spw__cu_stream stream))                     \
    X(stream_wait_event, cuStreamWaitEvent, cuStreamWaitEvent, 3020,                                                   \
      (spw__cu_stream stream, spw__cu_event event, unsigned flags))                                                    \
    X(memcpy_h_to_d_async, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                                              \
      (spw__cu_deviceptr dst, const void *src, size_t bytes, spw__cu_stream stream))                                   \
    X(memcpy_d_to_h_async, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                                              \
      (void *dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream))                                         \
    X(memcpy_d_to_d_async, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                                              \
      (spw__cu_deviceptr dst, spw__cu_deviceptr src, size_t bytes, spw__cu_stream stream))                             \
    X(event_create, cuEventCreate, cuEventCreate, 2000, (spw__cu_event *event, unsigned flags))                        \
    X(event_destroy, cuEventDestroy, cuEventDestroy_v2, 4000, (spw__cu_event event))                                   \
    X(event_record, cuEventRecord, cuEventRecord, 2000, (spw__cu_event event, spw__cu_stream stream))                  \
    X(event_query, cuEventQuery, cuEventQuery, 2000, (spw__cu_event event))

struct spw__driver {
#define SPW__X(field, name, symbol, version, params) spw__cu_result(*field) params;
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};

/* Loads libcuda.so.1, once per process; cuInit is left to the caller. SPW_ENOTSUP: there is none, or it is too old. */
int spw__driver_cuda(const struct spw__driver **out);

/* Adds a simulated device of its own to the process and names it; it has no context yet. The device goes with
 * spw__driver_sim_remove once its primary context is released. SPW_ENOMEM: no address space, no host memory, or too
 * many simulated devices. docs/simulated-device.md says what the driver models. */
int spw__driver_sim_add(uint64_t capacity_bytes, const struct spw__driver **out, spw__cu_device *device);
void spw__driver_sim_remove(spw__cu_device device);

/* For white-box tests: where the byte behind a simulated device address lies, NULL if no live allocation holds it. */
void *spw__sim_host_pointer(uint64_t address);

#endif
