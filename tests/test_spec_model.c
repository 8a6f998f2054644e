/* The simulated device in the configuration: model=, driver=sim:SEED and grow=, as text, as fields, from the
 * environment. */
#include <check.h>
#include <stdlib.h>

#include "pool/spec.h"
#include "tests/spec_fixture.h"
#include "tests/suite_fixture.h"

#include <spillway/manager.h>

#define GB UINT64_C(1000000000)
#define GIB (UINT64_C(1) << 30)

static void assert_model(const spw_device_model *model, const spw_device_model *wanted)
{
    ck_assert_uint_eq(model->memory_bytes, wanted->memory_bytes);
    ck_assert_uint_eq(model->h2d_bytes_per_s, wanted->h2d_bytes_per_s);
    ck_assert_uint_eq(model->d2h_bytes_per_s, wanted->d2h_bytes_per_s);
    ck_assert_uint_eq(model->d2d_bytes_per_s, wanted->d2d_bytes_per_s);
    ck_assert_uint_eq(model->duplex_bytes_per_s, wanted->duplex_bytes_per_s);
    ck_assert_uint_eq(model->latency_ns, wanted->latency_ns);
}

static const struct {
    const char *string;
    spw_device_model model;
} models[] = {
    {"model=b200", {180 * GB, 32 * GB, 32 * GB, 4000 * GB, 21 * GB, 10000}},
    {"model=h200", {141 * GB, 64 * GB, 64 * GB, 2400 * GB, 128 * GB, 10000}},
    {"model=gh200-c2c", {96 * GB, 450 * GB, 450 * GB, 2000 * GB, 900 * GB, 10000}},
    {"model=a10-pcie4", {24 * GB, 32 * GB, 32 * GB, 300 * GB, 64 * GB, 10000}},
    {"model=b200/1", {180 * GB, 32 * GB, 32 * GB, 4000 * GB, 21 * GB, 10000}},
    {"model=b200/1024", {175781250, 31250000, 31250000, 3906250000, 20507812, 10000}}, /* times are not divided */
    {"model=b200/1024,duplex:free", {175781250, 31250000, 31250000, 3906250000, 0, 10000}},
    {"model=b200,duplex=free,latency:0ns/1024", {175781250, 31250000, 31250000, 3906250000, 0, 0}},
    {"model=mem:16G,h2d:3G,d2h:2000000000,d2d:1T,duplex:4G,latency:15us",
     {16 * GIB, 3 * GIB, 2 * GB, 1024 * GIB, 4 * GIB, 15000}},
    {"model=latency:1500ns,h2d:3K,mem:6K/3", {2048, 1024, 0, 0, 0, 1500}},
    {"model=h2d:7/1048576", {0, 1, 0, 0, 0, 0}}, /* a limit stays one */
    {"model=duplex:free", {0, 0, 0, 0, 0, 0}},
    {"model=latency:1000000us", {0, 0, 0, 0, 0, 1000000000}},
};

START_TEST(a_model_is_a_preset_or_figures_and_a_scale)
{
    const spw_spec spec = parsed(models[_i].string);
    assert_model(&spec.model, &models[_i].model);
    ck_assert_uint_eq(spec.n_pools[SPW_TIER_DEVICE], 0);
}
END_TEST

START_TEST(a_scale_divides_no_size_that_the_user_wrote)
{
    const spw_spec spec = parsed("device=100M; model=b200/1024; driver=sim:18446744073709551614; grow=vmm; piece=1M");
    assert_pool(&spec, SPW_TIER_DEVICE, 0, 100 << 20, 0);
    ck_assert_uint_eq(spec.piece_bytes, 1 << 20);
    ck_assert_int_eq(spec.driver, SPW_DRIVER_SIM);
    ck_assert_uint_eq(spec.sim_seed, UINT64_MAX - 1);
    ck_assert_int_eq(spec.grow, SPW_GROW_VMM);
}
END_TEST

START_TEST(without_these_keys_there_is_no_model_no_seed_and_plain_memory)
{
    const spw_spec spec = parsed("device=1M; driver=sim; grow=plain");
    ck_assert(!spw__spec_has_model(&spec));
    ck_assert_uint_eq(spec.sim_seed, 0);
    ck_assert_int_eq(spec.grow, SPW_GROW_PLAIN);
}
END_TEST

static const struct {
    const char *string;
    size_t offset;
    const char *wanted;
} malformed[] = {
    {"model=", 6, "expected a model (b200, h200, gh200-c2c, a10-pcie4) or its parts (mem:, h2d:, d2h:, d2d:, duplex:, "
                  "latency:), found the end"},
    {"model=b300", 6, "found \"b300\""},
    {"model=B200", 6, "expected a model"},
    {"model=b200x", 6, "expected a model"},
    {"model=b200 ", 10, "expected ',', '/' or the end, found \" \""},
    {"model=b200:1", 10, "expected ',', '/' or the end"},
    {"model=b200/", 11, "expected a scale, a number from 1 to 1048576, found the end"},
    {"model=b200/0", 11, "a number from 1 to 1048576"},
    {"model=b200/1048577", 11, "a number from 1 to 1048576"},
    {"model=b200/1K", 11, "a number from 1 to 1048576"},
    {"model=b200/2/3", 11, "a number from 1 to 1048576"},
    {"model=b200/2,h2d:1/3", 19, "expected one scale, found \"3\""},
    {"model=h2d:1G,b200", 13, "expected a part of a model (mem:"},
    {"model=b200,h200", 11, "expected a part of a model"},
    {"model=b200,", 11, "expected a part of a model"},
    {"model=b200,,h2d:1", 11, "expected a part of a model"},
    {"model=h2d", 9, "expected ':', found the end"},
    {"model=h2d:", 10, "expected bytes per second above 0 and below 2^64, such as 20G"},
    {"model=h2d:0", 10, "expected bytes per second above 0"},
    {"model=h2d:free", 10, "expected bytes per second above 0"},
    {"model=h2d:32GB", 13, "expected ',', '/' or the end, found \"B\""},
    {"model=h2d:32g", 12, "expected a digit, K, M, G, T, ',', '/' or the end"},
    {"model=h2d:1.5G", 11, "found \".5G\""},
    {"model=mem:0", 10, "expected a size above 0 and below 2^64, such as 16G"},
    {"model=mem:99999999T", 10, "expected a size above 0 and below 2^64"},
    {"model=mem:1G,mem:2G", 13, "expected each part of a model once, found \"mem\""},
    {"model=duplex:", 13, "such as 20G, or free"},
    {"model=duplex:freely", 17, "expected ',', '/' or the end, found \"ly\""},
    {"model=latency:10", 14, "expected a latency from 0ns to 1000000us, with ns or us behind it"},
    {"model=latency:10ms", 14, "with ns or us behind it"},
    {"model=latency:1000001us", 14, "from 0ns to 1000000us"},
    {"model=latency:1000000001ns", 14, "from 0ns to 1000000us"},
    {"model=latency:18446744073709551615us", 14, "from 0ns to 1000000us"},
    {"host=1G; model=bandwidth:1G", 15, "expected a model"},
    {"model=b200; model=h200", 12, "each section once"},
    {"model=b200; host=1M; driver=cuda", 0, "expected driver=sim beside a model, which is of the simulated device, "
                                            "found driver=cuda"},
    {"driver=auto; model=b200", 13, "found driver=auto"},
    {"driver=sim:", 11, "expected a seed, a number from 1 to below 2^64 - 1, found the end"},
    {"driver=sim:0", 11, "expected a seed, a number from 1 to below 2^64 - 1, found \"0\""},
    {"driver=sim:x", 11, "expected a seed"},
    {"driver=sim:1K", 11, "expected a seed"},
    {"driver=sim:18446744073709551615", 11, "expected a seed"},
    {"driver=cuda:1", 11, "expected the end, as only sim has a seed (driver=sim:SEED), found \":\""},
    {"driver=auto:", 11, "expected the end, as only sim has a seed"},
    {"driver=simon:1", 7, "expected auto, cuda or sim, found \"simon\""},
    {"driver=:1", 7, "expected auto, cuda or sim, found \":\""},
    {"driver=simulated", 7, "expected auto, cuda or sim"},
    {"grow=", 5, "expected plain or vmm, found the end"},
    {"grow=mapped", 5, "expected plain or vmm, found \"mapped\""},
};

START_TEST(wrong_models_seeds_and_growths_name_the_byte_and_what_was_expected)
{
    refused(malformed[_i].string, malformed[_i].offset, malformed[_i].wanted);
}
END_TEST

static const struct {
    const char *string, *canonical;
} trips[] = {
    {"model=b200", "device=0; model=mem:175781250K,h2d:31250000K,d2h:31250000K,d2d:3906250000K,duplex:21000000000,"
                   "latency:10us"},
    {"model=b200/1024,duplex:free;driver=sim:77;device=20M;grow=vmm",
     "device=20M; driver=sim:77; model=mem:175781250,h2d:31250000,d2h:31250000,d2d:3906250000,latency:10us; grow=vmm"},
    {"model=duplex:3G,h2d:2048K,latency:1001ns/2", "device=0; model=h2d:1M,duplex:1536M,latency:1001ns"},
    {"grow=plain;driver=sim;model=duplex:free", "device=0; driver=sim"},
};

START_TEST(models_format_to_their_figures_and_parse_back)
{
    char text[256];
    const spw_spec spec = parsed(trips[_i].string);
    ck_assert_uint_eq(spw_spec_format(&spec, text, sizeof text), strlen(trips[_i].canonical));
    ck_assert_str_eq(text, trips[_i].canonical);
    const spw_spec back = parsed(text);
    assert_model(&back.model, &spec.model);
    ck_assert_uint_eq(back.sim_seed, spec.sim_seed);
    ck_assert_int_eq(back.driver, spec.driver);
    ck_assert_int_eq(back.grow, spec.grow);
}
END_TEST

static spw_spec laid(const char *string, const spw_spec *fields, int wanted)
{
    spw_spec spec;
    uint32_t named = 0;
    ck_assert_int_eq(spw__spec_parse(string, &spec, &named), SPW_OK);
    ck_assert_int_eq(spw__spec_fields(&spec, &named, fields), wanted);
    return spec;
}

START_TEST(fields_win_over_the_string_each_for_its_section)
{
    spw_spec fields;
    spw_spec_init_empty(&fields);
    spw_spec spec = laid("driver=sim:5; model=b200; grow=vmm; device=1M", &fields, SPW_OK);
    ck_assert_uint_eq(spec.sim_seed, 5);
    ck_assert_uint_eq(spec.model.memory_bytes, 180 * GB);
    ck_assert_int_eq(spec.grow, SPW_GROW_VMM);
    fields.driver = SPW_DRIVER_SIM;
    fields.model.h2d_bytes_per_s = 7;
    spec = laid("driver=sim:5; model=b200; grow=vmm; device=1M", &fields, SPW_OK);
    ck_assert_uint_eq(spec.sim_seed, 0); /* of the same section as the driver */
    assert_model(&spec.model, &fields.model);
    fields.sim_seed = 9;
    fields.grow = SPW_GROW_VMM;
    spec = laid("device=1M", &fields, SPW_OK);
    ck_assert_uint_eq(spec.sim_seed, 9);
    ck_assert_int_eq(spec.grow, SPW_GROW_VMM);
}
END_TEST

START_TEST(fields_are_held_to_the_bounds_of_the_text)
{
    spw_spec fields;
    spw_spec_init_empty(&fields);
    fields.sim_seed = 1;
    (void)laid("device=1M", &fields, SPW_EINVAL); /* of no simulated device: driver is at its default */
    fields.driver = SPW_DRIVER_CUDA;
    (void)laid("device=1M", &fields, SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "sim_seed"));
    spw_spec_init_empty(&fields);
    fields.grow = (spw_grow)2;
    (void)laid("device=1M", &fields, SPW_EINVAL);
    spw_spec_init_empty(&fields);
    fields.model.latency_ns = 1000000001;
    (void)laid("device=1M", &fields, SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "latency_ns"));
    fields.model.latency_ns = 1000000000;
    (void)laid("device=1M", &fields, SPW_OK);
}
END_TEST

static char a10[] = "a10-pcie4/1024";
static char vmm[] = "vmm";
static char sim[] = "sim:3";

static char *variables(const char *name)
{
    if (strcmp(name, "SPILLWAY_MODEL") == 0)
        return a10;
    if (strcmp(name, "SPILLWAY_GROW") == 0)
        return vmm;
    return strcmp(name, "SPILLWAY_DRIVER") == 0 ? sim : NULL;
}

START_TEST(the_environment_fills_them_in)
{
    spw_spec spec;
    uint32_t named = 0;
    ck_assert_int_eq(spw__spec_parse("device=1M", &spec, &named), SPW_OK);
    ck_assert_int_eq(spw__spec_environment(&spec, &named, variables), SPW_OK);
    ck_assert_uint_eq(spec.model.memory_bytes, 24 * GB / 1024);
    ck_assert_int_eq(spec.grow, SPW_GROW_VMM);
    ck_assert_int_eq(spec.driver, SPW_DRIVER_SIM);
    ck_assert_uint_eq(spec.sim_seed, 3);
    ck_assert_int_eq(spw__spec_check(&spec, named), SPW_OK);
}
END_TEST

static void create_fails(const char *string, const char *first, const char *second)
{
    spw_options options;
    spw_manager *manager = NULL;
    spw_options_init(&options);
    options.spec = string;
    ck_assert_int_eq(spw_manager_create(&options, &manager), SPW_EINVAL);
    ck_assert_ptr_null(manager);
    ck_assert_msg(strstr(spw_error_detail()->message, first) && strstr(spw_error_detail()->message, second), "%s",
                  spw_error_detail()->message);
}

START_TEST(a_manager_needs_the_simulated_device_for_a_model_and_pools_that_fit_it)
{
    spw_options options;
    spw_manager *manager = NULL;
    spw_options_init(&options);
    create_fails("host=1M; model=b200", "model=", "the driver is auto: add driver=sim");
    create_fails("device=100M,68M; driver=sim; model=b200/1024", "176160768 bytes", "175781250 bytes");
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, 176160768);
    ck_assert_uint_eq(spw_error_detail()->limit_bytes, 175781250);
    options.spec = "device=100M; driver=sim; model=b200/1024; threads=0";
    ck_assert_int_eq(spw_manager_create(&options, &manager), SPW_OK);
    ck_assert_uint_eq(spw_budget(manager, SPW_DEVICE), 100 << 20);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spec_model");
    TCase *tcase = tcase_create("model");
    tcase_add_loop_test(tcase, a_model_is_a_preset_or_figures_and_a_scale, 0, sizeof models / sizeof models[0]);
    tcase_add_test(tcase, a_scale_divides_no_size_that_the_user_wrote);
    tcase_add_test(tcase, without_these_keys_there_is_no_model_no_seed_and_plain_memory);
    tcase_add_loop_test(tcase, wrong_models_seeds_and_growths_name_the_byte_and_what_was_expected, 0,
                        sizeof malformed / sizeof malformed[0]);
    tcase_add_loop_test(tcase, models_format_to_their_figures_and_parse_back, 0, sizeof trips / sizeof trips[0]);
    tcase_add_test(tcase, fields_win_over_the_string_each_for_its_section);
    tcase_add_test(tcase, fields_are_held_to_the_bounds_of_the_text);
    tcase_add_test(tcase, the_environment_fills_them_in);
    tcase_add_test(tcase, a_manager_needs_the_simulated_device_for_a_model_and_pools_that_fit_it);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
