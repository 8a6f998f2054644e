/* grow=vmm through the API: device pools that take memory as they need it, at addresses that stay. */
#include "tests/pool_fixture.h"

#include "pool/device/inside.h"

#define MAPPED_SPEC "device=96M; driver=sim; grow=vmm; host=96M"
#define STEP (36 * MIB) /* the first: 32 MiB, in chunks of a sixteenth of the pool */

/* What the device's driver has handed out. */
static uint64_t used(void)
{
    size_t free_bytes = 0, total = 0;
    ck_assert_uint_eq(CALL(manager->device, mem_get_info, &free_bytes, &total), SPW__CU_SUCCESS);
    return total - free_bytes;
}

START_TEST(memory_comes_with_use_and_goes_with_trim_at_addresses_that_stay)
{
    spw_pool_region before, after;
    uint32_t n = 0;
    uint64_t trimmed = 0;
    open_manager(MAPPED_SPEC);
    const uint64_t rest = used(); /* of the context, on a real device */
    ck_assert_int_eq(spw_pool_regions(manager, SPW_DEVICE, &before, 1, &n), SPW_OK);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(before.size, 96 * MIB);
    spw_buffer *buffer = must_make(SPW_DEVICE, 20 * MIB, 1), *other = must_make(SPW_DEVICE, 40 * MIB, 2);
    ck_assert_uint_ge(used() - rest, 60 * MIB);
    spw_view view;
    ck_assert_int_eq(spw_map(other, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_uint_lt((uintptr_t)view.data - (uintptr_t)before.base, before.size);
    ck_assert_int_eq(spw_unmap(other, &view, NULL), SPW_OK);
    must_release(other);
    check_at(buffer, SPW_DEVICE, 1);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_DEVICE, 0, &trimmed), SPW_OK);
    ck_assert_uint_ge(trimmed, 24 * MIB);
    ck_assert_uint_eq(used() - rest, 24 * MIB); /* whole chunks of 6 MiB */
    check_at(buffer, SPW_DEVICE, 1);
    other = must_make(SPW_DEVICE, 70 * MIB, 3);
    check_at(other, SPW_DEVICE, 3);
    check_at(buffer, SPW_DEVICE, 1);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_DEVICE, &after, 1, &n), SPW_OK);
    ck_assert_ptr_eq(after.base, before.base);
    must_release(buffer);
    must_release(other);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_DEVICE, 0, &trimmed), SPW_OK);
    ck_assert_uint_eq(used(), rest);
}
END_TEST

START_TEST(buffers_are_pushed_out_of_mapped_memory_as_of_any_other)
{
    spw_buffer *buffers[12];
    open_manager(MAPPED_SPEC "; staging=8M; disk=%s:1G");
    for (unsigned i = 0; i < 12; i++)
        buffers[i] = must_make(SPW_DEVICE, 15 * MIB, i);
    for (unsigned i = 0; i < 12; i++)
        check_at(buffers[i], SPW_HOST, i);
    for (unsigned i = 0; i < 12; i++) {
        check_at(buffers[i], SPW_DEVICE, i);
        must_release(buffers[i]);
    }
}
END_TEST

/* Somebody else has taken the device's memory: the pool makes do with what it has. */
START_TEST(a_device_without_memory_pushes_buffers_out_instead_of_growing)
{
    spw_buffer *buffers[8];
    open_manager(MAPPED_SPEC);
    buffers[0] = must_make(SPW_DEVICE, 8 * MIB, 0);
    ck_assert_uint_eq(used(), STEP);
    spw__sim_fail(SPW__ENTRY_mem_create, 1, 0, SPW__CU_ERROR_OUT_OF_MEMORY);
    for (unsigned i = 1; i < 8; i++)
        buffers[i] = must_make(SPW_DEVICE, 8 * MIB, i);
    ck_assert_uint_eq(used(), STEP);
    ck_assert_uint_ge(committed(SPW_TIER_HOST), 4 * 8 * MIB);
    spw__sim_fail(SPW__ENTRY_mem_create, 0, 0, 0);
    for (unsigned i = 0; i < 8; i++) {
        check_at(buffers[i], SPW_DEVICE, i);
        must_release(buffers[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grow_vmm");
    TCase *both = new_case("any device", suite);
    tcase_add_test(both, memory_comes_with_use_and_goes_with_trim_at_addresses_that_stay);
    tcase_add_test(both, buffers_are_pushed_out_of_mapped_memory_as_of_any_other);
    if (driver_kind() == SPW_DRIVER_SIM)
        tcase_add_test(new_case("faults", suite), a_device_without_memory_pushes_buffers_out_instead_of_growing);
    return run_suite(suite);
}
