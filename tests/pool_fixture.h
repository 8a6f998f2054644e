/* What the tests of raw memory share: allocations that must succeed, and a thread that waits for one. */
#ifndef SPW_TESTS_POOL_FIXTURE_H
#define SPW_TESTS_POOL_FIXTURE_H

#include "manager_fixture.h"

/* 16 MiB of simulated device memory in one pool, and 8 MiB of host memory. */
#define DEVICE_SPEC "device=16M; driver=sim; host=8M"

static inline void setup(void)
{
    make_folder();
}

static inline void teardown(void)
{
    if (manager)
        close_manager();
    remove_folder();
}

static inline int alloc_in(spw_place place, size_t bytes, size_t align, spw_stream *stream, int64_t timeout_ms,
                           spw_block *out)
{
    spw_pool_options options;
    spw_pool_options_init(&options);
    options.wait.timeout_ms = timeout_ms;
    return spw_pool_alloc(manager, place, bytes, align, stream, &options, out);
}

static inline spw_block must_raw_on(spw_place place, size_t bytes, size_t align, spw_stream *stream)
{
    spw_block block;
    const int rc = spw_pool_alloc(manager, place, bytes, align, stream, NULL, &block);
    ck_assert_msg(rc == SPW_OK, "%s: %s", spw_error_name(rc), spw_error_detail()->message);
    ck_assert_ptr_nonnull(block.ptr);
    ck_assert_uint_eq(block.size, bytes);
    return block;
}

static inline spw_block must_raw(spw_place place, size_t bytes)
{
    return must_raw_on(place, bytes, 0, NULL);
}

static inline void must_free(spw_block block)
{
    ck_assert_int_eq(spw_pool_free(manager, &block, NULL), SPW_OK);
}

static inline bool says(const char *words)
{
    return strstr(spw_error_detail()->message, words) != NULL;
}

/* A thread that asks and waits without limit. */
struct asker {
    spw_place place;
    size_t bytes;
    spw_block block;
    int rc;
};

static inline void *ask(void *arg)
{
    struct asker *asker = arg;
    asker->rc = alloc_in(asker->place, asker->bytes, 0, NULL, SPW_TIMEOUT_INFINITE, &asker->block);
    return NULL;
}

static inline TCase *new_case(const char *name, Suite *suite)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return tcase;
}

#endif
