/* The mover: every edge, order, cancelling, uses on the device, and its ends. Failures are in test_mover_faults.c. */
#include "tests/mover_fixture.h"

#include <pthread.h>

static unsigned edge_of(const struct spw__move *move)
{
    return SPW__MOVER_EDGES + 3 * ((unsigned)move->from.tier * SPW_TIER_COUNT + (unsigned)move->to.tier);
}

/* Less than a block, blocks, segments, and more segments than there are units. */
static const uint64_t sizes[] = {1, BLOCK - 1, BLOCK, SEGMENT, 5 * SEGMENT + 123, 40 * SEGMENT + BLOCK + 1};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void memory_to_memory(enum kind from_kind, enum kind to_kind, uint64_t bytes)
{
    struct job job;
    const struct spw__end from = make_end(from_kind, bytes), to = make_end(to_kind, bytes);
    fill_end(&from, bytes, 5);
    prepare(&job, from, to, bytes);
    const unsigned edge = edge_of(&job.move);
    const uint64_t copies = counted(edge), moved = counted(edge + 1);
    ck_assert_int_eq(run(&job), SPW_OK);
    ck_assert(end_holds(&to, bytes, 5));
    ck_assert(end_holds(&from, bytes, 5));
    ck_assert_uint_eq(counted(edge), copies + 1);
    ck_assert_uint_eq(counted(edge + 1), moved + bytes);
    free_end(&from);
    free_end(&to);
}

START_TEST(every_edge_between_memories_carries_every_byte)
{
    rig_open(&modes[_i], 1, 64 * MIB);
    for (enum kind from = 0; from < MEMORY_KINDS; from++)
        for (enum kind to = 0; to < MEMORY_KINDS; to++)
            for (unsigned i = 0; i < SIZES; i++)
                memory_to_memory(from, to, sizes[i]);
    ck_assert_uint_eq(counted(SPW__MOVER_DISK_WRITTEN), 0);
    rig_close();
}
END_TEST

static void memory_to_disk_and_back(enum kind from_kind, enum kind to_kind, uint64_t bytes)
{
    struct job out, back;
    const struct spw__end from = make_end(from_kind, bytes), to = make_end(to_kind, bytes);
    const uint64_t written = counted(SPW__MOVER_DISK_WRITTEN), read = counted(SPW__MOVER_DISK_READ);
    fill_end(&from, bytes, 9);
    prepare(&out, from, make_end(DISK, bytes), bytes);
    const uint64_t copies = counted(edge_of(&out.move));
    ck_assert_int_eq(run(&out), SPW_OK);
    ck_assert_uint_ne(out.move.sum, 0);
    ck_assert_uint_eq(out.move.to.extent.bytes, padded(bytes));
    ck_assert_uint_eq(counted(edge_of(&out.move)), copies + 1); /* one edge, through staging or not */
    ck_assert_uint_eq(counted(SPW__MOVER_DISK_WRITTEN), written + padded(bytes));
    ck_assert_int_eq(fetch(&back, &out, to), SPW_OK);
    ck_assert_uint_eq(counted(SPW__MOVER_DISK_READ), read + padded(bytes));
    ck_assert(end_holds(&to, bytes, 9));
    if (to_kind == TIGHT) /* nothing is written beyond an end's own bytes */
        ck_assert_int_eq(((unsigned char *)(uintptr_t)to.address)[bytes], 0xee);
    free_end(&out.move.to);
    free_end(&from);
    free_end(&to);
}

START_TEST(every_edge_to_disk_and_back_carries_every_byte_direct_or_staged)
{
    rig_open(&modes[_i], 1, 64 * MIB);
    for (enum kind from = 0; from < MEMORY_KINDS; from++)
        for (enum kind to = 0; to < MEMORY_KINDS; to++)
            for (unsigned i = 0; i < SIZES; i++)
                memory_to_disk_and_back(from, to, sizes[i]);
    ck_assert_uint_eq(counted(SPW__MOVER_CORRUPT), 0);
    rig_close();
}
END_TEST

START_TEST(many_moves_at_once_share_the_staging_slots)
{
    enum { N = 12, BYTES = 9 * SEGMENT + 1000 };
    struct job out[N], back[N];
    rig_open(&modes[_i], 2, 64 * MIB);
    for (unsigned i = 0; i < N; i++) {
        const struct spw__end from = make_end(i % 2 ? DEVICE : ODD, BYTES);
        fill_end(&from, BYTES, i);
        prepare(&out[i], from, make_end(DISK, BYTES), BYTES);
        spw__mover_submit(rig.mover, &out[i].move);
    }
    for (unsigned i = 0; i < N; i++) {
        wait_for(&out[i]);
        ck_assert_int_eq(out[i].status, SPW_OK);
        prepare(&back[i], out[i].move.to, make_end(i % 3 ? DEVICE : TIGHT, BYTES), BYTES);
        back[i].move.sum = out[i].move.sum;
        back[i].move.demand = true;
        spw__mover_submit(rig.mover, &back[i].move);
    }
    for (unsigned i = 0; i < N; i++) {
        wait_for(&back[i]);
        ck_assert_int_eq(back[i].status, SPW_OK);
        ck_assert(end_holds(&back[i].move.to, BYTES, i));
        free_end(&out[i].move.from);
        free_end(&out[i].move.to);
        free_end(&back[i].move.to);
    }
    rig_close();
}
END_TEST

static struct job next_job;

static void submit_next(struct spw__move *move, int status)
{
    next_job.move.from = move->to;
    next_job.move.sum = move->sum;
    spw__mover_submit(rig.mover, &next_job.move);
    job_done(move, status);
}

START_TEST(done_may_submit_the_next_move)
{
    struct job job;
    rig_open(&modes[_i], 1, 64 * MIB);
    const struct spw__end from = make_end(ALIGNED, SEGMENT), to = make_end(DEVICE, SEGMENT);
    fill_end(&from, SEGMENT, 1);
    prepare(&next_job, from, to, SEGMENT);
    prepare(&job, from, make_end(DISK, SEGMENT), SEGMENT);
    job.move.done = submit_next;
    ck_assert_int_eq(run(&job), SPW_OK);
    wait_for(&next_job);
    ck_assert_int_eq(next_job.status, SPW_OK);
    ck_assert(end_holds(&to, SEGMENT, 1));
    free_end(&job.move.to);
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

/* A move of more segments than there are units, started but not all issued: nothing else starts before it is. */
static void fill_the_depth(struct job *job)
{
    const uint64_t bytes = (SPW__UNITS + 8) * SEGMENT;
    prepare(job, make_end(ALIGNED, bytes), make_end(DISK, bytes), bytes);
    spw__mover_submit(rig.mover, &job->move);
    ck_assert(spw__mover_drive(rig.mover, 0));
    ck_assert_uint_eq(job->move.issued_bytes, SPW__UNITS * SEGMENT);
}

static void finish_the_depth(struct job *job)
{
    wait_for(job);
    ck_assert_int_eq(job->status, SPW_OK);
    free_end(&job->move.from);
    free_end(&job->move.to);
}

START_TEST(demand_overtakes_background_which_does_not_starve)
{
    enum { DEMAND = 10, BACKGROUND = 3, ALL = DEMAND + BACKGROUND };
    static const char *const expected = "ddddbddddbddb";
    char order[ALL + 1] = "";
    struct job full, jobs[ALL];
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = make_end(ALIGNED, BLOCK), to = make_end(ODD, BLOCK);
    fill_the_depth(&full);
    for (unsigned i = 0; i < ALL; i++) { /* the background ones come first */
        prepare(&jobs[i], from, to, BLOCK);
        jobs[i].move.demand = i >= BACKGROUND;
        spw__mover_submit(rig.mover, &jobs[i].move);
    }
    for (unsigned i = 0; i < ALL; i++)
        wait_for(&jobs[i]);
    for (unsigned i = 0, n = 0; i < rig.n_ended; i++)
        if (rig.ended[i] != &full)
            order[n++] = rig.ended[i]->move.demand ? 'd' : 'b';
    ck_assert_str_eq(order, expected);
    finish_the_depth(&full);
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

START_TEST(moves_of_one_kind_start_in_the_order_submitted)
{
    enum { N = 10 };
    struct job full, jobs[N];
    unsigned next = 0;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = make_end(ALIGNED, BLOCK), to = make_end(ODD, BLOCK);
    fill_the_depth(&full);
    for (unsigned i = 0; i < N; i++) {
        prepare(&jobs[i], from, to, BLOCK);
        jobs[i].move.demand = true;
        spw__mover_submit(rig.mover, &jobs[i].move);
    }
    for (unsigned i = 0; i < N; i++)
        wait_for(&jobs[i]);
    for (unsigned i = 0; i < rig.n_ended; i++)
        if (rig.ended[i] != &full)
            ck_assert_ptr_eq(rig.ended[i], &jobs[next++]);
    ck_assert_uint_eq(next, N);
    finish_the_depth(&full);
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

START_TEST(a_cancel_before_the_start_carries_nothing_and_one_after_it_is_too_late)
{
    struct job full, memory, disk;
    rig_open(DRIVEN, 1, 64 * MIB);
    const struct spw__end from = make_end(ALIGNED, BLOCK), to = make_end(ODD, BLOCK);
    fill_end(&from, BLOCK, 3);
    fill_the_depth(&full);
    prepare(&memory, from, to, BLOCK);
    prepare(&disk, from, make_end(DISK, BLOCK), BLOCK);
    spw__mover_submit(rig.mover, &memory.move);
    spw__mover_submit(rig.mover, &disk.move);
    spw__mover_cancel(&memory.move);
    spw__mover_cancel(&disk.move);
    spw__mover_cancel(&full.move);
    wait_for(&memory);
    wait_for(&disk);
    ck_assert_int_eq(memory.status, SPW_ECANCELED);
    ck_assert_int_eq(memory.error.code, SPW_ECANCELED);
    ck_assert_int_eq(disk.status, SPW_ECANCELED);
    ck_assert_uint_eq(disk.move.to.extent.bytes, 0);
    ck_assert(!end_holds(&to, BLOCK, 3));
    ck_assert_uint_eq(counted(edge_of(&memory.move)), 0);
    finish_the_depth(&full);
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

START_TEST(a_copy_that_is_dropped_after_its_start_is_described_also_where_there_is_no_disk)
{
    struct job job;
    rig_prepare(1, 64 * MIB);
    rig.config.store = NULL;
    rig_create(DRIVEN);
    const struct spw__end from = make_end(ALIGNED, BLOCK), to = make_end(ODD, BLOCK);
    fill_end(&from, BLOCK, 3);
    prepare(&job, from, to, BLOCK);
    atomic_store(&job.move.drop, true); /* as if it came after the look that cancel is for */
    ck_assert_int_eq(run(&job), SPW_ECANCELED);
    ck_assert(!end_holds(&to, BLOCK, 3));
    ck_assert_uint_eq(job.error.place, SPW_HOST);
    ck_assert_ptr_nonnull(strstr(job.error.message, "from host to pinned_host failed: called off"));
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

static spw__stream busy_stream; /* given work that takes longer than a round of the mover */
static struct spw__end work, scratch;

static struct spw__use use_after_work(void)
{
    struct spw__use use = {.refs = 1};
    work = make_end(DEVICE, 8 * MIB);
    scratch = make_end(DEVICE, 8 * MIB);
    fill_end(&work, 8 * MIB, 6);
    ck_assert_int_eq(spw__device_stream_create(rig.device, &busy_stream), SPW_OK);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(spw__device_copy_within(rig.device, busy_stream, scratch.address, work.address, 8 * MIB), 0);
    ck_assert_int_eq(spw__device_event_record(rig.device, busy_stream, &use.event), SPW_OK);
    return use;
}

static void end_use(struct spw__use *use)
{
    spw__device_event_put(rig.device, use->event);
    ck_assert_int_eq(spw__device_stream_destroy(rig.device, busy_stream), SPW_OK);
    free_end(&work);
    free_end(&scratch);
}

static int event_state;

static void look_at_the_event(struct spw__move *move, int status)
{
    event_state = spw__device_event_query(rig.device, move->use->event);
    job_done(move, status);
}

START_TEST(a_move_of_no_bytes_only_waits_for_the_last_use)
{
    struct job job;
    rig_open(&modes[_i], 1, 64 * MIB);
    struct spw__use use = use_after_work();
    event_state = SPW_EAGAIN;
    prepare(&job, (struct spw__end){.tier = SPW_TIER_DEVICE}, (struct spw__end){.tier = SPW_TIER_DEVICE}, 0);
    job.move.use = &use;
    job.move.done = look_at_the_event;
    ck_assert_int_eq(run(&job), SPW_OK);
    ck_assert_int_eq(event_state, SPW_OK);
    ck_assert_uint_eq(counted(edge_of(&job.move)), 0);
    end_use(&use);
    rig_close();
}
END_TEST

START_TEST(moves_come_after_the_last_use_of_their_memory)
{
    struct job out, in;
    rig_open(&modes[_i], 1, 64 * MIB);
    struct spw__use use = use_after_work();
    const struct spw__end down = make_end(ALIGNED, 8 * MIB), up = make_end(ALIGNED, 8 * MIB);
    fill_end(&up, 8 * MIB, 7);
    prepare(&out, scratch, down, 8 * MIB); /* what the stream has been given to write is what arrives */
    out.move.use = &use;
    spw__mover_submit(rig.mover, &out.move);
    prepare(&in, up, work, 8 * MIB); /* and what it has been given to read is not overwritten */
    in.move.use = &use;
    spw__mover_submit(rig.mover, &in.move);
    wait_for(&out);
    wait_for(&in);
    ck_assert_int_eq(out.status, SPW_OK);
    ck_assert_int_eq(in.status, SPW_OK);
    ck_assert(end_holds(&down, 8 * MIB, 6));
    ck_assert(end_holds(&scratch, 8 * MIB, 6));
    ck_assert(end_holds(&work, 8 * MIB, 7));
    free_end(&down);
    free_end(&up);
    end_use(&use);
    rig_close();
}
END_TEST

START_TEST(destroy_finishes_what_was_submitted)
{
    enum { N = 20, BYTES = 3 * SEGMENT };
    struct job jobs[N];
    rig_open(&modes[_i], 1, 64 * MIB);
    for (unsigned i = 0; i < N; i++) {
        const struct spw__end from = make_end(i % MEMORY_KINDS, BYTES);
        fill_end(&from, BYTES, i);
        prepare(&jobs[i], from, make_end(i % 3 ? DISK : ODD, BYTES), BYTES);
        spw__mover_submit(rig.mover, &jobs[i].move);
    }
    spw__mover_destroy(rig.mover);
    rig.mover = NULL;
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(jobs[i].calls, 1);
        ck_assert_int_eq(jobs[i].status, SPW_OK);
        if (i % 3 == 0)
            ck_assert(end_holds(&jobs[i].move.to, BYTES, i));
        free_end(&jobs[i].move.from);
        free_end(&jobs[i].move.to);
    }
    rig_close();
}
END_TEST

static void *submit_and_wait(void *arg)
{
    const unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < 20; i++) {
        struct job out, back;
        const uint64_t bytes = 1 + (seed * 7919 + i * 4099) % (3 * SEGMENT);
        const struct spw__end from = make_end(i % 2 ? ODD : ALIGNED, bytes), to = make_end(ODD, bytes);
        fill_end(&from, bytes, seed + i);
        ck_assert_int_eq(carry(&out, from, make_end(DISK, bytes), bytes), SPW_OK);
        ck_assert_int_eq(fetch(&back, &out, to), SPW_OK);
        ck_assert(end_holds(&to, bytes, seed + i));
        free_end(&out.move.to);
        free_end(&from);
        free_end(&to);
    }
    return NULL;
}

START_TEST(several_threads_submit_and_with_threads_0_drive)
{
    pthread_t threads[3];
    rig_open(&modes[_i], 2, 64 * MIB);
    for (uintptr_t i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, submit_and_wait, (void *)i), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    rig_close();
}
END_TEST

START_TEST(drive_says_whether_work_is_left)
{
    struct job job;
    rig_open(DRIVEN, 1, 64 * MIB);
    ck_assert(!spw__mover_drive(rig.mover, 0));
    const struct spw__end from = make_end(ALIGNED, SEGMENT);
    prepare(&job, from, make_end(DISK, SEGMENT), SEGMENT);
    spw__mover_submit(rig.mover, &job.move);
    while (spw__mover_drive(rig.mover, 1000000))
        ck_assert_uint_le(job.calls, 1);
    ck_assert_uint_eq(job.calls, 1);
    ck_assert(!spw__mover_drive(rig.mover, 0));
    free_end(&from);
    free_end(&job.move.to);
    rig_close();
}
END_TEST

START_TEST(a_mover_needs_neither_disk_nor_device)
{
    struct job job;
    rig_prepare(1, MIB);
    rig.config.store = NULL;
    rig.config.device = NULL;
    rig_create(&modes[_i]);
    const struct spw__end from = make_end(ALIGNED, MIB), to = make_end(ODD, MIB);
    fill_end(&from, MIB, 2);
    ck_assert_int_eq(carry(&job, from, to, MIB), SPW_OK);
    ck_assert(end_holds(&to, MIB, 2));
    free_end(&from);
    free_end(&to);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mover");
    TCase *tcase = tcase_create("in every mode");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_edge_between_memories_carries_every_byte, 0, MODES);
    tcase_add_loop_test(tcase, every_edge_to_disk_and_back_carries_every_byte_direct_or_staged, 0, MODES);
    tcase_add_loop_test(tcase, many_moves_at_once_share_the_staging_slots, 0, MODES);
    tcase_add_loop_test(tcase, done_may_submit_the_next_move, 0, MODES);
    tcase_add_loop_test(tcase, a_move_of_no_bytes_only_waits_for_the_last_use, 0, MODES);
    tcase_add_loop_test(tcase, moves_come_after_the_last_use_of_their_memory, 0, MODES);
    tcase_add_loop_test(tcase, destroy_finishes_what_was_submitted, 0, MODES);
    tcase_add_loop_test(tcase, several_threads_submit_and_with_threads_0_drive, 0, MODES);
    tcase_add_loop_test(tcase, a_mover_needs_neither_disk_nor_device, 0, MODES);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("driven");
    tcase_add_test(tcase, demand_overtakes_background_which_does_not_starve);
    tcase_add_test(tcase, moves_of_one_kind_start_in_the_order_submitted);
    tcase_add_test(tcase, a_cancel_before_the_start_carries_nothing_and_one_after_it_is_too_late);
    tcase_add_test(tcase, a_copy_that_is_dropped_after_its_start_is_described_also_where_there_is_no_disk);
    tcase_add_test(tcase, drive_says_whether_work_is_left);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
