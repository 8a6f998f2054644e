/* Spare blocks and threads: bounds of several caches, the end of a thread, and that no two ever get the same memory. */
#include "tests/spare_fixture.h"

static pthread_barrier_t barrier, leave; /* a thread and the test, or two threads; all threads and the test */

static void setup_threads(void)
{
    setup_large();
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
}

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

int main(void)
{
    Suite *suite = suite_create("spare_threads");
    TCase *tcase = tcase_create("spare_threads");
    tcase_add_checked_fixture(tcase, setup_threads, teardown_large);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, the_caches_of_all_threads_together_hold_a_64th_of_the_pool);
    tcase_add_test(tcase, the_end_of_a_thread_wakes_those_who_wait);
    tcase_add_test(tcase, property_two_threads_never_get_the_same_memory);
    tcase_add_test(tcase, of_two_frees_at_once_one_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
