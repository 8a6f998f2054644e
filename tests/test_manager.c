/* The manager: what it is made of (option, string, environment), what it refuses, and how it ends (invariant 9). */
#include "tests/manager_fixture.h"

#include <sys/wait.h>

#include "pool/device/device.h"

static void setup(void)
{
    make_folder();
    for (const char *const *name = (const char *const[]){"SPILLWAY_SPEC", "SPILLWAY_HOST", "SPILLWAY_PINNED",
                                                         "SPILLWAY_DEVICE", "SPILLWAY_DISK", "SPILLWAY_META", NULL};
         *name; name++)
        (void)unsetenv(*name);
}

static void teardown(void)
{
    remove_folder();
}

static int create(const char *spec, spw_manager **out)
{
    spw_options options;
    spw_options_init(&options);
    options.spec = spec;
    options.log = keep_line;
    *out = (spw_manager *)&options;
    return spw_manager_create(&options, out);
}

static void refuses(const char *spec, int code, const char *words)
{
    spw_manager *made;
    const int rc = create(spec, &made);
    ck_assert_msg(rc == code, "\"%s\" gives %s: %s", spec, spw_error_name(rc), spw_error_detail()->message);
    ck_assert_ptr_null(made);
    ck_assert_int_eq(spw_error_detail()->code, code);
    ck_assert_msg(strstr(spw_error_detail()->message, words) != NULL, "\"%s\" does not say \"%s\"",
                  spw_error_detail()->message, words);
}

START_TEST(bad_options_are_refused_and_leave_no_manager)
{
    spw_options options;
    spw_manager *made = (spw_manager *)&options;
    spw_options_init(&options);
    ck_assert_int_eq(options.default_timeout_ms, 60000);
    options.spec = "host=1M";
    options.struct_size -= 8;
    ck_assert_int_eq(spw_manager_create(&options, &made), SPW_EINVAL);
    ck_assert_ptr_null(made);
    spw_options_init(&options);
    options.spec = "host=1M";
    options.default_timeout_ms = -1;
    ck_assert_int_eq(spw_manager_create(&options, &made), SPW_EINVAL);
    ck_assert_int_eq(spw_manager_create(&options, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_manager_destroy(NULL), SPW_OK);
    spw_manager_destroy_force(NULL);
}
END_TEST

START_TEST(a_string_that_cannot_be_honoured_says_why)
{
    char spec[512];
    refuses("host=1Q", SPW_ESPEC, "byte 6");
    refuses("", SPW_ESPEC, "byte 0");
    refuses("disk=/nowhere", SPW_EINVAL, "no memory tier");
    refuses("host=1M; meta=1K", SPW_ENOMETA, "meta=");
    refuses("host=1M; disk=/proc/none", SPW_EIO, "/proc/none");
    refuses("host=1M; disk=/dev/null", SPW_EINVAL, "/dev/null");
    (void)snprintf(spec, sizeof spec, "host=2K:1K,2K:1K; disk=%s:1M", folder);
    refuses(spec, SPW_EINVAL, "staging");
}
END_TEST

START_TEST(whatever_cannot_be_had_at_create_leaves_nothing_behind)
{
    const enum spw__fault_point points[] = {SPW__FAULT_META_ALLOC, SPW__FAULT_HOST_MAP, SPW__FAULT_DEVICE_OPEN,
                                            SPW__FAULT_DEVICE_ALLOC, SPW__FAULT_STORE_OPEN, SPW__FAULT_THREAD};
    char spec[512];
    (void)snprintf(spec, sizeof spec, "device=1M,1M; pinned=1M; host=1M; disk=%s/a:1M; driver=sim; io=threads", folder);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        unsigned failures = 0;
        for (long nth = 1;; nth++) { /* every call of the point fails once, until none is left to fail */
            spw_manager *made;
            spw__fault_arm(points[i], nth, 1, EACCES);
            const int rc = create(spec, &made);
            const bool reached = spw__fault_calls(points[i]) >= nth;
            spw__fault_disarm(points[i]);
            if (rc == SPW_OK) /* not reached, or done without: no O_DIRECT, fewer threads, a slower copy */
                ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);
            else
                ck_assert_ptr_null(made);
            failures += rc != SPW_OK;
            if (!reached)
                break;
        }
        ck_assert_msg(failures > 0, "point %u never made create fail", i);
    }
}
END_TEST

START_TEST(option_beats_environment_and_string_beats_a_sections_variable)
{
    spw_manager *made;
    ck_assert_int_eq(setenv("SPILLWAY_SPEC", "host=3M; meta=2M", 1), 0);
    ck_assert_int_eq(create(NULL, &made), SPW_OK);
    ck_assert_uint_eq(spw_budget(made, SPW_HOST), 3 * MIB);
    ck_assert_uint_eq(spw_budget(made, SPW_META), 2 * MIB);
    ck_assert_uint_eq(spw_budget(made, SPW_PINNED_HOST), 0);
    ck_assert_uint_eq(spw_budget(made, SPW_DISK), 0);
    ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);

    ck_assert_int_eq(setenv("SPILLWAY_HOST", "5M", 1), 0);
    ck_assert_int_eq(setenv("SPILLWAY_PINNED", "6M", 1), 0);
    ck_assert_int_eq(create("host=4M", &made), SPW_OK);
    ck_assert_uint_eq(spw_budget(made, SPW_HOST), 4 * MIB);        /* the string's */
    ck_assert_uint_eq(spw_budget(made, SPW_PINNED_HOST), 6 * MIB); /* named by the variable alone */
    ck_assert_uint_eq(spw_budget(made, SPW_META), 64 * MIB);       /* not from the other string */
    ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);
}
END_TEST

START_TEST(without_any_string_half_of_this_process_memory_is_host)
{
    spw_manager *made;
    ck_assert_int_eq(create(NULL, &made), SPW_OK);
    ck_assert_uint_gt(spw_budget(made, SPW_HOST), 16 * MIB);
    ck_assert_uint_eq(spw_budget(made, SPW_META), 64 * MIB);
    ck_assert_uint_eq(spw_budget(made, SPW_DISK), 0);
    ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);
}
END_TEST

static bool has_gpu(void)
{
    struct spw__device *device = NULL;
    const struct spw__device_config config = {.kind = SPW_DRIVER_CUDA, .capacity_bytes = MIB};
    const bool found = spw__device_open(&config, &device) == SPW_OK;
    spw__device_close(device);
    return found;
}

START_TEST(driver_auto_without_a_gpu_is_an_absence_that_is_logged)
{
    spw_manager *made;
    if (has_gpu())
        return;
    ck_assert_int_eq(create("device=1M; host=1M", &made), SPW_OK);
    ck_assert_uint_eq(spw_budget(made, SPW_DEVICE), 0);
    ck_assert_uint_eq(spw_budget(made, SPW_HOST), MIB);
    ck_assert_int_eq(logged.level, SPW__LOG_WARN);
    ck_assert_ptr_nonnull(strstr(logged.last, "no device tier"));
    const char *remedy = strstr(logged.last, "driver=sim");
    ck_assert_ptr_nonnull(remedy);
    ck_assert_ptr_null(strstr(remedy + 1, "driver=sim"));
    ck_assert_int_eq(spw_manager_destroy(made), SPW_OK);
    refuses("device=1M; host=1M; driver=cuda", SPW_ENOTSUP, "");
    refuses("1048576", SPW_EINVAL, "driver=sim");
}
END_TEST

START_TEST(budgets_are_set_within_the_pools_of_places_that_exist)
{
    open_manager("host=512K,512K; disk=%s:1M; staging=4K");
    ck_assert_uint_eq(spw_budget(manager, SPW_HOST), MIB);
    ck_assert_uint_eq(spw_budget(manager, SPW_DISK), MIB);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, MIB + 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(manager, SPW_DISK, MIB + 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(manager, SPW_DEVICE, 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(manager, SPW_PLACE_NONE, 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(manager, SPW_PLACE(SPW_TIER_HOST, 1), 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(NULL, SPW_HOST, 1), SPW_EINVAL);
    ck_assert_int_eq(spw_set_budget(manager, SPW_HOST, 700 * KIB), SPW_OK);
    ck_assert_uint_eq(spw_budget(manager, SPW_HOST), 700 * KIB);
    ck_assert_uint_eq(spw_budget(NULL, SPW_HOST), 0);
    ck_assert_int_eq(spw_progress(NULL, 0), SPW_EINVAL);
    close_manager();
}
END_TEST

START_TEST(progress_returns_at_once_when_nothing_is_to_be_done)
{
    open_manager("host=1M; threads=0; disk=%s:4M; staging=64K");
    ck_assert_int_eq(spw_progress(manager, UINT64_MAX), 0);
    spw_buffer *buffer = must_make(SPW_HOST, 100 * KIB, 1);
    push_out(SPW_HOST, 900 * KIB);
    ck_assert_int_eq(spw_progress(manager, UINT64_MAX), 0);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(destroy_with_live_buffers_lists_them_and_frees_nothing)
{
    spw_buffer *named[2];
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    open_manager(SMALL_HOST);
    options.tag = "hash table";
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1000, &options, &named[0]), SPW_OK);
    options.tag = "received";
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 2000, &options, &named[1]), SPW_OK);
    write_content(named[1], 1);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"hash table\" (1000 bytes)"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"received\" (2000 bytes)"));
    check_at(named[1], SPW_HOST, 1);
    must_release(named[0]);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_null(strstr(spw_error_detail()->message, "hash table"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "1 buffer is live: \"received\""));
    must_release(named[1]);
    close_manager();
}
END_TEST

START_TEST(many_live_buffers_are_counted_where_they_cannot_all_be_listed)
{
    spw_buffer *buffers[300];
    open_manager("host=1M");
    for (unsigned i = 0; i < 300; i++)
        buffers[i] = must_alloc(SPW_HOST, 64);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "300 buffers"));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "..."));
    for (unsigned i = 0; i < 300; i++)
        must_release(buffers[i]);
    close_manager();
}
END_TEST

START_TEST(a_forced_destroy_takes_live_mapped_and_spilled_buffers_with_it)
{
    spw_view view;
    open_manager("device=1M; " SMALL_HOST "; driver=sim");
    spw_buffer *spilled = must_make(SPW_HOST, 300 * KIB, 1);
    push_out(SPW_HOST, MIB);
    spw_buffer *mapped = must_make(SPW_HOST, 300 * KIB, 2), *shared = must_make(SPW_DEVICE, 300 * KIB, 3);
    ck_assert_int_eq(spw_map(mapped, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(shared), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(spilled), SPW_DISK);
    spw_manager_destroy_force(manager); /* what is left over, the leak checker and the folder tell */
}
END_TEST

/* What a child sees: EFORK from each call, and no crash. */
static int calls_in_child(spw_buffer *buffer)
{
    spw_view view;
    spw_buffer *made;
    int wrong = 0;
    wrong += spw_admit(manager, 10, NULL, &made) != SPW_EFORK;
    wrong += spw_alloc(manager, SPW_HOST, 10, NULL, &made) != SPW_EFORK;
    spw_reservation *reservation;
    wrong += spw_reserve(manager, SPW_HOST, 10, NULL, &reservation) != SPW_EFORK;
    wrong += spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view) != SPW_EFORK;
    wrong += spw_buffer_seal(buffer) != SPW_EFORK;
    wrong += spw_buffer_retain(buffer) != SPW_EFORK;
    wrong += spw_buffer_release(buffer) != SPW_EFORK;
    wrong += spw_buffer_write(buffer, 0, "x", 1) != SPW_EFORK;
    wrong += spw_stats_snapshot(manager, &stats) != SPW_EFORK;
    wrong += spw_set_budget(manager, SPW_HOST, 1000) != SPW_EFORK;
    wrong += spw_progress(manager, 0) != SPW_EFORK;
    wrong += spw_manager_destroy(manager) != SPW_EFORK;
    spw_manager_destroy_force(manager);
    return wrong;
}

START_TEST(calls_in_a_forked_child_are_refused_and_do_the_parent_no_harm)
{
    int status = 0;
    open_manager(SMALL_HOST);
    stats.struct_size = sizeof stats;
    spw_buffer *buffer = must_make(SPW_HOST, 1000, 1);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(calls_in_child(buffer));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(two_managers_live_side_by_side)
{
    open_manager("host=1M");
    spw_manager *other = create_with(NULL, "host=1M");
    spw_buffer *here = must_make(SPW_HOST, 1000, 1), *there = NULL;
    ck_assert_int_eq(spw_alloc(other, SPW_HOST, MIB, NULL, &there), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 1024);
    must_release(there);
    ck_assert_int_eq(spw_manager_destroy(other), SPW_OK);
    check_at(here, SPW_HOST, 1);
    must_release(here);
    close_manager();
}
END_TEST

/* A call that waits on behalf of a task: for a buffer, raw memory, a reservation's growth, or a reclaimer's reserve. */
struct late {
    spw_task *task;
    spw_reservation *reservation;
    unsigned which;
    int rc;
};

static uint64_t nothing_to_free(void *arg)
{
    (void)arg;
    return 0;
}

static uint64_t free_nothing(void *arg, uint64_t bytes)
{
    (void)arg;
    (void)bytes;
    return 0;
}

static void *wait_late(void *arg)
{
    struct late *late = arg;
    spw_alloc_options alloc;
    spw_pool_options pool;
    spw_reclaimer_options reclaimer;
    spw_buffer *buffer;
    spw_block block;
    spw_reclaimer *registered;
    ck_assert_int_eq(spw_task_attach(late->task), SPW_OK);
    switch (late->which) {
    case 0:
        spw_alloc_options_init(&alloc);
        alloc.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
        late->rc = spw_alloc(manager, SPW_HOST, 4096, &alloc, &buffer);
        break;
    case 1:
        spw_pool_options_init(&pool);
        pool.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
        late->rc = spw_pool_alloc(manager, SPW_HOST, 4096, 0, NULL, &pool, &block);
        break;
    case 2: late->rc = spw_reservation_grow(late->reservation, 4096, NULL); break;
    default:
        spw_reclaimer_options_init(&reclaimer);
        reclaimer.place = SPW_HOST;
        reclaimer.reserve_bytes = 4096;
        reclaimer.estimate = nothing_to_free;
        reclaimer.reclaim = free_nothing;
        late->rc = spw_reclaimer_register(late->task, &reclaimer, &registered);
    }
    return NULL;
}

START_TEST(a_forced_destroy_lets_calls_on_behalf_of_tasks_look_at_them_for_the_last_time)
{
    for (unsigned which = 0; which < 4; which++) {
        spw_task *busy = NULL;
        struct late late = {.which = which};
        open_manager("host=1M");
        ck_assert_int_eq(spw_task_create(manager, NULL, &late.task), SPW_OK);
        ck_assert_int_eq(spw_task_create(manager, NULL, &busy), SPW_OK);
        ck_assert_int_eq(spw_task_attach(busy), SPW_OK); /* and runs: nobody is asked for anything */
        ck_assert_int_eq(spw_reserve(manager, SPW_HOST, MIB, NULL, &late.reservation), SPW_OK);
        const pthread_t thread = must_start(wait_late, &late);
        do
            (void)tier_now(SPW_TIER_HOST);
        while (stats.waits == 0);
        spw_manager_destroy_force(manager);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(late.rc, SPW_ESHUTDOWN);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manager");
    TCase *tests = tcase_create("life");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, bad_options_are_refused_and_leave_no_manager);
    tcase_add_test(tests, a_string_that_cannot_be_honoured_says_why);
    tcase_add_test(tests, whatever_cannot_be_had_at_create_leaves_nothing_behind);
    tcase_add_test(tests, option_beats_environment_and_string_beats_a_sections_variable);
    tcase_add_test(tests, without_any_string_half_of_this_process_memory_is_host);
    tcase_add_test(tests, driver_auto_without_a_gpu_is_an_absence_that_is_logged);
    tcase_add_test(tests, budgets_are_set_within_the_pools_of_places_that_exist);
    tcase_add_test(tests, progress_returns_at_once_when_nothing_is_to_be_done);
    tcase_add_test(tests, destroy_with_live_buffers_lists_them_and_frees_nothing);
    tcase_add_test(tests, many_live_buffers_are_counted_where_they_cannot_all_be_listed);
    tcase_add_test(tests, a_forced_destroy_takes_live_mapped_and_spilled_buffers_with_it);
    tcase_add_test(tests, a_forced_destroy_lets_calls_on_behalf_of_tasks_look_at_them_for_the_last_time);
    tcase_add_test(tests, calls_in_a_forked_child_are_refused_and_do_the_parent_no_harm);
    tcase_add_test(tests, two_managers_live_side_by_side);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
