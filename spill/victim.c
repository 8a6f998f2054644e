/* The queues of victims. Neighbours: victim_rank.c chooses among shares; src/core adds pieces that nobody maps and pops
 * them under pressure. */
#include "spill/victim.h"

#include <assert.h>
#include <stddef.h>

#include "spill/victim_share.h"

static struct spw__victim_list *list_of(struct spw__victims *victims, enum spw__item_state state)
{
    return &victims->lists[state - SPW__ITEM_CLEAN];
}

static void set_state_locked(struct spw__item *item, enum spw__item_state state)
{
    atomic_store_explicit(&item->state, state, memory_order_release);
}

static enum spw__item_state state_locked(const struct spw__item *item)
{
    return atomic_load_explicit(&item->state, memory_order_relaxed);
}

void spw__victims_init(struct spw__victims *victims)
{
    *victims = (struct spw__victims){.leaving_bytes = 0};
    spw__mutex_init(&victims->lock, SPW__RANK_VICTIM);
}

void spw__victims_finish(struct spw__victims *victims)
{
    spw__mutex_finish(&victims->lock);
}

/* Only ever changed under the lock, so that no step of it needs to be atomic. */
static uint64_t note_arrival_locked(struct spw__victims *victims)
{
    const uint64_t arrivals = atomic_load_explicit(&victims->arrivals, memory_order_relaxed) + 1;
    atomic_store_explicit(&victims->arrivals, arrivals, memory_order_release);
    return arrivals;
}

/* Those that were passed over do not count the item any more, which goes. */
static void leave_passed_locked(struct spw__victim_own *own, const struct spw__item *item)
{
    if (own->passed == item)
        own->passed = item->links[SPW__ITEM_OF_SHARE].prev;
}

/* Out of both lists; the share stays in play. */
static void take_out_locked(struct spw__item *item)
{
    const enum spw__item_state state = state_locked(item);
    struct spw__victim_own *own = spw__victim_own_of(item->share, state);
    leave_passed_locked(own, item);
    spw__victim_unlink(list_of(item->share->queue, state), item, SPW__ITEM_OF_QUEUE);
    spw__victim_unlink(&own->list, item, SPW__ITEM_OF_SHARE);
}

/* Out of the lists that it may be in, to go into others of the share, which is in play from here on. */
static void make_ready_locked(struct spw__victim_share *share, struct spw__item *item)
{
    if (state_locked(item) != SPW__ITEM_OUT) {
        assert(item->share == share);
        take_out_locked(item);
        return;
    }
    item->share = share;
    if (!spw__victim_share_in_play(share))
        spw__victim_share_enter(share);
}

static void add_warm_locked(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state)
{
    struct spw__victim_list *list = list_of(share->queue, state);
    struct spw__victim_own *own = spw__victim_own_of(share, state);
    if (list->last == item) /* the warmest already */
        return;
    if (state_locked(item) != state) {
        make_ready_locked(share, item);
        set_state_locked(item, state);
        spw__victim_append(list, item, SPW__ITEM_OF_QUEUE);
        spw__victim_append(&own->list, item, SPW__ITEM_OF_SHARE);
        return;
    }
    spw__victim_warm(list, item, SPW__ITEM_OF_QUEUE);
    if (own->list.last == item)
        return;
    leave_passed_locked(own, item);
    spw__victim_warm(&own->list, item, SPW__ITEM_OF_SHARE);
}

static void add_cold_locked(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state)
{
    struct spw__victim_own *own = spw__victim_own_of(share, state);
    const uint64_t bytes = atomic_load_explicit(&item->bytes, memory_order_relaxed);
    make_ready_locked(share, item);
    set_state_locked(item, state);
    item->age = --share->queue->coldest;
    spw__victim_prepend(list_of(share->queue, state), item, SPW__ITEM_OF_QUEUE);
    spw__victim_prepend(&own->list, item, SPW__ITEM_OF_SHARE);
    if (own->least_bytes > bytes) /* it lies before those that were passed over */
        own->least_bytes = bytes;
}

void spw__victims_add(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state)
{
    spw__mutex_lock(&share->queue->lock);
    item->age = (int64_t)note_arrival_locked(share->queue);
    add_warm_locked(share, item, state);
    spw__mutex_unlock(&share->queue->lock);
}

void spw__victims_put_back(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state)
{
    spw__mutex_lock(&share->queue->lock);
    (void)note_arrival_locked(share->queue);
    add_cold_locked(share, item, state);
    spw__mutex_unlock(&share->queue->lock);
}

void spw__victim_unlink_locked(struct spw__item *item)
{
    take_out_locked(item);
    if (!spw__victim_share_in_play(item->share))
        spw__victim_share_leave(item->share);
}

void spw__victim_let_go_locked(struct spw__item *item)
{
    set_state_locked(item, SPW__ITEM_OUT);
}

void spw__victims_remove(struct spw__victims *victims, struct spw__item *item)
{
    if (!spw__item_is_queued(item))
        return;
    spw__mutex_lock(&victims->lock);
    if (state_locked(item) != SPW__ITEM_OUT) { /* it was not popped meanwhile */
        spw__victim_unlink_locked(item);
        spw__victim_let_go_locked(item);
    }
    spw__mutex_unlock(&victims->lock);
}

struct spw__item *spw__victims_pop(struct spw__victims *victims, bool clean_only, bool (*claim)(struct spw__item *item))
{
    struct spw__item *found = NULL;
    const enum spw__item_state last = clean_only ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY;
    spw__mutex_lock(&victims->lock);
    for (enum spw__item_state state = SPW__ITEM_CLEAN; !found && state <= last; state++)
        while (!found && list_of(victims, state)->first) {
            struct spw__item *item = list_of(victims, state)->first;
            spw__victim_unlink_locked(item);
            if (claim(item))
                found = item;
            spw__victim_let_go_locked(item);
        }
    spw__mutex_unlock(&victims->lock);
    return found;
}

void spw__victims_forgive(struct spw__victims *victims)
{
    spw__mutex_lock(&victims->lock);
    struct spw__victim_list *failed = list_of(victims, SPW__ITEM_FAILED);
    while (failed->last)
        add_cold_locked(failed->last->share, failed->last, SPW__ITEM_DIRTY);
    spw__mutex_unlock(&victims->lock);
}
