/* Views and uses: which views are open, and what a stream still does with the memory of one that was closed. */
#include "manager_fixture.h"
#include "src/core/payload.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    close_manager();
    remove_folder();
}

START_TEST(a_copy_of_a_closed_view_closes_nothing_while_another_view_is_open)
{
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1);
    spw_view first, second, copy;
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &first), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &second), SPW_OK);
    copy = first;
    ck_assert_int_eq(spw_unmap(buffer, &first, NULL), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &copy, NULL), SPW_EBADHANDLE);
    push_out(SPW_HOST, 896 * KIB); /* all that is left beside the buffer: it must stay, since it is mapped */
    ck_assert(has_content(second.data, second.size, 1));
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    ck_assert_int_eq(spw_unmap(buffer, &second, NULL), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(many_views_of_one_buffer_are_open_and_closed_in_any_order)
{
    enum { N = 40 };
    spw_view views[N];
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 64 * KIB, 1);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(spw_buffer_release(buffer), SPW_EMAPPED);
        ck_assert_int_eq(spw_unmap(buffer, &views[(i * 7) % N], NULL), SPW_OK);
    }
    must_release(buffer);
}
END_TEST

START_TEST(without_metadata_memory_for_one_more_view_the_map_is_refused)
{
    spw_view views[SPW__FEW_VIEWS + 1];
    open_manager(SMALL_HOST);
    spw_buffer *buffer = must_make(SPW_HOST, 64 * KIB, 1);
    for (unsigned i = 0; i < SPW__FEW_VIEWS; i++)
        ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &views[i]), SPW_OK);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &views[SPW__FEW_VIEWS]), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    for (unsigned i = 0; i < SPW__FEW_VIEWS; i++)
        ck_assert_int_eq(spw_unmap(buffer, &views[i], NULL), SPW_OK);
    must_release(buffer);
}
END_TEST

static spw_buffer *contended;
static _Atomic int go;

static void *seal_it(void *arg)
{
    (void)arg;
    while (!atomic_load(&go)) {
    }
    const int rc = spw_buffer_seal(contended); /* SPW_EMAPPED when the map was first */
    ck_assert(rc == SPW_OK || rc == SPW_EMAPPED);
    return NULL;
}

START_TEST(a_write_view_and_a_seal_never_both_succeed)
{
    open_manager(SMALL_HOST);
    for (unsigned round = 0; round < 2000; round++) {
        spw_view view;
        contended = must_alloc(SPW_HOST, 64);
        atomic_store(&go, 0);
        const pthread_t thread = must_start(seal_it, NULL);
        atomic_store(&go, 1);
        const int rc = spw_map(contended, SPW_HOST, SPW_MAP_WRITE, NULL, &view);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        if (rc == SPW_OK) {
            ck_assert_int_eq(spw_buffer_retain(contended), SPW_EINVAL); /* not sealed, or it could be retained */
            ck_assert_int_eq(spw_unmap(contended, &view, NULL), SPW_OK);
        } else {
            ck_assert_int_eq(rc, SPW_ESEALED);
        }
        must_release(contended);
    }
}
END_TEST

START_TEST(a_map_without_a_stream_waits_for_what_a_stream_still_writes)
{
    static unsigned char in[4 * MIB];
    spw_view view, work;
    open_manager("device=24M; driver=sim; host=1M");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *buffer = must_alloc(SPW_DEVICE, sizeof in);
    fill(in, sizeof in, 1);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    const spw__stream stream = busy_stream(&work);
    ck_assert_int_eq(
        spw__device_copy_to(manager->device, stream, (uint64_t)(uintptr_t)view.data, in, sizeof in), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)stream), SPW_OK);
    check_at(buffer, SPW_DEVICE, 1);
    ck_assert_int_eq(spw_unmap(scratch, &work, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    must_release(buffer);
    must_release(scratch);
}
END_TEST

START_TEST(a_map_with_a_stream_is_ordered_after_another_streams_use)
{
    static unsigned char in[4 * MIB], out[4 * MIB];
    spw_view view, work;
    spw_map_options options;
    spw__stream second = NULL;
    open_manager("device=24M; driver=sim; host=1M");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *buffer = must_alloc(SPW_DEVICE, sizeof in);
    fill(in, sizeof in, 1);
    ck_assert_int_eq(spw__device_stream_create(manager->device, &second), SPW_OK);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    const spw__stream first = busy_stream(&work);
    ck_assert_int_eq(
        spw__device_copy_to(manager->device, first, (uint64_t)(uintptr_t)view.data, in, sizeof in), SPW_OK);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)first), SPW_OK);
    spw_map_options_init(&options);
    options.stream = (spw_stream *)second;
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, &options, &view), SPW_OK);
    ck_assert_int_eq(
        spw__device_copy_from(manager->device, second, out, (uint64_t)(uintptr_t)view.data, sizeof out), SPW_OK);
    ck_assert_int_eq(spw__device_synchronize(manager->device, second), SPW_OK);
    ck_assert(has_content(out, sizeof out, 1));
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)second), SPW_OK);
    ck_assert_int_eq(spw_unmap(scratch, &work, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, first), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, second), SPW_OK);
    must_release(buffer);
    must_release(scratch);
}
END_TEST

START_TEST(an_unmap_that_cannot_note_its_use_waits_for_the_stream)
{
    static unsigned char in[4 * MIB];
    spw_view view, work;
    open_manager("device=24M; driver=sim; host=1M");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *buffer = must_alloc(SPW_DEVICE, sizeof in);
    fill(in, sizeof in, 1);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    const void *bytes = bytes_of(&view);
    const spw__stream stream = busy_stream(&work);
    ck_assert_int_eq(
        spw__device_copy_to(manager->device, stream, (uint64_t)(uintptr_t)view.data, in, sizeof in), SPW_OK);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)stream), SPW_OK);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert(has_content(bytes, sizeof in, 1)); /* the copy is over */
    ck_assert_int_eq(spw_unmap(scratch, &work, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    must_release(buffer);
    must_release(scratch);
}
END_TEST

START_TEST(pinned_memory_that_a_stream_still_reads_is_not_given_to_another)
{
    spw_view view, work, device;
    open_manager("device=24M; pinned=4M; driver=sim");
    spw_buffer *scratch = must_alloc(SPW_DEVICE, 16 * MIB), *target = must_alloc(SPW_DEVICE, 4 * MIB);
    spw_buffer *source = must_make(SPW_PINNED_HOST, 3 * MIB, 1);
    ck_assert_int_eq(spw_map(scratch, SPW_DEVICE, SPW_MAP_WRITE, NULL, &work), SPW_OK);
    ck_assert_int_eq(spw_map(target, SPW_DEVICE, SPW_MAP_WRITE, NULL, &device), SPW_OK);
    ck_assert_int_eq(spw_map(source, SPW_PINNED_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    const spw__stream stream = busy_stream(&work);
    ck_assert_int_eq(spw__device_copy_to(manager->device, stream, (uint64_t)(uintptr_t)device.data, view.data, 3 * MIB),
                     SPW_OK);
    ck_assert_int_eq(spw_unmap(source, &view, (spw_stream *)stream), SPW_OK);
    must_release(source);
    /* The only room is the source's: it is handed out, and overwritten, when the copy has ended and not before. */
    spw_buffer *next = must_make(SPW_PINNED_HOST, 3 * MIB, 2);
    ck_assert_int_eq(spw__device_synchronize(manager->device, stream), SPW_OK);
    ck_assert(has_content(bytes_of(&device), 3 * MIB, 1));
    ck_assert_int_eq(spw_unmap(target, &device, NULL), SPW_OK);
    ck_assert_int_eq(spw_unmap(scratch, &work, NULL), SPW_OK);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    must_release(next);
    must_release(target);
    must_release(scratch);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("view");
    TCase *tests = tcase_create("views");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_copy_of_a_closed_view_closes_nothing_while_another_view_is_open);
    tcase_add_test(tests, many_views_of_one_buffer_are_open_and_closed_in_any_order);
    tcase_add_test(tests, without_metadata_memory_for_one_more_view_the_map_is_refused);
    tcase_add_test(tests, a_write_view_and_a_seal_never_both_succeed);
    tcase_add_test(tests, a_map_without_a_stream_waits_for_what_a_stream_still_writes);
    tcase_add_test(tests, a_map_with_a_stream_is_ordered_after_another_streams_use);
    tcase_add_test(tests, an_unmap_that_cannot_note_its_use_waits_for_the_stream);
    tcase_add_test(tests, pinned_memory_that_a_stream_still_reads_is_not_given_to_another);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
