/* Cancelling a group: its waits end, its bytes go from every tier without being written, and its handles stay. */
#include "tests/group_fixture.h"

#include <spillway/pool.h>

START_TEST(buffers_of_a_cancelled_group_are_freed_in_every_tier_and_nothing_is_written)
{
    spw_buffer *mine[10], *other;
    spw_view view;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("doomed", NULL, 0, SPW_NO_LIMIT, 1);
    for (unsigned i = 0; i < 10; i++)
        mine[i] = must_make_in(group, PIECE, i);
    ck_assert_uint_ge(usage_of(group, SPW_DISK).committed_bytes, 2 * PIECE);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    comes_to(SPW_TIER_HOST, STAGING);
    const uint64_t written = stats.disk_written_bytes;
    ck_assert_uint_eq(held(group), 0);
    ck_assert_uint_eq(usage_of(group, SPW_DISK).committed_bytes, 0);
    ck_assert_int_eq(spw_map(mine[0], SPW_HOST, SPW_MAP_READ, NULL, &view), SPW_ECANCELED);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"doomed\""));
    ck_assert_uint_eq(spw_buffer_place(mine[9]), SPW_PLACE_NONE);
    ck_assert_uint_eq(spw_buffer_size(mine[9]), PIECE); /* the handles are as they were */
    ck_assert_str_eq(spw_buffer_tag(mine[9]), "of a group");
    other = must_alloc(SPW_HOST, 8 * PIECE); /* all of it is free, and nobody had to go for it */
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, 2 * PIECE);
    ck_assert_uint_eq(stats.disk_written_bytes, written);
    must_release(other);
    ck_assert_int_eq(spw_group_destroy(group), SPW_EBUSY);
    for (unsigned i = 0; i < 10; i++)
        must_release(mine[i]);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(new_requests_of_a_cancelled_group_and_all_below_are_cancelled)
{
    spw_admit_options admit;
    spw_pool_options pool;
    spw_buffer *none = NULL;
    spw_block block;
    spw_group *refused = NULL;
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, SPW_NO_LIMIT, 1);
    spw_group *query = must_group("query", tenant, 0, SPW_NO_LIMIT, 1);
    spw_group *beside = must_group("beside", NULL, 0, SPW_NO_LIMIT, 1);
    spw_buffer *unsealed = NULL, *other = must_make_in(beside, PIECE, 7);
    ck_assert_int_eq(alloc_in(query, PIECE, 0, &unsealed), SPW_OK);
    ck_assert_int_eq(spw_group_cancel(tenant), SPW_OK);
    ck_assert_int_eq(spw_group_cancel(tenant), SPW_OK);
    ck_assert_uint_eq(held(query), 0); /* what was not sealed is gone as well */
    ck_assert_int_eq(spw_buffer_write(unsealed, 0, "x", 1), SPW_ECANCELED);
    ck_assert_int_eq(alloc_in(query, PIECE, 0, &none), SPW_ECANCELED);
    ck_assert_int_eq(alloc_in(query, 0, 0, &none), SPW_ECANCELED);
    spw_admit_options_init(&admit);
    admit.group = tenant;
    ck_assert_int_eq(spw_admit(manager, PIECE, &admit, &none), SPW_ECANCELED);
    spw_pool_options_init(&pool);
    pool.group = query;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_HOST, PIECE, 0, NULL, &pool, &block), SPW_ECANCELED);
    ck_assert_int_eq(create_group("late", query, 0, SPW_NO_LIMIT, 1, 0, &refused), SPW_ECANCELED);
    check_at(other, SPW_HOST, 7);
    must_release(other);
    must_release(unsealed);
    must_destroy(query);
    must_destroy(tenant);
    must_destroy(beside);
    close_manager();
}
END_TEST

START_TEST(a_mapped_buffer_of_a_cancelled_group_goes_with_its_last_view)
{
    spw_view first, second;
    open_manager(SMALL_HOST);
    spw_group *group = must_group("mapped", NULL, 0, SPW_NO_LIMIT, 1);
    spw_buffer *buffer = must_make_in(group, 2 * PIECE, 5);
    must_hold(buffer, &first);
    must_hold(buffer, &second);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    ck_assert_uint_eq(held(group), 2 * PIECE);
    ck_assert(has_content(first.data, first.size, 5));
    ck_assert_int_eq(spw_unmap(buffer, &first, NULL), SPW_OK);
    ck_assert_uint_eq(held(group), 2 * PIECE);
    ck_assert(has_content(second.data, second.size, 5));
    ck_assert_int_eq(spw_unmap(buffer, &second, NULL), SPW_OK);
    ck_assert_uint_eq(held(group), 0);
    must_release(buffer);
    must_destroy(group);
    close_manager();
}
END_TEST

START_TEST(what_a_stream_still_uses_goes_when_it_is_done)
{
    spw_view view, scratch;
    open_manager("device=32M; driver=sim; host=1M");
    spw_buffer *room = must_alloc(SPW_DEVICE, 16 * MIB), *buffer = NULL;
    spw_group *group = must_group("streamed", NULL, 0, SPW_NO_LIMIT, 1);
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.group = group;
    ck_assert_int_eq(spw_alloc(manager, SPW_DEVICE, MIB, &options, &buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    ck_assert_int_eq(spw_map(room, SPW_DEVICE, SPW_MAP_WRITE, NULL, &scratch), SPW_OK);
    ck_assert_int_eq(spw_map(buffer, SPW_DEVICE, SPW_MAP_READ, NULL, &view), SPW_OK);
    const spw__stream stream = busy_stream(&scratch);
    ck_assert_int_eq(spw_unmap(buffer, &view, (spw_stream *)stream), SPW_OK);
    ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
    comes_to(SPW_TIER_DEVICE, 16 * MIB);
    ck_assert_int_eq(spw__device_synchronize(manager->device, stream), SPW_OK);
    ck_assert_uint_eq(usage_of(group, SPW_DEVICE).committed_bytes, 0);
    must_release(buffer);
    ck_assert_int_eq(spw_unmap(room, &scratch, NULL), SPW_OK);
    must_release(room);
    must_destroy(group);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    close_manager();
}
END_TEST

struct caller {
    spw_group *group;
    spw_buffer *buffer; /* NULL: allocate */
    int rc;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    spw_view view;
    spw_map_options options;
    spw_map_options_init(&options);
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    caller->rc = caller->buffer ? spw_map(caller->buffer, SPW_HOST, SPW_MAP_READ, &options, &view)
                                : alloc_in(caller->group, 8 * PIECE, SPW_TIMEOUT_INFINITE, &caller->buffer);
    return NULL;
}

static void wait_for_waiters(uint32_t n)
{
    while (atomic_load(&manager->waits.n_waiting[SPW_TIER_HOST]) < n)
        (void)sched_yield();
}

START_TEST(waits_that_are_charged_to_a_cancelled_group_end)
{
    spw_buffer *fixed;
    open_manager(SMALL_HOST);
    spw_group *tenant = must_group("tenant", NULL, 0, SPW_NO_LIMIT, 1);
    spw_group *query = must_group("query", tenant, 0, SPW_NO_LIMIT, 1);
    struct caller alloc = {.group = query}, map = {.buffer = must_make_in(query, PIECE, 3)}, other = {.group = NULL};
    push_out(SPW_HOST, 8 * PIECE);
    ck_assert_uint_eq(spw_buffer_place(map.buffer), SPW_DISK);
    ck_assert_int_eq(alloc_in(NULL, 8 * PIECE, 0, &fixed), SPW_OK); /* never sealed: nobody gets anything */
    const pthread_t threads[3] = {must_start(call, &alloc), must_start(call, &map), must_start(call, &other)};
    wait_for_waiters(3);
    ck_assert_int_eq(spw_group_cancel(tenant), SPW_OK);
    ck_assert_int_eq(pthread_join(threads[0], NULL), 0);
    ck_assert_int_eq(pthread_join(threads[1], NULL), 0);
    ck_assert_int_eq(alloc.rc, SPW_ECANCELED);
    ck_assert_int_eq(map.rc, SPW_ECANCELED);
    must_release(fixed); /* the other one waits on, and is served */
    ck_assert_int_eq(pthread_join(threads[2], NULL), 0);
    ck_assert_int_eq(other.rc, SPW_OK);
    must_release(other.buffer);
    must_release(map.buffer);
    must_destroy(query);
    must_destroy(tenant);
    close_manager();
}
END_TEST

enum { WORKERS = 4, BUFFERS = 12, ROUNDS = 8 };

struct worker {
    spw_group *group;
    unsigned seed;
    unsigned wrong; /* results that a cancelled group does not explain */
};

/* Makes, maps and releases buffers in no order until its group is cancelled, and then gives everything back. */
static void *work(void *arg)
{
    struct worker *worker = arg;
    spw_buffer *buffers[BUFFERS] = {NULL};
    unsigned state = worker->seed;
    int rc = SPW_OK;
    while (rc != SPW_ECANCELED) {
        spw_view view;
        state = state * 1103515245 + 12345;
        spw_buffer **at = &buffers[(state >> 16) % BUFFERS];
        if (!*at) {
            rc = alloc_in(worker->group, (1 + (state >> 20) % 3) * PIECE, SPW_TIMEOUT_INFINITE, at);
            if (rc == SPW_OK)
                rc = spw_buffer_seal(*at);
        } else if ((state >> 24) % 4) {
            rc = spw_map(*at, SPW_HOST, SPW_MAP_READ, NULL, &view);
            if (rc == SPW_OK)
                rc = spw_unmap(*at, &view, NULL);
        } else {
            rc = spw_buffer_release(*at);
            *at = NULL;
        }
        worker->wrong += rc != SPW_OK && rc != SPW_ECANCELED;
    }
    for (unsigned i = 0; i < BUFFERS; i++)
        worker->wrong += spw_buffer_release(buffers[i]) != SPW_OK;
    return NULL;
}

START_TEST(cancel_under_full_load_reaches_zero_counters)
{
    open_manager(_i ? SMALL_HOST "; io=threads" : SMALL_HOST);
    for (unsigned round = 0; round < ROUNDS; round++) {
        spw_group *tenant = must_group("tenant", NULL, round % 2 * PIECE, SPW_NO_LIMIT, 1);
        struct worker workers[WORKERS];
        pthread_t threads[WORKERS];
        spw_group *queries[2] = {must_group("first", tenant, 0, 6 * PIECE, 1),
                                 must_group("second", tenant, 0, SPW_NO_LIMIT, 2)};
        for (unsigned i = 0; i < WORKERS; i++) {
            workers[i] = (struct worker){.group = queries[i % 2], .seed = round * WORKERS + i + 1};
            threads[i] = must_start(work, &workers[i]);
        }
        while (usage_of(tenant, SPW_DISK).peak_bytes < 4 * PIECE) /* until it spills */
            (void)sched_yield();
        ck_assert_int_eq(spw_group_cancel(tenant), SPW_OK);
        for (unsigned i = 0; i < WORKERS; i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
            ck_assert_uint_eq(workers[i].wrong, 0);
        }
        must_destroy(queries[0]);
        must_destroy(queries[1]);
        must_destroy(tenant);
        ck_assert_uint_eq(committed(SPW_TIER_HOST), STAGING);
        ck_assert_uint_eq(committed(SPW_TIER_DISK), 0);
    }
    close_manager();
}
END_TEST

enum { PAID = 64 };

/* What a thread allocates out of a reservation while its group is cancelled. */
struct payer {
    spw_reservation *reservation;
    spw_buffer *buffers[PAID];
    unsigned n;
    int rc;
    _Atomic bool begun;
};

static void *pay(void *arg)
{
    struct payer *payer = arg;
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.reservation = payer->reservation;
    atomic_store(&payer->begun, true);
    for (payer->n = 0; payer->n < PAID; payer->n++) {
        payer->rc = spw_alloc(manager, SPW_HOST, 4 * KIB, &options, &payer->buffers[payer->n]);
        if (payer->rc != SPW_OK)
            break;
    }
    return NULL;
}

START_TEST(what_a_reservation_pays_for_while_its_group_is_cancelled_is_neither_lost_nor_counted_twice)
{
    open_manager(SMALL_HOST);
    for (unsigned round = 0; round < 300; round++) {
        struct payer payer = {.rc = SPW_OK};
        spw_reserve_options options;
        spw_group *group = must_group("doomed", NULL, 0, SPW_NO_LIMIT, 1);
        spw_reserve_options_init(&options);
        options.group = group;
        ck_assert_int_eq(spw_reserve(manager, SPW_HOST, PAID * 4 * KIB, &options, &payer.reservation), SPW_OK);
        const pthread_t thread = must_start(pay, &payer);
        while (!atomic_load(&payer.begun))
            (void)sched_yield();
        for (unsigned turn = 0; turn < round % 8; turn++)
            (void)sched_yield();
        ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert(payer.rc == SPW_OK || payer.rc == SPW_ECANCELED);
        ck_assert_uint_eq(spw_reservation_size(payer.reservation), (PAID - payer.n) * 4 * KIB);
        ck_assert_uint_eq(held(group), (PAID - payer.n) * 4 * KIB); /* the buffers' bytes are gone */
        for (unsigned i = 0; i < payer.n; i++)
            must_release(payer.buffers[i]);
        ck_assert_int_eq(spw_reservation_release(payer.reservation), SPW_OK);
        must_destroy(group);
    }
    close_manager();
}
END_TEST

/* A buffer that is written again and again; rc is the first result that is none. */
struct writer {
    spw_buffer *buffer;
    int rc;
    _Atomic bool begun;
};

static void *write_until_it_fails(void *arg)
{
    struct writer *writer = arg;
    do {
        writer->rc = spw_buffer_write(writer->buffer, 0, "content", 8);
        atomic_store(&writer->begun, true);
    } while (writer->rc == SPW_OK);
    return NULL;
}

START_TEST(a_write_that_meets_a_cancel_says_so)
{
    open_manager(SMALL_HOST);
    for (unsigned round = 0; round < 300; round++) {
        struct writer writer = {.rc = SPW_OK};
        spw_group *group = must_group("doomed", NULL, 0, SPW_NO_LIMIT, 1);
        ck_assert_int_eq(alloc_in(group, 4 * KIB, 0, &writer.buffer), SPW_OK);
        const pthread_t thread = must_start(write_until_it_fails, &writer);
        while (!atomic_load(&writer.begun))
            (void)sched_yield();
        ck_assert_int_eq(spw_group_cancel(group), SPW_OK);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_int_eq(writer.rc, SPW_ECANCELED);
        must_release(writer.buffer);
        must_destroy(group);
    }
    close_manager();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_cancel");
    TCase *tcase = tcase_create("group_cancel");
    tcase_add_checked_fixture(tcase, make_folder, remove_folder);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, buffers_of_a_cancelled_group_are_freed_in_every_tier_and_nothing_is_written);
    tcase_add_test(tcase, new_requests_of_a_cancelled_group_and_all_below_are_cancelled);
    tcase_add_test(tcase, a_mapped_buffer_of_a_cancelled_group_goes_with_its_last_view);
    tcase_add_test(tcase, what_a_stream_still_uses_goes_when_it_is_done);
    tcase_add_test(tcase, waits_that_are_charged_to_a_cancelled_group_end);
    tcase_add_test(tcase, what_a_reservation_pays_for_while_its_group_is_cancelled_is_neither_lost_nor_counted_twice);
    tcase_add_test(tcase, a_write_that_meets_a_cancel_says_so);
    tcase_add_loop_test(tcase, cancel_under_full_load_reaches_zero_counters, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
