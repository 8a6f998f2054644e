/* What the tests of reclaimers share: a task with state in raw memory that a reclaimer frees, and others' requests. */
#ifndef SPW_TESTS_RECLAIM_FIXTURE_H
#define SPW_TESTS_RECLAIM_FIXTURE_H

#include "tests/manager_fixture.h"

static void setup(void)
{
    make_folder();
    open_manager(SMALL_HOST);
}

static void teardown(void)
{
    if (manager)
        close_manager();
    remove_folder();
}

enum { BLOCKS_MAX = 16, CALLS_MAX = 16 };
#define BLOCK (64 * KIB)

/* An operator's state: raw blocks of 64 KiB, and what became of it. */
struct table {
    spw_task *task;
    spw_reclaimer *reclaimer;
    spw_block blocks[BLOCKS_MAX];
    atomic_uint n_blocks, calls;
    uint64_t asked[CALLS_MAX]; /* by each call */
    uint64_t keeps;            /* bytes that it says it could free, and does not */
    uint64_t lies;             /* bytes that it says it freed, and has not */
    void (*inside)(struct table *table);
    pthread_t caller;
};

static atomic_uint running __attribute__((unused)); /* callbacks */

static inline uint64_t estimate(void *arg)
{
    const struct table *table = arg;
    return atomic_load(&table->n_blocks) * BLOCK + table->keeps;
}

static inline uint64_t reclaim(void *arg, uint64_t bytes)
{
    struct table *table = arg;
    uint64_t freed = table->lies;
    const unsigned call = atomic_load(&table->calls);
    ck_assert_uint_lt(call, CALLS_MAX);
    ck_assert_uint_eq(atomic_fetch_add(&running, 1), 0);
    table->asked[call] = bytes;
    table->caller = pthread_self();
    atomic_store(&table->calls, call + 1);
    if (table->inside)
        table->inside(table);
    while (freed < bytes && atomic_load(&table->n_blocks)) {
        const unsigned last = atomic_fetch_sub(&table->n_blocks, 1) - 1;
        ck_assert_int_eq(spw_pool_free(manager, &table->blocks[last], NULL), SPW_OK);
        freed += BLOCK;
    }
    (void)atomic_fetch_sub(&running, 1);
    return freed;
}

static inline spw_reclaimer_options options_for(struct table *table, const char *name, uint64_t cost_ns_per_mib)
{
    spw_reclaimer_options options;
    spw_reclaimer_options_init(&options);
    options.name = name;
    options.place = SPW_HOST;
    options.cost_ns_per_mib = cost_ns_per_mib;
    options.estimate = estimate;
    options.reclaim = reclaim;
    options.arg = table;
    return options;
}

static inline void must_register(struct table *table, const spw_reclaimer_options *options)
{
    const int rc = spw_reclaimer_register(table->task, options, &table->reclaimer);
    ck_assert_msg(rc == SPW_OK, "register: %s", spw_error_detail()->message);
}

static inline spw_task *must_create_task(const char *name, int64_t priority)
{
    spw_task *task = NULL;
    spw_task_options options;
    spw_task_options_init(&options);
    options.name = name;
    options.priority = priority;
    ck_assert_int_eq(spw_task_create(manager, &options, &task), SPW_OK);
    return task;
}

/* The calling thread's state of so many blocks, with a reclaimer. The thread stays attached. */
static inline void build_blocks(struct table *table, unsigned n_blocks)
{
    for (unsigned i = 0; i < n_blocks; i++)
        ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, BLOCK, 0, NULL, NULL, &table->blocks[i]), SPW_OK);
    atomic_store(&table->n_blocks, n_blocks);
}

static inline void build_table(struct table *table, unsigned n_blocks, const char *name, uint64_t cost_ns_per_mib)
{
    const spw_reclaimer_options options = options_for(table, name, cost_ns_per_mib);
    table->task = must_create_task(name, 0);
    ck_assert_int_eq(spw_task_attach(table->task), SPW_OK);
    build_blocks(table, n_blocks);
    must_register(table, &options);
}

static inline void drop_table(struct table *table)
{
    while (atomic_load(&table->n_blocks))
        ck_assert_int_eq(spw_pool_free(manager, &table->blocks[atomic_fetch_sub(&table->n_blocks, 1) - 1], NULL),
                         SPW_OK);
    ck_assert_int_eq(spw_reclaimer_unregister(table->reclaimer), SPW_OK);
}

static inline void end_table(struct table *table)
{
    drop_table(table);
    ck_assert_int_eq(spw_task_detach(table->task), SPW_OK);
    const int rc = spw_task_destroy(table->task);
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
}

static inline void begin_outside(const struct table *table)
{
    ck_assert_int_eq(spw_task_block_begin(table->task, "a message"), SPW_OK);
}

static inline void end_outside(const struct table *table)
{
    ck_assert_int_eq(spw_task_block_end(table->task), SPW_OK);
}

/* A request for host memory by another thread. */
struct wanted {
    size_t bytes;
    spw_task *task; /* that the thread works for; NULL: none */
    pthread_t thread;
    spw_buffer *buffer;
    int rc;
    atomic_bool over;
};

static inline void *want(void *arg)
{
    struct wanted *wanted = arg;
    if (wanted->task)
        ck_assert_int_eq(spw_task_attach(wanted->task), SPW_OK);
    wanted->rc = spw_alloc(manager, SPW_HOST, wanted->bytes, NULL, &wanted->buffer);
    atomic_store(&wanted->over, true);
    if (wanted->task)
        ck_assert_int_eq(spw_task_detach(wanted->task), SPW_OK);
    return NULL;
}

static inline void start(struct wanted *wanted, size_t bytes)
{
    wanted->bytes = bytes;
    wanted->thread = must_start(want, wanted);
}

static inline void join_thread(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* Its request was granted; the buffer is given back. */
static inline void must_get(struct wanted *wanted)
{
    join_thread(wanted->thread);
    ck_assert_msg(wanted->rc == SPW_OK, "alloc: %s", spw_error_name(wanted->rc));
    must_release(wanted->buffer);
}

/* Until so many wait for host memory, asleep. */
static inline void until_waiting(unsigned n)
{
    while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) != n)
        (void)sched_yield();
}

static inline bool task_runs(const spw_task *task)
{
    spw__mutex_lock(&manager->waits.lock);
    const bool runs = task->running;
    spw__mutex_unlock(&manager->waits.lock);
    return runs;
}

/* A table with 64 KiB set aside, which take the place of a block. */
static inline void build_with_reserve(struct table *table, unsigned n_blocks)
{
    spw_reclaimer_options options = options_for(table, "join", 0);
    options.reserve_bytes = 64 * KIB;
    table->task = must_create_task("join", 0);
    ck_assert_int_eq(spw_task_attach(table->task), SPW_OK);
    build_blocks(table, n_blocks);
    must_register(table, &options);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->reserved_bytes, 64 * KIB);
}

/* Another thread wants so many bytes while table's owner waits. */
static inline void let_others_have(struct table *table, size_t bytes)
{
    struct wanted wanted = {.over = false};
    begin_outside(table);
    start(&wanted, bytes);
    must_get(&wanted);
    end_outside(table);
}

/* A callback that stays inside until it is let go. */
static pthread_barrier_t entered __attribute__((unused)), leaving __attribute__((unused));

static inline void stay_inside(struct table *table)
{
    (void)table;
    (void)pthread_barrier_wait(&entered);
    (void)pthread_barrier_wait(&leaving);
}

static inline void begin_stays(void)
{
    ck_assert_int_eq(pthread_barrier_init(&entered, NULL, 2), 0);
    ck_assert_int_eq(pthread_barrier_init(&leaving, NULL, 2), 0);
}

static inline void end_stays(void)
{
    (void)pthread_barrier_destroy(&entered);
    (void)pthread_barrier_destroy(&leaving);
}

#endif
