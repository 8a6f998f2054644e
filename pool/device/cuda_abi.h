/* The part of the CUDA driver API's stable ABI that Spillway uses, declared here so that no toolkit is needed to build.
 *
 * Handles carry the structure tags of CUDA's own header, which makes the types compatible with it; where that header is
 * found, tests/test_cuda_abi.c proves every type, value and signature (driver.h) equal at compile time.
 */
#ifndef SPW_DEVICE_CUDA_ABI_H
#define SPW_DEVICE_CUDA_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned spw__cu_result; /* an enum of non-negative values in CUDA's header */
typedef int spw__cu_device;
typedef unsigned long long spw__cu_deviceptr;
typedef struct CUctx_st *spw__cu_context;
typedef struct CUstream_st *spw__cu_stream;
typedef struct CUevent_st *spw__cu_event;
typedef unsigned long long spw__cu_mem_handle; /* physical memory of cuMemCreate */
typedef unsigned spw__cu_device_attribute;     /* enums of non-negative values, as the two below */
typedef unsigned spw__cu_pointer_attribute;
typedef unsigned spw__cu_granularity;

/* Structures have tags of their own, so that both headers can stand in one file; signatures name CUDA's tags, and the
 * functions below pass ours as theirs. */
struct CUmemAllocationProp_st;
struct CUmemAccessDesc_st;
struct CUmemcpyAttributes_st;

struct spw__cu_location {
    unsigned type;
    int id;
};

struct spw__cu_mem_prop {
    unsigned type;
    unsigned requested_handle_types;
    struct spw__cu_location location;
    void *win32_meta_data;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct spw__cu_access {
    struct spw__cu_location location;
    unsigned flags;
};

struct spw__cu_copy_attributes {
    unsigned src_access_order;
    struct spw__cu_location src_hint, dst_hint;
    unsigned flags;
};

static inline const struct CUmemAllocationProp_st *spw__cu_mem_prop(const struct spw__cu_mem_prop *prop)
{
    return (const struct CUmemAllocationProp_st *)prop;
}

static inline const struct CUmemAccessDesc_st *spw__cu_access(const struct spw__cu_access *access)
{
    return (const struct CUmemAccessDesc_st *)access;
}

static inline struct CUmemcpyAttributes_st *spw__cu_copy_attributes(struct spw__cu_copy_attributes *attributes)
{
    return (struct CUmemcpyAttributes_st *)attributes;
}

/* Results: name without its CUDA_ prefix, value. */
#define SPW__CU_RESULT_LIST(X)                                                                                         \
    X(SUCCESS, 0)                                                                                                      \
    X(ERROR_INVALID_VALUE, 1)                                                                                          \
    X(ERROR_OUT_OF_MEMORY, 2)                                                                                          \
    X(ERROR_NOT_INITIALIZED, 3)                                                                                        \
    X(ERROR_NO_DEVICE, 100)                                                                                            \
    X(ERROR_INVALID_DEVICE, 101)                                                                                       \
    X(ERROR_INVALID_CONTEXT, 201)                                                                                      \
    X(ERROR_ECC_UNCORRECTABLE, 214)                                                                                    \
    X(ERROR_NVLINK_UNCORRECTABLE, 220)                                                                                 \
    X(ERROR_OPERATING_SYSTEM, 304)                                                                                     \
    X(ERROR_INVALID_HANDLE, 400)                                                                                       \
    X(ERROR_NOT_FOUND, 500)                                                                                            \
    X(ERROR_NOT_READY, 600)                                                                                            \
    X(ERROR_ILLEGAL_ADDRESS, 700)                                                                                      \
    X(ERROR_LAUNCH_TIMEOUT, 702)                                                                                       \
    X(ERROR_CONTEXT_IS_DESTROYED, 709)                                                                                 \
    X(ERROR_ASSERT, 710)                                                                                               \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                       \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                           \
    X(ERROR_HARDWARE_STACK_ERROR, 714)                                                                                 \
    X(ERROR_ILLEGAL_INSTRUCTION, 715)                                                                                  \
    X(ERROR_MISALIGNED_ADDRESS, 716)                                                                                   \
    X(ERROR_INVALID_ADDRESS_SPACE, 717)                                                                                \
    X(ERROR_INVALID_PC, 718)                                                                                           \
    X(ERROR_LAUNCH_FAILED, 719)                                                                                        \
    X(ERROR_NOT_PERMITTED, 800)                                                                                        \
    X(ERROR_NOT_SUPPORTED, 801)                                                                                        \
    X(ERROR_UNKNOWN, 999)

enum {
#define SPW__X(name, value) SPW__CU_##name = value,
    SPW__CU_RESULT_LIST(SPW__X)
#undef SPW__X
};

/* Flags and other numbers: name without its CU_ prefix, value. */
#define SPW__CU_FLAG_LIST(X)                                                                                           \
    X(STREAM_NON_BLOCKING, 0x1) /* no implicit order against the legacy default stream */                              \
    X(EVENT_DISABLE_TIMING, 0x2)                                                                                       \
    X(MEMHOSTREGISTER_PORTABLE, 0x1) /* pinned for every context of the process */                                     \
    X(MEMORYTYPE_HOST, 1)                                                                                              \
    X(MEMORYTYPE_DEVICE, 2)                                                                                            \
    X(MEM_ALLOCATION_TYPE_PINNED, 1) /* on a device or the host: memory that does not migrate */                       \
    X(MEM_LOCATION_TYPE_DEVICE, 1)                                                                                     \
    X(MEM_HANDLE_TYPE_NONE, 0)                                                                                         \
    X(MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                                        \
    X(MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                                                   \
    X(MEM_ACCESS_FLAGS_PROT_READ, 1)                                                                                   \
    X(MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                                              \
    X(MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                                                \
    X(MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                                            \
    X(DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                                                                         \
    X(DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                                         \
    X(DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                       \
    X(DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                               \
    X(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                                   \
    X(DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 116)                                                                 \
    X(POINTER_ATTRIBUTE_MEMORY_TYPE, 2) /* unsigned, as every attribute that is no address and no size */              \
    X(POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                                                                \
    X(POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                                                 \
    X(POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                                             \
    X(POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                                                \
    X(POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) /* an address; of mapped memory, the whole reservation */                \
    X(POINTER_ATTRIBUTE_RANGE_SIZE, 12)       /* a size_t */                                                           \
    X(POINTER_ATTRIBUTE_MAPPED, 13)                                                                                    \
    X(POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                                                      \
    X(POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15)

enum {
#define SPW__X(name, value) SPW__CU_##name = value,
    SPW__CU_FLAG_LIST(SPW__X)
#undef SPW__X
};

enum { SPW__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1 }; /* of spw__cu_copy_attributes, since CUDA 12.8 */

/* A context that has reported one of these is lost: every later call on it reports the error again. */
static inline bool spw__cu_is_sticky(spw__cu_result result)
{
    switch (result) {
    case SPW__CU_ERROR_ECC_UNCORRECTABLE:
    case SPW__CU_ERROR_NVLINK_UNCORRECTABLE:
    case SPW__CU_ERROR_ILLEGAL_ADDRESS:
    case SPW__CU_ERROR_LAUNCH_TIMEOUT:
    case SPW__CU_ERROR_CONTEXT_IS_DESTROYED:
    case SPW__CU_ERROR_ASSERT:
    case SPW__CU_ERROR_HARDWARE_STACK_ERROR:
    case SPW__CU_ERROR_ILLEGAL_INSTRUCTION:
    case SPW__CU_ERROR_MISALIGNED_ADDRESS:
    case SPW__CU_ERROR_INVALID_ADDRESS_SPACE:
    case SPW__CU_ERROR_INVALID_PC:
    case SPW__CU_ERROR_LAUNCH_FAILED:
    case SPW__CU_ERROR_UNKNOWN: return true;
    default: return false;
    }
}

#endif
