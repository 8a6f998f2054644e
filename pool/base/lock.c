/* Ranked locks. The order check keeps a small stack of held ranks per thread. */
#include "pool/base/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef NDEBUG
static _Thread_local enum spw__rank held_ranks[16];
static _Thread_local unsigned n_held;

static void check_push(const struct spw__mutex *mutex)
{
    if (n_held == 16 || (n_held && held_ranks[n_held - 1] >= mutex->rank)) {
        (void)fprintf(stderr, "spillway: lock of rank %d taken while one of rank %d is held\n", (int)mutex->rank,
                      n_held ? (int)held_ranks[n_held - 1] : 0);
        abort();
    }
    held_ranks[n_held++] = mutex->rank;
}

static void check_pop(const struct spw__mutex *mutex)
{
    spw__mutex_assert_held(mutex);
    for (unsigned i = n_held; i-- > 0;)
        if (held_ranks[i] == mutex->rank) {
            for (; i + 1 < n_held; i++)
                held_ranks[i] = held_ranks[i + 1];
            n_held--;
            return;
        }
}
#endif

void spw__mutex_init(struct spw__mutex *mutex, enum spw__rank rank)
{
    (void)pthread_mutex_init(&mutex->mutex, NULL);
    mutex->rank = rank;
    mutex->held = 0;
}

void spw__mutex_finish(struct spw__mutex *mutex)
{
    (void)pthread_mutex_destroy(&mutex->mutex);
}

#define LOOKS 60u /* of spw__mutex_lock_soon before it sleeps: one to two microseconds */

void spw__mutex_lock_soon(struct spw__mutex *mutex)
{
#ifndef NDEBUG
    check_push(mutex);
#endif
    unsigned looks = LOOKS;
    while (pthread_mutex_trylock(&mutex->mutex) != 0)
        if (looks-- > 0) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else {
            (void)pthread_mutex_lock(&mutex->mutex);
            break;
        }
#ifndef NDEBUG
    mutex->holder = pthread_self();
    mutex->held = 1;
#endif
}

#ifndef NDEBUG
void spw__mutex_lock(struct spw__mutex *mutex)
{
    check_push(mutex);
    (void)pthread_mutex_lock(&mutex->mutex);
    mutex->holder = pthread_self();
    mutex->held = 1;
}

void spw__mutex_unlock(struct spw__mutex *mutex)
{
    check_pop(mutex);
    mutex->held = 0;
    (void)pthread_mutex_unlock(&mutex->mutex);
}

void spw__mutex_assert_held(const struct spw__mutex *mutex)
{
    if (mutex->held && pthread_equal(mutex->holder, pthread_self()))
        return;
    (void)fprintf(stderr, "spillway: lock of rank %d is not held by its user\n", (int)mutex->rank);
    abort();
}
#endif

void spw__cond_init(struct spw__cond *cond)
{
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&cond->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

void spw__cond_finish(struct spw__cond *cond)
{
    (void)pthread_cond_destroy(&cond->cond);
}

int spw__cond_wait(struct spw__cond *cond, struct spw__mutex *mutex, long long timeout_ns)
{
    int rc;
#ifndef NDEBUG
    check_pop(mutex);
    mutex->held = 0;
#endif
    if (timeout_ns < 0) {
        rc = pthread_cond_wait(&cond->cond, &mutex->mutex);
    } else {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        const long long ns = until.tv_nsec + timeout_ns % 1000000000;
        until.tv_sec += (time_t)(timeout_ns / 1000000000 + ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        rc = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until);
    }
#ifndef NDEBUG
    check_push(mutex);
    mutex->holder = pthread_self();
    mutex->held = 1;
#endif
    return rc == ETIMEDOUT ? ETIMEDOUT : 0;
}

void spw__cond_signal(struct spw__cond *cond)
{
    (void)pthread_cond_signal(&cond->cond);
}

void spw__cond_broadcast(struct spw__cond *cond)
{
    (void)pthread_cond_broadcast(&cond->cond);
}
