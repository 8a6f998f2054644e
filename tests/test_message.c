/* Messages: heads beside payloads (P15, P16), and copying before changing (P20). */
#include "manager_fixture.h"

static void setup(void)
{
    make_folder();
    open_manager(SMALL_HOST);
}

static void teardown(void)
{
    close_manager();
    remove_folder();
}

static spw_head sample_head(void)
{
    spw_head head;
    memset(&head, 0, sizeof head);
    head.data_type = 7;
    head.n_dims = 3;
    head.return_code = -5;
    head.route_label = UINT64_C(0x1122334455667788);
    head.start_ns = 10;
    head.end_ns = 20;
    for (unsigned i = 0; i < 3; i++)
        head.shape[i] = (int64_t)i - 1;
    fill(head.user, sizeof head.user, 99);
    return head;
}

START_TEST(P16_a_head_survives_spill_and_return_and_is_read_without_the_payload)
{
    const spw_head written = sample_head();
    spw_head read;
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 1);
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &written), SPW_OK);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    const uint64_t reads = (tier_now(SPW_TIER_HOST), stats.disk_read_bytes);
    ck_assert_int_eq(spw_buffer_head(buffer, &read), SPW_OK);
    ck_assert_uint_eq((tier_now(SPW_TIER_HOST), stats.disk_read_bytes), reads);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_uint_eq(read.payload_bytes, 512 * KIB);
    read.payload_bytes = written.payload_bytes;
    ck_assert_mem_eq(&read, &written, sizeof read);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
}
END_TEST

START_TEST(P15_a_head_is_charged_to_meta_once_and_only_when_it_is_set)
{
    const spw_head head = sample_head();
    spw_head read;
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1);
    const uint64_t meta = committed(SPW_TIER_META), host = committed(SPW_TIER_HOST);
    ck_assert_int_eq(spw_buffer_head(buffer, &read), SPW_OK);
    ck_assert_uint_eq(read.payload_bytes, 128 * KIB);
    ck_assert_uint_eq(read.n_dims, 0);
    ck_assert_uint_eq(committed(SPW_TIER_META), meta);
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_OK);
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_META), meta + SPW_HEAD_BYTES);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), host);
    must_release(buffer);
    ck_assert_uint_lt(committed(SPW_TIER_META), meta + SPW_HEAD_BYTES);
}
END_TEST

START_TEST(P16_more_than_32_dimensions_and_reserved_fields_are_refused)
{
    spw_head head = sample_head();
    spw_buffer *buffer = must_make(SPW_HOST, 64, 1);
    head.n_dims = SPW_HEAD_DIMS_MAX + 1;
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_EINVAL);
    head.n_dims = SPW_HEAD_DIMS_MAX;
    head.reserved[1] = 1;
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_EINVAL);
    head.reserved[1] = 0;
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_OK);
    ck_assert_int_eq(spw_buffer_head(buffer, NULL), SPW_EINVAL);
    must_release(buffer);
}
END_TEST

START_TEST(without_metadata_memory_a_head_is_refused_and_the_buffer_stays)
{
    const spw_head head = sample_head();
    spw_buffer *buffer = must_make(SPW_HOST, 64 * KIB, 1);
    const uint64_t meta = committed(SPW_TIER_META);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_buffer_set_meta(buffer, &head), SPW_ENOMETA);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    ck_assert_uint_eq(committed(SPW_TIER_META), meta);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
}
END_TEST

START_TEST(P20_the_sole_owner_gets_its_own_bytes_back_for_writing)
{
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 1), *before = buffer;
    spw_view view;
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 1); /* in memory, with a clean copy below */
    ck_assert_uint_gt(committed(SPW_TIER_DISK), 0);
    ck_assert_int_eq(spw_buffer_make_writable(&buffer, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_eq(buffer, before);
    ck_assert_uint_eq(committed(SPW_TIER_DISK), 0); /* what lay below would differ from now on */
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_WRITE, NULL, &view), SPW_OK);
    ck_assert(has_content(view.data, view.size, 1));
    fill(view.data, view.size, 2);
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    push_out(SPW_HOST, MIB);
    check_at(buffer, SPW_HOST, 2);
    must_release(buffer);
}
END_TEST

START_TEST(P20_make_writable_of_a_buffer_on_disk_brings_it_back)
{
    spw_buffer *buffer = must_make(SPW_HOST, 256 * KIB, 3);
    push_out(SPW_HOST, MIB);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_DISK);
    ck_assert_int_eq(spw_buffer_make_writable(&buffer, SPW_HOST, NULL), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(buffer), SPW_HOST);
    check_at(buffer, SPW_HOST, 3);
    must_release(buffer);
}
END_TEST

START_TEST(P20_a_shared_buffer_is_copied_with_its_head_and_the_other_owner_sees_no_change)
{
    const spw_head head = sample_head();
    spw_head copied;
    spw_buffer *shared = must_make(SPW_HOST, 128 * KIB, 1), *mine = shared;
    ck_assert_int_eq(spw_buffer_set_meta(shared, &head), SPW_OK);
    ck_assert_int_eq(spw_buffer_retain(shared), SPW_OK);
    ck_assert_int_eq(spw_buffer_make_writable(&mine, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_ne(mine, shared);
    ck_assert_int_eq(spw_buffer_head(mine, &copied), SPW_OK);
    ck_assert_uint_eq(copied.route_label, head.route_label);
    check_at(mine, SPW_HOST, 1);
    write_content(mine, 2);
    check_at(shared, SPW_HOST, 1);
    must_release(mine);
    must_release(shared); /* one reference: the other went with the copy */
}
END_TEST

START_TEST(P20_a_buffer_that_its_sole_owner_maps_stays_sealed)
{
    spw_buffer *buffer = must_make(SPW_HOST, 128 * KIB, 1), *mine = buffer;
    spw_view view;
    ck_assert_int_eq(spw_map(buffer, SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
    ck_assert_int_eq(spw_buffer_make_writable(&mine, SPW_HOST, NULL), SPW_EMAPPED);
    ck_assert_ptr_eq(mine, buffer);
    ck_assert(has_content(view.data, view.size, 1));
    ck_assert_int_eq(spw_unmap(buffer, &view, NULL), SPW_OK);
    must_release(buffer);
}
END_TEST

START_TEST(P20_an_unsealed_buffer_is_writable_already)
{
    spw_buffer *buffer = must_alloc(SPW_HOST, 128 * KIB), *before = buffer;
    ck_assert_int_eq(spw_buffer_make_writable(&buffer, SPW_HOST, NULL), SPW_OK);
    ck_assert_ptr_eq(buffer, before);
    must_release(buffer);
    ck_assert_int_eq(spw_buffer_make_writable(NULL, SPW_HOST, NULL), SPW_EINVAL);
}
END_TEST

START_TEST(P20_a_copy_that_does_not_fit_leaves_the_shared_buffer_as_it_was)
{
    spw_buffer *shared = must_make(SPW_HOST, 600 * KIB, 1), *mine = shared;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_buffer_retain(shared), SPW_OK);
    /* It is mapped while it is copied, so nothing can make room for the second 600 KiB. */
    ck_assert_int_eq(spw_buffer_make_writable(&mine, SPW_HOST, &options), SPW_ENOMEM);
    ck_assert_ptr_eq(mine, shared);
    check_at(shared, SPW_HOST, 1);
    must_release(shared);
    must_release(shared);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *tests = tcase_create("heads and copies");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, P16_a_head_survives_spill_and_return_and_is_read_without_the_payload);
    tcase_add_test(tests, P15_a_head_is_charged_to_meta_once_and_only_when_it_is_set);
    tcase_add_test(tests, P16_more_than_32_dimensions_and_reserved_fields_are_refused);
    tcase_add_test(tests, without_metadata_memory_a_head_is_refused_and_the_buffer_stays);
    tcase_add_test(tests, P20_the_sole_owner_gets_its_own_bytes_back_for_writing);
    tcase_add_test(tests, P20_make_writable_of_a_buffer_on_disk_brings_it_back);
    tcase_add_test(tests, P20_a_shared_buffer_is_copied_with_its_head_and_the_other_owner_sees_no_change);
    tcase_add_test(tests, P20_a_buffer_that_its_sole_owner_maps_stays_sealed);
    tcase_add_test(tests, P20_an_unsealed_buffer_is_writable_already);
    tcase_add_test(tests, P20_a_copy_that_does_not_fit_leaves_the_shared_buffer_as_it_was);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
