/* What the tests of tasks share: tasks that must be had, and threads that work for them. */
#ifndef SPW_TESTS_TASK_FIXTURE_H
#define SPW_TESTS_TASK_FIXTURE_H

#include "manager_fixture.h"

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

static inline spw_task *task_with(const char *name, int64_t priority, uint32_t asks_max)
{
    spw_task *task = NULL;
    spw_task_options options;
    spw_task_options_init(&options);
    options.name = name;
    options.priority = priority;
    options.asks_max = asks_max;
    ck_assert_int_eq(spw_task_create(manager, &options, &task), SPW_OK);
    return task;
}

static inline void end_task(spw_task *task)
{
    const int rc = spw_task_destroy(task);
    ck_assert_msg(rc == SPW_OK, "%s", spw_error_detail()->message);
}

static inline spw_task_usage usage_of(spw_task *task)
{
    spw_task_usage usage;
    spw_task_usage_init(&usage);
    ck_assert_int_eq(spw_task_usage_get(task, &usage), SPW_OK);
    return usage;
}

/* Memory that nothing can evict: unsealed. */
static inline spw_buffer *hold(size_t bytes)
{
    return must_alloc(SPW_HOST, bytes);
}

/* A thread that works for a task: it holds `held` bytes, asks for `wanted`, and says how that ended. */
struct worker {
    spw_task *task;
    size_t held, wanted;
    bool gives_back;      /* on SPW_ERETRY it releases what it holds and waits its turn */
    pthread_barrier_t *start;
    pthread_t thread;
    int first;            /* what the first request gave */
    int turn;             /* what wait_turn gave */
    int last;             /* what the last request gave */
    atomic_bool asked;
};

static inline int try_once(const struct worker *worker, spw_buffer **out)
{
    return spw_alloc(manager, SPW_HOST, worker->wanted, NULL, out);
}

static inline void *work(void *arg)
{
    struct worker *worker = arg;
    spw_buffer *got = NULL;
    ck_assert_int_eq(spw_task_attach(worker->task), SPW_OK);
    spw_buffer *held = worker->held ? hold(worker->held) : NULL;
    (void)pthread_barrier_wait(worker->start);
    worker->first = worker->last = try_once(worker, &got);
    if (worker->first == SPW_ERETRY && worker->gives_back) {
        atomic_store(&worker->asked, true);
        (void)spw_buffer_release(held);
        held = NULL;
        worker->turn = spw_task_wait_turn(worker->task, NULL);
        worker->last = try_once(worker, &got);
    }
    (void)spw_buffer_release(got);
    (void)spw_buffer_release(held);
    ck_assert_int_eq(spw_task_detach(worker->task), SPW_OK);
    return NULL;
}

static inline void join(struct worker *worker)
{
    ck_assert_int_eq(pthread_join(worker->thread, NULL), 0);
}

/* Until so many threads of the task wait for anything but their turn. */
static inline void await_blocked(spw_task *task, uint32_t n)
{
    for (;;) {
        spw__mutex_lock(&manager->waits.lock);
        const uint32_t blocked = task->turns ? 0 : task->blocked;
        spw__mutex_unlock(&manager->waits.lock);
        if (blocked == n)
            return;
        (void)sched_yield();
    }
}

static inline void await_parked(spw_task *task)
{
    for (;;) {
        spw__mutex_lock(&manager->waits.lock);
        const bool parked = task->turns && task->blocked;
        spw__mutex_unlock(&manager->waits.lock);
        if (parked)
            return;
        (void)sched_yield();
    }
}

#endif
