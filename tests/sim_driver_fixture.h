/* One simulated device of 16 MiB behind its driver table, current on the thread: for the tests of the driver itself. */
#ifndef SPW_TESTS_SIM_DRIVER_FIXTURE_H
#define SPW_TESTS_SIM_DRIVER_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/driver.h"

#define MIB (1024ull * 1024)
#define UNIT (2 * MIB)

static const struct spw__driver *driver;
static spw__cu_device ordinal;
static struct spw__cu_mem_prop prop;
static struct spw__cu_access access_rights;

#define OK(call) ck_assert_uint_eq((call), SPW__CU_SUCCESS)
#define REFUSED(call) ck_assert_uint_eq((call), SPW__CU_ERROR_INVALID_VALUE)

static void setup(void)
{
    spw__cu_context context;
    ck_assert_int_eq(spw__driver_sim_add(&(struct spw__sim_config){.capacity_bytes = 16 * MIB}, &driver, &ordinal), 0);
    OK(driver->primary_ctx_retain(&context, ordinal));
    OK(driver->ctx_push_current(context));
    prop = (struct spw__cu_mem_prop){.type = SPW__CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {SPW__CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
    access_rights = (struct spw__cu_access){prop.location, SPW__CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static uint64_t free_bytes(void)
{
    size_t free = 0, total = 0;
    OK(driver->mem_get_info(&free, &total));
    ck_assert_uint_eq(total, 16 * MIB);
    return free;
}

/* Everything must have come back. */
static void teardown(void)
{
    spw__cu_context context;
    ck_assert_uint_eq(free_bytes(), 16 * MIB);
    OK(driver->ctx_pop_current(&context));
    OK(driver->primary_ctx_release(ordinal));
    spw__driver_sim_remove(ordinal);
}

static inline spw__cu_deviceptr must_reserve(size_t bytes)
{
    spw__cu_deviceptr address = 0;
    OK(driver->mem_address_reserve(&address, bytes, 0, 0, 0));
    ck_assert_uint_ne(address, 0);
    ck_assert_uint_eq(address % UNIT, 0);
    return address;
}

static inline spw__cu_mem_handle must_create(size_t bytes)
{
    spw__cu_mem_handle handle = 0;
    OK(driver->mem_create(&handle, bytes, spw__cu_mem_prop(&prop), 0));
    return handle;
}

static inline spw__cu_result allow(spw__cu_deviceptr address, size_t bytes)
{
    return driver->mem_set_access(address, bytes, spw__cu_access(&access_rights), 1);
}

static inline spw__cu_stream must_stream(void)
{
    spw__cu_stream stream = NULL;
    OK(driver->stream_create(&stream, SPW__CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 29 + (i >> 11) + seed);
}

#endif
