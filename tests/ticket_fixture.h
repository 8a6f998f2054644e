/* What the tests of tickets share: tickets that must be had, and their ends. */
#ifndef SPW_TESTS_TICKET_FIXTURE_H
#define SPW_TESTS_TICKET_FIXTURE_H

#include "manager_fixture.h"

#include <poll.h>

static inline void setup(void)
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

/* The same without the library's thread. */
static inline void setup_threadless(void)
{
    make_folder();
    open_manager(SMALL_HOST "; threads=0");
}

/* Memory that nothing can evict: unsealed. */
static inline spw_buffer *hold(size_t bytes)
{
    return must_alloc(SPW_HOST, bytes);
}

static inline spw_ticket *start_alloc_within(size_t bytes, int64_t timeout_ms)
{
    spw_ticket *ticket = NULL;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = timeout_ms;
    const int rc = spw_alloc_start(manager, SPW_HOST, bytes, &options, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

static inline spw_ticket *start_alloc(size_t bytes)
{
    return start_alloc_within(bytes, SPW_TIMEOUT_DEFAULT);
}

static inline spw_ticket *start_map(spw_buffer *buffer)
{
    spw_ticket *ticket = NULL;
    const int rc = spw_map_start(buffer, SPW_HOST, SPW_MAP_READ, NULL, &ticket);
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}

/* Each form of half of the memory; view: of a buffer that is on disk. */
static inline spw_ticket *start_form(int form, spw_buffer *buffer)
{
    spw_ticket *ticket = NULL;
    int rc = SPW_OK;
    switch (form) {
    case 0: rc = spw_admit_start(manager, 512 * KIB, NULL, &ticket); break;
    case 1: rc = spw_alloc_start(manager, SPW_HOST, 512 * KIB, NULL, &ticket); break;
    case 2: rc = spw_reserve_start(manager, SPW_HOST, 512 * KIB, NULL, &ticket); break;
    case 3: rc = spw_pool_alloc_start(manager, SPW_HOST, 512 * KIB, 4096, NULL, NULL, &ticket); break;
    default: return start_map(buffer);
    }
    ck_assert_msg(rc == SPW_OK, "start: %s", spw_error_detail()->message);
    return ticket;
}
enum { FORMS = 5, MAP_FORM = 4 };

static inline void must_destroy(spw_ticket *ticket)
{
    ck_assert_int_eq(spw_ticket_destroy(ticket), SPW_OK);
}

static inline void must_end_as(spw_ticket *ticket, int rc)
{
    const int got = spw_ticket_wait(ticket, NULL);
    ck_assert_msg(got == rc, "%s: %s", spw_error_name(got), spw_error_detail()->message);
    ck_assert_int_eq(spw_ticket_poll(ticket), rc);
}

static inline spw_buffer *must_take(spw_ticket *ticket)
{
    spw_buffer *buffer = NULL;
    const int rc = spw_ticket_take_buffer(ticket, &buffer);
    ck_assert_msg(rc == SPW_OK, "take: %s", spw_error_detail()->message);
    return buffer;
}

static inline bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

/* None of what others would take is there. */
static inline void nothing_is_to_be_taken(spw_ticket *ticket)
{
    spw_buffer *buffer;
    spw_reservation *reservation;
    spw_block block;
    spw_view view;
    ck_assert_int_eq(spw_ticket_take_buffer(ticket, &buffer), SPW_EINVAL);
    ck_assert_ptr_null(buffer);
    ck_assert_int_eq(spw_ticket_take_reservation(ticket, &reservation), SPW_EINVAL);
    ck_assert_ptr_null(reservation);
    ck_assert_int_eq(spw_ticket_take_block(ticket, &block), SPW_EINVAL);
    ck_assert_ptr_null(block.ptr);
    ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_EINVAL);
    ck_assert_ptr_null(view.data);
}

/* A thread that cancels a ticket each round, at the same time as the test does something else. */
struct race {
    pthread_barrier_t barrier;
    spw_ticket *ticket; /* of this round; NULL: there is none any more */
};

static inline void *cancel_each(void *arg)
{
    struct race *race = arg;
    for (;;) {
        (void)pthread_barrier_wait(&race->barrier);
        if (!race->ticket)
            return NULL;
        ck_assert_int_eq(spw_ticket_cancel(race->ticket), SPW_OK);
        (void)pthread_barrier_wait(&race->barrier);
    }
}

#endif
