/* An item: what the spill floor knows of a piece of a buffer. Embedded in its owner; spill never looks further. */
#ifndef SPW_SPILL_ITEM_H
#define SPW_SPILL_ITEM_H

#include <stdatomic.h>
#include <stdint.h>

enum spw__item_state {
    SPW__ITEM_OUT,    /* in no queue: mapped, unsealed, moving, or on disk */
    SPW__ITEM_CLEAN,  /* a valid copy lies below: evicting it writes nothing */
    SPW__ITEM_DIRTY,  /* evicting it needs a move */
    SPW__ITEM_FAILED, /* its last eviction failed: left out until the round is over */
};

struct spw__item {
    struct spw__item *prev, *next; /* guarded by its queue's lock */
    _Atomic(enum spw__item_state) state; /* atomic, written under its queue's lock */
    _Atomic uint64_t bytes;        /* atomic: memory that evicting it frees */
};

#endif
