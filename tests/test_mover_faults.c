/* The mover when something fails: the source stays, space on disk comes back, and the detail says what happened. */
#include "tests/mover_fixture.h"

#define BYTES (6 * SEGMENT + 100)

/* A source of BYTES with known content. */
static struct spw__end source(enum kind kind)
{
    const struct spw__end end = make_end(kind, BYTES);
    fill_end(&end, BYTES, 4);
    return end;
}

static void free_ends(const struct spw__end *a, const struct spw__end *b)
{
    free_end(a);
    free_end(b);
}

/* A move to disk that fails: nothing is lost and nothing kept, and the next one works. */
static void write_fails(enum kind kind, enum spw__fault_point point, int os_errno, int code)
{
    struct job job, again, back;
    const struct spw__end from = source(kind), to = make_end(ODD, BYTES);
    spw__fault_arm(point, 1, 0, os_errno);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), code);
    spw__fault_disarm(point);
    ck_assert_int_eq(job.error.code, code);
    ck_assert_uint_eq(job.error.requested_bytes, BYTES);
    ck_assert_uint_eq(spw__ledger_committed(&rig.group, SPW_TIER_DISK), 0);
    ck_assert(end_holds(&from, BYTES, 4));
    ck_assert_int_eq(carry(&again, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    ck_assert_int_eq(fetch(&back, &again, to), SPW_OK);
    ck_assert(end_holds(&to, BYTES, 4));
    free_end(&again.move.to);
    free_ends(&from, &to);
}

START_TEST(fault_IO_WRITE_in_every_folder_is_EIO_with_the_source_intact)
{
    rig_open(&modes[_i], 2, 64 * MIB);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++)
        write_fails(kind, SPW__FAULT_IO_WRITE, EIO, SPW_EIO);
    rig_close();
}
END_TEST

START_TEST(fault_IO_SUBMIT_in_every_folder_is_EIO_with_the_source_intact)
{
    rig_open(&modes[_i], 2, 64 * MIB);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++)
        write_fails(kind, SPW__FAULT_IO_SUBMIT, EIO, SPW_EIO);
    rig_close();
}
END_TEST

START_TEST(fault_IO_WRITE_with_ENOSPC_in_every_folder_is_ENOSPC)
{
    rig_open(&modes[_i], 3, 64 * MIB);
    write_fails(ALIGNED, SPW__FAULT_IO_WRITE, ENOSPC, SPW_ENOSPC);
    write_fails(DEVICE, SPW__FAULT_IO_WRITE, EDQUOT, SPW_ENOSPC);
    rig_close();
}
END_TEST

START_TEST(fault_DEVICE_COPY_on_the_way_to_disk_gives_the_space_back)
{
    rig_open(&modes[_i], 2, 64 * MIB);
    write_fails(DEVICE, SPW__FAULT_DEVICE_COPY, EIO, SPW_EDEVICE);
    rig_close();
}
END_TEST

START_TEST(fault_DEVICE_EVENT_on_the_way_to_disk_gives_the_space_back)
{
    rig_open(&modes[_i], 2, 64 * MIB);
    write_fails(DEVICE, SPW__FAULT_DEVICE_EVENT, EIO, SPW_EDEVICE);
    rig_close();
}
END_TEST

START_TEST(a_failed_write_goes_to_the_next_folder_from_its_beginning)
{
    struct job job, back;
    rig_open(&modes[_i], 2, 64 * MIB);
    const struct spw__end to = make_end(ALIGNED, BYTES);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++) {
        const struct spw__end from = source(kind);
        const unsigned lines = rig.log_lines;
        spw__fault_arm(SPW__FAULT_IO_WRITE, 4, 1, EIO); /* some segments are written by then */
        ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
        spw__fault_disarm(SPW__FAULT_IO_WRITE);
        ck_assert_uint_eq(job.move.to.extent.folder, 1); /* the first was chosen first: equal room */
        ck_assert_uint_eq(job.move.excluded_folders, 1);
        ck_assert_uint_eq(rig.log_lines, lines + 1);
        ck_assert_uint_eq(spw__ledger_committed(&rig.group, SPW_TIER_DISK), job.move.to.extent.bytes);
        ck_assert_int_eq(fetch(&back, &job, to), SPW_OK); /* its sum counts each segment once */
        ck_assert(end_holds(&to, BYTES, 4));
        free_end(&job.move.to);
        free_end(&from);
    }
    free_end(&to);
    rig_close();
}
END_TEST

START_TEST(the_detail_of_a_failed_write_names_folder_offset_and_errno)
{
    struct job job;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = source(ALIGNED);
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 1, EIO);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_EIO);
    ck_assert_uint_eq(job.error.place, SPW_DISK);
    ck_assert_int_eq(job.error.os_errno, EIO);
    ck_assert_uint_eq(job.error.offset_bytes % SEGMENT, 0);
    ck_assert_ptr_nonnull(strstr(job.error.message, rig.folders[0]));
    ck_assert_ptr_nonnull(strstr(job.error.message, strerror(EIO)));
    free_end(&from);
    rig_close();
}
END_TEST

START_TEST(the_detail_of_a_failed_device_copy_names_the_device)
{
    struct job job;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = source(DEVICE), to = make_end(ALIGNED, BYTES);
    for (unsigned i = 0; i < 2; i++) {
        spw__fault_arm(SPW__FAULT_DEVICE_COPY, 1, 0, EIO);
        ck_assert_int_eq(carry(&job, from, i ? to : make_end(DISK, BYTES), BYTES), SPW_EDEVICE);
        ck_assert_uint_eq(job.error.place, SPW_DEVICE);
        ck_assert_ptr_nonnull(strstr(job.error.message, "from device to"));
        ck_assert_ptr_nonnull(strstr(job.error.message, "CUDA_ERROR_OPERATING_SYSTEM"));
    }
    free_ends(&from, &to);
    rig_close();
}
END_TEST

static void copies_fail(enum spw__fault_point point)
{
    static const enum kind edges[][2] = {{DEVICE, ALIGNED}, {ALIGNED, DEVICE}, {DEVICE, DEVICE}};
    struct job job, again;
    for (unsigned i = 0; i < 3; i++) {
        const struct spw__end from = source(edges[i][0]), to = make_end(edges[i][1], BYTES);
        spw__fault_arm(point, 1, 1, EIO);
        ck_assert_int_eq(carry(&job, from, to, BYTES), SPW_EDEVICE);
        spw__fault_disarm(point);
        ck_assert(end_holds(&from, BYTES, 4));
        ck_assert_int_eq(carry(&again, from, to, BYTES), SPW_OK);
        ck_assert(end_holds(&to, BYTES, 4));
        free_ends(&from, &to);
    }
}

START_TEST(fault_DEVICE_COPY_between_memories_leaves_the_source)
{
    rig_open(&modes[_i], 1, 64 * MIB);
    copies_fail(SPW__FAULT_DEVICE_COPY);
    rig_close();
}
END_TEST

START_TEST(fault_DEVICE_EVENT_between_memories_leaves_the_source)
{
    rig_open(&modes[_i], 1, 64 * MIB);
    copies_fail(SPW__FAULT_DEVICE_EVENT);
    rig_close();
}
END_TEST

/* The event is reported as failed while the copy still runs: its memory is not given up before the copy is over. */
START_TEST(a_copy_whose_event_fails_is_over_before_done)
{
    enum { LARGE = 16 << 20 };
    struct job job;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = make_end(DEVICE, LARGE), to = make_end(ALIGNED, LARGE);
    fill_end(&from, LARGE, 8);
    spw__fault_arm(SPW__FAULT_DEVICE_EVENT, 1, 1, EIO);
    ck_assert_int_eq(carry(&job, from, to, LARGE), SPW_EDEVICE);
    memset((void *)(uintptr_t)to.address, 0x11, LARGE); /* as its next owner would */
    ck_assert_int_eq(spw__device_synchronize(rig.device, rig.mover->from_device), SPW_OK);
    for (unsigned i = 0; i < LARGE; i += 4096)
        ck_assert_int_eq(((unsigned char *)(uintptr_t)to.address)[i], 0x11);
    free_ends(&from, &to);
    rig_close();
}
END_TEST

START_TEST(fault_IO_FLIP_is_ECORRUPT_for_this_read_and_no_other)
{
    struct job job, back;
    rig_open(&modes[_i], 1, 64 * MIB);
    const struct spw__end from = source(ALIGNED);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++) {
        const struct spw__end to = make_end(kind, BYTES);
        spw__fault_arm(SPW__FAULT_IO_FLIP, 3, 1, EIO);
        ck_assert_int_eq(fetch(&back, &job, to), SPW_ECORRUPT);
        spw__fault_disarm(SPW__FAULT_IO_FLIP);
        ck_assert_uint_eq(counted(SPW__MOVER_CORRUPT), kind + 1);
        ck_assert_uint_eq(back.error.place, SPW_DISK);
        ck_assert_ptr_nonnull(strstr(back.error.message, rig.folders[0]));
        ck_assert_int_eq(fetch(&back, &job, to), SPW_OK); /* what lies on the disk is as it was */
        ck_assert(end_holds(&to, BYTES, 4));
        free_end(&to);
    }
    free_ends(&from, &job.move.to);
    rig_close();
}
END_TEST

START_TEST(the_sum_of_another_piece_or_of_other_bytes_is_ECORRUPT)
{
    struct job job, back;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = source(ALIGNED), to = make_end(ALIGNED, BYTES);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    prepare(&back, job.move.to, to, BYTES);
    back.move.sum = job.move.sum;
    back.move.identity++;
    ck_assert_int_eq(run(&back), SPW_ECORRUPT);
    prepare(&back, job.move.to, to, BYTES - 1);
    back.move.sum = job.move.sum;
    ck_assert_int_eq(run(&back), SPW_ECORRUPT);
    prepare(&back, job.move.to, to, BYTES);
    back.move.sum = job.move.sum + 1;
    ck_assert_int_eq(run(&back), SPW_ECORRUPT);
    ck_assert_int_eq(fetch(&back, &job, to), SPW_OK);
    free_ends(&from, &to);
    free_end(&job.move.to);
    rig_close();
}
END_TEST

START_TEST(without_verify_nothing_is_summed)
{
    struct job job, back;
    rig_prepare(1, 64 * MIB);
    rig.config.verify = false;
    rig_create(DRIVEN);
    const struct spw__end from = source(ALIGNED), to = make_end(ALIGNED, BYTES);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    ck_assert_uint_eq(job.move.sum, 0);
    spw__fault_arm(SPW__FAULT_IO_FLIP, 1, 1, EIO);
    ck_assert_int_eq(fetch(&back, &job, to), SPW_OK);
    ck_assert(!end_holds(&to, BYTES, 4));
    free_ends(&from, &to);
    free_end(&job.move.to);
    rig_close();
}
END_TEST

START_TEST(fault_IO_READ_is_EIO_and_the_copy_on_disk_stays)
{
    struct job job, back;
    rig_open(&modes[_i], 1, 64 * MIB);
    const struct spw__end from = source(ALIGNED);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++) {
        const struct spw__end to = make_end(kind, BYTES);
        spw__fault_arm(SPW__FAULT_IO_READ, 2, 1, EIO);
        ck_assert_int_eq(fetch(&back, &job, to), SPW_EIO);
        spw__fault_disarm(SPW__FAULT_IO_READ);
        ck_assert_int_eq(back.error.os_errno, EIO);
        ck_assert_ptr_nonnull(strstr(back.error.message, "read of"));
        ck_assert_uint_eq(spw__ledger_committed(&rig.group, SPW_TIER_DISK), job.move.to.extent.bytes);
        ck_assert_int_eq(fetch(&back, &job, to), SPW_OK);
        ck_assert(end_holds(&to, BYTES, 4));
        free_end(&to);
    }
    free_ends(&from, &job.move.to);
    rig_close();
}
END_TEST

START_TEST(a_spill_file_that_became_shorter_is_ECORRUPT)
{
    struct job job, back;
    rig_open(&modes[_i], 1, 64 * MIB);
    const struct spw__end from = source(ALIGNED), to = make_end(ALIGNED, BYTES);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    ck_assert_int_eq(ftruncate(spw__store_fd(rig.store, 0), (off_t)(2 * SEGMENT)), 0);
    ck_assert_int_eq(fetch(&back, &job, to), SPW_ECORRUPT);
    ck_assert_ptr_nonnull(strstr(back.error.message, "the spill file is too short"));
    free_ends(&from, &to);
    free_end(&job.move.to);
    rig_close();
}
END_TEST

START_TEST(fault_IO_SHORT_transfers_are_continued)
{
    struct job job, back;
    rig_open(&modes[_i], 1, 64 * MIB);
    spw__fault_arm(SPW__FAULT_IO_SHORT, 1, 0, EIO);
    for (enum kind kind = 0; kind < MEMORY_KINDS; kind++) {
        const struct spw__end from = source(kind), to = make_end(kind, BYTES);
        ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
        ck_assert_int_eq(fetch(&back, &job, to), SPW_OK);
        ck_assert(end_holds(&to, BYTES, 4));
        free_ends(&from, &to);
        free_end(&job.move.to);
    }
    ck_assert_int_gt(spw__fault_calls(SPW__FAULT_IO_SHORT), 0);
    rig_close();
}
END_TEST

static struct spw__extent spare;
static unsigned reclaims;

/* Has one extent to give up. */
static bool reclaim(void *arg, struct spw__group *group, uint64_t bytes)
{
    ck_assert_ptr_eq(group, &rig.group);
    ck_assert_ptr_eq(arg, &spare);
    ck_assert_uint_eq(bytes, BYTES);
    reclaims++;
    if (spare.bytes == 0)
        return false;
    spw__store_free(rig.store, &spare);
    spare.bytes = 0;
    return true;
}

START_TEST(a_full_disk_asks_for_clean_copies_before_it_is_ENOSPC)
{
    struct job job, other;
    rig_prepare(1, padded(BYTES));
    rig.config.reclaim_disk = reclaim;
    rig.config.reclaim_arg = &spare;
    rig_create(&modes[_i]);
    const struct spw__end from = source(ALIGNED);
    ck_assert_int_eq(spw__store_alloc(rig.store, &rig.group, BYTES, 0, &spare), SPW_OK);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_OK);
    ck_assert_uint_eq(reclaims, 1);
    ck_assert_int_eq(carry(&other, from, make_end(DISK, BYTES), BYTES), SPW_ENOSPC);
    ck_assert_uint_eq(reclaims, 2);
    ck_assert_int_eq(other.error.code, SPW_ENOSPC);
    ck_assert_ptr_nonnull(strstr(other.error.message, "disk="));
    ck_assert_uint_eq(other.move.to.extent.bytes, 0);
    ck_assert_uint_eq(spw__ledger_committed(&rig.group, SPW_TIER_DISK), padded(BYTES));
    free_ends(&from, &job.move.to);
    rig_close();
}
END_TEST

START_TEST(fault_STORE_SPACE_without_anything_to_reclaim_is_ENOSPC)
{
    struct job job;
    rig_open(&modes[_i], 2, 64 * MIB);
    const struct spw__end from = source(DEVICE);
    spw__fault_arm(SPW__FAULT_STORE_SPACE, 1, 0, ENOSPC);
    ck_assert_int_eq(carry(&job, from, make_end(DISK, BYTES), BYTES), SPW_ENOSPC);
    ck_assert_int_eq(job.error.os_errno, ENOSPC);
    ck_assert(end_holds(&from, BYTES, 4));
    free_end(&from);
    rig_close();
}
END_TEST

/* os_errno: of the first question whether the last use is over. */
static void waits_for_the_last_use(int mode, int os_errno)
{
    struct job job;
    struct spw__use use = {.refs = 1};
    rig_open(&modes[mode], 1, 64 * MIB);
    ck_assert_int_eq(spw__device_event_record(rig.device, NULL, &use.event), SPW_OK);
    prepare(&job, (struct spw__end){.tier = SPW_TIER_DEVICE}, (struct spw__end){.tier = SPW_TIER_DEVICE}, 0);
    job.move.use = &use;
    spw__fault_arm(SPW__FAULT_DEVICE_EVENT, 1, 1, os_errno);
    ck_assert_int_eq(run(&job), SPW_OK);
    ck_assert(spw__device_is_lost(rig.device) == (os_errno == ENOTRECOVERABLE));
    ck_assert_int_ge(spw__fault_calls(SPW__FAULT_DEVICE_EVENT), os_errno == ENOTRECOVERABLE ? 1 : 2);
    spw__device_event_put(rig.device, use.event);
    rig_close();
}

START_TEST(a_question_about_the_last_use_that_fails_is_asked_again)
{
    waits_for_the_last_use(_i, EIO);
}
END_TEST

START_TEST(a_last_use_on_a_lost_device_is_over)
{
    waits_for_the_last_use(_i, ENOTRECOVERABLE);
}
END_TEST

START_TEST(create_fails_cleanly_at_every_step)
{
    static const enum spw__fault_point points[] = {SPW__FAULT_META_ALLOC, SPW__FAULT_THREAD, SPW__FAULT_IO_SETUP};
    rig_prepare(1, 64 * MIB);
    rig.config.own_thread = true;
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t meta_before = atomic_load(&rig.meta.gate.committed);
        rig.config.io = points[i] == SPW__FAULT_IO_SETUP ? SPW_IO_URING : SPW_IO_THREADS;
        for (long n = 1;; n++) {
            spw__fault_arm(points[i], n, 0, points[i] == SPW__FAULT_IO_SETUP ? EPERM : ENOMEM);
            const int rc = spw__mover_create(&rig.config, &rig.mover);
            const bool hit = spw__fault_calls(points[i]) >= n;
            spw__fault_disarm(points[i]);
            if (!hit)
                break;
            if (rc != SPW_OK) {
                ck_assert_ptr_null(rig.mover);
                ck_assert_int_eq(spw_error_detail()->code, rc);
            }
            spw__mover_destroy(rig.mover); /* the I/O engine does with fewer threads than it asked for */
            rig.mover = NULL;
            ck_assert_uint_eq(atomic_load(&rig.meta.gate.committed), meta_before);
        }
        spw__mover_destroy(rig.mover);
        rig.mover = NULL;
    }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mover_faults");
    TCase *tcase = tcase_create("in every mode");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fault_IO_WRITE_in_every_folder_is_EIO_with_the_source_intact, 0, MODES);
    tcase_add_loop_test(tcase, fault_IO_SUBMIT_in_every_folder_is_EIO_with_the_source_intact, 0, MODES);
    tcase_add_loop_test(tcase, fault_IO_WRITE_with_ENOSPC_in_every_folder_is_ENOSPC, 0, MODES);
    tcase_add_loop_test(tcase, fault_DEVICE_COPY_on_the_way_to_disk_gives_the_space_back, 0, MODES);
    tcase_add_loop_test(tcase, fault_DEVICE_EVENT_on_the_way_to_disk_gives_the_space_back, 0, MODES);
    tcase_add_loop_test(tcase, a_failed_write_goes_to_the_next_folder_from_its_beginning, 0, MODES);
    tcase_add_loop_test(tcase, fault_DEVICE_COPY_between_memories_leaves_the_source, 0, MODES);
    tcase_add_loop_test(tcase, fault_DEVICE_EVENT_between_memories_leaves_the_source, 0, MODES);
    tcase_add_loop_test(tcase, fault_IO_FLIP_is_ECORRUPT_for_this_read_and_no_other, 0, MODES);
    tcase_add_loop_test(tcase, fault_IO_READ_is_EIO_and_the_copy_on_disk_stays, 0, MODES);
    tcase_add_loop_test(tcase, a_spill_file_that_became_shorter_is_ECORRUPT, 0, MODES);
    tcase_add_loop_test(tcase, fault_IO_SHORT_transfers_are_continued, 0, MODES);
    tcase_add_loop_test(tcase, a_full_disk_asks_for_clean_copies_before_it_is_ENOSPC, 0, MODES);
    tcase_add_loop_test(tcase, fault_STORE_SPACE_without_anything_to_reclaim_is_ENOSPC, 0, MODES);
    tcase_add_loop_test(tcase, a_question_about_the_last_use_that_fails_is_asked_again, 0, MODES);
    tcase_add_loop_test(tcase, a_last_use_on_a_lost_device_is_over, 0, MODES);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("driven");
    tcase_add_test(tcase, the_detail_of_a_failed_write_names_folder_offset_and_errno);
    tcase_add_test(tcase, the_detail_of_a_failed_device_copy_names_the_device);
    tcase_add_test(tcase, a_copy_whose_event_fails_is_over_before_done);
    tcase_add_test(tcase, the_sum_of_another_piece_or_of_other_bytes_is_ECORRUPT);
    tcase_add_test(tcase, without_verify_nothing_is_summed);
    tcase_add_test(tcase, create_fails_cleanly_at_every_step);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
