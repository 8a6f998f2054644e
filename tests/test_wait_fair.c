/* Who is served next: the order of waiters, and who is skipped. Barriers are in test_wait_barrier.c. */
#include "tests/wait_fixture.h"

static const char key_a, key_b;

START_TEST(within_a_band_of_age_the_one_that_frees_most_is_first_and_bands_go_by_age)
{
    static const struct {
        uint64_t at_ms;
        int64_t net_bytes;
        unsigned place;
    } rows[] = {{0, 5, 4}, {0, -3, 1}, {99, 0, 2}, {99, 0, 3}, {100, -100, 6}, {100, -200, 5}, {1000, INT64_MIN, 7}};
    enum { N = sizeof rows / sizeof rows[0] };
    struct want wants[N];
    for (unsigned i = 0; i < N; i++) {
        wants[i] = want_of(1);
        wants[i].waiter.net_bytes = rows[i].net_bytes;
        manual_clock.manual_ns = rows[i].at_ms * MS;
        enqueue(&wants[i]);
    }
    for (unsigned i = 0; i < N; i++)
        give(1);
    for (unsigned i = 0; i < N; i++) {
        is_over(&wants[i], SPW_OK);
        ck_assert_uint_eq(wants[i].place, rows[i].place);
    }
}
END_TEST

/* Enqueues wants of these bytes and clears what they have tried so far. */
static void enqueue_all(struct want *wants, const long *bytes, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const void *key = wants[i].waiter.key;
        wants[i] = want_of(bytes[i]);
        wants[i].waiter.key = key;
        enqueue(&wants[i]);
    }
    for (unsigned i = 0; i < n; i++)
        wants[i].attempts = 0;
}

START_TEST(a_failure_spares_the_attempts_of_those_of_its_key_that_need_as_much)
{
    struct want wants[6] = {{.bytes = 0}};
    enqueue_all(wants, (const long[]){5, 7, 3, 5, 4, 2}, 6);
    give(4);
    static const unsigned attempts[] = {1, 0, 1, 0, 1, 1};
    for (unsigned i = 0; i < 6; i++)
        ck_assert_uint_eq(wants[i].attempts, attempts[i]); /* after the grant of 3, neither 4 nor 2 have room */
    is_over(&wants[2], SPW_OK);
    ck_assert_int_eq(room, 1);
    for (unsigned i = 0; i < 6; i++)
        if (i != 2)
            leave(&wants[i]);
    room = 0;
}
END_TEST

/* The room of one key alone: what is charged is not what is in all. */
static _Atomic long rooms[16];

static int take_own(struct spw__waiter *waiter)
{
    struct want *want = (struct want *)(void *)waiter;
    _Atomic long *own = (_Atomic long *)(uintptr_t)waiter->object;
    long now = atomic_load(own);
    want->attempts++;
    return now >= want->bytes && atomic_compare_exchange_strong(own, &now, now - want->bytes) ? SPW_OK : SPW_EAGAIN;
}

START_TEST(a_failure_of_one_key_says_nothing_about_another)
{
    enum { KEYS = 16 }; /* more than have a lane of their own */
    struct want wants[2 * KEYS];
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        wants[i] = want_of(10);
        wants[i].waiter.attempt = take_own;
        wants[i].waiter.key = (const void *)(uintptr_t)(i % KEYS + 1); /* never followed */
        wants[i].waiter.object = &rooms[i % KEYS];
        enqueue(&wants[i]);
    }
    for (unsigned key = KEYS; key-- > 0;) {
        rooms[key] = 10;
        set.attempts = 0;
        spw__waitset_signal(&set, HOST);
        ck_assert_uint_eq(set.attempts, KEYS + 1); /* one that fails of each key is enough, however many keys */
        is_over(&wants[key], SPW_OK);
        still_waits(&wants[KEYS + key]);
    }
    for (unsigned key = 0; key < KEYS; key++) {
        rooms[key] = 10;
        spw__waitset_signal(&set, HOST);
        is_over(&wants[KEYS + key], SPW_OK);
    }
}
END_TEST

START_TEST(a_need_that_is_unknown_is_always_considered)
{
    struct want large = want_of(5), unknown = want_of(5);
    unknown.waiter.need[SPW_TIER_HOST] = 0;
    enqueue(&large);
    enqueue(&unknown);
    unknown.attempts = 0;
    give(1);
    give(1);
    ck_assert_uint_eq(unknown.attempts, 2);
    leave(&large);
    give(3);
    is_over(&unknown, SPW_OK);
}
END_TEST

static uint64_t room_now(void *arg, unsigned channel)
{
    (void)arg;
    return channel == SPW_TIER_HOST ? (uint64_t)atomic_load(&room) : 1000;
}

START_TEST(only_the_front_is_attempted_where_there_is_no_room)
{
    struct want wants[4] = {{.bytes = 0}};
    set.room = room_now;
    wants[1].waiter.key = &key_a; /* so that no failure of the front spares it */
    wants[2].waiter.key = &key_b;
    enqueue_all(wants, (const long[]){9, 9, 3, 8}, 4);
    give(3);
    is_over(&wants[2], SPW_OK);
    ck_assert_uint_eq(wants[0].attempts, 1);
    ck_assert_uint_eq(wants[1].attempts, 0);
    ck_assert_uint_eq(wants[3].attempts, 0);
    give(9);
    is_over(&wants[0], SPW_OK);
    leave(&wants[1]);
    leave(&wants[3]);
}
END_TEST

START_TEST(a_waiter_on_two_channels_is_skipped_only_where_both_say_so)
{
    struct want front = want_of(9), either = want_of(9), host = want_of(9);
    either.waiter.channels = HOST | DEVICE;
    either.waiter.need[SPW_TIER_DEVICE] = 9;
    enqueue(&front);
    enqueue(&either);
    enqueue(&host);
    front.attempts = either.attempts = host.attempts = 0;
    spw__waitset_signal(&set, HOST);
    ck_assert_uint_eq(front.attempts, 1);
    ck_assert_uint_eq(either.attempts, 0);
    spw__waitset_signal(&set, DEVICE); /* it failed on neither, and front is not on this one */
    ck_assert_uint_eq(either.attempts, 1);
    spw__waitset_signal(&set, HOST | DEVICE);
    ck_assert_uint_eq(either.attempts, 2);
    ck_assert_uint_eq(host.attempts, 0);
    leave(&front);
    leave(&either);
    leave(&host);
}
END_TEST

static unsigned log_2(unsigned n)
{
    return n > 1 ? 1 + log_2(n / 2) : 0;
}

/* Many wait, and each release serves one: how many attempts that takes in all. */
static uint64_t attempts_to_serve(struct want *wants, unsigned n, long (*bytes_of)(unsigned i))
{
    set.attempts = 0;
    for (unsigned i = 0; i < n; i++) {
        wants[i] = want_of(bytes_of(i));
        enqueue(&wants[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        const struct spw__wait_node *first = set.trees[SPW_TIER_HOST].first;
        give(((const struct want *)first->owner)->bytes);
    }
    for (unsigned i = 0; i < n; i++)
        is_over(&wants[i], SPW_OK);
    return set.attempts;
}

enum { MANY = 100000 };

static long all_equal(unsigned i)
{
    (void)i;
    return 1000;
}

static long mixed(unsigned i)
{
    return 1 + (long)(i * 2654435761u % 5000);
}

static long descending(unsigned i)
{
    return 1 + MANY - (long)i;
}

START_TEST(a_hundred_thousand_waiters_are_not_quadratic)
{
    struct want *wants = calloc(MANY, sizeof *wants);
    ck_assert_ptr_nonnull(wants);
    manual_clock.manual_ns = 0;
    ck_assert_uint_le(attempts_to_serve(wants, MANY, all_equal), 4 * (uint64_t)MANY);
    ck_assert_uint_le(attempts_to_serve(wants, MANY, mixed), 2 * (uint64_t)MANY * log_2(MANY));
    set.room = room_now;
    ck_assert_uint_le(attempts_to_serve(wants, MANY, mixed), 4 * (uint64_t)MANY);
    ck_assert_uint_le(attempts_to_serve(wants, MANY, descending), 4 * (uint64_t)MANY);
    free(wants);
}
END_TEST

static unsigned looks;

static int look_at_three(struct spw__waiter *waiter, void *arg)
{
    (void)waiter;
    (void)arg;
    return ++looks == 3 ? SPW__VISIT_STOP : SPW_EAGAIN;
}

START_TEST(a_visit_ends_when_it_has_seen_enough_and_finds_demands_among_others)
{
    enum { N = 1000 };
    struct want *wants = calloc(N, sizeof *wants);
    ck_assert_ptr_nonnull(wants);
    for (unsigned i = 0; i < N; i++) {
        wants[i] = want_of(1);
        wants[i].waiter.demands = i == 700 || i == 900 ? HOST : DEVICE;
        enqueue(&wants[i]);
    }
    spw__waitset_visit(&set, HOST, look_at_three, NULL);
    ck_assert_uint_eq(looks, 3);
    looks = 10;
    spw__waitset_visit_demands(&set, HOST, look_at_three, NULL);
    ck_assert_uint_eq(looks, 12);
    for (unsigned i = 0; i < N; i++)
        leave(&wants[i]);
    free(wants);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_fair");
    TCase *tcase = tcase_create("manual clock");
    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup_manual, teardown);
    tcase_add_test(tcase, within_a_band_of_age_the_one_that_frees_most_is_first_and_bands_go_by_age);
    tcase_add_test(tcase, a_failure_spares_the_attempts_of_those_of_its_key_that_need_as_much);
    tcase_add_test(tcase, a_failure_of_one_key_says_nothing_about_another);
    tcase_add_test(tcase, a_need_that_is_unknown_is_always_considered);
    tcase_add_test(tcase, only_the_front_is_attempted_where_there_is_no_room);
    tcase_add_test(tcase, a_waiter_on_two_channels_is_skipped_only_where_both_say_so);
    tcase_add_test(tcase, a_hundred_thousand_waiters_are_not_quadratic);
    tcase_add_test(tcase, a_visit_ends_when_it_has_seen_enough_and_finds_demands_among_others);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
