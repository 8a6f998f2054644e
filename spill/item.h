/* An item: what the spill floor knows of a piece of a buffer. Embedded in its owner; spill never looks further. */
#ifndef SPW_SPILL_ITEM_H
#define SPW_SPILL_ITEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum spw__item_state {
    SPW__ITEM_OUT,    /* in no queue: not to go, moving, on disk, or passed over while mapped */
    SPW__ITEM_CLEAN,  /* a valid copy lies below: evicting it writes nothing */
    SPW__ITEM_DIRTY,  /* evicting it needs a move */
    SPW__ITEM_FAILED, /* its last eviction failed: left out until the round is over */
};

struct spw__item;
struct spw__victim_share;

/* The two lists that an item is in: of all in its queue, and of its share's own. */
enum spw__item_list { SPW__ITEM_OF_QUEUE, SPW__ITEM_OF_SHARE, SPW__ITEM_LISTS };

struct spw__item_links {
    struct spw__item *prev, *next;
};

struct spw__item {
    struct spw__item_links links[SPW__ITEM_LISTS]; /* guarded by its queue's lock */
    struct spw__victim_share *share; /* guarded by its queue's lock: where it is counted; constant while it is in */
    int64_t age;                   /* guarded by its queue's lock: the higher, the warmer */
    _Atomic(enum spw__item_state) state; /* atomic, written under its queue's lock, OUT as the queue's last access */
    _Atomic uint64_t bytes;        /* atomic: memory that evicting it frees */
};

/* A look without the queue's lock. False: no queue has to do with the item, until its owner adds it. */
static inline bool spw__item_is_queued(const struct spw__item *item)
{
    return atomic_load_explicit(&item->state, memory_order_acquire) != SPW__ITEM_OUT;
}

#endif
