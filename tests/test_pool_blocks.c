/* Raw blocks: double and foreign frees, threads, trim and regions. */
#include "pool_fixture.h"

/* What is caught */

START_TEST(a_block_is_freed_once_however_often_it_is_copied)
{
    open_manager("pinned=8M; host=4M,4M");
    const spw_block block = must_raw(SPW_HOST, 1000), copy = block;
    must_free(block);
    const uint64_t before = committed(SPW_TIER_META);
    ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_EBADHANDLE);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_HOST);
    ck_assert_uint_eq(spw_error_detail()->pool, 0);
    char words[64];
    (void)snprintf(words, sizeof words, "%p in pool 0 of host", block.ptr);
    ck_assert(says(words));
    ck_assert(says("freed already"));
    const spw_block later = must_raw(SPW_HOST, 1000); /* at the same address */
    ck_assert_ptr_eq(later.ptr, copy.ptr);
    ck_assert_int_eq(spw_pool_free(manager, &copy, NULL), SPW_EBADHANDLE);
    ck_assert(says("a later one"));
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 1024);
    ck_assert_int_eq(spw_pool_free_ptr(manager, later.ptr, NULL), SPW_OK);
    ck_assert_int_eq(spw_pool_free_ptr(manager, later.ptr, NULL), SPW_EBADHANDLE);
    ck_assert_uint_eq(spw_pool_usable_size(manager, later.ptr), 0);
    ck_assert_int_eq(spw_error_detail()->code, SPW_EBADHANDLE);
    ck_assert_uint_eq(committed(SPW_TIER_META), before);
}
END_TEST

START_TEST(pointers_that_are_no_block_are_named_with_place_and_pool)
{
    char words[96];
    spw_view view;
    open_manager("pinned=8M; host=4M,4M");
    ck_assert_int_eq(spw_pool_free_ptr(manager, words, NULL), SPW_EBADHANDLE); /* foreign */
    ck_assert(says("no pool of this manager"));
    const spw_block first = must_raw(SPW_HOST, 4 * MIB), block = must_raw(SPW_HOST, 4096);
    char *const inside = (char *)block.ptr + 64;
    ck_assert_int_eq(spw_pool_free_ptr(manager, inside, NULL), SPW_EBADHANDLE);
    ck_assert_uint_eq(spw_error_detail()->place, SPW_HOST);
    ck_assert_uint_eq(spw_error_detail()->pool, 1);
    (void)snprintf(words, sizeof words, "spw_pool_free_ptr: %p in pool 1 of host", (void *)inside);
    ck_assert(says(words));
    spw_buffer *buffer = must_alloc(SPW_PINNED_HOST, 4096); /* a buffer is no raw block */
    ck_assert_int_eq(spw_map(buffer, SPW_PINNED_HOST, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_pool_free_ptr(manager, view.data, NULL), SPW_EBADHANDLE);
    ck_assert(says("of pinned_host"));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    const spw_block made_up = {.ptr = block.ptr, .size = 4096, .reserved = {UINT64_MAX, 0}};
    ck_assert_int_eq(spw_pool_free(manager, &made_up, NULL), SPW_EBADHANDLE);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 4 * MIB + 4096);
    ck_assert_uint_eq(committed(SPW_TIER_PINNED_HOST), 4096);
    must_release(buffer);
    must_free(first);
    must_free(block);
}
END_TEST

START_TEST(destroy_with_live_blocks_is_busy_and_says_how_many_and_how_much)
{
    open_manager(DEVICE_SPEC);
    const spw_block a = must_raw(SPW_HOST, MIB), b = must_raw(SPW_HOST, 64), c = must_raw(SPW_DEVICE, 1000);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert(says("3 raw blocks are live: 1 in device (1024 bytes), 2 in host (1048640 bytes)"));
    must_free(a);
    must_free(b);
    must_free(c);
}
END_TEST

START_TEST(a_forced_destroy_drops_blocks)
{
    open_manager(DEVICE_SPEC);
    (void)must_raw(SPW_HOST, MIB);
    (void)must_raw(SPW_DEVICE, MIB);
    spw_manager_destroy_force(manager);
    manager = NULL;
}
END_TEST

/* Threads */

enum { THREADS = 4, ROUNDS = 2000, HELD = 16 };

static struct {
    pthread_mutex_t lock;
    spw_block blocks[THREADS * HELD];
    unsigned n;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Allocates, and frees what any thread allocated: by block or by pointer. */
static void *churn(void *arg)
{
    unsigned seed = *(unsigned *)arg * 2654435761u + 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw_block block = must_raw_on(SPW_HOST, 1 + (seed >> 8) % 9000, (size_t)1 << (seed >> 28), NULL);
        seed = seed * 1664525u + 1013904223u;
        memset(block.ptr, (int)(block.size & 0xff), block.size);
        (void)pthread_mutex_lock(&shared.lock);
        if (shared.n < THREADS * HELD) {
            shared.blocks[shared.n++] = block;
            block.ptr = NULL;
        } else {
            const unsigned at = (seed >> 8) % shared.n;
            const spw_block other = shared.blocks[at];
            shared.blocks[at] = block;
            block = other;
        }
        (void)pthread_mutex_unlock(&shared.lock);
        if (!block.ptr)
            continue;
        ck_assert_uint_eq(((unsigned char *)block.ptr)[block.size - 1], block.size & 0xff);
        ck_assert_int_eq(seed & 1 ? spw_pool_free(manager, &block, NULL)
                                  : spw_pool_free_ptr(manager, block.ptr, NULL), SPW_OK);
    }
    return NULL;
}

START_TEST(blocks_are_freed_by_other_threads_than_their_own)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    open_manager("host=16M,1M:4K");
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        threads[i] = must_start(churn, &seeds[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    while (shared.n > 0)
        must_free(shared.blocks[--shared.n]);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->raw_allocs, THREADS * ROUNDS);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].raw_bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].largest_free_bytes, 16 * MIB);
}
END_TEST

START_TEST(many_blocks_are_found_again_and_the_table_is_reused)
{
    enum { MANY = 20000 };
    spw_block *blocks = calloc(MANY, sizeof *blocks);
    uint64_t meta = 0;
    open_manager("host=64M");
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MANY; i++)
            blocks[i] = must_raw(SPW_HOST, 1 + i % 2000);
        ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->raw_allocs, (round + 1) * (uint64_t)MANY);
        for (unsigned i = 0; i < MANY; i++)
            ck_assert_uint_eq(spw_pool_usable_size(manager, blocks[i].ptr), (blocks[i].size + 63) / 64 * 64);
        ck_assert(round == 0 || committed(SPW_TIER_META) <= meta + meta / 8);
        meta = committed(SPW_TIER_META);
        for (unsigned i = 0; i < MANY; i++)
            must_free(blocks[(i * 7919u) % MANY]);
    }
    free(blocks);
}
END_TEST

/* Trim and regions */

START_TEST(trim_gives_free_huge_pages_back_and_says_how_much)
{
    uint64_t trimmed = 77;
    open_manager("host=64M");
    const spw_block kept = must_raw(SPW_HOST, 4096); /* and 32 MiB grown around it */
    const spw_block block = must_raw(SPW_HOST, 16 * MIB);
    fill(kept.ptr, kept.size, 1);
    fill(block.ptr, block.size, 2);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 0, &trimmed), SPW_OK);
    const uint64_t rest = trimmed; /* of what was grown and never used */
    ck_assert_uint_le(rest, 16 * MIB);
    ck_assert(has_content(block.ptr, block.size, 2));
    must_free(block);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 64 * MIB, &trimmed), SPW_OK);
    ck_assert_uint_eq(trimmed, 0); /* that much may stay */
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 0, &trimmed), SPW_OK);
    ck_assert_uint_ge(trimmed, 14 * MIB); /* the whole huge pages among 16 MiB */
    ck_assert_uint_le(trimmed, 16 * MIB);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 0, &trimmed), SPW_OK);
    ck_assert_uint_eq(trimmed, 0); /* all is gone already */
    ck_assert(has_content(kept.ptr, kept.size, 1));
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->budget_bytes, 64 * MIB);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 4096);
    const spw_block again = must_raw(SPW_HOST, 16 * MIB); /* and it comes back when it is used */
    fill(again.ptr, again.size, 3);
    ck_assert(has_content(again.ptr, again.size, 3));
    must_free(again);
    must_free(kept);
}
END_TEST

START_TEST(trim_keeps_what_it_is_told_to)
{
    uint64_t trimmed;
    open_manager("host=64M");
    const spw_block block = must_raw(SPW_HOST, 32 * MIB);
    memset(block.ptr, 1, block.size);
    must_free(block);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 24 * MIB, &trimmed), SPW_OK);
    ck_assert_uint_le(trimmed, 8 * MIB);
    ck_assert_uint_ge(trimmed, 6 * MIB);
    must_free(must_raw(SPW_HOST, 64 * MIB));
}
END_TEST

START_TEST(where_the_driver_knows_the_memory_nothing_is_trimmed)
{
    uint64_t trimmed = 77;
    open_manager("device=16M; driver=sim; pinned=16M");
    ck_assert_int_eq(spw_pool_trim(manager, SPW_DEVICE, 0, &trimmed), SPW_OK);
    ck_assert_uint_eq(trimmed, 0);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_PINNED_HOST, 0, &trimmed), SPW_OK);
    ck_assert_uint_eq(trimmed, 0);
    ck_assert_int_eq(spw_pool_trim(manager, SPW_PINNED_HOST, 0, NULL), SPW_OK);
}
END_TEST

static _Atomic bool stop;

static void *trim_for_ever(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 0, NULL), SPW_OK);
    return NULL;
}

START_TEST(no_allocation_fails_because_of_a_trim)
{
    spw_pool_options options;
    open_manager("host=8M");
    spw_pool_options_init(&options);
    options.flags = SPW_NOWAIT;
    const pthread_t thread = must_start(trim_for_ever, NULL);
    for (unsigned i = 0; i < 300; i++) {
        spw_block block;
        ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, 8 * MIB, 0, NULL, &options, &block), SPW_OK);
        ((char *)block.ptr)[i * 4096] = 1;
        must_free(block);
    }
    atomic_store(&stop, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(regions_hold_every_block_and_stay)
{
    spw_pool_region regions[3], later[3];
    uint32_t n = 0;
    open_manager("host=8M,2M:4K,1M:1K");
    ck_assert_int_eq(spw_pool_regions(manager, SPW_HOST, NULL, 0, &n), SPW_OK);
    ck_assert_uint_eq(n, 3);
    memset(regions, 0, sizeof regions);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_HOST, regions, 1, &n), SPW_OK);
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(regions[0].size, 8 * MIB);
    ck_assert_ptr_null(regions[1].base);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_HOST, regions, 3, &n), SPW_OK);
    ck_assert_uint_eq(regions[1].size, 2 * MIB);
    ck_assert_uint_eq(regions[2].size, MIB);
    static const size_t sizes[] = {MIB, 4 * KIB, KIB};
    for (unsigned i = 0; i < 3; i++) {
        const spw_block block = must_raw(SPW_HOST, sizes[i]);
        ck_assert_uint_ge((uintptr_t)block.ptr, (uintptr_t)regions[i].base);
        ck_assert_uint_le((uintptr_t)block.ptr + block.size, (uintptr_t)regions[i].base + regions[i].size);
        must_free(block);
    }
    ck_assert_int_eq(spw_pool_trim(manager, SPW_HOST, 0, NULL), SPW_OK);
    ck_assert_int_eq(spw_pool_regions(manager, SPW_HOST, later, 3, &n), SPW_OK);
    ck_assert_mem_eq(regions, later, sizeof regions);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool_blocks");
    TCase *tcase_caught = new_case("what is caught", suite);
    tcase_add_test(tcase_caught, a_block_is_freed_once_however_often_it_is_copied);
    tcase_add_test(tcase_caught, pointers_that_are_no_block_are_named_with_place_and_pool);
    tcase_add_test(tcase_caught, destroy_with_live_blocks_is_busy_and_says_how_many_and_how_much);
    tcase_add_test(tcase_caught, a_forced_destroy_drops_blocks);
    TCase *tcase_threads = new_case("threads", suite);
    tcase_add_test(tcase_threads, blocks_are_freed_by_other_threads_than_their_own);
    tcase_add_test(tcase_threads, many_blocks_are_found_again_and_the_table_is_reused);
    TCase *tcase_trim = new_case("trim and regions", suite);
    tcase_add_test(tcase_trim, trim_gives_free_huge_pages_back_and_says_how_much);
    tcase_add_test(tcase_trim, trim_keeps_what_it_is_told_to);
    tcase_add_test(tcase_trim, where_the_driver_knows_the_memory_nothing_is_trimmed);
    tcase_add_test(tcase_trim, no_allocation_fails_because_of_a_trim);
    tcase_add_test(tcase_trim, regions_hold_every_block_and_stay);
    return run_suite(suite);
}
