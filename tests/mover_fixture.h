/* What the mover's tests share: a mover with a disk store in a fresh folder, a simulated device and a small staging,
 * and jobs, which are moves that remember how they ended. Each test runs in a process of its own (Check forks). */
#ifndef SPW_TESTS_MOVER_FIXTURE_H
#define SPW_TESTS_MOVER_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "spill/mover.h"
#include "spill/transfer.h"
#include "tests/driver_fixture.h"
#include "tests/suite_fixture.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define BLOCK UINT64_C(4096)
#define STAGING (64 * KIB)
#define SEGMENT (16 * KIB) /* what so small a staging is cut into: four slots */

enum { FOLDERS_MAX = 3, JOBS_MAX = 64 };

/* Who does the I/O, and who drives. Both engines are to behave the same; io_uring is taken where it works. */
struct mode {
    spw_io_kind io;
    bool own_thread;
};
static const struct mode modes[] = {
    {SPW_IO_THREADS, false}, {SPW_IO_THREADS, true}, {SPW_IO_AUTO, false}, {SPW_IO_AUTO, true}};
enum { MODES = sizeof modes / sizeof *modes };
#define DRIVEN (&modes[0])

struct job {
    struct spw__move move; /* first: done casts back */
    sem_t over;
    _Atomic unsigned calls;
    int status;
    spw_error_info error;
};

static struct {
    char root[256];
    char folders[FOLDERS_MAX][300];
    spw_spec_folder specs[FOLDERS_MAX];
    struct spw__meta meta;
    struct spw__group group;
    struct spw__store *store;
    struct spw__device *device;
    struct spw__counters counters;
    struct spw__mover_config config;
    struct spw__mover *mover;
    struct job *ended[JOBS_MAX]; /* in the order in which they ended */
    unsigned n_ended;
    _Atomic unsigned log_lines;
} rig;

static inline void count_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
    rig.log_lines++;
}

static const struct spw__log rig_log = {.fn = count_line};

static inline void rig_create(const struct mode *mode)
{
    rig.config.io = mode->io;
    rig.config.own_thread = mode->own_thread;
    ck_assert_int_eq(spw__mover_create(&rig.config, &rig.mover), SPW_OK);
    ck_assert_uint_eq(rig.mover->segment_bytes, SEGMENT);
    ck_assert_uint_eq(rig.mover->n_slots, STAGING / SEGMENT);
}

/* Everything but the mover itself. */
static inline void rig_prepare(unsigned n_folders, uint64_t quota_bytes)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(rig.root, sizeof rig.root, "%.200s/spillway-mover-XXXXXX", folder ? folder : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(rig.root));
    spw__meta_init(&rig.meta, 16 * MIB);
    spw__group_init(&rig.group, NULL, NULL);
    for (unsigned i = 0; i < n_folders; i++) {
        (void)snprintf(rig.folders[i], sizeof rig.folders[i], "%s/%u", rig.root, i);
        rig.specs[i] = (spw_spec_folder){rig.folders[i], strlen(rig.folders[i]), quota_bytes};
    }
    ck_assert_int_eq(spw__store_create(rig.specs, n_folders, &rig.meta, &rig_log, &rig.store), SPW_OK);
    const struct spw__device_config device = {
        .kind = driver_kind(), .capacity_bytes = 64 * MIB, .log = &rig_log, .meta = &rig.meta};
    ck_assert_int_eq(spw__device_open(&device, &rig.device), SPW_OK);
    rig.config = (struct spw__mover_config){.store = rig.store, .device = rig.device,
                                            .staging = aligned_alloc(BLOCK, STAGING), .staging_bytes = STAGING,
                                            .verify = true, .log = &rig_log, .meta = &rig.meta,
                                            .counters = &rig.counters};
    ck_assert_ptr_nonnull(rig.config.staging);
    memset(rig.config.staging, 0, STAGING);
}

static inline void rig_open(const struct mode *mode, unsigned n_folders, uint64_t quota_bytes)
{
    rig_prepare(n_folders, quota_bytes);
    rig_create(mode);
}

/* What every test ends with: no space on disk held, no metadata, no file. */
static inline void rig_close(void)
{
    spw__mover_destroy(rig.mover);
    free(rig.config.staging);
    spw__device_close(rig.device);
    ck_assert_uint_eq(spw__ledger_committed(&rig.group, SPW_TIER_DISK), 0);
    spw__store_destroy(rig.store);
    ck_assert_uint_eq(atomic_load(&rig.meta.gate.committed), 0);
    ck_assert_int_eq(rmdir(rig.root), 0);
}

static inline uint64_t counted(unsigned which)
{
    return spw__counter_sum(&rig.counters, which);
}

/* Kinds of ends: memory that the disk reaches directly, or not for its address or its length; the device; the disk. */
enum kind { ALIGNED, ODD, TIGHT, DEVICE, MEMORY_KINDS, DISK = MEMORY_KINDS };

static inline uint64_t padded(uint64_t bytes)
{
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static inline struct spw__end make_end(enum kind kind, uint64_t bytes)
{
    struct spw__end end = {.tier = SPW_TIER_HOST, .capacity = kind == ALIGNED ? padded(bytes) : bytes};
    if (kind == DISK)
        return (struct spw__end){.tier = SPW_TIER_DISK};
    if (kind == DEVICE) {
        end.tier = SPW_TIER_DEVICE;
        ck_assert_int_eq(spw__device_alloc(rig.device, bytes, &end.address), SPW_OK);
        return end;
    }
    char *memory = aligned_alloc(BLOCK, padded(bytes) + BLOCK);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0xee, padded(bytes) + BLOCK);
    if (kind == ODD)
        end.tier = SPW_TIER_PINNED_HOST;
    end.address = (uint64_t)(uintptr_t)memory + (kind == ODD ? 13 : 0);
    return end;
}

static inline void free_end(const struct spw__end *end)
{
    if (end->tier == SPW_TIER_DISK)
        spw__store_free(rig.store, &end->extent);
    else if (end->tier == SPW_TIER_DEVICE)
        ck_assert_int_eq(spw__device_free(rig.device, end->address), SPW_OK);
    else
        free((void *)(uintptr_t)(end->address & ~(BLOCK - 1)));
}

static inline unsigned char *pattern(uint64_t bytes, unsigned seed)
{
    unsigned char *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 31 + (i >> 12) * 7 + seed);
    return data;
}

static inline void fill_end(const struct spw__end *end, uint64_t bytes, unsigned seed)
{
    unsigned char *data = pattern(bytes, seed);
    if (end->tier == SPW_TIER_DEVICE) {
        ck_assert_int_eq(spw__device_copy_to(rig.device, NULL, end->address, data, bytes), SPW_OK);
        ck_assert_int_eq(spw__device_synchronize(rig.device, NULL), SPW_OK);
    } else {
        memcpy((void *)(uintptr_t)end->address, data, bytes);
    }
    free(data);
}

static inline bool end_holds(const struct spw__end *end, uint64_t bytes, unsigned seed)
{
    unsigned char *data = pattern(bytes, seed), *found = malloc(bytes);
    ck_assert_ptr_nonnull(found);
    if (end->tier == SPW_TIER_DEVICE) {
        ck_assert_int_eq(spw__device_copy_from(rig.device, NULL, found, end->address, bytes), SPW_OK);
        ck_assert_int_eq(spw__device_synchronize(rig.device, NULL), SPW_OK);
    } else {
        memcpy(found, (const void *)(uintptr_t)end->address, bytes);
    }
    const bool same = memcmp(data, found, bytes) == 0;
    free(data);
    free(found);
    return same;
}

static inline void job_done(struct spw__move *move, int status)
{
    struct job *job = (struct job *)(void *)move;
    job->status = status;
    job->error = *spw_error_detail();
    job->calls++;
    if (rig.n_ended < JOBS_MAX)
        rig.ended[rig.n_ended++] = job;
    ck_assert_int_eq(sem_post(&job->over), 0);
}

static inline void prepare(struct job *job, struct spw__end from, struct spw__end to, uint64_t bytes)
{
    memset(job, 0, sizeof *job);
    ck_assert_int_eq(sem_init(&job->over, 0, 0), 0);
    job->move = (struct spw__move){.from = from, .to = to, .bytes = bytes, .group = &rig.group, .identity = 42,
                                   .done = job_done};
}

static inline void wait_for(struct job *job)
{
    while (!rig.config.own_thread && sem_trywait(&job->over) != 0)
        (void)spw__mover_drive(rig.mover, 1000000);
    while (rig.config.own_thread && sem_wait(&job->over) != 0)
        ck_assert_int_eq(errno, EINTR);
    ck_assert_uint_eq(job->calls, 1);
}

static inline int run(struct job *job)
{
    spw__mover_submit(rig.mover, &job->move);
    wait_for(job);
    return job->status;
}

/* A move of bytes from one end to another, from beginning to end. */
static inline int carry(struct job *job, struct spw__end from, struct spw__end to, uint64_t bytes)
{
    prepare(job, from, to, bytes);
    return run(job);
}

/* Brings what job wrote to disk back, with its sum. */
static inline int fetch(struct job *back, const struct job *written, struct spw__end to)
{
    prepare(back, written->move.to, to, written->move.bytes);
    back->move.sum = written->move.sum;
    return run(back);
}

#endif
