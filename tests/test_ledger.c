/* Charges: up the tree of groups all or nothing, back from any thread, and every byte given back wakes who waits. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/tier.h"
#include "tests/ledger_fixture.h"

#define KIB UINT64_C(1024)
#define HOST SPW__CHANNEL(SPW_TIER_HOST)

enum { THREADS = 4 };

static struct spw__waitset waits;
static struct spw__counters counters;
static struct spw__tier tier;

static void setup(void)
{
    open_groups();
    spw__waitset_init(&waits, NULL);
}

static void teardown(void)
{
    spw__tier_finish(&tier);
    spw__waitset_finish(&waits);
    close_groups();
}

START_TEST(a_charge_climbs_to_the_root_and_comes_back)
{
    ck_assert(spw__ledger_commit(&left, SPW_TIER_HOST, 300));
    ck_assert(spw__ledger_commit(&right, SPW_TIER_HOST, 200));
    ck_assert(spw__ledger_commit(&root, SPW_TIER_HOST, 100));
    commit_each(600, 300, 200);
    ck_assert_uint_eq(atomic_load(&root.gates[SPW_TIER_DEVICE].committed), 0);
    spw__ledger_uncommit(&left, SPW_TIER_HOST, 300);
    spw__ledger_uncommit(&root, SPW_TIER_HOST, 100);
    spw__ledger_uncommit(&right, SPW_TIER_HOST, 200);
}
END_TEST

START_TEST(a_refusal_anywhere_on_the_way_changes_nothing)
{
    ck_assert(!spw__ledger_commit(&left, SPW_TIER_HOST, 601));
    commit_each(0, 0, 0);
    ck_assert(spw__ledger_commit(&left, SPW_TIER_HOST, 600));
    ck_assert(!spw__ledger_commit(&right, SPW_TIER_HOST, 401)); /* its own gate has room, the root's has not */
    commit_each(600, 600, 0);
    ck_assert(spw__ledger_commit(&right, SPW_TIER_HOST, 400));
    ck_assert(!spw__ledger_commit(&right, SPW_TIER_HOST, 1));
    commit_each(1000, 600, 400);
    spw__ledger_uncommit(&left, SPW_TIER_HOST, 600);
    spw__ledger_uncommit(&right, SPW_TIER_HOST, 400);
}
END_TEST

static void *charge_and_give_back(void *arg)
{
    const uintptr_t number = (uintptr_t)arg;
    struct spw__group *group = number % 2 ? &left : &right;
    unsigned state = (unsigned)number + 1, over = 0;
    for (unsigned i = 0; i < 20000; i++) {
        state = state * 1103515245 + 12345;
        const uint64_t bytes = (state >> 16) % 400;
        if (!spw__ledger_commit(group, SPW_TIER_HOST, bytes))
            continue;
        over += committed(group) < bytes || committed(&root) < bytes;
        over += committed(group) > 600 || committed(&root) > BUDGET;
        spw__ledger_uncommit(group, SPW_TIER_HOST, bytes);
    }
    ck_assert_uint_eq(over, 0);
    return NULL;
}

START_TEST(threads_keep_every_group_within_its_budget)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, charge_and_give_back, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_le(atomic_load(&root.gates[SPW_TIER_HOST].peak), BUDGET);
    ck_assert_uint_le(atomic_load(&left.gates[SPW_TIER_HOST].peak), 600);
}
END_TEST

static void open_host(uint64_t bytes, uint64_t budget, uint64_t max)
{
    const spw_spec_pool pool = {bytes, 0};
    const struct spw__tier_config config = {
        .tier = SPW_TIER_HOST, .pools = &pool, .n_pools = 1, .waits = &waits, .counters = &counters};
    ck_assert_int_eq(spw__tier_init(&tier, &config), SPW_OK);
    init_group(&root, NULL, budget);
    init_group(&left, &root, max);
    init_group(&right, &root, max);
}

static void *free_block(void *arg)
{
    spw__tier_free(&tier, arg);
    return NULL;
}

START_TEST(a_block_carries_its_charge_to_whoever_frees_it)
{
    struct spw__block of_left, of_right, none;
    pthread_t thread;
    open_host(256 * KIB, 128 * KIB, 96 * KIB);
    ck_assert_int_eq(spw__tier_alloc(&tier, &left, 64 * KIB, &of_left), SPW_OK);
    ck_assert_int_eq(spw__tier_alloc(&tier, &right, 33 * KIB, &of_right), SPW_OK);
    commit_each(100 * KIB, 64 * KIB, 36 * KIB);
    ck_assert_int_eq(spw__tier_alloc(&tier, &left, 97 * KIB, &none), SPW_ETOOBIG);
    ck_assert_int_eq(spw__tier_alloc(&tier, &left, 36 * KIB, &none), SPW_ENOMEM);  /* its own maximum */
    ck_assert_int_eq(spw__tier_alloc(&tier, &right, 32 * KIB, &none), SPW_ENOMEM); /* the root's budget */
    commit_each(100 * KIB, 64 * KIB, 36 * KIB);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_block, &of_left), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    commit_each(36 * KIB, 0, 36 * KIB);
    spw__tier_free(&tier, &of_right);
}
END_TEST

struct want {
    struct spw__waiter waiter; /* first: attempts cast back */
    uint64_t bytes;
    struct spw__block block;
};

static int attempt(struct spw__waiter *waiter)
{
    struct want *want = (struct want *)(void *)waiter;
    const int rc = spw__tier_try(&tier, &root, want->bytes, &want->block);
    return rc == SPW_ENOMEM || rc == SPW_EFRAG ? SPW_EAGAIN : rc;
}

static struct want want_of(uint64_t bytes)
{
    return (struct want){.waiter = {.attempt = attempt, .channels = HOST, .deadline_ns = UINT64_MAX}, .bytes = bytes};
}

START_TEST(a_free_signals_those_who_wait_for_the_tier)
{
    struct spw__block block;
    struct want large = want_of(64 * KIB), small = want_of(16 * KIB);
    open_host(64 * KIB, 64 * KIB, 0);
    ck_assert_int_eq(spw__tier_alloc(&tier, &root, 48 * KIB, &block), SPW_OK); /* so small a pool grows at once */
    spw__wait_enqueue(&waits, &large.waiter);
    spw__wait_enqueue(&waits, &small.waiter);
    ck_assert_int_eq(spw__wait_block(&waits, &small.waiter), SPW_OK); /* it fits beside */
    spw__tier_free(&tier, &block);
    ck_assert(large.waiter.waiting);
    spw__tier_free(&tier, &small.block);
    ck_assert_int_eq(spw__wait_block(&waits, &large.waiter), SPW_OK);
    ck_assert_uint_eq(committed(&root), 64 * KIB);
    spw__tier_free(&tier, &large.block);
}
END_TEST

/* Threads that wait for blocks of every size, and others that only try: a try that fails holds its bytes for a moment
 * and signals afterwards, so that it takes nobody's turn for good. */
static void *allocate_and_free(void *arg)
{
    const uintptr_t number = (uintptr_t)arg;
    for (unsigned i = 0; i < 3000; i++) {
        struct want want = want_of(KIB * (1 + (number * 7 + i) % 40));
        if (number == 0) {
            if (spw__tier_alloc(&tier, &root, want.bytes, &want.block) != SPW_OK) {
                spw__waitset_signal(&waits, HOST);
                continue;
            }
        } else {
            spw__wait_enqueue(&waits, &want.waiter);
            ck_assert_int_eq(spw__wait_block(&waits, &want.waiter), SPW_OK);
        }
        *(volatile unsigned char *)(uintptr_t)want.block.address = (unsigned char)number;
        spw__tier_free(&tier, &want.block);
    }
    return NULL;
}

START_TEST(no_free_is_missed_by_a_waiter)
{
    pthread_t threads[THREADS];
    open_host(128 * KIB, 64 * KIB, 0);
    spw__tier_grow_for(&tier, 64 * KIB);
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, allocate_and_free, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_le(atomic_load(&root.gates[SPW_TIER_HOST].peak), 64 * KIB);
    ck_assert_uint_eq(spw__tier_largest_free(&tier), 128 * KIB);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_charge_climbs_to_the_root_and_comes_back);
    tcase_add_test(tcase, a_refusal_anywhere_on_the_way_changes_nothing);
    tcase_add_test(tcase, threads_keep_every_group_within_its_budget);
    tcase_add_test(tcase, a_block_carries_its_charge_to_whoever_frees_it);
    tcase_add_test(tcase, a_free_signals_those_who_wait_for_the_tier);
    tcase_add_test(tcase, no_free_is_missed_by_a_waiter);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
