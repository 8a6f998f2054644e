/* Device memory: one plain allocation a pool, or mapped as it is needed; and host memory that the driver is told of. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "pool/device/inside.h"
#include "tests/tier_fixture.h"
#include "tests/suite_fixture.h"

#define UNIT (2 * MIB)

static const spw_spec_pool one[] = {{12 * MIB, 0}};

static struct {
    unsigned lines;
    int level;
    char last[512];
} said;

static void keep(void *arg, int level, const char *line)
{
    (void)arg;
    said.lines++;
    said.level = level;
    (void)snprintf(said.last, sizeof said.last, "%s", line);
}

static const struct spw__log log_lines = {.fn = keep};

static void setup_mapped(void)
{
    setup_device();
    maps = true;
    log_to = &log_lines;
}

static void setup_plain(void)
{
    setup_device();
    log_to = &log_lines;
}

static void open_device_tier(const spw_spec_pool *pools, uint32_t n_pools)
{
    ck_assert_int_eq(init(SPW_TIER_DEVICE, pools, n_pools), SPW_OK);
}

/* Of the device's 16 MiB. */
static uint64_t used(void)
{
    size_t free_bytes = 0, total = 0;
    ck_assert_uint_eq(CALL(device, mem_get_info, &free_bytes, &total), SPW__CU_SUCCESS);
    return total - free_bytes;
}

static void count_calls(enum spw__driver_entry entry)
{
    spw__sim_fail(entry, LONG_MAX, 1, SPW__CU_ERROR_INVALID_VALUE);
}

static void works(struct spw__block block, unsigned seed)
{
    unsigned char *in = malloc(block.bytes), *out = malloc(block.bytes);
    memset(in, (int)seed, block.bytes);
    ck_assert_int_eq(spw__device_copy_to(device, NULL, block.address, in, block.bytes), SPW_OK);
    ck_assert_int_eq(spw__device_copy_from(device, NULL, out, block.address, block.bytes), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(device, NULL), SPW_OK);
    ck_assert_mem_eq(in, out, block.bytes);
    free(in);
    free(out);
}

START_TEST(a_plain_pool_is_one_allocation_from_the_start)
{
    count_calls(SPW__ENTRY_mem_alloc);
    count_calls(SPW__ENTRY_mem_create);
    open_device_tier(one, 1);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_alloc), 1);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_create), 0);
    ck_assert_uint_eq(used(), 12 * MIB);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 0);
    ck_assert_uint_eq(used(), 12 * MIB);
}
END_TEST

/* The simulated driver never does: its answer is changed. */
static spw__cu_result is_managed(void *value, spw__cu_pointer_attribute attribute, spw__cu_deviceptr address)
{
    (void)address;
    if (attribute != SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED)
        return SPW__CU_ERROR_INVALID_VALUE;
    memcpy(value, &(unsigned){1}, sizeof(unsigned));
    return SPW__CU_SUCCESS;
}

START_TEST(managed_memory_is_refused_and_given_back)
{
    const struct spw__driver *real = device->driver;
    struct spw__driver changed = *real;
    changed.pointer_get_attribute = is_managed;
    device->driver = &changed;
    ck_assert_int_eq(init(SPW_TIER_DEVICE, one, 1), SPW_EDEVICE);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "managed memory"));
    device->driver = real;
    ck_assert_uint_eq(used(), 0);
}
END_TEST

START_TEST(a_mapped_pool_takes_memory_as_it_is_needed_at_addresses_that_stay)
{
    open_device_tier(one, 1);
    const uint64_t base = tier.pools[0].base;
    ck_assert_uint_eq(used(), 0);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 12 * MIB);
    ck_assert(spw__tier_can_grow(&tier));
    tier.pools[0].step = UNIT; /* else 32 MiB at first */
    const struct spw__block first = take(MIB);
    ck_assert_uint_eq(used(), UNIT);
    const struct spw__block second = take(3 * MIB);
    ck_assert_uint_eq(used(), 3 * UNIT); /* a step of two units by now */
    works(first, 1);
    works(second, 2); /* across chunks */
    ck_assert_uint_eq(first.address, base);
    const struct spw__block third = take(8 * MIB);
    ck_assert_uint_eq(used(), 12 * MIB);
    ck_assert(!spw__tier_can_grow(&tier));
    works(third, 3);
    refuses(MIB, SPW_ENOMEM);
    ck_assert_uint_eq(tier.pools[0].base, base);
    ck_assert_uint_eq(said.lines, 0); /* exportable, and reached by GPUDirect RDMA */
    give(first);
    give(second);
    give(third);
}
END_TEST

START_TEST(trim_unmaps_what_lies_behind_the_last_allocation)
{
    open_device_tier(one, 1);
    struct spw__block first = take(MIB), second = take(5 * MIB), third = take(4 * MIB);
    ck_assert_uint_eq(used(), 12 * MIB);
    give(third);
    give(first);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 3 * UNIT); /* the second ends at 6 MiB */
    ck_assert_uint_eq(used(), 3 * UNIT);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), 7 * MIB);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 6 * MIB);
    works(second, 5);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 0);
    third = take(6 * MIB); /* it comes back */
    ck_assert_uint_eq(used(), 12 * MIB);
    works(third, 6);
    give(third);
    give(second);
    ck_assert_uint_eq(spw__tier_trim(&tier, 5 * MIB), 3 * UNIT); /* whole units: 6 MiB stay */
    ck_assert_uint_eq(used(), 3 * UNIT);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 3 * UNIT);
    ck_assert_uint_eq(used(), 0);
    ck_assert(spw__range_check(tier.pools[0].range));
    first = take(12 * MIB);
    works(first, 7);
    give(first);
}
END_TEST

START_TEST(a_pool_that_is_no_multiple_of_a_unit_has_every_byte_of_it)
{
    const spw_spec_pool odd[] = {{5 * MIB + 256, 0}, {1024, 0}};
    open_device_tier(odd, 2);
    const struct spw__block whole = take(5 * MIB), last = take(256), small = take(1024);
    ck_assert_uint_eq(last.address, tier.pools[0].base + 5 * MIB);
    ck_assert_uint_eq(small.pool, 1);
    works(whole, 1);
    works(small, 2);
    works(last, 3);
    ck_assert_uint_eq(used(), 4 * UNIT);
    give(whole);
    give(last);
    give(small);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 4 * UNIT);
}
END_TEST

/* Several pools may want more together than the device has: who comes too late falls to another pool, or is told. */
START_TEST(a_device_without_memory_refuses_and_the_pool_is_as_it_was)
{
    const spw_spec_pool pools[] = {{12 * MIB, 0}, {12 * MIB, 4 * MIB}};
    open_device_tier(pools, 2);
    tier.pools[0].step = tier.pools[1].step = UNIT;
    const struct spw__block large = take(11 * MIB), small = take(4 * MIB);
    ck_assert_uint_eq(large.pool, 0);
    ck_assert_uint_eq(small.pool, 1);
    ck_assert_uint_eq(used(), 16 * MIB);
    const struct spw__block fallen = take(MIB); /* its own pool cannot grow */
    ck_assert_uint_eq(fallen.pool, 0);
    refuses(MIB, SPW_ENOMEM);
    ck_assert_uint_eq(tier.pools[1].grown, 4 * MIB);
    give(large);
    ck_assert_uint_eq(pool_for(MIB), 0);
    give(fallen);
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 12 * MIB);
    const struct spw__block later = take(2 * MIB);
    ck_assert_uint_eq(later.pool, 1);
    works(later, 4);
    give(later);
    give(small);
}
END_TEST

static const enum spw__driver_entry entries[] = {SPW__ENTRY_mem_create, SPW__ENTRY_mem_map, SPW__ENTRY_mem_set_access};

START_TEST(fault_in_any_step_of_mapping_maps_nothing)
{
    for (long n = 1; n <= 6; n += 5) { /* the first and the last of six units */
        open_device_tier(one, 1);
        spw__sim_fail(entries[_i], n, 0, SPW__CU_ERROR_OUT_OF_MEMORY);
        refuses(12 * MIB, SPW_ENOMEM);
        spw__sim_fail(entries[_i], 0, 0, 0);
        ck_assert_uint_eq(used(), 0);
        const struct spw__block block = take(12 * MIB);
        works(block, 3);
        give(block);
        spw__tier_finish(&tier);
        ck_assert_uint_eq(used(), 0);
    }
}
END_TEST

START_TEST(fault_META_ALLOC_after_mapping_leaves_memory_for_the_next_try)
{
    open_device_tier(one, 1);
    unsigned refused = 0;
    struct spw__block block = {.bytes = 0};
    for (long n = 1; !spw__block_is(&block); n++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, n, 1, ENOMEM);
        refused += spw__tier_alloc(&tier, &root, 12 * MIB, &block) != SPW_OK;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_uint_le(used(), 12 * MIB);
    }
    ck_assert_uint_gt(refused, 0);
    works(block, 9);
    give(block);
}
END_TEST

START_TEST(what_the_driver_does_not_take_back_is_used_again_and_given_back_at_the_end)
{
    open_device_tier(one, 1);
    struct spw__block block = take(12 * MIB);
    give(block);
    spw__sim_fail(SPW__ENTRY_mem_unmap, 3, 2, SPW__CU_ERROR_OPERATING_SYSTEM); /* it is asked twice */
    ck_assert_uint_eq(spw__tier_trim(&tier, 0), 2 * UNIT);
    ck_assert_uint_eq(used(), 4 * UNIT);
    block = take(12 * MIB);
    works(block, 2);
    ck_assert_uint_eq(used(), 12 * MIB);
    give(block);
    spw__tier_finish(&tier);
    ck_assert_uint_eq(used(), 0);
}
END_TEST

START_TEST(reserved_addresses_that_are_refused_leave_no_pool)
{
    const spw_spec_pool pools[] = {{4 * MIB, 0}, {4 * MIB, 0}};
    spw__sim_fail(SPW__ENTRY_mem_address_reserve, 2, 1, SPW__CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(init(SPW_TIER_DEVICE, pools, 2), SPW_ENOMEM);
    spw__sim_fail(SPW__ENTRY_mem_address_reserve, 2, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    ck_assert_int_eq(init(SPW_TIER_DEVICE, pools, 2), SPW_EDEVICE);
    open_device_tier(pools, 2);
}
END_TEST

START_TEST(a_device_that_cannot_map_is_said_and_its_pools_are_plain)
{
    spw__sim_fail(SPW__ENTRY_device_get_attribute, 1, 1, SPW__CU_ERROR_INVALID_VALUE);
    open_device_tier(one, 1);
    ck_assert_uint_eq(used(), 12 * MIB);
    ck_assert_uint_eq(said.lines, 1);
    ck_assert_int_eq(said.level, SPW__LOG_WARN);
    ck_assert_ptr_nonnull(strstr(said.last, "grow=vmm"));
    const struct spw__block block = take(12 * MIB);
    give(block);
}
END_TEST

START_TEST(handles_that_cannot_be_exported_are_said_once_and_it_works)
{
    const spw_spec_pool pools[] = {{4 * MIB, 0}, {4 * MIB, MIB}};
    open_device_tier(pools, 2);
    tier.pools[0].step = tier.pools[1].step = UNIT;
    spw__sim_fail(SPW__ENTRY_mem_create, 1, 1, SPW__CU_ERROR_NOT_SUPPORTED);
    const struct spw__block small = take(MIB), large = take(4 * MIB);
    works(small, 1);
    works(large, 2);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_create), 4); /* it is not asked for again */
    ck_assert_uint_eq(said.lines, 1);
    ck_assert_int_eq(said.level, SPW__LOG_INFO);
    ck_assert_ptr_nonnull(strstr(said.last, "exported"));
    ck_assert_ptr_nonnull(strstr(said.last, "GPUDirect RDMA"));
    give(small);
    give(large);
}
END_TEST

START_TEST(what_the_device_does_not_offer_is_not_asked_for)
{
    spw__sim_fail(SPW__ENTRY_device_get_attribute, 3, 1, SPW__CU_ERROR_INVALID_VALUE); /* RDMA of mapped memory */
    open_device_tier(one, 1);
    spw__sim_fail(SPW__ENTRY_device_get_attribute, 0, 0, 0);
    const struct spw__block block = take(MIB);
    unsigned rdma = 7;
    uint64_t types = 0;
    ck_assert_uint_eq(CALL(device, pointer_get_attribute, &rdma, SPW__CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                           block.address), SPW__CU_SUCCESS);
    ck_assert_uint_eq(CALL(device, pointer_get_attribute, &types, SPW__CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                           block.address), SPW__CU_SUCCESS);
    ck_assert_uint_eq(rdma, 0);
    ck_assert_uint_eq(types, SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ck_assert_uint_eq(said.lines, 1);
    ck_assert_ptr_null(strstr(said.last, "exported"));
    ck_assert_ptr_nonnull(strstr(said.last, "cannot be reached by GPUDirect RDMA"));
    give(block);
}
END_TEST

START_TEST(pinned_memory_is_touched_by_several_threads_then_registered_as_one)
{
    const spw_spec_pool large[] = {{256 * MIB, 0}};
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    spw__fault_arm(SPW__FAULT_THREAD, LONG_MAX, 1, EAGAIN); /* counts */
    spw__fault_arm(SPW__FAULT_HOST_POPULATE, LONG_MAX, 1, ENOMEM);
    count_calls(SPW__ENTRY_mem_host_register);
    ck_assert_int_eq(init(SPW_TIER_PINNED_HOST, large, 1), SPW_OK);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_mem_host_register), 1);
    ck_assert_int_eq(spw__fault_calls(SPW__FAULT_THREAD), processors > 9 ? 8 : processors - 1);
    ck_assert_int_ge(spw__fault_calls(SPW__FAULT_HOST_POPULATE), 16); /* every part, before registration */
    ck_assert(tier.pools[0].registered);
    ck_assert_uint_eq(said.lines, 0);
}
END_TEST

START_TEST(a_driver_that_refuses_to_register_is_said_and_pinned_memory_works)
{
    const spw_spec_pool pools[] = {{4 * MIB, 0}};
    spw__sim_fail(SPW__ENTRY_mem_host_register, 1, 0, SPW__CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(init(SPW_TIER_PINNED_HOST, pools, 1), SPW_OK);
    ck_assert(!tier.pools[0].registered);
    ck_assert_uint_ge(said.lines, 1); /* that it is not locked either may be another */
    struct spw__block block = take(MIB);
    memset((void *)(uintptr_t)block.address, 1, MIB);
    uint64_t address = 0;
    ck_assert_int_eq(spw__device_alloc(device, MIB, &address), SPW_OK);
    ck_assert_int_eq(spw__device_copy_to(device, NULL, address, (void *)(uintptr_t)block.address, MIB), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(device, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_free(device, address), SPW_OK);
    give(block);
}
END_TEST

static void add(Suite *suite, const char *name, void (*prepare)(void), const TTest *const *tests, unsigned n)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, prepare, teardown);
    tcase_set_timeout(tcase, 60);
    for (unsigned i = 0; i < n; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    const TTest *const plain[] = {a_plain_pool_is_one_allocation_from_the_start,
                                  managed_memory_is_refused_and_given_back,
                                  pinned_memory_is_touched_by_several_threads_then_registered_as_one,
                                  a_driver_that_refuses_to_register_is_said_and_pinned_memory_works};
    const TTest *const mapped[] = {a_mapped_pool_takes_memory_as_it_is_needed_at_addresses_that_stay,
                                   trim_unmaps_what_lies_behind_the_last_allocation,
                                   a_pool_that_is_no_multiple_of_a_unit_has_every_byte_of_it,
                                   a_device_without_memory_refuses_and_the_pool_is_as_it_was,
                                   fault_META_ALLOC_after_mapping_leaves_memory_for_the_next_try,
                                   what_the_driver_does_not_take_back_is_used_again_and_given_back_at_the_end,
                                   reserved_addresses_that_are_refused_leave_no_pool,
                                   a_device_that_cannot_map_is_said_and_its_pools_are_plain,
                                   handles_that_cannot_be_exported_are_said_once_and_it_works,
                                   what_the_device_does_not_offer_is_not_asked_for};
    Suite *suite = suite_create("source_device");
    add(suite, "plain", setup_plain, plain, sizeof plain / sizeof *plain);
    add(suite, "mapped", setup_mapped, mapped, sizeof mapped / sizeof *mapped);
    TCase *faults = tcase_create("faults");
    tcase_add_checked_fixture(faults, setup_mapped, teardown);
    tcase_set_timeout(faults, 60);
    tcase_add_loop_test(faults, fault_in_any_step_of_mapping_maps_nothing, 0, 3);
    suite_add_tcase(suite, faults);
    return run_suite(suite);
}
