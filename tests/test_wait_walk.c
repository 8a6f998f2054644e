/* Walks over those who wait, at random against a plain look at all of them: who is come to, in which order, when bounds
 * are lowered, channels are barred and waiters end on the way. */
#include "pool/base/wait_pass.h"
#include "pool/base/wait_walk.h"
#include "tests/wait_fixture.h"

enum { WAITERS = 120, KEYS = 4, RUNS = 500 };

static struct spw__waiter waiters[WAITERS], another;
static const char keys[KEYS]; /* never followed */
static uint64_t seed;

/* What the reference knows of the walk: the bounds of each key. */
static uint64_t bounds[KEYS][SPW__WAIT_CHANNELS];

static uint64_t pick(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

static unsigned key_of(const struct spw__waiter *waiter)
{
    return (unsigned)((const char *)waiter->key - keys);
}

static void insert_some(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        waiters[i] = (struct spw__waiter){.set = &set, .waiting = true, .key = &keys[pick(KEYS)],
                                          .channels = 1 + (uint32_t)pick(7), .net_bytes = (int64_t)pick(4),
                                          .deadline_ns = UINT64_MAX};
        waiters[i].demands = waiters[i].channels & (uint32_t)pick(8);
        for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
            waiters[i].need[channel] = pick(8) ? 1 + pick(6) : 0;
        spw__cond_init(&waiters[i].done);
        spw__wait_insert_locked(&set, &waiters[i]);
    }
}

static bool is_within(const struct spw__wait_walk *walk, const struct spw__waiter *waiter)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        const uint32_t bit = SPW__CHANNEL(channel);
        if ((walk->channels & waiter->channels & bit) && !(walk->heeds_barriers && set.barriers[channel]) &&
            waiter->need[channel] <= walk->most[channel] && waiter->need[channel] <= bounds[key_of(waiter)][channel] &&
            (!walk->marked_only || (waiter->demands & bit)))
            return true;
    }
    return false;
}

/* The first after a place in the order that is within the bounds. */
static struct spw__waiter *naive_next(const struct spw__wait_walk *walk, const struct spw__wait_order *after)
{
    struct spw__waiter *best = NULL;
    for (unsigned i = 0; i < WAITERS; i++) {
        const struct spw__wait_order *order = &waiters[i].nodes[0].order;
        if (waiters[i].waiting && is_within(walk, &waiters[i]) && (!after || spw__wait_before(after, order)) &&
            (!best || spw__wait_before(order, &best->nodes[0].order)))
            best = &waiters[i];
    }
    return best;
}

static void end(struct spw__waiter *waiter)
{
    if (waiter->waiting)
        spw__wait_finish_locked(&set, waiter, SPW_OK);
}

static void change_something(struct spw__wait_walk *walk, struct spw__waiter *current)
{
    const uint32_t channels = (uint32_t)pick(8);
    const unsigned channel = (unsigned)pick(SPW__WAIT_CHANNELS);
    const uint64_t least = pick(7);
    switch (pick(6)) {
    case 0: end(&waiters[pick(WAITERS)]); break;
    case 1: end(current); break;
    case 2: walk->most[channel] = walk->most[channel] < least ? walk->most[channel] : least; break;
    case 3: set.barriers[channel] = &another; break; /* somebody who is none of these */
    default:
        spw__wait_walk_leave_out(walk, current, channels);
        for (unsigned at = 0; at < SPW__WAIT_CHANNELS; at++)
            if ((channels & current->channels & SPW__CHANNEL(at)) && current->need[at] &&
                current->need[at] - 1 < bounds[key_of(current)][at])
                bounds[key_of(current)][at] = current->need[at] - 1;
    }
}

static void walk_and_compare(void)
{
    struct spw__wait_walk walk = {.channels = 1 + (uint32_t)pick(7), .heeds_barriers = pick(2), .marked_only = pick(2)};
    struct spw__wait_order at;
    struct spw__waiter *expected, *waiter;
    const bool changes = pick(4) != 0;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        walk.most[channel] = pick(2) ? SPW__WAIT_UNBOUNDED : pick(8);
    memset(bounds, 0xff, sizeof bounds);
    spw__wait_walk_begin(&walk, &set);
    for (const struct spw__wait_order *after = NULL; (expected = naive_next(&walk, after)); after = &at) {
        waiter = spw__wait_walk_peek(&walk);
        ck_assert_ptr_eq(waiter, expected);
        ck_assert_ptr_eq(spw__wait_walk_next(&walk), expected);
        at = waiter->nodes[0].order;
        if (changes)
            change_something(&walk, waiter);
    }
    ck_assert_ptr_null(spw__wait_walk_next(&walk));
    spw__wait_walk_end(&walk);
    if (pick(2)) { /* one that is broken off leaves nothing behind */
        spw__wait_walk_begin(&walk, &set);
        spw__wait_walk_end(&walk);
    }
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        set.barriers[channel] = NULL;
    for (unsigned i = 0; i < WAITERS; i++)
        ck_assert(!waiters[i].candidate);
}

START_TEST(a_walk_comes_to_those_that_a_look_at_all_comes_to)
{
    for (unsigned run = 0; run < RUNS; run++) {
        seed = run + 1;
        spw__mutex_lock(&set.lock);
        memset(waiters, 0, sizeof waiters);
        insert_some((unsigned)pick(WAITERS) + 1);
        for (unsigned i = 0; i < 3; i++)
            walk_and_compare();
        for (unsigned i = 0; i < WAITERS; i++)
            end(&waiters[i]);
        set.again = 0;
        spw__mutex_unlock(&set.lock);
    }
}
END_TEST

/* Keys whose own limit lets nobody proceed, and one that has room. */
enum { MANY_KEYS = 40, OF_EACH = 25 };
static long rooms[MANY_KEYS];
static const char many_keys[MANY_KEYS];

static int take_own(struct spw__waiter *waiter)
{
    struct want *want = (struct want *)(void *)waiter;
    long *own = &rooms[(const char *)waiter->key - many_keys];
    want->attempts++;
    waiter->held_back = *own < want->bytes;
    if (waiter->held_back)
        return SPW_EAGAIN;
    *own -= want->bytes;
    want->place = ++n_served;
    return SPW_OK;
}

START_TEST(what_waits_behind_a_limit_of_its_own_costs_a_pass_one_attempt_per_key)
{
    static struct want wants[MANY_KEYS * OF_EACH];
    n_served = 0;
    for (unsigned i = 0; i < MANY_KEYS * OF_EACH; i++) {
        wants[i] = want_of(10);
        wants[i].waiter.attempt = take_own;
        wants[i].waiter.key = &many_keys[i % MANY_KEYS];
        enqueue(&wants[i]);
    }
    for (unsigned key = MANY_KEYS; key-- > 0;) {
        rooms[key] = 25; /* raised, or released: nobody says whose */
        const uint64_t attempts = set.attempts, passes = set.passes;
        spw__waitset_signal(&set, HOST);
        ck_assert_uint_eq(set.passes, passes + 1);
        ck_assert_uint_eq(set.attempts, attempts + MANY_KEYS + 2);
        is_over(&wants[key], SPW_OK);
        is_over(&wants[MANY_KEYS + key], SPW_OK); /* and no more than fit */
        still_waits(&wants[2 * MANY_KEYS + key]);
    }
    ck_assert_uint_eq(n_served, 2 * MANY_KEYS);
    for (unsigned i = 2 * MANY_KEYS; i < MANY_KEYS * OF_EACH; i++)
        ck_assert_int_eq(spw__wait_leave(&set, &wants[i].waiter), SPW_ETIMEDOUT);
}
END_TEST

static unsigned n_visits;

static int enough_after_two(struct spw__waiter *waiter, void *arg)
{
    unsigned *seen = arg;
    n_visits++;
    return ++seen[(const char *)waiter->key - many_keys] >= 2 ? SPW__VISIT_ENOUGH : SPW_EAGAIN;
}

START_TEST(a_visit_that_has_seen_enough_of_a_key_comes_to_smaller_ones_alone)
{
    static struct want wants[MANY_KEYS * OF_EACH];
    unsigned seen[MANY_KEYS] = {0};
    for (unsigned i = 0; i < MANY_KEYS * OF_EACH; i++) {
        wants[i] = want_of(i / MANY_KEYS == OF_EACH - 1 ? 5 : 10);
        wants[i].waiter.key = &many_keys[i % MANY_KEYS];
        wants[i].waiter.demands = HOST;
        enqueue(&wants[i]);
    }
    n_visits = 0;
    spw__waitset_visit_demands(&set, HOST, enough_after_two, seen);
    ck_assert_uint_eq(n_visits, 3 * MANY_KEYS); /* the oldest two, and the last, which wants less */
    for (unsigned i = 0; i < MANY_KEYS * OF_EACH; i++)
        ck_assert_int_eq(spw__wait_leave(&set, &wants[i].waiter), SPW_ETIMEDOUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_walk");
    TCase *tcase = tcase_create("walk");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_walk_comes_to_those_that_a_look_at_all_comes_to);
    tcase_add_test(tcase, what_waits_behind_a_limit_of_its_own_costs_a_pass_one_attempt_per_key);
    tcase_add_test(tcase, a_visit_that_has_seen_enough_of_a_key_comes_to_smaller_ones_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
