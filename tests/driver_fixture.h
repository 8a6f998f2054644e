/* The driver under the tests of the device tier: the simulated one that is built in, or with SPILLWAY_TEST_DRIVER=cuda
 * the libcuda.so.1 that is found, here its stand-alone form (tests/libcuda/), which must give the same results. With
 * SPILLWAY_TEST_DRIVER=gpu it may be a real one (tests/gpu/check.sh): nobody looks behind its addresses. */
#ifndef SPW_TESTS_DRIVER_FIXTURE_H
#define SPW_TESTS_DRIVER_FIXTURE_H

#include <check.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/driver.h"

#include <spillway/spec.h>

static inline bool driver_is(const char *wanted)
{
    const char *name = getenv("SPILLWAY_TEST_DRIVER");
    return name && strcmp(name, wanted) == 0;
}

static inline spw_driver_kind driver_kind(void)
{
    return driver_is("cuda") || driver_is("gpu") ? SPW_DRIVER_CUDA : SPW_DRIVER_SIM;
}

/* Where the byte behind a device address lies, NULL if no live allocation holds it. */
static inline void *driver_bytes(uint64_t address)
{
    if (driver_kind() == SPW_DRIVER_SIM)
        return spw__sim_host_pointer(address);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    void *(*find)(uint64_t) = (void *(*)(uint64_t))dlsym(library, "spillway_sim_host_pointer");
    (void)dlclose(library);
    ck_assert_ptr_nonnull((void *)(uintptr_t)find);
    return find(address);
}

#endif
