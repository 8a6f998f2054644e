/* Walks over those who wait: see wait_walk.h. */
#include "pool/base/wait_walk.h"

#include <assert.h>
#include <string.h>

static struct spw__wait_queue *keys_of(const struct spw__wait_walk *walk, unsigned channel)
{
    return &walk->set->trees[SPW__WAIT_TREE_KEYS + channel];
}

/* True when the walk looks for waiters on the channel: a barred one is its front's alone. */
static bool is_open(const struct spw__wait_walk *walk, unsigned channel)
{
    return (walk->channels & SPW__CHANNEL(channel)) && !(walk->heeds_barriers && walk->set->barriers[channel]);
}

static uint64_t bound_of(const struct spw__wait_walk *walk, const uint64_t *bounds, unsigned channel)
{
    return bounds[channel] < walk->most[channel] ? bounds[channel] : walk->most[channel];
}

static bool is_within(const struct spw__wait_walk *walk, const uint64_t *bounds, const struct spw__waiter *waiter)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++)
        if (is_open(walk, channel) && (waiter->channels & SPW__CHANNEL(channel)) &&
            waiter->nodes[channel].need <= bound_of(walk, bounds, channel) &&
            (waiter->nodes[channel].marked || !walk->marked_only))
            return true;
    return false;
}

static void put(struct spw__wait_walk *walk, struct spw__waiter *waiter, const uint64_t *bounds)
{
    waiter->candidate = true;
    waiter->walk_node = (struct spw__wait_node){.order = waiter->nodes[0].order, .owner = waiter};
    memcpy(waiter->walk_bounds, bounds, sizeof waiter->walk_bounds);
    spw__wait_queue_insert(&walk->candidates, &waiter->walk_node);
}

/* The first of key after a place in the order that is within the bounds becomes its candidate, if there is one. */
static void put_next(struct spw__wait_walk *walk, const void *key, const struct spw__wait_order *after,
                     const uint64_t *bounds)
{
    struct spw__wait_order from = *after;
    const struct spw__wait_node *best = NULL;
    from.key = (uintptr_t)key;
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        if (!is_open(walk, channel))
            continue;
        const struct spw__wait_filter filter = {bound_of(walk, bounds, channel), walk->marked_only};
        const struct spw__wait_node *node = spw__wait_queue_next(keys_of(walk, channel), &from, &filter);
        if (node && node->order.key == from.key && (!best || spw__wait_before(&node->order, &best->order)))
            best = node;
    }
    if (best)
        put(walk, best->owner, bounds);
}

void spw__wait_walk_begin(struct spw__wait_walk *walk, struct spw__waitset *set)
{
    static const uint64_t unbounded[SPW__WAIT_CHANNELS] = {SPW__WAIT_UNBOUNDED, SPW__WAIT_UNBOUNDED,
                                                           SPW__WAIT_UNBOUNDED};
    struct spw__wait_order after_key = {.band = UINT64_MAX, .net_bytes = INT64_MAX, .sequence = UINT64_MAX};
    const struct spw__wait_node *best;
    assert(!set->walk);
    walk->set = set;
    set->walk = walk;
    walk->candidates = (struct spw__wait_queue){.root = NULL};
    walk->any = false;
    for (const struct spw__wait_order *after = NULL;; after = &after_key) {
        best = NULL;
        for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
            const struct spw__wait_filter filter = {walk->most[channel], walk->marked_only};
            const struct spw__wait_node *node =
                is_open(walk, channel) ? spw__wait_queue_next(keys_of(walk, channel), after, &filter) : NULL;
            if (node && (!best || spw__wait_before(&node->order, &best->order)))
                best = node;
        }
        if (!best)
            return;
        put(walk, best->owner, unbounded);
        after_key.key = best->order.key;
    }
}

static void take_out(struct spw__wait_walk *walk, struct spw__waiter *waiter)
{
    spw__wait_queue_remove(&walk->candidates, &waiter->walk_node);
    waiter->candidate = false;
}

static struct spw__waiter *first_of(const struct spw__wait_walk *walk)
{
    return walk->candidates.first ? walk->candidates.first->owner : NULL;
}

void spw__wait_walk_end(struct spw__wait_walk *walk)
{
    struct spw__waiter *first;
    while ((first = first_of(walk)) != NULL)
        take_out(walk, first);
    walk->set->walk = NULL;
}

/* Those that are out of bounds by now give their places to the next of their keys, as the current one does. */
struct spw__waiter *spw__wait_walk_peek(struct spw__wait_walk *walk)
{
    struct spw__waiter *first;
    if (walk->any)
        put_next(walk, walk->key, &walk->at, walk->bounds);
    walk->any = false;
    while ((first = first_of(walk)) && !is_within(walk, first->walk_bounds, first))
        spw__wait_walk_forget(walk, first);
    return first;
}

struct spw__waiter *spw__wait_walk_next(struct spw__wait_walk *walk)
{
    struct spw__waiter *waiter = spw__wait_walk_peek(walk);
    if (!waiter)
        return NULL;
    take_out(walk, waiter);
    walk->any = true;
    walk->at = waiter->nodes[0].order;
    walk->key = waiter->key;
    memcpy(walk->bounds, waiter->walk_bounds, sizeof walk->bounds);
    return waiter;
}

void spw__wait_walk_leave_out(struct spw__wait_walk *walk, const struct spw__waiter *current, uint32_t channels)
{
    for (unsigned channel = 0; channel < SPW__WAIT_CHANNELS; channel++) {
        const uint64_t need = current->nodes[channel].need;
        if ((current->channels & channels & SPW__CHANNEL(channel)) && need != 0 && walk->bounds[channel] > need - 1)
            walk->bounds[channel] = need - 1;
    }
}

void spw__wait_walk_forget(struct spw__wait_walk *walk, struct spw__waiter *waiter)
{
    const struct spw__wait_order at = waiter->walk_node.order;
    take_out(walk, waiter);
    put_next(walk, waiter->key, &at, waiter->walk_bounds);
}
