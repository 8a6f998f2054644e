/* Passes over those that wait, how a waiter ends, and barriers. Neighbours: wait.c has the calls, wait_queue.c the
 * trees.
 *
 * Who is skipped, and why nobody who could proceed is. A pass bounds, per channel and lane, the need it still attempts.
 * The bound is the room there is; and where a request of a key failed, it is less than that request needed. The second
 * is sound since a request's chances only shrink with its size: budgets are those of the same groups, the pools that it
 * may use are a subset of those of a smaller request, and a hole that holds it would have held the smaller one. It is
 * up to the user that this is so: where it is not (another alignment, objects from slabs) the key differs or need is 0.
 * It is sound within one pass alone, and what is freed during it is signalled after it. A waiter on several channels
 * is skipped only where each of the pass's channels says so; on the others nothing was freed. Keys beyond those that
 * have a lane share one: there too an attempt is spared, but not the look at each waiter.
 *
 * The front of a channel is attempted by every pass, whatever the bound: what its failure says (no room, no hole) is
 * what others act on.
 */
#include "pool/base/wait_pass.h"

#include "pool/base/error.h"

enum { SHARED_LANE = SPW__WAIT_LANES - 1, HELD_BACK_MAX = 16 };

static uint8_t take_lane_locked(struct spw__waitset *set, const void *key)
{
    unsigned lane = SHARED_LANE;
    for (unsigned i = 0; i < SHARED_LANE; i++) {
        if (set->lanes[i].n_waiters != 0 && set->lanes[i].key == key) {
            lane = i;
            break;
        }
        if (set->lanes[i].n_waiters == 0 && lane == SHARED_LANE)
            lane = i;
    }
    if (lane != SHARED_LANE) {
        set->lanes[lane].key = key;
        set->lanes[lane].n_waiters++;
    }
    return (uint8_t)lane;
}

static void count_channels(struct spw__waitset *set, uint32_t channels, uint32_t delta)
{
    for (; channels; channels &= channels - 1)
        (void)atomic_fetch_add(&set->n_waiting[__builtin_ctz(channels)], delta);
}

bool spw__wait_times_itself(const struct spw__waitset *set, const struct spw__waiter *waiter)
{
    return !waiter->completed && !(set->clock && set->clock->now_ns);
}

static bool is_in(const struct spw__waitset *set, const struct spw__waiter *waiter, unsigned tree)
{
    switch (tree) {
    case SPW__WAIT_TREE_OBJECT: return (waiter->channels & SPW__CHANNEL_OBJECT) != 0;
    case SPW__WAIT_TREE_DEADLINE:
        return waiter->deadline_ns != UINT64_MAX && !spw__wait_times_itself(set, waiter);
    default: return (waiter->channels & SPW__CHANNEL(tree)) != 0;
    }
}

void spw__wait_insert_locked(struct spw__waitset *set, struct spw__waiter *waiter)
{
    const struct spw__wait_order order = {.band = spw__clock_now_ns(set->clock) / SPW__WAIT_BAND_NS,
                                          .net_bytes = waiter->net_bytes, .sequence = ++set->sequence};
    const bool memory = (waiter->channels & SPW__CHANNELS_MEMORY) != 0;
    const uint8_t lane = memory ? take_lane_locked(set, waiter->key) : SHARED_LANE;
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++) {
        struct spw__wait_node *node = &waiter->nodes[tree];
        *node = (struct spw__wait_node){.order = order, .owner = waiter, .lane = lane};
        if (tree == SPW__WAIT_TREE_OBJECT)
            node->order = (struct spw__wait_order){.band = (uintptr_t)waiter->object, .sequence = order.sequence};
        if (tree == SPW__WAIT_TREE_DEADLINE)
            node->order = (struct spw__wait_order){.band = waiter->deadline_ns, .sequence = order.sequence};
        if (tree < SPW__WAIT_CHANNELS) {
            node->need = waiter->need[tree];
            node->marked = (waiter->demands & SPW__CHANNEL(tree)) != 0;
            waiter->passed[tree] = 0;
        }
        if (is_in(set, waiter, tree))
            spw__wait_queue_insert(&set->trees[tree], node);
    }
    count_channels(set, waiter->channels, 1);
}

/* The channel is open again, to all that were held back: a pass is due. */
static void drop_barrier_locked(struct spw__waitset *set, unsigned channel)
{
    set->barriers[channel]->passed[channel] = 0;
    set->barriers[channel] = NULL;
    (void)atomic_fetch_and(&set->barred, ~SPW__CHANNEL(channel));
    set->again |= SPW__CHANNEL(channel);
}

void spw__wait_finish_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (set->barriers[channel] == waiter)
            drop_barrier_locked(set, channel);
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++)
        if (is_in(set, waiter, tree))
            spw__wait_queue_remove(&set->trees[tree], &waiter->nodes[tree]);
    if (waiter->nodes[0].lane != SHARED_LANE)
        set->lanes[waiter->nodes[0].lane].n_waiters--;
    count_channels(set, waiter->channels, UINT32_MAX);
    if (waiter->joined)
        spw__wait_leave_cancel_locked(waiter);
    if (waiter->blocked && set->blocked)
        set->blocked(set->blocked_arg, waiter, -1);
    if (set->enqueuing == waiter)
        set->enqueuing = NULL;
    waiter->blocked = false;
    waiter->waiting = false;
    waiter->result = result;
    if (waiter->completed)
        waiter->completed(waiter);
    else
        spw__cond_signal(&waiter->done);
}

static void raise_barrier_locked(struct spw__waitset *set, unsigned channel, struct spw__waiter *front)
{
    set->barriers[channel] = front;
    set->freed_ns[channel] = spw__clock_now_ns(set->clock);
    (void)atomic_fetch_or(&set->barred, SPW__CHANNEL(channel));
    if (!front->completed) /* a thread that sleeps there times the barrier from here on */
        spw__cond_signal(&front->done);
}

/* The first that others may take something from; of many that are held back not all are passed. NULL: nobody. */
static struct spw__waiter *front_locked(struct spw__waitset *set, unsigned channel)
{
    const struct spw__wait_node *node = set->trees[channel].first;
    for (unsigned steps = 0; node && steps < HELD_BACK_MAX; steps++) {
        struct spw__waiter *waiter = node->owner;
        if (!waiter->held_back)
            return waiter;
        node = spw__wait_queue_next(&set->trees[channel], &node->order, NULL);
    }
    return NULL;
}

void spw__wait_pass_over_locked(struct spw__waitset *set, unsigned channel, const struct spw__waiter *by)
{
    struct spw__waiter *front = set->barriers[channel] ? NULL : front_locked(set, channel);
    if (!front || front == by)
        return;
    if (++front->passed[channel] >= SPW__WAIT_PASS_MAX)
        raise_barrier_locked(set, channel, front);
}

void spw__wait_give_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result)
{
    for (unsigned channel = 0; result == SPW_OK && channel < SPW__WAIT_CHANNELS; channel++)
        if (waiter->channels & waiter->served & SPW__CHANNEL(channel))
            spw__wait_pass_over_locked(set, channel, waiter);
    spw__wait_finish_locked(set, waiter, result);
}

void spw__wait_note_freed_locked(struct spw__waitset *set, uint32_t channels)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if ((channels & SPW__CHANNEL(channel)) && set->barriers[channel])
            set->freed_ns[channel] = spw__clock_now_ns(set->clock);
}

uint64_t spw__wait_lapse_ns_locked(const struct spw__waitset *set, unsigned channel)
{
    return set->barriers[channel] ? set->freed_ns[channel] + SPW__WAIT_STALL_NS : UINT64_MAX;
}

void spw__wait_lapse_locked(struct spw__waitset *set, uint64_t now_ns)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (set->barriers[channel] && spw__wait_lapse_ns_locked(set, channel) <= now_ns)
            drop_barrier_locked(set, channel);
}

int spw__wait_attempt_locked(struct spw__waitset *set, struct spw__waiter *waiter)
{
    waiter->barred = 0;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (set->barriers[channel] && set->barriers[channel] != waiter)
            waiter->barred |= SPW__CHANNEL(channel);
    if (!waiter->attempt || (waiter->channels & SPW__CHANNELS_MEMORY & ~waiter->barred) == 0)
        return SPW_EAGAIN;
    set->attempts++;
    waiter->tried = true;
    waiter->served = waiter->channels;
    return waiter->attempt(waiter);
}

static struct spw__wait_bound *shared_bound_locked(struct spw__waitset *set, const void *key)
{
    return &set->bounds[((uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SPW__WAIT_BOUNDS];
}

/* A pass: the needs that it still attempts, by channel. */
struct pass {
    struct spw__waitset *set;
    uint32_t channels;
    struct spw__wait_filter filters[SPW__WAIT_CHANNELS];
};

static void lower(uint64_t *bound, uint64_t to)
{
    *bound = *bound < to ? *bound : to;
}

static void lower_to_room_locked(struct pass *pass)
{
    const struct spw__waitset *set = pass->set;
    for (unsigned channel = 0; set->room && channel < SPW__WAIT_CHANNELS; channel++) {
        if (!(pass->channels & SPW__CHANNEL(channel)))
            continue;
        const uint64_t room = set->room(set->room_arg, channel);
        for (unsigned lane = 0; lane < SPW__WAIT_LANES; lane++)
            lower(&pass->filters[channel].bound[lane], room);
    }
}

/* After a failed attempt: whoever needs as much, of the same key, need not be tried. */
static void lower_to_failed_locked(struct pass *pass, const struct spw__waiter *waiter)
{
    struct spw__waitset *set = pass->set;
    const unsigned lane = waiter->nodes[0].lane;
    struct spw__wait_bound *shared = lane == SHARED_LANE ? shared_bound_locked(set, waiter->key) : NULL;
    if (!waiter->attempt)
        return;
    if (shared && (shared->pass != set->passes || shared->key != waiter->key)) {
        *shared = (struct spw__wait_bound){.key = waiter->key, .pass = set->passes};
        for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
            shared->bound[channel] = SPW__WAIT_UNBOUNDED;
    }
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if ((waiter->channels & ~waiter->barred & SPW__CHANNEL(channel)) && waiter->nodes[channel].need != 0)
            lower(shared ? &shared->bound[channel] : &pass->filters[channel].bound[lane],
                  waiter->nodes[channel].need - 1);
}

/* A waiter in the shared lane, where the tree cannot skip it: true when it has no chance, and is no front. */
static bool is_spared_locked(const struct pass *pass, const struct spw__waiter *waiter)
{
    struct spw__waitset *set = pass->set;
    const struct spw__wait_bound *shared = shared_bound_locked(set, waiter->key);
    if (waiter->nodes[0].lane != SHARED_LANE || shared->pass != set->passes || shared->key != waiter->key)
        return false;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if ((pass->channels & waiter->channels & SPW__CHANNEL(channel)) &&
            (waiter->nodes[channel].need <= shared->bound[channel] || set->trees[channel].first->owner == waiter))
            return false;
    return true;
}

static struct spw__wait_node *next_on_channel_locked(const struct pass *pass, unsigned channel,
                                                     const struct spw__wait_order *after)
{
    const struct spw__waitset *set = pass->set;
    struct spw__wait_node *front = set->barriers[channel] ? &set->barriers[channel]->nodes[channel]
                                                          : set->trees[channel].first;
    if (front && (!after || spw__wait_before(after, &front->order)))
        return front;
    return set->barriers[channel] ? NULL
                                  : spw__wait_queue_next(&set->trees[channel], after, &pass->filters[channel]);
}

/* The first after a place in the order, over all channels of the pass. */
static struct spw__waiter *next_locked(const struct pass *pass, const struct spw__wait_order *after)
{
    const struct spw__wait_node *best = NULL;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        if (!(pass->channels & SPW__CHANNEL(channel)))
            continue;
        const struct spw__wait_node *node = next_on_channel_locked(pass, channel, after);
        if (node && (!best || spw__wait_before(&node->order, &best->order)))
            best = node;
    }
    return best ? best->owner : NULL;
}

void spw__wait_pass_locked(struct spw__waitset *set, uint32_t channels)
{
    struct pass pass = {.set = set, .channels = channels};
    struct spw__wait_order at;
    struct spw__waiter *waiter;
    for (unsigned i = 0; i < SPW__WAIT_CHANNELS * SPW__WAIT_LANES; i++)
        pass.filters[i / SPW__WAIT_LANES].bound[i % SPW__WAIT_LANES] = SPW__WAIT_UNBOUNDED;
    lower_to_room_locked(&pass);
    set->passes++;
    for (const struct spw__wait_order *after = NULL; (waiter = next_locked(&pass, after)); after = &at) {
        at = waiter->nodes[0].order;
        if (is_spared_locked(&pass, waiter))
            continue;
        const int result = spw__wait_attempt_locked(set, waiter);
        if (result == SPW_EAGAIN) {
            lower_to_failed_locked(&pass, waiter);
            for (unsigned channel = 0; waiter->held_back && channel < SPW__WAIT_CHANNELS; channel++)
                if (set->barriers[channel] == waiter)
                    drop_barrier_locked(set, channel);
        } else {
            spw__wait_give_locked(set, waiter, result);
            lower_to_room_locked(&pass);
        }
    }
}

void spw__wait_settle_locked(struct spw__waitset *set)
{
    while (set->again && !set->shut_down) {
        const uint32_t channels = set->again;
        set->again = 0;
        spw__wait_pass_locked(set, channels);
    }
    set->again = 0;
    const struct spw__wait_node *first = set->trees[SPW__WAIT_TREE_DEADLINE].first;
    uint64_t due_ns = first ? first->order.band : UINT64_MAX;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (set->barriers[channel] && !spw__wait_times_itself(set, set->barriers[channel]) &&
            spw__wait_lapse_ns_locked(set, channel) < due_ns)
            due_ns = spw__wait_lapse_ns_locked(set, channel);
    if (due_ns < atomic_load(&set->due_ns) && set->timer)
        set->timer(set->timer_arg, due_ns);
    atomic_store(&set->due_ns, due_ns);
}

void spw__wait_settle_unlock(struct spw__waitset *set)
{
    spw__wait_settle_locked(set);
    spw__mutex_unlock(&set->lock);
}
