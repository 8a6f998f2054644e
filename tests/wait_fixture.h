/* What the tests of waiting share: a room of bytes, and waiters that want some of them. */
#ifndef SPW_TESTS_WAIT_FIXTURE_H
#define SPW_TESTS_WAIT_FIXTURE_H

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/base/wait.h"
#include "tests/suite_fixture.h"

#define HOST SPW__CHANNEL(SPW_TIER_HOST)
#define DEVICE SPW__CHANNEL(SPW_TIER_DEVICE)
#define MS UINT64_C(1000000)

struct want {
    struct spw__waiter waiter; /* first: attempts cast back */
    long bytes;
    unsigned attempts;
    unsigned completions;
    unsigned place; /* 1 for the first that was served */
};

static struct spw__waitset set;
static struct spw__clock manual_clock;
static _Atomic long room;
static unsigned n_served;

static inline uint64_t manual_now(const struct spw__clock *clock)
{
    return atomic_load(&clock->manual_ns);
}

static inline void setup(void)
{
    spw__waitset_init(&set, NULL);
}

static inline void setup_manual(void)
{
    manual_clock.now_ns = manual_now;
    spw__waitset_init(&set, &manual_clock);
}

/* What every test ends with: nobody waits, nothing is barred, nothing is due. */
static inline void teardown(void)
{
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++)
        ck_assert_ptr_null(set.trees[tree].root);
    ck_assert(!spw__waitset_busy(&set, UINT32_MAX));
    ck_assert(!spw__waitset_barred(&set, UINT32_MAX));
    ck_assert_uint_eq(set.due_ns, UINT64_MAX);
    spw__waitset_finish(&set);
}

static inline int take(struct spw__waiter *waiter)
{
    struct want *want = (struct want *)(void *)waiter;
    long now = atomic_load(&room);
    want->attempts++;
    while (now >= want->bytes)
        if (atomic_compare_exchange_weak(&room, &now, now - want->bytes)) {
            want->place = ++n_served; /* under the wait lock */
            return SPW_OK;
        }
    return SPW_EAGAIN;
}

/* A waiter whose need is known, in host memory. */
static inline struct want want_of(long bytes)
{
    return (struct want){.waiter = {.attempt = take, .channels = HOST, .deadline_ns = UINT64_MAX,
                                    .need = {[SPW_TIER_HOST] = (uint64_t)bytes}},
                         .bytes = bytes};
}

static inline void enqueue(struct want *want)
{
    spw__wait_enqueue(&set, &want->waiter);
}

static inline void give(long bytes)
{
    (void)atomic_fetch_add(&room, bytes);
    spw__waitset_signal(&set, HOST);
}

static inline void is_over(struct want *want, int result)
{
    ck_assert(!want->waiter.waiting);
    ck_assert_int_eq(want->waiter.result, result);
    if (!want->waiter.completed)
        ck_assert_int_eq(spw__wait_block(&set, &want->waiter), result);
}

static inline void still_waits(const struct want *want)
{
    ck_assert(want->waiter.waiting);
}

/* Ends a wait that the test is done with. */
static inline void leave(struct want *want)
{
    ck_assert_int_eq(spw__wait_leave(&set, &want->waiter), want->waiter.completed ? SPW_ECANCELED : SPW_ETIMEDOUT);
}

static inline void *block(void *arg)
{
    struct want *want = arg;
    return (void *)(intptr_t)spw__wait_block(&set, &want->waiter);
}

static inline pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, arg), 0);
    return thread;
}

static inline int result_of(pthread_t thread)
{
    void *result;
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    return (int)(intptr_t)result;
}

#endif
