/* The simulated device's link: what copies cost in the model's time, and that the streams' threads keep its order. */
#include "sim_fixture.h"

#include <stdatomic.h>

#include "pool/device/sim.h"

#define GB UINT64_C(1000000000)
#define MB UINT64_C(1000000)
#define MS UINT64_C(1000000)

static struct spw__sim_link link_of(struct spw__sim_model model)
{
    struct spw__sim_link link;
    spw__sim_link_init(&link, &model, 0);
    return link;
}

/* Lets it end, and says when it did. */
static uint64_t ended(struct spw__sim_link *link, enum spw__sim_engine engine)
{
    const uint64_t due_ns = spw__sim_link_due_ns(link, engine);
    spw__sim_link_advance(link, due_ns);
    ck_assert(!spw__sim_link_is_busy(link, engine));
    ck_assert_uint_eq(spw__sim_link_due_ns(link, engine), due_ns);
    return due_ns;
}

START_TEST(a_copy_costs_the_latency_and_its_bytes)
{
    struct spw__sim_link link = link_of((struct spw__sim_model){
        .h2d_bytes_per_s = GB, .d2h_bytes_per_s = 2 * GB, .d2d_bytes_per_s = 4 * GB, .latency_ns = 10000});
    for (int engine = 0; engine < SPW__SIM_ENGINES; engine++) {
        spw__sim_link_start(&link, (enum spw__sim_engine)engine, link.now_ns, 4 * MB);
        const uint64_t start_ns = link.now_ns;
        ck_assert(spw__sim_link_is_busy(&link, (enum spw__sim_engine)engine));
        ck_assert_uint_eq(ended(&link, (enum spw__sim_engine)engine), start_ns + 10000 + (4 * MS >> engine));
    }
}
END_TEST

START_TEST(an_engine_without_a_limit_costs_the_latency_only)
{
    struct spw__sim_link link = link_of((struct spw__sim_model){.d2h_bytes_per_s = GB, .latency_ns = 700});
    spw__sim_link_start(&link, SPW__SIM_H2D, 50, GB);
    ck_assert_uint_eq(ended(&link, SPW__SIM_H2D), 750);
    spw__sim_link_advance(&link, 2000);
    spw__sim_link_start(&link, SPW__SIM_D2D, 100, GB); /* and in the past too */
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2D), 800);
}
END_TEST

START_TEST(directions_without_duplex_do_not_disturb_each_other)
{
    struct spw__sim_link link = link_of((struct spw__sim_model){.h2d_bytes_per_s = GB, .d2h_bytes_per_s = 2 * GB});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, 4 * MB);
    spw__sim_link_start(&link, SPW__SIM_D2H, 0, 4 * MB);
    spw__sim_link_start(&link, SPW__SIM_D2D, 0, 4 * MB);
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2D), 0);
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2H), 2 * MS);
    ck_assert_uint_eq(ended(&link, SPW__SIM_H2D), 4 * MS);
}
END_TEST

START_TEST(directions_share_duplex_in_proportion)
{
    struct spw__sim_link link = link_of(
        (struct spw__sim_model){.h2d_bytes_per_s = 3 * GB, .d2h_bytes_per_s = GB, .duplex_bytes_per_s = 2 * GB});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, 15 * MB);
    spw__sim_link_start(&link, SPW__SIM_D2H, 0, 5 * MB);
    ck_assert_uint_eq(spw__sim_link_due_ns(&link, SPW__SIM_H2D), 10 * MS); /* at 1.5 GB/s */
    ck_assert_uint_eq(spw__sim_link_due_ns(&link, SPW__SIM_D2H), 10 * MS); /* at 0.5 GB/s */
}
END_TEST

START_TEST(directions_share_while_both_are_busy_and_no_longer)
{
    struct spw__sim_link link = link_of(
        (struct spw__sim_model){.h2d_bytes_per_s = 2 * GB, .d2h_bytes_per_s = 2 * GB, .duplex_bytes_per_s = 3 * GB});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, 3 * MB);
    ck_assert_uint_eq(spw__sim_link_due_ns(&link, SPW__SIM_H2D), 3 * MS / 2);
    spw__sim_link_start(&link, SPW__SIM_D2H, MS / 2, 3 * MB);
    /* 1 MB alone, 2 MB at 1.5 GB/s; the other one then has 1 MB left for itself. */
    ck_assert_uint_eq(ended(&link, SPW__SIM_H2D), MS / 2 + 1333334);
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2H), MS / 2 + 1333334 + MS / 2);
}
END_TEST

START_TEST(a_duplex_above_both_rates_or_for_directions_without_a_limit)
{
    struct spw__sim_link link =
        link_of((struct spw__sim_model){.h2d_bytes_per_s = GB, .d2h_bytes_per_s = GB, .duplex_bytes_per_s = 3 * GB});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, MB);
    spw__sim_link_start(&link, SPW__SIM_D2H, 0, MB);
    ck_assert_uint_eq(spw__sim_link_due_ns(&link, SPW__SIM_H2D), MS);
    link = link_of((struct spw__sim_model){.h2d_bytes_per_s = GB, .duplex_bytes_per_s = GB});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, MB);
    spw__sim_link_start(&link, SPW__SIM_D2H, 0, MB);
    ck_assert_uint_eq(ended(&link, SPW__SIM_H2D), 2 * MS); /* half each */
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2H), 2 * MS);
}
END_TEST

START_TEST(the_latency_takes_nothing_from_the_link)
{
    struct spw__sim_link link = link_of((struct spw__sim_model){
        .h2d_bytes_per_s = GB, .d2h_bytes_per_s = GB, .duplex_bytes_per_s = GB, .latency_ns = MS});
    spw__sim_link_start(&link, SPW__SIM_H2D, 0, MB);
    spw__sim_link_start(&link, SPW__SIM_D2H, MS, MB); /* waits while the first one flows */
    ck_assert_uint_eq(ended(&link, SPW__SIM_H2D), 2 * MS);
    ck_assert_uint_eq(ended(&link, SPW__SIM_D2H), 3 * MS);
}
END_TEST

/* Each wake-up is 0.3 ms late, and the copies end when they would have ended without that. */
START_TEST(lateness_does_not_add_up)
{
    struct spw__sim_link link =
        link_of((struct spw__sim_model){.h2d_bytes_per_s = GB, .d2h_bytes_per_s = GB, .latency_ns = 1000});
    for (uint64_t i = 0; i < 100; i++) {
        spw__sim_link_start(&link, SPW__SIM_H2D, 0, MB);
        spw__sim_link_advance(&link, spw__sim_link_due_ns(&link, SPW__SIM_H2D) + 3 * MS / 10);
        ck_assert_uint_eq(link.lanes[SPW__SIM_H2D].free_ns, (i + 1) * (MS + 1000));
    }
    spw__sim_link_start(&link, SPW__SIM_D2H, 0, MB); /* over long ago */
    ck_assert(!spw__sim_link_is_busy(&link, SPW__SIM_D2H));
    ck_assert_uint_eq(spw__sim_link_due_ns(&link, SPW__SIM_D2H), MS + 1000);
}
END_TEST

/* From here on with threads: what is asserted holds however late they run. */

struct rig {
    struct spw__device *device;
    spw__stream streams[2];
    uint64_t memory[2];
    unsigned char *host[2];
};

enum { RIG_BYTES = 256 * 1024 };

static struct rig open_rig(struct spw__sim_model model, uint64_t seed, const struct spw__log *log)
{
    struct rig rig = {.device = open_with(model, seed, log)};
    for (unsigned i = 0; i < 2; i++) {
        rig.streams[i] = must_stream(rig.device);
        rig.memory[i] = must_alloc(rig.device, RIG_BYTES);
        rig.host[i] = malloc(RIG_BYTES);
        ck_assert_ptr_nonnull(rig.host[i]);
        memset(rig.host[i], (int)i + 1, RIG_BYTES);
    }
    return rig;
}

static void close_rig(struct rig *rig)
{
    for (unsigned i = 0; i < 2; i++) {
        end_stream(rig->device, rig->streams[i]);
        must_free(rig->device, rig->memory[i]);
        free(rig->host[i]);
    }
    close_device(rig->device);
}

static void upload(const struct rig *rig, unsigned i)
{
    ck_assert_int_eq(spw__device_copy_to(rig->device, rig->streams[i], rig->memory[i], rig->host[i], RIG_BYTES), 0);
}

static void download(const struct rig *rig, unsigned i)
{
    ck_assert_int_eq(spw__device_copy_from(rig->device, rig->streams[i], rig->host[i], rig->memory[i], RIG_BYTES), 0);
}

/* The model's time of the stream's latest completion. */
static uint64_t at_ns(const struct rig *rig, unsigned i)
{
    struct CUstream_st *stream = rig->streams[i];
    must_sync(rig->device, stream);
    spw__mutex_lock(&stream->sim->lock);
    const uint64_t at = stream->at_ns;
    spw__mutex_unlock(&stream->sim->lock);
    return at;
}

START_TEST(streams_share_an_engine_one_copy_at_a_time)
{
    struct rig rig = open_rig((struct spw__sim_model){.h2d_bytes_per_s = RIG_BYTES * 100ull}, 0, &no_log);
    upload(&rig, 0);
    upload(&rig, 1);
    const uint64_t a = at_ns(&rig, 0), b = at_ns(&rig, 1);
    ck_assert_uint_ge(a > b ? a - b : b - a, 10 * MS);
    ck_assert(all_are(spw__sim_host_pointer(rig.memory[0]), RIG_BYTES, 1));
    ck_assert(all_are(spw__sim_host_pointer(rig.memory[1]), RIG_BYTES, 2));
    close_rig(&rig);
}
END_TEST

START_TEST(a_stream_that_waits_goes_on_at_the_models_time)
{
    struct rig rig =
        open_rig((struct spw__sim_model){.h2d_bytes_per_s = RIG_BYTES * 100ull, .d2h_bytes_per_s = RIG_BYTES * 200ull},
                 0, &no_log);
    upload(&rig, 0);
    order(rig.device, rig.streams[0], rig.streams[1]);
    download(&rig, 1);
    const uint64_t a = at_ns(&rig, 0);
    ck_assert_uint_eq(at_ns(&rig, 1), a + 5 * MS);
    close_rig(&rig);
}
END_TEST

static bool both_busy(const struct rig *rig)
{
    struct CUctx_st *sim = ((struct CUstream_st *)rig->streams[0])->sim;
    spw__mutex_lock(&sim->lock);
    const bool both = spw__sim_link_is_busy(&sim->pacing.link, SPW__SIM_H2D) &&
                      spw__sim_link_is_busy(&sim->pacing.link, SPW__SIM_D2H);
    spw__mutex_unlock(&sim->lock);
    return both;
}

START_TEST(the_two_directions_work_side_by_side)
{
    bool seen = false;
    struct rig rig =
        open_rig((struct spw__sim_model){.h2d_bytes_per_s = RIG_BYTES * 20ull, .d2h_bytes_per_s = RIG_BYTES * 20ull}, 0,
                 &no_log);
    while (!seen) { /* until the threads' luck lets it be seen */
        upload(&rig, 0);
        download(&rig, 1);
        struct spw__event *event = must_record(rig.device, rig.streams[1]);
        while (!seen && spw__device_event_query(rig.device, event) == SPW_EAGAIN)
            seen = both_busy(&rig);
        poll_done(rig.device, event);
    }
    close_rig(&rig);
}
END_TEST

static _Atomic unsigned warnings, infos;

static void count_lines(void *arg, int level, const char *message)
{
    (void)arg;
    if (level == SPW__LOG_WARN && strstr(message, "cannot be met"))
        atomic_fetch_add(&warnings, 1);
    if (level == SPW__LOG_INFO && strstr(message, "3 of 3 copies took longer"))
        atomic_fetch_add(&infos, 1);
}

START_TEST(a_machine_that_is_slower_than_the_model_is_said_once)
{
    static const struct spw__log log = {.fn = count_lines};
    struct rig rig = open_rig((struct spw__sim_model){.h2d_bytes_per_s = GB * 1000 * 1000}, 0, &log);
    for (unsigned i = 0; i < 3; i++)
        upload(&rig, i % 2);
    close_rig(&rig);
    ck_assert_uint_eq(atomic_load(&warnings), 1);
    ck_assert_uint_eq(atomic_load(&infos), 1);
}
END_TEST

/* At the model's pace it would take an hour. */
START_TEST(a_seed_knows_no_time)
{
    struct rig rig = open_rig((struct spw__sim_model){.h2d_bytes_per_s = 73}, 5, &no_log);
    upload(&rig, 0);
    must_sync(rig.device, rig.streams[0]);
    ck_assert(all_are(spw__sim_host_pointer(rig.memory[0]), RIG_BYTES, 1));
    close_rig(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_model");
    TCase *tcase = tcase_create("arithmetic");
    tcase_add_test(tcase, a_copy_costs_the_latency_and_its_bytes);
    tcase_add_test(tcase, an_engine_without_a_limit_costs_the_latency_only);
    tcase_add_test(tcase, directions_without_duplex_do_not_disturb_each_other);
    tcase_add_test(tcase, directions_share_duplex_in_proportion);
    tcase_add_test(tcase, directions_share_while_both_are_busy_and_no_longer);
    tcase_add_test(tcase, a_duplex_above_both_rates_or_for_directions_without_a_limit);
    tcase_add_test(tcase, the_latency_takes_nothing_from_the_link);
    tcase_add_test(tcase, lateness_does_not_add_up);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, streams_share_an_engine_one_copy_at_a_time);
    tcase_add_test(tcase, a_stream_that_waits_goes_on_at_the_models_time);
    tcase_add_test(tcase, the_two_directions_work_side_by_side);
    tcase_add_test(tcase, a_machine_that_is_slower_than_the_model_is_said_once);
    tcase_add_test(tcase, a_seed_knows_no_time);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
