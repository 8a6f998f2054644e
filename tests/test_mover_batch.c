/* Small copies with a device: enqueued together by one call and one event, and each on its own where that fails. */
#include "tests/mover_fixture.h"

#include <limits.h>

#include "pool/device/inside.h"

enum { N = 8, SMALL = 4096, LARGE = 300 << 10 };

static struct job jobs[2][N]; /* to the device, from it */
static struct spw__end tops[2][N], bottoms[2][N];

/* N moves each way, prepared; the content of move i is of seed i. */
static void make_jobs(uint64_t bytes)
{
    for (unsigned way = 0; way < 2; way++)
        for (unsigned i = 0; i < N; i++) {
            tops[way][i] = make_end(DEVICE, bytes);
            bottoms[way][i] = make_end(ALIGNED, bytes);
            const struct spw__end *from = way ? &tops[way][i] : &bottoms[way][i];
            fill_end(from, bytes, i + 1);
            prepare(&jobs[way][i], *from, way ? bottoms[way][i] : tops[way][i], bytes);
        }
}

static void submit_all(void)
{
    for (unsigned i = 0; i < N; i++)
        for (unsigned way = 0; way < 2; way++)
            spw__mover_submit(rig.mover, &jobs[way][i].move);
}

/* Waits for all; those that ended well are at their destination. Returns how many failed, of the device. */
static unsigned wait_all(uint64_t bytes)
{
    unsigned failed = 0;
    for (unsigned way = 0; way < 2; way++)
        for (unsigned i = 0; i < N; i++) {
            wait_for(&jobs[way][i]);
            const struct spw__end *to = way ? &bottoms[way][i] : &tops[way][i];
            failed += jobs[way][i].status != SPW_OK;
            if (jobs[way][i].status == SPW_OK)
                ck_assert(end_holds(to, bytes, i + 1));
            else
                ck_assert_int_eq(jobs[way][i].status, SPW_EDEVICE);
        }
    return failed;
}

static void free_jobs(void)
{
    for (unsigned way = 0; way < 2; way++)
        for (unsigned i = 0; i < N; i++) {
            free_end(&tops[way][i]);
            free_end(&bottoms[way][i]);
        }
}

static void count_calls(enum spw__driver_entry entry)
{
    spw__sim_fail(entry, LONG_MAX, 1, SPW__CU_ERROR_INVALID_VALUE);
}

static void open_counting(void)
{
    rig_open(DRIVEN, 1, 64 * MIB);
    count_calls(SPW__ENTRY_memcpy_batch_async);
    count_calls(SPW__ENTRY_memcpy_batch_async_v2);
    count_calls(SPW__ENTRY_event_record);
}

START_TEST(small_copies_of_a_round_are_one_call_and_one_event_each_way)
{
    open_counting();
    make_jobs(SMALL);
    const long records = spw__sim_calls(SPW__ENTRY_event_record);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async_v2), 2);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_event_record), records + 2);
    free_jobs();
    rig_close();
}
END_TEST

START_TEST(the_signature_of_CUDA_12_8_does_as_well)
{
    open_counting();
    const struct spw__driver *newest = rig.device->driver;
    struct spw__driver older = *newest;
    older.memcpy_batch_async_v2 = NULL;
    rig.device->driver = &older;
    make_jobs(SMALL);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async), 2);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async_v2), 0);
    free_jobs();
    older.memcpy_batch_async = NULL; /* CUDA 12.7 and older */
    make_jobs(SMALL);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async), 2);
    free_jobs();
    rig.device->driver = newest;
    rig_close();
}
END_TEST

START_TEST(a_large_copy_has_an_event_of_its_own)
{
    open_counting();
    make_jobs(LARGE);
    const long records = spw__sim_calls(SPW__ENTRY_event_record);
    submit_all();
    ck_assert_uint_eq(wait_all(LARGE), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async_v2), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_event_record), records + 2 * N);
    free_jobs();
    rig_close();
}
END_TEST

/* The first two moves to the device come after uses that are not over; each is ordered on the device, and keeps none of
 * the others waiting. */
START_TEST(a_copy_that_has_to_wait_for_a_use_goes_alone)
{
    struct spw__use use = {.refs = 1};
    open_counting();
    make_jobs(SMALL);
    ck_assert_int_eq(spw__device_event_record(rig.device, NULL, &use.event), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(rig.device, NULL), SPW_OK);
    const long records = spw__sim_calls(SPW__ENTRY_event_record);
    jobs[1][0].move.use = jobs[1][1].move.use = &use;
    spw__sim_fail(SPW__ENTRY_event_query, 1, 2, SPW__CU_ERROR_NOT_READY);
    count_calls(SPW__ENTRY_stream_wait_event);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_stream_wait_event), 2);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_event_record), records + 2 + 2);
    spw__device_event_put(rig.device, use.event);
    free_jobs();
    rig_close();
}
END_TEST

START_TEST(what_the_driver_refuses_together_is_copied_one_by_one)
{
    open_counting();
    spw__sim_fail(SPW__ENTRY_memcpy_batch_async_v2, 1, 0, SPW__CU_ERROR_INVALID_VALUE);
    make_jobs(SMALL);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 0);
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async_v2), 2);
    free_jobs();
    rig_close();
}
END_TEST

START_TEST(a_driver_that_does_not_support_the_call_is_asked_once)
{
    open_counting();
    spw__sim_fail(SPW__ENTRY_memcpy_batch_async_v2, 1, 0, SPW__CU_ERROR_NOT_SUPPORTED);
    for (unsigned round = 0; round < 3; round++) {
        make_jobs(SMALL);
        submit_all();
        ck_assert_uint_eq(wait_all(SMALL), 0);
        free_jobs();
    }
    ck_assert_int_eq(spw__sim_calls(SPW__ENTRY_memcpy_batch_async_v2), 1);
    rig_close();
}
END_TEST

START_TEST(a_copy_that_fails_fails_alone)
{
    open_counting();
    make_jobs(SMALL);
    spw__sim_fail(SPW__ENTRY_memcpy_batch_async_v2, 1, 0, SPW__CU_ERROR_INVALID_VALUE);
    spw__sim_fail(SPW__ENTRY_memcpy_h_to_d_async, 3, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), 1);
    ck_assert_int_eq(jobs[0][2].status, SPW_EDEVICE);
    ck_assert_ptr_nonnull(strstr(jobs[0][2].error.message, "CUDA_ERROR_OPERATING_SYSTEM"));
    free_jobs();
    rig_close();
}
END_TEST

START_TEST(without_an_event_all_copies_of_the_call_fail_and_are_over)
{
    open_counting();
    make_jobs(SMALL);
    spw__sim_fail(SPW__ENTRY_event_record, 1, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), N);
    free_jobs();
    spw__sim_fail(SPW__ENTRY_event_query, 1, 1, SPW__CU_ERROR_OPERATING_SYSTEM);
    make_jobs(SMALL);
    submit_all();
    ck_assert_uint_eq(wait_all(SMALL), N);
    free_jobs();
    rig_close();
}
END_TEST

START_TEST(a_lost_device_fails_them_all)
{
    open_counting();
    make_jobs(SMALL);
    spw__sim_fail(SPW__ENTRY_memcpy_batch_async_v2, 1, 1, SPW__CU_ERROR_ILLEGAL_ADDRESS);
    for (unsigned i = 0; i < N; i++)
        spw__mover_submit(rig.mover, &jobs[0][i].move);
    for (unsigned i = 0; i < N; i++) {
        wait_for(&jobs[0][i]);
        ck_assert_int_eq(jobs[0][i].status, SPW_EDEVICE);
    }
    for (unsigned way = 0; way < 2; way++)
        for (unsigned i = 0; i < N; i++) {
            ck_assert_int_eq(spw__device_free(rig.device, tops[way][i].address), SPW_EDEVICE); /* and it is free */
            free_end(&bottoms[way][i]);
        }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mover_batch");
    TCase *tcase = tcase_create("batch");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, small_copies_of_a_round_are_one_call_and_one_event_each_way);
    tcase_add_test(tcase, the_signature_of_CUDA_12_8_does_as_well);
    tcase_add_test(tcase, a_large_copy_has_an_event_of_its_own);
    tcase_add_test(tcase, a_copy_that_has_to_wait_for_a_use_goes_alone);
    tcase_add_test(tcase, what_the_driver_refuses_together_is_copied_one_by_one);
    tcase_add_test(tcase, a_driver_that_does_not_support_the_call_is_asked_once);
    tcase_add_test(tcase, a_copy_that_fails_fails_alone);
    tcase_add_test(tcase, without_an_event_all_copies_of_the_call_fail_and_are_over);
    tcase_add_test(tcase, a_lost_device_fails_them_all);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
