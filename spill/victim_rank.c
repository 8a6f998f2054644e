/* Choices among shares of a queue: see victim.h. Neighbours: victim.c keeps the lists, src/core/rank.c says who is
 * wanted. */
#include "spill/victim_share.h"

#include <stddef.h>

void spw__victim_share_init(struct spw__victim_share *share, struct spw__victims *queue,
                            struct spw__victim_share *above, void *owner)
{
    *share = (struct spw__victim_share){.queue = queue, .above = above, .owner = owner};
}

void spw__victim_share_enter(struct spw__victim_share *share)
{
    bool goes_on = true;
    for (struct spw__victim_share *above; goes_on && (above = share->above); share = above) {
        goes_on = !spw__victim_share_in_play(above);
        share->prev = NULL;
        share->next = above->below;
        if (share->next)
            share->next->prev = share;
        above->below = share;
    }
}

void spw__victim_share_leave(struct spw__victim_share *share)
{
    bool goes_on = true;
    for (struct spw__victim_share *above; goes_on && (above = share->above); share = above) {
        if (share->prev)
            share->prev->next = share->next;
        else
            above->below = share->next;
        if (share->next)
            share->next->prev = share->prev;
        share->prev = share->next = NULL;
        goes_on = !spw__victim_share_in_play(above);
    }
}

static uint64_t bytes_of(const struct spw__item *item)
{
    return atomic_load_explicit(&item->bytes, memory_order_relaxed);
}

/* The coldest of the list that is of most bytes; NULL: none. What lies before it counts as passed over from now on,
 * with the least of its sizes. Where the walk began at the start, and ended before it came to where those before had
 * ended, what they found is still so. */
static struct spw__item *find_small(struct spw__victim_own *own, uint64_t most)
{
    const bool skips = own->passed && most < own->least_bytes;
    bool further = skips || !own->passed; /* than those before */
    uint64_t least = skips ? own->least_bytes : UINT64_MAX;
    struct spw__item *item = skips ? own->passed->links[SPW__ITEM_OF_SHARE].next : own->list.first;
    struct spw__item *before = skips ? own->passed : NULL;
    for (; item && bytes_of(item) > most; before = item, item = item->links[SPW__ITEM_OF_SHARE].next) {
        if (bytes_of(item) < least)
            least = bytes_of(item);
        further |= item == own->passed;
    }
    if (further && before) {
        own->passed = before;
        own->least_bytes = least;
    }
    return item;
}

/* The same, but for those that are held: they are taken out. */
static struct spw__item *find(struct spw__victim_share *share, enum spw__item_state state, uint64_t most,
                              const struct spw__victim_rank *rank)
{
    struct spw__item *item;
    while ((item = find_small(spw__victim_own_of(share, state), most)) && rank->held(item)) {
        spw__victim_unlink_locked(item);
        spw__victim_let_go_locked(item);
    }
    return item;
}

struct choice {
    const struct spw__victim_rank *rank;
    bool clean_only;
    double wanted;            /* the highest so far of what has an item to give */
    struct spw__item *item;   /* the first to go there */
    enum spw__item_state state;
};

/* Considers a share's own items, which are wanted so much. */
static void consider(struct choice *choice, struct spw__victim_share *share, double wanted)
{
    const uint64_t most = choice->rank->most_bytes(share->owner, choice->rank->arg);
    enum spw__item_state state = SPW__ITEM_CLEAN;
    struct spw__item *item = most ? find(share, state, most, choice->rank) : NULL;
    if (!item && most && !choice->clean_only)
        item = find(share, state = SPW__ITEM_DIRTY, most, choice->rank);
    if (!item)
        return;
    if (wanted > choice->wanted || state < choice->state ||
        (state == choice->state && item->age < choice->item->age)) {
        choice->wanted = wanted;
        choice->item = item;
        choice->state = state;
    }
}

/* The next of a branch, a share before those below it; NULL: that was the last. */
static struct spw__victim_share *next_of(const struct spw__victim_share *branch, struct spw__victim_share *at)
{
    if (at->below)
        return at->below;
    while (at != branch && !at->next)
        at = at->above;
    return at == branch ? NULL : at->next;
}

/* A share that is considered may cease to be in play, with those above it; those that come after stay where they are,
 * so that each is looked up before. */
static struct choice choose_locked(struct spw__victim_share *top, bool clean_only, const struct spw__victim_rank *rank)
{
    struct choice choice = {.rank = rank, .clean_only = clean_only, .wanted = -1};
    struct spw__victim_share *branch = top->below, *next_branch, *next;
    const double own = rank->wanted(top->owner, rank->arg);
    if (own >= 0)
        consider(&choice, top, own);
    for (; branch; branch = next_branch) {
        const double wanted = rank->wanted(branch->owner, rank->arg);
        next_branch = branch->next;
        if (wanted < 0 || wanted < choice.wanted)
            continue;
        for (struct spw__victim_share *at = branch; at; at = next) {
            next = next_of(branch, at);
            consider(&choice, at, wanted);
        }
    }
    return choice;
}

double spw__victims_best(struct spw__victim_share *top, bool clean_only, const struct spw__victim_rank *rank)
{
    spw__mutex_lock(&top->queue->lock);
    const double wanted = choose_locked(top, clean_only, rank).wanted;
    spw__mutex_unlock(&top->queue->lock);
    return wanted;
}

struct spw__item *spw__victims_pop_best(struct spw__victim_share *top, bool clean_only,
                                        const struct spw__victim_rank *rank, bool (*claim)(struct spw__item *item))
{
    struct spw__item *found;
    bool claimed = false;
    spw__mutex_lock(&top->queue->lock);
    while (!claimed && (found = choose_locked(top, clean_only, rank).item)) {
        spw__victim_unlink_locked(found);
        claimed = claim(found);
        spw__victim_let_go_locked(found);
    }
    spw__mutex_unlock(&top->queue->lock);
    return claimed ? found : NULL;
}
