/* Small objects and threads: several caches, frees by others, the end of a thread, memory that somebody lacks. */
#include <string.h>

#include "tests/small_fixture.h"

enum { THREADS = 2, ROUNDS = 30000, KEPT = 100 };

static pthread_barrier_t barrier;

/* Works on a set of objects of its own; each grain of the pool has its owner's mark while it is somebody's. */
static _Atomic uint8_t owner[16 * MIB / 64];

static void claim(const struct spw__small_object *object, uint8_t from, uint8_t to)
{
    for (uint64_t i = object->offset / 64; i < (object->offset + object->bytes) / 64; i++)
        ck_assert_uint_eq(atomic_exchange_explicit(&owner[i], to, memory_order_relaxed), from);
}

static void *work(void *arg)
{
    const uint8_t mark = (uint8_t)(uintptr_t)arg;
    struct spw__small_object kept[KEPT];
    uint64_t state = 77 * mark;
    unsigned n = 0;
    (void)pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (n < KEPT && (n == 0 || next_random(&state) % 2 == 0)) {
            if (spw__small_alloc(small, &root, random_size(&state) / 8 + 1, true, &kept[n]) == SPW_OK)
                claim(&kept[n++], 0, mark);
        } else {
            const unsigned which = (unsigned)(next_random(&state) % n);
            claim(&kept[which], mark, 0);
            give(kept[which]);
            kept[which] = kept[--n];
        }
        if (i % 5000 == 0)
            (void)spw__small_drain(small);
    }
    while (n > 0) {
        claim(&kept[--n], mark, 0);
        give(kept[n]);
    }
    return NULL;
}

START_TEST(two_threads_never_get_the_same_memory)
{
    pthread_t threads[THREADS];
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        threads[i] = start(work, (void *)(i + 1));
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    check();
    ck_assert_uint_eq(usage.caches, 0);
    ck_assert_uint_eq(committed(), 0); /* the threads ended: nothing is left to drain */
}
END_TEST

/* A ring from one thread that allocates to one that frees. */
static struct {
    struct spw__small_object objects[64];
    _Atomic unsigned head, tail;
} ring;

static void *consume(void *arg)
{
    (void)arg;
    for (unsigned at = 0; at < ROUNDS; at++) {
        while (atomic_load_explicit(&ring.head, memory_order_acquire) == at)
            (void)sched_yield();
        give(ring.objects[at % 64]);
        atomic_store_explicit(&ring.tail, at + 1, memory_order_release);
        if (at == 0) /* a cache of its own, so that what others allocated comes to lie in it */
            give(take(64));
    }
    return NULL;
}

START_TEST(frees_by_another_thread_come_back_to_the_one_that_allocates)
{
    const pthread_t consumer = start(consume, NULL);
    for (unsigned at = 0; at < ROUNDS; at++) {
        while (at - atomic_load_explicit(&ring.tail, memory_order_acquire) == 64)
            (void)sched_yield();
        ring.objects[at % 64] = take(at % 3 ? 300 : 3000);
        atomic_store_explicit(&ring.head, at + 1, memory_order_release);
    }
    ck_assert_int_eq(pthread_join(consumer, NULL), 0);
    check();
    ck_assert_uint_eq(usage.live_bytes, 0);
    ck_assert_uint_eq(usage.caches, 1);
    ck_assert_uint_lt(usage.slab_bytes, 512 * KIB); /* it did not grow with the rounds */
}
END_TEST

static void *leave_cached(void *arg)
{
    const struct spw__small_object object = take(5000);
    (void)arg;
    ck_assert(!give(object));
    ck_assert_uint_gt(committed(), 0);
    return NULL;
}

START_TEST(a_thread_that_ends_gives_its_cache_back)
{
    ck_assert_int_eq(pthread_join(start(leave_cached, NULL), NULL), 0);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(spw__range_largest_free(range), pool_size);
    ck_assert_uint_eq(spw__counter_sum(&counters, 0), 1);
    check();
    ck_assert_uint_eq(usage.caches, 0);
}
END_TEST

static void *outlive(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 20; i++) {
        give(take(5000));
        (void)pthread_barrier_wait(&barrier); /* the pool goes, another comes */
        (void)pthread_barrier_wait(&barrier);
    }
    give(take(100));
    return NULL;
}

START_TEST(a_thread_may_outlive_pools_that_it_used)
{
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    const pthread_t thread = start(outlive, NULL);
    for (unsigned i = 0; i < 20; i++) {
        (void)pthread_barrier_wait(&barrier);
        close_pool();
        ck_assert_uint_eq(committed(), 0);
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
        ck_assert_int_eq(try_open(16 * MIB, 64), SPW_OK);
        (void)pthread_barrier_wait(&barrier);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    check();
    ck_assert_uint_eq(usage.caches, 0);
}
END_TEST

/* Objects lie in the cache of a thread that does nothing. */
static void *sit_on_cache(void *arg)
{
    struct spw__small_object objects[15];
    (void)arg;
    for (unsigned i = 0; i < 15; i++)
        objects[i] = take(60 * KIB);
    for (unsigned i = 0; i < 15; i++)
        ck_assert(!give(objects[i]));
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return NULL;
}

START_TEST(a_drain_takes_from_the_caches_of_threads_that_sit_on_them)
{
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    const pthread_t thread = start(sit_on_cache, NULL);
    (void)pthread_barrier_wait(&barrier);
    ck_assert_uint_eq(committed(), 15 * 60 * KIB);
    ck_assert_uint_eq(spw__small_drain(small), 15 * 60 * KIB);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(spw__range_largest_free(range), pool_size);
    (void)pthread_barrier_wait(&barrier);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

/* A waiter that the end of a thread must serve: its attempt finds the memory that lay in the cache. */
static int attempt(struct spw__waiter *waiter)
{
    (void)waiter;
    return committed() == 0 ? SPW_OK : SPW_EAGAIN;
}

START_TEST(the_end_of_a_thread_wakes_those_who_wait)
{
    struct spw__waiter waiter = {.attempt = attempt, .channels = SPW__CHANNEL(SPW_TIER_HOST),
                                 .deadline_ns = UINT64_MAX};
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    const pthread_t thread = start(sit_on_cache, NULL);
    (void)pthread_barrier_wait(&barrier);
    spw__wait_enqueue(&waits, &waiter);
    (void)pthread_barrier_wait(&barrier);
    ck_assert_int_eq(spw__wait_block(&waits, &waiter), SPW_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

static void *free_twice(void *arg)
{
    bool back;
    (void)pthread_barrier_wait(&barrier);
    return (void *)(intptr_t)(spw__small_free(small, &root, arg, &back) == SPW_OK);
}

START_TEST(of_two_frees_at_once_one_is_refused)
{
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    for (unsigned i = 0; i < 50; i++) {
        struct spw__small_object object = take(100);
        void *first = NULL, *second = NULL;
        const pthread_t one = start(free_twice, &object), other = start(free_twice, &object);
        ck_assert_int_eq(pthread_join(one, &first), 0);
        ck_assert_int_eq(pthread_join(other, &second), 0);
        ck_assert_int_eq((intptr_t)first + (intptr_t)second, 1);
        check();
        ck_assert_uint_eq(usage.live_bytes, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("small_threads");
    TCase *tcase = tcase_create("small_threads");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, two_threads_never_get_the_same_memory);
    tcase_add_test(tcase, frees_by_another_thread_come_back_to_the_one_that_allocates);
    tcase_add_test(tcase, a_thread_that_ends_gives_its_cache_back);
    tcase_add_test(tcase, a_thread_may_outlive_pools_that_it_used);
    tcase_add_test(tcase, a_drain_takes_from_the_caches_of_threads_that_sit_on_them);
    tcase_add_test(tcase, the_end_of_a_thread_wakes_those_who_wait);
    tcase_add_test(tcase, of_two_frees_at_once_one_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
