/* The queues of victims. Neighbours: src/core adds pieces that nobody maps and pops them under pressure. */
#include "spill/victim.h"

#include <stddef.h>

static struct spw__victim_list *list_of(struct spw__victims *victims, enum spw__item_state state)
{
    return &victims->lists[state - SPW__ITEM_CLEAN];
}

static void append_locked(struct spw__victim_list *list, struct spw__item *item)
{
    item->next = NULL;
    item->prev = list->last;
    if (list->last)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

static void prepend_locked(struct spw__victim_list *list, struct spw__item *item)
{
    item->prev = NULL;
    item->next = list->first;
    if (list->first)
        list->first->prev = item;
    else
        list->last = item;
    list->first = item;
}

static void set_state_locked(struct spw__item *item, enum spw__item_state state)
{
    atomic_store_explicit(&item->state, state, memory_order_release);
}

static enum spw__item_state state_locked(const struct spw__item *item)
{
    return atomic_load_explicit(&item->state, memory_order_relaxed);
}

/* The item is in no list from here on, but OUT only when its state says so. */
static void unlink_locked(struct spw__victims *victims, struct spw__item *item)
{
    struct spw__victim_list *list = list_of(victims, state_locked(item));
    if (item->prev)
        item->prev->next = item->next;
    else
        list->first = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else
        list->last = item->prev;
    item->prev = item->next = NULL;
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

void spw__victims_add(struct spw__victims *victims, struct spw__item *item, enum spw__item_state state)
{
    spw__mutex_lock(&victims->lock);
    if (state_locked(item) != SPW__ITEM_OUT)
        unlink_locked(victims, item);
    set_state_locked(item, state);
    append_locked(list_of(victims, state), item);
    (void)atomic_fetch_add(&victims->arrivals, 1);
    spw__mutex_unlock(&victims->lock);
}

void spw__victims_put_back(struct spw__victims *victims, struct spw__item *item, enum spw__item_state state)
{
    spw__mutex_lock(&victims->lock);
    if (state_locked(item) != SPW__ITEM_OUT)
        unlink_locked(victims, item);
    set_state_locked(item, state);
    prepend_locked(list_of(victims, state), item);
    (void)atomic_fetch_add(&victims->arrivals, 1);
    spw__mutex_unlock(&victims->lock);
}

void spw__victims_remove(struct spw__victims *victims, struct spw__item *item)
{
    if (!spw__item_is_queued(item))
        return;
    spw__mutex_lock(&victims->lock);
    if (state_locked(item) != SPW__ITEM_OUT) { /* it was not popped meanwhile */
        unlink_locked(victims, item);
        set_state_locked(item, SPW__ITEM_OUT);
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
            unlink_locked(victims, item);
            if (claim(item))
                found = item;
            set_state_locked(item, SPW__ITEM_OUT);
        }
    spw__mutex_unlock(&victims->lock);
    return found;
}

static struct spw__item *best_locked(struct spw__victims *victims, bool clean_only, spw__victim_score *score, void *arg,
                                     double *best)
{
    const enum spw__item_state last = clean_only ? SPW__ITEM_CLEAN : SPW__ITEM_DIRTY;
    struct spw__item *found = NULL;
    *best = -1;
    for (enum spw__item_state state = SPW__ITEM_CLEAN; state <= last; state++)
        for (struct spw__item *item = list_of(victims, state)->first; item; item = item->next) {
            const double at = score(item, arg);
            if (at < 0 || at <= *best)
                continue;
            *best = at;
            found = item;
        }
    return found;
}

double spw__victims_best(struct spw__victims *victims, bool clean_only, spw__victim_score *score, void *arg)
{
    double best;
    spw__mutex_lock(&victims->lock);
    (void)best_locked(victims, clean_only, score, arg, &best);
    spw__mutex_unlock(&victims->lock);
    return best;
}

struct spw__item *spw__victims_pop_best(struct spw__victims *victims, bool clean_only, spw__victim_score *score,
                                        void *arg, bool (*claim)(struct spw__item *item))
{
    struct spw__item *found;
    double best;
    bool claimed = false;
    spw__mutex_lock(&victims->lock);
    while (!claimed && (found = best_locked(victims, clean_only, score, arg, &best))) {
        unlink_locked(victims, found);
        claimed = claim(found);
        set_state_locked(found, SPW__ITEM_OUT);
    }
    spw__mutex_unlock(&victims->lock);
    return claimed ? found : NULL;
}

void spw__victims_forgive(struct spw__victims *victims)
{
    spw__mutex_lock(&victims->lock);
    struct spw__victim_list *failed = list_of(victims, SPW__ITEM_FAILED);
    while (failed->last) {
        struct spw__item *item = failed->last;
        unlink_locked(victims, item);
        set_state_locked(item, SPW__ITEM_DIRTY);
        prepend_locked(list_of(victims, SPW__ITEM_DIRTY), item);
    }
    spw__mutex_unlock(&victims->lock);
}
