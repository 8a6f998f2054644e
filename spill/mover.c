/* Scheduling of moves and the mover's thread. Neighbours: transfer.c does the steps of a segment; src/core submits. */
#include "spill/mover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/thread.h"
#include "pool/base/units.h"
#include "spill/transfer.h"

enum { DEMAND = 0, BACKGROUND = 1, DEMAND_STREAK_MAX = 4, IO_DEPTH = SPW__UNITS };
enum { EVENT_POLL_NS = 20000, EVENT_POLL_MAX_NS = 50 * EVENT_POLL_NS };

static void count(struct spw__mover *mover, unsigned which, uint64_t amount)
{
    spw__count(mover->config.counters, mover->config.first_counter + which, amount);
}

static void append(struct spw__move **first, struct spw__move **last, struct spw__move *move)
{
    move->next = NULL;
    if (*first)
        (*last)->next = move;
    else
        *first = move;
    *last = move;
}

static struct spw__move *pop(struct spw__move **first)
{
    struct spw__move *move = *first;
    *first = move->next;
    move->next = NULL;
    return move;
}

static void take_inbox(struct spw__mover *mover)
{
    spw__mutex_lock(&mover->lock);
    struct spw__move *move = mover->inbox;
    mover->inbox = NULL;
    spw__mutex_unlock(&mover->lock);
    while (move) {
        struct spw__move *next = move->next;
        const int queue = move->demand ? DEMAND : BACKGROUND;
        append(&mover->queues[queue], &mover->queue_tails[queue], move);
        move = next;
    }
}

void spw__mover_count_copy(struct spw__mover *mover, spw_tier from, spw_tier to, uint64_t bytes, uint64_t started_ns)
{
    const unsigned edge = SPW__MOVER_EDGES + 3 * ((unsigned)from * SPW_TIER_COUNT + (unsigned)to);
    count(mover, edge, 1);
    count(mover, edge + 1, bytes);
    count(mover, edge + 2, spw__clock_now_ns(mover->config.clock) - started_ns);
}

/* Puts the failure of a move, in words, into the thread's error detail for the owner's done. */
static void describe(const struct spw__mover *mover, const struct spw__move *move, int status)
{
    const bool writes = move->to.tier == SPW_TIER_DISK;
    const bool disk = status != SPW_EDEVICE && (writes || move->from.tier == SPW_TIER_DISK);
    const struct spw__extent *extent = writes ? &move->to.extent : &move->from.extent;
    const spw_place place = disk ? SPW_DISK : status == SPW_EDEVICE ? SPW_DEVICE : SPW_PLACE(move->from.tier, 0);
    const spw_error_info info = {.place = place,
                                 .requested_bytes = move->bytes,
                                 .os_errno = move->os_errno,
                                 .offset_bytes = disk ? extent->offset + move->failed_offset : 0};
    const char *folder = disk ? spw__store_path(mover->config.store, extent->folder) : "";
    if (status == SPW_ECORRUPT)
        (void)spw__fail_info(&info, status, "spill folder %s, offset %llu: expected sum %016llx, found %016llx%s%s",
                             folder, (unsigned long long)info.offset_bytes, (unsigned long long)move->sum,
                             (unsigned long long)move->found_sum, *move->reason ? ": " : "", move->reason);
    else if (!disk)
        (void)spw__fail_info(&info, status, "copy of %llu bytes from %s to %s failed: %s",
                             (unsigned long long)move->bytes, spw_tier_name(move->from.tier),
                             spw_tier_name(move->to.tier), move->reason);
    else
        (void)spw__fail_info(&info, status, "%s of %llu bytes in spill folder %s failed: %s", writes ? "write" : "read",
                             (unsigned long long)move->bytes, folder,
                             move->os_errno ? strerror(move->os_errno) : move->reason);
}

/* Tells the owner that a move is over, and whoever listens when it was the last. */
static void end(struct spw__mover *mover, struct spw__move *move, int status)
{
    mover->event_poll_ns = EVENT_POLL_NS;
    move->done(move, status);
    if (atomic_fetch_sub(&mover->under_way, 1) == 1 && mover->config.idle)
        mover->config.idle(mover->config.idle_arg);
}

/* Ends a move that ran. */
static void finish(struct spw__mover *mover, struct spw__move *move)
{
    int status = move->status;
    if (status == SPW_OK && move->from.tier == SPW_TIER_DISK && mover->config.verify && move->found_sum != move->sum)
        status = SPW_ECORRUPT;
    if (status == SPW_ECORRUPT)
        count(mover, SPW__MOVER_CORRUPT, 1);
    if (status == SPW_OK && move->bytes) {
        move->sum = move->to.tier == SPW_TIER_DISK ? move->found_sum : move->sum;
        spw__mover_count_copy(mover, move->from.tier, move->to.tier, move->bytes, move->started_ns);
    } else if (status != SPW_OK) {
        describe(mover, move, status);
        if (move->to.tier == SPW_TIER_DISK && move->to.extent.bytes)
            spw__store_free(mover->config.store, &move->to.extent);
    }
    end(mover, move, status);
}

/* Finds space for a move to disk; asks for clean copies to be given up when there is none. */
static int find_extent(struct spw__mover *mover, struct spw__move *move)
{
    struct spw__store *store = mover->config.store;
    int rc = spw__store_alloc(store, move->group, move->bytes, move->excluded_folders, &move->to.extent);
    while (rc == SPW_ENOSPC && mover->config.reclaim_disk &&
           mover->config.reclaim_disk(mover->config.reclaim_arg, move->group, move->bytes))
        rc = spw__store_alloc(store, move->group, move->bytes, move->excluded_folders, &move->to.extent);
    return rc;
}

/* SPW_OK: running; SPW_EAGAIN: its last use has not completed; else it ends with that. */
static int start(struct spw__mover *mover, struct spw__move *move)
{
    if (atomic_load(&move->cancel))
        return spw__fail(SPW_ECANCELED, "a move of %llu bytes was called off before it started",
                         (unsigned long long)move->bytes);
    /* Only a copy that begins on the device can be ordered there; everything else waits here. */
    if (move->use && (move->bytes == 0 || move->from.tier != SPW_TIER_DEVICE) &&
        spw__device_event_pending(mover->config.device, move->use->event))
        return SPW_EAGAIN;
    move->issued_bytes = 0;
    move->found_sum = 0;
    move->status = SPW_OK;
    move->os_errno = 0;
    move->reason[0] = 0;
    move->started_ns = spw__clock_now_ns(mover->config.clock);
    return move->to.tier == SPW_TIER_DISK && move->bytes ? find_extent(mover, move) : SPW_OK;
}

/* A write that failed goes to the next folder, if there is one; the failed extent is given back. */
static bool try_next_folder(struct spw__mover *mover, struct spw__move *move)
{
    if (move->to.tier != SPW_TIER_DISK || (move->status != SPW_EIO && move->status != SPW_ENOSPC))
        return false;
    const int status = move->status, os_errno = move->os_errno;
    const struct spw__extent failed = move->to.extent;
    spw__logf(mover->config.log, SPW__LOG_WARN, "spill folder %s: write failed: %s",
              spw__store_path(mover->config.store, failed.folder), strerror(os_errno));
    move->excluded_folders |= UINT32_C(1) << failed.folder;
    spw__store_free(mover->config.store, &failed);
    if (start(mover, move) == SPW_OK)
        return true;
    move->to.extent = (struct spw__extent){.folder = failed.folder, .offset = failed.offset};
    move->status = status;
    move->os_errno = os_errno;
    return false;
}

/* Ends moves whose last unit is done. */
static void reap(struct spw__mover *mover)
{
    struct spw__move **link = &mover->running;
    while (*link) {
        struct spw__move *move = *link;
        const bool over = move->units == 0 && (move->status != SPW_OK || move->issued_bytes == move->bytes);
        if (!over || (move->status != SPW_OK && try_next_folder(mover, move))) {
            link = &move->next;
            continue;
        }
        *link = move->next;
        finish(mover, move);
    }
}

/* Starts segments as long as there are units for them. */
static void launch(struct spw__mover *mover, struct spw__move *move)
{
    while (move->status == SPW_OK && move->issued_bytes < move->bytes) {
        if (atomic_load(&move->drop)) {
            move->status = SPW_ECANCELED;
            (void)snprintf(move->reason, sizeof move->reason, "called off: nobody needs it");
        } else if (!spw__transfer_launch(mover, move)) {
            break;
        } else {
            mover->event_poll_ns = EVENT_POLL_NS;
        }
    }
}

static int next_queue(const struct spw__mover *mover)
{
    if (!mover->queues[DEMAND])
        return BACKGROUND;
    return mover->queues[BACKGROUND] && mover->demand_streak >= DEMAND_STREAK_MAX ? BACKGROUND : DEMAND;
}

/* Starts queued moves. Those that wait for a device event go to the end of their queue; true when one does. */
static bool start_queued(struct spw__mover *mover)
{
    bool blocked = false;
    struct spw__move *put_back[2] = {NULL, NULL}, *put_back_tail[2] = {NULL, NULL};
    while (mover->n_busy < SPW__UNITS && (mover->queues[DEMAND] || mover->queues[BACKGROUND])) {
        const int queue = next_queue(mover);
        struct spw__move *move = pop(&mover->queues[queue]);
        mover->demand_streak = queue == DEMAND ? mover->demand_streak + 1 : 0;
        const int rc = start(mover, move);
        if (rc == SPW_EAGAIN) {
            append(&put_back[queue], &put_back_tail[queue], move);
            blocked = true;
            continue;
        }
        if (rc != SPW_OK) {
            end(mover, move, rc); /* it never ran: whoever refused has described why */
            continue;
        }
        if (move->bytes == 0) { /* there may be thousands: none goes through the list of those that run */
            finish(mover, move);
            continue;
        }
        struct spw__move **link = &mover->running;
        while (*link)
            link = &(*link)->next;
        *link = move;
        launch(mover, move);
        if (move->status == SPW_OK && move->issued_bytes < move->bytes)
            break; /* out of units or slots: it goes on first when one is free */
        if (mover->copied)
            break;
    }
    for (int queue = 0; queue < 2; queue++)
        while (put_back[queue])
            append(&mover->queues[queue], &mover->queue_tails[queue], pop(&put_back[queue]));
    return blocked;
}

/* Gives free units to running moves, oldest first. True when one is left without. */
static bool feed_running(struct spw__mover *mover)
{
    bool starved = false;
    for (struct spw__move *move = mover->running; move; move = move->next) {
        launch(mover, move);
        starved |= move->status == SPW_OK && move->issued_bytes < move->bytes;
    }
    return starved;
}

/* What the round leaves to be done without a hint from outside: for who does not wait here. Device events can only be
 * looked at: less often, the longer nothing happens. */
static void plan_next(struct spw__mover *mover, bool at_once, bool polls)
{
    uint64_t next_ns = at_once ? 0 : UINT64_MAX;
    if (!at_once && polls) {
        next_ns = spw__clock_monotonic_ns() + mover->event_poll_ns;
        if (mover->event_poll_ns < EVENT_POLL_MAX_NS)
            mover->event_poll_ns *= 2;
    }
    atomic_store(&mover->next_ns, next_ns);
}

/* One round: everything that can be done without waiting, then a wait of at most timeout_ns. True when work is left. */
static bool run_round(struct spw__mover *mover, int64_t timeout_ns)
{
    const uint32_t events = mover->n_events;
    mover->copied = false;
    take_inbox(mover);
    spw__transfer_poll_events(mover);
    if (mover->n_events != events)
        mover->event_poll_ns = EVENT_POLL_NS;
    const bool starved = feed_running(mover);
    const bool blocked = !starved && start_queued(mover);
    spw__transfer_flush(mover);
    reap(mover);
    const bool ready = mover->copied || (!starved && !blocked && (mover->queues[DEMAND] || mover->queues[BACKGROUND]) &&
                                         mover->n_busy < SPW__UNITS);
    /* A move that was restarted, or is over: the next round sees to it. */
    const bool at_once = ready || (mover->n_busy == 0 && mover->running);
    const bool polls = mover->n_events || blocked;
    if (at_once)
        timeout_ns = 0;
    else if (polls && (timeout_ns < 0 || timeout_ns > EVENT_POLL_NS))
        timeout_ns = EVENT_POLL_NS;
    const unsigned completed = spw__io_poll(mover->io, timeout_ns);
    spw__transfer_flush(mover);
    reap(mover);
    if (mover->config.changed)
        plan_next(mover, at_once || completed, polls || spw__io_unsent(mover->io));
    return mover->n_busy || mover->running || mover->queues[DEMAND] || mover->queues[BACKGROUND];
}

static bool inbox_empty(struct spw__mover *mover, bool *stopping)
{
    spw__mutex_lock(&mover->lock);
    const bool empty = !mover->inbox;
    *stopping = mover->stopping;
    spw__mutex_unlock(&mover->lock);
    return empty;
}

static void *thread_main(void *arg)
{
    struct spw__mover *mover = arg;
    bool left = false, stopping = false;
    for (;;) {
        /* sleeping is set before the inbox is looked at, and submit looks at it after filling the inbox: no lost wake.
         */
        atomic_store(&mover->sleeping, true);
        const int64_t due_ns = mover->config.due ? mover->config.due(mover->config.due_arg) : -1;
        const bool empty = inbox_empty(mover, &stopping);
        if (empty && !left && stopping)
            break;
        left = run_round(mover, empty && !stopping ? due_ns : 0);
        atomic_store(&mover->sleeping, false);
    }
    return NULL;
}

bool spw__mover_drive(struct spw__mover *mover, int64_t timeout_ns)
{
    if (mover->config.own_thread)
        return false;
    if (atomic_exchange(&mover->driving, true)) {
        const struct timespec moment = {.tv_nsec = EVENT_POLL_NS};
        (void)nanosleep(&moment, NULL);
        return true;
    }
    bool stopping = false, left;
    atomic_store(&mover->sleeping, true);
    const bool empty = inbox_empty(mover, &stopping);
    left = run_round(mover, empty ? timeout_ns : 0);
    atomic_store(&mover->sleeping, false);
    left |= !inbox_empty(mover, &stopping);
    atomic_store(&mover->driving, false);
    if (mover->config.changed)
        mover->config.changed(mover->config.changed_arg);
    return left;
}

uint64_t spw__mover_due_ns(struct spw__mover *mover)
{
    bool stopping;
    if (mover->config.own_thread || atomic_load(&mover->driving))
        return UINT64_MAX;
    return inbox_empty(mover, &stopping) ? atomic_load(&mover->next_ns) : 0;
}

int spw__mover_fd(struct spw__mover *mover)
{
    return spw__io_fd(mover->io);
}

void spw__mover_submit(struct spw__mover *mover, struct spw__move *move)
{
    (void)atomic_fetch_add(&mover->under_way, 1);
    spw__mutex_lock(&mover->lock);
    append(&mover->inbox, &mover->inbox_tail, move);
    spw__mutex_unlock(&mover->lock);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&mover->sleeping))
        spw__io_wake(mover->io);
    /* Who drives calls the hook once it does not, and looks at the inbox after that. */
    if (mover->config.changed && !atomic_load(&mover->driving))
        mover->config.changed(mover->config.changed_arg);
}

void spw__mover_wake(struct spw__mover *mover)
{
    spw__io_wake(mover->io);
}

void spw__mover_cancel(struct spw__move *move)
{
    atomic_store(&move->cancel, true);
}

void spw__mover_drop(struct spw__move *move)
{
    atomic_store(&move->cancel, true);
    atomic_store(&move->drop, true);
}

/* Slots of one segment each: 1 MiB, or less when staging is so small that few would be in flight. */
static void cut_staging(struct spw__mover *mover)
{
    uint64_t segment = UINT64_C(1) << 20;
    while (segment > mover->block_bytes && mover->config.staging_bytes / segment < 4)
        segment /= 2;
    mover->segment_bytes = segment;
    const uint64_t slots = mover->config.staging_bytes / segment;
    mover->n_slots = (uint32_t)(slots < SPW__SLOTS_MAX ? slots : SPW__SLOTS_MAX);
}

static int open_streams(struct spw__mover *mover)
{
    if (!mover->config.device)
        return SPW_OK;
    const int rc = spw__device_stream_create(mover->config.device, &mover->to_device);
    return rc != SPW_OK ? rc : spw__device_stream_create(mover->config.device, &mover->from_device);
}

static void release(struct spw__mover *mover)
{
    struct spw__device *device = mover->config.device;
    if (mover->to_device)
        (void)spw__device_stream_destroy(device, mover->to_device);
    if (mover->from_device)
        (void)spw__device_stream_destroy(device, mover->from_device);
    spw__io_destroy(mover->io);
    spw__mutex_finish(&mover->lock);
    spw__meta_free(mover->config.meta, mover, sizeof *mover);
}

int spw__mover_create(const struct spw__mover_config *config, struct spw__mover **out)
{
    struct spw__mover *mover = spw__meta_alloc(config->meta, sizeof *mover);
    *out = NULL;
    if (!mover)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the mover; raise meta=");
    mover->config = *config;
    atomic_init(&mover->next_ns, UINT64_MAX);
    mover->event_poll_ns = EVENT_POLL_NS;
    mover->block_bytes = config->store ? spw__store_block_bytes(config->store) : SPW__IO_BLOCK;
    cut_staging(mover);
    spw__mutex_init(&mover->lock, SPW__RANK_MOVER);
    const struct spw__io_config io = {.kind = config->io, .depth = IO_DEPTH, .threads = config->io_threads,
                                      .single_owner = config->own_thread, .log = config->log, .meta = config->meta};
    int rc = spw__io_create(&io, &mover->io);
    if (rc == SPW_OK)
        rc = open_streams(mover);
    if (rc == SPW_OK && config->staging_bytes && config->store)
        (void)spw__io_register(mover->io, config->staging, config->staging_bytes);
    if (rc == SPW_OK && config->own_thread && spw__thread_create(&mover->thread, thread_main, mover) != 0)
        rc = spw__fail(SPW_ENOMEM, "the mover's thread could not be started; raise the limit of threads (ulimit -u, "
                                   "or pids.max of the control group), or use threads=0");
    if (rc != SPW_OK) {
        release(mover);
        return rc;
    }
    *out = mover;
    return SPW_OK;
}

void spw__mover_destroy(struct spw__mover *mover)
{
    if (!mover)
        return;
    if (mover->config.own_thread) {
        spw__mutex_lock(&mover->lock);
        mover->stopping = true;
        spw__mutex_unlock(&mover->lock);
        spw__io_wake(mover->io);
        (void)pthread_join(mover->thread, NULL);
    } else {
        while (spw__mover_drive(mover, EVENT_POLL_NS)) {
        }
    }
    release(mover);
}

bool spw__mover_busy(const struct spw__mover *mover)
{
    return atomic_load(&mover->under_way) != 0;
}

spw__stream spw__mover_copy_stream(const struct spw__mover *mover, bool to_device)
{
    return to_device ? mover->to_device : mover->from_device;
}

bool spw__mover_io_is_uring(const struct spw__mover *mover)
{
    return spw__io_is_uring(mover->io);
}
