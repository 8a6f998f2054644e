/* The part of the CUDA driver API's stable ABI that Spillway uses, declared here so that no toolkit is needed to build.
 *
 * Handles carry the structure tags of CUDA's own header, which makes the types compatible with it; where that header is
 * found, tests/test_cuda_abi.c proves every type, value and signature (driver.h) equal at compile time.
 */
#ifndef SPW_DEVICE_CUDA_ABI_H
#define SPW_DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned spw__cu_result; /* an enum of non-negative values in CUDA's header */
typedef int spw__cu_device;
typedef unsigned long long spw__cu_deviceptr;
typedef struct CUctx_st *spw__cu_context;
typedef struct CUstream_st *spw__cu_stream;
typedef struct CUevent_st *spw__cu_event;

/* Results: name without its CUDA_ prefix, value. */
#define SPW__CU_RESULT_LIST(X)                                                                                         \
    X(SUCCESS, 0)                                                                                                      \
    X(ERROR_INVALID_VALUE, 1)                                                                                          \
    X(ERROR_OUT_OF_MEMORY, 2)                                                                                          \
    X(ERROR_NO_DEVICE, 100)                                                                                            \
    X(ERROR_INVALID_DEVICE, 101)                                                                                       \
    X(ERROR_INVALID_CONTEXT, 201)                                                                                      \
    X(ERROR_ECC_UNCORRECTABLE, 214)                                                                                    \
    X(ERROR_OPERATING_SYSTEM, 304)                                                                                     \
    X(ERROR_INVALID_HANDLE, 400)                                                                                       \
    X(ERROR_NOT_READY, 600)                                                                                            \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                       \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)

enum {
#define SPW__X(name, value) SPW__CU_##name = value,
    SPW__CU_RESULT_LIST(SPW__X)
#undef SPW__X
};

/* Flags: name without its CU_ prefix, value. */
#define SPW__CU_FLAG_LIST(X)                                                                                           \
    X(STREAM_NON_BLOCKING, 0x1) /* no implicit order against the legacy default stream */                              \
    X(EVENT_DISABLE_TIMING, 0x2)                                                                                       \
    X(MEMHOSTREGISTER_PORTABLE, 0x1) /* pinned for every context of the process */

enum {
#define SPW__X(name, value) SPW__CU_##name = value,
    SPW__CU_FLAG_LIST(SPW__X)
#undef SPW__X
};

#endif
