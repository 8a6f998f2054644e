/* Tasks and the arbiter: who is asked to give way, in which order, and that no wait hangs because all tasks wait.
 *
 * A wait that hangs shows as a test that never ends: the runner's time limit turns it into a failure. */
#include "task_fixture.h"

START_TEST(a_single_task_gets_retry_then_split_then_half_of_it)
{
    spw_buffer *more = NULL;
    spw_task *task = task_with("alone", 0, 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = hold(768 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_ERETRY);
    ck_assert_uint_eq(spw_error_detail()->requested_bytes, 512 * KIB);
    spw_wait_options wait;
    spw_wait_options_init(&wait);
    ck_assert_int_eq(spw_task_wait_turn(task, &wait), SPW_OK); /* nobody else: it is its turn */
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_ESPLIT);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &more), SPW_OK);
    const spw_task_usage usage = usage_of(task);
    ck_assert_uint_eq(usage.retries, 1);
    ck_assert_uint_eq(usage.splits, 1);
    ck_assert_uint_eq(usage.waits, 2);
    ck_assert_uint_eq(usage.committed_bytes[SPW_TIER_HOST], 1024 * KIB);
    must_release(held);
    must_release(more);
    ck_assert_int_eq(spw_task_wait_turn(task, NULL), SPW_OK); /* it got something: there is no turn to wait for */
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    ck_assert_uint_eq(usage_of(task).committed_bytes[SPW_TIER_HOST], 0);
    ck_assert_uint_eq(usage_of(task).peak_bytes[SPW_TIER_HOST], 1024 * KIB);
    end_task(task);
}
END_TEST

START_TEST(what_a_task_merely_gets_back_does_not_begin_its_count_anew)
{
    spw_buffer *more = NULL;
    spw_task *task = task_with("in a circle", 0, 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = hold(512 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1024 * KIB, NULL, &more), SPW_ERETRY);
    must_release(held);
    ck_assert_int_eq(spw_task_wait_turn(task, NULL), SPW_OK);
    held = hold(512 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1024 * KIB, NULL, &more), SPW_ESPLIT);
    spw_buffer *further = hold(256 * KIB); /* more than it held when it was asked */
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 1024 * KIB, NULL, &more), SPW_ERETRY);
    must_release(held);
    must_release(further);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    end_task(task);
}
END_TEST

static void run_pair(struct worker *important, struct worker *other)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    important->start = other->start = &start;
    important->thread = must_start(work, important);
    other->thread = must_start(work, other);
    join(important);
    join(other);
    (void)pthread_barrier_destroy(&start);
}

START_TEST(the_least_important_holder_is_asked_and_the_other_gets_what_it_gives_back)
{
    struct worker high = {.task = task_with("high", 2, 0), .held = 512 * KIB, .wanted = 256 * KIB};
    struct worker low = {.task = task_with("low", 1, 0), .held = 512 * KIB, .wanted = 256 * KIB, .gives_back = true};
    run_pair(&high, &low);
    ck_assert_int_eq(high.first, SPW_OK);
    ck_assert_int_eq(low.first, SPW_ERETRY);
    ck_assert_int_eq(low.turn, SPW_OK);
    ck_assert_int_eq(low.last, SPW_OK);
    ck_assert_uint_eq(usage_of(high.task).retries, 0);
    end_task(high.task);
    end_task(low.task);
}
END_TEST

START_TEST(among_equals_the_younger_is_asked)
{
    struct worker older = {.task = task_with("older", 7, 0), .held = 512 * KIB, .wanted = 256 * KIB};
    struct worker younger = {.task = task_with("younger", 7, 0), .held = 512 * KIB, .wanted = 256 * KIB,
                             .gives_back = true};
    run_pair(&older, &younger);
    ck_assert_int_eq(older.first, SPW_OK);
    ck_assert_int_eq(younger.first, SPW_ERETRY);
    end_task(older.task);
    end_task(younger.task);
}
END_TEST

START_TEST(who_was_asked_stays_parked_until_another_task_finishes)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *main_task = task_with("main", 5, 0), *third = task_with("third", 5, 0);
    ck_assert_int_eq(spw_task_attach(main_task), SPW_OK);
    spw_buffer *held = hold(512 * KIB), *small = hold(64 * KIB), *more = NULL;
    struct worker low = {.task = task_with("low", 1, 0), .held = 448 * KIB, .wanted = 768 * KIB, .gives_back = true,
                         .start = &start};
    low.thread = must_start(work, &low);
    (void)pthread_barrier_wait(&start);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 256 * KIB, NULL, &more), SPW_OK); /* out of what low gives back */
    await_parked(low.task);
    must_release(small);
    must_release(more);
    await_parked(low.task); /* something was freed, but less than it lacks */
    ck_assert_ptr_nonnull(low.task->turns);
    end_task(third);
    await_blocked(low.task, 1); /* it tried again, and waits for room, since main runs */
    must_release(held);
    join(&low);
    ck_assert_int_eq(low.turn, SPW_OK);
    ck_assert_int_eq(low.last, SPW_OK);
    ck_assert_uint_eq(usage_of(low.task).waits, 2);
    ck_assert_int_eq(spw_task_detach(main_task), SPW_OK);
    end_task(main_task);
    end_task(low.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(who_was_asked_goes_on_when_what_it_lacked_is_free)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *main_task = task_with("main", 5, 0);
    ck_assert_int_eq(spw_task_attach(main_task), SPW_OK);
    spw_buffer *held = hold(512 * KIB), *more = NULL;
    struct worker low = {.task = task_with("low", 1, 0), .held = 512 * KIB, .wanted = 640 * KIB, .gives_back = true,
                         .start = &start};
    low.thread = must_start(work, &low);
    (void)pthread_barrier_wait(&start);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_OK);
    await_parked(low.task);
    must_release(more);
    must_release(held); /* main goes on running */
    join(&low);
    ck_assert_int_eq(low.last, SPW_OK);
    ck_assert_int_eq(spw_task_detach(main_task), SPW_OK);
    end_task(main_task);
    end_task(low.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(a_wait_outside_is_seen)
{
    spw_buffer *more = NULL;
    spw_task *task = task_with("scan", 1, 0), *network = task_with("network", 2, 0);
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    struct worker worker = {.task = task, .held = 768 * KIB, .wanted = 512 * KIB, .start = &start};
    ck_assert_int_eq(spw_task_attach(network), SPW_OK);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(task, 1); /* it waits, since network runs */
    ck_assert_uint_eq(usage_of(task).retries, 0);
    ck_assert_int_eq(spw_task_block_begin(network, "a message"), SPW_OK);
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_ERETRY);
    ck_assert_int_eq(spw_task_block_begin(network, "another"), SPW_EINVAL);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 64 * KIB, NULL, &more), SPW_EINVAL);
    ck_assert_int_eq(spw_task_detach(network), SPW_EINVAL);
    ck_assert_int_eq(spw_task_block_end(network), SPW_OK);
    ck_assert_int_eq(spw_task_block_end(network), SPW_EINVAL);
    ck_assert_int_eq(spw_task_detach(network), SPW_OK);
    end_task(task);
    end_task(network);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(a_task_that_runs_keeps_the_others_waiting)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *runs = task_with("runs", 0, 0);
    struct worker worker = {.task = task_with("waits", 1, 0), .held = 640 * KIB, .wanted = 256 * KIB,
                            .start = &start};
    ck_assert_int_eq(spw_task_attach(runs), SPW_OK);
    spw_buffer *held = hold(256 * KIB);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    spw__arbiter_look(manager);
    ck_assert_uint_eq(usage_of(worker.task).retries, 0);
    must_release(held);
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_OK);
    ck_assert_int_eq(spw_task_detach(runs), SPW_OK);
    end_task(runs);
    end_task(worker.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(detaching_the_last_running_thread_starts_the_ladder)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *runs = task_with("runs", 0, 0);
    struct worker worker = {.task = task_with("waits", 1, 0), .held = 768 * KIB, .wanted = 512 * KIB, .start = &start};
    ck_assert_int_eq(spw_task_attach(runs), SPW_OK);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    ck_assert_int_eq(spw_task_detach(runs), SPW_OK);
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_ERETRY);
    end_task(runs);
    end_task(worker.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(memory_without_a_task_prevents_nothing)
{
    spw_buffer *more = NULL, *foreign = hold(512 * KIB);
    spw_task *task = task_with("scan", 0, 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *own = hold(256 * KIB);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_ERETRY);
    must_release(foreign);
    must_release(own);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    end_task(task);
}
END_TEST

START_TEST(a_task_that_gives_nothing_back_ends_after_exactly_the_bound_with_the_holders_named)
{
    spw_buffer *more = NULL;
    spw_task *task = task_with("stubborn", 0, 7);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = hold(768 * KIB);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 7; i++) {
            ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), i ? SPW_ESPLIT : SPW_ERETRY);
            ck_assert_int_eq(spw_task_wait_turn(task, NULL), SPW_OK);
        }
        ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_ENOMEM);
        ck_assert_msg(strstr(spw_error_detail()->message, "\"stubborn\" 786432"), "%s", spw_error_detail()->message);
        ck_assert_msg(strstr(spw_error_detail()->message, "asks_max"), "%s", spw_error_detail()->message);
    }
    must_release(held);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    end_task(task);
}
END_TEST

START_TEST(unsealed_admissions_that_fill_all_tiers_end_in_a_named_error)
{
    spw_buffer *held[16], *more = NULL;
    unsigned n = 0;
    int rc;
    spw_task *task = task_with("receiver", 0, 3);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    while ((rc = spw_admit(manager, 256 * KIB, NULL, &more)) == SPW_OK)
        held[n++] = more;
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(rc, SPW_ERETRY);
    while ((rc = spw_admit(manager, 256 * KIB, NULL, &more)) == SPW_ESPLIT) {
    }
    ck_assert_int_eq(rc, SPW_ENOMEM);
    ck_assert_msg(strstr(spw_error_detail()->message, "\"receiver\""), "%s", spw_error_detail()->message);
    while (n)
        must_release(held[--n]);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    end_task(task);
}
END_TEST

START_TEST(what_others_seal_serves_who_waits_without_asking_anybody)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *producer = task_with("producer", 0, 0);
    struct worker worker = {.task = task_with("consumer", 1, 0), .wanted = 768 * KIB, .start = &start};
    ck_assert_int_eq(spw_task_attach(producer), SPW_OK);
    spw_buffer *made = hold(512 * KIB);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    ck_assert_int_eq(spw_buffer_seal(made), SPW_OK);
    ck_assert_int_eq(spw_task_detach(producer), SPW_OK); /* the spill is under way: nobody is asked */
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_OK);
    must_release(made);
    end_task(producer);
    end_task(worker.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(a_cancelled_task_waits_no_more)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *runs = task_with("runs", 0, 0);
    struct worker worker = {.task = task_with("query", 1, 0), .held = 768 * KIB, .wanted = 512 * KIB, .start = &start};
    ck_assert_int_eq(spw_task_attach(runs), SPW_OK);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    ck_assert_int_eq(spw_task_cancel(worker.task), SPW_OK);
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_ECANCELED);
    spw_alloc_options options;
    spw_alloc_options_init(&options);
    options.wait.task = worker.task;
    spw_buffer *more = NULL;
    ck_assert_int_eq(spw_task_detach(runs), SPW_OK);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, KIB, &options, &more), SPW_ECANCELED);
    end_task(runs);
    end_task(worker.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(a_buffer_outlives_its_task_and_the_charge_goes_with_it)
{
    spw_task *first = task_with("first", 0, 0);
    ck_assert_int_eq(spw_task_attach(first), SPW_OK);
    spw_buffer *buffer = must_make(SPW_HOST, 256 * KIB, 1);
    ck_assert_int_eq(spw_task_detach(first), SPW_OK);
    end_task(first);
    ck_assert_int_eq(spw_task_destroy(first), SPW_EBADHANDLE);
    spw_task *second = task_with("second", 0, 0);
    ck_assert_ptr_ne(second, first); /* its memory still carries a charge */
    ck_assert_uint_eq(usage_of(second).committed_bytes[SPW_TIER_HOST], 0);
    check_at(buffer, SPW_HOST, 1);
    must_release(buffer);
    spw_task *third = task_with("third", 0, 0);
    ck_assert_ptr_eq(third, first);
    end_task(second);
    end_task(third);
}
END_TEST

START_TEST(where_a_group_refuses_only_its_own_tasks_are_asked)
{
    pthread_barrier_t start;
    spw_group_options options;
    spw_task_options inside;
    spw_group *group = NULL;
    spw_buffer *more = NULL;
    close_manager();
    open_manager("device=1M; host=2M; piece=128K; disk=%s:16M; driver=sim");
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    struct worker worker = {.held = 256 * KIB, .wanted = 256 * KIB, .start = &start};
    spw_group_options_init(&options);
    options.shares[SPW_TIER_HOST].max_bytes = 384 * KIB;
    ck_assert_int_eq(spw_group_create(manager, &options, &group), SPW_OK);
    spw_task_options_init(&inside);
    inside.group = group;
    inside.priority = 9;
    ck_assert_int_eq(spw_task_create(manager, &inside, &worker.task), SPW_OK);
    spw_buffer *device = must_alloc(SPW_DEVICE, MIB); /* without a task */
    spw_task *outside = task_with("outside", 0, 0);
    ck_assert_int_eq(spw_task_attach(outside), SPW_OK);
    spw_buffer *held = hold(512 * KIB); /* less important, but of no use to a group that is over its maximum */
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    ck_assert_int_eq(spw_alloc(manager, SPW_DEVICE, 512 * KIB, NULL, &more), SPW_ESPLIT); /* nobody has any for it */
    join(&worker);
    ck_assert_int_eq(worker.first, SPW_ERETRY);
    ck_assert_uint_eq(usage_of(outside).retries, 0);
    must_release(held);
    must_release(device);
    ck_assert_int_eq(spw_task_detach(outside), SPW_OK);
    end_task(outside);
    end_task(worker.task);
    ck_assert_int_eq(spw_group_destroy(group), SPW_OK);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

/* A spill whose staging and copies wait for a stream is on its way: who waits for it is seen to wait, and is in no
 * deadlock. */
START_TEST(what_is_on_its_way_is_waited_for_before_anybody_is_asked)
{
    spw_view scratch, view;
    spw_map_options options;
    spw_buffer *more = NULL;
    close_manager();
    open_manager("device=18M; host=8M; piece=1M; disk=%s:64M; driver=sim");
    spw_buffer *room = must_alloc(SPW_DEVICE, 16 * MIB);
    ck_assert_int_eq(spw_map(room, SPW_DEVICE, SPW_MAP_WRITE, NULL, &scratch), SPW_OK);
    spw_buffer *victim = must_make(SPW_DEVICE, MIB, 1);
    spw__stream stream = busy_stream(&scratch);
    spw_map_options_init(&options);
    options.stream = (spw_stream *)stream;
    ck_assert_int_eq(spw_map(victim, SPW_DEVICE, SPW_MAP_READ, &options, &view), SPW_OK);
    ck_assert_int_eq(spw_unmap(victim, &view, options.stream), SPW_OK);
    spw_task *task = task_with("alone", 0, 0);
    ck_assert_int_eq(spw_task_attach(task), SPW_OK);
    spw_buffer *held = must_alloc(SPW_DEVICE, 512 * KIB); /* it could be asked for that */
    ck_assert_int_eq(spw_alloc(manager, SPW_DEVICE, MIB, NULL, &more), SPW_OK);
    ck_assert_uint_eq(usage_of(task).retries, 0);
    ck_assert_uint_eq(usage_of(task).waits, 1);
    check_at(victim, SPW_HOST, 1);
    ck_assert_int_eq(spw_unmap(room, &scratch, NULL), SPW_OK);
    must_release(room);
    must_release(victim);
    must_release(held);
    must_release(more);
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, stream), SPW_OK);
    ck_assert_int_eq(spw_task_detach(task), SPW_OK);
    end_task(task);
}
END_TEST

START_TEST(an_error_for_want_of_memory_names_who_holds_it_and_who_waits)
{
    pthread_barrier_t start;
    spw_alloc_options options;
    spw_buffer *more = NULL;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    struct worker worker = {.task = task_with("build", 1, 0), .held = 512 * KIB, .wanted = 512 * KIB, .start = &start};
    spw_task *probe = task_with("probe", 2, 0);
    ck_assert_int_eq(spw_task_attach(probe), SPW_OK);
    spw_buffer *held = hold(256 * KIB);
    worker.thread = must_start(work, &worker);
    (void)pthread_barrier_wait(&start);
    await_blocked(worker.task, 1);
    spw_alloc_options_init(&options);
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 384 * KIB, &options, &more), SPW_ENOMEM);
    const char *message = spw_error_detail()->message;
    ck_assert_msg(strstr(message, "393216 bytes in host") && strstr(message, "budget 1114112, free 262144") &&
                      strstr(message, "\"build\" 524288 (waits)") && strstr(message, "\"probe\" 262144 (runs)") &&
                      strstr(message, "staging 65536") && strstr(message, "1 other requests wait") &&
                      strstr(message, "raise host="), "%s", message);
    ck_assert_int_eq(spw_task_cancel(worker.task), SPW_OK);
    join(&worker);
    must_release(held);
    ck_assert_int_eq(spw_task_detach(probe), SPW_OK);
    end_task(probe);
    end_task(worker.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

START_TEST(misuse_is_an_error_that_names_the_task)
{
    spw_task_options options;
    spw_task *one = task_with("one", 0, 0), *two = task_with("two", 0, 0), *none = one;
    spw_alloc_options alloc;
    spw_buffer *buffer = NULL;
    spw_task_options_init(&options);
    options.name = "a name that is much longer than 31 bytes";
    ck_assert_int_eq(spw_task_create(manager, &options, &none), SPW_EINVAL);
    ck_assert_ptr_null(none);
    options.name = NULL;
    options.reserved = 1;
    ck_assert_int_eq(spw_task_create(manager, &options, &none), SPW_EINVAL);
    ck_assert_int_eq(spw_task_attach(NULL), SPW_EBADHANDLE);
    ck_assert_int_eq(spw_task_attach(one), SPW_OK);
    ck_assert_int_eq(spw_task_attach(two), SPW_EBUSY);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "\"one\""));
    ck_assert_int_eq(spw_task_detach(two), SPW_EINVAL);
    ck_assert_int_eq(spw_task_block_begin(two, "x"), SPW_EINVAL);
    spw_alloc_options_init(&alloc);
    alloc.wait.task = two;
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, KIB, &alloc, &buffer), SPW_EINVAL);
    ck_assert_int_eq(spw_task_destroy(one), SPW_EBUSY);
    ck_assert_int_eq(spw_manager_destroy(manager), SPW_EBUSY);
    ck_assert_int_eq(spw_task_detach(one), SPW_OK);
    end_task(one);
    end_task(two);
    ck_assert_int_eq(spw_task_destroy(NULL), SPW_OK);
}
END_TEST

START_TEST(no_memory_for_a_task_is_ENOMETA)
{
    spw_task *task = NULL;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 1, 1, ENOMEM);
    ck_assert_int_eq(spw_task_create(manager, NULL, &task), SPW_ENOMETA);
    ck_assert_ptr_null(task);
}
END_TEST

START_TEST(a_forced_destroy_ends_a_wait_for_a_turn)
{
    pthread_barrier_t start;
    ck_assert_int_eq(pthread_barrier_init(&start, NULL, 2), 0);
    spw_task *main_task = task_with("main", 5, 0);
    ck_assert_int_eq(spw_task_attach(main_task), SPW_OK);
    spw_buffer *held = hold(512 * KIB), *more = NULL;
    struct worker low = {.task = task_with("low", 1, 0), .held = 512 * KIB, .wanted = 640 * KIB, .gives_back = true,
                         .start = &start};
    low.thread = must_start(work, &low);
    (void)pthread_barrier_wait(&start);
    ck_assert_int_eq(spw_alloc(manager, SPW_HOST, 512 * KIB, NULL, &more), SPW_OK);
    await_parked(low.task);
    spw__waitset_shut_down(&manager->waits);
    join(&low);
    ck_assert_int_eq(low.turn, SPW_ESHUTDOWN);
    ck_assert_int_eq(low.last, SPW_ESHUTDOWN);
    ck_assert_int_eq(spw_task_detach(main_task), SPW_OK);
    must_release(held);
    must_release(more);
    end_task(main_task);
    end_task(low.task);
    (void)pthread_barrier_destroy(&start);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("task");
    TCase *tests = tcase_create("task");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_single_task_gets_retry_then_split_then_half_of_it);
    tcase_add_test(tests, what_a_task_merely_gets_back_does_not_begin_its_count_anew);
    tcase_add_test(tests, the_least_important_holder_is_asked_and_the_other_gets_what_it_gives_back);
    tcase_add_test(tests, among_equals_the_younger_is_asked);
    tcase_add_test(tests, who_was_asked_stays_parked_until_another_task_finishes);
    tcase_add_test(tests, who_was_asked_goes_on_when_what_it_lacked_is_free);
    tcase_add_test(tests, a_wait_outside_is_seen);
    tcase_add_test(tests, a_task_that_runs_keeps_the_others_waiting);
    tcase_add_test(tests, detaching_the_last_running_thread_starts_the_ladder);
    tcase_add_test(tests, memory_without_a_task_prevents_nothing);
    tcase_add_test(tests, a_task_that_gives_nothing_back_ends_after_exactly_the_bound_with_the_holders_named);
    tcase_add_test(tests, unsealed_admissions_that_fill_all_tiers_end_in_a_named_error);
    tcase_add_test(tests, what_others_seal_serves_who_waits_without_asking_anybody);
    tcase_add_test(tests, a_cancelled_task_waits_no_more);
    tcase_add_test(tests, a_buffer_outlives_its_task_and_the_charge_goes_with_it);
    tcase_add_test(tests, where_a_group_refuses_only_its_own_tasks_are_asked);
    tcase_add_test(tests, an_error_for_want_of_memory_names_who_holds_it_and_who_waits);
    tcase_add_test(tests, what_is_on_its_way_is_waited_for_before_anybody_is_asked);
    tcase_add_test(tests, misuse_is_an_error_that_names_the_task);
    tcase_add_test(tests, no_memory_for_a_task_is_ENOMETA);
    tcase_add_test(tests, a_forced_destroy_ends_a_wait_for_a_turn);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
