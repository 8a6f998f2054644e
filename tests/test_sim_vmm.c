/* Mapped memory of the simulated driver, by CUDA's rules, at the driver's own table. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/driver.h"
#include "tests/sim_driver_fixture.h"
#include "tests/suite_fixture.h"

/* Writes bytes at address through a stream, and reads them back. */
static void round_trip(spw__cu_deviceptr address, size_t bytes, unsigned seed)
{
    unsigned char *in = malloc(bytes), *out = malloc(bytes);
    spw__cu_stream stream = must_stream();
    fill(in, bytes, seed);
    OK(driver->memcpy_h_to_d_async(address, in, bytes, stream));
    OK(driver->memcpy_d_to_h_async(out, address, bytes, stream));
    OK(driver->stream_synchronize(stream));
    ck_assert_mem_eq(in, out, bytes);
    OK(driver->stream_destroy(stream));
    free(in);
    free(out);
}

START_TEST(neighbouring_mappings_are_one_range_for_a_copy)
{
    const spw__cu_deviceptr base = must_reserve(8 * UNIT);
    const spw__cu_mem_handle first = must_create(UNIT), second = must_create(2 * UNIT);
    OK(driver->mem_map(base, UNIT, 0, first, 0));
    OK(driver->mem_map(base + UNIT, 2 * UNIT, 0, second, 0));
    OK(allow(base, 3 * UNIT));
    round_trip(base + 100, 3 * UNIT - 200, 1);
    OK(driver->mem_unmap(base, 3 * UNIT));
    OK(driver->mem_release(first));
    OK(driver->mem_release(second));
    OK(driver->mem_address_free(base, 8 * UNIT));
}
END_TEST

START_TEST(memory_is_used_only_where_it_is_mapped_and_allowed)
{
    unsigned char host[256] = {0};
    const spw__cu_deviceptr base = must_reserve(4 * UNIT);
    const spw__cu_mem_handle handle = must_create(UNIT), other = must_create(UNIT);
    REFUSED(driver->memcpy_h_to_d_async(base, host, 256, NULL));
    OK(driver->mem_map(base, UNIT, 0, handle, 0));
    REFUSED(driver->memcpy_h_to_d_async(base, host, 256, NULL)); /* no access yet */
    OK(allow(base, UNIT));
    OK(driver->memcpy_h_to_d_async(base, host, 256, NULL));
    OK(driver->mem_map(base + 2 * UNIT, UNIT, 0, other, 0));
    OK(allow(base + 2 * UNIT, UNIT));
    REFUSED(driver->memcpy_h_to_d_async(base + UNIT - 128, host, 256, NULL)); /* over the edge of a gap */
    REFUSED(driver->memcpy_h_to_d_async(base + 3 * UNIT - 128, host, 256, NULL));
    REFUSED(driver->memcpy_d_to_h_async((void *)(uintptr_t)(base + 3 * UNIT), base, 256, NULL)); /* no host memory */
    REFUSED(driver->mem_free(base));
    access_rights.flags = SPW__CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(allow(base, UNIT));
    REFUSED(driver->memcpy_h_to_d_async(base, host, 256, NULL));
    OK(driver->stream_synchronize(NULL));
    OK(driver->mem_unmap(base, UNIT));
    OK(driver->mem_unmap(base + 2 * UNIT, UNIT));
    REFUSED(driver->memcpy_h_to_d_async(base + 2 * UNIT, host, 256, NULL));
    OK(driver->mem_release(handle));
    OK(driver->mem_release(other));
    OK(driver->mem_address_free(base, 4 * UNIT));
}
END_TEST

/* The bytes are the physical memory's: they move with it, and one memory may be mapped twice. */
START_TEST(bytes_stay_with_their_memory)
{
    const spw__cu_deviceptr base = must_reserve(2 * UNIT), other = must_reserve(UNIT);
    const spw__cu_mem_handle handle = must_create(UNIT);
    OK(driver->mem_map(base, UNIT, 0, handle, 0));
    OK(allow(base, UNIT));
    const unsigned char *fresh = spw__sim_host_pointer(base);
    ck_assert_int_eq(fresh[0], 0xa5);
    ck_assert_int_eq(fresh[UNIT - 1], 0xa5);
    round_trip(base, UNIT, 3);
    OK(driver->mem_map(other, UNIT, 0, handle, 0));
    OK(allow(other, UNIT));
    ck_assert_mem_eq(spw__sim_host_pointer(other), spw__sim_host_pointer(base), UNIT);
    OK(driver->mem_unmap(base, UNIT));
    ck_assert_ptr_null(spw__sim_host_pointer(base));
    OK(driver->mem_unmap(other, UNIT));
    OK(driver->mem_map(base + UNIT, UNIT, 0, handle, 0));
    OK(allow(base + UNIT, UNIT));
    unsigned char expected[4096];
    fill(expected, sizeof expected, 3);
    ck_assert_mem_eq(spw__sim_host_pointer(base + UNIT), expected, sizeof expected);
    OK(driver->mem_release(handle)); /* lives on until it is mapped nowhere */
    ck_assert_uint_eq(free_bytes(), 16 * MIB - UNIT);
    REFUSED(driver->mem_release(handle));
    OK(driver->mem_unmap(base + UNIT, UNIT));
    ck_assert_uint_eq(free_bytes(), 16 * MIB);
    OK(driver->mem_address_free(base, 2 * UNIT));
    OK(driver->mem_address_free(other, UNIT));
}
END_TEST

START_TEST(physical_memory_is_what_the_capacity_counts)
{
    spw__cu_mem_handle handles[8], more = 0;
    spw__cu_deviceptr plain = 0;
    const spw__cu_deviceptr base = must_reserve(1024 * UNIT); /* addresses cost nothing */
    ck_assert_uint_eq(free_bytes(), 16 * MIB);
    for (unsigned i = 0; i < 8; i++)
        handles[i] = must_create(UNIT);
    ck_assert_uint_eq(free_bytes(), 0);
    ck_assert_uint_eq(driver->mem_create(&more, UNIT, spw__cu_mem_prop(&prop), 0), SPW__CU_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(driver->mem_alloc(&plain, 1), SPW__CU_ERROR_OUT_OF_MEMORY);
    OK(driver->mem_release(handles[0]));
    OK(driver->mem_alloc(&plain, UNIT));
    ck_assert_uint_eq(driver->mem_create(&more, UNIT, spw__cu_mem_prop(&prop), 0), SPW__CU_ERROR_OUT_OF_MEMORY);
    OK(driver->mem_free(plain));
    for (unsigned i = 1; i < 8; i++)
        OK(driver->mem_release(handles[i]));
    OK(driver->mem_address_free(base, 1024 * UNIT));
}
END_TEST

START_TEST(mapped_memory_is_given_back_after_the_copies_that_use_it)
{
    const size_t bytes = 4 * UNIT;
    unsigned char *in = malloc(bytes), *out = calloc(1, bytes);
    const spw__cu_deviceptr base = must_reserve(bytes);
    const spw__cu_mem_handle handle = must_create(bytes);
    spw__cu_stream stream = must_stream();
    fill(in, bytes, 5);
    OK(driver->mem_map(base, bytes, 0, handle, 0));
    OK(allow(base, bytes));
    OK(driver->memcpy_h_to_d_async(base, in, bytes, stream));
    OK(driver->memcpy_d_to_h_async(out, base, bytes, stream));
    OK(driver->mem_unmap(base, bytes));
    OK(driver->mem_release(handle));
    OK(driver->mem_address_free(base, bytes));
    OK(driver->stream_synchronize(stream));
    ck_assert_mem_eq(in, out, bytes);
    OK(driver->stream_destroy(stream));
    free(in);
    free(out);
}
END_TEST

START_TEST(wrong_reservations_and_wrong_memory_are_refused)
{
    spw__cu_deviceptr address = 0;
    spw__cu_mem_handle handle = 0;
    size_t granularity = 0;
    const struct spw__cu_mem_prop good = prop;
    OK(driver->mem_get_allocation_granularity(&granularity, spw__cu_mem_prop(&prop),
                                              SPW__CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ck_assert_uint_eq(granularity, UNIT);
    REFUSED(driver->mem_get_allocation_granularity(&granularity, spw__cu_mem_prop(&prop), 2));
    REFUSED(driver->mem_address_reserve(&address, 0, 0, 0, 0));
    REFUSED(driver->mem_address_reserve(&address, 100, 0, 0, 0));
    REFUSED(driver->mem_address_reserve(&address, UNIT, 3, 0, 0));
    REFUSED(driver->mem_address_reserve(&address, UNIT, 0, 0, 1));
    ck_assert_uint_eq(driver->mem_address_reserve(&address, UINT64_MAX - 4095, 0, 0, 0), SPW__CU_ERROR_OUT_OF_MEMORY);

    REFUSED(driver->mem_create(&handle, 0, spw__cu_mem_prop(&prop), 0));
    REFUSED(driver->mem_create(&handle, UNIT + 4096, spw__cu_mem_prop(&prop), 0));
    REFUSED(driver->mem_create(&handle, UNIT, spw__cu_mem_prop(&prop), 1));
    REFUSED(driver->mem_create(&handle, UNIT, NULL, 0));
    prop.flags.reserved[3] = 1;
    REFUSED(driver->mem_create(&handle, UNIT, spw__cu_mem_prop(&prop), 0));
    prop = good;
    prop.type = 2; /* managed */
    ck_assert_uint_eq(driver->mem_create(&handle, UNIT, spw__cu_mem_prop(&prop), 0), SPW__CU_ERROR_NOT_SUPPORTED);
    prop = good;
    prop.requested_handle_types = 8; /* fabric */
    ck_assert_uint_eq(driver->mem_create(&handle, UNIT, spw__cu_mem_prop(&prop), 0), SPW__CU_ERROR_NOT_SUPPORTED);
    prop = good;
    prop.location.id = ordinal + 1;
    ck_assert_uint_eq(driver->mem_create(&handle, UNIT, spw__cu_mem_prop(&prop), 0), SPW__CU_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(wrong_uses_of_mapped_memory_are_refused)
{
    const spw__cu_deviceptr address = must_reserve(4 * UNIT);
    const spw__cu_mem_handle handle = must_create(2 * UNIT);
    REFUSED(driver->mem_map(address, UNIT, 0, handle + 1, 0));
    REFUSED(driver->mem_map(address, UNIT, UNIT, handle, 0));
    REFUSED(driver->mem_map(address, 0, 0, handle, 0));
    REFUSED(driver->mem_map(address, 3 * UNIT, 0, handle, 0));
    REFUSED(driver->mem_map(address + 4096, UNIT, 0, handle, 0));
    REFUSED(driver->mem_map(address + 3 * UNIT, 2 * UNIT, 0, handle, 0));
    REFUSED(driver->mem_map(address + 4 * UNIT, UNIT, 0, handle, 0));
    OK(driver->mem_map(address + UNIT, 2 * UNIT, 0, handle, 0));
    REFUSED(driver->mem_map(address, 2 * UNIT, 0, handle, 0)); /* there is something */
    REFUSED(driver->mem_map(address + 2 * UNIT, UNIT, 0, handle, 0));
    REFUSED(allow(address, 2 * UNIT));
    REFUSED(allow(address + UNIT, UNIT));
    REFUSED(driver->mem_set_access(address + UNIT, 2 * UNIT, spw__cu_access(&access_rights), 0));
    access_rights.location.id++;
    ck_assert_uint_eq(allow(address + UNIT, 2 * UNIT), SPW__CU_ERROR_INVALID_DEVICE);
    access_rights.location.id--;
    access_rights.flags = SPW__CU_MEM_ACCESS_FLAGS_PROT_READ;
    ck_assert_uint_eq(allow(address + UNIT, 2 * UNIT), SPW__CU_ERROR_NOT_SUPPORTED);
    REFUSED(driver->mem_unmap(address + UNIT, UNIT)); /* a part */
    REFUSED(driver->mem_unmap(address, 3 * UNIT));
    REFUSED(driver->mem_unmap(address, UNIT));
    REFUSED(driver->mem_address_free(address, 4 * UNIT)); /* still mapped */
    OK(driver->mem_unmap(address + UNIT, 2 * UNIT));
    REFUSED(driver->mem_address_free(address, 2 * UNIT));
    REFUSED(driver->mem_address_free(address + UNIT, 3 * UNIT));
    OK(driver->mem_address_free(address, 4 * UNIT));
    REFUSED(driver->mem_address_free(address, 4 * UNIT));
    OK(driver->mem_release(handle));
}
END_TEST

START_TEST(cpu_touch_of_a_mapped_address_dies)
{
    const spw__cu_deviceptr base = must_reserve(UNIT);
    const spw__cu_mem_handle handle = must_create(UNIT);
    OK(driver->mem_map(base, UNIT, 0, handle, 0));
    OK(allow(base, UNIT));
    (void)signal(SIGSEGV, SIG_DFL); /* whatever handler a sanitizer has put there */
    *(volatile char *)(uintptr_t)base = 1;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_vmm");
    TCase *tcase = tcase_create("table");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, neighbouring_mappings_are_one_range_for_a_copy);
    tcase_add_test(tcase, memory_is_used_only_where_it_is_mapped_and_allowed);
    tcase_add_test(tcase, bytes_stay_with_their_memory);
    tcase_add_test(tcase, physical_memory_is_what_the_capacity_counts);
    tcase_add_test(tcase, mapped_memory_is_given_back_after_the_copies_that_use_it);
    tcase_add_test(tcase, wrong_reservations_and_wrong_memory_are_refused);
    tcase_add_test(tcase, wrong_uses_of_mapped_memory_are_refused);
    tcase_add_test_raise_signal(tcase, cpu_touch_of_a_mapped_address_dies, SIGSEGV);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
