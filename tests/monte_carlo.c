/* Tasks and groups that want more than there is, at random: whatever they do, they all come to their end by giving back
 * when they are asked to and taking less when they are told to, and every counter is zero then. No wait runs into its
 * deadline, and what was written last is what is read.
 *
 * usage: monte_carlo [FIRST COUNT]. Seeds FIRST to FIRST + COUNT - 1; without arguments 40 of them. A failure prints
 * its seed and specification. Each task has a thread of its own, now and then two; half of the threads have a
 * reclaimer of their raw memory.
 */
#include "tests/seeded_fixture.h"

enum { GROUPS_MAX = 3, TASKS_MAX = 6, THREADS_MAX = 2 * TASKS_MAX, HELD_MAX = 8, STEPS = 60 };

static const char *const specs[] = {
    "device=512K; pinned=576K; host=1M; staging=64K; piece=64K; disk=%s:64M; driver=sim",
    "pinned=512K; host=576K; staging=32K; piece=32K; disk=%s:64M; threads=0",
    "host=1M,256K:16K; staging=64K; piece=64K; disk=%s:64M; io=threads",
    "device=1M; host=1M; piece=64K; driver=sim", /* no disk: what is full is full */
};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* What a thread has. */
struct held {
    enum { NOTHING, BUFFER, RAW, PROMISE } kind;
    spw_buffer *buffer;
    spw_view view;
    bool mapped, sealed;
    uint64_t stamp; /* what was written last at the front of the buffer; 0: nothing yet */
    spw_block block;
    spw_reservation *promise;
};

struct worker {
    uint64_t state;
    spw_task *task;
    pthread_t thread;
    struct held held[HELD_MAX];
    unsigned asked, refused;
    spw_reclaimer *reclaimer; /* of its raw blocks in that place, without a lock: it waits meanwhile; or NULL */
    spw_place place;
    unsigned reclaimed;
    bool alone; /* no other thread works for its task, whose state a check for pressure would touch */
};

static unsigned below(struct worker *worker, unsigned n)
{
    return next_below(&worker->state, n);
}

/* Mostly small, now and then most of a tier. */
static size_t skewed(struct worker *worker)
{
    const size_t bytes = (size_t)1 << (8 + below(worker, 8) + below(worker, 4));
    return bytes + below(worker, (unsigned)bytes / 2);
}

static spw_place some_place(struct worker *worker)
{
    spw_tier tier;
    do
        tier = (spw_tier)below(worker, SPW__MEMORY_TIERS);
    while (!manager->tiers[tier].present);
    return SPW_PLACE(tier, 0);
}

static void drop(struct held *held)
{
    if (held->mapped)
        MUST(spw_unmap(held->buffer, &held->view, NULL) == SPW_OK);
    MUST(spw_buffer_release(held->buffer) == SPW_OK);
    MUST(spw_pool_free(manager, &held->block, NULL) == SPW_OK);
    MUST(spw_reservation_release(held->promise) == SPW_OK);
    *held = (struct held){.kind = NOTHING};
}

static size_t stamp_bytes(const struct held *held)
{
    const size_t bytes = spw_buffer_size(held->buffer);
    return bytes < sizeof held->stamp ? bytes : sizeof held->stamp;
}

/* A view has come: it shows the stamp, and a writer's gets a new one. */
static void look_and_stamp(struct worker *worker, struct held *held)
{
    void *front = (void *)(uintptr_t)bytes_of(&held->view);
    if (!(held->view.flags & SPW_MAP_DISCARD))
        MUST(!held->stamp || memcmp(front, &held->stamp, stamp_bytes(held)) == 0);
    if (!(held->view.flags & SPW_MAP_WRITE))
        return;
    held->stamp = worker->state | 1;
    memcpy(front, &held->stamp, stamp_bytes(held));
}

/* Maps a buffer, or writes to it: those that are not sealed. */
static int use_buffer(struct worker *worker, struct held *held, unsigned what, spw_place place)
{
    static const uint32_t unsealed_flags[] = {SPW_MAP_READ, SPW_MAP_WRITE, SPW_MAP_WRITE | SPW_MAP_DISCARD};
    if (held->mapped)
        return SPW_OK;
    if (!held->sealed && what == 3) {
        const uint64_t stamp = worker->state | 1;
        const int rc = spw_buffer_write(held->buffer, 0, &stamp, stamp_bytes(held));
        held->stamp = rc == SPW_OK ? stamp : held->stamp;
        return rc;
    }
    const int rc = spw_map(held->buffer, place, held->sealed ? SPW_MAP_READ : unsealed_flags[what], NULL, &held->view);
    held->mapped = rc == SPW_OK;
    if (held->mapped)
        look_and_stamp(worker, held);
    return rc == SPW_EMAPPED ? SPW_OK : rc;
}

/* What a task does that is asked: nothing that it keeps stands in anybody's way. Without a disk, nothing is kept. */
static void give_back(struct worker *worker)
{
    for (unsigned i = 0; i < HELD_MAX; i++) {
        struct held *held = &worker->held[i];
        if (held->kind != BUFFER || !manager->store) {
            drop(held);
            continue;
        }
        if (held->mapped)
            MUST(spw_unmap(held->buffer, &held->view, NULL) == SPW_OK);
        held->mapped = false;
        if (held->sealed)
            continue;
        held->sealed = below(worker, 2);
        MUST((held->sealed ? spw_buffer_seal(held->buffer) : spw_buffer_set_spillable(held->buffer, true)) == SPW_OK);
    }
}

/* One step in one try: what could not be had is left; rc says why. */
static int step(struct worker *worker, struct held *held, unsigned what, size_t bytes, spw_place place)
{
    if (held->kind == BUFFER && what < 4)
        return use_buffer(worker, held, what, place);
    if (held->kind != NOTHING)
        return SPW_OK;
    int rc;
    switch (what % 4) {
    case 0:
        rc = spw_admit(manager, bytes, NULL, &held->buffer);
        held->kind = rc == SPW_OK ? BUFFER : NOTHING;
        return rc;
    case 1:
        rc = spw_alloc(manager, place, bytes, NULL, &held->buffer);
        held->kind = rc == SPW_OK ? BUFFER : NOTHING;
        return rc;
    case 2:
        rc = spw_pool_alloc(manager, place, bytes, 0, NULL, NULL, &held->block);
        held->kind = rc == SPW_OK ? RAW : NOTHING;
        return rc;
    default:
        rc = spw_reserve(manager, place, bytes, NULL, &held->promise);
        held->kind = rc == SPW_OK ? PROMISE : NOTHING;
        return rc;
    }
}

/* A step, with what the arbiter may ask for. */
static void want(struct worker *worker)
{
    struct held *held = &worker->held[below(worker, HELD_MAX)];
    const unsigned what = below(worker, 8);
    const spw_place place = some_place(worker);
    size_t bytes = skewed(worker);
    int rc;
    while ((rc = step(worker, held, what, bytes, place)) == SPW_ERETRY || rc == SPW_ESPLIT) {
        worker->asked++;
        give_back(worker);
        if (held->kind == BUFFER && !manager->store)
            return;
        if (rc == SPW_ERETRY)
            MUST(spw_task_wait_turn(worker->task, NULL) == SPW_OK);
        else if (held->kind == BUFFER) /* its map cannot take less */
            return drop(held);
        else if (bytes > 64)
            bytes /= 2;
    }
    /* Two threads of a task can hold more between them than the one that is asked gives back. */
    MUST(rc == SPW_OK || rc == SPW_ETOOBIG || rc == SPW_ENOMEM);
    if (rc == SPW_ENOMEM) {
        worker->refused++;
        give_back(worker);
    }
}

static void let_go(struct worker *worker)
{
    struct held *held = &worker->held[below(worker, HELD_MAX)];
    if (held->kind == BUFFER && held->mapped && below(worker, 2)) {
        MUST(spw_unmap(held->buffer, &held->view, NULL) == SPW_OK);
        held->mapped = false;
    } else if (held->kind == BUFFER && !held->sealed && below(worker, 2)) {
        held->sealed = spw_buffer_seal(held->buffer) == SPW_OK; /* not while a thread of ours has it mapped */
    } else if (held->kind == BUFFER && !held->sealed && below(worker, 2)) {
        MUST(spw_buffer_set_spillable(held->buffer, below(worker, 2)) == SPW_OK);
    } else {
        drop(held);
    }
}

static bool is_reclaimable(const struct worker *worker, const struct held *held)
{
    return held->kind == RAW && held->block.reserved[1] == worker->place;
}

static uint64_t estimate(void *arg)
{
    const struct worker *worker = arg;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < HELD_MAX; i++)
        bytes += is_reclaimable(worker, &worker->held[i]) ? worker->held[i].block.size : 0;
    return bytes;
}

static uint64_t reclaim(void *arg, uint64_t bytes)
{
    struct worker *worker = arg;
    spw_block scratch;
    uint64_t freed = 0;
    worker->reclaimed++;
    const int rc = spw_pool_alloc(manager, worker->place, 512, 0, NULL, NULL, &scratch);
    MUST(rc == SPW_OK || rc == SPW_ENOMEM);
    for (unsigned i = 0; i < HELD_MAX && freed < bytes; i++)
        if (is_reclaimable(worker, &worker->held[i])) {
            freed += worker->held[i].block.size;
            drop(&worker->held[i]);
        }
    MUST(rc != SPW_OK || spw_pool_free(manager, &scratch, NULL) == SPW_OK);
    return freed;
}

/* Where there is no room for its reserve it goes without a reclaimer. */
static void register_one(struct worker *worker)
{
    spw_reclaimer_options options;
    spw_reclaimer_options_init(&options);
    worker->place = options.place = some_place(worker);
    options.cost_ns_per_mib = below(worker, 2) ? 1000 : 100000000;
    options.reserve_bytes = below(worker, 2) ? 4096 : 0;
    options.estimate = estimate;
    options.reclaim = reclaim;
    options.arg = worker;
    const int rc = spw_reclaimer_register(worker->task, &options, &worker->reclaimer);
    MUST(rc == SPW_OK || rc == SPW_ENOMEM || rc == SPW_ERETRY || rc == SPW_ESPLIT);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    MUST(spw_task_attach(worker->task) == SPW_OK);
    if (below(worker, 2))
        register_one(worker);
    for (unsigned i = 0; i < STEPS; i++) {
        const unsigned what = below(worker, 8);
        if (what < 5) {
            want(worker);
        } else if (what < 6 && worker->alone && below(worker, 4) == 0) {
            MUST(spw_task_pressure(worker->task, some_place(worker), NULL) == SPW_OK);
        } else if (what < 7) {
            let_go(worker);
        } else {
            MUST(spw_task_block_begin(worker->task, "the network") == SPW_OK);
            (void)sched_yield();
            MUST(spw_task_block_end(worker->task) == SPW_OK);
        }
    }
    MUST(spw_reclaimer_unregister(worker->reclaimer) == SPW_OK);
    for (unsigned i = 0; i < HELD_MAX; i++)
        drop(&worker->held[i]);
    MUST(spw_task_detach(worker->task) == SPW_OK);
    return NULL;
}

/* Some groups, one below the other or beside it, with minima that fit together and maxima of a quarter of a tier to
 * all of it. */
static unsigned make_groups(struct worker *dice, spw_group **groups)
{
    const unsigned n = below(dice, GROUPS_MAX + 1);
    for (unsigned i = 0; i < n; i++) {
        spw_group_options options;
        spw_group_options_init(&options);
        options.name = "group";
        options.parent = i && below(dice, 2) ? groups[i - 1] : NULL;
        for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
            const uint64_t size = manager->tiers[tier].size;
            if (size == 0 || below(dice, 2))
                continue;
            options.shares[tier].max_bytes = size / 4 * (1 + below(dice, 4));
            options.shares[tier].min_bytes = options.parent ? 0 : size / 64 * below(dice, 4);
            options.shares[tier].weight = 1 + below(dice, 3);
        }
        MUST(spw_group_create(manager, &options, &groups[i]) == SPW_OK);
    }
    return n;
}

static bool holds_any(spw_task *task)
{
    spw_task_usage usage;
    spw_task_usage_init(&usage);
    MUST(spw_task_usage_get(task, &usage) == SPW_OK);
    for (unsigned tier = 0; tier < SPW_TIER_META; tier++)
        if (usage.committed_bytes[tier])
            return true;
    return false;
}

static void run_seed(unsigned seed)
{
    static struct worker workers[THREADS_MAX];
    spw_task *tasks[TASKS_MAX];
    struct worker dice = {.state = UINT64_C(0x9e3779b97f4a7c15) * (seed + 1)};
    const unsigned n_tasks = 2 + below(&dice, TASKS_MAX - 1);
    spw_group *groups[GROUPS_MAX];
    unsigned n = 0;
    seed_now = seed;
    spec_now = specs[seed % SPECS];
    open_manager(spec_now);
    const unsigned n_groups = make_groups(&dice, groups);
    for (unsigned i = 0; i < n_tasks; i++) {
        spw_task_options options;
        char name[16];
        spw_task_options_init(&options);
        (void)snprintf(name, sizeof name, "task %u", i);
        options.name = name;
        options.priority = below(&dice, 3);
        options.group = n_groups && below(&dice, 4) ? groups[below(&dice, n_groups)] : NULL;
        MUST(spw_task_create(manager, &options, &tasks[i]) == SPW_OK);
        const bool alone = below(&dice, 4) != 0;
        for (unsigned threads = alone ? 1 : 2; threads > 0; threads--) {
            workers[n] = (struct worker){.state = UINT64_C(0xbf58476d1ce4e5b9) * (seed * THREADS_MAX + n + 1),
                                         .task = tasks[i], .alone = alone};
            n++;
        }
    }
    for (unsigned i = 0; i < n; i++)
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    for (unsigned i = 0; i < n; i++)
        MUST(pthread_join(workers[i].thread, NULL) == 0);
    for (unsigned i = 0; i < n_tasks; i++) {
        while (holds_any(tasks[i])) /* moves in flight hold what was released */
            MUST(spw_progress(manager, 1000) >= 0);
        MUST(spw_task_destroy(tasks[i]) == SPW_OK);
    }
    for (unsigned i = n_groups; i > 0; i--)
        MUST(spw_group_destroy(groups[i - 1]) == SPW_OK);
    (void)tier_now(SPW_TIER_HOST);
    MUST(stats.wait_timeouts == 0);
    if (getenv("MONTE_CARLO_VERBOSE"))
        (void)printf("seed %u: %u tasks, %llu waits, %llu retries, %llu splits, %llu reclaims of host memory\n", seed,
                     n_tasks, (unsigned long long)stats.waits, (unsigned long long)stats.retries,
                     (unsigned long long)stats.splits, (unsigned long long)stats.tiers[SPW_TIER_HOST].reclaims);
    close_manager();
}

/* Seed _i. */
START_TEST(tasks_that_want_more_than_there_is_all_come_to_their_end)
{
    make_folder();
    run_seed((unsigned)_i);
    remove_folder();
}
END_TEST

int main(int argc, char **argv)
{
    const int first = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    const int count = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 40;
    Suite *suite = suite_create("monte_carlo");
    TCase *seeds = tcase_create("seeds");
    tcase_set_timeout(seeds, 60);
    tcase_add_loop_test(seeds, tasks_that_want_more_than_there_is_all_come_to_their_end, first, first + count);
    suite_add_tcase(suite, seeds);
    return run_suite(suite);
}
