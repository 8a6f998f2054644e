/* The I/O engines: every test runs on io_uring with and without a single owner, and on threads. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "spill/io/io.h"

#define KIB 1024u
#define DEPTH 8u
#define BLOCK (4 * KIB)
#define MEMORY_BYTES (4096u * KIB)
#define SECOND INT64_C(1000000000)

enum { URING_SINGLE, URING_SHARED, THREADS, ENGINES };

static struct spw__meta meta;
static struct spw__io *io;
static int fd;
static unsigned char *memory; /* MEMORY_BYTES, aligned for O_DIRECT */
static unsigned log_lines;
static char last_line[512];

static void keep_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    log_lines++;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
}

static const struct spw__log line_log = {.fn = keep_line};

static struct spw__io_config config_of(int engine)
{
    return (struct spw__io_config){
        .kind = engine == THREADS ? SPW_IO_THREADS : SPW_IO_URING,
        .depth = DEPTH,
        .single_owner = engine == URING_SINGLE,
        .log = &line_log,
        .meta = &meta,
    };
}

/* False, and a line that says so, where this kernel or sandbox refuses io_uring. */
static bool open_engine(int engine)
{
    const struct spw__io_config config = config_of(engine);
    const int rc = spw__io_create(&config, &io);
    if (rc == SPW_ENOTSUP) {
        (void)fprintf(stderr, "skipped for io_uring: %s\n", spw_error_detail()->message);
        return false;
    }
    ck_assert_int_eq(rc, SPW_OK);
    ck_assert_int_eq(spw__io_is_uring(io), engine != THREADS);
    return true;
}

static void setup(void)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, sizeof path, "%s/spillway-io-XXXXXX", folder ? folder : "/var/tmp");
    fd = mkostemp(path, O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(unlink(path), 0);
    (void)fcntl(fd, F_SETFL, O_DIRECT); /* where it is refused the tests hold all the same */
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    spw__meta_init(&meta, 1 << 20);
}

static void teardown(void)
{
    if (io)
        ck_assert_uint_eq(spw__io_in_flight(io), 0);
    spw__io_destroy(io);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
}

static unsigned n_done;

static void count_done(struct spw__io_req *req)
{
    ck_assert_int_ne(req->result, INT32_MIN);
    n_done++;
}

static struct spw__io_req request(bool write, void *data, uint64_t offset, uint32_t bytes)
{
    return (struct spw__io_req){
        .fd = fd, .write = write, .data = data, .offset = offset, .bytes = bytes, .result = INT32_MIN,
        .done = count_done};
}

static void drain(void)
{
    while (spw__io_in_flight(io) != 0)
        (void)spw__io_poll(io, -1);
}

/* One request from submit to done; gives its result. */
static int transfer(bool write, void *data, uint64_t offset, uint32_t bytes)
{
    struct spw__io_req req = request(write, data, offset, bytes);
    ck_assert_int_eq(spw__io_submit(io, &req), SPW_OK);
    drain();
    return req.result;
}

static void fill(unsigned char *data, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 13);
}

static unsigned differing_bits(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    unsigned n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += (unsigned)__builtin_popcount(a[i] ^ b[i]);
    return n;
}

/* Moves the first half of memory to the file and back into the second half, DEPTH requests at a time. */
static void round_trip(uint32_t request_bytes)
{
    const uint32_t half = MEMORY_BYTES / 2;
    struct spw__io_req reqs[DEPTH];
    fill(memory, half, request_bytes);
    memset(memory + half, 0, half);
    for (int write = 1; write >= 0; write--)
        for (uint32_t at = 0; at < half;) {
            unsigned n = 0;
            for (; n < DEPTH && at < half; n++, at += request_bytes) {
                const uint32_t bytes = half - at < request_bytes ? half - at : request_bytes;
                reqs[n] = request(write, memory + (write ? 0 : half) + at, at, bytes);
                ck_assert_int_eq(spw__io_submit(io, &reqs[n]), SPW_OK);
            }
            drain();
            while (n-- > 0)
                ck_assert_int_eq(reqs[n].result, 0);
        }
    ck_assert_int_eq(memcmp(memory, memory + half, half), 0);
}

START_TEST(what_was_written_is_read_back)
{
    if (!open_engine(_i))
        return;
    round_trip(BLOCK);
    round_trip(100 * KIB);
    round_trip(1024 * KIB);
    ck_assert_uint_eq(n_done, 2 * (512 + 21 + 2));
}
END_TEST

START_TEST(submit_beyond_the_depth_is_EAGAIN)
{
    struct spw__io_req reqs[DEPTH + 1];
    if (!open_engine(_i))
        return;
    for (unsigned i = 0; i <= DEPTH; i++) {
        reqs[i] = request(true, memory + i * BLOCK, i * BLOCK, BLOCK);
        ck_assert_int_eq(spw__io_submit(io, &reqs[i]), i < DEPTH ? SPW_OK : SPW_EAGAIN);
    }
    ck_assert_uint_eq(spw__io_in_flight(io), DEPTH);
    ck_assert_uint_eq(n_done, 0); /* done is called by poll only */
    drain();
    ck_assert_uint_eq(n_done, DEPTH);
    ck_assert_int_eq(spw__io_submit(io, &reqs[DEPTH]), SPW_OK);
    drain();
    ck_assert_uint_eq(n_done, DEPTH + 1);
}
END_TEST

START_TEST(nothing_in_flight_and_no_wait_gives_nothing)
{
    if (!open_engine(_i))
        return;
    ck_assert_uint_eq(spw__io_poll(io, 0), 0);
    ck_assert_uint_eq(spw__io_poll(io, SECOND / 1000), 0);
    ck_assert_int_eq(transfer(true, memory, 0, 0), 0);
    ck_assert_uint_eq(n_done, 1);
}
END_TEST

static struct spw__io_req chain;

static void submit_next(struct spw__io_req *req)
{
    ck_assert_int_eq(req->result, 0);
    n_done++;
    req->offset += BLOCK;
    if (n_done < 20)
        ck_assert_int_eq(spw__io_submit(io, req), SPW_OK);
}

START_TEST(a_request_may_be_submitted_again_from_its_callback)
{
    struct stat status;
    if (!open_engine(_i))
        return;
    chain = request(true, memory, 0, BLOCK);
    chain.done = submit_next;
    ck_assert_int_eq(spw__io_submit(io, &chain), SPW_OK);
    drain();
    ck_assert_uint_eq(n_done, 20);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(status.st_size, 20 * BLOCK);
}
END_TEST

START_TEST(short_transfers_are_continued)
{
    if (!open_engine(_i))
        return;
    spw__fault_arm(SPW__FAULT_IO_SHORT, 1, 0, EIO);
    round_trip(1024 * KIB);
    /* 1024 KiB is cut to a half again and again, down to the last block: 8 cuts and more. */
    ck_assert_int_ge(spw__fault_calls(SPW__FAULT_IO_SHORT), 4 * 8);
    round_trip(BLOCK);
    round_trip(12 * KIB);
}
END_TEST

START_TEST(a_read_that_meets_the_end_of_the_file_is_ENODATA)
{
    if (!open_engine(_i))
        return;
    fill(memory, 3 * BLOCK, 1);
    ck_assert_int_eq(transfer(true, memory, 0, 3 * BLOCK), 0);
    ck_assert_int_eq(transfer(false, memory, 0, 4 * BLOCK), ENODATA);
    ck_assert_int_eq(transfer(false, memory, 3 * BLOCK, BLOCK), ENODATA);
    ck_assert_int_eq(ftruncate(fd, 2 * BLOCK + 1000), 0); /* ends inside a block */
    ck_assert_int_eq(transfer(false, memory, 0, 4 * BLOCK), ENODATA);
    ck_assert_int_eq(transfer(false, memory, 0, 2 * BLOCK), 0);
}
END_TEST

START_TEST(the_kernels_error_is_the_result)
{
    if (!open_engine(_i))
        return;
    struct spw__io_req req = request(true, memory, 0, BLOCK);
    req.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(req.fd, 0);
    ck_assert_int_eq(spw__io_submit(io, &req), SPW_OK);
    drain();
    ck_assert_int_eq(req.result, ENOSPC);
    ck_assert_int_eq(close(req.fd), 0);
    ck_assert_int_eq(spw__io_submit(io, &req), SPW_OK);
    drain();
    ck_assert_int_eq(req.result, EBADF);
}
END_TEST

START_TEST(fault_IO_SUBMIT_fails_before_anything_moves)
{
    struct stat status;
    if (!open_engine(_i))
        return;
    spw__fault_arm(SPW__FAULT_IO_SUBMIT, 2, 1, EIO);
    ck_assert_int_eq(transfer(true, memory, 0, BLOCK), 0);
    ck_assert_int_eq(transfer(true, memory, BLOCK, BLOCK), EIO);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(status.st_size, BLOCK);
    ck_assert_int_eq(transfer(true, memory, BLOCK, BLOCK), 0);
}
END_TEST

START_TEST(fault_IO_WRITE_and_IO_READ_give_the_armed_errno)
{
    if (!open_engine(_i))
        return;
    spw__fault_arm(SPW__FAULT_IO_WRITE, 1, 1, ENOSPC);
    spw__fault_arm(SPW__FAULT_IO_READ, 2, 1, EIO);
    ck_assert_int_eq(transfer(true, memory, 0, BLOCK), ENOSPC);
    ck_assert_int_eq(transfer(true, memory, 0, BLOCK), 0);
    ck_assert_int_eq(transfer(false, memory, 0, BLOCK), 0);
    ck_assert_int_eq(transfer(false, memory, 0, BLOCK), EIO);
    ck_assert_int_eq(transfer(false, memory, 0, BLOCK), 0);
}
END_TEST

START_TEST(fault_IO_FLIP_changes_one_bit_of_a_successful_read)
{
    unsigned char *const copy = memory + MEMORY_BYTES / 2;
    if (!open_engine(_i))
        return;
    fill(memory, 16 * BLOCK, 7);
    ck_assert_int_eq(transfer(true, memory, 0, 16 * BLOCK), 0);
    spw__fault_arm(SPW__FAULT_IO_FLIP, 1, 1, EIO);
    ck_assert_int_eq(transfer(false, copy, 0, 16 * BLOCK), 0);
    ck_assert_uint_eq(differing_bits(memory, copy, 16 * BLOCK), 1);
    ck_assert_int_eq(transfer(false, copy, 0, 16 * BLOCK), 0);
    ck_assert_uint_eq(differing_bits(memory, copy, 16 * BLOCK), 0);
}
END_TEST

START_TEST(a_wake_ends_the_next_wait_even_after_a_poll_that_does_not_wait)
{
    if (!open_engine(_i))
        return;
    spw__io_wake(io);
    spw__io_wake(io);
    ck_assert_uint_eq(spw__io_poll(io, 0), 0);
    ck_assert_uint_eq(spw__io_poll(io, -1), 0); /* would never return without the wake */
    ck_assert_uint_eq(spw__io_poll(io, SECOND / 1000), 0);
    for (int i = 0; i < 50; i++) {
        spw__io_wake(io);
        ck_assert_uint_eq(spw__io_poll(io, -1), 0);
    }
    ck_assert_int_eq(transfer(true, memory, 0, BLOCK), 0);
}
END_TEST

static atomic_uint wakes_wanted; /* atomic */

static void *wake_main(void *arg)
{
    (void)arg;
    for (unsigned i = 1; i <= 200; i++) {
        while (atomic_load(&wakes_wanted) < i)
            ;
        spw__io_wake(io);
    }
    return NULL;
}

START_TEST(a_wake_from_another_thread_ends_a_wait_without_limit)
{
    pthread_t waker;
    if (!open_engine(_i))
        return;
    ck_assert_int_eq(pthread_create(&waker, NULL, wake_main, NULL), 0);
    for (unsigned i = 1; i <= 200; i++) {
        atomic_store(&wakes_wanted, i);
        ck_assert_uint_eq(spw__io_poll(io, i % 2 ? -1 : 600 * SECOND), 0);
    }
    ck_assert_int_eq(pthread_join(waker, NULL), 0);
}
END_TEST

static void *round_trip_main(void *arg)
{
    (void)arg;
    round_trip(64 * KIB);
    return NULL;
}

START_TEST(an_engine_made_by_one_thread_is_driven_by_another)
{
    pthread_t owner;
    if (!open_engine(_i))
        return;
    (void)spw__io_register(io, memory, MEMORY_BYTES);
    ck_assert_int_eq(pthread_create(&owner, NULL, round_trip_main, NULL), 0);
    ck_assert_int_eq(pthread_join(owner, NULL), 0);
}
END_TEST

START_TEST(registered_memory_changes_nothing_but_speed)
{
    if (!open_engine(_i))
        return;
    /* A part in the middle: requests inside, outside and across its border. */
    const int rc = spw__io_register(io, memory + 1024 * KIB, 512 * KIB);
    ck_assert(rc == SPW_OK || rc == SPW_ENOMEM || rc == SPW_ENOTSUP);
    if (_i == THREADS)
        ck_assert_int_eq(rc, SPW_ENOTSUP);
    round_trip(96 * KIB);
    spw__fault_arm(SPW__FAULT_IO_SHORT, 1, 0, EIO);
    round_trip(1024 * KIB);
}
END_TEST

START_TEST(a_refused_registration_is_harmless)
{
    if (!open_engine(_i))
        return;
    void *nowhere = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_int_eq(spw__io_register(io, nowhere, BLOCK), SPW_ENOTSUP);
    ck_assert_int_eq(munmap(nowhere, BLOCK), 0);
    round_trip(96 * KIB);
}
END_TEST

START_TEST(create_without_metadata_memory_is_ENOMETA)
{
    const struct spw__io_config config = config_of(_i);
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_ENOMETA);
    ck_assert_ptr_null(io);
}
END_TEST

START_TEST(fault_IO_SETUP_steps_down_to_plainer_rings_then_to_threads)
{
    struct spw__io_config config = config_of(URING_SINGLE);
    if (!open_engine(URING_SINGLE))
        return;
    spw__io_destroy(io);
    for (long refused = 1; refused <= 2; refused++) {
        spw__fault_arm(SPW__FAULT_IO_SETUP, 1, refused, EINVAL);
        ck_assert_int_eq(spw__io_create(&config, &io), SPW_OK);
        ck_assert(spw__io_is_uring(io));
        ck_assert_int_eq(spw__fault_calls(SPW__FAULT_IO_SETUP), refused + 1);
        round_trip(256 * KIB);
        spw__io_destroy(io);
    }
    spw__fault_arm(SPW__FAULT_IO_SETUP, 1, 3, EPERM);
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_ENOTSUP);
    ck_assert_int_eq(spw_error_detail()->os_errno, EPERM);
    ck_assert_uint_eq(log_lines, 0);

    config.kind = SPW_IO_AUTO;
    spw__fault_arm(SPW__FAULT_IO_SETUP, 1, 3, EPERM);
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_OK);
    ck_assert(!spw__io_is_uring(io));
    ck_assert_uint_eq(log_lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, "threads"));
    round_trip(256 * KIB);
}
END_TEST

START_TEST(fault_THREAD_leaves_fewer_workers_or_none)
{
    const struct spw__io_config config = config_of(THREADS);
    spw__fault_arm(SPW__FAULT_THREAD, 3, 1, EAGAIN);
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_OK);
    ck_assert_uint_eq(log_lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, "2 of 4"));
    round_trip(256 * KIB);
    spw__io_destroy(io);
    spw__fault_arm(SPW__FAULT_THREAD, 1, 1, EAGAIN);
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_EIO);
    ck_assert_int_eq(spw_error_detail()->os_errno, EAGAIN);
    ck_assert_ptr_null(io);
}
END_TEST

START_TEST(a_depth_of_zero_is_EINVAL_and_destroy_takes_NULL)
{
    struct spw__io_config config = config_of(THREADS);
    config.depth = 0;
    ck_assert_int_eq(spw__io_create(&config, &io), SPW_EINVAL);
    spw__io_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io");
    TCase *tests = tcase_create("engines");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, what_was_written_is_read_back, 0, ENGINES);
    tcase_add_loop_test(tests, submit_beyond_the_depth_is_EAGAIN, 0, ENGINES);
    tcase_add_loop_test(tests, nothing_in_flight_and_no_wait_gives_nothing, 0, ENGINES);
    tcase_add_loop_test(tests, a_request_may_be_submitted_again_from_its_callback, 0, ENGINES);
    tcase_add_loop_test(tests, short_transfers_are_continued, 0, ENGINES);
    tcase_add_loop_test(tests, a_read_that_meets_the_end_of_the_file_is_ENODATA, 0, ENGINES);
    tcase_add_loop_test(tests, the_kernels_error_is_the_result, 0, ENGINES);
    tcase_add_loop_test(tests, fault_IO_SUBMIT_fails_before_anything_moves, 0, ENGINES);
    tcase_add_loop_test(tests, fault_IO_WRITE_and_IO_READ_give_the_armed_errno, 0, ENGINES);
    tcase_add_loop_test(tests, fault_IO_FLIP_changes_one_bit_of_a_successful_read, 0, ENGINES);
    tcase_add_loop_test(tests, a_wake_ends_the_next_wait_even_after_a_poll_that_does_not_wait, 0, ENGINES);
    tcase_add_loop_test(tests, a_wake_from_another_thread_ends_a_wait_without_limit, 0, ENGINES);
    tcase_add_loop_test(tests, an_engine_made_by_one_thread_is_driven_by_another, 0, ENGINES);
    tcase_add_loop_test(tests, registered_memory_changes_nothing_but_speed, 0, ENGINES);
    tcase_add_loop_test(tests, a_refused_registration_is_harmless, 0, ENGINES);
    tcase_add_loop_test(tests, create_without_metadata_memory_is_ENOMETA, 0, ENGINES);
    tcase_add_test(tests, fault_IO_SETUP_steps_down_to_plainer_rings_then_to_threads);
    tcase_add_test(tests, fault_THREAD_leaves_fewer_workers_or_none);
    tcase_add_test(tests, a_depth_of_zero_is_EINVAL_and_destroy_takes_NULL);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
