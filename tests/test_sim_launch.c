/* Functions launched on the simulated device: run in stream order, with addresses that are theirs while they run. */
#include "sim_fixture.h"

#include <errno.h>
#include <semaphore.h>

enum { BYTES = 4096, SEEDS = 12 };

struct addition {
    uint64_t address;
    unsigned char term;
};

static void add(void *arg)
{
    const struct addition *addition = arg;
    unsigned char *bytes = spw__sim_translate(addition->address, BYTES);
    ck_assert_ptr_nonnull(bytes);
    for (unsigned i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(bytes[i] + addition->term);
}

START_TEST(functions_and_copies_run_in_stream_order)
{
    unsigned char in[BYTES], middle[BYTES], out[BYTES];
    struct spw__device *device = open_seed((uint64_t)_i);
    spw__stream stream = must_stream(device);
    struct addition first = {must_alloc(device, BYTES), 3}, second = {first.address, 4};
    memset(in, 10, BYTES);
    ck_assert_int_eq(spw__device_copy_to(device, stream, first.address, in, BYTES), 0);
    must_launch(device, stream, add, &first);
    ck_assert_int_eq(spw__device_copy_from(device, stream, middle, first.address, BYTES), 0);
    must_launch(device, stream, add, &second);
    ck_assert_int_eq(spw__device_copy_from(device, stream, out, first.address, BYTES), 0);
    must_sync(device, stream);
    ck_assert(all_are(middle, BYTES, 13));
    ck_assert(all_are(out, BYTES, 17));
    must_free(device, first.address);
    end_stream(device, stream);
    close_device(device);
}
END_TEST

START_TEST(the_default_stream_runs_functions_and_events_cover_them)
{
    struct spw__device *device = open_seed((uint64_t)_i);
    struct addition addition = {must_alloc(device, BYTES), 1};
    must_launch(device, NULL, add, &addition);
    poll_done(device, must_record(device, NULL));
    ck_assert_int_eq(*(unsigned char *)spw__sim_host_pointer(addition.address), 0xa5 + 1);
    must_free(device, addition.address);
    close_device(device);
}
END_TEST

struct look {
    uint64_t address, elsewhere;
    void *at, *inside, *beyond, *before, *other;
};

static void look_around(void *arg)
{
    struct look *look = arg;
    look->at = spw__sim_translate(look->address, BYTES);
    look->inside = spw__sim_translate(look->address + 100, BYTES - 100);
    look->beyond = spw__sim_translate(look->address + 1, BYTES);
    look->before = spw__sim_translate(look->address - 1, 1);
    look->other = spw__sim_translate(look->elsewhere, 1);
}

START_TEST(addresses_translate_inside_a_function_of_their_device_only)
{
    struct spw__device *device = open_seed((uint64_t)_i), *other = open_seed((uint64_t)_i);
    struct look look = {.address = must_alloc(device, BYTES), .elsewhere = must_alloc(other, BYTES)};
    ck_assert_ptr_null(spw__sim_translate(look.address, 1));
    must_launch(device, NULL, look_around, &look);
    must_sync(device, NULL);
    ck_assert_ptr_eq(look.at, spw__sim_host_pointer(look.address));
    ck_assert_ptr_eq(look.inside, (char *)look.at + 100);
    ck_assert_ptr_null(look.beyond);
    ck_assert_ptr_null(look.before);
    ck_assert_ptr_null(look.other);
    ck_assert_ptr_null(spw__sim_translate(look.address, 1));
    must_free(device, look.address);
    must_free(other, look.elsewhere);
    spw__device_close(device);
    close_device(other);
}
END_TEST

struct calls {
    struct spw__device *device;
    spw__stream stream;
    struct spw__event *event;
    uint64_t address;
    int rc[5];
    char message[sizeof((spw_error_info *)NULL)->message];
};

static void call_the_device(void *arg)
{
    struct calls *calls = arg;
    unsigned char byte = 0;
    calls->rc[0] = spw__device_synchronize(calls->device, calls->stream);
    calls->rc[1] = spw__device_event_query(calls->device, calls->event);
    calls->rc[2] = spw__device_alloc(calls->device, 1, &(uint64_t){0});
    calls->rc[3] = spw__device_launch(calls->device, calls->stream, call_the_device, calls);
    calls->rc[4] = spw__device_copy_to(calls->device, calls->stream, calls->address, &byte, 1);
    (void)strcpy(calls->message, spw_error_detail()->message);
}

START_TEST(a_function_may_not_call_the_driver)
{
    struct spw__device *device = open_seed((uint64_t)_i);
    struct calls calls = {.device = device, .stream = must_stream(device), .address = must_alloc(device, BYTES)};
    calls.event = must_record(device, calls.stream);
    must_launch(device, calls.stream, call_the_device, &calls);
    must_sync(device, calls.stream);
    for (unsigned i = 0; i < 5; i++)
        ck_assert_msg(calls.rc[i] == SPW_EDEVICE, "call %u gave %d", i, calls.rc[i]);
    ck_assert_msg(strstr(calls.message, "CUDA_ERROR_NOT_PERMITTED (800); a function that was launched on a stream may "
                                        "not call the library") != NULL, "\"%s\"", calls.message);
    ck_assert_int_eq(spw__device_event_query(device, calls.event), 0); /* none of it is sticky */
    spw__device_event_put(device, calls.event);
    must_free(device, calls.address);
    end_stream(device, calls.stream);
    close_device(device);
}
END_TEST

struct gate {
    sem_t open;
    _Atomic int passed; /* atomic */
    uint64_t address;
    void *found;
};

static void pass(void *arg)
{
    struct gate *gate = arg;
    while (sem_wait(&gate->open) != 0) {
    }
    gate->found = spw__sim_translate(gate->address, BYTES);
    atomic_fetch_add(&gate->passed, 1);
}

static void open_gate(void *arg)
{
    ck_assert_int_eq(sem_post(&((struct gate *)arg)->open), 0);
}

/* The function might use the memory, so the free waits for it: here for one that another stream's function lets go. */
START_TEST(memory_is_freed_after_the_functions_that_may_use_it)
{
    struct spw__device *device = open_seed((uint64_t)_i);
    spw__stream one = must_stream(device), two = must_stream(device);
    struct gate gate = {.passed = 0};
    ck_assert_int_eq(sem_init(&gate.open, 0, 0), 0);
    gate.address = must_alloc(device, BYTES);
    must_launch(device, one, pass, &gate);
    must_launch(device, two, open_gate, &gate);
    must_free(device, gate.address);
    ck_assert_int_eq(atomic_load(&gate.passed), 1);
    ck_assert_ptr_nonnull(gate.found);
    end_stream(device, one);
    end_stream(device, two);
    close_device(device);
}
END_TEST

struct visit {
    uint64_t address, bytes;
    unsigned char *kept;
};

static void touch_both_ends(void *arg)
{
    struct visit *visit = arg;
    visit->kept = spw__sim_translate(visit->address, visit->bytes);
    ck_assert_ptr_nonnull(visit->kept);
    visit->kept[0] = visit->kept[visit->bytes - 1] = 1;
}

/* A function that keeps a pointer beyond its return reads poison once the memory is freed, however large it was. */
START_TEST(freed_memory_that_was_touched_is_poisoned)
{
    struct spw__device *device = open_seed((uint64_t)_i);
    for (unsigned round = 0; round < 2; round++) {
        struct visit visit = {.bytes = round == 0 ? 5 * BYTES : 40 * MIB};
        visit.address = must_alloc(device, visit.bytes);
        must_launch(device, NULL, touch_both_ends, &visit);
        must_free(device, visit.address);
        ck_assert(all_are(visit.kept, BYTES, 0xdd));
        ck_assert(all_are(visit.kept + visit.bytes - BYTES, BYTES, 0xdd));
    }
    close_device(device);
}
END_TEST

START_TEST(a_lost_device_calls_no_function_any_more)
{
    unsigned char byte = 0;
    struct spw__device *device = open_seed((uint64_t)_i);
    spw__stream stream = must_stream(device);
    struct gate gate = {.passed = 0};
    ck_assert_int_eq(sem_init(&gate.open, 0, 0), 0);
    const uint64_t address = must_alloc(device, BYTES);
    must_launch(device, stream, pass, &gate);
    must_launch(device, stream, pass, &gate);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, ENOTRECOVERABLE);
    ck_assert_int_eq(spw__device_copy_to(device, stream, address, &byte, 1), SPW_EDEVICE);
    open_gate(&gate);
    ck_assert_int_eq(spw__device_stream_destroy(device, stream), SPW_EDEVICE);
    ck_assert_int_le(atomic_load(&gate.passed), 1); /* the one that was under way, if it was */
    ck_assert_int_eq(spw__device_free(device, address), SPW_EDEVICE);
    close_device(device);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_launch");
    TCase *tcase = tcase_create("launch");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, functions_and_copies_run_in_stream_order, 0, SEEDS);
    tcase_add_loop_test(tcase, the_default_stream_runs_functions_and_events_cover_them, 0, SEEDS);
    tcase_add_loop_test(tcase, addresses_translate_inside_a_function_of_their_device_only, 0, 2);
    tcase_add_loop_test(tcase, a_function_may_not_call_the_driver, 0, 2);
    tcase_add_loop_test(tcase, memory_is_freed_after_the_functions_that_may_use_it, 0, SEEDS);
    tcase_add_loop_test(tcase, freed_memory_that_was_touched_is_poisoned, 0, 2);
    tcase_add_loop_test(tcase, a_lost_device_calls_no_function_any_more, 0, SEEDS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
