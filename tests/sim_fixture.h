/* What the tests of the simulated device share: a device of a seed or a model, streams, bytes. */
#ifndef SPW_TESTS_SIM_FIXTURE_H
#define SPW_TESTS_SIM_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/device/device.h"
#include "pool/device/driver.h"
#include "tests/suite_fixture.h"

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

static void setup(void)
{
    ck_assert_int_eq(unsetenv("SPILLWAY_SIM_SEED"), 0); /* the tests name their seeds themselves */
    spw__meta_init(&meta, MIB);
}

static inline struct spw__device *open_with(struct spw__sim_model model, uint64_t seed, const struct spw__log *log)
{
    struct spw__device *device = NULL;
    const struct spw__device_config config = {
        .kind = SPW_DRIVER_SIM, .capacity_bytes = 64 * MIB, .model = model, .seed = seed, .log = log, .meta = &meta};
    ck_assert_int_eq(spw__device_open(&config, &device), 0);
    return device;
}

static inline struct spw__device *open_seed(uint64_t seed)
{
    return open_with((struct spw__sim_model){0}, seed, &no_log);
}

static inline void close_device(struct spw__device *device)
{
    spw__device_close(device);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}

static inline spw__stream must_stream(struct spw__device *device)
{
    spw__stream stream = NULL;
    ck_assert_int_eq(spw__device_stream_create(device, &stream), 0);
    return stream;
}

static inline void end_stream(struct spw__device *device, spw__stream stream)
{
    ck_assert_int_eq(spw__device_stream_destroy(device, stream), 0);
}

static inline uint64_t must_alloc(struct spw__device *device, uint64_t bytes)
{
    uint64_t address = 0;
    ck_assert_int_eq(spw__device_alloc(device, bytes, &address), 0);
    return address;
}

static inline void must_free(struct spw__device *device, uint64_t address)
{
    ck_assert_int_eq(spw__device_free(device, address), 0);
}

static inline struct spw__event *must_record(struct spw__device *device, spw__stream stream)
{
    struct spw__event *event = NULL;
    ck_assert_int_eq(spw__device_event_record(device, stream, &event), 0);
    return event;
}

/* Everything enqueued on to later waits for everything enqueued on from so far. */
static inline void order(struct spw__device *device, spw__stream from, spw__stream to)
{
    struct spw__event *event = must_record(device, from);
    ck_assert_int_eq(spw__device_event_order(device, to, event), 0);
    spw__device_event_put(device, event);
}

static inline void must_launch(struct spw__device *device, spw__stream stream, void (*fn)(void *arg), void *arg)
{
    ck_assert_int_eq(spw__device_launch(device, stream, fn, arg), 0);
}

static inline void must_sync(struct spw__device *device, spw__stream stream)
{
    ck_assert_int_eq(spw__device_synchronize(device, stream), 0);
}

/* Polls, without end if need be: the test's timeout says so then. */
static inline void poll_done(struct spw__device *device, struct spw__event *event)
{
    int rc;
    while ((rc = spw__device_event_query(device, event)) == SPW_EAGAIN) {
    }
    ck_assert_int_eq(rc, 0);
    spw__device_event_put(device, event);
}

static inline bool all_are(const unsigned char *bytes, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

#endif
