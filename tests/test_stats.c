/* Statistics: a snapshot is exact, and both dumps say what it says. */
#include "tests/manager_fixture.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

/* What a dump wrote. */
struct text {
    char bytes[16384];
    size_t used;
    unsigned calls;
    unsigned refuse_at; /* the call that is refused, 0: none */
};

static int collect(void *arg, const char *bytes, size_t length)
{
    struct text *text = arg;
    if (++text->calls == text->refuse_at)
        return 7;
    ck_assert_uint_lt(text->used + length, sizeof text->bytes);
    memcpy(text->bytes + text->used, bytes, length);
    text->used += length;
    text->bytes[text->used] = 0;
    return 0;
}

START_TEST(a_fresh_manager_has_nothing_but_its_staging)
{
    open_manager("device=1M; pinned=2M; host=1M; disk=%s:3M; staging=64K; meta=4M; driver=sim; io=threads");
    (void)tier_now(SPW_TIER_HOST);
    const uint64_t budgets[] = {MIB, 2 * MIB, MIB, 3 * MIB, 4 * MIB};
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++) {
        const spw_tier_stats *at = &stats.tiers[tier];
        const uint64_t used = tier == SPW_TIER_PINNED_HOST ? STAGING : 0;
        ck_assert_uint_eq(at->budget_bytes, budgets[tier]);
        ck_assert_uint_eq(at->committed_bytes, used);
        ck_assert_uint_eq(at->peak_bytes, used);
        ck_assert_uint_eq(at->free_bytes, budgets[tier] - used);
        ck_assert_uint_eq(at->largest_free_bytes, tier == SPW_TIER_DISK ? 0 : budgets[tier] - used);
        ck_assert_uint_eq(at->admits + at->admit_bytes + at->fallback_allocs + at->fail_budget + at->fail_fragmented +
                              at->spill_bytes + at->drop_bytes, 0);
    }
    ck_assert_uint_eq(stats.tiers[SPW_TIER_META].budget_bytes, 4 * MIB);
    ck_assert_uint_gt(stats.tiers[SPW_TIER_META].committed_bytes, 0);
    ck_assert_uint_eq(stats.buffers + stats.waits + stats.disk_written_bytes + stats.disk_allocated_bytes, 0);
    ck_assert_uint_eq(stats.io_is_uring, 0);
    close_manager();
}
END_TEST

START_TEST(every_counter_of_a_short_history_is_exact)
{
    open_manager(SMALL_HOST);
    spw_buffer *one = NULL;
    const spw_tier_stats *host = &stats.tiers[SPW_TIER_HOST];
    const uint64_t allocs = tier_now(SPW_TIER_HOST)->allocs, alloc_bytes = host->alloc_bytes; /* the staging */
    ck_assert_int_eq(spw_admit(manager, 300 * KIB, NULL, &one), SPW_OK);
    spw_buffer *two = must_alloc(SPW_HOST, 100);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->allocs - allocs, 2);
    ck_assert_uint_eq(host->alloc_bytes - alloc_bytes, 300 * KIB + 128);
    ck_assert_uint_eq(host->admits, 1);
    ck_assert_uint_eq(host->admit_bytes, 300 * KIB);
    ck_assert_uint_eq(host->committed_bytes, STAGING + 300 * KIB + 128);
    ck_assert_uint_eq(stats.buffers, 2);

    write_content(one, 1);
    ck_assert_int_eq(spw_buffer_seal(one), SPW_OK);
    must_release(two);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 300 * KIB);
    ck_assert_uint_eq(host->peak_bytes, STAGING + MIB);
    ck_assert_uint_ge(host->fail_budget, 1);
    ck_assert_uint_eq(stats.waits, 1);
    ck_assert_uint_gt(stats.wait_ns, 0);
    ck_assert_uint_eq(stats.wait_timeouts, 0);
    ck_assert_uint_eq(stats.edges[SPW_TIER_HOST][SPW_TIER_DISK].copies, 3);
    ck_assert_uint_eq(stats.edges[SPW_TIER_HOST][SPW_TIER_DISK].bytes, 300 * KIB);
    ck_assert_uint_gt(stats.edges[SPW_TIER_HOST][SPW_TIER_DISK].ns, 0);
    ck_assert_uint_eq(stats.disk_written_bytes, 300 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].committed_bytes, 300 * KIB);
    ck_assert_uint_ge(stats.disk_allocated_bytes, 300 * KIB);

    check_at(one, SPW_HOST, 1);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->drop_bytes, 300 * KIB);
    ck_assert_uint_eq(host->spill_bytes, 300 * KIB);
    ck_assert_uint_eq(stats.disk_read_bytes, 300 * KIB);
    ck_assert_uint_eq(stats.edges[SPW_TIER_DISK][SPW_TIER_HOST].copies, 3);
    must_release(one);
    comes_to(SPW_TIER_DISK, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].peak_bytes, 300 * KIB);
    close_manager();
}
END_TEST

START_TEST(edges_leave_out_the_padding_that_the_disk_counts)
{
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 100 * KIB + 1, 1);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(edge_now(SPW_TIER_HOST, SPW_TIER_DISK)->bytes, 100 * KIB + 1);
    ck_assert_uint_eq(stats.disk_written_bytes, 104 * KIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DISK].committed_bytes, 104 * KIB);
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(a_snapshot_wants_its_size)
{
    spw_stats small = SPW_STATS_INIT;
    open_manager("host=1M");
    ck_assert_int_eq(spw_stats_snapshot(manager, &small), SPW_OK);
    ck_assert_uint_eq(small.struct_size, sizeof small);
    small.struct_size -= 8;
    ck_assert_int_eq(spw_stats_snapshot(manager, &small), SPW_EINVAL);
    small.struct_size = 0;
    ck_assert_int_eq(spw_stats_snapshot(manager, &small), SPW_EINVAL);
    ck_assert_int_eq(spw_stats_snapshot(manager, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_stats_snapshot(NULL, &small), SPW_EINVAL);
    ck_assert_int_eq(spw_stats_dump(NULL, SPW_STATS_JSON, collect, &small), SPW_EINVAL);
    close_manager();
}
END_TEST

START_TEST(a_dump_wants_a_writer_and_a_format_and_ends_when_refused)
{
    static struct text text;
    open_manager("host=1M");
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_TEXT, NULL, NULL), SPW_EINVAL);
    ck_assert_int_eq(spw_stats_dump(manager, (spw_stats_format)9, collect, &text), SPW_EINVAL);
    ck_assert_uint_eq(text.calls, 0);
    for (spw_stats_format format = SPW_STATS_TEXT; format <= SPW_STATS_JSON; format++)
        for (unsigned at = 1; at <= 3; at++) {
            text = (struct text){.refuse_at = at};
            ck_assert_int_eq(spw_stats_dump(manager, format, collect, &text), SPW_EIO);
            ck_assert_uint_eq(text.calls, at); /* not asked again */
        }
    close_manager();
}
END_TEST

START_TEST(the_text_dump_shows_what_exists_and_nothing_else)
{
    static struct text text;
    open_manager("pinned=1088K; host=1M; staging=64K; piece=128K; disk=%s:16M; io=threads");
    spw_buffer *buffer = must_make(SPW_PINNED_HOST, 512 * KIB, 1);
    push_out(SPW_PINNED_HOST, MIB);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_TEXT, collect, &text), SPW_OK);
    const char *const shown[] = {"\npinned_host ", "\nhost ",   "\ndisk ",  "\nmeta ",  "copy-pinned_host-to-host",
                                 "512.0 KiB",      "16.0 MiB", "64.0 MiB", "(threads", "buffers: 1\n"};
    for (unsigned i = 0; i < sizeof shown / sizeof shown[0]; i++)
        ck_assert_msg(strstr(text.bytes, shown[i]) != NULL, "no \"%s\" in:\n%s", shown[i], text.bytes);
    ck_assert_ptr_null(strstr(text.bytes, "device"));
    ck_assert_ptr_null(strstr(text.bytes, "copy-host-to-disk"));
    must_release(buffer);
    close_manager();
}
END_TEST

/* The number after "key": from the object called object on. */
static uint64_t number_in(const char *json, const char *object, const char *key)
{
    char name[64];
    (void)snprintf(name, sizeof name, "\"%s\":{", object);
    const char *at = *object ? strstr(json, name) : json;
    ck_assert_msg(at != NULL, "no %s in %s", object, json);
    (void)snprintf(name, sizeof name, "\"%s\":", key);
    at = strstr(at, name);
    ck_assert_msg(at != NULL, "no %s in %s", key, json);
    return strtoull(at + strlen(name), NULL, 10);
}

/* Braces, brackets and quotes in order, and no number but integers. */
static void check_json(const char *json)
{
    int depth = 0;
    bool quoted = false;
    for (const char *at = json; *at; at++) {
        if (quoted && at[0] == '\\' && at[1]) {
            at++;
            continue;
        }
        quoted ^= *at == '"';
        if (quoted || *at == '"')
            continue;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        ck_assert_int_ge(depth, 0);
        ck_assert_msg(strchr("{}[]:,0123456789nul\n", *at) != NULL, "'%c' in %s", *at, json);
        ck_assert_msg(!(at[0] == ',' && at[1] == '}') && !(at[0] == '}' && at[1] == '"'), "at %s", at);
    }
    ck_assert_int_eq(depth, 0);
    ck_assert(!quoted);
}

START_TEST(the_json_dump_has_the_snapshots_exact_integers)
{
    static struct text text;
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 300 * KIB + 1, 1);
    push_out(SPW_HOST, MIB);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_JSON, collect, &text), SPW_OK);
    (void)tier_now(SPW_TIER_HOST);
    check_json(text.bytes);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_COUNT; tier++) {
        const char *name = spw_tier_name(tier);
        const spw_tier_stats *at = &stats.tiers[tier];
        ck_assert_uint_eq(number_in(text.bytes, name, "budget_bytes"), at->budget_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "committed_bytes"), at->committed_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "peak_bytes"), at->peak_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "free_bytes"), at->free_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "largest_free_bytes"), at->largest_free_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "alloc_bytes"), at->alloc_bytes);
        ck_assert_uint_eq(number_in(text.bytes, name, "fail_budget"), at->fail_budget);
        ck_assert_uint_eq(number_in(text.bytes, name, "spill_bytes"), at->spill_bytes);
    }
    ck_assert_uint_eq(number_in(text.bytes, "copy-host-to-disk", "bytes"), 300 * KIB + 1);
    /* R1's key row is never left out. */
    ck_assert_uint_eq(number_in(text.bytes, "copy-device-to-pinned_host", "bytes"), 0);
    ck_assert_uint_eq(number_in(text.bytes, "", "disk_written_bytes"), stats.disk_written_bytes);
    ck_assert_uint_eq(number_in(text.bytes, "", "wait_ns"), stats.wait_ns);
    ck_assert_uint_eq(number_in(text.bytes, "", "buffers"), 1);
    ck_assert_int_eq(text.bytes[text.used - 1], '\n');
    must_release(buffer);
    close_manager();
}
END_TEST

START_TEST(both_dumps_list_the_groups)
{
    static struct text text, json;
    spw_group_options options;
    spw_group *tenant, *query;
    open_manager(SMALL_HOST);
    spw_group_options_init(&options);
    options.name = "a \"quoted\\\n name";
    options.shares[SPW_TIER_HOST] = (spw_group_share){.min_bytes = 256 * KIB, .max_bytes = 512 * KIB, .weight = 7};
    ck_assert_int_eq(spw_group_create(manager, &options, &tenant), SPW_OK);
    spw_group_options_init(&options);
    options.name = "query";
    options.parent = tenant;
    ck_assert_int_eq(spw_group_create(manager, &options, &query), SPW_OK);
    ck_assert_int_eq(spw_group_cancel(query), SPW_OK);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_JSON, collect, &json), SPW_OK);
    check_json(json.bytes);
    const char *groups = strstr(json.bytes, "\"groups\":[");
    ck_assert_ptr_nonnull(groups);
    const char *first = strstr(groups, "{\"name\":\"a \\\"quoted\\\\\\u000a name\",\"parent\":0,\"cancelled\":0,");
    const char *second = strstr(groups, "{\"name\":\"query\",\"parent\":1,\"cancelled\":1,");
    ck_assert_ptr_nonnull(first);
    ck_assert(second > first);
    ck_assert_uint_eq(number_in(first, "host", "min_bytes"), 256 * KIB);
    ck_assert_uint_eq(number_in(first, "host", "max_bytes"), 512 * KIB);
    ck_assert_uint_eq(number_in(first, "host", "weight"), 7);
    ck_assert_ptr_nonnull(strstr(second, "\"max_bytes\":null"));
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_TEXT, collect, &text), SPW_OK);
    ck_assert_ptr_nonnull(strstr(text.bytes, "256.0 KiB   512.0 KiB      7"));
    ck_assert_ptr_nonnull(strstr(text.bytes, "  cancelled\n"));
    ck_assert_int_eq(spw_group_destroy(query), SPW_OK);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_JSON, collect, &json), SPW_ENOMETA);
    ck_assert_int_eq(spw_group_destroy(tenant), SPW_OK);
    close_manager();
}
END_TEST

START_TEST(a_json_parser_takes_the_dump)
{
    static struct text text;
    if (system("command -v jq >/dev/null 2>&1") != 0)
        return; /* the test above has looked at the shape */
    open_manager("host=1M");
    ck_assert_int_eq(spw_stats_dump(manager, SPW_STATS_JSON, collect, &text), SPW_OK);
    FILE *jq = popen("jq -e '.tiers.host.budget_bytes == 1048576 and (.edges | has(\"copy-device-to-pinned_host\"))' "
                     ">/dev/null", "we");
    ck_assert_ptr_nonnull(jq);
    ck_assert_uint_eq(fwrite(text.bytes, 1, text.used, jq), text.used);
    ck_assert_int_eq(pclose(jq), 0);
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stats");
    TCase *tests = tcase_create("stats");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_fresh_manager_has_nothing_but_its_staging);
    tcase_add_test(tests, every_counter_of_a_short_history_is_exact);
    tcase_add_test(tests, edges_leave_out_the_padding_that_the_disk_counts);
    tcase_add_test(tests, a_snapshot_wants_its_size);
    tcase_add_test(tests, a_dump_wants_a_writer_and_a_format_and_ends_when_refused);
    tcase_add_test(tests, the_text_dump_shows_what_exists_and_nothing_else);
    tcase_add_test(tests, the_json_dump_has_the_snapshots_exact_integers);
    tcase_add_test(tests, both_dumps_list_the_groups);
    tcase_add_test(tests, a_json_parser_takes_the_dump);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
