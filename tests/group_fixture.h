/* What the tests of groups share: groups with a share of host, buffers in them, and what they hold. */
#ifndef SPW_TESTS_GROUP_FIXTURE_H
#define SPW_TESTS_GROUP_FIXTURE_H

#include "tests/manager_fixture.h"

/* A piece of SMALL_HOST, which has room for eight. */
#define PIECE (128 * KIB)

static inline int create_group(const char *name, spw_group *parent, uint64_t min, uint64_t max, uint32_t weight,
                               int64_t timeout_ms, spw_group **out)
{
    spw_group_options options;
    spw_group_options_init(&options);
    options.name = name;
    options.parent = parent;
    options.shares[SPW_TIER_HOST] = (spw_group_share){.min_bytes = min, .max_bytes = max, .weight = weight};
    options.wait.timeout_ms = timeout_ms;
    return spw_group_create(manager, &options, out);
}

static inline spw_group *must_group(const char *name, spw_group *parent, uint64_t min, uint64_t max, uint32_t weight)
{
    spw_group *group = NULL;
    const int rc = create_group(name, parent, min, max, weight, SPW_TIMEOUT_DEFAULT, &group);
    ck_assert_msg(rc == SPW_OK, "group: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return group;
}

static inline void must_destroy(spw_group *group)
{
    const int rc = spw_group_destroy(group);
    ck_assert_msg(rc == SPW_OK, "destroy: %s: %s", spw_error_name(rc), spw_error_detail()->message);
}

static inline spw_group_usage usage_of(spw_group *group, spw_place place)
{
    spw_group_usage usage = SPW_GROUP_USAGE_INIT;
    ck_assert_int_eq(spw_group_usage_get(group, place, &usage), SPW_OK);
    return usage;
}

static inline uint64_t held(spw_group *group)
{
    return usage_of(group, SPW_HOST).committed_bytes;
}

static inline int alloc_in(spw_group *group, size_t bytes, int64_t timeout_ms, spw_buffer **out)
{
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.group = group;
    options.tag = "of a group";
    options.wait.timeout_ms = timeout_ms;
    return spw_alloc(manager, SPW_HOST, bytes, &options, out);
}

/* Sealed, with the content of seed. */
static inline spw_buffer *must_make_in(spw_group *group, size_t bytes, unsigned seed)
{
    spw_buffer *buffer = NULL;
    const int rc = alloc_in(group, bytes, SPW_TIMEOUT_DEFAULT, &buffer);
    ck_assert_msg(rc == SPW_OK, "alloc: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    write_content(buffer, seed);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    return buffer;
}

static inline void must_hold(spw_buffer *buffer, spw_view *view)
{
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, view), SPW_OK);
}

#endif
