/* Asynchronous waiters: no thread sleeps for them. Each ends exactly once, and is not touched after. */
#include "tests/wait_fixture.h"

#include <sched.h>

struct async {
    struct want want; /* first */
    struct async *next;
};

/* What completed hands over to: who takes a waiter from here may free it at once. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct async *first; /* guarded by lock */
} inbox = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};

static unsigned timer_calls;
static uint64_t timer_due;

static void count_completion(struct spw__waiter *waiter)
{
    struct want *want = (struct want *)(void *)waiter;
    ck_assert(!waiter->waiting);
    spw__mutex_assert_held(&set.lock);
    want->completions++;
}

static void post(struct spw__waiter *waiter)
{
    struct async *async = (struct async *)(void *)waiter;
    (void)pthread_mutex_lock(&inbox.lock);
    async->next = inbox.first;
    inbox.first = async;
    (void)pthread_cond_signal(&inbox.more);
    (void)pthread_mutex_unlock(&inbox.lock);
}

static struct async *must_receive(void)
{
    (void)pthread_mutex_lock(&inbox.lock);
    while (!inbox.first)
        (void)pthread_cond_wait(&inbox.more, &inbox.lock);
    struct async *async = inbox.first;
    inbox.first = async->next;
    (void)pthread_mutex_unlock(&inbox.lock);
    return async;
}

static struct want async_of(long bytes)
{
    struct want want = want_of(bytes);
    want.waiter.completed = count_completion;
    want.waiter.what = SPW__WAIT_TICKET;
    return want;
}

static void ends_once(struct want *want, int result)
{
    is_over(want, result);
    ck_assert_uint_eq(want->completions, 1);
}

static spw_cancel *token(void)
{
    spw_cancel *cancel = NULL;
    ck_assert_int_eq(spw_cancel_create(&cancel), SPW_OK);
    return cancel;
}

START_TEST(whoever_frees_completes_it_and_so_does_its_own_enqueue)
{
    struct want later = async_of(3), at_once = async_of(1), failing = async_of(1);
    enqueue(&later);
    still_waits(&later);
    give(3);
    ends_once(&later, SPW_OK);
    room = 1;
    enqueue(&at_once);
    ends_once(&at_once, SPW_OK);
    failing.waiter.attempt = NULL;
    failing.waiter.channels = SPW__CHANNEL_OBJECT;
    failing.waiter.object = &room;
    enqueue(&failing);
    spw__waitset_signal_object(&set, &later);
    still_waits(&failing);
    spw__waitset_signal_object(&set, &room);
    ends_once(&failing, SPW_OK);
}
END_TEST

static void note_timer(void *arg, uint64_t due_ns)
{
    (void)arg;
    timer_calls++;
    timer_due = due_ns;
}

START_TEST(expire_ends_what_is_due_and_says_when_to_come_again)
{
    struct want wants[3] = {async_of(1), async_of(1), async_of(1)};
    static const uint64_t deadlines[] = {300, 200, UINT64_MAX};
    manual_clock.manual_ns = 0;
    set.timer = note_timer;
    ck_assert_uint_eq(spw__waitset_expire(&set), UINT64_MAX);
    for (unsigned i = 0; i < 3; i++) {
        wants[i].waiter.deadline_ns = deadlines[i];
        enqueue(&wants[i]);
    }
    ck_assert_uint_eq(timer_calls, 2); /* each was earlier than all before */
    ck_assert_uint_eq(timer_due, 200);
    manual_clock.manual_ns = 199;
    ck_assert_uint_eq(spw__waitset_expire(&set), 200);
    still_waits(&wants[1]);
    manual_clock.manual_ns = 200;
    ck_assert_uint_eq(spw__waitset_expire(&set), 300);
    ends_once(&wants[1], SPW_ETIMEDOUT);
    manual_clock.manual_ns = 1000;
    ck_assert_uint_eq(spw__waitset_expire(&set), UINT64_MAX);
    ends_once(&wants[0], SPW_ETIMEDOUT);
    ck_assert_uint_eq(timer_calls, 2);
    give(1);
    ends_once(&wants[2], SPW_OK);
}
END_TEST

START_TEST(nothing_due_takes_no_lock)
{
    struct want want = async_of(1);
    want.waiter.deadline_ns = 200;
    manual_clock.manual_ns = 0;
    enqueue(&want);
    spw__mutex_lock(&set.lock); /* a second lock by this thread would abort, or hang */
    ck_assert_uint_eq(spw__waitset_expire(&set), 200);
    spw__mutex_unlock(&set.lock);
    leave(&want);
}
END_TEST

START_TEST(a_barrier_of_an_asynchronous_waiter_is_timed_by_expire)
{
    struct want large = async_of(100), small = async_of(1);
    manual_clock.manual_ns = 5 * MS;
    set.timer = note_timer;
    enqueue(&large);
    for (unsigned i = 0; i < SPW__WAIT_PASS_MAX; i++)
        spw__waitset_granted(&set, HOST);
    ck_assert_uint_eq(timer_calls, 1);
    ck_assert_uint_eq(timer_due, 105 * MS);
    room = 1;
    enqueue(&small);
    still_waits(&small);
    manual_clock.manual_ns = 105 * MS;
    ck_assert_uint_eq(spw__waitset_expire(&set), UINT64_MAX);
    ends_once(&small, SPW_OK);
    leave(&large);
    ends_once(&large, SPW_ECANCELED);
}
END_TEST

START_TEST(leaving_cancels_or_gives_the_result)
{
    struct want waiting = async_of(5), served = async_of(1);
    enqueue(&waiting);
    enqueue(&served);
    give(1);
    ck_assert_int_eq(spw__wait_leave(&set, &served.waiter), SPW_OK);
    ck_assert_int_eq(spw__wait_leave(&set, &waiting.waiter), SPW_ECANCELED);
    ends_once(&served, SPW_OK);
    ends_once(&waiting, SPW_ECANCELED);
    ck_assert_int_eq(spw__wait_leave(&set, &waiting.waiter), SPW_ECANCELED);
    ck_assert_uint_eq(waiting.completions, 1);
}
END_TEST

START_TEST(a_token_ends_its_waits_in_every_set_and_no_other)
{
    struct spw__waitset second;
    spw_cancel *cancel = token(), *other = token();
    struct want wants[4] = {async_of(1), async_of(1), async_of(1), async_of(1)};
    spw__waitset_init(&second, NULL);
    for (unsigned i = 0; i < 4; i++)
        wants[i].waiter.cancel = i == 2 ? other : cancel;
    wants[1].waiter.completed = NULL; /* one that would block */
    enqueue(&wants[0]);
    spw__wait_enqueue(&second, &wants[1].waiter);
    enqueue(&wants[2]);
    spw_cancel_trigger(cancel);
    ends_once(&wants[0], SPW_ECANCELED);
    ck_assert_int_eq(spw__wait_block(&second, &wants[1].waiter), SPW_ECANCELED);
    still_waits(&wants[2]);
    enqueue(&wants[3]); /* triggered before */
    ends_once(&wants[3], SPW_ECANCELED);
    give(1);
    ends_once(&wants[2], SPW_OK);
    spw_cancel_trigger(other); /* nobody is on its list any more */
    spw__waitset_finish(&second);
    spw_cancel_destroy(cancel);
    spw_cancel_destroy(other);
}
END_TEST

START_TEST(shut_down_ends_asynchronous_waits_now_and_from_now_on)
{
    spw_cancel *cancel = token();
    struct want wants[3] = {async_of(1), async_of(1), async_of(1)};
    wants[0].waiter.cancel = cancel;
    wants[0].waiter.deadline_ns = UINT64_MAX - 1;
    wants[1].waiter.channels = SPW__CHANNEL_OBJECT | DEVICE;
    enqueue(&wants[0]);
    enqueue(&wants[1]);
    spw__waitset_shut_down(&set);
    enqueue(&wants[2]);
    for (unsigned i = 0; i < 3; i++)
        ends_once(&wants[i], SPW_ESHUTDOWN);
    spw_cancel_trigger(cancel);
    ends_once(&wants[0], SPW_ESHUTDOWN);
    spw_cancel_destroy(cancel);
}
END_TEST

/* Counts per task, as an arbiter does. */
static int n_blocked[2];

static void count_blocked(void *arg, struct spw__waiter *waiter, int change)
{
    spw__mutex_assert_held(&set.lock);
    ck_assert_ptr_eq(arg, n_blocked);
    ck_assert_int_eq(waiter->what, SPW__WAIT_HOLE);
    *(int *)waiter->task += change;
}

static int blocked_of(unsigned task)
{
    spw__mutex_lock(&set.lock);
    const int n = n_blocked[task];
    spw__mutex_unlock(&set.lock);
    return n;
}

START_TEST(blocked_threads_are_reported_until_their_waiter_is_done)
{
    struct want wants[3] = {want_of(1), want_of(1), async_of(1)};
    pthread_t threads[2];
    set.blocked = count_blocked;
    set.blocked_arg = n_blocked;
    for (unsigned i = 0; i < 3; i++) {
        wants[i].waiter.task = &n_blocked[i % 2];
        wants[i].waiter.what = SPW__WAIT_HOLE;
        enqueue(&wants[i]);
        ck_assert_int_eq(blocked_of(i % 2), i == 2); /* to wait is not yet to block */
        if (i < 2)
            threads[i] = start(block, &wants[i]);
        while (blocked_of(i % 2) != 1) /* a state to be reached */
            (void)sched_yield();
    }
    give(1);
    ck_assert_int_eq(blocked_of(0), 0); /* whenever its thread runs again */
    ck_assert_int_eq(blocked_of(1), 1);
    give(2);
    ck_assert_int_eq(blocked_of(1), 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(result_of(threads[i]), SPW_OK);
    ends_once(&wants[2], SPW_OK);
    struct want served = want_of(1);
    room = 1;
    enqueue(&served);
    is_over(&served, SPW_OK); /* it never blocked */
}
END_TEST

/* 5000 requests from several threads, half of them asynchronous, each freed by the inbox the moment it is completed. */
enum { REQUESTERS = 4, EACH = 1250 };

static void *request(void *arg)
{
    const uintptr_t number = (uintptr_t)arg;
    for (unsigned i = 0; i < EACH; i++) {
        const long bytes = 1 + (long)((number * 31 + i * 7) % 20);
        if ((i + number) % 2) {
            struct want want = want_of(bytes);
            want.waiter.key = &n_blocked[number % 2];
            enqueue(&want);
            ck_assert_int_eq(spw__wait_block(&set, &want.waiter), SPW_OK);
            give(bytes);
        } else {
            struct async *async = calloc(1, sizeof *async);
            ck_assert_ptr_nonnull(async);
            async->want = want_of(bytes);
            async->want.waiter.completed = post;
            async->want.waiter.net_bytes = (long)i % 3;
            enqueue(&async->want);
        }
    }
    return NULL;
}

static void *release_what_was_granted(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < REQUESTERS * EACH / 2; i++) {
        struct async *async = must_receive();
        const long bytes = async->want.bytes;
        ck_assert_int_eq(async->want.waiter.result, SPW_OK);
        free(async);
        give(bytes);
    }
    return NULL;
}

START_TEST(five_thousand_requests_from_several_threads_lose_no_wake_up)
{
    pthread_t threads[REQUESTERS];
    room = 30;
    const pthread_t releasing = start(release_what_was_granted, NULL);
    for (uintptr_t i = 0; i < REQUESTERS; i++)
        threads[i] = start(request, (void *)i);
    for (unsigned i = 0; i < REQUESTERS; i++)
        (void)result_of(threads[i]);
    (void)result_of(releasing);
    ck_assert_int_eq(room, 30);
}
END_TEST

/* In every round a grant, a cancel token, a leave and a deadline meet; the completed waiter is freed at once. */
enum { ROUNDS = 1000 };

static pthread_barrier_t barrier;
static spw_cancel *round_token;

static void *cancel_rounds(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)pthread_barrier_wait(&barrier);
        spw_cancel_trigger(round_token);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *grant_rounds(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        (void)pthread_barrier_wait(&barrier);
        give(1);
        (void)spw__waitset_expire(&set);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

START_TEST(grant_cancel_and_deadline_that_race_end_in_exactly_one_result)
{
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 3), 0);
    const pthread_t cancelling = start(cancel_rounds, NULL), granting = start(grant_rounds, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct async *async = calloc(1, sizeof *async);
        ck_assert_ptr_nonnull(async);
        async->want = want_of(1);
        async->want.waiter.completed = post;
        async->want.waiter.deadline_ns = i % 3 ? UINT64_MAX : spw__clock_monotonic_ns() + 1000 * (i % 50);
        async->want.waiter.cancel = round_token = token();
        if (i % 2)
            enqueue(&async->want);
        (void)pthread_barrier_wait(&barrier);
        if (i % 2 == 0)
            enqueue(&async->want);
        async = must_receive();
        const int result = async->want.waiter.result;
        ck_assert(result == SPW_OK || result == SPW_ECANCELED || result == SPW_ETIMEDOUT);
        free(async);
        (void)pthread_barrier_wait(&barrier);
        ck_assert_int_eq(room, result == SPW_OK ? 0 : 1);
        ck_assert_ptr_null(inbox.first);
        room = 0;
        spw_cancel_destroy(round_token);
    }
    (void)result_of(cancelling);
    (void)result_of(granting);
    (void)pthread_barrier_destroy(&barrier);
}
END_TEST

static void *trigger(void *arg)
{
    spw_cancel_trigger(arg);
    return NULL;
}

START_TEST(a_set_may_end_as_soon_as_its_last_waiter_was_cancelled)
{
    for (unsigned i = 0; i < 300; i++) {
        struct spw__waitset *brief = malloc(sizeof *brief);
        struct want want = want_of(1);
        want.waiter.cancel = token();
        spw__waitset_init(brief, NULL);
        spw__wait_enqueue(brief, &want.waiter);
        const pthread_t thread = start(trigger, want.waiter.cancel);
        ck_assert_int_eq(spw__wait_block(brief, &want.waiter), SPW_ECANCELED);
        spw__waitset_finish(brief);
        free(brief); /* the trigger is not in there any more */
        (void)result_of(thread);
        spw_cancel_destroy(want.waiter.cancel);
    }
}
END_TEST

static void *leave_it(void *arg)
{
    struct want *want = arg;
    return (void *)(intptr_t)spw__wait_leave(&set, &want->waiter);
}

START_TEST(a_leave_that_races_with_a_grant_is_done_or_cancelled_never_both)
{
    for (unsigned i = 0; i < 300; i++) {
        struct want want = async_of(1);
        room = 0;
        enqueue(&want);
        const pthread_t thread = start(leave_it, &want);
        give(1);
        const int result = result_of(thread);
        ck_assert_int_eq(room, result == SPW_OK ? 0 : 1);
        ends_once(&want, result);
    }
    room = 0;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_async");
    TCase *tcase = tcase_create("real clock");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, whoever_frees_completes_it_and_so_does_its_own_enqueue);
    tcase_add_test(tcase, leaving_cancels_or_gives_the_result);
    tcase_add_test(tcase, a_token_ends_its_waits_in_every_set_and_no_other);
    tcase_add_test(tcase, shut_down_ends_asynchronous_waits_now_and_from_now_on);
    tcase_add_test(tcase, blocked_threads_are_reported_until_their_waiter_is_done);
    tcase_add_test(tcase, five_thousand_requests_from_several_threads_lose_no_wake_up);
    tcase_add_test(tcase, grant_cancel_and_deadline_that_race_end_in_exactly_one_result);
    tcase_add_test(tcase, a_set_may_end_as_soon_as_its_last_waiter_was_cancelled);
    tcase_add_test(tcase, a_leave_that_races_with_a_grant_is_done_or_cancelled_never_both);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("manual clock");
    tcase_add_checked_fixture(tcase, setup_manual, teardown);
    tcase_add_test(tcase, expire_ends_what_is_due_and_says_when_to_come_again);
    tcase_add_test(tcase, nothing_due_takes_no_lock);
    tcase_add_test(tcase, a_barrier_of_an_asynchronous_waiter_is_timed_by_expire);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
