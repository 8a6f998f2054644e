/* The engine's threads: runs one job on N of them, shows a progress line, and keeps the first error.
 *
 * Threads: init, run and finish from one thread; advance, stopped and cancel from the jobs.
 */
#ifndef ENGINE_CREW_H
#define ENGINE_CREW_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include <spillway/spillway.h>

#include "error.h"

struct eng_crew {
    unsigned threads;
    int show_progress;         /* a line on stderr, rewritten in place */
    const volatile sig_atomic_t *interrupt; /* set by a signal's handler: not 0 ends the job. NULL: none */
    spw_cancel *cancel;        /* ends the library's waits once a job has failed */
    atomic_int stop;           /* atomic: a job has failed */
    atomic_uint_least64_t done; /* atomic: of total */
    uint64_t total;            /* set before the jobs start */
    pthread_mutex_t lock;
    pthread_cond_t idle;       /* running fell to 0 */
    unsigned running;          /* guarded by lock */
    struct eng_error first;    /* guarded by lock: the first error, valid when stop is set */
};

/* A job: worker counts from 0. Returns 0, or -1 with *error filled in. */
typedef int (*eng_job)(void *arg, unsigned worker, struct eng_error *error);

int eng_crew_init(struct eng_crew *crew, unsigned threads, int show_progress, const volatile sig_atomic_t *interrupt,
                  struct eng_error *error);
void eng_crew_finish(struct eng_crew *crew);

/* Runs job on every thread and waits for all. total is what eng_crew_advance will add up to. Notices an interrupt
 * within a fifth of a second: ENG_STOPPED then, once every thread has ended. */
int eng_crew_run(struct eng_crew *crew, const char *phase, uint64_t total, eng_job job, void *arg,
                 struct eng_error *error);

void eng_crew_advance(struct eng_crew *crew, uint64_t amount);
int eng_crew_stopped(struct eng_crew *crew);

/* Monotonic seconds. */
double eng_now(void);

#endif
