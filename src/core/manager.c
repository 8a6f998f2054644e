/* The manager: wiring and life cycle only. Neighbours: options.c decides what is built, everything else does the work.
 *
 * Built bottom up and taken down in reverse order: metadata, device, tiers, victims, store, staging, mover.
 */
#include "src/core/manager.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "pool/spec.h"
#include "src/core/evict.h"
#include "src/core/group.h"
#include "src/core/handle.h"
#include "src/core/options.h"
#include "src/core/pressure.h"

static unsigned fork_generation; /* written only in a forked child, before it has a second thread */

static void note_fork(void)
{
    fork_generation++;
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

int spw__check_process(const struct spw_manager *manager)
{
    if (manager->fork_generation == fork_generation)
        return SPW_OK;
    return spw__fail(SPW_EFORK, "this process is a fork of the one that made the manager, and does not share its "
                                "memory");
}

struct spw__move *spw__move_take(struct spw_manager *manager)
{
    spw__mutex_lock(&manager->moves_lock);
    struct spw__move *move = manager->free_moves;
    if (move)
        manager->free_moves = move->next;
    spw__mutex_unlock(&manager->moves_lock);
    if (move)
        *move = (struct spw__move){.bytes = 0};
    return move;
}

void spw__move_give(struct spw_manager *manager, struct spw__move *move)
{
    spw__mutex_lock(&manager->moves_lock);
    move->next = manager->free_moves;
    manager->free_moves = move;
    spw__mutex_unlock(&manager->moves_lock);
}

static const spw_options options_defaults = {.struct_size = sizeof(spw_options), .default_timeout_ms = 60000};

void spw_options_init_sized(spw_options *options, size_t size)
{
    spw__sized_give(options, size, &options_defaults);
}

/* Opens the device that a device tier needs; driver=auto without one means no device tier, said in the log. */
static int open_device(struct spw_manager *manager, struct spw__settings *settings)
{
    spw_spec *spec = &settings->spec;
    if (spec->n_pools[SPW_TIER_DEVICE] == 0 && spec->driver == SPW_DRIVER_AUTO)
        return SPW_OK;
    /* Allocations on the simulated device are aligned: room for the gaps, so that the pools always fit. */
    const uint64_t slack = SPW__HUGE_PAGE * (spec->n_pools[SPW_TIER_DEVICE] + UINT64_C(1));
    const uint64_t wanted = spw__spec_tier_bytes(spec, SPW_TIER_DEVICE) + slack;
    const spw_device_model *model = &spec->model;
    const struct spw__device_config config = {
        .kind = spec->driver, .device_id = spec->device_id,
        .capacity_bytes = model->memory_bytes > wanted ? model->memory_bytes : wanted,
        .model = {model->h2d_bytes_per_s, model->d2h_bytes_per_s, model->d2d_bytes_per_s, model->duplex_bytes_per_s,
                  model->latency_ns},
        .seed = spec->sim_seed, .log = &manager->log, .meta = &manager->meta};
    const int rc = spw__device_open(&config, &manager->device);
    if (rc != SPW_ENOTSUP || spec->driver != SPW_DRIVER_AUTO)
        return rc;
    spw__logf(&manager->log, settings->defaulted ? SPW__LOG_INFO : SPW__LOG_WARN,
              "no device tier: %s", spw_error_detail()->message);
    spec->n_pools[SPW_TIER_DEVICE] = 0;
    return SPW_OK;
}

static int build_tier(struct spw_manager *manager, const spw_spec *spec, spw_tier tier)
{
    const uint32_t n_pools = spec->n_pools[tier];
    const struct spw__tier_config config = {
        .tier = tier, .pools = spec->pools[tier], .n_pools = n_pools,
        .address_ordered = spec->placement == SPW_PLACEMENT_ADDRESS, .piece_bytes = manager->piece_bytes,
        .numa = (unsigned)(spec->numa_node + 1),
        .device = manager->device, .maps = spec->grow == SPW_GROW_VMM, .meta = &manager->meta,
        .log = &manager->log, .waits = &manager->waits, .counters = &manager->counters,
        .first_counter = SPW__CORE_TIERS + (unsigned)tier * SPW__TIER_COUNTERS};
    int rc = spw__tier_init(&manager->tiers[tier], &config);
    if (rc != SPW_OK || n_pools == 0)
        return rc;
    spw__gate_init(&manager->root.gates[tier], manager->tiers[tier].size);
    manager->victims[tier] = spw__meta_alloc(&manager->meta, n_pools * sizeof *manager->victims[tier]);
    if (!manager->victims[tier])
        return spw__fail(SPW_ENOMETA, "no metadata memory for %u pools; raise meta=", n_pools);
    for (uint32_t i = 0; i < n_pools; i++)
        spw__victims_init(&manager->victims[tier][i]);
    return SPW_OK;
}

static int build_tiers(struct spw_manager *manager, const spw_spec *spec)
{
    bool any = false;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        const int rc = build_tier(manager, spec, tier);
        if (rc != SPW_OK)
            return rc;
        any |= manager->tiers[tier].present;
    }
    return any ? spw__groups_init_root(manager)
               : spw__fail(SPW_EINVAL, "the configuration leaves no memory tier: name host=, pinned= or device= (a "
                                       "bare string configures the device alone; without a GPU, driver=sim simulates "
                                       "one)");
}

static int build_store(struct spw_manager *manager, const spw_spec *spec)
{
    spw__gate_init(&manager->root.gates[SPW_TIER_DISK], UINT64_MAX);
    if (spec->n_folders == 0) {
        atomic_store(&manager->root.gates[SPW_TIER_DISK].budget, 0);
        return SPW_OK;
    }
    const int rc = spw__store_create(spec->folders, spec->n_folders, &manager->meta, &manager->log,
                                     &manager->store);
    if (rc == SPW_OK)
        atomic_store(&manager->root.gates[SPW_TIER_DISK].budget, spw__store_quota(manager->store));
    return rc;
}

/* Staging is set aside now, so that a spill never has to ask: from pinned_host, else host, else the meta budget. */
static int build_staging(struct spw_manager *manager, const struct spw__settings *settings, void **staging)
{
    *staging = NULL;
    if (!manager->store)
        return SPW_OK;
    manager->staging_bytes = settings->staging_bytes;
    for (spw_tier tier = SPW_TIER_PINNED_HOST; tier <= SPW_TIER_HOST; tier++)
        if (manager->tiers[tier].present) {
            if (manager->staging_bytes > manager->tiers[tier].largest_request)
                manager->staging_bytes = spw__round_down(manager->tiers[tier].largest_request, SPW__IO_BLOCK);
            const int rc = spw__tier_alloc(&manager->tiers[tier], &manager->root, manager->staging_bytes,
                                           &manager->staging_block);
            *staging = (void *)(uintptr_t)manager->staging_block.address;
            /* A small block is aligned only because it is the first of its pool. */
            if (rc == SPW_OK && manager->staging_bytes && manager->staging_block.address % SPW__IO_BLOCK == 0) {
                spw__tier_set_aside(&manager->tiers[tier], &manager->staging_block);
                return SPW_OK;
            }
            return spw__fail(SPW_EINVAL, "staging of %llu bytes does not fit the pools of %s; one of them must hold at "
                                         "least %u bytes", (unsigned long long)manager->staging_bytes,
                             spw_tier_name(tier), SPW__IO_BLOCK);
        }
    manager->staging_meta = spw__meta_alloc(&manager->meta, settings->staging_bytes + SPW__IO_BLOCK);
    if (!manager->staging_meta)
        return spw__fail(SPW_ENOMETA, "no metadata memory for staging of %llu bytes; raise meta=, lower staging=, or "
                                      "give host= or pinned=", (unsigned long long)settings->staging_bytes);
    const uintptr_t base = (uintptr_t)manager->staging_meta;
    *staging = (void *)(uintptr_t)spw__round_up(base, SPW__IO_BLOCK);
    return SPW_OK;
}

static void mover_idle(void *arg)
{
    spw__arbiter_look(arg);
}

static int build_mover(struct spw_manager *manager, const struct spw__settings *settings, void *staging)
{
    manager->moves = spw__meta_alloc(&manager->meta, SPW__SPILL_MOVES * sizeof *manager->moves);
    if (!manager->moves)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the mover; raise meta=");
    for (unsigned i = 0; i < SPW__SPILL_MOVES; i++)
        spw__move_give(manager, &manager->moves[i]);
    struct spw__mover_config config = {
        .store = manager->store, .device = manager->device, .staging = staging,
        .staging_bytes = manager->staging_bytes, .io = settings->spec.io, .io_threads = settings->spec.io_threads,
        .own_thread = settings->own_thread, .verify = settings->verify, .clock = manager->env.clock,
        .log = &manager->log, .meta = &manager->meta, .counters = &manager->counters, .first_counter = SPW__CORE_MOVER,
        .reclaim_disk = spw__evict_reclaim_disk, .reclaim_arg = manager, .idle = mover_idle, .idle_arg = manager,
        .due = spw__tickets_due, .due_arg = manager};
    if (!settings->own_thread) {
        manager->waits.drive = spw__progress_drive;
        manager->waits.drive_arg = manager;
        config.changed = spw__loop_changed;
        config.changed_arg = manager;
    }
    return spw__mover_create(&config, &manager->mover);
}

/* Invariant 9: with no buffer left everything that was charged has been given back. */
static void check_gate(const struct spw_manager *manager, const struct spw__gate *gate, spw_tier tier)
{
    const uint64_t left = atomic_load(&gate->committed);
    if (left)
        spw__logf(&manager->log, SPW__LOG_ERROR, "%llu bytes of %s are still committed at the end",
                  (unsigned long long)left, spw_tier_name(tier));
    assert(left == 0);
}

/* Takes down whatever was built, and leaves the thread's error detail alone: it may say why. Forced: raw memory may be
 * live, which is its holders' loss. */
static void dismantle(struct spw_manager *manager, bool forced)
{
    spw_error_info kept;
    spw__error_save(&kept);
    spw__reclaim_end_serving(manager);
    spw__loop_finish(manager);
    spw__mover_destroy(manager->mover);
    spw__streams_finish(manager);
    spw__tickets_finish(manager);
    spw__parked_finish(manager);
    spw__raw_finish(&manager->raw);
    spw__meta_free(&manager->meta, manager->moves, SPW__SPILL_MOVES * sizeof *manager->moves);
    spw__meta_free(&manager->meta, manager->staging_meta, manager->staging_bytes + SPW__IO_BLOCK);
    if (spw__block_is(&manager->staging_block))
        spw__tier_free(&manager->tiers[manager->staging_block.tier], &manager->staging_block);
    spw__store_destroy(manager->store);
    if (!forced)
        check_gate(manager, &manager->root.gates[SPW_TIER_DISK], SPW_TIER_DISK);
    for (unsigned tier = 0; tier < SPW__MEMORY_TIERS; tier++) {
        const uint32_t n_pools = manager->tiers[tier].n_pools;
        for (uint32_t i = 0; manager->victims[tier] && i < n_pools; i++)
            spw__victims_finish(&manager->victims[tier][i]);
        spw__meta_free(&manager->meta, manager->victims[tier], n_pools * sizeof *manager->victims[tier]);
        (void)spw__tier_drain(&manager->tiers[tier]);
        if (!forced)
            check_gate(manager, &manager->root.gates[tier], (spw_tier)tier);
        spw__tier_finish(&manager->tiers[tier]);
        spw__mutex_finish(&manager->pressure[tier].lock);
        spw__hole_finish(&manager->holes[tier]);
    }
    spw__reclaim_finish(manager);
    spw__external_finish(manager);
    spw__tasks_finish(manager);
    spw__device_close(manager->device);
    spw__groups_finish(manager);
    spw__handles_finish(manager);
    spw__payload_spares_finish(manager);
    spw__reservations_finish(manager);
    spw__waitset_finish(&manager->waits);
    spw__mutex_finish(&manager->moves_lock);
    spw__mutex_finish(&manager->groups_lock);
    spw__ledger_finish(&manager->ledger);
    if (!forced)
        check_gate(manager, &manager->meta.gate, SPW_TIER_META);
    spw__meta_finish(&manager->meta);
    free(manager);
    (void)spw__error_restore(&kept);
}

static int build(struct spw_manager *manager, struct spw__settings *settings)
{
    void *staging = NULL;
    int rc = open_device(manager, settings);
    if (rc == SPW_OK) {
        spw__settings_resolve(settings);
        manager->piece_bytes = settings->piece_bytes;
        rc = build_tiers(manager, &settings->spec);
        spw__headroom_init(manager, settings->spec.headroom_percent);
    }
    if (rc == SPW_OK)
        rc = build_store(manager, &settings->spec);
    if (rc == SPW_OK)
        rc = build_staging(manager, settings, &staging);
    if (rc == SPW_OK)
        rc = build_mover(manager, settings, staging);
    return rc;
}

static _Atomic uint64_t last_serial; /* atomic: of managers */

static struct spw_manager *new_manager(const spw_options *options, const struct spw__env *env)
{
    struct spw_manager *manager = aligned_alloc(64, (sizeof *manager + 63) / 64 * 64);
    if (!manager)
        return NULL;
    memset(manager, 0, sizeof *manager);
    manager->env = env ? *env : (struct spw__env){.clock = NULL};
    manager->log = (struct spw__log){.fn = options->log, .arg = options->log_arg};
    manager->default_timeout_ms = options->default_timeout_ms;
    manager->fork_generation = fork_generation;
    spw__ledger_init(&manager->ledger);
    spw__group_init(&manager->root, NULL, &manager->ledger);
    spw__mutex_init(&manager->groups_lock, SPW__RANK_GROUPS);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++) /* of a place that is not there: nothing */
        spw__gate_init(&manager->root.gates[tier], 0);
    spw__waitset_init(&manager->waits, manager->env.clock);
    manager->waits.blocked = spw__arbiter_blocked;
    manager->waits.blocked_arg = manager;
    manager->waits.help = spw__reclaim_help;
    manager->waits.leaving = spw__reclaim_leaving;
    manager->waits.help_arg = manager->waits.leaving_arg = manager;
    spw__reclaim_init(manager);
    spw__external_init(&manager->external);
    manager->serial = atomic_fetch_add(&last_serial, 1) + 1;
    manager->patience_max_ns = UINT64_C(20) * 1000 * 1000;
    manager->waits.room = spw__pressure_room;
    manager->waits.room_arg = manager;
    manager->waits.timer = spw__tickets_timer;
    manager->waits.timer_arg = manager;
    spw__tickets_init(manager);
    spw__loop_init(manager);
    spw__mutex_init(&manager->moves_lock, SPW__RANK_MOVES);
    spw__mutex_init(&manager->handles.lock, SPW__RANK_HANDLES);
    spw__mutex_init(&manager->spares.lock, SPW__RANK_SPARES);
    spw__raw_init(&manager->raw, &manager->meta);
    spw__parked_init(&manager->parked);
    spw__streams_init(manager);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        spw__mutex_init(&manager->pressure[tier].lock, SPW__RANK_PUMP);
        spw__hole_init(&manager->holes[tier], manager, tier);
    }
    return manager;
}

int spw__manager_create_env(const spw_options *options, const struct spw__env *env, spw_manager **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    spw_options taken = options_defaults;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_manager_create: out is NULL");
    *out = NULL;
    int rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_options, log_arg), options, "spw_manager_create: options");
    if (rc != SPW_OK)
        return rc;
    options = &taken;
    if (options->default_timeout_ms < 0)
        return spw__fail(SPW_EINVAL, "spw_manager_create: options.default_timeout_ms is negative");
    struct spw__settings *settings = malloc(sizeof *settings);
    if (!settings)
        return spw__fail(SPW_ENOMETA, "no memory for the configuration");
    rc = spw__settings_init(settings, options);
    struct spw_manager *manager = rc == SPW_OK ? new_manager(options, env) : NULL;
    if (rc == SPW_OK && !manager)
        rc = spw__fail(SPW_ENOMETA, "no memory for the manager");
    if (rc == SPW_OK) {
        (void)pthread_once(&once, watch_forks);
        spw__meta_init(&manager->meta, settings->spec.meta_bytes ? settings->spec.meta_bytes : SPW__META_BYTES_DEFAULT);
        rc = build(manager, settings);
    }
    if (rc != SPW_OK && manager)
        dismantle(manager, false);
    else
        *out = manager;
    free(settings);
    return rc;
}

int spw_manager_create(const spw_options *options, spw_manager **out)
{
    return spw__manager_create_env(options, NULL, out);
}

struct listing {
    char text[256];
    size_t used;
    unsigned listed;
};

static bool list_buffer(spw_buffer *buffer, void *arg)
{
    struct listing *listing = arg;
    const int n = snprintf(listing->text + listing->used, sizeof listing->text - listing->used, "%s\"%s\" (%llu bytes)",
                           listing->listed ? ", " : "", buffer->tag, (unsigned long long)buffer->payload->size);
    listing->used += (size_t)(n > 0 ? n : 0);
    listing->listed++;
    return listing->listed < 8 && listing->used < sizeof listing->text - 64;
}

/* SPW_EBUSY, with how many there are and where, while raw blocks are live. */
static int check_raw(spw_manager *manager)
{
    struct listing listing = {.used = 0};
    uint64_t live = 0;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        const struct spw__raw_usage usage = spw__raw_usage(&manager->raw, tier);
        if (usage.live == 0)
            continue;
        const int n = snprintf(listing.text + listing.used, sizeof listing.text - listing.used,
                               "%s%llu in %s (%llu bytes)", live ? ", " : "", (unsigned long long)usage.live,
                               spw_tier_name(tier), (unsigned long long)usage.live_bytes);
        listing.used += (size_t)(n > 0 ? n : 0);
        live += usage.live;
    }
    return live ? spw__fail(SPW_EBUSY, "%llu raw block%s live: %s; free %s first", (unsigned long long)live,
                            live == 1 ? " is" : "s are", listing.text, live == 1 ? "it" : "them")
                : SPW_OK;
}

static int check_tasks(spw_manager *manager)
{
    const uint32_t n = atomic_load(&manager->arbiter.n_tasks);
    return n ? spw__fail(SPW_EBUSY, "%u task%s live, the oldest is \"%s\"; destroy %s first", n,
                         n == 1 ? " is" : "s are", manager->arbiter.tasks->name, n == 1 ? "it" : "them")
             : SPW_OK;
}

int spw_manager_destroy(spw_manager *manager)
{
    if (!manager)
        return SPW_OK;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__tickets_check_none(manager);
    if (rc != SPW_OK)
        return rc;
    spw__mutex_lock(&manager->handles.lock);
    const uint64_t live = manager->handles.live;
    spw__mutex_unlock(&manager->handles.lock);
    if (live) {
        struct listing listing = {.used = 0};
        spw__handles_visit(manager, list_buffer, &listing);
        return spw__fail(SPW_EBUSY, "%llu buffer%s live: %s%s; release %s first", (unsigned long long)live,
                         live == 1 ? " is" : "s are", listing.text, live > listing.listed ? ", ..." : "",
                         live == 1 ? "it" : "them");
    }
    rc = check_raw(manager);
    if (rc == SPW_OK)
        rc = spw__streams_check_none(manager);
    if (rc == SPW_OK)
        rc = spw__reclaimers_check_none(manager);
    if (rc == SPW_OK)
        rc = spw__external_check_none(manager);
    if (rc == SPW_OK)
        rc = spw__reservations_check_none(manager);
    if (rc == SPW_OK)
        rc = check_tasks(manager);
    if (rc == SPW_OK)
        rc = spw__groups_check(manager);
    if (rc == SPW_OK)
        dismantle(manager, false);
    return rc;
}

/* Takes a buffer away from whoever holds it: its maps and references count no more. */
static bool drop_buffer(spw_buffer *buffer, void *arg)
{
    struct spw__payload *payload = buffer->payload;
    (void)arg;
    spw__mutex_lock(&payload->lock);
    for (uint32_t i = 0; i < payload->n_pieces; i++)
        atomic_store_explicit(&payload->pieces[i].pins, 0, memory_order_relaxed);
    spw__mutex_unlock(&payload->lock);
    spw__handle_destroy(buffer);
    spw__payload_unref(payload);
    return true;
}

void spw_manager_destroy_force(spw_manager *manager)
{
    if (!manager || spw__check_process(manager) != SPW_OK)
        return;
    spw__waitset_shut_down(&manager->waits);
    spw__reclaim_end_serving(manager); /* a callback may be running there */
    spw__tickets_end_all(manager);
    spw__handles_visit(manager, drop_buffer, NULL);
    dismantle(manager, true);
}
