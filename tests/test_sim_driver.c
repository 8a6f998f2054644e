/* The simulated driver at its own table: attributes, batched copies, and faults for each entry point. What the device
 * layer makes of it is test_device.c's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/driver.h"
#include "tests/sim_driver_fixture.h"
#include "tests/suite_fixture.h"

/* Attributes */

static unsigned attribute(spw__cu_pointer_attribute which, spw__cu_deviceptr address)
{
    unsigned value = 77;
    OK(driver->pointer_get_attribute(&value, which, address));
    return value;
}

static void is_range(spw__cu_deviceptr address, spw__cu_deviceptr start, size_t bytes)
{
    spw__cu_deviceptr found = 0;
    size_t size = 0;
    OK(driver->pointer_get_attribute(&found, SPW__CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    OK(driver->pointer_get_attribute(&size, SPW__CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    ck_assert_uint_eq(found, start);
    ck_assert_uint_eq(size, bytes);
}

START_TEST(an_address_says_what_it_is)
{
    unsigned char host[4096];
    unsigned value = 0, on = 1;
    spw__cu_deviceptr plain = 0;
    OK(driver->mem_alloc(&plain, MIB));
    OK(driver->mem_host_register(host, sizeof host, SPW__CU_MEMHOSTREGISTER_PORTABLE));
    const spw__cu_deviceptr base = must_reserve(4 * UNIT), registered = (uintptr_t)host;
    prop.requested_handle_types = SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.flags.gpu_direct_rdma_capable = 1;
    const spw__cu_mem_handle handle = must_create(UNIT);
    OK(driver->mem_map(base, UNIT, 0, handle, 0));

    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain), SPW__CU_MEMORYTYPE_DEVICE);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base), SPW__CU_MEMORYTYPE_DEVICE);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, registered), SPW__CU_MEMORYTYPE_HOST);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED, plain), 0);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED, base), 0);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED, registered), 0);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, plain), (unsigned)ordinal);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain), 1);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base), 0);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, base), 1);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, base),
                      SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, plain), 0);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_MAPPED, base), 1);
    ck_assert_uint_eq(attribute(SPW__CU_POINTER_ATTRIBUTE_MAPPED, base + UNIT), 0);
    is_range(plain + 5000, plain, MIB);
    is_range(base + UNIT - 1, base, 4 * UNIT);
    is_range(registered + 10, registered, sizeof host);

    OK(driver->pointer_set_attribute(&on, SPW__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
    REFUSED(driver->pointer_set_attribute(&on, SPW__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, registered));
    REFUSED(driver->pointer_set_attribute(&on, SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
    REFUSED(driver->pointer_get_attribute(&value, SPW__CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&value));
    REFUSED(driver->pointer_get_attribute(&value, 9999, plain));

    OK(driver->mem_host_unregister(host));
    OK(driver->mem_unmap(base, UNIT));
    OK(driver->mem_release(handle));
    OK(driver->mem_address_free(base, 4 * UNIT));
    OK(driver->mem_free(plain));
}
END_TEST

START_TEST(a_device_says_what_it_can)
{
    int value = 0;
    OK(driver->device_get_attribute(&value, SPW__CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, ordinal));
    ck_assert_int_eq(value, 2);
    OK(driver->device_get_attribute(&value, SPW__CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal));
    ck_assert_int_eq(value, 1);
    REFUSED(driver->device_get_attribute(&value, 9999, ordinal));
    ck_assert_uint_eq(driver->device_get_attribute(&value, 40, ordinal + 1), SPW__CU_ERROR_INVALID_DEVICE);
}
END_TEST

/* Batches */

static spw__cu_result batch(bool second, spw__cu_deviceptr *dsts, spw__cu_deviceptr *srcs, size_t *sizes, size_t count,
                            size_t *failed, spw__cu_stream stream)
{
    struct spw__cu_copy_attributes attributes = {.src_access_order = SPW__CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first_of = 0;
    if (second)
        return driver->memcpy_batch_async_v2(dsts, srcs, sizes, count, spw__cu_copy_attributes(&attributes), &first_of,
                                             1, stream);
    return driver->memcpy_batch_async(dsts, srcs, sizes, count, spw__cu_copy_attributes(&attributes), &first_of, 1,
                                      failed, stream);
}

START_TEST(a_batch_copies_in_every_direction)
{
    const bool second = _i != 0;
    unsigned char in[3000], out[3000] = {0};
    spw__cu_deviceptr a = 0, b = 0;
    spw__cu_stream stream = must_stream();
    size_t failed = 0;
    fill(in, sizeof in, 7);
    OK(driver->mem_alloc(&a, MIB));
    OK(driver->mem_alloc(&b, MIB));
    OK(batch(second, (spw__cu_deviceptr[]){a, a + 1000}, (spw__cu_deviceptr[]){(uintptr_t)in, (uintptr_t)(in + 1000)},
             (size_t[]){1000, 2000}, 2, &failed, stream));
    OK(driver->stream_synchronize(stream));
    OK(batch(second, (spw__cu_deviceptr[]){b}, (spw__cu_deviceptr[]){a}, (size_t[]){3000}, 1, &failed, stream));
    OK(driver->stream_synchronize(stream));
    OK(batch(second, (spw__cu_deviceptr[]){(uintptr_t)out, (uintptr_t)(out + 10)}, (spw__cu_deviceptr[]){b, b + 10},
             (size_t[]){10, 2990}, 2, &failed, stream));
    OK(driver->stream_synchronize(stream));
    ck_assert_mem_eq(in, out, sizeof in);
    OK(driver->stream_destroy(stream));
    OK(driver->mem_free(a));
    OK(driver->mem_free(b));
}
END_TEST

START_TEST(a_wrong_batch_is_refused_and_says_where)
{
    unsigned char host[256] = {0};
    size_t failed = 0, first_of[2] = {0, 1};
    struct spw__cu_copy_attributes attributes[2] = {{.src_access_order = 1}, {.src_access_order = 1}};
    spw__cu_deviceptr a = 0, dsts[2], srcs[2] = {(uintptr_t)host, (uintptr_t)host};
    size_t sizes[2] = {100, 100};
    spw__cu_stream stream = must_stream();
    OK(driver->mem_alloc(&a, MIB));
    dsts[0] = a;
    dsts[1] = a + MIB - 50;
    REFUSED(batch(false, dsts, srcs, sizes, 2, &failed, stream));
    ck_assert_uint_eq(failed, 1);
    dsts[1] = a + 100;
    REFUSED(batch(false, dsts, srcs, sizes, 2, &failed, NULL)); /* not on the default stream */
    ck_assert_uint_eq(failed, SIZE_MAX);
    REFUSED(batch(true, dsts, srcs, sizes, 0, NULL, stream));
    OK(driver->memcpy_batch_async_v2(dsts, srcs, sizes, 2, spw__cu_copy_attributes(attributes), first_of, 2, stream));
    first_of[0] = 1;
    REFUSED(driver->memcpy_batch_async_v2(dsts, srcs, sizes, 2, spw__cu_copy_attributes(attributes), first_of, 2,
                                          stream));
    first_of[0] = 0;
    first_of[1] = 2;
    REFUSED(driver->memcpy_batch_async_v2(dsts, srcs, sizes, 2, spw__cu_copy_attributes(attributes), first_of, 2,
                                          stream));
    attributes[0].src_access_order = 0;
    REFUSED(driver->memcpy_batch_async_v2(dsts, srcs, sizes, 2, spw__cu_copy_attributes(attributes), first_of, 1,
                                          stream));
    attributes[0].src_access_order = 3;
    ck_assert_uint_eq(driver->memcpy_batch_async_v2(dsts, srcs, sizes, 2, spw__cu_copy_attributes(attributes), first_of,
                                                    1, stream),
                      SPW__CU_ERROR_NOT_SUPPORTED);
    OK(driver->stream_destroy(stream));
    OK(driver->mem_free(a));
}
END_TEST

/* Faults */

START_TEST(the_nth_call_fails_and_does_nothing)
{
    spw__cu_deviceptr address[5] = {0};
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_alloc), 0);
    spw__sim_fail(SPW__ENTRY_mem_alloc, 2, 2, SPW__CU_ERROR_OUT_OF_MEMORY);
    OK(driver->mem_alloc(&address[0], UNIT));
    ck_assert_uint_eq(driver->mem_alloc(&address[1], UNIT), SPW__CU_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(driver->mem_alloc(&address[2], UNIT), SPW__CU_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(address[1], 0);
    ck_assert_uint_eq(free_bytes(), 16 * MIB - UNIT);
    OK(driver->mem_alloc(&address[3], UNIT));
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_alloc), 4);
    spw__sim_fail(SPW__ENTRY_mem_free, 1, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_uint_eq(driver->mem_free(address[0]), SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_uint_eq(free_bytes(), 16 * MIB - 2 * UNIT);
    OK(driver->mem_free(address[0]));
    OK(driver->mem_free(address[3]));
}
END_TEST

START_TEST(a_fault_lasts_until_it_is_disarmed)
{
    spw__cu_event event = NULL;
    spw__sim_fail(SPW__ENTRY_event_create, 3, 0, SPW__CU_ERROR_OUT_OF_MEMORY);
    spw__sim_fail(SPW__ENTRY_event_create, 1, 0, SPW__CU_ERROR_OPERATING_SYSTEM); /* arming again replaces */
    for (unsigned i = 0; i < 60; i++)
        ck_assert_uint_eq(driver->event_create(&event, 0), SPW__CU_ERROR_OPERATING_SYSTEM);
    spw__sim_fail(SPW__ENTRY_event_create, 0, 0, SPW__CU_SUCCESS);
    OK(driver->event_create(&event, 0));
    OK(driver->event_destroy(event));
}
END_TEST

START_TEST(a_sticky_result_loses_the_device)
{
    spw__cu_deviceptr address = 0, base = must_reserve(UNIT);
    const spw__cu_mem_handle handle = must_create(UNIT);
    spw__cu_context context;
    size_t free = 0, total = 0;
    OK(driver->mem_map(base, UNIT, 0, handle, 0));
    OK(driver->mem_alloc(&address, UNIT));
    spw__sim_fail(SPW__ENTRY_mem_get_info, 1, 1, SPW__CU_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_uint_eq(driver->mem_get_info(&free, &total), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(driver->mem_alloc(&address, UNIT), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(driver->mem_create(&(spw__cu_mem_handle){0}, UNIT, spw__cu_mem_prop(&prop), 0),
                      SPW__CU_ERROR_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(allow(base, UNIT), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    /* What is given back is gone nonetheless. */
    ck_assert_uint_eq(driver->mem_unmap(base, UNIT), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    REFUSED(driver->mem_unmap(base, UNIT));
    ck_assert_uint_eq(driver->mem_release(handle), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    REFUSED(driver->mem_release(handle));
    ck_assert_uint_eq(driver->mem_address_free(base, UNIT), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    REFUSED(driver->mem_address_free(base, UNIT));
    ck_assert_uint_eq(driver->mem_free(address), SPW__CU_ERROR_ILLEGAL_ADDRESS);
    OK(driver->ctx_pop_current(&context));
    OK(driver->primary_ctx_release(ordinal));
    spw__driver_sim_remove(ordinal);
    setup(); /* for teardown: a new device is healthy */
}
END_TEST

/* Called with nothing that makes sense: the fault comes before any of it is looked at. */
static spw__cu_result call(enum spw__driver_entry entry)
{
    switch (entry) {
    case SPW__ENTRY_get_error_name: return driver->get_error_name(0, 0);
    case SPW__ENTRY_init: return driver->init(0);
    case SPW__ENTRY_driver_get_version: return driver->driver_get_version(0);
    case SPW__ENTRY_device_get_count: return driver->device_get_count(0);
    case SPW__ENTRY_device_get: return driver->device_get(0, 0);
    case SPW__ENTRY_device_get_name: return driver->device_get_name(0, 0, 0);
    case SPW__ENTRY_device_get_attribute: return driver->device_get_attribute(0, 0, 0);
    case SPW__ENTRY_primary_ctx_retain: return driver->primary_ctx_retain(0, 0);
    case SPW__ENTRY_primary_ctx_release: return driver->primary_ctx_release(0);
    case SPW__ENTRY_ctx_get_current: return driver->ctx_get_current(0);
    case SPW__ENTRY_ctx_push_current: return driver->ctx_push_current(0);
    case SPW__ENTRY_ctx_pop_current: return driver->ctx_pop_current(0);
    case SPW__ENTRY_mem_get_info: return driver->mem_get_info(0, 0);
    case SPW__ENTRY_mem_alloc: return driver->mem_alloc(0, 0);
    case SPW__ENTRY_mem_free: return driver->mem_free(0);
    case SPW__ENTRY_mem_host_register: return driver->mem_host_register(0, 0, 0);
    case SPW__ENTRY_mem_host_unregister: return driver->mem_host_unregister(0);
    case SPW__ENTRY_mem_get_allocation_granularity: return driver->mem_get_allocation_granularity(0, 0, 0);
    case SPW__ENTRY_mem_address_reserve: return driver->mem_address_reserve(0, 0, 0, 0, 0);
    case SPW__ENTRY_mem_address_free: return driver->mem_address_free(0, 0);
    case SPW__ENTRY_mem_create: return driver->mem_create(0, 0, 0, 0);
    case SPW__ENTRY_mem_release: return driver->mem_release(0);
    case SPW__ENTRY_mem_map: return driver->mem_map(0, 0, 0, 0, 0);
    case SPW__ENTRY_mem_unmap: return driver->mem_unmap(0, 0);
    case SPW__ENTRY_mem_set_access: return driver->mem_set_access(0, 0, 0, 0);
    case SPW__ENTRY_pointer_get_attribute: return driver->pointer_get_attribute(0, 0, 0);
    case SPW__ENTRY_pointer_set_attribute: return driver->pointer_set_attribute(0, 0, 0);
    case SPW__ENTRY_stream_create: return driver->stream_create(0, 0);
    case SPW__ENTRY_stream_destroy: return driver->stream_destroy(0);
    case SPW__ENTRY_stream_synchronize: return driver->stream_synchronize(0);
    case SPW__ENTRY_stream_wait_event: return driver->stream_wait_event(0, 0, 0);
    case SPW__ENTRY_memcpy_h_to_d_async: return driver->memcpy_h_to_d_async(0, 0, 0, 0);
    case SPW__ENTRY_memcpy_d_to_h_async: return driver->memcpy_d_to_h_async(0, 0, 0, 0);
    case SPW__ENTRY_memcpy_d_to_d_async: return driver->memcpy_d_to_d_async(0, 0, 0, 0);
    case SPW__ENTRY_event_create: return driver->event_create(0, 0);
    case SPW__ENTRY_event_destroy: return driver->event_destroy(0);
    case SPW__ENTRY_event_record: return driver->event_record(0, 0);
    case SPW__ENTRY_event_query: return driver->event_query(0);
    case SPW__ENTRY_memcpy_batch_async: return driver->memcpy_batch_async(0, 0, 0, 0, 0, 0, 0, 0, 0);
    case SPW__ENTRY_memcpy_batch_async_v2: return driver->memcpy_batch_async_v2(0, 0, 0, 0, 0, 0, 0, 0);
    default: return SPW__CU_SUCCESS;
    }
}

START_TEST(every_entry_point_can_be_made_to_fail)
{
    const enum spw__driver_entry entry = (enum spw__driver_entry)_i;
    spw__sim_fail(entry, 1, 2, SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_uint_eq(call(entry), SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_uint_eq(call(entry), SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_int_eq(spw__sim_calls(entry), 2);
    spw__sim_fail(entry, 0, 0, SPW__CU_SUCCESS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_driver");
    TCase *tcase = tcase_create("table");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_address_says_what_it_is);
    tcase_add_test(tcase, a_device_says_what_it_can);
    tcase_add_loop_test(tcase, a_batch_copies_in_every_direction, 0, 2);
    tcase_add_test(tcase, a_wrong_batch_is_refused_and_says_where);
    tcase_add_test(tcase, the_nth_call_fails_and_does_nothing);
    tcase_add_test(tcase, a_fault_lasts_until_it_is_disarmed);
    tcase_add_test(tcase, a_sticky_result_loses_the_device);
    tcase_add_loop_test(tcase, every_entry_point_can_be_made_to_fail, 0, SPW__ENTRY_COUNT);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
