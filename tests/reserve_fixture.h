/* What the tests of reservations share: reservations that must be had, and requests for them by other threads. */
#ifndef SPW_TESTS_RESERVE_FIXTURE_H
#define SPW_TESTS_RESERVE_FIXTURE_H

#include "tests/manager_fixture.h"

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    remove_folder();
}

static inline spw_reserve_options with_flags(uint32_t flags, uint64_t least_bytes)
{
    spw_reserve_options options;
    spw_reserve_options_init(&options);
    options.flags = flags;
    options.least_bytes = least_bytes;
    return options;
}

static inline int reserve_with(uint64_t bytes, uint32_t flags, uint64_t least_bytes, spw_reservation **out)
{
    const spw_reserve_options options = with_flags(flags, least_bytes);
    return spw_reserve(manager, SPW_HOST, bytes, &options, out);
}

static inline int try_reserve(uint64_t bytes, spw_reservation **out)
{
    return reserve_with(bytes, SPW_RESERVE_TRY, 0, out);
}

static inline spw_reservation *must_reserve(uint64_t bytes)
{
    spw_reservation *reservation = NULL;
    const int rc = spw_reserve(manager, SPW_HOST, bytes, NULL, &reservation);
    ck_assert_msg(rc == SPW_OK, "reserve: %s: %s", spw_error_name(rc), spw_error_detail()->message);
    return reservation;
}

static inline void must_end(spw_reservation *reservation)
{
    ck_assert_int_eq(spw_reservation_release(reservation), SPW_OK);
}

/* What the ledger has, without the snapshot's locks and drains. */
static inline uint64_t committed_now(void)
{
    return atomic_load(&manager->root.gates[SPW_TIER_HOST].committed);
}

/* A reservation wanted by another thread. */
struct wish {
    uint64_t bytes;
    spw_reserve_options options;
    spw_reservation *reservation;
    int rc;
    spw_error_info detail;
};

static inline struct wish wish_for(uint64_t bytes, int64_t timeout_ms)
{
    struct wish wish = {.bytes = bytes, .options = with_flags(0, 0)};
    wish.options.wait.timeout_ms = timeout_ms;
    return wish;
}

static inline void *fulfil(void *arg)
{
    struct wish *wish = arg;
    wish->rc = spw_reserve(manager, SPW_HOST, wish->bytes, &wish->options, &wish->reservation);
    wish->detail = *spw_error_detail();
    return NULL;
}

static inline void until_waiting(unsigned n)
{
    while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) != n)
        (void)sched_yield();
}

/* Returns when it is one of n that wait for host memory: a state to be reached, not a time to pass. */
static inline pthread_t start_wish(struct wish *wish, unsigned n)
{
    const pthread_t thread = must_start(fulfil, wish);
    until_waiting(n);
    return thread;
}

static inline void must_join(pthread_t thread)
{
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

#endif
