/* Parked memory: see parked.h. Neighbours: pool.c parks and takes, pressure.c sweeps, spill/mover watches. */
#include "src/core/parked.h"

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/use.h"
#include "src/core/payload.h"
#include "src/core/pressure.h"

/* Blocks of a stream that are compared for the best fit, latest first. */
enum { LOOKS_MAX = 64 };

struct parked_block {
    struct spw__block block;
    struct spw__use *use;
    struct parked_block *prev, *next; /* oldest first; guarded by the lock, as all below */
};

struct spw__parked_stream {
    struct spw_manager *manager;
    void *stream;
    struct parked_block *first, *last;
    struct spw__parked_stream *next;
    struct spw__move move; /* the mover's while watched */
    bool watched;
};

void spw__parked_init(struct spw__parked *parked)
{
    spw__mutex_init(&parked->lock, SPW__RANK_PARKED);
}

void spw__parked_finish(struct spw_manager *manager)
{
    struct spw__parked *parked = &manager->parked;
    while (parked->streams) {
        struct spw__parked_stream *stream = parked->streams;
        parked->streams = stream->next;
        spw__meta_free(&manager->meta, stream, sizeof *stream);
    }
    spw__mutex_finish(&parked->lock);
}

static void append_locked(struct spw__parked_stream *stream, struct parked_block *parked)
{
    parked->prev = stream->last;
    parked->next = NULL;
    if (stream->last)
        stream->last->next = parked;
    else
        stream->first = parked;
    stream->last = parked;
    (void)atomic_fetch_add(&stream->manager->parked.blocks, 1);
}

static void unlink_locked(struct spw__parked_stream *stream, struct parked_block *parked)
{
    if (parked->prev)
        parked->prev->next = parked->next;
    else
        stream->first = parked->next;
    if (parked->next)
        parked->next->prev = parked->prev;
    else
        stream->last = parked->prev;
    (void)atomic_fetch_sub(&stream->manager->parked.blocks, 1);
}

/* Takes out what has completed, or never can since the device is lost, and adds it to *done. */
static void collect_locked(struct spw__parked_stream *stream, struct parked_block **done)
{
    struct spw__device *device = stream->manager->device;
    while (stream->first && !spw__device_event_pending(device, stream->first->use->event)) {
        struct parked_block *parked = stream->first;
        unlink_locked(stream, parked);
        parked->next = *done;
        *done = parked;
    }
}

static void free_record(struct spw_manager *manager, struct parked_block *parked)
{
    spw__use_unref(manager, parked->use);
    spw__meta_free(&manager->meta, parked, sizeof *parked);
}

static bool give_back(struct spw_manager *manager, struct parked_block *done)
{
    const bool any = done != NULL;
    while (done) {
        struct parked_block *parked = done;
        done = parked->next;
        (void)spw__tier_free(spw__tier_of(manager, (spw_tier)parked->block.tier), &parked->block);
        free_record(manager, parked);
    }
    return any;
}

static void watched_event_passed(struct spw__move *move, int status);

/* The move that watches the stream's oldest event, to be submitted; NULL when there is no need of one. */
static struct spw__move *watch_locked(struct spw__parked_stream *stream)
{
    if (stream->watched || !stream->first)
        return NULL;
    stream->watched = true;
    stream->move = (struct spw__move){.use = spw__use_ref(stream->first->use), .done = watched_event_passed,
                                      .arg = stream};
    return &stream->move;
}

static void watched_event_passed(struct spw__move *move, int status)
{
    struct spw__parked_stream *stream = move->arg;
    struct spw_manager *manager = stream->manager;
    struct parked_block *done = NULL;
    (void)status; /* the events themselves are asked */
    spw__use_unref(manager, move->use);
    spw__mutex_lock(&manager->parked.lock);
    collect_locked(stream, &done);
    stream->watched = false;
    struct spw__move *again = watch_locked(stream);
    spw__mutex_unlock(&manager->parked.lock);
    if (again)
        spw__mover_submit(manager->mover, again);
    if (give_back(manager, done))
        spw__pressure_kick(manager, SPW_TIER_HOST);
}

static bool in_use(const struct spw__parked_stream *stream)
{
    return stream->first || stream->watched;
}

static struct spw__parked_stream *find_locked(struct spw__parked *parked, const void *handle)
{
    struct spw__parked_stream *stream = parked->streams;
    while (stream && (stream->stream != handle || !in_use(stream)))
        stream = stream->next;
    return stream;
}

/* The stream's list, new or one that is out of use. NULL: no metadata memory. */
static struct spw__parked_stream *provide_locked(struct spw_manager *manager, void *handle)
{
    struct spw__parked *parked = &manager->parked;
    struct spw__parked_stream *stream = find_locked(parked, handle);
    if (stream)
        return stream;
    for (stream = parked->streams; stream && in_use(stream); stream = stream->next) {
    }
    if (!stream) {
        stream = spw__meta_alloc(&manager->meta, sizeof *stream);
        if (!stream)
            return NULL;
        stream->manager = manager;
        stream->next = parked->streams;
        parked->streams = stream;
    }
    stream->stream = handle;
    return stream;
}

/* A record with an event that completes when the stream has done all that it was given so far. NULL: not to be had. */
static struct parked_block *make_record(struct spw_manager *manager, void *stream)
{
    struct parked_block *parked = spw__meta_alloc(&manager->meta, sizeof *parked);
    if (parked && spw__use_create(manager, stream, &parked->use) == SPW_OK)
        return parked;
    spw__meta_free(&manager->meta, parked, sizeof *parked);
    return NULL;
}

void spw__park(struct spw_manager *manager, struct spw__block *block, void *handle)
{
    struct parked_block *parked = make_record(manager, handle);
    struct spw__parked_stream *stream = NULL;
    struct spw__move *watch = NULL;
    if (parked) {
        parked->block = *block;
        spw__mutex_lock(&manager->parked.lock);
        stream = provide_locked(manager, handle);
        if (stream) {
            append_locked(stream, parked);
            watch = watch_locked(stream);
        }
        spw__mutex_unlock(&manager->parked.lock);
    }
    if (watch)
        spw__mover_submit(manager->mover, watch);
    if (stream) {
        block->bytes = 0;
        return;
    }
    if (parked)
        free_record(manager, parked);
    (void)spw__device_settle(manager->device, handle); /* if it fails the device is lost, and its memory idle */
    (void)spw__tier_free(spw__tier_of(manager, (spw_tier)block->tier), block);
}

/* A little too much is given away with the block. */
static bool is_to_be_cut(const struct spw__block *block, uint64_t charge)
{
    return block->bytes - charge > charge / 16;
}

static bool suits(const struct spw__block *block, const struct spw__group *group, uint32_t pool, uint64_t charge,
                  uint64_t align)
{
    if (block->group != group || block->pool != pool || block->bytes < charge || block->address % align != 0)
        return false;
    return !is_to_be_cut(block, charge) || block->slot == 0; /* small objects have no parts */
}

static struct parked_block *best_locked(const struct spw__parked_stream *stream, const struct spw__group *group,
                                        uint32_t pool, uint64_t charge, uint64_t align)
{
    struct parked_block *best = NULL;
    unsigned looks = 0;
    for (struct parked_block *at = stream->last; at && looks < LOOKS_MAX; at = at->prev, looks++) {
        if (!suits(&at->block, group, pool, charge, align) || (best && at->block.bytes >= best->block.bytes))
            continue;
        best = at;
        if (at->block.bytes == charge)
            break;
    }
    return best;
}

/* Cuts the block to charge bytes; the rest takes the block's place. False, and no change, without metadata memory. */
static bool cut_locked(struct spw__parked_stream *stream, struct spw__tier *tier, struct parked_block *parked,
                       uint64_t charge)
{
    struct spw_manager *manager = stream->manager;
    struct parked_block *rest = spw__meta_alloc(&manager->meta, sizeof *rest);
    if (!rest)
        return false;
    if (spw__tier_split(tier, &parked->block, charge, &rest->block) != SPW_OK) {
        spw__meta_free(&manager->meta, rest, sizeof *rest);
        return false;
    }
    rest->use = spw__use_ref(parked->use);
    rest->prev = parked;
    rest->next = parked->next;
    if (parked->next)
        parked->next->prev = rest;
    else
        stream->last = rest;
    parked->next = rest;
    (void)atomic_fetch_add(&manager->parked.blocks, 1);
    return true;
}

/* The stream is made to wait for the event, which costs nothing when it recorded it itself: a stream that was destroyed
 * may have left its handle to another. */
static struct parked_block *take_locked(struct spw__parked_stream *stream, struct spw__tier *tier,
                                        const struct spw__group *group, uint64_t bytes, uint64_t align)
{
    const uint64_t charge = spw__tier_charge(tier, bytes);
    const uint32_t pool = tier->route[spw__tier_first_route(tier, bytes)];
    struct parked_block *best = best_locked(stream, group, pool, charge, align);
    if (!best || spw__device_event_order(stream->manager->device, stream->stream, best->use->event) != SPW_OK)
        return NULL;
    if (is_to_be_cut(&best->block, charge) && !cut_locked(stream, tier, best, charge))
        return NULL;
    unlink_locked(stream, best);
    return best;
}

bool spw__parked_take(struct spw_manager *manager, const struct spw__group *group, void *handle, spw_tier which,
                      uint64_t bytes, uint64_t align, struct spw__block *out)
{
    struct spw__parked *parked = &manager->parked;
    struct spw__tier *tier = spw__tier_of(manager, which);
    struct parked_block *taken = NULL;
    if (atomic_load(&parked->blocks) == 0 || bytes > tier->largest_request)
        return false;
    spw__mutex_lock(&parked->lock);
    struct spw__parked_stream *stream = find_locked(parked, handle);
    if (stream)
        taken = take_locked(stream, tier, group, bytes, align);
    spw__mutex_unlock(&parked->lock);
    if (!taken)
        return false;
    *out = taken->block;
    free_record(manager, taken);
    return true;
}

bool spw__parked_sweep(struct spw_manager *manager)
{
    struct spw__parked *parked = &manager->parked;
    struct parked_block *done = NULL;
    if (atomic_load(&parked->blocks) == 0)
        return false;
    spw__mutex_lock(&parked->lock);
    for (struct spw__parked_stream *stream = parked->streams; stream; stream = stream->next)
        collect_locked(stream, &done);
    spw__mutex_unlock(&parked->lock);
    return give_back(manager, done);
}
