/* Threads that look at once what is to be done for those who wait: none may leave it to another that does not do it.
 * test_pressure.c has the waits, test_spill.c what goes where. */
#include "tests/manager_fixture.h"

#include "src/core/handle.h"
#include "src/core/payload.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

static void must_join(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void *alloc_on_device(void *arg)
{
    spw_buffer **out = arg;
    *out = must_alloc(SPW_DEVICE, 64 * KIB);
    return NULL;
}

static void *release(void *arg)
{
    must_release(arg);
    return NULL;
}

START_TEST(room_below_that_comes_while_a_victim_is_refused_there_is_not_missed)
{
    open_manager("device=512K; host=512K; piece=64K; driver=sim");
    spw_buffer *full = must_alloc(SPW_HOST, 512 * KIB), *held = must_alloc(SPW_DEVICE, 448 * KIB);
    spw_buffer *victim = must_make(SPW_DEVICE, 64 * KIB, 1);
    struct spw__victims *queue = &manager->victims[SPW_TIER_DEVICE][0];
    const unsigned refusals = manager->tiers[SPW_TIER_HOST].first_counter + SPW__TIER_FAIL_BUDGET;
    const uint64_t refused = spw__counter_sum(&manager->counters, refusals);
    spw_buffer *buffer = NULL;
    /* Its thread has popped the victim, found no room below, and has not put it back. */
    spw__mutex_lock(&victim->payload->lock);
    const pthread_t thread = must_start(alloc_on_device, &buffer);
    while (atomic_load(&queue->leaving_bytes) == 0)
        (void)sched_yield();
    spw__mutex_lock(&queue->lock);
    spw__mutex_unlock(&victim->payload->lock);
    while (spw__counter_sum(&manager->counters, refusals) == refused)
        (void)sched_yield();
    must_join(must_start(release, full)); /* takes the victim for one that leaves */
    spw__mutex_unlock(&queue->lock);
    must_join(thread);
    must_release(buffer);
    check_at(victim, SPW_HOST, 1);
    must_release(held);
    must_release(victim);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pump");
    TCase *tests = tcase_create("pump");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, room_below_that_comes_while_a_victim_is_refused_there_is_not_missed);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
