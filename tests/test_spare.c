/* Spare blocks: what threads keep of the raw blocks that they freed, through a tier with one large pool of address
 * space; charges, bounds, and that all comes back. */
#include <math.h>
#include <pthread.h>

#include "tests/tier_fixture.h"

#define GIB (1024 * MIB)
#define POOL_BYTES (8 * GIB)
#define ALIGN 256u

static pthread_barrier_t barrier, leave; /* a thread and the test; all threads and the test */
static struct spw__spare_usage usage; /* of the last check */

static void setup_large(void)
{
    const spw_spec_pool pool = {.size_bytes = POOL_BYTES};
    setup();
    atomic_store(&meta.gate.budget, 64 * MIB);
    const struct spw__device_config config = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = POOL_BYTES, .log = &no_log, .meta = &meta};
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_OK);
    const struct spw__tier_config tier_config = {.tier = SPW_TIER_DEVICE, .pools = &pool, .n_pools = 1,
                                                 .device = device, .meta = &meta, .waits = &waits,
                                                 .counters = &counters, .first_counter = 10};
    ck_assert_int_eq(spw__tier_init(&tier, &tier_config), SPW_OK);
    ck_assert_ptr_nonnull(tier.pools[0].spare);
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
}

static void check(void)
{
    ck_assert(spw__spare_check(tier.pools[0].spare, &usage));
    ck_assert(spw__range_check(tier.pools[0].range));
}

/* What every test ends with: all is back. */
static void teardown_large(void)
{
    if (tier.present) {
        (void)spw__tier_drain(&tier);
        check();
        ck_assert_uint_eq(usage.bytes, 0);
        ck_assert_uint_eq(spw__tier_largest_free(&tier), POOL_BYTES);
    }
    teardown();
}

static struct spw__block raw_aligned(uint64_t bytes, uint64_t align)
{
    struct spw__block block;
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, bytes, align, SPW__GROW_FREELY, &block), SPW_OK);
    ck_assert_uint_ge(block.bytes, spw__tier_charge(&tier, bytes));
    ck_assert_uint_le(block.bytes, spw__tier_charge(&tier, bytes) * 17 / 16);
    ck_assert_uint_eq(block.address % align, 0);
    ck_assert_uint_eq(block.slot, 0);
    return block;
}

static struct spw__block raw(uint64_t bytes)
{
    return raw_aligned(bytes, ALIGN);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* From 256 bytes to 4 MiB, every doubling as often. */
static uint64_t random_size(uint64_t *state)
{
    return (uint64_t)(256 * exp2(14 * (double)(next_random(state) >> 11) / 9007199254740992.0));
}

START_TEST(a_freed_block_stays_committed_and_serves_the_next_request_of_its_size)
{
    const struct spw__block first = raw(100 * KIB);
    ck_assert_uint_eq(first.bytes, 100 * KIB); /* what comes from the range has what was asked for */
    give(first);
    ck_assert_uint_eq(committed(), 100 * KIB);
    check();
    ck_assert_uint_eq(usage.bytes, 100 * KIB);
    const struct spw__block second = raw(100 * KIB);
    ck_assert_uint_eq(second.address, first.address);
    ck_assert_uint_eq(committed(), 100 * KIB);
    give(second);
    ck_assert_uint_eq(spw__tier_drain(&tier), 100 * KIB);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOCS), 2);
    ck_assert_uint_eq(counted(SPW__TIER_ALLOC_BYTES), 200 * KIB);
}
END_TEST

START_TEST(a_request_gets_a_sixteenth_more_at_most_and_never_less)
{
    const struct spw__block kept = raw(68 * KIB);
    give(kept);
    const struct spw__block smaller = raw(60 * KIB), larger = raw(72 * KIB);
    ck_assert_uint_ne(smaller.address, kept.address);
    ck_assert_uint_ne(larger.address, kept.address);
    const struct spw__block near = raw(64 * KIB);
    ck_assert_uint_eq(near.address, kept.address);
    ck_assert_uint_eq(near.bytes, 68 * KIB);
    ck_assert_uint_eq(committed(), (60 + 72 + 68) * KIB);
    give(smaller);
    give(larger);
    give(near);
}
END_TEST

START_TEST(a_kept_block_serves_only_alignments_that_it_has)
{
    const struct spw__block before = raw(256), kept = raw(8 * KIB);
    ck_assert_uint_ne(kept.address % 4096, 0);
    give(kept);
    const struct spw__block aligned = raw_aligned(8 * KIB, 4096), same = raw(8 * KIB);
    ck_assert_uint_eq(same.address, kept.address);
    give(before);
    give(aligned);
    give(same);
}
END_TEST

START_TEST(what_may_have_an_owner_or_is_large_is_not_kept)
{
    int owner;
    give(raw(256));
    const uint64_t kept = committed();
    const struct spw__block buffer = take(64 * KIB), large = raw(4 * MIB + 1), owned = raw(96 * KIB);
    spw__tier_set_owner(&tier, &owned, &owner);
    give(buffer);
    give(large);
    give(owned);
    ck_assert_uint_eq(committed(), kept);
    const struct spw__block again = raw(96 * KIB); /* perhaps with the node that had an owner */
    spw__mutex_lock(&tier.pools[0].lock);
    ck_assert_ptr_null(spw__pool_owner_locked(&tier.pools[0], again.node));
    spw__mutex_unlock(&tier.pools[0].lock);
    give(again);
}
END_TEST

START_TEST(what_no_bin_has_room_for_goes_back_when_the_thread_next_asks_the_range)
{
    const struct spw__block large = raw(3 * MIB), first = raw(MIB), second = raw(MIB), third = raw(MIB);
    give(large);
    give(first);
    give(second);
    give(third); /* one more than the bin holds */
    ck_assert_uint_eq(committed(), 6 * MIB);
    const struct spw__block other = raw(8 * KIB);
    ck_assert_uint_eq(committed(), 2 * MIB + 8 * KIB);
    check();
    ck_assert_uint_eq(usage.bytes, 2 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), POOL_BYTES - 2 * MIB - 8 * KIB);
    const struct spw__block again = raw(MIB);
    ck_assert_uint_eq(again.address, second.address);
    give(again);
    give(other);
}
END_TEST

START_TEST(a_kept_block_may_be_split_by_who_gets_it)
{
    struct spw__block head, tail;
    give(raw(128 * KIB));
    head = raw(128 * KIB);
    ck_assert_int_eq(spw__tier_split(&tier, &head, 32 * KIB, &tail), SPW_OK);
    ck_assert_uint_eq(tail.bytes, 96 * KIB);
    give(head);
    ck_assert_uint_eq(committed(), 128 * KIB); /* kept */
    give(tail);
    ck_assert_uint_eq(committed(), 32 * KIB);
    check();
    ck_assert_uint_eq(raw(32 * KIB).address, head.address);
    give(head);
}
END_TEST

static void refuses_free(struct spw__block block)
{
    const uint64_t before = committed();
    ck_assert_int_eq(spw__tier_free(&tier, &block), SPW_EBADHANDLE);
    ck_assert(spw__block_is(&block));
    ck_assert_uint_eq(committed(), before);
}

START_TEST(a_double_free_and_a_name_out_of_date_are_refused_and_change_nothing)
{
    const struct spw__block neighbour = raw(256), block = raw(10 * KIB), behind = raw(256);
    give(block);
    refuses_free(block); /* kept */
    (void)spw__tier_drain(&tier);
    refuses_free(block); /* gone */
    const struct spw__block cut = raw(4 * KIB), other = raw(6 * KIB);
    for (uint32_t node = 0; node < 8; node++) { /* whichever node it has now, none is the block that it was */
        struct spw__block stale = block;
        stale.node = node;
        stale.address += 512;
        refuses_free(stale);
    }
    give(cut);
    give(other);
    give(neighbour);
    give(behind);
}
END_TEST

START_TEST(while_somebody_waits_nothing_is_kept)
{
    const struct spw__block block = raw(10 * KIB);
    atomic_fetch_add(&waits.n_waiting[SPW_TIER_DEVICE], 1);
    give(block);
    ck_assert_uint_eq(committed(), 0);
    atomic_fetch_sub(&waits.n_waiting[SPW_TIER_DEVICE], 1);
    give(raw(10 * KIB));
    ck_assert_uint_eq(committed(), 10 * KIB);
}
END_TEST

START_TEST(what_is_kept_is_taken_back_before_there_is_no_room)
{
    struct spw__block all;
    for (unsigned i = 0; i < 20; i++)
        give(raw((i + 1) * 40 * KIB));
    ck_assert_uint_gt(committed(), 0);
    /* In the pool, and then in the budget. Under the wait lock, as a waiter's attempt runs. */
    spw__mutex_lock(&waits.lock);
    ck_assert_int_eq(spw__tier_try(&tier, &root, POOL_BYTES, &all), SPW_OK);
    spw__mutex_unlock(&waits.lock);
    ck_assert_uint_eq(committed(), POOL_BYTES);
    give(all);
    const struct spw__block block = raw(2 * MIB);
    for (unsigned i = 0; i < 20; i++)
        give(raw(64 * KIB));
    atomic_store(&root.gates[SPW_TIER_DEVICE].budget, 4 * MIB);
    const struct spw__block other = raw(2 * MIB);
    ck_assert_uint_eq(committed(), 4 * MIB);
    refuses(256, SPW_ENOMEM);
    give(other);
    give(block);
    ck_assert_uint_le(committed(), 4 * MIB);
}
END_TEST

START_TEST(a_lack_of_holes_and_the_largest_hole_agree)
{
    enum { N = 4096 };
    static struct spw__block blocks[N];
    struct spw__block none;
    for (unsigned i = 0; i < N; i++)
        blocks[i] = raw(2 * MIB);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 0);
    for (unsigned i = 0; i < N; i += 2)
        give(blocks[i]);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &root, 3 * MIB, ALIGN, SPW__GROW_FREELY, &none), SPW_EFRAG);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 2 * MIB);
    ck_assert_uint_eq(spw__pool_free(&tier.pools[0]), POOL_BYTES / 2);
    ck_assert_uint_eq(committed(), POOL_BYTES / 2);
    for (unsigned i = 1; i < N; i += 2)
        give(blocks[i]);
}
END_TEST

static void fill_cache(void)
{
    enum { N = 1500 };
    static _Thread_local struct spw__block blocks[N];
    uint64_t state = 5;
    for (unsigned i = 0; i < N; i++)
        blocks[i] = raw(random_size(&state));
    for (unsigned i = 0; i < N; i++)
        give(blocks[i]);
}

static void *fill_and_sit(void *arg)
{
    (void)arg;
    fill_cache();
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&leave);
    return NULL;
}

START_TEST(the_caches_of_all_threads_together_hold_a_64th_of_the_pool)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    ck_assert_int_eq(pthread_barrier_init(&leave, NULL, THREADS + 1), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, fill_and_sit, NULL), 0);
        (void)pthread_barrier_wait(&barrier);
        check();
        ck_assert_uint_eq(usage.caches, i + 1);
        ck_assert_uint_eq(usage.bytes, committed());
        ck_assert_uint_le(usage.bytes, POOL_BYTES / 64);
        ck_assert_uint_gt(usage.bytes, POOL_BYTES / 64 / THREADS / 2);
    }
    (void)pthread_barrier_wait(&leave);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(committed(), 0); /* threads that end give theirs back */
}
END_TEST

static int attempt(struct spw__waiter *waiter)
{
    (void)waiter;
    return committed() == 0 ? SPW_OK : SPW_EAGAIN;
}

START_TEST(the_end_of_a_thread_wakes_those_who_wait)
{
    struct spw__waiter waiter = {.attempt = attempt, .channels = SPW__CHANNEL(SPW_TIER_DEVICE),
                                 .deadline_ns = UINT64_MAX};
    pthread_t thread;
    ck_assert_int_eq(pthread_barrier_init(&leave, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, fill_and_sit, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    spw__wait_enqueue(&waits, &waiter);
    (void)pthread_barrier_wait(&leave);
    ck_assert_int_eq(spw__wait_block(&waits, &waiter), SPW_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(a_cache_serves_one_group_at_a_time_and_charges_stay_exact)
{
    struct spw__group left = {.parent = &root}, right = {.parent = &root};
    struct spw__block block;
    spw__gate_init(&left.gates[SPW_TIER_DEVICE], MIB);
    spw__gate_init(&right.gates[SPW_TIER_DEVICE], MIB);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &left, 50 * KIB, ALIGN, SPW__GROW_FREELY, &block), SPW_OK);
    const uint64_t charge = block.bytes;
    give(block);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_DEVICE].committed), charge);
    ck_assert_int_eq(spw__tier_alloc_aligned(&tier, &right, 50 * KIB, ALIGN, SPW__GROW_FREELY, &block), SPW_OK);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_DEVICE].committed), 0);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_DEVICE].committed), charge);
    const struct spw__block of_root = raw(60 * KIB); /* takes the cache over */
    give(block);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_DEVICE].committed), 0);
    ck_assert_uint_eq(committed(), of_root.bytes);
    give(of_root);
}
END_TEST

enum { OPERATIONS = 40000, LIVE_MAX = 2000 };

/* Each grain of the first part of the pool has its owner's mark while it is somebody's. */
static _Atomic uint8_t grains[2 * GIB / 256];

static void claim(const struct spw__block *block, uint8_t from, uint8_t to)
{
    const uint64_t offset = block->address - tier.pools[0].base;
    ck_assert_uint_le(offset + block->bytes, 2 * GIB);
    const uint64_t first = offset / 256, last = (offset + block->bytes - 1) / 256;
    for (uint64_t i = first;; i = i + 37 < last ? i + 37 : last) { /* samples, and both ends */
        ck_assert_uint_eq(atomic_exchange_explicit(&grains[i], to, memory_order_relaxed), from);
        if (i == last)
            return;
    }
}

static void unclaim(const struct spw__block *block, uint8_t mark)
{
    claim(block, mark, 0);
}

/* Works on blocks of its own, some of which get an owner or are split, and now and then there is no room. */
static void *work(void *arg)
{
    const uint8_t mark = (uint8_t)(uintptr_t)arg;
    struct spw__block *live = calloc(LIVE_MAX + 1, sizeof *live);
    uint64_t state = 77 * mark;
    unsigned n = 0;
    for (unsigned i = 0; i < OPERATIONS; i++) {
        const uint64_t dice = next_random(&state);
        if (n < LIVE_MAX && (n == 0 || dice % 2)) {
            if (spw__tier_alloc_aligned(&tier, &root, random_size(&state), dice % 16 == 1 ? 0 : ALIGN << dice / 64 % 3,
                                        SPW__GROW_FREELY, &live[n]) != SPW_OK)
                continue;
            claim(&live[n++], 0, mark);
            if (dice % 16 == 1)
                spw__tier_set_owner(&tier, &live[n - 1], live);
        } else {
            const unsigned which = (unsigned)(dice / 64 % n);
            struct spw__block block = live[which], tail = {.bytes = 0};
            unclaim(&block, mark);
            if (dice % 16 == 0 && block.bytes > 512)
                ck_assert_int_eq(spw__tier_split(&tier, &block, 256, &tail), SPW_OK);
            live[which] = live[--n];
            give(block);
            if (spw__block_is(&tail))
                give(tail);
        }
        if (i % 10000 == 0)
            (void)spw__tier_drain(&tier);
    }
    while (n > 0) {
        unclaim(&live[--n], mark);
        give(live[n]);
    }
    free(live);
    return NULL;
}

START_TEST(property_two_threads_never_get_the_same_memory)
{
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    check();
    ck_assert_uint_eq(usage.caches, 0);
    ck_assert_uint_eq(committed(), 0); /* the threads ended: nothing is left to drain */
    ck_assert_uint_le(atomic_load(&root.gates[SPW_TIER_DEVICE].peak), POOL_BYTES);
}
END_TEST

static void *free_it(void *arg)
{
    struct spw__block block = *(struct spw__block *)arg;
    (void)pthread_barrier_wait(&barrier);
    return (void *)(intptr_t)(spw__tier_free(&tier, &block) == SPW_OK);
}

static void *free_it_with_a_cache(void *arg)
{
    give(raw(256));
    return free_it(arg);
}

START_TEST(of_two_frees_at_once_one_is_refused)
{
    for (unsigned i = 0; i < 50; i++) {
        struct spw__block block = raw(100 * KIB);
        pthread_t threads[2];
        void *done[2];
        ck_assert_int_eq(pthread_create(&threads[0], NULL, free_it, &block), 0);
        ck_assert_int_eq(pthread_create(&threads[1], NULL, free_it_with_a_cache, &block), 0);
        for (unsigned j = 0; j < 2; j++)
            ck_assert_int_eq(pthread_join(threads[j], &done[j]), 0);
        ck_assert_int_eq((intptr_t)done[0] + (intptr_t)done[1], 1);
        ck_assert_uint_eq(committed(), 0);
        check();
    }
}
END_TEST

START_TEST(fault_META_ALLOC_anywhere_costs_a_cache_or_one_request)
{
    enum { N = 1500 };
    static struct spw__block blocks[N];
    bool reached = true;
    long nth = 1;
    for (; reached; nth++) {
        const spw_spec_pool pool = {.size_bytes = POOL_BYTES};
        const struct spw__tier_config config = {.tier = SPW_TIER_DEVICE, .pools = &pool, .n_pools = 1,
                                                .device = device, .meta = &meta, .waits = &waits,
                                                .counters = &counters};
        spw__tier_finish(&tier);
        uint64_t state = 7;
        unsigned n = 0, failed = 0;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = spw__tier_init(&tier, &config);
        ck_assert(rc == SPW_OK || rc == SPW_ENOMETA);
        for (unsigned i = 0; rc == SPW_OK && i < N; i++) {
            const int got = spw__tier_alloc_aligned(&tier, &root, random_size(&state), ALIGN, SPW__GROW_FREELY,
                                                    &blocks[n]);
            ck_assert(got == SPW_OK || got == SPW_ENOMETA);
            n += got == SPW_OK;
            failed += got != SPW_OK;
        }
        reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_uint_le(failed, 1);
        while (n > 0)
            give(blocks[--n]);
        (void)spw__tier_drain(&tier);
        ck_assert_uint_eq(committed(), 0);
    }
    ck_assert_int_gt(nth, 10);
}
END_TEST

START_TEST(pools_of_less_than_4_GiB_and_address_order_keep_nothing)
{
    const spw_spec_pool pools[] = {{SPW__SPARE_POOL_MIN - 256, 0}, {SPW__SPARE_POOL_MIN, 0}};
    struct spw__tier_config config = {.tier = SPW_TIER_HOST, .pools = pools, .n_pools = 2, .meta = &meta,
                                      .waits = &waits, .counters = &counters};
    spw__tier_finish(&tier);
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_ptr_null(tier.pools[0].spare);
    ck_assert_ptr_nonnull(tier.pools[1].spare);
    spw__tier_finish(&tier);
    config.address_ordered = true;
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    ck_assert_uint_eq(tier.n_cached, 0);
    spw__tier_finish(&tier);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spare");
    TCase *tcase = tcase_create("spare");
    tcase_add_checked_fixture(tcase, setup_large, teardown_large);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_freed_block_stays_committed_and_serves_the_next_request_of_its_size);
    tcase_add_test(tcase, a_request_gets_a_sixteenth_more_at_most_and_never_less);
    tcase_add_test(tcase, a_kept_block_serves_only_alignments_that_it_has);
    tcase_add_test(tcase, what_may_have_an_owner_or_is_large_is_not_kept);
    tcase_add_test(tcase, what_no_bin_has_room_for_goes_back_when_the_thread_next_asks_the_range);
    tcase_add_test(tcase, a_kept_block_may_be_split_by_who_gets_it);
    tcase_add_test(tcase, a_double_free_and_a_name_out_of_date_are_refused_and_change_nothing);
    tcase_add_test(tcase, while_somebody_waits_nothing_is_kept);
    tcase_add_test(tcase, what_is_kept_is_taken_back_before_there_is_no_room);
    tcase_add_test(tcase, a_lack_of_holes_and_the_largest_hole_agree);
    tcase_add_test(tcase, the_caches_of_all_threads_together_hold_a_64th_of_the_pool);
    tcase_add_test(tcase, the_end_of_a_thread_wakes_those_who_wait);
    tcase_add_test(tcase, a_cache_serves_one_group_at_a_time_and_charges_stay_exact);
    tcase_add_test(tcase, property_two_threads_never_get_the_same_memory);
    tcase_add_test(tcase, of_two_frees_at_once_one_is_refused);
    tcase_add_test(tcase, fault_META_ALLOC_anywhere_costs_a_cache_or_one_request);
    tcase_add_test(tcase, pools_of_less_than_4_GiB_and_address_order_keep_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
