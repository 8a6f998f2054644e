/* A walk over those who wait on some channels, in order, that leaves out whom it has learnt nothing can be said of: one
 * bound per channel for all, and one for those of each key. Neighbours: wait_pass.c attempts those that it comes to,
 * wait.c visits them.
 *
 * Of each key the first that is within the bounds is a candidate, and the candidates lie in a tree by order: the walk
 * takes the first of all, and puts in its place the next of its key. What is out of bounds is never come to; so a walk
 * costs O(log n) for each key that has somebody within the bounds, and for each waiter that it comes to.
 *
 *     no candidate --begin | the one before it of its key was taken, or is DONE--> candidate
 *     candidate    --next (taken: the walk's current one)
 *                   | next, out of bounds by now | DONE: spw__wait_walk_forget--> no candidate, the next of its key is
 *
 * Threads: all under the set's lock; at most one walk of a set at a time. */
#ifndef SPW_BASE_WAIT_WALK_H
#define SPW_BASE_WAIT_WALK_H

#include "pool/base/wait.h"

struct spw__wait_walk {
    struct spw__waitset *set;
    uint32_t channels;
    bool heeds_barriers; /* what is barred of them, or becomes so, is passed over */
    bool marked_only;    /* none but those who ask for room to be made there */
    uint64_t most[SPW__WAIT_CHANNELS]; /* the bounds for all: may be lowered */
    struct spw__wait_queue candidates;
    /* The current one: where it stood, and the bounds of its key, which may be lowered. */
    bool any;
    struct spw__wait_order at;
    const void *key;
    uint64_t bounds[SPW__WAIT_CHANNELS];
};

/* Finds the first candidates; the flags, channels and most are set. */
void spw__wait_walk_begin(struct spw__wait_walk *walk, struct spw__waitset *set);
void spw__wait_walk_end(struct spw__wait_walk *walk);

/* Whom next would come to, or NULL. */
struct spw__waiter *spw__wait_walk_peek(struct spw__wait_walk *walk);

/* The next in order, now the current one; NULL: there is none. */
struct spw__waiter *spw__wait_walk_next(struct spw__wait_walk *walk);

/* From here on those of the current one's key that need as much as it, on these channels, are left out. */
void spw__wait_walk_leave_out(struct spw__wait_walk *walk, const struct spw__waiter *current, uint32_t channels);

/* A candidate is about to be DONE. */
void spw__wait_walk_forget(struct spw__wait_walk *walk, struct spw__waiter *waiter);

#endif
