/* Tickets under races: cancelling and destroying against completion, and many threads with everything at once. */
#include "ticket_fixture.h"

enum { ROUNDS = 2000 };

/* A thread that does one thing to one ticket per round, as the other side begins. */
struct rival {
    pthread_barrier_t start;
    pthread_barrier_t end;
    spw_ticket *ticket; /* of this round; NULL: there is none any more */
    int (*act)(spw_ticket *ticket);
};

static void *rival_main(void *arg)
{
    struct rival *rival = arg;
    for (;;) {
        (void)pthread_barrier_wait(&rival->start);
        if (!rival->ticket)
            return NULL;
        ck_assert_int_eq(rival->act(rival->ticket), SPW_OK);
        (void)pthread_barrier_wait(&rival->end);
    }
}

static pthread_t start_rival(struct rival *rival, int (*act)(spw_ticket *ticket))
{
    rival->act = act;
    ck_assert_int_eq(pthread_barrier_init(&rival->start, NULL, 2), 0);
    ck_assert_int_eq(pthread_barrier_init(&rival->end, NULL, 2), 0);
    return must_start(rival_main, rival);
}

static void end_rival(struct rival *rival, pthread_t thread)
{
    rival->ticket = NULL;
    (void)pthread_barrier_wait(&rival->start);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)pthread_barrier_destroy(&rival->start);
    (void)pthread_barrier_destroy(&rival->end);
}

/* Starts a ticket that has to wait, and serves it while the rival acts. */
static spw_ticket *play_round(struct rival *rival, int form, spw_buffer *buffer)
{
    spw_buffer *held = hold(MIB);
    spw_ticket *ticket = rival->ticket = start_form(form, buffer);
    (void)pthread_barrier_wait(&rival->start);
    must_release(held);
    (void)pthread_barrier_wait(&rival->end);
    return ticket;
}

START_TEST(cancelling_against_completion_ends_in_exactly_one_of_both)
{
    struct rival rival;
    unsigned done = 0, cancelled = 0;
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    const pthread_t thread = start_rival(&rival, spw_ticket_cancel);
    for (unsigned round = 0; round < ROUNDS / FORMS; round++) {
        spw_ticket *ticket = play_round(&rival, _i, buffer);
        const int rc = spw_ticket_wait(ticket, NULL);
        ck_assert_msg(rc == SPW_OK || rc == SPW_ECANCELED, "%s", spw_error_name(rc));
        done += rc == SPW_OK;
        cancelled += rc == SPW_ECANCELED;
        ck_assert_int_eq(spw_ticket_poll(ticket), rc);
        must_destroy(ticket); /* with what it brought */
        if (_i != MAP_FORM)
            comes_to(SPW_TIER_HOST, STAGING + (spw_buffer_place(buffer) == SPW_HOST ? 512 * KIB : 0));
    }
    end_rival(&rival, thread);
    ck_assert_uint_eq(done + cancelled, ROUNDS / FORMS);
    check_at(buffer, SPW_HOST, 7);
    must_release(buffer);
}
END_TEST

START_TEST(destroying_against_completion_leaves_nothing)
{
    struct rival rival;
    spw_buffer *buffer = must_make(SPW_HOST, 512 * KIB, 7);
    const pthread_t thread = start_rival(&rival, spw_ticket_destroy);
    for (unsigned round = 0; round < ROUNDS / FORMS; round++)
        (void)play_round(&rival, _i, buffer);
    end_rival(&rival, thread);
    check_at(buffer, SPW_HOST, 7);
    must_release(buffer);
}
END_TEST

/* Everything at once, by several threads over the same little memory. */
enum { THREADS = 4, STEPS = 400, BUFFERS = 6 };
static spw_buffer *shared_buffers[BUFFERS];

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 10;
}

static atomic_bool faulty; /* metadata memory and reads fail now and then */

/* NULL: no memory for the ticket. */
static spw_ticket *start_any(unsigned which, size_t bytes, unsigned index)
{
    spw_ticket *ticket = NULL;
    int rc;
    switch (which) {
    case 0: rc = spw_admit_start(manager, bytes, NULL, &ticket); break;
    case 1: rc = spw_alloc_start(manager, SPW_HOST, bytes, NULL, &ticket); break;
    case 2: rc = spw_reserve_start(manager, SPW_HOST, bytes, NULL, &ticket); break;
    case 3: rc = spw_pool_alloc_start(manager, SPW_HOST, bytes, 64, NULL, NULL, &ticket); break;
    default: rc = spw_map_start(shared_buffers[index], SPW_HOST, SPW_MAP_READ, NULL, &ticket);
    }
    ck_assert_msg(rc == SPW_OK || (atomic_load(&faulty) && rc == SPW_ENOMETA), "start: %s",
                  spw_error_detail()->message);
    return ticket;
}

static bool may_end_as(int rc, bool cancelled)
{
    return rc == SPW_OK || (cancelled && rc == SPW_ECANCELED) ||
           (atomic_load(&faulty) && (rc == SPW_ENOMETA || rc == SPW_EIO));
}

static void *live(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg;
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned which = next_random(&random) % FORMS, index = next_random(&random) % BUFFERS;
        if (atomic_load(&faulty))
            spw__fault_arm(which & 1 ? SPW__FAULT_META_ALLOC : SPW__FAULT_IO_READ, 1 + next_random(&random) % 8, 1,
                           EIO);
        spw_ticket *ticket = start_any(which, 1 + next_random(&random) % (256 * KIB), index);
        const unsigned end = next_random(&random) % 4;
        if (!ticket)
            continue;
        if (end == 0)
            ck_assert_int_eq(spw_ticket_cancel(ticket), SPW_OK);
        if (end <= 2) {
            const int rc = spw_ticket_wait(ticket, NULL);
            ck_assert_msg(may_end_as(rc, end == 0), "%s: %s", spw_error_name(rc), spw_error_detail()->message);
            spw_view view;
            if (rc == SPW_OK && which == MAP_FORM && end == 2) {
                ck_assert_int_eq(spw_ticket_take_view(ticket, &view), SPW_OK);
                ck_assert(has_content(view.data, view.size, index));
                ck_assert_int_eq(spw_unmap(shared_buffers[index], &view, NULL), SPW_OK);
            }
        }
        must_destroy(ticket);
    }
    return NULL;
}

START_TEST(many_threads_with_tickets_of_all_kinds_come_to_their_end)
{
    pthread_t threads[THREADS];
    atomic_store(&faulty, _i == 1);
    for (unsigned i = 0; i < BUFFERS; i++)
        shared_buffers[i] = must_make(SPW_HOST, 256 * KIB, i);
    for (unsigned i = 0; i < THREADS; i++)
        threads[i] = must_start(live, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    spw__fault_disarm(SPW__FAULT_IO_READ);
    for (unsigned i = 0; i < BUFFERS; i++) {
        check_at(shared_buffers[i], SPW_HOST, i);
        must_release(shared_buffers[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ticket_race");
    TCase *both[2] = {tcase_create("ticket_race"), tcase_create("threadless")};
    tcase_add_checked_fixture(both[0], setup, teardown);
    tcase_add_checked_fixture(both[1], setup_threadless, teardown);
    for (int i = 0; i < 2; i++) {
        TCase *tests = both[i];
        tcase_set_timeout(tests, 100);
        tcase_add_loop_test(tests, cancelling_against_completion_ends_in_exactly_one_of_both, 0, FORMS);
        tcase_add_loop_test(tests, destroying_against_completion_leaves_nothing, 0, FORMS);
        tcase_add_loop_test(tests, many_threads_with_tickets_of_all_kinds_come_to_their_end, 0, 2);
        suite_add_tcase(suite, tests);
    }
    return run_suite(suite);
}
