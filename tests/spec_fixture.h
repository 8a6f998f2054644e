/* Strings that are parsed, or refused at a byte. */
#ifndef SPW_TESTS_SPEC_FIXTURE_H
#define SPW_TESTS_SPEC_FIXTURE_H

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <spillway/error.h>
#include <spillway/spec.h>

#define EXAMPLE_2 "10737418240,2147483648:2097152"
#define EXAMPLE_3 "10737418240,2147483648:20971520,1073741824:2097152"

static inline spw_spec parsed(const char *string)
{
    spw_spec spec;
    const int rc = spw_spec_parse(string, &spec);
    ck_assert_msg(rc == SPW_OK, "\"%s\": %s", string, spw_error_detail()->message);
    ck_assert_uint_eq(spec.struct_size, sizeof spec);
    return spec;
}

/* string is refused at byte offset, with wanted in the message, and the result is untouched. */
static inline void refused(const char *string, size_t offset, const char *wanted)
{
    spw_spec spec, before;
    memset(&spec, 0x5a, sizeof spec);
    memcpy(&before, &spec, sizeof spec);
    const int rc = spw_spec_parse(string, &spec);
    const spw_error_info *detail = spw_error_detail();
    ck_assert_msg(rc == SPW_ESPEC, "\"%s\" gave %d", string, rc);
    ck_assert_int_eq(detail->code, SPW_ESPEC);
    ck_assert_msg(detail->offset_bytes == offset, "\"%s\": %s", string, detail->message);
    ck_assert_msg(strstr(detail->message, wanted) != NULL, "\"%s\": %s, not %s", string, detail->message, wanted);
    ck_assert_ptr_nonnull(strstr(detail->message, "expected"));
    char place[40];
    (void)snprintf(place, sizeof place, "byte %zu:", offset);
    ck_assert_ptr_nonnull(strstr(detail->message, place));
    ck_assert_mem_eq(&spec, &before, sizeof spec);
}

static inline void assert_pool(const spw_spec *spec, spw_tier tier, uint32_t i, uint64_t size, uint64_t limit)
{
    ck_assert_uint_lt(i, spec->n_pools[tier]);
    ck_assert_uint_eq(spec->pools[tier][i].size_bytes, size);
    ck_assert_uint_eq(spec->pools[tier][i].limit_bytes, limit);
}

/* pools: the expected order, as digits. */
static inline void assert_route(const spw_spec *spec, spw_tier tier, uint64_t bytes, const char *pools)
{
    uint32_t order[SPW_SPEC_POOLS_MAX];
    char text[SPW_SPEC_POOLS_MAX + 1];
    const size_t n = spw_spec_route(spec, tier, bytes, order);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('0' + order[i]);
    text[n] = '\0';
    ck_assert_str_eq(text, pools);
}

static inline void many_pools(char *string, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        string += sprintf(string, "%s1024", i ? "," : "");
}

#endif
