/* Fairness of requests for memory, through the public calls: who may take what was freed while others wait for it. */
#include "tests/manager_fixture.h"

#include "pool/base/wait.h"

#define PART (128 * KIB)

static uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

static struct spw__clock clock_that_stands = {.now_ns = manual_now};
static const struct spw__env env = {.clock = &clock_that_stands};

/* A request made by another thread. */
struct asking {
    size_t bytes;
    int rc;
    spw_buffer *buffer;
};

static void *ask(void *arg)
{
    struct asking *asking = arg;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    asking->rc = spw_alloc(manager, SPW_HOST, asking->bytes, &options, &asking->buffer);
    return NULL;
}

/* Returns when it is one of n waiters: a state to be reached, not a time to pass. */
static pthread_t start_asking_as(struct asking *asking, unsigned n)
{
    const pthread_t thread = must_start(ask, asking);
    while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) != n)
        (void)sched_yield();
    return thread;
}

static void must_join(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static int alloc_at_once(size_t bytes, spw_buffer **out)
{
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.flags = SPW_NOWAIT;
    return spw_alloc(manager, SPW_HOST, bytes, &options, out);
}

START_TEST(a_large_request_is_served_though_others_that_never_wait_take_what_is_freed)
{
    spw_buffer *parts[8], *none;
    unsigned passed = 0;
    open_env(&env, "host=1M");
    for (unsigned i = 0; i < 8; i++)
        parts[i] = must_alloc(SPW_HOST, PART);
    struct asking large = {.bytes = 4 * PART};
    const pthread_t thread = start_asking_as(&large, 1);
    int rc;
    do {
        must_release(parts[passed % 8]);
        rc = alloc_at_once(PART, &parts[passed % 8]);
        passed += rc == SPW_OK;
    } while (rc == SPW_OK && passed < 100);
    ck_assert_int_eq(rc, SPW_EAGAIN);
    ck_assert_uint_eq(passed, SPW__WAIT_PASS_MAX);
    ck_assert_int_eq(alloc_within(SPW_HOST, 1, 0, &none), SPW_ENOMEM); /* nor does who queues behind it */
    ck_assert_int_eq(alloc_within(SPW_HOST, 2 * MIB, 0, &none), SPW_ETOOBIG); /* at once, whatever waits */
    ck_assert_int_eq(alloc_at_once(2 * MIB, &none), SPW_ETOOBIG);
    for (unsigned i = 1; i < 4; i++)
        must_release(parts[(passed + i) % 8]);
    must_join(thread);
    ck_assert_int_eq(large.rc, SPW_OK);
    must_release(large.buffer);
    ck_assert_int_eq(alloc_at_once(PART, &none), SPW_OK);
    must_release(none);
    for (unsigned i = 4; i < 8; i++)
        must_release(parts[(passed + i) % 8]);
    close_manager();
}
END_TEST

START_TEST(a_budget_lowered_below_a_request_ends_it_though_older_ones_wait)
{
    open_env(&env, "host=1M");
    spw_buffer *full = must_alloc(SPW_HOST, MIB);
    struct asking old = {.bytes = PART}, young = {.bytes = 7 * PART};
    const pthread_t first = start_asking_as(&old, 1), second = start_asking_as(&young, 2);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 4 * PART), SPW_OK);
    must_join(second);
    ck_assert_int_eq(young.rc, SPW_ETOOBIG);
    must_release(full);
    must_join(first);
    ck_assert_int_eq(old.rc, SPW_OK);
    must_release(old.buffer);
    close_manager();
}
END_TEST

/* More wait than one look at the demand takes in, on memory that is full; each finds its victim, and each is served. */
START_TEST(more_waiters_than_one_look_takes_in_are_all_served)
{
    enum { N = 80 };
    static struct asking askings[N];
    static pthread_t threads[N];
    spw_view views[N];
    spw_buffer *mapped[N];
    open_manager("host=1M; piece=64K; staging=64K; disk=%s:16M");
    for (unsigned i = 0; i < N; i++) {
        mapped[i] = must_make(SPW_HOST, 12 * KIB, i);
        ck_assert_int_eq(spw_map(mapped[i], SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    }
    for (unsigned i = 0; i < N; i++) {
        askings[i].bytes = 12 * KIB;
        threads[i] = start_asking_as(&askings[i], i + 1);
    }
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(spw_unmap(mapped[i], &views[i], NULL), SPW_OK);
    for (unsigned i = 0; i < N; i++) {
        must_join(threads[i]);
        ck_assert_int_eq(askings[i].rc, SPW_OK);
    }
    for (unsigned i = 0; i < N; i++) {
        must_release(mapped[i]);
        must_release(askings[i].buffer);
    }
    close_manager();
}
END_TEST

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

int main(void)
{
    Suite *suite = suite_create("fair");
    TCase *tests = tcase_create("requests");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_large_request_is_served_though_others_that_never_wait_take_what_is_freed);
    tcase_add_test(tests, a_budget_lowered_below_a_request_ends_it_though_older_ones_wait);
    tcase_add_test(tests, more_waiters_than_one_look_takes_in_are_all_served);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
