/* What the tests of managers share: one manager per test, content that can be checked, and the end that every test must
 * come to: no buffer, no byte committed but the staging, nothing on disk, an empty folder.
 *
 * Each test runs in a process of its own (Check forks), so fault points and the environment stay where they were set.
 */
#ifndef SPW_TESTS_MANAGER_FIXTURE_H
#define SPW_TESTS_MANAGER_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/fault.h"
#include "pool/device/driver.h"
#include "src/core/manager.h"
#include "tests/driver_fixture.h"
#include "tests/suite_fixture.h"

#include <spillway/spillway.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

/* 1 MiB of host memory for buffers beside 64 KiB of staging; a piece is 128 KiB. Takes the folder. */
#define SMALL_HOST "host=1088K; staging=64K; piece=128K; disk=%s:16M"
#define STAGING (64 * KIB)

static char folder[256]; /* fresh; takes "%s" in specs */
static spw_manager *manager;
static spw_task no_task __attribute__((unused)); /* no task of any manager */
static spw_stats stats; /* of the last snapshot */

/* Log lines may come from the mover's thread. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned lines;
    int level;
    char last[512];
} logged; /* guarded by log_lock */

static inline void keep_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)pthread_mutex_lock(&log_lock);
    logged.lines++;
    logged.level = level;
    (void)snprintf(logged.last, sizeof logged.last, "%s", line);
    (void)pthread_mutex_unlock(&log_lock);
}

static inline void make_folder(void)
{
    const char *root = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%.200s/spillway-test-XXXXXX", root ? root : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void remove_folder(void)
{
    ck_assert_msg(rmdir(folder) == 0, "%s is not empty: %s", folder, strerror(errno));
}

/* "driver=sim" in spec stands for the driver under test. */
static inline spw_manager *create_with(const struct spw__env *env, const char *spec)
{
    static spw_spec fields; /* large for a stack */
    spw_manager *made = NULL;
    spw_options options;
    spw_options_init(&options);
    options.spec = spec;
    options.log = keep_line;
    if (driver_kind() != SPW_DRIVER_SIM && strstr(spec, "driver=sim")) {
        spw_spec_init_empty(&fields);
        fields.driver = driver_kind();
        options.fields = &fields;
    }
    const int rc = spw__manager_create_env(&options, env, &made);
    ck_assert_msg(rc == SPW_OK, "\"%s\": %s: %s", spec, spw_error_name(rc), spw_error_detail()->message);
    return made;
}

/* Opens the test's manager; format takes the folder for each %s (at most two). */
static inline void open_env(const struct spw__env *env, const char *format)
{
    char spec[1024];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(spec, sizeof spec, format, folder, folder);
#pragma GCC diagnostic pop
    manager = create_with(env, spec);
}

static inline void open_manager(const char *format)
{
    open_env(NULL, format);
}

static inline const spw_tier_stats *tier_now(spw_tier tier)
{
    stats.struct_size = sizeof stats;
    ck_assert_int_eq(spw_stats_snapshot(manager, &stats), SPW_OK);
    return &stats.tiers[tier];
}

static inline uint64_t committed(spw_tier tier)
{
    return tier_now(tier)->committed_bytes;
}

/* The tier comes to hold just these bytes. A move's source is given back after its end was published, and a released
 * buffer lives until the move that carried it has returned: what others see may lag behind by that much. */
static inline void comes_to(spw_tier tier, uint64_t bytes)
{
    for (unsigned i = 0; i < 200000 && committed(tier) != bytes; i++) {
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
        (void)sched_yield();
    }
    ck_assert_uint_eq(stats.tiers[tier].committed_bytes, bytes);
}

static inline const spw_edge_stats *edge_now(spw_tier from, spw_tier to)
{
    (void)tier_now(from);
    return &stats.edges[from][to];
}

static inline uint64_t staging_in(const spw_manager *of, spw_tier tier)
{
    return spw__block_is(&of->staging_block) && of->staging_block.tier == tier ? of->staging_block.bytes : 0;
}

static inline bool is_quiet(void)
{
    (void)tier_now(SPW_TIER_HOST);
    bool quiet = stats.tiers[SPW_TIER_DISK].committed_bytes == 0;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        quiet = quiet && stats.tiers[tier].committed_bytes == staging_in(manager, tier);
    return quiet;
}

/* Lets moves in flight end: the released payloads that they hold are freed then. */
static inline void settle(void)
{
    for (unsigned i = 0; i < 200000 && !is_quiet(); i++) {
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
        (void)sched_yield();
    }
}

/* Invariant 9: with every buffer released all gates are at zero, and the manager and its files go. */
static inline void close_manager(void)
{
    settle();
    ck_assert_uint_eq(stats.buffers, 0);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        ck_assert_msg(stats.tiers[tier].committed_bytes == staging_in(manager, tier), "%s: %llu bytes are committed",
                      spw_tier_name(tier), (unsigned long long)stats.tiers[tier].committed_bytes);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].committed_bytes, 0);
    const int rc = spw_manager_destroy(manager);
    ck_assert_msg(rc == SPW_OK, "destroy: %s", spw_error_detail()->message);
    manager = NULL;
}

/* Byte i of the content named by seed. */
static inline unsigned char content_at(unsigned seed, uint64_t i)
{
    uint64_t x = (i >> 3) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 29;
    return (unsigned char)(x >> (8 * (i & 7)));
}

static inline void fill(void *data, uint64_t bytes, unsigned seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = content_at(seed, i);
}

static inline bool has_content(const void *data, uint64_t bytes, unsigned seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[i] != content_at(seed, i))
            return false;
    return true;
}

static inline void write_content(spw_buffer *buffer, unsigned seed)
{
    const size_t bytes = spw_buffer_size(buffer);
    void *data = malloc(bytes + 1);
    fill(data, bytes, seed);
    ck_assert_int_eq(spw_buffer_write(buffer, 0, data, bytes), SPW_OK);
    free(data);
}

/* The bytes of a view, where the CPU finds them: on a simulated device behind its addresses, on a real one in a copy
 * that is good until the next. */
static inline const void *bytes_of(const spw_view *view)
{
    static void *copy;
    const uint64_t address = (uint64_t)(uintptr_t)view->data;
    if (view->place != SPW_DEVICE)
        return view->data;
    if (!driver_is("gpu"))
        return driver_bytes(address);
    free(copy);
    copy = malloc(view->size);
    ck_assert_ptr_nonnull(copy);
    ck_assert_int_eq(spw__device_copy_from(manager->device, NULL, copy, address, view->size), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(manager->device, NULL), SPW_OK);
    return copy;
}

/* Maps the buffer at place and checks every byte. */
static inline void check_at(spw_buffer *buffer, spw_place place, unsigned seed)
{
    spw_view view;
    const int rc = spw_map(buffer, place, SPW_MAP_READ, NULL, &view);
    ck_assert_msg(rc == SPW_OK, "map: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_uint_eq(view.place, place);
    ck_assert_uint_eq(view.size, spw_buffer_size(buffer));
    ck_assert_msg(has_content(bytes_of(&view), view.size, seed), "buffer %u differs", seed);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
}

static inline spw_buffer *must_alloc(spw_place place, size_t bytes)
{
    spw_buffer *buffer = NULL;
    const int rc = spw_alloc(manager, place, bytes, NULL, &buffer);
    ck_assert_msg(rc == SPW_OK, "alloc: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return buffer;
}

/* A sealed buffer at place with the content of seed. */
static inline spw_buffer *must_make(spw_place place, size_t bytes, unsigned seed)
{
    spw_buffer *buffer = must_alloc(place, bytes);
    write_content(buffer, seed);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    return buffer;
}

/* Of somebody who waits for room in tier: its thread does nothing more by itself. */
static inline bool first_waiter_sleeps(spw_tier tier)
{
    spw__mutex_lock(&manager->waits.lock);
    const struct spw__waiter *waiter = manager->waits.trees[tier].first->owner;
    const bool sleeps = waiter->blocked;
    spw__mutex_unlock(&manager->waits.lock);
    return sleeps;
}

static inline int alloc_within(spw_place place, size_t bytes, int64_t timeout_ms, spw_buffer **out)
{
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = timeout_ms;
    return spw_alloc(manager, place, bytes, &options, out);
}

static inline void must_release(spw_buffer *buffer)
{
    ck_assert_int_eq(spw_buffer_release(buffer), SPW_OK);
}

/* Pushes every sealed buffer of place out of it, by asking for all of its memory. */
static inline void push_out(spw_place place, size_t bytes)
{
    spw_buffer *all = must_alloc(place, bytes);
    must_release(all);
}

static inline pthread_t must_start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, arg), 0);
    return thread;
}

/* A stream with so much work that what is enqueued next runs late; scratch is 16 MiB of device memory. */
static inline spw__stream busy_stream(const spw_view *scratch)
{
    spw__stream stream = NULL;
    const uint64_t at = (uint64_t)(uintptr_t)scratch->data;
    ck_assert_int_eq(spw__device_stream_create(manager->device, &stream), SPW_OK);
    for (unsigned i = 0; i < 20; i++)
        ck_assert_int_eq(spw__device_copy_within(manager->device, stream, at + 8 * MIB, at, 8 * MIB), SPW_OK);
    return stream;
}

static char dumped[32768] __attribute__((unused)); /* the last dump */

static inline int keep_text(void *arg, const char *bytes, size_t length)
{
    (void)arg;
    ck_assert_uint_lt(strlen(dumped) + length, sizeof dumped);
    (void)strncat(dumped, bytes, length);
    return 0;
}

static inline void dump_shows(spw_stats_format format, const char *text)
{
    dumped[0] = 0;
    ck_assert_int_eq(spw_stats_dump(manager, format, keep_text, NULL), SPW_OK);
    ck_assert_msg(strstr(dumped, text) != NULL, "\"%s\" is not in: %s", text, dumped);
}

#endif
