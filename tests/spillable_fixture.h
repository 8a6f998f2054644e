/* What the tests of marked buffers share: buffers that their producer lets go, and requests that push them out. */
#ifndef SPW_TESTS_SPILLABLE_FIXTURE_H
#define SPW_TESTS_SPILLABLE_FIXTURE_H

#include "tests/manager_fixture.h"

static inline void mark(spw_buffer *buffer, bool spillable)
{
    const int rc = spw_buffer_set_spillable(buffer, spillable);
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
}

static inline spw_buffer *make_unsealed(spw_place place, size_t bytes, unsigned seed)
{
    spw_buffer *buffer = must_alloc(place, bytes);
    write_content(buffer, seed);
    return buffer;
}

static inline spw_buffer *make_marked(spw_place place, size_t bytes, unsigned seed)
{
    spw_buffer *buffer = make_unsealed(place, bytes, seed);
    mark(buffer, true);
    return buffer;
}

static inline spw_view must_map(spw_buffer *buffer, spw_place place, uint32_t flags)
{
    spw_view view;
    const int rc = spw_map(buffer, place, flags, NULL, &view);
    ck_assert_msg(rc == SPW_OK, "map: %s", spw_error_detail()->message);
    return view;
}

static inline void must_unmap(spw_buffer *buffer, spw_view *view)
{
    ck_assert_int_eq(spw_unmap(buffer, view, NULL), SPW_OK);
}

/* Asks for all of the host memory, without waiting for what goes: it may be gone at once all the same. */
static inline void ask_for_all(void)
{
    spw_buffer *all;
    const int rc = alloc_within(SPW_HOST, MIB, 0, &all);
    if (rc == SPW_OK)
        must_release(all);
    else
        ck_assert_int_eq(rc, SPW_ENOMEM);
}

static inline void drain(void)
{
    while (spw__mover_busy(manager->mover))
        ck_assert_int_ge(spw_progress(manager, 1000), 0);
}

static inline uint64_t on_disk(void)
{
    return committed(SPW_TIER_DISK);
}

static inline uint64_t written(void)
{
    return (tier_now(SPW_TIER_DISK), stats.disk_written_bytes);
}

#endif
