/* Threads, progress, first error. Neighbours: join.c, which runs the phases. */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_PERIOD_NS 200000000L

struct start {
    struct eng_crew *crew;
    eng_job job;
    void *arg;
    unsigned worker;
};

double eng_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int eng_crew_init(struct eng_crew *crew, unsigned threads, int show_progress, const volatile sig_atomic_t *interrupt,
                  struct eng_error *error)
{
    pthread_condattr_t attributes;
    memset(crew, 0, sizeof *crew);
    crew->threads = threads;
    crew->show_progress = show_progress;
    crew->interrupt = interrupt;
    int code = spw_cancel_create(&crew->cancel);
    if (code != 0)
        return eng_fail_library(error, code, "cannot create a cancel token");
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&crew->idle, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&crew->lock, NULL);
    return 0;
}

void eng_crew_finish(struct eng_crew *crew)
{
    (void)pthread_cond_destroy(&crew->idle);
    (void)pthread_mutex_destroy(&crew->lock);
    spw_cancel_destroy(crew->cancel);
    crew->cancel = NULL;
}

/* The others' waits end with SPW_ECANCELED, which then is not the first error. */
static void keep_first_error(struct eng_crew *crew, const struct eng_error *error)
{
    (void)pthread_mutex_lock(&crew->lock);
    int first = !atomic_load(&crew->stop);
    if (first) {
        crew->first = *error;
        atomic_store(&crew->stop, 1);
    }
    (void)pthread_mutex_unlock(&crew->lock);
    if (first)
        spw_cancel_trigger(crew->cancel);
}

static void *run_worker(void *arg)
{
    struct start *start = arg;
    struct eng_crew *crew = start->crew;
    struct eng_error error;
    if (start->job(start->arg, start->worker, &error) != 0)
        keep_first_error(crew, &error);
    (void)pthread_mutex_lock(&crew->lock);
    if (--crew->running == 0)
        (void)pthread_cond_signal(&crew->idle);
    (void)pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static int interrupted(const struct eng_crew *crew, const char *phase, struct eng_error *error)
{
    if (crew->interrupt == NULL || *crew->interrupt == 0)
        return 0;
    (void)eng_fail(error, ENG_STOPPED, "during %s", phase);
    return 1;
}

/* The main thread's part while the others work: the progress line, and an eye on signals. */
static void watch(struct eng_crew *crew, const char *phase, double seconds)
{
    struct eng_error error;
    if (interrupted(crew, phase, &error))
        keep_first_error(crew, &error);
    if (!crew->show_progress)
        return;
    double part = crew->total == 0 ? 1 : (double)atomic_load(&crew->done) / (double)crew->total;
    fprintf(stderr, "\r%-10s %3.0f %%  %6.1f s ", phase, 100 * (part < 1 ? part : 1), seconds);
    fflush(stderr);
}

static void wait_idle(struct eng_crew *crew, const char *phase)
{
    double start = eng_now();
    (void)pthread_mutex_lock(&crew->lock);
    while (crew->running > 0) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += WATCH_PERIOD_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&crew->idle, &crew->lock, &until);
        if (crew->running > 0) {
            (void)pthread_mutex_unlock(&crew->lock);
            watch(crew, phase, eng_now() - start);
            (void)pthread_mutex_lock(&crew->lock);
        }
    }
    (void)pthread_mutex_unlock(&crew->lock);
    if (crew->show_progress)
        fputs("\r\033[K", stderr);
}

int eng_crew_run(struct eng_crew *crew, const char *phase, uint64_t total, eng_job job, void *arg,
                 struct eng_error *error)
{
    unsigned started = 0;
    if (interrupted(crew, phase, error))
        return -1;
    pthread_t *threads = calloc(crew->threads, sizeof *threads);
    struct start *starts = calloc(crew->threads, sizeof *starts);
    if (threads == NULL || starts == NULL) {
        free(threads);
        free(starts);
        return eng_fail(error, ENG_FAILED, "out of memory for %u threads", crew->threads);
    }
    atomic_store(&crew->done, 0);
    crew->total = total;
    crew->running = crew->threads;
    for (; started < crew->threads; started++) {
        starts[started] = (struct start){crew, job, arg, started};
        int code = pthread_create(&threads[started], NULL, run_worker, &starts[started]);
        if (code != 0) {
            (void)eng_fail(error, ENG_FAILED, "cannot start thread %u of %u: %s", started + 1, crew->threads,
                           strerror(code));
            keep_first_error(crew, error);
            (void)pthread_mutex_lock(&crew->lock);
            crew->running -= crew->threads - started;
            (void)pthread_mutex_unlock(&crew->lock);
            break;
        }
    }
    wait_idle(crew, phase);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    free(threads);
    free(starts);
    if (!atomic_load(&crew->stop))
        return 0;
    *error = crew->first;
    return -1;
}

void eng_crew_advance(struct eng_crew *crew, uint64_t amount)
{
    atomic_fetch_add_explicit(&crew->done, amount, memory_order_relaxed);
}

int eng_crew_stopped(struct eng_crew *crew)
{
    return atomic_load_explicit(&crew->stop, memory_order_relaxed);
}
