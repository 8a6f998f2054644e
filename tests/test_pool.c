/* Raw memory: what it is charged, what happens when there is no room, and that faults leave no trace. */
#include "pool_fixture.h"

#include "pool/range.h"

#define GIB (1024 * MIB)

/* Charges */

START_TEST(a_block_is_charged_as_a_buffer_is_and_counted_as_raw)
{
    static const struct {
        size_t bytes, charge;
    } cases[] = {{1, 64}, {64, 64}, {65, 128}, {32767, 32768}, {32769, 36864}, {MIB, MIB}};
    open_manager("host=8M");
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const spw_block block = must_raw(SPW_HOST, cases[i].bytes);
        memset(block.ptr, 0xab, cases[i].bytes);
        ck_assert_uint_eq(spw_pool_usable_size(manager, block.ptr), cases[i].charge);
        ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->committed_bytes, cases[i].charge);
        ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].raw_bytes, cases[i].charge);
        ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].raw_peak_bytes, cases[i].charge);
        ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].raw_allocs, i + 1);
        ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].allocs, i + 1);
        must_free(block);
        ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->raw_bytes, 0);
        ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    }
}
END_TEST

static int append(void *arg, const char *bytes, size_t length)
{
    char *text = arg;
    const size_t used = strlen(text);
    ck_assert_uint_lt(used + length, 8192);
    memcpy(text + used, bytes, length);
    text[used + length] = 0;
    return 0;
}

START_TEST(raw_bytes_are_in_the_text_and_in_the_json)
{
    static char json[8192], text[8192];
    open_manager("host=8M");
    const spw_block block = must_raw(SPW_HOST, 2 * MIB);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_JSON, append, json), SPW_OK);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_TEXT, append, text), SPW_OK);
    ck_assert_ptr_nonnull(strstr(json, "\"raw_bytes\":2097152,\"raw_peak_bytes\":2097152,\"raw_allocs\":1"));
    ck_assert_ptr_nonnull(strstr(text, "raw"));
    must_free(block);
}
END_TEST

START_TEST(no_bytes_are_a_null_pointer_that_may_be_freed)
{
    spw_block block = {.size = 7};
    open_manager("host=8M");
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 0, 0, NULL, NULL, &block), SPW_OK);
    ck_assert_ptr_null(block.ptr);
    ck_assert_uint_eq(block.size, 0);
    ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);
    ck_assert_int_eq(spw_pool_free_ptr(manager, NULL, NULL), SPW_OK);
    ck_assert_uint_eq(spw_pool_usable_size(manager, NULL), 0);
}
END_TEST

START_TEST(wrong_arguments_are_refused_and_leave_an_empty_block)
{
    spw_block block = {.size = 7};
    spw_pool_options options;
    uint32_t n;
    open_manager("host=8M");
    ck_assert_int_eq(spw_pool_alloc(NULL, SPW_HOST, 1, 0, NULL, NULL, &block), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 1, 0, NULL, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_DEVICE, 1, 0, NULL, NULL, &block), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_DISK, 1, 0, NULL, NULL, &block), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 1, 3, NULL, NULL, &block), SPW_EINVAL);
    ck_assert(says("power of two"));
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 1, 4 * MIB, NULL, NULL, &block), SPW_EINVAL);
    spw_pool_options_init(&options);
    options.flags = 2;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 1, 0, NULL, &options, &block), SPW_EINVAL);
    options = (spw_pool_options){.struct_size = 1};
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 1, 0, NULL, &options, &block), SPW_EINVAL);
    ck_assert_ptr_null(block.ptr);
    ck_assert_uint_eq(block.size, 0);
    ck_assert_int_eq(spw_pool_free(manager, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_free_ptr(NULL, &n, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_DEVICE, 0, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_HOST, NULL, 1, &n), SPW_EINVAL);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_DEVICE, NULL, 0, &n), SPW_EINVAL);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->allocs, 0);
}
END_TEST

START_TEST(alignments_up_to_2_MiB_are_kept_on_host_and_device)
{
    static const spw_place places[] = {SPW_HOST, SPW_DEVICE};
    static const char *const specs[] = {DEVICE_SPEC, "device=1M; driver=sim; host=1M"};
    for (unsigned spec = 0; spec < 2; spec++) {
        open_manager(specs[spec]);
        for (unsigned p = 0; p < 2; p++)
            for (size_t align = 1; align <= 2 * MIB; align *= 2) {
                const spw_block odd = must_raw(places[p], 100); /* so that the next hole is not aligned by chance */
                spw_block block;
                const int rc = alloc_in(places[p], 3000, align, NULL, 0, &block);
                if (spec == 1 && align >= 1 * MIB) { /* only offset 0 of the pool is aligned, and it is taken */
                    ck_assert_int_eq(rc, SPW_EFRAG);
                } else {
                    ck_assert_int_eq(rc, SPW_OK);
                    ck_assert_uint_eq((uintptr_t)block.ptr % align, 0);
                    ck_assert_uint_eq(spw_pool_usable_size(manager, block.ptr), places[p] == SPW_HOST ? 3008 : 3072);
                    must_free(block);
                }
                must_free(odd);
            }
        close_manager();
    }
}
END_TEST

START_TEST(a_pool_grows_for_an_aligned_request)
{
    open_manager("host=96M"); /* grows by 32 MiB first */
    const spw_block odd = must_raw(SPW_HOST, 4096);
    const spw_block block = must_raw_on(SPW_HOST, 64 * MIB, 2 * MIB, NULL);
    ck_assert_uint_eq((uintptr_t)block.ptr % (2 * MIB), 0);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 64 * MIB + 4096);
    must_free(odd);
    must_free(block);
}
END_TEST

/* Pressure */

START_TEST(a_raw_request_evicts_buffers_and_raw_memory_is_never_a_victim)
{
    open_manager(SMALL_HOST);
    const spw_block block = must_raw(SPW_HOST, 512 * KIB);
    fill(block.ptr, block.size, 9);
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 1);
    const spw_block more = must_raw(SPW_HOST, 256 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 256 * KIB);
    ck_assert(has_content(block.ptr, block.size, 9));
    spw_block never;
    ck_assert_int_eq(alloc_in(SPW_HOST, 512 * KIB, 0, NULL, 0, &never), SPW_ENOMEM);
    ck_assert_ptr_null(never.ptr);
    must_free(more);
    must_free(block);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
}
END_TEST

START_TEST(a_raw_request_waits_until_raw_memory_is_freed_by_another_thread)
{
    struct asker asker = {.place = SPW_HOST, .bytes = MIB};
    open_manager("host=1M");
    const spw_block block = must_raw(SPW_HOST, MIB);
    const pthread_t thread = must_start(ask, &asker);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)))
        (void)sched_yield();
    must_free(block);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asker.rc, SPW_OK);
    ck_assert_ptr_eq(asker.block.ptr, block.ptr);
    must_free(asker.block);
}
END_TEST

START_TEST(nowait_neither_evicts_nor_waits)
{
    spw_pool_options options;
    spw_block block;
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, MIB, 1);
    spw_pool_options_init(&options);
    options.flags = SPW_NOWAIT;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 4096, 0, NULL, &options, &block), SPW_EAGAIN);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 0);
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 64 * MIB, 0, NULL, &options, &block), SPW_ETOOBIG);
    must_release(buffer);
}
END_TEST

/* Fragmentation */

/* Three times a large and a small block, then the large ones freed: P17's story at 1/1024. */
static void fragment(spw_block *small)
{
    spw_block large[3];
    for (unsigned i = 0; i < 3; i++) {
        large[i] = must_raw(SPW_HOST, 3 * MIB);
        small[i] = must_raw(SPW_HOST, 2 * KIB);
    }
    for (unsigned i = 0; i < 3; i++)
        must_free(large[i]);
}

static uint64_t free_in_pool(unsigned pool)
{
    return spw__pool_free(&manager->tiers[SPW_TIER_HOST].pools[pool]);
}

START_TEST(P17_one_pool_fragments_and_a_pool_for_small_requests_prevents_it)
{
    spw_block small[3], block;
    open_manager("host=10485760; placement=address");
    fragment(small);
    ck_assert_uint_ge(free_in_pool(0), 9 * MIB);
    ck_assert_int_eq(alloc_in(SPW_HOST, 5 * MIB, 0, NULL, 0, &block), SPW_EFRAG);
    ck_assert_uint_eq(spw_error_detail()->largest_free_bytes, 3 * MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->largest_free_bytes, 3 * MIB);
    for (unsigned i = 0; i < 3; i++)
        must_free(small[i]);
    close_manager();

    open_manager("host=10485760,2097152:2048; placement=address");
    fragment(small);
    const spw_block five = must_raw(SPW_HOST, 5 * MIB);
    ck_assert_uint_ge(free_in_pool(1), MIB);
    ck_assert_uint_eq(free_in_pool(0), 5 * MIB);
    must_free(five);
    for (unsigned i = 0; i < 3; i++)
        must_free(small[i]);
}
END_TEST

static uint32_t must_take(struct spw__range *range, uint64_t bytes)
{
    uint32_t node;
    uint64_t offset;
    ck_assert_int_eq(spw__range_alloc(range, bytes, 0, &node, &offset), SPW_OK);
    return node;
}

START_TEST(P17_at_full_size_over_an_address_range_without_memory)
{
    struct spw__range *one, *second;
    uint32_t large[3], node;
    uint64_t offset;
    for (unsigned pools = 1; pools <= 2; pools++) {
        ck_assert_int_eq(spw__range_create(10 * GIB, 256, true, NULL, &one), SPW_OK);
        ck_assert_int_eq(spw__range_create(2 * GIB, 256, true, NULL, &second), SPW_OK);
        for (unsigned i = 0; i < 3; i++) {
            large[i] = must_take(one, 3 * GIB);
            (void)must_take(pools == 1 ? one : second, 2 * MIB);
        }
        for (unsigned i = 0; i < 3; i++)
            ck_assert_int_eq(spw__range_free(one, large[i]), SPW_OK);
        ck_assert_uint_ge(spw__range_total_free(one), 9 * GIB);
        ck_assert_int_eq(spw__range_alloc(one, 5 * GIB, 0, &node, &offset), pools == 1 ? SPW_EFRAG : SPW_OK);
        ck_assert_uint_ge(spw__range_total_free(second), GIB);
        spw__range_destroy(one);
        spw__range_destroy(second);
    }
}
END_TEST

START_TEST(P18_not_enough_and_fragmented_differ_and_name_pool_request_free_and_largest)
{
    spw_block small[3], block;
    open_manager("host=1048576:1024,10485760; placement=address");
    fragment(small);
    ck_assert_int_eq(alloc_in(SPW_HOST, 5 * MIB, 0, NULL, 0, &block), SPW_EFRAG);
    const spw_error_info *detail = spw_error_detail();
    ck_assert_uint_eq(detail->place, SPW_HOST);
    ck_assert_uint_eq(detail->pool, 1);
    ck_assert_uint_eq(detail->requested_bytes, 5 * MIB);
    ck_assert_uint_eq(detail->free_bytes, 11 * MIB - 6 * KIB);
    ck_assert_uint_eq(detail->largest_free_bytes, 3 * MIB);
    ck_assert(says("no hole for 5242880 bytes in host, pool 1 ("));
    ck_assert(says("free 10479616, largest hole 3145728)"));
    const spw_block nine = must_raw(SPW_HOST, 3 * MIB);
    ck_assert_int_eq(alloc_in(SPW_HOST, 8 * MIB, 0, NULL, 0, &block), SPW_ENOMEM);
    ck_assert_uint_eq(detail->pool, 1);
    ck_assert_uint_eq(detail->requested_bytes, 8 * MIB);
    ck_assert(says("no room for 8388608 bytes in host, pool 1 ("));
    ck_assert(says("largest hole 3145728)"));
    ck_assert_int_eq(alloc_in(SPW_HOST, 11 * MIB, 0, NULL, 0, &block), SPW_ETOOBIG);
    must_free(nine);
    for (unsigned i = 0; i < 3; i++)
        must_free(small[i]);
}
END_TEST

/* Faults */

static void counters_are_as(const spw_stats *before)
{
    (void)tier_now(SPW_TIER_HOST);
    for (unsigned tier = 0; tier < SPW_TIER_DISK; tier++) {
        const spw_tier_stats *now = &stats.tiers[tier], *was = &before->tiers[tier];
        ck_assert_uint_eq(now->committed_bytes, was->committed_bytes);
        ck_assert_uint_eq(now->free_bytes, was->free_bytes);
        ck_assert_uint_eq(now->largest_free_bytes, was->largest_free_bytes);
        ck_assert_uint_eq(now->allocs, was->allocs);
        ck_assert_uint_eq(now->alloc_bytes, was->alloc_bytes);
        ck_assert_uint_eq(now->raw_bytes, was->raw_bytes);
        ck_assert_uint_eq(now->raw_peak_bytes, was->raw_peak_bytes);
        ck_assert_uint_eq(now->raw_allocs, was->raw_allocs);
    }
}

static void fails_without_a_trace(spw_place place)
{
    spw_block block;
    long nth = 1;
    int rc;
    do { /* a fresh manager, so that every piece of metadata is still to be allocated */
        open_manager(DEVICE_SPEC);
        (void)tier_now(SPW_TIER_HOST);
        const spw_stats before = stats;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        rc = spw_pool_alloc(manager, place, 5000, 4096, NULL, NULL, &block);
        const bool reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        if (rc == SPW_OK) {
            must_free(block);
        } else {
            ck_assert_int_eq(rc, SPW_ENOMETA);
            ck_assert_ptr_null(block.ptr);
            ck_assert(says("meta="));
            counters_are_as(&before);
        }
        close_manager();
        if (!reached)
            break;
        nth++;
    } while (nth < 100);
    ck_assert_int_ge(nth, 2); /* the table's memory at least */
    ck_assert_int_lt(nth, 100);
}

START_TEST(fault_META_ALLOC_at_the_nth_call_leaves_every_counter_as_before)
{
    fails_without_a_trace(SPW_HOST);
    fails_without_a_trace(SPW_DEVICE);
}
END_TEST

START_TEST(fault_HOST_POPULATE_leaves_every_counter_as_before)
{
    spw_block block;
    open_manager(DEVICE_SPEC);
    (void)tier_now(SPW_TIER_HOST);
    const spw_stats before = stats;
    spw__fault_arm(SPW__FAULT_HOST_POPULATE, 1, 0, ENOMEM);
    const int rc = alloc_in(SPW_HOST, 5000, 0, NULL, 0, &block);
    spw__fault_disarm(SPW__FAULT_HOST_POPULATE);
    ck_assert_int_ne(rc, SPW_OK);
    counters_are_as(&before);
    must_free(must_raw(SPW_HOST, 5000));
}
END_TEST

START_TEST(a_table_that_cannot_grow_gets_slower_and_works)
{
    spw_block blocks[2000];
    open_manager("host=8M; meta=1M");
    unsigned n = 0;
    while (n < 2000 && alloc_in(SPW_HOST, 64, 0, NULL, 0, &blocks[n]) == SPW_OK)
        n++;
    ck_assert_uint_gt(n, 1000);
    ck_assert_int_eq(spw_set_budget(manager, SPW_META, committed(SPW_TIER_META)), SPW_OK);
    unsigned more = n;
    while (more < 2000 && alloc_in(SPW_HOST, 64, 0, NULL, 0, &blocks[more]) == SPW_OK)
        more++;
    for (unsigned i = 0; i < more; i++)
        ck_assert_int_eq(spw_pool_free_ptr(manager, blocks[i].ptr, NULL), SPW_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tcase_charges = new_case("charges", suite);
    tcase_add_test(tcase_charges, a_block_is_charged_as_a_buffer_is_and_counted_as_raw);
    tcase_add_test(tcase_charges, raw_bytes_are_in_the_text_and_in_the_json);
    tcase_add_test(tcase_charges, no_bytes_are_a_null_pointer_that_may_be_freed);
    tcase_add_test(tcase_charges, wrong_arguments_are_refused_and_leave_an_empty_block);
    tcase_add_test(tcase_charges, alignments_up_to_2_MiB_are_kept_on_host_and_device);
    tcase_add_test(tcase_charges, a_pool_grows_for_an_aligned_request);
    TCase *tcase_pressure = new_case("pressure", suite);
    tcase_add_test(tcase_pressure, a_raw_request_evicts_buffers_and_raw_memory_is_never_a_victim);
    tcase_add_test(tcase_pressure, a_raw_request_waits_until_raw_memory_is_freed_by_another_thread);
    tcase_add_test(tcase_pressure, nowait_neither_evicts_nor_waits);
    TCase *tcase_fragmentation = new_case("fragmentation", suite);
    tcase_add_test(tcase_fragmentation, P17_one_pool_fragments_and_a_pool_for_small_requests_prevents_it);
    tcase_add_test(tcase_fragmentation, P17_at_full_size_over_an_address_range_without_memory);
    tcase_add_test(tcase_fragmentation, P18_not_enough_and_fragmented_differ_and_name_pool_request_free_and_largest);
    TCase *tcase_faults = new_case("faults", suite);
    tcase_add_test(tcase_faults, fault_META_ALLOC_at_the_nth_call_leaves_every_counter_as_before);
    tcase_add_test(tcase_faults, fault_HOST_POPULATE_leaves_every_counter_as_before);
    tcase_add_test(tcase_faults, a_table_that_cannot_grow_gets_slower_and_works);
    return run_suite(suite);
}
