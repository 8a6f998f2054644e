/* Loading libcuda.so.1: which library, which version of which symbol, and what a driver may lack. The library is the
 * stand-alone form of the simulated driver (tests/libcuda/), whose environment and exports tests/meson.build chooses;
 * the first argument says which driver it plays. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/device/device.h"
#include "pool/device/driver.h"

#define MIB (1024ull * 1024)

static struct spw__meta meta;

static void quiet(void *arg, int level, const char *message)
{
    (void)arg;
    (void)level;
    (void)message;
}

static const struct spw__log no_log = {.fn = quiet};

static void *exported(const char *symbol)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    void *found = dlsym(library, symbol);
    (void)dlclose(library);
    return found;
}

static const struct spw__driver *must_load(void)
{
    const struct spw__driver *driver = NULL, *again = NULL;
    const int rc = spw__driver_cuda(&driver);
    ck_assert_msg(rc == 0, "%s", spw_error_detail()->message);
    ck_assert_int_eq(spw__driver_cuda(&again), 0);
    ck_assert_ptr_eq(driver, again);
#define SPW__X(field, name, symbol, version, params, args)                                                             \
    ck_assert_msg((void *)(uintptr_t)driver->field == exported(#symbol), #field " is not " #symbol);
    SPW__DRIVER_REQUIRED_LIST(SPW__X)
#undef SPW__X
    return driver;
}

/* Bytes go to the device and come back, through the device layer. */
static void round_trip(void)
{
    const struct spw__device_config config = {.kind = SPW_DRIVER_CUDA, .log = &no_log, .meta = &meta};
    struct spw__device *device = NULL;
    unsigned char in[5000], out[5000] = {0};
    uint64_t address = 0;
    spw__meta_init(&meta, MIB);
    ck_assert_msg(spw__device_open(&config, &device) == 0, "%s", spw_error_detail()->message);
    ck_assert(!spw__device_is_simulated(device));
    for (unsigned i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7 + (i >> 8));
    ck_assert_int_eq(spw__device_alloc(device, MIB, &address), 0);
    ck_assert_int_eq(spw__device_copy_to(device, NULL, address, in, sizeof in), 0);
    ck_assert_int_eq(spw__device_copy_from(device, NULL, out, address, sizeof out), 0);
    ck_assert_int_eq(spw__device_synchronize(device, NULL), 0);
    ck_assert_mem_eq(in, out, sizeof in);
    ck_assert_int_eq(spw__device_free(device, address), 0);
    spw__device_close(device);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}

static void version_is(const struct spw__driver *driver, int wanted)
{
    int version = 0;
    ck_assert_uint_eq(driver->driver_get_version(&version), SPW__CU_SUCCESS);
    ck_assert_int_eq(version, wanted);
}

START_TEST(a_driver_of_13_0_has_the_batched_copy_in_both_signatures)
{
    const struct spw__driver *driver = must_load();
    version_is(driver, 13000);
    ck_assert_ptr_eq((void *)(uintptr_t)driver->memcpy_batch_async, exported("cuMemcpyBatchAsync"));
    ck_assert_ptr_eq((void *)(uintptr_t)driver->memcpy_batch_async_v2, exported("cuMemcpyBatchAsync_v2"));
    round_trip();
}
END_TEST

/* The library exports the younger symbol all the same: it must not be called by a program that goes by the version. */
START_TEST(a_driver_of_12_8_has_the_first_signature_alone)
{
    const struct spw__driver *driver = must_load();
    version_is(driver, 12080);
    ck_assert_ptr_eq((void *)(uintptr_t)driver->memcpy_batch_async, exported("cuMemcpyBatchAsync"));
    ck_assert_ptr_null((void *)(uintptr_t)driver->memcpy_batch_async_v2);
    round_trip();
}
END_TEST

START_TEST(a_driver_of_12_0_works_without_what_is_optional)
{
    const struct spw__driver *driver = must_load();
    version_is(driver, 12000);
    ck_assert_ptr_null((void *)(uintptr_t)driver->memcpy_batch_async);
    ck_assert_ptr_null((void *)(uintptr_t)driver->memcpy_batch_async_v2);
    round_trip();
}
END_TEST

START_TEST(a_driver_of_11_4_is_asked_through_its_older_call)
{
    const struct spw__driver *driver = must_load();
    version_is(driver, 11040);
    ck_assert_ptr_null(exported("cuGetProcAddress_v2"));
    ck_assert_ptr_nonnull(exported("cuGetProcAddress"));
    ck_assert_ptr_null((void *)(uintptr_t)driver->memcpy_batch_async);
    round_trip();
}
END_TEST

START_TEST(a_driver_that_cannot_be_asked_is_taken_by_its_symbols)
{
    const struct spw__driver *driver = must_load();
    version_is(driver, 11020);
    ck_assert_ptr_null(exported("cuGetProcAddress"));
    round_trip();
}
END_TEST

START_TEST(success_with_nothing_found_falls_back_to_the_exported_symbol)
{
    const struct spw__driver *driver = must_load();
    void *found = &meta;
    int status = -1;
    spw__cu_result (*ask)(const char *, void **, int, uint64_t, int *) =
        (spw__cu_result(*)(const char *, void **, int, uint64_t, int *))exported("cuGetProcAddress_v2");
    ck_assert_uint_eq(ask("cuMemAlloc", &found, 3020, 0, &status), SPW__CU_SUCCESS);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_null(found);
    ck_assert_ptr_eq((void *)(uintptr_t)driver->memcpy_batch_async_v2, exported("cuMemcpyBatchAsync_v2"));
    round_trip();
}
END_TEST

static void refused(const char *first, const char *second)
{
    const struct spw__driver *driver = NULL;
    const struct spw__device_config config = {.kind = SPW_DRIVER_AUTO, .log = &no_log, .meta = &meta};
    struct spw__device *device = NULL;
    spw__meta_init(&meta, MIB);
    for (unsigned i = 0; i < 2; i++) { /* the answer is kept */
        ck_assert_int_eq(spw__driver_cuda(&driver), SPW_ENOTSUP);
        ck_assert_ptr_null(driver);
        ck_assert_msg(strstr(spw_error_detail()->message, first) && strstr(spw_error_detail()->message, second), "%s",
                      spw_error_detail()->message);
    }
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, first));
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "driver=sim"));
}

START_TEST(a_driver_that_lacks_what_is_required_is_refused_by_the_name_of_it)
{
    refused("lacks cuMemMap of CUDA 10.2", "libcuda.so.1 of CUDA 13.0");
}
END_TEST

START_TEST(a_driver_older_than_a_signature_is_refused_though_it_exports_the_symbol)
{
    refused("lacks cuDevicePrimaryCtxRelease_v2 of CUDA 11.0", "libcuda.so.1 of CUDA 10.2");
}
END_TEST

START_TEST(a_driver_without_a_device_is_not_supported)
{
    const struct spw__device_config config = {.kind = SPW_DRIVER_CUDA, .log = &no_log, .meta = &meta};
    struct spw__device *device = NULL;
    (void)must_load();
    spw__meta_init(&meta, MIB);
    ck_assert_int_eq(spw__device_open(&config, &device), SPW_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "finds no device"));
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}
END_TEST

static const struct {
    const char *name;
    const TTest *const *test;
} drivers[] = {
    {"13.0", &a_driver_of_13_0_has_the_batched_copy_in_both_signatures},
    {"12.8", &a_driver_of_12_8_has_the_first_signature_alone},
    {"12.0", &a_driver_of_12_0_works_without_what_is_optional},
    {"11.4", &a_driver_of_11_4_is_asked_through_its_older_call},
    {"11.2", &a_driver_that_cannot_be_asked_is_taken_by_its_symbols},
    {"null", &success_with_nothing_found_falls_back_to_the_exported_symbol},
    {"lacks", &a_driver_that_lacks_what_is_required_is_refused_by_the_name_of_it},
    {"10.2", &a_driver_older_than_a_signature_is_refused_though_it_exports_the_symbol},
    {"none", &a_driver_without_a_device_is_not_supported},
};

int main(int argc, char **argv)
{
    Suite *suite = suite_create("driver_cuda");
    TCase *tcase = tcase_create("load");
    unsigned n = 0;
    for (unsigned i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (argc == 2 && strcmp(argv[1], drivers[i].name) == 0) {
            tcase_add_test(tcase, *drivers[i].test);
            n++;
        }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n == 1 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
