/* The simulated device's adversarial schedule: programs that lack a wait get wrong bytes, right ones never do, whoever
 * polls makes progress, and a seed gives the same order again. */
#include "sim_fixture.h"

#include <semaphore.h>

enum { BYTES = 64 * 1024, CATCH = 20, RIGHT = 200, OLD = 1, NEW = 2 };

/* Two streams, memory on the device and on the host, full of OLD. */
struct scene {
    struct spw__device *device;
    spw__stream one, two;
    uint64_t memory;
    unsigned char in[BYTES], out[BYTES];
};

static struct scene scene;

static void begin(uint64_t seed)
{
    scene.device = open_seed(seed);
    scene.one = must_stream(scene.device);
    scene.two = must_stream(scene.device);
    scene.memory = must_alloc(scene.device, BYTES);
    memset(scene.in, OLD, BYTES);
    memset(scene.out, OLD, BYTES);
    ck_assert_int_eq(spw__device_copy_to(scene.device, scene.one, scene.memory, scene.in, BYTES), 0);
    must_sync(scene.device, scene.one);
    memset(scene.in, NEW, BYTES);
}

static void end(void)
{
    must_sync(scene.device, scene.one);
    must_sync(scene.device, scene.two);
    must_free(scene.device, scene.memory);
    end_stream(scene.device, scene.two);
    end_stream(scene.device, scene.one);
    close_device(scene.device);
}

static void upload(spw__stream stream)
{
    ck_assert_int_eq(spw__device_copy_to(scene.device, stream, scene.memory, scene.in, BYTES), 0);
}

static void download(spw__stream stream)
{
    ck_assert_int_eq(spw__device_copy_from(scene.device, stream, scene.out, scene.memory, BYTES), 0);
}

/* Programs: true if the bytes are right. Each has one wait, which careful says whether to make. */
typedef bool program(uint64_t seed, bool careful);

static bool reader_waits_for_writer(uint64_t seed, bool careful)
{
    begin(seed);
    upload(scene.one);
    if (careful)
        order(scene.device, scene.one, scene.two);
    download(scene.two);
    must_sync(scene.device, scene.two);
    const bool right = all_are(scene.out, BYTES, NEW);
    end();
    return right;
}

static bool writer_waits_for_reader(uint64_t seed, bool careful)
{
    begin(seed);
    download(scene.one);
    if (careful)
        order(scene.device, scene.one, scene.two);
    upload(scene.two);
    must_sync(scene.device, scene.one);
    const bool right = all_are(scene.out, BYTES, OLD);
    end();
    return right;
}

static bool source_is_used_again_after_the_copy(uint64_t seed, bool careful)
{
    begin(seed);
    upload(scene.one);
    if (careful)
        must_sync(scene.device, scene.one);
    memset(scene.in, OLD, BYTES);
    download(scene.one);
    must_sync(scene.device, scene.one);
    const bool right = all_are(scene.out, BYTES, NEW);
    end();
    return right;
}

static bool destination_is_read_after_the_copy(uint64_t seed, bool careful)
{
    begin(seed);
    upload(scene.one);
    download(scene.one);
    if (careful)
        poll_done(scene.device, must_record(scene.device, scene.one));
    const bool right = all_are(scene.out, BYTES, NEW);
    end();
    return right;
}

static void invert(void *arg)
{
    unsigned char *bytes = spw__sim_translate(*(const uint64_t *)arg, BYTES);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(OLD + NEW - bytes[i]);
}

static bool function_waits_for_its_input(uint64_t seed, bool careful)
{
    begin(seed);
    upload(scene.one);
    if (careful)
        order(scene.device, scene.one, scene.two);
    must_launch(scene.device, scene.two, invert, &scene.memory);
    download(scene.two);
    must_sync(scene.device, scene.two);
    const bool right = all_are(scene.out, BYTES, OLD);
    end();
    return right;
}

static program *const programs[] = {reader_waits_for_writer, writer_waits_for_reader,
                                    source_is_used_again_after_the_copy, destination_is_read_after_the_copy,
                                    function_waits_for_its_input};
enum { PROGRAMS = sizeof programs / sizeof programs[0] };

START_TEST(a_program_that_waits_is_right_whatever_the_seed)
{
    for (uint64_t seed = 1; seed <= RIGHT; seed++)
        ck_assert_msg(programs[_i](seed, true), "seed %llu", (unsigned long long)seed);
}
END_TEST

START_TEST(a_program_that_does_not_wait_is_caught_within_20_seeds)
{
    uint64_t seed = 1;
    while (programs[_i](seed, false)) {
        ck_assert_msg(seed < CATCH, "not caught");
        seed++;
    }
}
END_TEST

/* Some seeds do it late, some at once; when it was waited for it is done. */
START_TEST(a_copy_is_late_or_early_and_done_by_synchronize)
{
    unsigned late = 0, early = 0;
    for (uint64_t seed = 1; seed <= CATCH; seed++) {
        begin(seed);
        const unsigned char *bytes = spw__sim_host_pointer(scene.memory);
        upload(scene.one);
        late += all_are(bytes, BYTES, OLD);
        early += all_are(bytes, BYTES, NEW);
        must_sync(scene.device, scene.one);
        ck_assert(all_are(bytes, BYTES, NEW));
        end();
    }
    ck_assert_uint_gt(late, 0);
    ck_assert_uint_gt(early, 0);
    ck_assert_uint_lt(late + early, CATCH); /* and some are under way */
}
END_TEST

START_TEST(the_copies_of_a_batch_have_no_order)
{
    unsigned first_wins = 0, last_wins = 0;
    for (uint64_t seed = 1; seed <= CATCH; seed++) {
        unsigned done = 0;
        begin(seed);
        const struct spw__device_copy copies[] = {{SPW__COPY_TO, scene.memory, (uintptr_t)scene.in, BYTES},
                                                  {SPW__COPY_TO, scene.memory, (uintptr_t)scene.out, BYTES}};
        ck_assert_int_eq(spw__device_copy_batch(scene.device, scene.one, copies, 2, &done), 0);
        must_sync(scene.device, scene.one);
        const unsigned char *bytes = spw__sim_host_pointer(scene.memory);
        first_wins += all_are(bytes, BYTES, NEW);
        last_wins += all_are(bytes, BYTES, OLD);
        end();
    }
    ck_assert_uint_gt(first_wins, 0);
    ck_assert_uint_gt(last_wins, 0);
    ck_assert_uint_eq(first_wins + last_wins, CATCH);
}
END_TEST

/* A query's own patience ends, and only then is the work done, as far as it must be. */
START_TEST(polling_makes_progress)
{
    unsigned queries = 0;
    for (uint64_t seed = 1; seed <= RIGHT; seed++) {
        int rc;
        begin(seed);
        upload(scene.one);
        order(scene.device, scene.one, scene.two);
        download(scene.two);
        struct spw__event *event = must_record(scene.device, scene.two);
        while ((rc = spw__device_event_query(scene.device, event)) == SPW_EAGAIN)
            queries++;
        ck_assert_int_eq(rc, 0);
        ck_assert(all_are(scene.out, BYTES, NEW));
        spw__device_event_put(scene.device, event);
        end();
    }
    ck_assert_uint_gt(queries, RIGHT);
}
END_TEST

static void set_flag(void *flag)
{
    atomic_store((_Atomic int *)flag, 1);
}

/* The event that is polled has nothing to do with the function that the program waits for. */
START_TEST(polling_something_else_starves_nobody)
{
    for (uint64_t seed = 1; seed <= CATCH; seed++) {
        _Atomic int flag = 0;
        begin(seed);
        struct spw__event *event = must_record(scene.device, scene.one);
        must_launch(scene.device, scene.two, set_flag, &flag);
        while (!atomic_load(&flag))
            ck_assert(spw__device_event_query(scene.device, event) != SPW_EDEVICE);
        spw__device_event_put(scene.device, event);
        end();
    }
}
END_TEST

static void post(void *semaphore)
{
    ck_assert_int_eq(sem_post(semaphore), 0);
}

static void wait_for(void *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

START_TEST(work_is_done_though_nobody_calls)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        sem_t done;
        ck_assert_int_eq(sem_init(&done, 0, 0), 0);
        begin(seed);
        upload(scene.one);
        order(scene.device, scene.one, scene.two);
        must_launch(scene.device, scene.two, post, &done);
        wait_for(&done);
        end();
        ck_assert_int_eq(sem_destroy(&done), 0);
    }
}
END_TEST

/* The first function ends when the second one has run, which nobody waits for. */
START_TEST(a_long_function_does_not_hold_up_the_other_streams)
{
    for (uint64_t seed = 0; seed <= 8; seed++) {
        sem_t go;
        ck_assert_int_eq(sem_init(&go, 0, 0), 0);
        begin(seed);
        must_launch(scene.device, scene.one, wait_for, &go);
        must_launch(scene.device, scene.two, post, &go);
        must_sync(scene.device, scene.one);
        end();
        ck_assert_int_eq(sem_destroy(&go), 0);
    }
}
END_TEST

/* A program of copies that race with each other: what it ends with depends on the order only. */
static uint64_t play(uint64_t seed)
{
    unsigned char found[4][64];
    uint64_t hash = 1469598103934665603u;
    begin(seed);
    spw__stream streams[4] = {scene.one, scene.two, must_stream(scene.device), must_stream(scene.device)};
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 4; i++) {
            memset(found[i], 0, sizeof found[i]);
            ck_assert_int_eq(spw__device_copy_to(scene.device, streams[i], scene.memory + i, scene.in, 32), 0);
            ck_assert_int_eq(spw__device_copy_from(scene.device, streams[i], found[i], scene.memory, 64), 0);
            scene.in[round] = (unsigned char)(scene.in[round] + i);
        }
        poll_done(scene.device, must_record(scene.device, streams[round % 4]));
        for (unsigned i = 0; i < sizeof found; i++)
            hash = (hash ^ ((const unsigned char *)found)[i]) * 1099511628211u;
        for (unsigned i = 0; i < 4; i++)
            must_sync(scene.device, streams[i]);
    }
    end_stream(scene.device, streams[3]);
    end_stream(scene.device, streams[2]);
    end();
    return hash;
}

START_TEST(a_seed_gives_the_same_order_again)
{
    unsigned different = 0;
    const uint64_t first = play(1);
    for (uint64_t seed = 1; seed <= CATCH; seed++) {
        const uint64_t hash = play(seed);
        ck_assert_uint_eq(play(seed), hash);
        different += hash != first;
    }
    ck_assert_uint_gt(different, CATCH / 2);
}
END_TEST

START_TEST(the_environment_gives_a_seed_to_devices_without_one)
{
    ck_assert_int_eq(setenv("SPILLWAY_SIM_SEED", "7", 1), 0);
    const uint64_t by_environment = play(0);
    ck_assert_uint_eq(by_environment, play(7));
    ck_assert_uint_ne(by_environment, play(8));
    ck_assert_uint_eq(play(8), play(8));
}
END_TEST

START_TEST(an_environment_without_a_number_is_refused_by_name)
{
    static const char *const wrong[] = {"abc", "-1", " 7", "7x", "0x7", "18446744073709551615", "18446744073709551623"};
    const struct spw__device_config config = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = MIB, .log = &no_log, .meta = &meta};
    struct spw__device *device = NULL;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(setenv("SPILLWAY_SIM_SEED", wrong[i], 1), 0);
        ck_assert_int_eq(spw__device_open(&config, &device), SPW_ESPEC);
        ck_assert_ptr_null(device);
        ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "SPILLWAY_SIM_SEED: expected a seed"));
        ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, wrong[i]));
        ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
        close_device(open_seed(7)); /* a device that has a seed does not ask */
    }
    ck_assert_int_eq(setenv("SPILLWAY_SIM_SEED", "", 1), 0);
    close_device(open_seed(0));
    ck_assert_int_eq(setenv("SPILLWAY_SIM_SEED", "0", 1), 0);
    close_device(open_seed(0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_schedule");
    TCase *tcase = tcase_create("schedule");
    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, a_program_that_waits_is_right_whatever_the_seed, 0, PROGRAMS);
    tcase_add_loop_test(tcase, a_program_that_does_not_wait_is_caught_within_20_seeds, 0, PROGRAMS);
    tcase_add_test(tcase, a_copy_is_late_or_early_and_done_by_synchronize);
    tcase_add_test(tcase, the_copies_of_a_batch_have_no_order);
    tcase_add_test(tcase, polling_makes_progress);
    tcase_add_test(tcase, polling_something_else_starves_nobody);
    tcase_add_test(tcase, work_is_done_though_nobody_calls);
    tcase_add_test(tcase, a_long_function_does_not_hold_up_the_other_streams);
    tcase_add_test(tcase, a_seed_gives_the_same_order_again);
    tcase_add_test(tcase, the_environment_gives_a_seed_to_devices_without_one);
    tcase_add_test(tcase, an_environment_without_a_number_is_refused_by_name);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
