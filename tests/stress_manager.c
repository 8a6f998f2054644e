/* Threads that use one manager at random, with little memory in every tier and faults in the I/O: content is right or
 * said to be lost, budgets hold, and at the end every counter is zero.
 *
 * usage: stress_manager [SECONDS [ROUND]]. Without arguments one round for each specification, with fixed seeds; with
 * SECONDS, rounds of fresh seeds for that long, from ROUND on. A failure prints its round's seed and specification;
 * seed = round + 1.
 */
#include "tests/seeded_fixture.h"

#include <time.h>

enum { THREADS = 4, SLOTS = 10, STEPS = 1500 };

static const char *const specs[] = {
    "device=1M; pinned=1088K; host=1M; staging=64K; piece=64K; disk=%s:32M; driver=sim; io=auto",
    "device=512K:64K,512K; pinned=600K,600K:32K; host=1M; staging=32K; piece=32K; disk=%s/a:9M,%s/b:9M; driver=sim",
    "device=1M; host=1M; staging=64K; piece=32K; disk=%s:6M; driver=sim; threads=0; io=auto",
    "pinned=1M; host=1M; staging=64K; piece=16K; disk=%s:4M; io=threads; io_threads=3",
    "host=1M; staging=32K; piece=16K; disk=%s:32M; threads=0; io=threads",
    "device=1M; pinned=1M; driver=sim; piece=64K", /* no disk: requests end with ENOMEM */
};
enum { SPECS = sizeof specs / sizeof specs[0] };

struct worker {
    uint64_t state; /* of its random numbers */
    struct held {
        spw_buffer *buffer;
        unsigned content;
    } slots[SLOTS];
};

/* Sealed buffers that all threads share: each place holds a reference. */
static struct shared {
    pthread_mutex_t lock;
    spw_buffer *buffer; /* guarded by lock, as the content */
    unsigned content;
} shared[4];

static unsigned random_below(struct worker *worker, unsigned n)
{
    return next_below(&worker->state, n);
}

/* Errors that tight budgets and faults make; anything else is a bug. */
static bool is_expected(int rc)
{
    return rc == SPW_OK || rc == SPW_ENOMEM || rc == SPW_EAGAIN || rc == SPW_EFRAG || rc == SPW_ETOOBIG ||
           rc == SPW_ENOSPC || rc == SPW_EIO || rc == SPW_EDEVICE || rc == SPW_EMAPPED || rc == SPW_ETIMEDOUT ||
           rc == SPW_EWRONGTIER || rc == SPW_ECORRUPT || rc == SPW_ECANCELED || rc == SPW_ENOMETA;
}

static spw_place random_place(struct worker *worker)
{
    spw_tier tier = random_below(worker, 3);
    while (!manager->tiers[tier].present)
        tier = (tier + 1) % SPW__MEMORY_TIERS;
    return SPW_PLACE(tier, 0);
}

static int64_t random_timeout(struct worker *worker)
{
    static const int64_t timeouts[] = {0, 0, 1, 5, 20};
    return timeouts[random_below(worker, 5)];
}

static int fill_view(spw_buffer *buffer, spw_view *view, unsigned content)
{
    if (view->place != SPW_DEVICE) {
        fill(view->data, view->size, content);
        return spw_unmap(buffer, view, NULL);
    }
    MUST(spw_unmap(buffer, view, NULL) == SPW_OK);
    void *data = malloc(spw_buffer_size(buffer) + 1);
    fill(data, spw_buffer_size(buffer), content);
    const int rc = spw_buffer_write(buffer, 0, data, spw_buffer_size(buffer));
    free(data);
    return rc;
}

/* Now and then what is about to be allocated is reserved first, in ways that may come to nothing. NULL: not. */
static spw_reservation *reserve(struct worker *worker, spw_place place, size_t bytes)
{
    static const uint32_t flags[] = {0, SPW_RESERVE_TRY, SPW_RESERVE_UPTO, SPW_RESERVE_UPTO | SPW_RESERVE_TRY};
    spw_reservation *held = NULL, *part = NULL;
    spw_reserve_options options;
    if (random_below(worker, 3) != 0)
        return NULL;
    spw_reserve_options_init(&options);
    options.flags = flags[random_below(worker, 4)];
    options.wait.timeout_ms = random_timeout(worker);
    int rc = spw_reserve(manager, place, bytes + 1, &options, &held);
    MUST(is_expected(rc) && (rc == SPW_OK) == (held != NULL));
    if (held && random_below(worker, 4) == 0) {
        rc = spw_reservation_split(held, random_below(worker, 64), &part);
        MUST(rc == SPW_OK || rc == SPW_ENOMETA);
        rc = spw_reservation_grow(held, random_below(worker, 5000), &options.wait);
        MUST(is_expected(rc));
        if (part)
            MUST(random_below(worker, 2) ? spw_reservation_merge(held, part) == SPW_OK
                                         : spw_reservation_release(part) == SPW_OK);
    }
    return held;
}

static spw_buffer *make(struct worker *worker, unsigned content)
{
    static const unsigned largest[] = {200, 5000, 40000, 200000, 700000};
    const size_t bytes = random_below(worker, largest[random_below(worker, 5)]);
    spw_buffer *buffer = NULL;
    spw_view view;
    spw_map_options map;
    int rc;
    if (random_below(worker, 2)) {
        spw_admit_options options;
        spw_admit_options_init(&options);
        options.flags = random_below(worker, 4) == 0 ? SPW_NOWAIT : 0;
        options.wait.timeout_ms = random_timeout(worker);
        rc = spw_admit(manager, bytes, &options, &buffer);
    } else {
        spw_alloc_options options;
        spw_alloc_options_init(&options);
        options.flags = random_below(worker, 4) == 0 ? SPW_NOWAIT : 0;
        options.wait.timeout_ms = random_timeout(worker);
        const spw_place place = random_place(worker);
        options.reservation = reserve(worker, place, bytes);
        rc = spw_alloc(manager, place, bytes, &options, &buffer);
        MUST(rc != SPW_EINVAL || options.reservation); /* with UPTO it may be too little */
        rc = rc == SPW_EINVAL ? SPW_EAGAIN : rc;
        MUST(spw_reservation_release(options.reservation) == SPW_OK);
    }
    MUST(is_expected(rc) && (rc == SPW_OK) == (buffer != NULL));
    if (!buffer)
        return NULL;
    spw_map_options_init(&map);
    map.wait.timeout_ms = random_timeout(worker);
    const spw_place place = random_place(worker);
    map.reservation = reserve(worker, place, bytes);
    const uint32_t flags = SPW_MAP_WRITE | (random_below(worker, 2) ? SPW_MAP_HERE : SPW_MAP_DISCARD);
    rc = spw_map(buffer, place, flags, &map, &view);
    MUST(is_expected(rc) || (rc == SPW_EINVAL && map.reservation));
    MUST(spw_reservation_release(map.reservation) == SPW_OK);
    rc = rc == SPW_EINVAL ? SPW_EAGAIN : rc;
    if (rc == SPW_OK)
        rc = fill_view(buffer, &view, content);
    MUST(is_expected(rc));
    if (rc == SPW_OK && spw_buffer_seal(buffer) == SPW_OK)
        return buffer;
    MUST(spw_buffer_release(buffer) == SPW_OK);
    return NULL;
}

static void look_at(struct worker *worker, spw_buffer *buffer, unsigned content)
{
    static const uint32_t extras[] = {0, 0, 0, SPW_MAP_HERE, SPW_MAP_NOMOVE, SPW_MAP_NOWAIT};
    spw_map_options options;
    spw_view view;
    const spw_place place = random_place(worker);
    spw_map_options_init(&options);
    options.wait.timeout_ms = random_timeout(worker);
    options.reservation = random_below(worker, 4) == 0 ? reserve(worker, place, spw_buffer_size(buffer)) : NULL;
    const uint32_t flags = SPW_MAP_READ | extras[random_below(worker, 6)];
    const int rc = spw_map(buffer, place, flags, &options, &view);
    MUST(is_expected(rc) || (rc == SPW_EINVAL && options.reservation));
    MUST(spw_reservation_release(options.reservation) == SPW_OK);
    if (rc != SPW_OK)
        return;
    MUST(has_content(bytes_of(&view), view.size, content));
    if (random_below(worker, 4) == 0)
        (void)sched_yield();
    MUST(spw_unmap(buffer, &view, NULL) == SPW_OK);
}

/* Takes a reference to a shared buffer, looks at it, and gives it back; now and then it is replaced. */
static void use_shared(struct worker *worker)
{
    struct shared *at = &shared[random_below(worker, 4)];
    const unsigned content = random_below(worker, 1u << 30);
    spw_buffer *fresh = random_below(worker, 4) == 0 ? make(worker, content) : NULL, *old = NULL;
    (void)pthread_mutex_lock(&at->lock);
    const unsigned seen = at->content;
    spw_buffer *buffer = at->buffer;
    if (buffer)
        MUST(spw_buffer_retain(buffer) == SPW_OK);
    if (fresh) {
        old = at->buffer;
        at->buffer = fresh;
        at->content = content;
    }
    (void)pthread_mutex_unlock(&at->lock);
    if (buffer)
        look_at(worker, buffer, seen);
    MUST(spw_buffer_release(buffer) == SPW_OK);
    MUST(spw_buffer_release(old) == SPW_OK);
}

static void disturb(struct worker *worker)
{
    static const struct {
        enum spw__fault_point point;
        int os_errno;
    } faults[] = {{SPW__FAULT_IO_WRITE, EIO}, {SPW__FAULT_IO_WRITE, ENOSPC}, {SPW__FAULT_IO_READ, EIO},
                  {SPW__FAULT_IO_SHORT, EIO}, {SPW__FAULT_IO_FLIP, EIO}, {SPW__FAULT_STORE_SPACE, ENOSPC},
                  {SPW__FAULT_DEVICE_COPY, EIO}, {SPW__FAULT_META_ALLOC, ENOMEM}, {SPW__FAULT_IO_SUBMIT, EIO}};
    const unsigned which = random_below(worker, sizeof faults / sizeof faults[0]);
    if (random_below(worker, 3) == 0)
        spw__fault_arm(faults[which].point, 1 + random_below(worker, 4), 1 + random_below(worker, 2),
                       faults[which].os_errno);
    else if (random_below(worker, 2))
        MUST(spw_set_budget(manager, SPW_HOST, 400 * KIB + random_below(worker, 600) * KIB) == SPW_OK ||
             !manager->tiers[SPW_TIER_HOST].present);
    else
        MUST(spw_progress(manager, random_below(worker, 20000)) >= 0);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (unsigned step = 0; step < STEPS; step++) {
        struct held *held = &worker->slots[random_below(worker, SLOTS)];
        const unsigned what = random_below(worker, 100);
        if (what < 3)
            disturb(worker);
        else if (what < 25)
            use_shared(worker);
        else if (!held->buffer) {
            held->content = random_below(worker, 1u << 30);
            held->buffer = make(worker, held->content);
        } else if (what < 70)
            look_at(worker, held->buffer, held->content);
        else {
            MUST(spw_buffer_release(held->buffer) == SPW_OK);
            held->buffer = NULL;
        }
    }
    for (unsigned i = 0; i < SLOTS; i++)
        MUST(spw_buffer_release(worker->slots[i].buffer) == SPW_OK);
    return NULL;
}

static void check_end(void)
{
    settle();
    MUST(is_quiet());
    MUST(stats.buffers == 0);
    MUST(!manager->store || (stats.disk_written_bytes > 0 && stats.disk_read_bytes > 0));
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++)
        if (tier != SPW_TIER_HOST) /* whose budget was moved about */
            MUST(stats.tiers[tier].peak_bytes <= stats.tiers[tier].budget_bytes);
    if (manager->tiers[SPW_TIER_HOST].present)
        MUST(stats.tiers[SPW_TIER_HOST].peak_bytes <= manager->tiers[SPW_TIER_HOST].size);
    MUST(spw_manager_destroy(manager) == SPW_OK);
}

static void run_round(unsigned round, unsigned seed)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    spec_now = specs[round % SPECS];
    seed_now = seed;
    open_manager(spec_now);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.state = UINT64_C(0x9e3779b97f4a7c15) * (seed * THREADS + i + 1)};
        MUST(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    for (enum spw__fault_point point = 0; point < SPW__FAULT_COUNT; point++)
        spw__fault_disarm(point);
    for (unsigned i = 0; i < 4; i++) {
        MUST(spw_buffer_release(shared[i].buffer) == SPW_OK);
        shared[i].buffer = NULL;
    }
    check_end();
}

/* Round _i: its specification and its seed. */
START_TEST(threads_with_little_memory_and_faults_come_to_a_clean_end)
{
    make_folder();
    for (unsigned i = 0; i < 4; i++)
        (void)pthread_mutex_init(&shared[i].lock, NULL);
    run_round((unsigned)_i, (unsigned)_i + 1);
    remove_folder();
}
END_TEST

static int run_rounds(int first, int count)
{
    Suite *suite = suite_create("stress_manager");
    TCase *rounds = tcase_create("rounds");
    tcase_set_timeout(rounds, 120);
    tcase_add_loop_test(rounds, threads_with_little_memory_and_faults_come_to_a_clean_end, first, first + count);
    suite_add_tcase(suite, rounds);
    return run_suite(suite);
}

int main(int argc, char **argv)
{
    const long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    int round = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    const time_t begun = time(NULL);
    int failed;
    do {
        failed = run_rounds(round, SPECS);
        round += SPECS;
    } while (!failed && time(NULL) - begun < seconds);
    return failed;
}
