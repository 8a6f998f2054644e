/* Raw memory in stream order: the same stream gets it at once, others when the work before the free is done. */
#include "pool_fixture.h"

#include <semaphore.h>

#include "pool/device/sim.h"

/* A stream of the simulated device that stands still until it is let go. */
struct gate {
    spw_stream *stream;
    sem_t *open; /* the stream's work waits for it */
};

static struct gate open_gate(void)
{
    spw__stream stream;
    struct gate gate = {.open = malloc(sizeof *gate.open)};
    ck_assert_ptr_nonnull(gate.open);
    ck_assert_int_eq(sem_init(gate.open, 0, 0), 0);
    ck_assert_int_eq(spw__device_stream_create(manager->device, &stream), SPW_OK);
    gate.stream = stream;
    return gate;
}

static void stand_still(void *open)
{
    while (sem_wait(open) != 0) {
    }
}

/* Enqueues work that is not done until let_go. */
static void hold(struct gate *gate)
{
    ck_assert_int_eq(spw__device_launch(manager->device, gate->stream, stand_still, gate->open), SPW_OK);
}

static void let_go(struct gate *gate)
{
    ck_assert_int_eq(sem_post(gate->open), 0);
}

static void close_gate(struct gate *gate)
{
    ck_assert_int_eq(spw__device_stream_destroy(manager->device, gate->stream), SPW_OK);
    ck_assert_int_eq(sem_destroy(gate->open), 0);
    free(gate->open);
}

START_TEST(the_same_stream_reuses_memory_at_once_and_another_does_not_get_it)
{
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate(), other = open_gate();
    const spw_block block = must_raw_on(SPW_DEVICE, 16 * MIB, 0, gate.stream);
    hold(&gate);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 16 * MIB);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].raw_bytes, 0);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_EBADHANDLE);
    spw_block theirs;
    ck_assert_int_eq(alloc_in(SPW_DEVICE, 4096, 0, other.stream, 0, &theirs), SPW_ENOMEM);
    ck_assert_int_eq(alloc_in(SPW_DEVICE, 4096, 0, NULL, 0, &theirs), SPW_ENOMEM);
    const spw_block again = must_raw_on(SPW_DEVICE, 16 * MIB, 2 * MIB, gate.stream);
    ck_assert_ptr_eq(again.ptr, block.ptr);
    ck_assert_uint_eq(tier_now(SPW_TIER_DEVICE)->allocs, 2);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 16 * MIB);
    let_go(&gate);
    must_free(again);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    close_gate(&gate);
    close_gate(&other);
}
END_TEST

START_TEST(the_rest_of_a_larger_block_stays_with_the_stream)
{
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate();
    const spw_block block = must_raw_on(SPW_DEVICE, 16 * MIB, 0, gate.stream);
    hold(&gate);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    const spw_block a = must_raw_on(SPW_DEVICE, MIB, 0, gate.stream);
    const spw_block b = must_raw_on(SPW_DEVICE, 15 * MIB, 0, gate.stream);
    ck_assert_ptr_eq(a.ptr, block.ptr);
    ck_assert_ptr_eq(b.ptr, (char *)block.ptr + MIB);
    spw_block none;
    ck_assert_int_eq(alloc_in(SPW_DEVICE, 256, 0, gate.stream, 0, &none), SPW_ENOMEM);
    ck_assert_int_eq(spw_pool_free(manager, &a, gate.stream), SPW_OK);
    let_go(&gate);
    must_free(b);
    settle();
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].largest_free_bytes, 16 * MIB);
    close_gate(&gate);
}
END_TEST

static void frees_when_the_stream_is_done(const char *spec)
{
    open_manager(spec);
    struct gate gates[3];
    spw_block blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        gates[i] = open_gate();
        blocks[i] = must_raw_on(SPW_DEVICE, MIB, 0, gates[i].stream);
        hold(&gates[i]);
        ck_assert_int_eq(spw_pool_free(manager, &blocks[i], gates[i].stream), SPW_OK);
    }
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 3 * MIB);
    for (unsigned left = 3; left-- > 0;) { /* the last stream first: none holds another's memory back */
        let_go(&gates[left]);
        while (committed(SPW_TIER_DEVICE) != left * MIB) {
            ck_assert_int_ge(spw_progress(manager, 1000), 0);
            (void)sched_yield();
        }
    }
    for (unsigned i = 0; i < 3; i++)
        close_gate(&gates[i]);
    close_manager();
}

START_TEST(freed_blocks_are_given_back_when_their_stream_is_done_without_a_call)
{
    frees_when_the_stream_is_done(DEVICE_SPEC);
    frees_when_the_stream_is_done(DEVICE_SPEC "; threads=0");
}
END_TEST

START_TEST(a_waiting_request_is_served_when_the_stream_is_done)
{
    struct asker asker = {.place = SPW_DEVICE, .bytes = 16 * MIB};
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate();
    const spw_block block = must_raw(SPW_DEVICE, 16 * MIB);
    hold(&gate);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    const pthread_t thread = must_start(ask, &asker);
    while (!spw__waitset_busy(&manager->waits, SPW__CHANNEL(SPW_TIER_DEVICE)))
        (void)sched_yield();
    let_go(&gate);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(asker.rc, SPW_OK);
    must_free(asker.block);
    close_gate(&gate);
}
END_TEST

START_TEST(an_allocation_takes_back_what_has_completed_before_it_fails)
{
    spw_block block;
    open_manager(DEVICE_SPEC "; threads=0"); /* nobody polls here */
    struct gate gate = open_gate();
    block = must_raw(SPW_DEVICE, 16 * MIB);
    hold(&gate);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    let_go(&gate);
    ck_assert_int_eq(spw__device_synchronize(manager->device, gate.stream), SPW_OK);
    spw_pool_options options;
    spw_pool_options_init(&options);
    options.flags = SPW_NOWAIT;
    ck_assert_int_eq(spw_pool_alloc(manager, SPW_DEVICE, 16 * MIB, 0, NULL, &options, &block), SPW_OK);
    must_free(block);
    close_gate(&gate);
}
END_TEST

static uint64_t enqueued_on(const struct gate *gate)
{
    struct CUstream_st *stream = (void *)gate->stream;
    spw__mutex_lock(&stream->sim->lock);
    const uint64_t enqueued = stream->enqueued;
    spw__mutex_unlock(&stream->sim->lock);
    return enqueued;
}

START_TEST(reuse_is_ordered_after_the_free_even_if_the_handle_now_is_another_streams)
{
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate();
    const spw_block block = must_raw_on(SPW_DEVICE, MIB, 0, gate.stream);
    hold(&gate);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    const uint64_t before = enqueued_on(&gate);
    const spw_block again = must_raw_on(SPW_DEVICE, MIB, 0, gate.stream);
    ck_assert_ptr_eq(again.ptr, block.ptr);
    ck_assert_uint_eq(enqueued_on(&gate), before + 1); /* a wait for the event */
    let_go(&gate);
    must_free(again);
    close_gate(&gate);
}
END_TEST

START_TEST(without_memory_or_an_event_the_stream_is_waited_for)
{
    for (long nth = 1; nth <= 4; nth++) {
        open_manager(DEVICE_SPEC);
        struct gate gate = open_gate();
        const spw_block block = must_raw(SPW_DEVICE, MIB);
        spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 0, ENOMEM);
        ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
        const long calls = spw__fault_calls(SPW__FAULT_META_ALLOC);
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_int_ge(calls, nth);
        ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
        close_gate(&gate);
        close_manager();
    }
}
END_TEST

START_TEST(a_lost_device_holds_no_memory)
{
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate();
    const spw_block block = must_raw(SPW_DEVICE, MIB);
    spw__fault_arm(SPW__FAULT_DEVICE_EVENT, 1, 0, ENOTRECOVERABLE);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    settle();
    spw__fault_disarm(SPW__FAULT_DEVICE_EVENT);
    ck_assert_uint_eq(committed(SPW_TIER_DEVICE), 0);
    (void)spw__device_stream_destroy(manager->device, gate.stream);
    free(gate.open);
}
END_TEST

START_TEST(on_host_places_a_stream_is_ignored)
{
    open_manager(DEVICE_SPEC);
    struct gate gate = open_gate();
    hold(&gate);
    const spw_block block = must_raw_on(SPW_HOST, MIB, 0, gate.stream);
    ck_assert_int_eq(spw_pool_free(manager, &block, gate.stream), SPW_OK);
    ck_assert_uint_eq(committed(SPW_TIER_HOST), 0);
    let_go(&gate);
    close_gate(&gate);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool_stream");
    TCase *tcase = new_case("streams", suite);
    tcase_add_test(tcase, the_same_stream_reuses_memory_at_once_and_another_does_not_get_it);
    tcase_add_test(tcase, the_rest_of_a_larger_block_stays_with_the_stream);
    tcase_add_test(tcase, freed_blocks_are_given_back_when_their_stream_is_done_without_a_call);
    tcase_add_test(tcase, a_waiting_request_is_served_when_the_stream_is_done);
    tcase_add_test(tcase, an_allocation_takes_back_what_has_completed_before_it_fails);
    tcase_add_test(tcase, reuse_is_ordered_after_the_free_even_if_the_handle_now_is_another_streams);
    tcase_add_test(tcase, without_memory_or_an_event_the_stream_is_waited_for);
    tcase_add_test(tcase, a_lost_device_holds_no_memory);
    tcase_add_test(tcase, on_host_places_a_stream_is_ignored);
    return run_suite(suite);
}
