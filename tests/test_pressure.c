/* Requests that do not fit: invariant 1 under threads, what ends a wait (room, deadline, cancel, shutdown, budget), and
 * that a failure leaves every counter as it was. test_admit.c has where requests go, test_spill.c the moves. */
#include "tests/manager_fixture.h"

#include "src/core/payload.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

/* A request made by another thread. */
struct asking {
    spw_place place; /* SPW_PLACE_NONE: admit */
    size_t bytes;
    int64_t timeout_ms;
    spw_cancel *cancel;
    int rc;
    spw_error_info detail;
    spw_buffer *buffer;
};

static void *ask(void *arg)
{
    struct asking *asking = arg;
    spw_alloc_options alloc;
    spw_admit_options admit;
    spw_alloc_options_init(&alloc);
    spw_admit_options_init(&admit);
    alloc.wait.timeout_ms = admit.wait.timeout_ms = asking->timeout_ms;
    alloc.wait.cancel = admit.wait.cancel = asking->cancel;
    asking->rc = asking->place ? spw_alloc(manager, asking->place, asking->bytes, &alloc, &asking->buffer)
                               : spw_admit(manager, asking->bytes, &admit, &asking->buffer);
    asking->detail = *spw_error_detail();
    return NULL;
}

/* Returns when it is one of n waiters for host memory: a state to be reached, not a time to pass. */
static pthread_t start_asking_as(struct asking *asking, unsigned n)
{
    const pthread_t thread = must_start(ask, asking);
    while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) != n)
        (void)sched_yield();
    return thread;
}

static pthread_t start_asking(struct asking *asking)
{
    return start_asking_as(asking, 1);
}

static void must_join(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void *admit_and_release(void *arg)
{
    unsigned state = *(const unsigned *)arg;
    spw_buffer *held[8] = {NULL};
    for (unsigned i = 0; i < 3000; i++) {
        state = state * 1103515245u + 12345u;
        const unsigned slot = (state >> 16) % 8;
        if (held[slot])
            must_release(held[slot]);
        held[slot] = NULL;
        spw_admit_options options;
        spw_admit_options_init(&options);
        options.flags = SPW_NOWAIT;
        options.prefer = (state >> 20) % 2 ? SPW_PINNED_HOST : SPW_DEVICE;
        const int rc = spw_admit(manager, 1 + (state >> 8) % (300 * KIB), &options, &held[slot]);
        ck_assert(rc == SPW_OK || rc == SPW_EAGAIN);
    }
    for (unsigned i = 0; i < 8; i++)
        must_release(held[i]);
    return NULL;
}

START_TEST(invariant_1_committed_never_exceeds_the_budget_under_threads)
{
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};
    open_manager("device=1M; pinned=1M; host=1M; driver=sim");
    for (unsigned i = 0; i < 4; i++)
        threads[i] = must_start(admit_and_release, &seeds[i]);
    for (unsigned i = 0; i < 2000; i++)
        for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++)
            ck_assert_uint_le(committed(tier), MIB);
    for (unsigned i = 0; i < 4; i++)
        must_join(threads[i]);
    for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_HOST; tier++) {
        ck_assert_uint_le(tier_now(tier)->peak_bytes, MIB);
        ck_assert_uint_gt(stats.tiers[tier].peak_bytes, MIB / 2);
        ck_assert_uint_gt(stats.tiers[tier].fail_budget, 0);
    }
    close_manager();
}
END_TEST

START_TEST(a_waiting_request_is_served_by_another_threads_release)
{
    open_manager("host=1M");
    spw_buffer *full = must_alloc(SPW_HOST, MIB);
    struct asking first = {.place = SPW_HOST, .bytes = 100, .timeout_ms = SPW_TIMEOUT_DEFAULT};
    struct asking second = {.bytes = MIB / 2, .timeout_ms = SPW_TIMEOUT_INFINITE};
    const pthread_t a = start_asking_as(&first, 1), b = start_asking_as(&second, 2);
    must_release(full);
    must_join(a);
    must_join(b);
    ck_assert_int_eq(first.rc, SPW_OK);
    ck_assert_int_eq(second.rc, SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->admits, 1);
    ck_assert_uint_eq(stats.wait_timeouts, 0);
    ck_assert_uint_eq(stats.waits, 2);
    must_release(first.buffer);
    must_release(second.buffer);
    close_manager();
}
END_TEST

START_TEST(a_waiting_request_is_served_when_a_map_ends_or_a_buffer_is_sealed)
{
    spw_view view;
    open_manager(SMALL_HOST);
    spw_buffer *mapped = must_make(SPW_HOST, 512 * KIB, 1), *unsealed = must_alloc(SPW_HOST, 512 * KIB);
    ck_assert_int_eq(spw_map(mapped, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    struct asking first = {.place = SPW_HOST, .bytes = 512 * KIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    pthread_t thread = start_asking(&first);
    ck_assert_int_eq(spw_unmap(mapped, &view, NULL), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(first.rc, SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(mapped), SPW_DISK);

    struct asking second = first;
    thread = start_asking(&second);
    ck_assert_int_eq(spw_buffer_seal(unsealed), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(second.rc, SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(unsealed), SPW_DISK);
    must_release(mapped);
    must_release(unsealed);
    must_release(first.buffer);
    must_release(second.buffer);
    close_manager();
}
END_TEST

static uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

START_TEST(a_wait_ends_at_its_deadline_on_the_managers_clock_and_says_what_was_short)
{
    static struct spw__clock clock = {.now_ns = manual_now};
    const struct spw__env env = {.clock = &clock};
    atomic_store(&clock.manual_ns, 5000000000);
    open_env(&env, "host=1M");
    spw_buffer *full = must_alloc(SPW_HOST, MIB - 100 * KIB);
    struct asking asking = {.bytes = 200 * KIB, .timeout_ms = 1000};
    const pthread_t thread = start_asking(&asking);
    while (!first_waiter_sleeps(SPW_TIER_HOST)) /* or nobody may expire it once its deadline is known */
        (void)sched_yield();
    atomic_store(&clock.manual_ns, 5999999999);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    ck_assert(spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_HOST)));
    atomic_store(&clock.manual_ns, 6000000000);
    ck_assert_int_eq(spw_progress(manager, 0), 0);
    must_join(thread);
    ck_assert_int_eq(asking.rc, SPW_ENOMEM);
    ck_assert_ptr_null(asking.buffer);
    ck_assert_int_eq(asking.detail.code, SPW_ENOMEM);
    ck_assert_uint_eq(asking.detail.place, SPW_HOST);
    ck_assert_uint_eq(asking.detail.requested_bytes, 200 * KIB);
    ck_assert_uint_eq(asking.detail.free_bytes, 100 * KIB);
    ck_assert_uint_eq(asking.detail.largest_free_bytes, 100 * KIB);
    ck_assert_uint_eq(asking.detail.limit_bytes, MIB);
    ck_assert_ptr_nonnull(strstr(asking.detail.message, "host="));
    ck_assert_ptr_nonnull(strstr(asking.detail.message, "since there is no disk tier; held by"));
    ck_assert_ptr_nonnull(strstr(asking.detail.message, "disk="));
    (void)tier_now(SPW_TIER_HOST);
    ck_assert_uint_eq(stats.waits, 1);
    ck_assert_uint_eq(stats.wait_timeouts, 1);
    ck_assert_uint_eq(stats.wait_ns, 1000000000);
    must_release(full);
    close_manager();
}
END_TEST

START_TEST(timeout_0_is_one_try_that_includes_dropping_clean_copies)
{
    spw_buffer *fresh, *none;
    open_manager(SMALL_HOST);
    spw_buffer *clean = must_make(SPW_HOST, 600 * KIB, 1);
    push_out(SPW_HOST, MIB);
    check_at(clean, SPW_HOST, 1); /* back, with its copy on disk kept */
    ck_assert_int_eq(alloc_within(SPW_HOST, MIB, 0, &fresh), SPW_OK);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->drop_bytes, 600 * KIB);
    ck_assert_int_eq(alloc_within(SPW_HOST, 1, 0, &none), SPW_ENOMEM);
    must_release(fresh);
    check_at(clean, SPW_HOST, 1);
    must_release(clean);
    close_manager();
}
END_TEST

START_TEST(a_cancelled_wait_ends_with_ecanceled_now_and_from_now_on)
{
    spw_cancel *cancel = NULL;
    open_manager("host=1M");
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    spw_buffer *full = must_alloc(SPW_HOST, MIB);
    struct asking one = {.place = SPW_HOST, .bytes = 1, .timeout_ms = SPW_TIMEOUT_INFINITE, .cancel = cancel};
    struct asking two = {.bytes = 1, .timeout_ms = SPW_TIMEOUT_INFINITE, .cancel = cancel};
    const pthread_t a = start_asking_as(&one, 1), b = start_asking_as(&two, 2);
    spw_cancel_trigger(cancel);
    must_join(a);
    must_join(b);
    ck_assert_int_eq(one.rc, SPW_ECANCELED);
    ck_assert_int_eq(two.rc, SPW_ECANCELED);
    ck_assert_ptr_null(one.buffer);
    must_release(full);
    (void)ask(&one); /* room or not */
    ck_assert_int_eq(one.rc, SPW_ECANCELED);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    spw_cancel_destroy(cancel);
    spw_cancel_destroy(NULL);
    spw_cancel_trigger(NULL);
    close_manager();
}
END_TEST

/* A map made by another thread. */
struct mapping {
    spw_buffer *buffer;
    spw_place place;
    int rc;
};

static void *map_it(void *arg)
{
    struct mapping *mapping = arg;
    spw_view view;
    mapping->rc = spw_map(mapping->buffer, mapping->place, SPW_MAP_READ, NULL, &view);
    return NULL;
}

START_TEST(a_forced_destroy_ends_waits_of_requests_and_maps)
{
    for (unsigned round = 0; round < 50; round++) {
        struct asking asking[2] = {{.bytes = MIB, .timeout_ms = SPW_TIMEOUT_INFINITE},
                                   {.place = SPW_HOST, .bytes = MIB, .timeout_ms = SPW_TIMEOUT_INFINITE}};
        open_manager("pinned=1088K; host=1M; staging=64K; piece=128K; disk=%s:16M");
        struct mapping mapping = {.buffer = must_make(SPW_PINNED_HOST, 300 * KIB, 1), .place = SPW_HOST};
        const spw_buffer *full = must_alloc(SPW_HOST, MIB);
        ck_assert_ptr_nonnull(full);
        const pthread_t threads[] = {start_asking_as(&asking[0], 1), start_asking_as(&asking[1], 2),
                                     must_start(map_it, &mapping)};
        while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) != 3)
            (void)sched_yield();
        spw_manager_destroy_force(manager);
        for (unsigned i = 0; i < 3; i++)
            must_join(threads[i]);
        ck_assert_int_eq(asking[0].rc, SPW_ESHUTDOWN);
        ck_assert_int_eq(asking[1].rc, SPW_ESHUTDOWN);
        ck_assert_int_eq(mapping.rc, SPW_ESHUTDOWN);
    }
}
END_TEST

START_TEST(a_budget_below_use_grants_nothing_until_use_is_below_it)
{
    spw_buffer *none;
    open_manager(SMALL_HOST);
    spw_buffer *one = must_make(SPW_HOST, 384 * KIB, 1), *two = must_alloc(SPW_HOST, 384 * KIB);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, STAGING + 500 * KIB), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING + 768 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].free_bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].budget_bytes, STAGING + 500 * KIB);
    ck_assert_uint_eq(spw_buffer_place(one), SPW_HOST); /* nobody asks yet */
    spw_buffer *small = must_alloc(SPW_HOST, 100 * KIB); /* pushes the sealed one out */
    ck_assert_uint_eq(spw_buffer_place(one), SPW_DISK);
    ck_assert_uint_le(committed(SPW_TIER_HOST), STAGING + 500 * KIB);
    ck_assert_int_eq(alloc_within(SPW_HOST, 100 * KIB, 0, &none), SPW_ENOMEM);
    ck_assert_int_eq(alloc_within(SPW_HOST, 600 * KIB, 0, &none), SPW_ETOOBIG);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "spw_set_budget"));
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, STAGING + 500 * KIB);
    ck_assert_int_eq(alloc_within(SPW_HOST, 2 * MIB, 0, &none), SPW_ETOOBIG);
    ck_assert_ptr_null(strstr(spw_error_detail()->message, "spw_set_budget"));

    struct asking asking = {.bytes = 100 * KIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    const pthread_t thread = start_asking(&asking);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 1088 * KIB), SPW_OK);
    must_join(thread);
    ck_assert_int_eq(asking.rc, SPW_OK);
    must_release(asking.buffer);
    must_release(one);
    must_release(two);
    must_release(small);
    close_manager();
}
END_TEST

/* What a failed call must leave as it was. */
static void same_as(const spw_stats *before)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier <= SPW_TIER_DISK; tier++)
        comes_to(tier, before->tiers[tier].committed_bytes);
    ck_assert_uint_eq(stats.buffers, before->buffers);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_HOST].admits, before->tiers[SPW_TIER_HOST].admits);
}

START_TEST(running_out_of_meta_is_enometa_at_once_and_leaves_every_counter)
{
    enum { MOST = 4096 };
    static spw_buffer *buffers[MOST];
    unsigned n = 0;
    int rc;
    open_manager("host=16M; meta=256K; piece=4K");
    const uint64_t meta = committed(SPW_TIER_META);
    spw_stats before = stats;
    while ((rc = spw_alloc(manager, SPW_HOST, 16 * KIB, NULL, &buffers[n])) == SPW_OK) {
        before = (tier_now(SPW_TIER_HOST), stats);
        ck_assert_uint_lt(++n, MOST);
    }
    ck_assert_int_eq(rc, SPW_ENOMETA);
    ck_assert_ptr_null(buffers[n]);
    ck_assert_uint_gt(n, 10);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "meta="));
    ck_assert_uint_eq(committed(SPW_TIER_HOST), before.tiers[SPW_TIER_HOST].committed_bytes);
    ck_assert_uint_eq(stats.buffers, n);
    ck_assert_uint_eq(stats.waits, 0);
    ck_assert_uint_le(stats.tiers[SPW_TIER_META].peak_bytes, 256 * KIB);
    ck_assert_int_eq(spw_set_budget(manager, SPW_META, MIB), SPW_OK);
    buffers[n] = must_alloc(SPW_HOST, 16 * KIB);
    for (unsigned i = 0; i <= n; i++)
        must_release(buffers[i]);
    ck_assert_uint_ge(committed(SPW_TIER_META), meta);
    close_manager();
}
END_TEST

START_TEST(every_metadata_failure_of_a_request_or_map_leaves_every_counter)
{
    open_manager("pinned=1088K; host=1M; staging=64K; piece=64K; disk=%s:16M");
    spw_buffer *buffer, *spilled = must_make(SPW_PINNED_HOST, 300 * KIB, 1);
    push_out(SPW_PINNED_HOST, MIB);
    (void)tier_now(SPW_TIER_HOST);
    const spw_stats before = stats;
    for (long nth = 1;; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = spw_alloc(manager, SPW_HOST, 300 * KIB, NULL, &buffer);
        const bool reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_msg(rc == (reached ? SPW_ENOMETA : SPW_OK), "call %ld: %s", nth, spw_error_name(rc));
        if (!reached)
            break;
        ck_assert_ptr_null(buffer);
        same_as(&before);
    }
    must_release(buffer);
    for (long nth = 1;; nth++) {
        spw_view view;
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        const int rc = spw_map(spilled, SPW_HOST, SPW_MAP_READ, NULL, &view);
        const bool reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_msg(rc == (reached ? SPW_ENOMETA : SPW_OK), "call %ld: %s", nth, spw_error_name(rc));
        if (rc == SPW_OK) {
            ck_assert(has_content(view.data, view.size, 1));
            ck_assert_int_eq(spw_unmap(spilled, &view, NULL), SPW_OK);
            break;
        }
        same_as(&before);
    }
    must_release(spilled);
    close_manager();
}
END_TEST

START_TEST(without_a_disk_tier_victims_go_down_until_memory_is_full)
{
    spw_buffer *buffers[17], *none;
    open_manager("device=1M; host=1M; piece=64K; driver=sim");
    for (unsigned i = 0; i < 16; i++)
        buffers[i] = must_make(SPW_DEVICE, 128 * KIB, i);
    for (unsigned i = 0; i < 16; i++)
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i < 8 ? SPW_HOST : SPW_DEVICE);
    ck_assert_int_eq(alloc_within(SPW_DEVICE, 64 * KIB, 0, &none), SPW_ENOMEM);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "raw, or finds no room below, where there is no disk"));
    for (unsigned i = 0; i < 16; i++)
        ck_assert_uint_eq(spw_buffer_place(buffers[i]), i < 8 ? SPW_HOST : SPW_DEVICE);
    struct asking asking = {.place = SPW_DEVICE, .bytes = 128 * KIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    const pthread_t thread = must_start(ask, &asking);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_DEVICE)))
        (void)sched_yield();
    must_release(buffers[0]); /* room in host is room for a victim of the device */
    must_join(thread);
    ck_assert_int_eq(asking.rc, SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(buffers[8]), SPW_HOST);
    must_release(asking.buffer);
    for (unsigned i = 1; i < 16; i++) {
        check_at(buffers[i], i < 9 ? SPW_HOST : SPW_DEVICE, i);
        must_release(buffers[i]);
    }
    close_manager();
}
END_TEST

START_TEST(a_better_tier_grows_for_an_admission_though_others_wait_in_a_lower_one)
{
    open_manager("pinned=128M; host=1M");
    spw_buffer *all = must_alloc(SPW_HOST, MIB);
    struct asking below = {.place = SPW_HOST, .bytes = 512 * KIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    struct asking admission = {.bytes = 40 * MIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    const pthread_t thread = start_asking(&below);
    (void)ask(&admission);
    ck_assert_int_eq(admission.rc, SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(admission.buffer), SPW_PINNED_HOST);
    must_release(all);
    must_join(thread);
    ck_assert_int_eq(below.rc, SPW_OK);
    must_release(below.buffer);
    must_release(admission.buffer);
    close_manager();
}
END_TEST

START_TEST(a_successful_call_leaves_the_error_detail_alone)
{
    spw_error_info before;
    open_manager("pinned=64M; host=64M");
    ck_assert_int_eq(spw_admit(manager, 1, NULL, NULL), SPW_EINVAL);
    before = *spw_error_detail();
    spw__fault_arm(SPW__FAULT_HOST_POPULATE, 1, 1, ENOMEM);
    spw_buffer *buffer = NULL;
    ck_assert_int_eq(spw_admit(manager, MIB, NULL, &buffer), SPW_OK);
    ck_assert_int_gt(spw__fault_calls(SPW__FAULT_HOST_POPULATE), 1);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_mem_eq(spw_error_detail(), &before, sizeof before);
    spw__fault_disarm(SPW__FAULT_HOST_POPULATE);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_failed_call_keeps_its_own_detail_while_others_wait)
{
    spw_alloc_options options;
    spw_buffer *buffer = NULL;
    open_manager("host=64M");
    spw_buffer *first = must_alloc(SPW_HOST, 20 * MIB);
    struct asking asking = {.place = SPW_HOST, .bytes = 64 * MIB, .timeout_ms = SPW_TIMEOUT_INFINITE};
    const pthread_t thread = start_asking(&asking);
    while (!first_waiter_sleeps(SPW_TIER_HOST)) /* so that it does not meet the fault that is meant for this one */
        (void)sched_yield();
    spw_alloc_options_init(&options);
    options.flags = SPW_NOWAIT;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, MIB, &options, &buffer), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_int_eq(spw_error_detail()->code, SPW_ENOMETA);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "buffer of 1 pieces"));
    must_release(first);
    must_join(thread);
    ck_assert_int_eq(asking.rc, SPW_OK);
    must_release(asking.buffer);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pressure");
    TCase *tests = tcase_create("waits");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, invariant_1_committed_never_exceeds_the_budget_under_threads);
    tcase_add_test(tests, a_waiting_request_is_served_by_another_threads_release);
    tcase_add_test(tests, a_waiting_request_is_served_when_a_map_ends_or_a_buffer_is_sealed);
    tcase_add_test(tests, a_wait_ends_at_its_deadline_on_the_managers_clock_and_says_what_was_short);
    tcase_add_test(tests, timeout_0_is_one_try_that_includes_dropping_clean_copies);
    tcase_add_test(tests, a_cancelled_wait_ends_with_ecanceled_now_and_from_now_on);
    tcase_add_test(tests, a_forced_destroy_ends_waits_of_requests_and_maps);
    tcase_add_test(tests, a_budget_below_use_grants_nothing_until_use_is_below_it);
    tcase_add_test(tests, running_out_of_meta_is_enometa_at_once_and_leaves_every_counter);
    tcase_add_test(tests, every_metadata_failure_of_a_request_or_map_leaves_every_counter);
    tcase_add_test(tests, a_better_tier_grows_for_an_admission_though_others_wait_in_a_lower_one);
    tcase_add_test(tests, a_successful_call_leaves_the_error_detail_alone);
    tcase_add_test(tests, a_failed_call_keeps_its_own_detail_while_others_wait);
    tcase_add_test(tests, without_a_disk_tier_victims_go_down_until_memory_is_full);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
