/* Proves at compile time that cuda_abi.h and driver.h say what CUDA's own headers say. Built only where those are
 * found; nothing here runs. */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "pool/device/driver.h"

#define SAME_TYPE(a, b) _Static_assert(__builtin_types_compatible_p(a, b), #a " differs from " #b)

SAME_TYPE(CUdevice, spw__cu_device);
SAME_TYPE(CUdeviceptr, spw__cu_deviceptr);
SAME_TYPE(CUcontext, spw__cu_context);
SAME_TYPE(CUstream, spw__cu_stream);
SAME_TYPE(CUevent, spw__cu_event);

SAME_TYPE(CUmemGenericAllocationHandle, spw__cu_mem_handle);

/* By selection: it follows C's rule that an enum is compatible with its integer type, return types included. */
#define SELECTS(expression, type) _Generic((expression), type: 1, default: 0)

_Static_assert(SELECTS((CUresult)0, spw__cu_result), "CUresult differs");
_Static_assert(SELECTS((CUdevice_attribute)0, spw__cu_device_attribute), "CUdevice_attribute differs");
_Static_assert(SELECTS((CUpointer_attribute)0, spw__cu_pointer_attribute), "CUpointer_attribute differs");
_Static_assert(SELECTS((CUmemAllocationGranularity_flags)0, spw__cu_granularity), "granularity differs");

/* Structures: the same size, and each field at the same place with a type of the same meaning. */
#define SAME_SIZE(theirs, ours) _Static_assert(sizeof(theirs) == sizeof(ours), #theirs " has another size")
#define SAME_FIELD(theirs, their_field, ours, our_field)                                                               \
    _Static_assert(offsetof(theirs, their_field) == offsetof(ours, our_field) &&                                       \
                       sizeof(((theirs *)0)->their_field) == sizeof(((ours *)0)->our_field),                           \
                   #theirs "." #their_field " lies elsewhere")

SAME_SIZE(CUmemLocation, struct spw__cu_location);
SAME_FIELD(CUmemLocation, type, struct spw__cu_location, type);
SAME_FIELD(CUmemLocation, id, struct spw__cu_location, id);
SAME_SIZE(CUmemAllocationProp, struct spw__cu_mem_prop);
SAME_FIELD(CUmemAllocationProp, type, struct spw__cu_mem_prop, type);
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes, struct spw__cu_mem_prop, requested_handle_types);
SAME_FIELD(CUmemAllocationProp, location, struct spw__cu_mem_prop, location);
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData, struct spw__cu_mem_prop, win32_meta_data);
SAME_FIELD(CUmemAllocationProp, allocFlags.compressionType, struct spw__cu_mem_prop, flags.compression_type);
SAME_FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, struct spw__cu_mem_prop,
           flags.gpu_direct_rdma_capable);
SAME_FIELD(CUmemAllocationProp, allocFlags.usage, struct spw__cu_mem_prop, flags.usage);
SAME_FIELD(CUmemAllocationProp, allocFlags.reserved, struct spw__cu_mem_prop, flags.reserved);
SAME_SIZE(CUmemAccessDesc, struct spw__cu_access);
SAME_FIELD(CUmemAccessDesc, location, struct spw__cu_access, location);
SAME_FIELD(CUmemAccessDesc, flags, struct spw__cu_access, flags);
#if CUDA_VERSION >= 12080
SAME_SIZE(CUmemcpyAttributes, struct spw__cu_copy_attributes);
SAME_FIELD(CUmemcpyAttributes, srcAccessOrder, struct spw__cu_copy_attributes, src_access_order);
SAME_FIELD(CUmemcpyAttributes, srcLocHint, struct spw__cu_copy_attributes, src_hint);
SAME_FIELD(CUmemcpyAttributes, dstLocHint, struct spw__cu_copy_attributes, dst_hint);
SAME_FIELD(CUmemcpyAttributes, flags, struct spw__cu_copy_attributes, flags);
_Static_assert((int)CU_MEMCPY_SRC_ACCESS_ORDER_STREAM == SPW__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, "order differs");
#endif

#define SPW__X(name, value) _Static_assert((int)CUDA_##name == (value), "CUDA_" #name);
SPW__CU_RESULT_LIST(SPW__X)
#undef SPW__X

#define SPW__X(name, value) _Static_assert((int)CU_##name == (value), "CU_" #name);
SPW__CU_FLAG_LIST(SPW__X)
#undef SPW__X

#define FIELD_TYPE(field) __typeof__(((struct spw__driver *)0)->field)

/* Three ways to name one signature: what the header maps the plain name to, the exported symbol, and the typedef for
 * cuGetProcAddress at the version that the loader asks for. */
#define SPW__X(field, name, symbol, version, params, args)                                                             \
    _Static_assert(SELECTS(&name, FIELD_TYPE(field)), #name " has another signature");                                 \
    _Static_assert(SELECTS(&symbol, FIELD_TYPE(field)), #symbol " has another signature");                             \
    _Static_assert(SELECTS((PFN_##name##_v##version)0, FIELD_TYPE(field)), #name " differs at version " #version);
SPW__DRIVER_REQUIRED_LIST(SPW__X)
#undef SPW__X

/* An entry that some drivers lack is younger than some headers, and only the newest signature has the plain name. */
#if CUDA_VERSION >= 12080
_Static_assert(SELECTS((PFN_cuMemcpyBatchAsync_v12080)0, FIELD_TYPE(memcpy_batch_async)), "cuMemcpyBatchAsync differs");
#endif
#if CUDA_VERSION >= 13000
_Static_assert(SELECTS((PFN_cuMemcpyBatchAsync_v13000)0, FIELD_TYPE(memcpy_batch_async_v2)),
               "cuMemcpyBatchAsync_v2 differs");
_Static_assert(SELECTS(&cuMemcpyBatchAsync_v2, FIELD_TYPE(memcpy_batch_async_v2)), "cuMemcpyBatchAsync_v2 differs");
#endif
#define SPW__X(field, name, symbol, version, params, args) +1
_Static_assert(0 SPW__DRIVER_OPTIONAL_LIST(SPW__X) == 2, "an optional entry is not proved here");
#undef SPW__X
