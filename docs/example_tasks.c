#include <spillway/spillway.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return NULL; } } while (0)
enum { MIB = 1 << 20, ROUNDS = 100, PARTS = 5 };

static spw_manager *manager;
static pthread_barrier_t start;

struct work {
    const char *name;
    int64_t priority;
    int done; /* rounds */
};

static void give_back(spw_buffer **held, int *n)
{
    while (*n > 0)
        (void)spw_buffer_release(held[--*n]);
}

/* A task that wants 5 MiB at once, piece by piece, where there are 8 MiB for two of its kind. */
static void *run(void *arg)
{
    struct work *work = arg;
    spw_buffer *held[PARTS];
    spw_task_options options;
    spw_task *task;
    int n = 0;
    spw_task_options_init(&options);
    options.name = work->name;
    options.priority = work->priority;
    MUST(spw_task_create(manager, &options, &task));
    (void)pthread_barrier_wait(&start);
    MUST(spw_task_attach(task)); /* from here on this thread's requests are the task's */
    while (work->done < ROUNDS) {
        const int rc = spw_alloc(manager, SPW_HOST, MIB, NULL, &held[n]);
        if (rc == SPW_OK) {
            spw_view view;
            MUST(spw_map(held[n], SPW_HOST, SPW_MAP_WRITE, NULL, &view));
            memset(view.data, work->done, view.size);
            MUST(spw_unmap(held[n++], &view, NULL));
            if (n == PARTS) { /* all of it: this round's work is done */
                give_back(held, &n);
                work->done++;
            }
        } else if (rc == SPW_ERETRY) { /* everybody waits, and this task is to give way */
            give_back(held, &n);
            MUST(spw_task_wait_turn(task, NULL));
        } else if (rc == SPW_ESPLIT) { /* it gave way already: it takes less. Here: it begins anew */
            give_back(held, &n);
        } else {
            MUST(rc);
        }
    }
    MUST(spw_task_detach(task));
    MUST(spw_task_destroy(task));
    return work;
}

int main(void)
{
    struct work scan = {.name = "scan", .priority = 1}, sort = {.name = "sort", .priority = 2};
    pthread_t threads[2];
    spw_options options;
    spw_options_init(&options);
    options.spec = "host=9M; staging=1M; disk=.:64M"; /* 8 MiB for buffers */
    (void)pthread_barrier_init(&start, NULL, 2);
    if (spw_manager_create(&options, &manager) != SPW_OK || pthread_create(&threads[0], NULL, run, &scan) != 0 ||
        pthread_create(&threads[1], NULL, run, &sort) != 0)
        return 1;
    (void)pthread_join(threads[0], NULL);
    (void)pthread_join(threads[1], NULL);
    spw_stats stats = SPW_STATS_INIT;
    if (spw_stats_snapshot(manager, &stats) != SPW_OK || spw_manager_destroy(manager) != SPW_OK)
        return 1;
    printf("scan %d and sort %d rounds, none hung: %llu waits, %llu times somebody gave way\n", scan.done, sort.done,
           (unsigned long long)stats.waits, (unsigned long long)stats.retries);
    return scan.done == ROUNDS && sort.done == ROUNDS ? 0 : 1;
}
