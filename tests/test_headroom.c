/* Headroom: what spilling in the background keeps free for admissions, from a shortfall on, and when it stops. */
#include "manager_fixture.h"

/* 1 MiB beside staging, a quarter of the tier is 272 KiB. */
#define SPEC "host=1088K; staging=64K; piece=64K; disk=%s:16M; headroom="
#define HIGH (1088 * KIB / 100 * 25)

static spw_buffer *held[64];
static unsigned n_held;

static void setup(void)
{
    make_folder();
}

static void teardown(void)
{
    while (n_held)
        must_release(held[--n_held]);
    close_manager();
    remove_folder();
}

static void receive(size_t bytes)
{
    spw_buffer *buffer = NULL;
    ck_assert_int_eq(spw_admit(manager, bytes, NULL, &buffer), SPW_OK);
    ck_assert_int_eq(spw_buffer_seal(buffer), SPW_OK);
    held[n_held++] = buffer;
}

static void receive_all(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        receive(64 * KIB);
}

static uint64_t free_now(void)
{
    return tier_now(SPW_TIER_HOST)->free_bytes;
}

static uint64_t spilled(void)
{
    return tier_now(SPW_TIER_HOST)->spill_bytes;
}

/* Until the background has come to rest: nothing is wanted, and nothing moves. */
static void come_to_rest(void)
{
    while (spw__headroom_wanted(manager, SPW_TIER_HOST) || spw__mover_busy(manager->mover))
        (void)sched_yield();
}

START_TEST(without_a_shortfall_nothing_is_spilled_ahead)
{
    open_manager(SPEC "25");
    receive_all(16);
    come_to_rest();
    ck_assert_uint_eq(free_now(), 0);
    ck_assert_uint_eq(spilled(), 0);
}
END_TEST

START_TEST(a_shortfall_brings_the_whole_headroom_and_then_it_stops)
{
    open_manager(SPEC "25");
    receive_all(17);
    come_to_rest();
    ck_assert_uint_ge(free_now(), HIGH);
    ck_assert_uint_lt(free_now(), HIGH + 64 * KIB);
    ck_assert_uint_eq(spilled(), 64 * KIB + free_now()); /* the deficit, and the headroom */
    ck_assert_uint_gt(tier_now(SPW_TIER_HOST)->headroom_bytes, 0);
    ck_assert_uint_le(tier_now(SPW_TIER_HOST)->headroom_bytes, spilled());
}
END_TEST

START_TEST(admissions_use_it_without_a_wait_and_it_is_filled_up_below_half)
{
    open_manager(SPEC "25");
    receive_all(17);
    come_to_rest();
    const uint64_t before = spilled(), waits = stats.waits;
    receive(64 * KIB);
    come_to_rest();
    ck_assert_uint_eq(spilled(), before); /* more than half of it is left */
    receive_all(2);
    come_to_rest();
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->spill_bytes, before + 3 * 64 * KIB);
    ck_assert_uint_ge(free_now(), HIGH);
    ck_assert_uint_eq(stats.waits, waits);
}
END_TEST

START_TEST(it_ends_when_room_comes_by_itself)
{
    open_manager(SPEC "25");
    receive_all(17);
    come_to_rest();
    while (n_held > 4) /* the coldest are on disk, the others are released from memory */
        must_release(held[--n_held]);
    receive(64 * KIB); /* sees twice the headroom free */
    ck_assert(!atomic_load(&manager->headroom[SPW_TIER_HOST].armed));
    const uint64_t before = spilled();
    while (free_now() >= 64 * KIB)
        receive(64 * KIB);
    come_to_rest();
    ck_assert_uint_eq(spilled(), before);
}
END_TEST

START_TEST(zero_percent_is_none_and_small_tiers_have_none_by_default)
{
    open_manager(_i ? SPEC "0" : "host=1088K; staging=64K; piece=64K; disk=%s:16M");
    receive_all(17);
    come_to_rest();
    ck_assert_uint_eq(spilled(), 64 * KIB);
    ck_assert_uint_eq(tier_now(SPW_TIER_HOST)->headroom_bytes, 0);
}
END_TEST

START_TEST(where_nothing_can_go_nothing_is_wanted_for_long)
{
    spw_buffer *buffer = NULL;
    spw_admit_options options;
    open_manager(SPEC "25");
    spw_buffer *unsealed = must_alloc(SPW_HOST, 1024 * KIB);
    spw_admit_options_init(&options);
    options.wait.timeout_ms = 0;
    ck_assert_int_eq(spw_admit(manager, 64 * KIB, &options, &buffer), SPW_ENOMEM);
    come_to_rest();
    ck_assert_uint_eq(spilled(), 0);
    must_release(unsealed);
}
END_TEST

START_TEST(the_device_gives_nothing_for_it)
{
    open_manager("device=512K; pinned=576K; host=1M; staging=64K; piece=64K; disk=%s:16M; driver=sim; headroom=25");
    receive_all(8 + 8 + 16 + 1);
    come_to_rest();
    ck_assert_uint_eq(edge_now(SPW_TIER_DEVICE, SPW_TIER_PINNED_HOST)->bytes, 0);
    ck_assert_uint_eq(stats.tiers[SPW_TIER_DEVICE].spill_bytes, 0);
    ck_assert_uint_ge(stats.tiers[SPW_TIER_HOST].free_bytes, 256 * KIB);
}
END_TEST

START_TEST(clean_copies_are_room_for_an_admission)
{
    open_manager("pinned=576K; host=1M; staging=64K; piece=64K; disk=%s:16M");
    receive_all(8);
    push_out(SPW_PINNED_HOST, 512 * KIB); /* to host: pinned is free */
    ck_assert_uint_eq(edge_now(SPW_TIER_PINNED_HOST, SPW_TIER_HOST)->bytes, 512 * KIB);
    receive_all(8);
    push_out(SPW_HOST, 1024 * KIB); /* to disk */
    for (unsigned i = 8; i < 16; i++)
        push_out(SPW_PINNED_HOST, 512 * KIB), i = 16;
    push_out(SPW_HOST, 1024 * KIB);
    for (unsigned i = 0; i < 8; i++) { /* back, clean: their copies on disk are kept */
        spw_view view;
        ck_assert_int_eq(spw_map(held[i], SPW_PINNED_HOST, SPW_MAP_READ, NULL, &view), SPW_OK);
        ck_assert_int_eq(spw_unmap(held[i], &view, NULL), SPW_OK);
    }
    ck_assert_uint_eq(tier_now(SPW_TIER_PINNED_HOST)->free_bytes, 0);
    const uint64_t waits = stats.waits;
    spw_admit_options options;
    spw_admit_options_init(&options);
    options.flags = SPW_NOWAIT;
    ck_assert_int_eq(spw_admit(manager, 64 * KIB, &options, &held[n_held]), SPW_OK);
    ck_assert_uint_eq(spw_buffer_place(held[n_held++]), SPW_PINNED_HOST); /* though host has room as well */
    ck_assert_uint_eq(tier_now(SPW_TIER_PINNED_HOST)->drop_bytes, 64 * KIB);
    ck_assert_uint_eq(stats.waits, waits);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("headroom");
    TCase *tests = tcase_create("headroom");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, without_a_shortfall_nothing_is_spilled_ahead);
    tcase_add_test(tests, a_shortfall_brings_the_whole_headroom_and_then_it_stops);
    tcase_add_test(tests, admissions_use_it_without_a_wait_and_it_is_filled_up_below_half);
    tcase_add_test(tests, it_ends_when_room_comes_by_itself);
    tcase_add_loop_test(tests, zero_percent_is_none_and_small_tiers_have_none_by_default, 0, 2);
    tcase_add_test(tests, where_nothing_can_go_nothing_is_wanted_for_long);
    tcase_add_test(tests, the_device_gives_nothing_for_it);
    tcase_add_test(tests, clean_copies_are_room_for_an_admission);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
