/* The net: an engine's work on streams, played at random on a device whose schedule is adversarial. Work is launched on
 * several streams and nothing is waited for but what the library orders; every byte must be right. Then the orders are
 * taken away one by one, by fault points that skip them, and each must be missed within a few seeds: what catches a
 * missing wait that was put there catches one that nobody put there.
 *
 * usage: test_device_order [SEEDS [FIRST]]. Without arguments 4 seeds; a failure prints its seed. Everything is driven
 * by one thread (threads=0), so that a seed plays much the same each time, by the mover's own, and by several players
 * at once.
 */
#include "tests/seeded_fixture.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define WITH_THREAD_SANITIZER 1
#endif
#ifndef WITH_THREAD_SANITIZER
#define WITH_THREAD_SANITIZER 0
#endif

enum { PLAYERS = 3, STREAMS = 3, SLOTS = 10, STEPS = 240, CAUGHT_WITHIN = 20, LARGEST = 32 * 1024, UNSEALED_MAX = 2 };

static const char *const specs[] = {
    "device=192K; pinned=192K; host=256K; piece=16K; staging=16K; disk=%s:8M; driver=sim; threads=0",
    "device=192K; pinned=192K; host=256K; piece=16K; staging=16K; disk=%s:8M; driver=sim",
};
enum { SPECS = sizeof specs / sizeof specs[0] };

enum verdict { RIGHT, WRONG_BYTES, ERROR_DETECTED };

/* Work given to a stream. Kept until the streams are done. */
struct work {
    struct work *next;
    void *data;
    size_t bytes;
    bool on_device;
    unsigned content;
};

struct player {
    uint64_t state; /* of the random numbers */
    spw_stream *streams[STREAMS];
    struct slot {
        spw_buffer *buffer;
        unsigned content;
        bool sealed;
    } slots[SLOTS];
    struct work *given;
    unsigned contents; /* the last that was written; no two players write the same */
    int error;         /* the first that a call gave */
    char message[800];
};
static _Thread_local struct player player;

static _Atomic unsigned wrong; /* atomic: checks that found other bytes than those written */
static _Atomic int failed;     /* atomic: an error that a call gave */

static unsigned random_below(unsigned n)
{
    return next_below(&player.state, n);
}

/* Remembers the first error. True when the call went well. */
static bool went_well(int rc)
{
    if (rc != SPW_OK && player.error == SPW_OK) {
        player.error = rc;
        atomic_store(&failed, rc);
        (void)snprintf(player.message, sizeof player.message, "%s: %s", spw_error_name(rc),
                       spw_error_detail()->message);
    }
    return rc == SPW_OK;
}

static unsigned char *bytes_behind(const struct work *work)
{
    return work->on_device ? spw_device_address(work->data, work->bytes) : work->data;
}

static void write_there(void *arg)
{
    const struct work *work = arg;
    unsigned char *bytes = bytes_behind(work);
    if (bytes)
        fill(bytes, work->bytes, work->content);
}

static void check_there(void *arg)
{
    const struct work *work = arg;
    const unsigned char *bytes = bytes_behind(work);
    if (!bytes || !has_content(bytes, work->bytes, work->content))
        (void)atomic_fetch_add(&wrong, 1);
}

static void give(spw_stream *stream, spw_device_fn fn, const spw_view *view, unsigned content)
{
    struct work *work = malloc(sizeof *work);
    MUST(work != NULL);
    *work = (struct work){.next = player.given, .data = view->data, .bytes = view->size,
                          .on_device = view->place == SPW_DEVICE, .content = content};
    player.given = work;
    (void)went_well(spw_device_launch(manager, stream, fn, work));
}

static spw_place random_place(void)
{
    return SPW_PLACE((spw_tier)random_below(3), 0);
}

static spw_stream *random_stream(void)
{
    return player.streams[random_below(STREAMS)];
}

/* Lets a stream write new content or check the old, at a place. */
static void use_on_stream(struct slot *slot, spw_place place, bool write, bool discard)
{
    spw_view view;
    spw_map_options options;
    spw_stream *stream = random_stream();
    spw_map_options_init(&options);
    options.stream = stream;
    const uint32_t flags = !write ? SPW_MAP_READ : discard ? SPW_MAP_WRITE | SPW_MAP_DISCARD : SPW_MAP_WRITE;
    if (!went_well(spw_map(slot->buffer, place, flags, &options, &view)))
        return;
    if (write)
        slot->content = ++player.contents;
    give(stream, write ? write_there : check_there, &view, slot->content);
    (void)went_well(spw_unmap(slot->buffer, &view, stream));
}

/* The CPU looks itself, once everything before has completed. */
static void check_here(const struct slot *slot)
{
    spw_view view;
    const spw_place place = random_below(2) ? SPW_PINNED_HOST : SPW_HOST;
    if (!went_well(spw_map(slot->buffer, place, SPW_MAP_READ, NULL, &view)))
        return;
    if (!has_content(view.data, view.size, slot->content))
        (void)atomic_fetch_add(&wrong, 1);
    (void)went_well(spw_unmap(slot->buffer, &view, NULL));
}

static void seal(struct slot *slot)
{
    slot->sealed = went_well(spw_buffer_seal(slot->buffer));
}

/* What is unsealed cannot be pushed out: there is never so much of it that no room can be made. */
static unsigned count_unsealed(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        n += player.slots[i].buffer && !player.slots[i].sealed;
    return n;
}

static void make(struct slot *slot)
{
    const spw_place place = random_place();
    const bool seals = count_unsealed() == UNSEALED_MAX;
    if (!went_well(spw_alloc(manager, place, 1 + random_below(LARGEST), NULL, &slot->buffer)))
        return;
    slot->sealed = false;
    use_on_stream(slot, place, true, true);
    if (seals)
        seal(slot);
}

static void give_up(struct slot *slot)
{
    (void)went_well(spw_buffer_release(slot->buffer));
    slot->buffer = NULL;
}

static void step(void)
{
    struct slot *slot = &player.slots[random_below(SLOTS)];
    const unsigned what = random_below(12);
    if (!slot->buffer)
        make(slot);
    else if (what < 1)
        give_up(slot);
    else if (what < 2)
        check_here(slot);
    else if (slot->sealed || what < 5)
        use_on_stream(slot, random_place(), false, false);
    else if (what < 7)
        use_on_stream(slot, random_place(), true, random_below(2));
    else
        seal(slot);
    if (random_below(4) == 0)
        MUST(spw_progress(manager, 0) >= 0);
}

static void play_steps(uint64_t state)
{
    player = (struct player){.state = state * UINT64_C(0x9e3779b97f4a7c15) + 1,
                             .contents = (unsigned)(state % PLAYERS) << 24};
    for (unsigned i = 0; i < STREAMS; i++)
        MUST(spw_stream_create(manager, &player.streams[i]) == SPW_OK);
    for (unsigned i = 0; i < STEPS && player.error == SPW_OK; i++)
        step();
    for (unsigned i = 0; i < SLOTS; i++)
        if (player.slots[i].buffer) {
            check_here(&player.slots[i]);
            give_up(&player.slots[i]);
        }
    for (unsigned i = 0; i < STREAMS; i++)
        (void)went_well(spw_stream_destroy(manager, player.streams[i]));
    while (player.given) {
        struct work *work = player.given;
        player.given = work->next;
        free(work);
    }
    if (player.error != SPW_OK)
        (void)fprintf(stderr, "seed %u, \"%s\": %s\n", seed_now, spec_now, player.message);
}

static void begin(unsigned seed, const char *spec)
{
    char text[32];
    seed_now = seed;
    spec_now = spec;
    atomic_store(&wrong, 0);
    atomic_store(&failed, SPW_OK);
    (void)snprintf(text, sizeof text, "%u", seed);
    MUST(setenv("SPILLWAY_SIM_SEED", text, 1) == 0);
    make_folder();
    open_manager(spec);
}

static enum verdict end(void)
{
    close_manager();
    remove_folder();
    return atomic_load(&wrong) ? WRONG_BYTES : atomic_load(&failed) != SPW_OK ? ERROR_DETECTED : RIGHT;
}

/* Plays one seed; with skipped, that order is taken away. */
static enum verdict play(unsigned seed, const char *spec, const enum spw__fault_point *skipped)
{
    begin(seed, spec);
    if (skipped)
        spw__fault_arm(*skipped, 1, 0, EINTR);
    play_steps(seed);
    if (skipped)
        spw__fault_disarm(*skipped);
    return end();
}

/* Loop index: seed and specification. */
START_TEST(every_byte_is_right)
{
    const unsigned seed = (unsigned)_i / SPECS + 1;
    const char *spec = specs[_i % SPECS];
    const enum verdict verdict = play(seed, spec, NULL);
    ck_assert_msg(verdict == RIGHT, "seed %u, \"%s\": %u checks found wrong bytes; error: %s", seed, spec,
                  atomic_load(&wrong), spw_error_name(atomic_load(&failed)));
}
END_TEST

static void *play_beside_others(void *seed)
{
    play_steps((uintptr_t)seed);
    return NULL;
}

/* Loop index: seed. */
START_TEST(every_byte_is_right_with_several_players)
{
    const unsigned seed = (unsigned)_i + 1;
    pthread_t threads[PLAYERS];
    begin(seed, "device=576K; pinned=576K; host=768K; piece=16K; staging=32K; disk=%s:24M; driver=sim");
    for (unsigned i = 0; i < PLAYERS; i++)
        threads[i] = must_start(play_beside_others, (void *)(uintptr_t)(seed * PLAYERS + i));
    for (unsigned i = 0; i < PLAYERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    const enum verdict verdict = end();
    ck_assert_msg(verdict == RIGHT, "seed %u: %u checks found wrong bytes; error: %s", seed, atomic_load(&wrong),
                  spw_error_name(atomic_load(&failed)));
}
END_TEST

static const struct {
    enum spw__fault_point skipped;
    const char *what;
} orders[] = {
    {SPW__FAULT_SKIP_COPY_ORDER, "a copy after the last use of its bytes"},
    {SPW__FAULT_SKIP_STREAM_ORDER, "a stream after the copies and uses before its map"},
    {SPW__FAULT_SKIP_FREE_WAIT, "the end of the last use before memory is freed"},
};
enum { ORDERS = sizeof orders / sizeof orders[0] };

/* Loop index: which order is taken away. All seeds are played, to say how wide the net's meshes are. */
START_TEST(a_missing_wait_is_caught_within_20_seeds)
{
    unsigned caught = 0, first = 0;
    for (unsigned seed = 1; seed <= CAUGHT_WITHIN; seed++)
        if (play(seed, specs[0], &orders[_i].skipped) != RIGHT) {
            first = caught ? first : seed;
            caught++;
        }
    (void)printf("without %s: missed in %u of %d seeds, first in seed %u\n", orders[_i].what, caught, CAUGHT_WITHIN,
                 first);
    ck_assert_uint_gt(caught, 0);
}
END_TEST

int main(int argc, char **argv)
{
    const int seeds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    const int first = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;
    Suite *suite = suite_create("device_order");
    TCase *tcase = tcase_create("order");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, every_byte_is_right, (first - 1) * SPECS, (first - 1 + seeds) * SPECS);
    tcase_add_loop_test(tcase, every_byte_is_right_with_several_players, first - 1, first - 1 + seeds);
    if (!WITH_THREAD_SANITIZER) /* which would report the races that are made here */
        tcase_add_loop_test(tcase, a_missing_wait_is_caught_within_20_seeds, 0, ORDERS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
