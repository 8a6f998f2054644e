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

/* By selection: it follows C's rule that an enum is compatible with its integer type, return types included. */
#define SELECTS(expression, type) _Generic((expression), type: 1, default: 0)

_Static_assert(SELECTS((CUresult)0, spw__cu_result), "CUresult differs");

#define SPW__X(name, value) _Static_assert((int)CUDA_##name == (value), "CUDA_" #name);
SPW__CU_RESULT_LIST(SPW__X)
#undef SPW__X

#define SPW__X(name, value) _Static_assert((int)CU_##name == (value), "CU_" #name);
SPW__CU_FLAG_LIST(SPW__X)
#undef SPW__X

#define FIELD_TYPE(field) __typeof__(((struct spw__driver *)0)->field)

/* Three ways to name one signature: what the header maps the plain name to, the exported symbol, and the typedef for
 * cuGetProcAddress at the version that the loader asks for. */
#define SPW__X(field, name, symbol, version, params)                                                                   \
    _Static_assert(SELECTS(&name, FIELD_TYPE(field)), #name " has another signature");                                 \
    _Static_assert(SELECTS(&symbol, FIELD_TYPE(field)), #symbol " has another signature");                             \
    _Static_assert(SELECTS((PFN_##name##_v##version)0, FIELD_TYPE(field)), #name " differs at version " #version);
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
