/* Passes over those that wait, how a waiter ends, and barriers. Neighbours: wait.c has the calls, wait_queue.c the
 * trees, wait_walk.c goes through them.
 *
 * Who is skipped, and why nobody who could proceed is. A pass bounds, per channel and key, the need it still attempts.
 * The bound is the room there is; and where a request of a key failed, it is less than that request needed. The second
 * is sound since a request's chances only shrink with its size: budgets are those of the same groups, the pools that it
 * may use are a subset of those of a smaller request, and a hole that holds it would have held the smaller one. It is
 * up to the user that this is so: where it is not (another alignment, objects from slabs) the key differs or need is 0.
 * It is sound within one pass alone, and what is freed during it is signalled after it. A waiter on several channels
 * is skipped only where each of the pass's channels says so; on the others nothing was freed. Of each key the oldest
 * within the bounds is attempted by every pass, so that whatever was freed in whichever group, or set higher, is met by
 * it: nobody has to know whose waiters that concerns, and no wake-up is lost to a wrong guess.
 *
 * The front of a channel is attempted by every pass, whatever the bound: what its failure says (no room, no hole) is
 * what others act on.
 */
#include "pool/base/wait_pass.h"

#include "pool/base/error.h"
#include "pool/base/wait_walk.h"

enum { HELD_BACK_MAX = 16 };

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
    default: return (waiter->channels & SPW__CHANNEL(tree % SPW__WAIT_CHANNELS)) != 0;
    }
}

void spw__wait_insert_locked(struct spw__waitset *set, struct spw__waiter *waiter)
{
    const struct spw__wait_order order = {.band = spw__clock_now_ns(set->clock) / SPW__WAIT_BAND_NS,
                                          .net_bytes = waiter->net_bytes, .sequence = ++set->sequence};
    waiter->candidate = false;
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++) {
        struct spw__wait_node *node = &waiter->nodes[tree];
        *node = (struct spw__wait_node){.order = order, .owner = waiter};
        if (tree == SPW__WAIT_TREE_OBJECT)
            node->order = (struct spw__wait_order){.band = (uintptr_t)waiter->object, .sequence = order.sequence};
        if (tree == SPW__WAIT_TREE_DEADLINE)
            node->order = (struct spw__wait_order){.band = waiter->deadline_ns, .sequence = order.sequence};
        if (tree < SPW__WAIT_TREE_OBJECT) {
            const unsigned channel = tree % SPW__WAIT_CHANNELS;
            node->need = waiter->need[channel];
            node->marked = (waiter->demands & SPW__CHANNEL(channel)) != 0;
            node->order.key = tree < SPW__WAIT_TREE_KEYS ? 0 : (uintptr_t)waiter->key;
            waiter->passed[channel] = 0;
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
    if (waiter->candidate)
        spw__wait_walk_forget(set->walk, waiter);
    for (unsigned tree = 0; tree < SPW__WAIT_TREES; tree++)
        if (is_in(set, waiter, tree))
            spw__wait_queue_remove(&set->trees[tree], &waiter->nodes[tree]);
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

/* To the room that there is. */
static void lower_to_room_locked(struct spw__wait_walk *pass)
{
    const struct spw__waitset *set = pass->set;
    for (unsigned channel = 0; set->room && channel < SPW__WAIT_CHANNELS; channel++) {
        if (!(pass->channels & SPW__CHANNEL(channel)))
            continue;
        const uint64_t room = set->room(set->room_arg, channel);
        if (pass->most[channel] > room)
            pass->most[channel] = room;
    }
}

/* The first front of the pass's channels after a place in the order; of a barred one that is whom it is left to. */
static struct spw__waiter *front_after_locked(const struct spw__waitset *set, uint32_t channels,
                                              const struct spw__wait_order *after)
{
    const struct spw__wait_node *best = NULL;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        const struct spw__wait_node *front = set->barriers[channel] ? &set->barriers[channel]->nodes[channel]
                                                                    : set->trees[channel].first;
        if ((channels & SPW__CHANNEL(channel)) && front && (!after || spw__wait_before(after, &front->order)) &&
            (!best || spw__wait_before(&front->order, &best->order)))
            best = front;
    }
    return best ? best->owner : NULL;
}

/* The next of a pass: the walk's, or a front that is out of its bounds. */
static struct spw__waiter *next_locked(struct spw__wait_walk *pass, const struct spw__wait_order *after, bool *walks)
{
    const struct spw__waiter *candidate = spw__wait_walk_peek(pass);
    struct spw__waiter *front = front_after_locked(pass->set, pass->channels, after);
    *walks = candidate && (!front || !spw__wait_before(&front->nodes[0].order, &candidate->nodes[0].order));
    return *walks ? spw__wait_walk_next(pass) : front;
}

/* Whom a failure spares an attempt: those of its key that need as much. Of a front that is out of the walk's bounds it
 * says nothing that they do not. */
static void note_failure_locked(struct spw__wait_walk *pass, struct spw__waiter *waiter, bool walks)
{
    if (walks && waiter->attempt)
        spw__wait_walk_leave_out(pass, waiter, ~waiter->barred);
    for (unsigned channel = 0; waiter->held_back && channel < SPW__WAIT_CHANNELS; channel++)
        if (pass->set->barriers[channel] == waiter)
            drop_barrier_locked(pass->set, channel);
}

void spw__wait_pass_locked(struct spw__waitset *set, uint32_t channels)
{
    struct spw__wait_walk pass = {.set = set, .channels = channels, .heeds_barriers = true};
    struct spw__wait_order at;
    struct spw__waiter *waiter;
    bool walks;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        pass.most[channel] = SPW__WAIT_UNBOUNDED;
    lower_to_room_locked(&pass);
    set->passes++;
    spw__wait_walk_begin(&pass, set);
    for (const struct spw__wait_order *after = NULL; (waiter = next_locked(&pass, after, &walks)); after = &at) {
        at = waiter->nodes[0].order;
        const int result = spw__wait_attempt_locked(set, waiter);
        if (result == SPW_EAGAIN) {
            note_failure_locked(&pass, waiter, walks);
        } else {
            spw__wait_give_locked(set, waiter, result);
            lower_to_room_locked(&pass);
        }
    }
    spw__wait_walk_end(&pass);
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
    const bool earlier = due_ns < atomic_exchange(&set->due_ns, due_ns);
    if (earlier && set->timer) /* whom it wakes finds the time that was set */
        set->timer(set->timer_arg, due_ns);
}

void spw__wait_settle_unlock(struct spw__waitset *set)
{
    spw__wait_settle_locked(set);
    spw__mutex_unlock(&set->lock);
}
