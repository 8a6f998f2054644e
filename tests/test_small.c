/* Small objects: slabs, caches of threads, charges, and that all comes back. */
#include <string.h>

#include "tests/small_fixture.h"

START_TEST(an_object_is_charged_what_its_slot_takes)
{
    static const uint64_t sizes[][2] = {{0, 64},       {1, 64},       {64, 64},       {65, 128},      {2048, 2048},
                                        {4095, 4096},  {4097, 4224},  {32768, 32768}, {32769, 33792}, {61441, 62464},
                                        {65535, 65536}, {65536, 65536}};
    uint64_t sum = 0;
    struct spw__small_object objects[12];
    for (unsigned i = 0; i < 12; i++) {
        objects[i] = take(sizes[i][0]);
        ck_assert_uint_eq(objects[i].bytes, sizes[i][1]);
        ck_assert_uint_eq(objects[i].offset % (objects[i].bytes >= 32 * KIB ? 4096 : 64), 0);
        sum += objects[i].bytes;
    }
    check();
    ck_assert_uint_eq(usage.live_bytes, sum);
    for (unsigned i = 0; i < 12; i++)
        give(objects[i]);
    (void)spw__small_drain(small);
    ck_assert_uint_eq(spw__counter_sum(&counters, 0), 12);
    ck_assert_uint_eq(spw__counter_sum(&counters, 1), sum);
}
END_TEST

START_TEST(on_a_device_the_grain_is_256_bytes)
{
    static const uint64_t sizes[][2] = {{1, 256}, {257, 512}, {16384, 16384}, {16385, 16896}, {65536, 65536}};
    struct spw__small_object objects[5];
    close_pool();
    ck_assert_int_eq(try_open(16 * MIB, 256), SPW_OK);
    for (unsigned i = 0; i < 5; i++) {
        objects[i] = take(sizes[i][0]);
        ck_assert_uint_eq(objects[i].bytes, sizes[i][1]);
        ck_assert_uint_eq(objects[i].offset % 256, 0);
    }
    check();
    for (unsigned i = 0; i < 5; i++)
        give(objects[i]);
}
END_TEST

START_TEST(a_freed_object_stays_committed_until_it_is_back)
{
    const struct spw__small_object first = take(10000);
    const uint64_t charge = committed();
    ck_assert(!give(first));
    ck_assert_uint_eq(committed(), charge);
    check();
    ck_assert_uint_eq(usage.cached_bytes, charge);
    ck_assert_uint_eq(usage.live_bytes, 0);
    const struct spw__small_object second = take(10000);
    ck_assert_uint_eq(second.offset, first.offset); /* hot */
    ck_assert_uint_eq(committed(), charge);
    give(second);
    ck_assert_uint_eq(spw__small_drain(small), charge);
    ck_assert_uint_eq(committed(), 0);
    ck_assert_uint_eq(spw__range_largest_free(range), pool_size);
    ck_assert_uint_eq(spw__small_drain(small), 0);
}
END_TEST

START_TEST(objects_of_8_grains_and_less_share_slabs)
{
    struct spw__small_object objects[64];
    for (unsigned i = 0; i < 64; i++)
        objects[i] = take(64);
    check();
    ck_assert_uint_eq(usage.slabs, 2);
    ck_assert_uint_eq(usage.slab_bytes, 4096);
    for (unsigned i = 0; i < 64; i += 2) /* every second slot: no slab can go */
        give(objects[i]);
    (void)spw__small_drain(small);
    check();
    ck_assert_uint_eq(usage.slabs, 2);
    for (unsigned i = 0; i < 64; i += 2)
        objects[i] = take(64);
    check();
    ck_assert_uint_eq(usage.slabs, 2);
    for (unsigned i = 0; i < 64; i++)
        give(objects[i]);
}
END_TEST

START_TEST(a_request_may_get_a_cached_object_of_the_next_class_and_no_larger)
{
    const struct spw__small_object cached = take(20 * KIB);
    give(cached);
    const struct spw__small_object next = take(20 * KIB - 512);
    ck_assert_uint_eq(next.offset, cached.offset);
    ck_assert_uint_eq(next.bytes, 20 * KIB);
    give(next);
    const struct spw__small_object other = take(20 * KIB - 1024);
    ck_assert_uint_ne(other.offset, cached.offset);
    give(other);
}
END_TEST

START_TEST(a_cache_is_bounded_and_makes_room_for_what_is_in_use)
{
    enum { N = 256 };
    struct spw__small_object objects[N];
    for (unsigned i = 0; i < N; i++)
        objects[i] = take(i % 2 ? 60 * KIB : 40 * KIB);
    for (unsigned i = 0; i < N; i++) {
        give(objects[i]);
        check();
        ck_assert_uint_le(usage.cached_bytes, MIB); /* 1/16 of the pool */
    }
    ck_assert_uint_gt(usage.cached_bytes, 0);
    for (unsigned i = 0; i < N; i++)
        objects[i] = take(512);
    for (unsigned i = 0; i < N; i++)
        give(objects[i]);
    ck_assert(!give(take(512)));
}
END_TEST

START_TEST(while_somebody_waits_nothing_is_kept)
{
    const struct spw__small_object object = take(1000), other = take(2000);
    give(other);
    (void)spw__small_drain(small);
    atomic_fetch_add(&waits.n_waiting[SPW_TIER_HOST], 1);
    ck_assert(give(object));
    ck_assert_uint_eq(committed(), 0);
    ck_assert(give(take(64))); /* and nothing is taken in advance */
    ck_assert_uint_eq(committed(), 0);
    atomic_fetch_sub(&waits.n_waiting[SPW_TIER_HOST], 1);
    ck_assert(!give(take(64)));
}
END_TEST

START_TEST(a_cache_serves_one_group_at_a_time_and_charges_stay_exact)
{
    struct spw__group left = {.parent = &root}, right = {.parent = &root};
    struct spw__small_object object;
    bool back;
    spw__gate_init(&left.gates[SPW_TIER_HOST], MIB);
    spw__gate_init(&right.gates[SPW_TIER_HOST], 100 * KIB);
    ck_assert_int_eq(spw__small_alloc(small, &left, 50 * KIB, true, &object), SPW_OK);
    ck_assert_int_eq(spw__small_free(small, &left, &object, &back), SPW_OK);
    ck_assert(!back);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_HOST].committed), 50 * KIB);
    ck_assert_int_eq(spw__small_alloc(small, &right, 50 * KIB, true, &object), SPW_OK);
    ck_assert_uint_eq(atomic_load(&left.gates[SPW_TIER_HOST].committed), 0);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_HOST].committed), 50 * KIB);
    ck_assert_uint_eq(committed(), 50 * KIB);
    const struct spw__small_object of_root = take(60 * KIB); /* takes the cache over */
    ck_assert_int_eq(spw__small_free(small, &right, &object, &back), SPW_OK);
    ck_assert(back);
    ck_assert_uint_eq(atomic_load(&right.gates[SPW_TIER_HOST].committed), 0);
    ck_assert_uint_eq(committed(), 60 * KIB);
    give(of_root);
}
END_TEST

START_TEST(the_budget_is_kept_and_a_batch_never_asks_for_more_than_there_is)
{
    struct spw__small_object objects[4], none;
    atomic_store(&root.gates[SPW_TIER_HOST].budget, 200);
    for (unsigned i = 0; i < 3; i++)
        objects[i] = take(64);
    ck_assert_int_eq(spw__small_alloc(small, &root, 64, true, &none), SPW_ENOMEM);
    ck_assert_uint_eq(atomic_load(&root.gates[SPW_TIER_HOST].peak), 192);
    give(objects[1]);
    objects[1] = take(64);
    for (unsigned i = 0; i < 3; i++)
        give(objects[i]);
}
END_TEST

START_TEST(a_full_pool_says_so_and_changes_nothing)
{
    struct spw__small_object objects[300];
    unsigned n = 0;
    int rc;
    while ((rc = spw__small_alloc(small, &root, 64 * KIB, true, &objects[n])) == SPW_OK)
        n++;
    ck_assert_int_eq(rc, SPW_ENOMEM);
    ck_assert_uint_eq(n, 256);
    ck_assert_uint_eq(committed(), pool_size);
    check();
    while (n > 0)
        give(objects[--n]);
}
END_TEST

static void refuses_free(struct spw__small_object object)
{
    const uint64_t before = committed();
    bool back = true;
    ck_assert_int_eq(spw__small_free(small, &root, &object, &back), SPW_EBADHANDLE);
    ck_assert(!back);
    ck_assert_uint_eq(committed(), before);
}

START_TEST(a_double_free_and_a_foreign_object_are_refused_and_change_nothing)
{
    const struct spw__small_object object = take(100), large = take(9000);
    struct spw__small_object wrong = object;
    wrong.slot = 31;
    refuses_free(wrong); /* never handed out */
    wrong.slot = 200;
    refuses_free(wrong);
    wrong = object;
    wrong.offset += 128;
    refuses_free(wrong);
    wrong = object;
    wrong.bytes = 64;
    refuses_free(wrong);
    wrong.slab = 40; /* a record that stands for nothing */
    refuses_free(wrong);
    wrong.slab = UINT32_MAX;
    refuses_free(wrong);
    give(object);
    give(large);
    refuses_free(object); /* cached */
    refuses_free(large);
    check();
    (void)spw__small_drain(small);
    refuses_free(object); /* gone */
    refuses_free(large);
}
END_TEST

/* Whether there was an nth allocation to fail. */
static bool run_with_faults(long nth)
{
    struct spw__small_object objects[400];
    uint64_t state = 7;
    unsigned n = 0, failed = 0;
    spw__fault_arm(SPW__FAULT_META_ALLOC, nth, 1, ENOMEM);
    for (unsigned i = 0; i < 400; i++) {
        const uint64_t before = committed();
        const int rc = spw__small_alloc(small, &root, random_size(&state), true, &objects[n]);
        n += rc == SPW_OK;
        failed += rc != SPW_OK;
        ck_assert(rc == SPW_OK || (rc == SPW_ENOMETA && committed() == before));
    }
    const bool reached = spw__fault_calls(SPW__FAULT_META_ALLOC) >= nth;
    spw__fault_disarm(SPW__FAULT_META_ALLOC);
    check();
    while (n > 0)
        give(objects[--n]);
    (void)spw__small_drain(small);
    check();
    ck_assert_uint_eq(usage.slabs, 0);
    ck_assert_uint_le(failed, 1);
    return reached;
}

START_TEST(fault_META_ALLOC_anywhere_costs_a_cache_or_one_request)
{
    long nth = 1;
    spw__fault_arm(SPW__FAULT_META_ALLOC, 2, 1, ENOMEM);
    close_pool();
    ck_assert_int_eq(try_open(16 * MIB, 64), SPW_ENOMETA);
    do {
        close_pool();
        spw__fault_disarm(SPW__FAULT_META_ALLOC);
        ck_assert_int_eq(try_open(16 * MIB, 64), SPW_OK);
    } while (run_with_faults(nth++));
    ck_assert_int_gt(nth, 6);
}
END_TEST

/* Every byte of the pool, and who has it: the model that an allocator cannot argue with. */
START_TEST(property_objects_never_overlap_and_the_charge_is_their_sum)
{
    enum { LIVE_MAX = 600, OPERATIONS = 300000 };
    static unsigned char owned[16 * MIB / 64];
    static struct spw__small_object live[LIVE_MAX];
    uint64_t state = 0x5eed, sum = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < OPERATIONS; i++) {
        const uint64_t dice = next_random(&state) % 1000;
        if (n < LIVE_MAX && (n == 0 || dice < 500)) {
            if (spw__small_alloc(small, &root, random_size(&state), dice % 8 != 0, &live[n]) != SPW_OK)
                continue;
            const struct spw__small_object *object = &live[n++];
            ck_assert_uint_le(object->offset + object->bytes, pool_size);
            ck_assert_ptr_null(memchr(&owned[object->offset / 64], 1, object->bytes / 64));
            memset(&owned[object->offset / 64], 1, object->bytes / 64);
            sum += object->bytes;
        } else if (dice < 999) {
            const unsigned which = (unsigned)(next_random(&state) % n);
            memset(&owned[live[which].offset / 64], 0, live[which].bytes / 64);
            sum -= live[which].bytes;
            give(live[which]);
            live[which] = live[--n];
        } else {
            (void)spw__small_drain(small);
            ck_assert_uint_eq(committed(), sum);
        }
        if (i % 10000 == 0) {
            check();
            ck_assert_uint_eq(usage.live_bytes, sum);
        }
    }
    while (n > 0)
        give(live[--n]);
}
END_TEST

/* Deterministic. A larger pool does better: 0.966 at 1 GiB. */
START_TEST(utilisation_64_B_to_64_KiB)
{
    enum { LIVE_MAX = 1 << 16, FAILURES = 400 };
    struct spw__small_object *live = malloc(LIVE_MAX * sizeof *live);
    uint64_t *asked = malloc(LIVE_MAX * sizeof *asked);
    uint64_t state = 0x5eed, sum = 0;
    unsigned n = 0, failures = 0;
    double utilisation = 0;
    close_pool();
    ck_assert_int_eq(try_open(256 * MIB, 64), SPW_OK);
    while (failures < FAILURES) {
        const uint64_t bytes = random_size(&state);
        bool failed = false;
        while (spw__small_alloc(small, &root, bytes, true, &live[n]) != SPW_OK) {
            if (spw__small_drain(small) != 0)
                continue;
            if (!failed)
                utilisation += (double)sum / (double)pool_size;
            failures += !failed;
            failed = true;
            const unsigned which = (unsigned)(next_random(&state) % n);
            give(live[which]);
            sum -= asked[which];
            live[which] = live[--n];
            asked[which] = asked[n];
        }
        asked[n++] = bytes;
        sum += bytes;
        ck_assert_uint_lt(n, LIVE_MAX);
    }
    utilisation /= FAILURES;
    ck_assert_msg(utilisation >= 0.94, "%.4f", utilisation);
    while (n > 0)
        give(live[--n]);
    free(live);
    free(asked);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("small");
    TCase *tcase = tcase_create("small");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, an_object_is_charged_what_its_slot_takes);
    tcase_add_test(tcase, on_a_device_the_grain_is_256_bytes);
    tcase_add_test(tcase, a_freed_object_stays_committed_until_it_is_back);
    tcase_add_test(tcase, objects_of_8_grains_and_less_share_slabs);
    tcase_add_test(tcase, a_request_may_get_a_cached_object_of_the_next_class_and_no_larger);
    tcase_add_test(tcase, a_cache_is_bounded_and_makes_room_for_what_is_in_use);
    tcase_add_test(tcase, while_somebody_waits_nothing_is_kept);
    tcase_add_test(tcase, a_cache_serves_one_group_at_a_time_and_charges_stay_exact);
    tcase_add_test(tcase, the_budget_is_kept_and_a_batch_never_asks_for_more_than_there_is);
    tcase_add_test(tcase, a_full_pool_says_so_and_changes_nothing);
    tcase_add_test(tcase, a_double_free_and_a_foreign_object_are_refused_and_change_nothing);
    tcase_add_test(tcase, fault_META_ALLOC_anywhere_costs_a_cache_or_one_request);
    tcase_add_test(tcase, property_objects_never_overlap_and_the_charge_is_their_sum);
    tcase_add_test(tcase, utilisation_64_B_to_64_KiB);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
