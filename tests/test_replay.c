/* Allocation logs and their replay: each form of a log, each way in which one can be wrong, what a replay counts. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/fault.h"
#include "pool/replay/plan.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"
#define OWN "time_ns,thread,action,place,block,bytes\n"

static char path[] = "/tmp/test_replay.XXXXXX";
static struct spw__alloc_log text_log;

static void setup(void)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    memset(&text_log, 0, sizeof text_log);
}

static void teardown(void)
{
    spw__alloc_log_finish(&text_log);
    ck_assert_int_eq(unlink(path), 0);
}

static int read_place(const char *text, const char *place)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    spw__alloc_log_finish(&text_log);
    return spw__alloc_log_read(path, place, &text_log);
}

static int read_text(const char *text)
{
    return read_place(text, NULL);
}

/* The log is refused with a message that holds `message`, and nothing of it is left. */
static void refused(const char *text, const char *message)
{
    ck_assert_int_eq(read_text(text), SPW_EINVAL);
    ck_assert_msg(strstr(spw_error_detail()->message, message), "\"%s\" is not in \"%s\"", message,
                  spw_error_detail()->message);
    ck_assert_ptr_null(text_log.ops);
    ck_assert_uint_eq(text_log.events, 0);
}

/* Blocks 0, 1, ... in the order of their allocation; ~block frees. */
static void ops_are(const int *ops, size_t n)
{
    ck_assert_uint_eq(text_log.n_ops, n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_uint_eq(spw__alloc_log_block(text_log.ops[i]), (uint32_t)(ops[i] < 0 ? ~ops[i] : ops[i]));
        ck_assert_int_eq(spw__alloc_log_frees(text_log.ops[i]), ops[i] < 0);
    }
}
#define OPS_ARE(...) ops_are((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* Forms */

START_TEST(rmm_csv_is_read_with_both_kinds_of_time_and_of_null_pointers)
{
    ck_assert_int_eq(read_text(RMM "1,12:34:56.789012,allocate,0x7f00,1000,0x0\n"
                                   "1,12:34:56:789012,allocate,(nil),0,(nil)\r\n"
                                   "2,1634567890.123456,allocate,8000,2000,0\n"
                                   "1,12:34:57.000000,allocate failure,0x0,4096,0x2\n"
                                   "1,12:34:57.000000,free,0x7f00,1000,0x0\n"
                                   "1,12:34:57.000000,free,0x0,0,0x0\n"),
                     SPW_OK);
    OPS_ARE(0, 1, ~0);
    ck_assert_uint_eq(text_log.sizes[0], 1000);
    ck_assert_uint_eq(text_log.sizes[1], 2000);
    ck_assert_uint_eq(text_log.peak_live_bytes, 3000);
    ck_assert_uint_eq(text_log.events, 6);
    ck_assert_uint_eq(text_log.logged_failures, 1);
    ck_assert_uint_eq(text_log.unknown_frees, 0);
}
END_TEST

START_TEST(rmm_csv_without_threads_is_read)
{
    ck_assert_int_eq(read_text("Time,Action,Pointer,Size,Stream\n"
                               "12:34:56:789012,allocate,0x10,64,0x0\n"
                               "12:34:56:789013,free,0x10,64,0x0"),
                     SPW_OK);
    OPS_ARE(0, ~0);
}
END_TEST

START_TEST(umpire_pairs_count_once)
{
    ck_assert_int_eq(
        read_text("# Umpire\n"
                  "{ \"kind\":\"replay\", \"event\": \"version\", \"payload\": { \"major\":0 } }\n"
                  "{ \"event\": \"move\", \"payload\": {\" \"ptr\": \"0x1\" } }\n"
                  "{ \"event\": \"allocate\", \"payload\": { \"allocator_ref\": \"0x1\", \"size\": 134 } }\n"
                  "{ \"event\": \"allocate\", \"payload\": { \"allocator_ref\": \"0x1\", \"size\": 134 }, "
                  "\"result\": { \"memory_ptr\": \"0x20\" } }\n"
                  "{ \"event\": \"reallocate\", \"payload\": { \"ptr\": \"0x20\", \"size\": 300 } }\n"
                  "{ \"event\": \"reallocate\", \"payload\": { \"ptr\": \"0x20\", \"size\": 300 }, "
                  "\"result\": { \"memory_ptr\": \"0x30\" } }\n"
                  "{ \"event\": \"deallocate\", \"payload\": { \"memory_ptr\": \"0x30\" } }\n"
                  "{ \"event\": \"deallocate\", \"payload\": { \"memory_ptr\": \"0x30\" }, \"result\": true }\n"),
        SPW_OK);
    OPS_ARE(0, ~0, 1, ~1);
    ck_assert_uint_eq(text_log.sizes[1], 300);
    ck_assert_uint_eq(text_log.events, 3);
    ck_assert_uint_eq(text_log.unknown_frees, 0);
}
END_TEST

START_TEST(umpire_reallocations_may_log_their_parts)
{
    ck_assert_int_eq(
        read_text("{\"event\":\"allocate\",\"payload\":{\"size\":10},\"result\":{\"memory_ptr\":\"0x20\"}}\n"
                  "{\"event\":\"allocate\",\"payload\":{\"size\":20},\"result\":{\"memory_ptr\":\"0x30\"}}\n"
                  "{\"event\":\"deallocate\",\"payload\":{\"memory_ptr\":\"0x20\"}}\n"
                  "{\"event\":\"reallocate\",\"payload\":{\"ptr\":\"0x20\",\"size\":20},"
                  "\"result\":{\"memory_ptr\":\"0x30\"}}\n"),
        SPW_OK);
    OPS_ARE(0, 1, ~0);
}
END_TEST

START_TEST(blocks_of_no_bytes_may_share_a_pointer)
{
    ck_assert_int_eq(
        read_text("{\"event\":\"allocate\",\"payload\":{\"size\":0},\"result\":{\"memory_ptr\":\"0x20\"}}\n"
                  "{\"event\":\"allocate\",\"payload\":{\"size\":20},\"result\":{\"memory_ptr\":\"0x20\"}}\n"
                  "{\"event\":\"deallocate\",\"payload\":{\"memory_ptr\":\"0x20\"}}\n"
                  "{\"event\":\"deallocate\",\"payload\":{\"memory_ptr\":\"0x20\"}}\n"),
        SPW_OK);
    OPS_ARE(0, ~0);
    ck_assert_uint_eq(text_log.unknown_frees, 0);
    ck_assert_uint_eq(text_log.lost_frees, 0);
}
END_TEST

START_TEST(own_csv_is_read_one_place_at_a_time)
{
    static const char text[] = OWN "0,1,alloc,device,1,1024\n"
                                   "5,1,alloc,host,1,2048\n"
                                   "6,1,fail,device,0,1000000\n"
                                   "9,1,free,device,1,1024\n"
                                   "9,1,alloc,device:1,7,64\n";
    ck_assert_int_eq(read_place(text, "device"), SPW_OK);
    OPS_ARE(0, ~0);
    ck_assert_str_eq(text_log.place, "device");
    ck_assert_uint_eq(text_log.logged_failures, 1);
    ck_assert_int_eq(read_place(text, "host"), SPW_OK);
    OPS_ARE(0);
    ck_assert_int_eq(read_place(text, "device:1"), SPW_OK);
    OPS_ARE(0);
    ck_assert_int_eq(read_place(text, "disk"), SPW_EINVAL);
    refused(text, "line 3: expected events of device only, found host: --place picks one of them");
}
END_TEST

START_TEST(a_log_that_begins_in_the_middle_is_counted_not_refused)
{
    ck_assert_int_eq(read_text(RMM "1,0:0:0.0,free,0x99,64,0x0\n"
                                   "1,0:0:0.0,allocate,0x10,64,0x0\n"
                                   "1,0:0:0.0,allocate,0x10,128,0x0\n"
                                   "1,0:0:0.0,free,0x10,128,0x0\n"
                                   "1,0:0:0.0,free,0x10,128,0x0\n"),
                     SPW_OK);
    OPS_ARE(0, ~0, 1, ~1);
    ck_assert_uint_eq(text_log.unknown_frees, 2);
    ck_assert_uint_eq(text_log.lost_frees, 1);
    ck_assert_uint_eq(text_log.peak_live_bytes, 128);
}
END_TEST

START_TEST(many_pointers_are_found_again)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(RMM, file), 0);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 1; i <= 3000; i++)
            ck_assert_int_gt(fprintf(file, "1,0:0:0.0,allocate,0x%x,%u,0x0\n", (i + round) * 256, i), 0);
        for (unsigned i = 1; i <= 3000; i++)
            ck_assert_int_gt(fprintf(file, "1,0:0:0.0,free,0x%x,%u,0x0\n", (i + round) * 256, i), 0);
    }
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(spw__alloc_log_read(path, NULL, &text_log), SPW_OK);
    ck_assert_uint_eq(text_log.n_blocks, 6000);
    ck_assert_uint_eq(text_log.n_ops, 12000);
    ck_assert_uint_eq(text_log.unknown_frees + text_log.lost_frees, 0);
    ck_assert_uint_eq(text_log.peak_live_bytes, 3000 * 3001 / 2);
}
END_TEST

/* Malformed logs */

START_TEST(malformed_csv_is_refused_with_its_line)
{
    static const char *const cases[][2] = {
        {"", "line 1: expected an allocation log, found an empty file"},
        {"Thread;Time\n", "line 1: expected a header"},
        {RMM, "line 1: expected at least one allocation, found the end of the file"},
        {RMM "1,0:0:0.0,allocate,0x10,64\n", "line 2: expected a stream, found the end of the line"},
        {RMM "1,0:0:0.0,allocate,0x10,64,0x0,7\n", "line 2: expected the end of the line"},
        {RMM "\n1,0:0:0.0,allocate,,64,0x0\n", "line 3: expected a pointer"},
        {RMM "x,0:0:0.0,allocate,0x10,64,0x0\n", "line 2: expected a thread number, found \"x\""},
        {RMM "1,0:0.0,allocate,0x10,64,0x0\n", "line 2: expected a time such as 12:34:56.789012, found \"0:0.0\""},
        {RMM "1,0:0:0.0,malloc,0x10,64,0x0\n", "expected allocate, free or allocate failure, found \"malloc\""},
        {RMM "1,0:0:0.0,allocate,0xg,64,0x0\n", "expected a pointer such as 0x7f0000000000, or (nil), found \"0xg\""},
        {RMM "1,0:0:0.0,allocate,0x10,-64,0x0\n", "expected a size in bytes, found \"-64\""},
        {RMM "1,0:0:0.0,allocate,0x10,64K,0x0\n", "expected a size in bytes, found \"64K\""},
        {RMM "1,0:0:0.0,allocate,0x10,64,main\n", "expected a stream such as 0x0, or (nil), found \"main\""},
        {RMM "1,0:0:0.0,allocate,(nil),64,0x0\n", "line 2: expected the pointer of 64 bytes, found null"},
        {OWN "0,1,alloc,device,0,64\n", "line 2: expected a block number above 0, found \"0\""},
        {OWN "0,1,alloc,gpu,1,64\n", "line 2: expected a place"},
        {OWN "0,1,alloc,device:0,1,64\n", "line 2: expected a place"},
        {OWN "0,1,alloc,device:300,1,64\n", "line 2: expected a place"},
        {OWN "0,1,allocate,device,1,64\n", "line 2: expected alloc, free or fail, found \"allocate\""},
        {OWN "0x0,1,alloc,device,1,64\n", "line 2: expected a time in ns, found \"0x0\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i][0], cases[i][1]);
}
END_TEST

START_TEST(sizes_that_wrap_are_refused)
{
    refused(RMM "1,0:0:0.0,allocate,0x10,18446744073709551616,0x0\n", "line 2: expected a size in bytes");
    refused(RMM "1,0:0:0.0,allocate,0x10,18446744073709551615,0x0\n", "line 2: expected at most 2^50 live bytes");
    refused(RMM "1,0:0:0.0,allocate,0x10,1125899906842624,0x0\n1,0:0:0.0,allocate,0x20,1,0x0\n",
            "line 3: expected at most 2^50 live bytes, found 1 more on top of 1125899906842624");
    ck_assert_int_eq(read_text(RMM "1,0:0:0.0,allocate,0x10,1125899906842624,0x0\n"), SPW_OK);
}
END_TEST

START_TEST(malformed_json_is_refused_with_its_line)
{
    static const char *const cases[][2] = {
        {"{\"event\":\"allocate\",\"payload\":{\"size\":1}\n", "line 1: expected ',' or '}', found the end"},
        {"{\"event\":\"allocate\"", "line 1: expected '}'"},
        {"{\"event\":\"version\"}\nhello\n", "line 2: expected a JSON object, found \"hello\""},
        {"{\"kind\":\"replay\"}\n", "line 1: expected an object with an \"event\""},
        {"{\"event\":\"allocate\",\"payload\":{}}\n", "line 1: expected a payload with a size"},
        {"{\"event\":\"allocate\",\"payload\":{\"size\":\"x\"}}\n", "line 1: expected a size in bytes, found \"x\""},
        {"{\"event\":\"allocate\",\"payload\":{\"size\":5},\"result\":{}}\n", "expected a result with a memory_ptr"},
        {"{\"event\":\"allocate\",\"payload\":{\"size\":5},\"result\":{\"memory_ptr\":\"zz\"}}\n", "found \"zz\""},
        {"{\"event\":\"deallocate\",\"payload\":{}}\n", "line 1: expected a payload with a memory_ptr"},
        {"{\"event\":\"allocate\",\"a\":[1,2,\"payload\":3}\n", "expected ',' or ']'"},
        {"{\"event\":\"allocate\" \"payload\":{\"size\":5}}\n", "expected ',' or '}'"},
        {"{\"event\":\"allocate\",\"payload\":{\"size\":5}} }\n", "expected the end of the line"},
        {"{\"event\":\"allocate\",\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}\n", "expected fewer levels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(cases[i][0], cases[i][1]);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_refused)
{
    struct spw__alloc_log log = {.form = "untouched"};
    ck_assert_int_eq(spw__alloc_log_read("/nonexistent/log.csv", NULL, &log), SPW_EINVAL);
    ck_assert_str_eq(log.form, "untouched");
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "cannot be opened"));
}
END_TEST

/* Replay */

#define BLOCKS_MAX 4096u

/* A log made by hand, or at random. */
struct made {
    struct spw__alloc_log log;
    uint32_t ops[2 * BLOCKS_MAX];
    uint64_t sizes[BLOCKS_MAX];
};

static void make_init(struct made *made)
{
    made->log = (struct spw__alloc_log){.form = "made", .ops = made->ops, .sizes = made->sizes};
}

static uint32_t make_alloc(struct made *made, uint64_t bytes)
{
    const uint32_t block = made->log.n_blocks++;
    made->sizes[block] = bytes;
    made->ops[made->log.n_ops++] = block * 2;
    return block;
}

static void make_free(struct made *made, uint32_t block)
{
    made->ops[made->log.n_ops++] = block * 2 + 1;
}

/* Small and large blocks together, so that alignment matters. */
static void make_random(struct made *made, unsigned seed, unsigned n)
{
    uint32_t live[256];
    unsigned n_live = 0;
    srandom(seed);
    make_init(made);
    for (unsigned i = 0; i < n; i++) {
        if (n_live == 200 || (n_live > 0 && random() % 5 < 2)) {
            const unsigned at = (unsigned)random() % n_live;
            make_free(made, live[at]);
            live[at] = live[--n_live];
        } else {
            live[n_live++] = make_alloc(made, (uint64_t)random() % (UINT64_C(1) << (random() % 21 + 1)) + 1);
        }
    }
}

static struct spw__replay_result run(struct made *made, const spw_spec_pool *pools, uint32_t n, bool movable)
{
    struct spw__replay *replay;
    struct spw__replay_result result;
    const struct spw__replay_config config = {.pools = pools, .n_pools = n, .movable = movable};
    ck_assert_int_eq(spw__replay_create(&made->log, SPW__REPLAY_GRAIN_DEVICE, &replay), SPW_OK);
    ck_assert_int_eq(spw__replay_run(replay, &config, &result), SPW_OK);
    spw__replay_destroy(replay);
    return result;
}

static struct made made;

START_TEST(the_range_is_the_highest_byte_ever_used)
{
    const spw_spec_pool pool = {0, 0};
    make_init(&made);
    const uint32_t a = make_alloc(&made, MIB);
    make_alloc(&made, 1);
    make_free(&made, a);
    make_alloc(&made, MIB);
    const struct spw__replay_result result = run(&made, &pool, 1, false);
    ck_assert_uint_eq(result.range_bytes, MIB + 256);
    ck_assert_uint_eq(result.failures, 0);
    ck_assert_uint_eq(result.moved_bytes, 0);
}
END_TEST

START_TEST(requests_go_to_the_smallest_limit_and_fall_upward)
{
    const spw_spec_pool pools[] = {{4 * MIB, 0}, {MIB, 64 * KIB}};
    make_init(&made);
    for (unsigned i = 0; i < 17; i++)
        make_alloc(&made, 64 * KIB);
    make_alloc(&made, 64 * KIB + 1);
    const struct spw__replay_result result = run(&made, pools, 2, false);
    ck_assert_uint_eq(result.high_bytes[1], MIB);
    ck_assert_uint_eq(result.high_bytes[0], 64 * KIB + 68 * KIB);
    ck_assert_uint_eq(result.range_bytes, MIB + 132 * KIB);
    ck_assert_uint_eq(result.fallbacks, 1);
    ck_assert_uint_eq(result.failures, 0);
}
END_TEST

START_TEST(requests_that_fit_nowhere_are_failures_and_their_frees_are_left_out)
{
    const spw_spec_pool pool = {MIB, 0};
    make_init(&made);
    const uint32_t a = make_alloc(&made, MIB);
    const uint32_t b = make_alloc(&made, MIB);
    make_free(&made, b);
    make_free(&made, a);
    make_alloc(&made, 2 * MIB);
    make_alloc(&made, MIB);
    const struct spw__replay_result result = run(&made, &pool, 1, true);
    ck_assert_uint_eq(result.failures, 2);
    ck_assert_uint_eq(result.moved_bytes, 0);
    ck_assert_uint_eq(result.range_bytes, MIB);
}
END_TEST

/* P17 in small: three of 3 MiB with 2 KiB behind each, the large ones freed, and 5 MiB wanted. */
START_TEST(P17_a_hole_is_opened_by_moving_the_fewest_bytes)
{
    const spw_spec_pool pool = {10 * MIB, 0};
    uint32_t large[3];
    make_init(&made);
    for (unsigned i = 0; i < 3; i++) {
        large[i] = make_alloc(&made, 3 * MIB);
        make_alloc(&made, 2 * KIB);
    }
    for (unsigned i = 0; i < 3; i++)
        make_free(&made, large[i]);
    make_alloc(&made, 5 * MIB);
    struct spw__replay_result result = run(&made, &pool, 1, true);
    ck_assert_uint_eq(result.failures, 0);
    ck_assert_uint_le(result.moved_bytes, 4 * KIB);
    ck_assert_uint_le(result.range_bytes, 10 * MIB);
}
END_TEST

START_TEST(movable_blocks_fit_whenever_their_bytes_do)
{
    for (unsigned seed = 1; seed <= 40; seed++) {
        spw_spec_pool pool = {0, 0};
        struct spw__replay *replay;
        struct spw__replay_result result;
        make_random(&made, seed, 1500);
        ck_assert_int_eq(spw__replay_create(&made.log, SPW__REPLAY_GRAIN_DEVICE, &replay), SPW_OK);
        const uint64_t peak = spw__replay_peak(replay);
        struct spw__replay_config config = {.pools = &pool, .n_pools = 1, .movable = true};
        ck_assert_int_eq(spw__replay_run(replay, &config, &result), SPW_OK);
        ck_assert_uint_eq(result.failures, 0);
        ck_assert_uint_le(result.range_bytes, peak + peak / 32 + 4096);
        pool.size_bytes = peak;
        for (config.address_ordered = false;; config.address_ordered = true) {
            ck_assert_int_eq(spw__replay_run(replay, &config, &result), SPW_OK);
            ck_assert_uint_eq(result.failures, 0);
            ck_assert_uint_le(result.range_bytes, peak);
            if (config.address_ordered)
                break;
        }
        spw__replay_destroy(replay);
    }
}
END_TEST

START_TEST(a_replay_without_memory_ends_and_can_be_repeated)
{
    const spw_spec_pool pools[] = {{0, 0}, {64 * KIB, 4 * KIB}};
    const struct spw__replay_config config = {.pools = pools, .n_pools = 2, .movable = true};
    struct spw__replay *replay;
    struct spw__replay_result result, again;
    int rc = SPW_ENOMETA;
    make_random(&made, 7, 2000);
    ck_assert_int_eq(spw__replay_create(&made.log, SPW__REPLAY_GRAIN_HOST, &replay), SPW_OK);
    for (long nth = 1; rc == SPW_ENOMETA; nth++) {
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
        rc = spw__replay_run(replay, &config, &result);
        if (rc == SPW_ENOMETA)
            ck_assert_int_eq(spw__fault_calls(SPW__FAULT_META_ALLOC), nth);
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert(rc == SPW_OK || rc == SPW_ENOMETA);
    }
    ck_assert_int_eq(spw__replay_run(replay, &config, &again), SPW_OK);
    ck_assert_mem_eq(&result, &again, sizeof result);
    spw__replay_destroy(replay);
}
END_TEST

/* Plans */

static struct spw__plan plan_for(struct made *log, uint32_t max_pools)
{
    struct spw__replay *replay;
    struct spw__plan plan;
    ck_assert_int_eq(spw__replay_create(&log->log, SPW__REPLAY_GRAIN_DEVICE, &replay), SPW_OK);
    ck_assert_int_eq(spw__plan_search(replay, max_pools, &plan), SPW_OK);
    spw__replay_destroy(replay);
    return plan;
}

START_TEST(a_plan_is_a_valid_specification_that_serves_its_log)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        spw_spec spec, parsed;
        char text[8192];
        uint64_t total = 0;
        make_random(&made, seed, 40);
        const struct spw__plan plan = plan_for(&made, 5);
        ck_assert_uint_ge(plan.n_pools, 1);
        ck_assert_uint_le(plan.n_pools, 5);
        spw_spec_init_empty(&spec);
        spec.n_pools[SPW_TIER_DEVICE] = plan.n_pools;
        for (uint32_t i = 0; i < plan.n_pools; i++) {
            spec.pools[SPW_TIER_DEVICE][i] = plan.pools[i];
            total += plan.pools[i].size_bytes;
        }
        ck_assert_uint_eq(plan.total_bytes, total);
        ck_assert_uint_le(plan.total_bytes, plan.single_bytes);
        ck_assert_uint_lt(spw_spec_format(&spec, text, sizeof text), sizeof text);
        ck_assert_int_eq(spw_spec_parse(text, &parsed), SPW_OK);
        const struct spw__replay_result result = run(&made, plan.pools, plan.n_pools, false);
        ck_assert_uint_eq(result.failures, 0);
        ck_assert_uint_le(result.range_bytes, total);
    }
}
END_TEST

START_TEST(a_plan_of_one_pool_is_the_single_pool)
{
    make_random(&made, 3, 500);
    const struct spw__plan plan = plan_for(&made, 1);
    ck_assert_uint_eq(plan.n_pools, 1);
    ck_assert_uint_eq(plan.pools[0].limit_bytes, 0);
    ck_assert_uint_eq(plan.total_bytes, plan.single_bytes);
}
END_TEST

START_TEST(the_same_log_gives_the_same_plan)
{
    make_random(&made, 5, 20);
    const struct spw__plan plan = plan_for(&made, 8), again = plan_for(&made, 8);
    ck_assert_uint_eq(plan.n_pools, again.n_pools);
    ck_assert_mem_eq(plan.pools, again.pools, plan.n_pools * sizeof plan.pools[0]);
}
END_TEST

START_TEST(a_log_of_one_tiny_block_has_a_plan)
{
    make_init(&made);
    make_alloc(&made, 1);
    const struct spw__plan plan = plan_for(&made, 128);
    ck_assert_uint_eq(plan.n_pools, 1);
    ck_assert_uint_eq(plan.total_bytes, 1024);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay");
    TCase *logs = tcase_create("logs"), *replays = tcase_create("replays"), *plans = tcase_create("plans");
    tcase_add_checked_fixture(logs, setup, teardown);
    tcase_add_test(logs, rmm_csv_is_read_with_both_kinds_of_time_and_of_null_pointers);
    tcase_add_test(logs, rmm_csv_without_threads_is_read);
    tcase_add_test(logs, umpire_pairs_count_once);
    tcase_add_test(logs, umpire_reallocations_may_log_their_parts);
    tcase_add_test(logs, blocks_of_no_bytes_may_share_a_pointer);
    tcase_add_test(logs, own_csv_is_read_one_place_at_a_time);
    tcase_add_test(logs, a_log_that_begins_in_the_middle_is_counted_not_refused);
    tcase_add_test(logs, many_pointers_are_found_again);
    tcase_add_test(logs, malformed_csv_is_refused_with_its_line);
    tcase_add_test(logs, sizes_that_wrap_are_refused);
    tcase_add_test(logs, malformed_json_is_refused_with_its_line);
    tcase_add_test(logs, a_file_that_is_not_there_is_refused);
    tcase_add_test(replays, the_range_is_the_highest_byte_ever_used);
    tcase_add_test(replays, requests_go_to_the_smallest_limit_and_fall_upward);
    tcase_add_test(replays, requests_that_fit_nowhere_are_failures_and_their_frees_are_left_out);
    tcase_add_test(replays, P17_a_hole_is_opened_by_moving_the_fewest_bytes);
    tcase_add_test(replays, movable_blocks_fit_whenever_their_bytes_do);
    tcase_add_test(replays, a_replay_without_memory_ends_and_can_be_repeated);
    tcase_set_timeout(replays, 120);
    tcase_add_test(plans, a_plan_is_a_valid_specification_that_serves_its_log);
    tcase_add_test(plans, a_plan_of_one_pool_is_the_single_pool);
    tcase_add_test(plans, the_same_log_gives_the_same_plan);
    tcase_add_test(plans, a_log_of_one_tiny_block_has_a_plan);
    tcase_set_timeout(plans, 240);
    suite_add_tcase(suite, logs);
    suite_add_tcase(suite, replays);
    suite_add_tcase(suite, plans);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
