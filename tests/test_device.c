/* The device layer on the simulated driver: copies, order, capacity, errors, and that everything comes back.
 *
 * Each test runs in a process of its own (Check forks), so fault points stay where they were armed. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/device/device.h"
#include "pool/device/driver.h"
#include "tests/driver_fixture.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static struct spw__meta meta;

static void quiet(void *arg, int level, const char *message)
{
    (void)arg;
    (void)level;
    (void)message;
}

static const struct spw__log no_log = {.fn = quiet};

static int open_kind(spw_driver_kind kind, uint64_t capacity, struct spw__device **out)
{
    const struct spw__device_config config = {.kind = kind, .capacity_bytes = capacity, .log = &no_log, .meta = &meta};
    return spw__device_open(&config, out);
}

/* capacity is the simulated device's. */
static struct spw__device *open_device(uint64_t capacity)
{
    struct spw__device *device = NULL;
    ck_assert_int_eq(open_kind(driver_kind(), capacity, &device), 0);
    ck_assert(spw__device_is_simulated(device) == (driver_kind() == SPW_DRIVER_SIM));
    return device;
}

static void setup(void)
{
    spw__meta_init(&meta, MIB);
}

/* Closes the last device: no metadata is left. */
static void close_all(struct spw__device *device)
{
    spw__device_close(device);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}

static uint64_t must_alloc(struct spw__device *device, uint64_t bytes)
{
    uint64_t address = 0;
    ck_assert_int_eq(spw__device_alloc(device, bytes, &address), 0);
    ck_assert_uint_ne(address, 0);
    return address;
}

static spw__stream must_stream(struct spw__device *device)
{
    spw__stream stream = NULL;
    ck_assert_int_eq(spw__device_stream_create(device, &stream), 0);
    ck_assert_ptr_nonnull(stream);
    return stream;
}

static struct spw__event *must_record(struct spw__device *device, spw__stream stream)
{
    struct spw__event *event = NULL;
    ck_assert_int_eq(spw__device_event_record(device, stream, &event), 0);
    ck_assert_ptr_nonnull(event);
    return event;
}

static unsigned char *must_bytes(uint64_t bytes, unsigned seed)
{
    unsigned char *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 31 + (i >> 12) + seed);
    return data;
}

static void fails_with(int got, int code, const char *name)
{
    ck_assert_int_eq(got, code);
    ck_assert_int_eq(spw_error_detail()->code, code);
    ck_assert_msg(strstr(spw_error_detail()->message, name) != NULL, "\"%s\" does not name %s",
                  spw_error_detail()->message, name);
}

static void copies_go_there_and_back(spw__stream (*stream_of)(struct spw__device *))
{
    const uint64_t bytes = 3 * MIB + 77;
    struct spw__device *device = open_device(16 * MIB);
    spw__stream stream = stream_of ? stream_of(device) : NULL;
    unsigned char *in = must_bytes(bytes, 1), *out = must_bytes(bytes, 2);
    const uint64_t first = must_alloc(device, bytes), second = must_alloc(device, bytes);

    ck_assert_int_eq(spw__device_copy_to(device, stream, first, in, bytes), 0);
    ck_assert_int_eq(spw__device_copy_within(device, stream, second, first, bytes), 0);
    ck_assert_int_eq(spw__device_copy_from(device, stream, out, second, 1000), 0);
    ck_assert_int_eq(spw__device_copy_from(device, stream, out + 1000, second + 1000, bytes - 1000), 0);
    ck_assert_int_eq(spw__device_copy_from(device, stream, out, second, 0), 0);
    ck_assert_int_eq(spw__device_synchronize(device, stream), 0);
    ck_assert_mem_eq(in, out, bytes);
    ck_assert_int_eq(((unsigned char *)driver_bytes(second + bytes - 1))[0], in[bytes - 1]);

    ck_assert_int_eq(spw__device_free(device, first), 0);
    ck_assert_int_eq(spw__device_free(device, second), 0);
    if (stream)
        ck_assert_int_eq(spw__device_stream_destroy(device, stream), 0);
    close_all(device);
    free(in);
    free(out);
}

START_TEST(bytes_round_trip_on_a_stream)
{
    copies_go_there_and_back(must_stream);
}
END_TEST

START_TEST(bytes_round_trip_on_the_default_stream)
{
    copies_go_there_and_back(NULL);
}
END_TEST

START_TEST(cpu_touch_of_a_device_address_dies)
{
    struct spw__device *device = open_device(4 * MIB);
    const uint64_t address = must_alloc(device, 4 * MIB);
    (void)signal(SIGSEGV, SIG_DFL); /* whatever handler a sanitizer has put there */
    *(volatile char *)(uintptr_t)(address + 4096) = 1;
}
END_TEST

/* The waiting stream has next to nothing to do, the other one much: without the wait it would be first. */
START_TEST(a_stream_waits_for_an_event_of_another)
{
    const uint64_t bytes = 8 * MIB;
    struct spw__device *device = open_device(bytes);
    spw__stream slow = must_stream(device), fast = must_stream(device);
    unsigned char *in = must_bytes(bytes, 3), out[64];
    const uint64_t address = must_alloc(device, bytes);
    for (int round = 0; round < 8; round++) {
        in[bytes - 1] = (unsigned char)round;
        ck_assert_int_eq(spw__device_copy_to(device, slow, address, in, bytes), 0);
        struct spw__event *written = must_record(device, slow);
        ck_assert_int_eq(spw__device_event_order(device, fast, written), 0);
        ck_assert_int_eq(spw__device_copy_from(device, fast, out, address + bytes - sizeof out, sizeof out), 0);
        struct spw__event *done = must_record(device, fast);
        int rc;
        while ((rc = spw__device_event_query(device, done)) == SPW_EAGAIN) {
        }
        ck_assert_int_eq(rc, 0);
        ck_assert_int_eq(spw__device_event_query(device, written), 0);
        ck_assert_mem_eq(out, in + bytes - sizeof out, sizeof out);
        spw__device_event_put(device, written);
        spw__device_event_put(device, done);
    }
    ck_assert_int_eq(spw__device_stream_destroy(device, fast), 0);
    ck_assert_int_eq(spw__device_stream_destroy(device, slow), 0);
    ck_assert_int_eq(spw__device_free(device, address), 0);
    close_all(device);
    free(in);
}
END_TEST

/* An event that is put and recorded again while it is pending: who waits for the first record still does. */
START_TEST(events_are_pooled_and_recording_again_frees_no_waiter_early)
{
    const uint64_t bytes = 16 * MIB;
    struct spw__device *device = open_device(bytes);
    spw__stream slow = must_stream(device), fast = must_stream(device), idle = must_stream(device);
    unsigned char *in = must_bytes(bytes, 4), last = 0;
    const uint64_t address = must_alloc(device, bytes);

    ck_assert_int_eq(spw__device_copy_to(device, slow, address, in, bytes), 0);
    struct spw__event *first = must_record(device, slow);
    ck_assert_int_eq(spw__device_event_order(device, fast, first), 0);
    spw__device_event_put(device, first);
    const uint64_t committed = atomic_load(&meta.gate.committed);
    struct spw__event *again = must_record(device, idle);
    ck_assert_ptr_eq(again, first);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), committed);
    ck_assert_int_eq(spw__device_synchronize(device, idle), 0);
    ck_assert_int_eq(spw__device_event_query(device, again), 0);
    ck_assert_int_eq(spw__device_copy_from(device, fast, &last, address + bytes - 1, 1), 0);
    ck_assert_int_eq(spw__device_synchronize(device, fast), 0);
    ck_assert_int_eq(last, in[bytes - 1]);

    struct spw__event *other = must_record(device, idle);
    ck_assert_ptr_ne(other, again);
    spw__device_event_put(device, other);
    spw__device_event_put(device, again);
    spw__device_event_put(device, NULL);
    ck_assert_int_eq(spw__device_stream_destroy(device, idle), 0);
    ck_assert_int_eq(spw__device_stream_destroy(device, fast), 0);
    ck_assert_int_eq(spw__device_stream_destroy(device, slow), 0);
    ck_assert_int_eq(spw__device_free(device, address), 0);
    close_all(device);
    free(in);
}
END_TEST

START_TEST(capacity_is_exact_and_a_failure_says_what_is_free)
{
    struct spw__device *device = open_device(5 * MIB + 320 * KIB);
    const uint64_t a = must_alloc(device, 3 * MIB), b = must_alloc(device, 320 * KIB), c = must_alloc(device, MIB);
    uint64_t more = 0;
    fails_with(spw__device_alloc(device, MIB + 1, &more), SPW_ENOMEM, "device=");
    ck_assert_uint_eq(spw_error_detail()->place, SPW_DEVICE);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, MIB + 1);
    ck_assert_uint_eq(spw_error_detail()->free_bytes, MIB);
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, 5 * MIB + 320 * KIB);
    fails_with(spw__device_alloc(device, UINT64_MAX, &more), SPW_ENOMEM, "device=");
    ck_assert_uint_eq(more, 0);
    const uint64_t d = must_alloc(device, MIB);
    ck_assert_int_eq(spw__device_free(device, a), 0);
    const uint64_t e = must_alloc(device, 3 * MIB);
    ck_assert_uint_eq(a % (2 * MIB), 0);
    ck_assert_uint_eq(e % (2 * MIB), 0);
    ck_assert_uint_eq(b % 256, 0);
    ck_assert_int_eq(spw__device_free(device, b), 0);
    ck_assert_int_eq(spw__device_free(device, c), 0);
    ck_assert_int_eq(spw__device_free(device, d), 0);
    ck_assert_int_eq(spw__device_free(device, e), 0);
    close_all(device);
}
END_TEST

START_TEST(fresh_memory_is_poisoned_and_freed_memory_is_gone)
{
    struct spw__device *device = open_device(4 * MIB);
    for (int round = 0; round < 2; round++) {
        const uint64_t address = must_alloc(device, 3 * MIB);
        unsigned char *host = driver_bytes(address);
        ck_assert_ptr_nonnull(host);
        ck_assert_ptr_ne(host, (void *)(uintptr_t)address);
        for (uint64_t i = 0; i < 3 * MIB; i += 4095)
            ck_assert_int_eq(host[i], 0xa5);
        host[0] = host[3 * MIB - 1] = 1;
        ck_assert_int_eq(spw__device_free(device, address), 0);
        ck_assert_ptr_null(driver_bytes(address));
    }
    close_all(device);
}
END_TEST

START_TEST(memory_is_freed_after_the_copies_that_use_it)
{
    const uint64_t bytes = 8 * MIB;
    struct spw__device *device = open_device(2 * bytes);
    spw__stream stream = must_stream(device);
    unsigned char *in = must_bytes(bytes, 5), *out = must_bytes(bytes, 6);
    const uint64_t address = must_alloc(device, bytes), busy = must_alloc(device, bytes);
    ck_assert_int_eq(spw__device_copy_to(device, stream, address, in, bytes), 0);
    ck_assert_int_eq(spw__device_synchronize(device, stream), 0);
    ck_assert_int_eq(spw__device_copy_to(device, stream, busy, in, bytes), 0); /* holds the next one back */
    ck_assert_int_eq(spw__device_copy_from(device, stream, out, address, bytes), 0);
    ck_assert_int_eq(spw__device_free(device, address), 0);
    ck_assert_int_eq(spw__device_synchronize(device, stream), 0);
    ck_assert_mem_eq(in, out, bytes);
    ck_assert_int_eq(spw__device_free(device, busy), 0);
    ck_assert_int_eq(spw__device_stream_destroy(device, stream), 0);
    close_all(device);
    free(in);
    free(out);
}
END_TEST

START_TEST(wrong_addresses_and_handles_are_refused)
{
    struct spw__device *device = open_device(8 * MIB);
    spw__stream stream = must_stream(device), gone = must_stream(device);
    const uint64_t a = must_alloc(device, MIB), b = must_alloc(device, MIB);
    unsigned char host[256] = {0};
    const char *const invalid = "CUDA_ERROR_INVALID_VALUE";

    fails_with(spw__device_copy_to(device, stream, a + MIB - 128, host, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_copy_to(device, stream, a - 1, host, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_copy_from(device, stream, host, (uintptr_t)host, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_copy_from(device, stream, (void *)(uintptr_t)a, b, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_copy_to(device, stream, a, (void *)(uintptr_t)b, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_copy_within(device, stream, a, a + 128, 256), SPW_EDEVICE, invalid);
    fails_with(spw__device_alloc(device, 0, &(uint64_t){0}), SPW_EDEVICE, invalid);

    ck_assert_int_eq(spw__device_stream_destroy(device, gone), 0);
    fails_with(spw__device_copy_to(device, gone, a, host, 256), SPW_EDEVICE,
               "CUDA_ERROR_INVALID_HANDLE (400); the stream is not live, or not one of this device");
    ck_assert_int_eq(spw__device_free(device, b), 0);
    fails_with(spw__device_copy_to(device, stream, b, host, 256), SPW_EDEVICE, invalid);
    /* None of these is sticky. */
    ck_assert_int_eq(spw__device_copy_to(device, stream, a, host, 256), 0);
    ck_assert_int_eq(spw__device_stream_destroy(device, stream), 0);
    ck_assert_int_eq(spw__device_free(device, a), 0);
    close_all(device);
}
END_TEST

START_TEST(two_devices_live_side_by_side)
{
    struct spw__device *one = open_device(4 * MIB), *two = open_device(4 * MIB);
    const uint64_t a = must_alloc(one, 4 * MIB), b = must_alloc(two, 4 * MIB);
    unsigned char *in = must_bytes(MIB, 7), *out = must_bytes(MIB, 8);
    ck_assert_uint_ne(a, b);
    ck_assert_int_eq(spw__device_copy_to(one, NULL, a, in, MIB), 0);
    ck_assert_int_eq(spw__device_copy_to(two, NULL, b, out, MIB), 0);
    ck_assert_int_eq(spw__device_synchronize(one, NULL), 0);
    ck_assert_int_eq(spw__device_synchronize(two, NULL), 0);
    fails_with(spw__device_copy_from(one, NULL, out, b, 256), SPW_EDEVICE, "CUDA_ERROR_INVALID_VALUE");
    ck_assert_mem_eq(driver_bytes(a), in, MIB);
    ck_assert_mem_eq(driver_bytes(b), out, MIB);
    ck_assert_int_eq(spw__device_free(one, a), 0);
    spw__device_close(one);
    ck_assert_int_eq(spw__device_copy_from(two, NULL, in, b, MIB), 0);
    ck_assert_int_eq(spw__device_synchronize(two, NULL), 0);
    ck_assert_mem_eq(in, out, MIB);
    ck_assert_int_eq(spw__device_free(two, b), 0);
    close_all(two);
    free(in);
    free(out);
}
END_TEST

START_TEST(the_callers_current_context_stays_as_it_was)
{
    const struct spw__driver *driver = NULL;
    spw__cu_device engine = -1;
    spw__cu_context context = NULL, current = NULL;
    ck_assert_int_eq(spw__driver_sim_add(&(struct spw__sim_config){.capacity_bytes = MIB}, &driver, &engine), 0);
    ck_assert_uint_eq(driver->primary_ctx_retain(&context, engine), SPW__CU_SUCCESS);
    ck_assert_uint_eq(driver->ctx_push_current(context), SPW__CU_SUCCESS);

    struct spw__device *device = open_device(MIB);
    const uint64_t address = must_alloc(device, MIB);
    fails_with(spw__device_alloc(device, MIB, &(uint64_t){0}), SPW_ENOMEM, "0 of 1048576 free");
    ck_assert_uint_eq(driver->ctx_get_current(&current), SPW__CU_SUCCESS);
    ck_assert_ptr_eq(current, context);
    ck_assert_int_eq(spw__device_free(device, address), 0);
    close_all(device);

    ck_assert_uint_eq(driver->ctx_pop_current(&current), SPW__CU_SUCCESS);
    ck_assert_ptr_eq(current, context);
    ck_assert_uint_eq(driver->ctx_pop_current(&current), SPW__CU_ERROR_INVALID_CONTEXT);
    ck_assert_uint_eq(driver->mem_alloc(&(spw__cu_deviceptr){0}, 256), SPW__CU_ERROR_INVALID_CONTEXT);
    ck_assert_uint_eq(driver->primary_ctx_release(engine), SPW__CU_SUCCESS);
    ck_assert_uint_eq(driver->primary_ctx_release(engine), SPW__CU_ERROR_INVALID_CONTEXT);
    spw__driver_sim_remove(engine);
    ck_assert_uint_eq(driver->device_get(&engine, engine), SPW__CU_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(host_memory_is_registered_once)
{
    struct spw__device *device = open_device(MIB);
    unsigned char *slab = must_bytes(2 * MIB, 9);
    ck_assert_int_eq(spw__device_host_register(device, slab, MIB), 0);
    ck_assert_int_eq(spw__device_host_register(device, slab + MIB, MIB), 0);
    fails_with(spw__device_host_register(device, slab + MIB - 1, 1), SPW_EDEVICE,
               "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
    spw__device_host_unregister(device, slab);
    ck_assert_int_eq(spw__device_host_register(device, slab, MIB), 0);
    spw__device_host_unregister(device, slab + MIB);
    spw__device_host_unregister(device, slab);
    close_all(device);
    free(slab);
}
END_TEST

struct worker {
    struct spw__device *device;
    unsigned seed;
};

static void *copy_rounds(void *arg)
{
    const struct worker *worker = arg;
    const uint64_t bytes = 256 * KIB;
    spw__stream stream = must_stream(worker->device);
    unsigned char *in = must_bytes(bytes, worker->seed), *out = must_bytes(bytes, worker->seed + 1);
    for (unsigned round = 0; round < 20; round++) {
        const uint64_t address = must_alloc(worker->device, bytes);
        in[round] = (unsigned char)(worker->seed + round);
        ck_assert_int_eq(spw__device_copy_to(worker->device, stream, address, in, bytes), 0);
        ck_assert_int_eq(spw__device_copy_from(worker->device, stream, out, address, bytes), 0);
        struct spw__event *event = must_record(worker->device, stream);
        int rc;
        while ((rc = spw__device_event_query(worker->device, event)) == SPW_EAGAIN) {
        }
        ck_assert_int_eq(rc, 0);
        spw__device_event_put(worker->device, event);
        ck_assert_mem_eq(in, out, bytes);
        ck_assert_int_eq(spw__device_free(worker->device, address), 0);
    }
    ck_assert_int_eq(spw__device_stream_destroy(worker->device, stream), 0);
    free(in);
    free(out);
    return NULL;
}

START_TEST(threads_share_a_device)
{
    struct spw__device *device = open_device(4 * MIB);
    struct worker workers[3];
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        workers[i] = (struct worker){device, i * 50};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_rounds, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    close_all(device);
}
END_TEST

START_TEST(open_fails_cleanly)
{
    struct spw__device *device = NULL;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    fails_with(open_kind(SPW_DRIVER_SIM, MIB, &device), SPW_ENOMETA, "metadata");
    spw__fault_arm(SPW__FAULT_DEVICE_OPEN, 1, 1, EIO);
    fails_with(open_kind(SPW_DRIVER_SIM, MIB, &device), SPW_EDEVICE, "CUDA_ERROR_OPERATING_SYSTEM");
    spw__fault_arm(SPW__FAULT_DEVICE_OPEN, 1, 1, ENOMEM);
    fails_with(open_kind(SPW_DRIVER_SIM, MIB, &device), SPW_ENOMEM, "context");
    spw__fault_arm(SPW__FAULT_DEVICE_OPEN, 1, 1, ENOTRECOVERABLE);
    fails_with(open_kind(SPW_DRIVER_SIM, MIB, &device), SPW_EDEVICE, "CUDA_ERROR_ECC_UNCORRECTABLE");
    fails_with(open_kind(SPW_DRIVER_SIM, 0, &device), SPW_EINVAL, "capacity");
    fails_with(open_kind(SPW_DRIVER_SIM, UINT64_MAX, &device), SPW_ENOMEM, "address space");
    ck_assert_ptr_null(device);
    close_all(NULL);
}
END_TEST

START_TEST(a_process_has_at_most_64_simulated_devices)
{
    struct spw__device *devices[64], *more = NULL;
    for (unsigned i = 0; i < 64; i++)
        devices[i] = open_device(MIB);
    fails_with(open_kind(SPW_DRIVER_SIM, MIB, &more), SPW_ENOMEM, "64 simulated devices");
    for (unsigned i = 1; i < 64; i++)
        spw__device_close(devices[i]);
    close_all(devices[0]);
}
END_TEST

/* One failed call each; the next one succeeds and nothing is lost. */
START_TEST(a_failed_call_leaves_the_device_usable)
{
    struct spw__device *device = open_device(4 * MIB);
    const char *const name = "CUDA_ERROR_OPERATING_SYSTEM";
    unsigned char host[256] = {0};
    uint64_t a = 0;
    spw__stream stream = NULL;
    struct spw__event *event = NULL;

    spw__fault_arm(SPW__FAULT_DEVICE_ALLOC, 1, 1, ENOMEM);
    fails_with(spw__device_alloc(device, MIB, &a), SPW_ENOMEM, "4194304 of 4194304 free");
    spw__fault_arm(SPW__FAULT_DEVICE_ALLOC, 1, 1, EIO);
    fails_with(spw__device_alloc(device, MIB, &a), SPW_EDEVICE, name);
    a = must_alloc(device, MIB);
    spw__fault_arm(SPW__FAULT_THREAD, 1, 2, EAGAIN);
    fails_with(spw__device_stream_create(device, &stream), SPW_EDEVICE, "cuStreamCreate");
    fails_with(spw__device_copy_to(device, NULL, a, host, 256), SPW_EDEVICE, name);
    stream = must_stream(device);
    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 3, EIO);
    fails_with(spw__device_copy_to(device, stream, a, host, 256), SPW_EDEVICE, "cuMemcpyHtoDAsync");
    fails_with(spw__device_copy_from(device, stream, host, a, 256), SPW_EDEVICE, "cuMemcpyDtoHAsync");
    fails_with(spw__device_copy_within(device, stream, a, a + 512, 256), SPW_EDEVICE, "cuMemcpyDtoDAsync");
    ck_assert_int_eq(spw__device_copy_to(device, stream, a, host, 256), 0);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    fails_with(spw__device_event_record(device, stream, &event), SPW_ENOMETA, "metadata");
    event = must_record(device, stream);
    spw__fault_arm(SPW__FAULT_DEVICE_EVENT, 1, 1, EIO);
    fails_with(spw__device_event_query(device, event), SPW_EDEVICE, "cuEventQuery");
    ck_assert_int_eq(spw__device_synchronize(device, stream), 0);
    ck_assert_int_eq(spw__device_event_query(device, event), 0);

    spw__device_event_put(device, event);
    ck_assert_int_eq(spw__device_stream_destroy(device, stream), 0);
    ck_assert_int_eq(spw__device_free(device, a), 0);
    close_all(device);
}
END_TEST

START_TEST(a_sticky_error_is_every_later_calls_error)
{
    struct spw__device *device = open_device(4 * MIB), *healthy = open_device(MIB);
    const char *const name = "CUDA_ERROR_ECC_UNCORRECTABLE";
    unsigned char host[256] = {0};
    const uint64_t a = must_alloc(device, MIB);
    spw__stream stream = must_stream(device);
    struct spw__event *event = must_record(device, stream), *other = NULL;
    ck_assert_int_eq(spw__device_host_register(device, host, sizeof host), 0);

    spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 1, ENOTRECOVERABLE);
    fails_with(spw__device_copy_to(device, stream, a, host, 256), SPW_EDEVICE, name);
    fails_with(spw__device_copy_to(device, stream, a, host, 256), SPW_EDEVICE, name);
    fails_with(spw__device_copy_from(device, stream, host, a, 256), SPW_EDEVICE, name);
    fails_with(spw__device_copy_within(device, stream, a, a + 512, 256), SPW_EDEVICE, name);
    fails_with(spw__device_alloc(device, MIB, &(uint64_t){0}), SPW_EDEVICE, name);
    fails_with(spw__device_stream_create(device, &(spw__stream){NULL}), SPW_EDEVICE, name);
    fails_with(spw__device_synchronize(device, stream), SPW_EDEVICE, name);
    fails_with(spw__device_event_query(device, event), SPW_EDEVICE, name);
    fails_with(spw__device_event_order(device, stream, event), SPW_EDEVICE, name);
    fails_with(spw__device_event_record(device, stream, &other), SPW_EDEVICE, "cuEventCreate");
    spw__device_event_put(device, event);
    fails_with(spw__device_event_record(device, stream, &other), SPW_EDEVICE, "cuEventRecord");
    fails_with(spw__device_host_register(device, host, 1), SPW_EDEVICE, name);
    spw__device_host_unregister(device, host);
    fails_with(spw__device_stream_destroy(device, stream), SPW_EDEVICE, name);
    fails_with(spw__device_free(device, a), SPW_EDEVICE, name);
    ck_assert_ptr_null(driver_bytes(a));
    spw__device_close(device);

    ck_assert_int_eq(spw__device_free(healthy, must_alloc(healthy, MIB)), 0);
    close_all(healthy);
}
END_TEST

/* A machine with a GPU answers instead; what it then does is the GPU suite's matter. */
static void is_not_supported_without_a_gpu(spw_driver_kind kind)
{
    struct spw__device *device = NULL;
    const int rc = open_kind(kind, MIB, &device);
    if (rc == 0) {
        ck_assert(!spw__device_is_simulated(device));
    } else {
        fails_with(rc, SPW_ENOTSUP, "driver=sim");
        ck_assert_ptr_null(device);
    }
    close_all(device);
}

START_TEST(driver_cuda_without_a_gpu_is_not_supported)
{
    is_not_supported_without_a_gpu(SPW_DRIVER_CUDA);
}
END_TEST

START_TEST(driver_auto_never_slips_simulation_in)
{
    is_not_supported_without_a_gpu(SPW_DRIVER_AUTO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *tcase = tcase_create("driver"); /* on whatever driver is under test */
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, bytes_round_trip_on_a_stream);
    tcase_add_test(tcase, bytes_round_trip_on_the_default_stream);
    tcase_add_test_raise_signal(tcase, cpu_touch_of_a_device_address_dies, SIGSEGV);
    tcase_add_test(tcase, a_stream_waits_for_an_event_of_another);
    tcase_add_test(tcase, events_are_pooled_and_recording_again_frees_no_waiter_early);
    tcase_add_test(tcase, fresh_memory_is_poisoned_and_freed_memory_is_gone);
    tcase_add_test(tcase, memory_is_freed_after_the_copies_that_use_it);
    tcase_add_test(tcase, wrong_addresses_and_handles_are_refused);
    tcase_add_test(tcase, host_memory_is_registered_once);
    tcase_add_test(tcase, threads_share_a_device);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("sim"); /* on devices of a capacity of their own, or that are made to fail */
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, capacity_is_exact_and_a_failure_says_what_is_free);
    tcase_add_test(tcase, two_devices_live_side_by_side);
    tcase_add_test(tcase, the_callers_current_context_stays_as_it_was);
    tcase_add_test(tcase, open_fails_cleanly);
    tcase_add_test(tcase, a_process_has_at_most_64_simulated_devices);
    tcase_add_test(tcase, a_failed_call_leaves_the_device_usable);
    tcase_add_test(tcase, a_sticky_error_is_every_later_calls_error);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("cuda");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, driver_cuda_without_a_gpu_is_not_supported);
    tcase_add_test(tcase, driver_auto_never_slips_simulation_in);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
