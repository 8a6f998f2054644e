/* Victims: per pool, who goes first when room is needed. Clean items before dirty ones, then the least recently used.
 *
 * Shares. Those to whom the items belong form a tree, of which spill knows no more. Each of them has a share of each
 * queue, where its items lie once more, in the same order: an item is in a list of its queue and in one of its share.
 * A share is in play while it, or one below it, has items; those in play, and no others, hang below the one above.
 *
 *     queue   coldest <-> .. <-> warmest              all items: spw__victims_pop takes the first
 *     share   coldest <-> .. <-> warmest              those of one owner, which age compares with those of others
 *        |-- share in play      a branch: what is directly below the share that a choice is made below, with all that
 *        |    '-- share in play          lies below it. The owner says how much it is wanted as a whole
 *        '-- share in play      another branch
 *
 * So a choice among those below one owner costs something for each share in play there, and nothing for the items of
 * others. Of a share's own items it looks at the coldest. Those that are too large to go are passed over once: how far
 * that went is kept (passed), with the least of their sizes, and while that is too large the next look begins behind.
 *
 * Invariants: an item is in at most one list of one queue, and in the list of the same state of the item's share of
 * that queue; an item that may not go or is moving is in none, and one that is mapped is refused by claim. add, put_back
 * and remove are O(1), but where a share comes into play or ceases to be, which costs its depth; pop passes over items
 * that claim refuses, and forgive over those that failed.
 * Threads: any. Ownership: items belong to their owners; popping one hands it, with the reference that claim took, to
 * the caller. Shares belong to theirs, and live while they, or those below, have items.
 */
#ifndef SPW_SPILL_VICTIM_H
#define SPW_SPILL_VICTIM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/base/lock.h"
#include "spill/item.h"

enum { SPW__VICTIM_LISTS = 3 }; /* clean, dirty, failed */

struct spw__victim_list {
    struct spw__item *first, *last; /* coldest first */
};

struct spw__victims {
    struct spw__mutex lock;
    struct spw__victim_list lists[SPW__VICTIM_LISTS]; /* guarded by lock */
    int64_t coldest;                /* guarded by lock: the age of the last that was put at a cold end */
    _Atomic uint64_t leaving_bytes; /* atomic: memory that evictions in flight are about to free */
    _Atomic uint64_t arrivals;      /* atomic, written under lock: how often an item came in, which then can be moved */
};

/* A list of a share. The items up to passed are of least_bytes at least. */
struct spw__victim_own {
    struct spw__victim_list list;
    struct spw__item *passed; /* NULL: none was passed over */
    uint64_t least_bytes;
};

struct spw__victim_share {
    struct spw__victims *queue;      /* constant */
    struct spw__victim_share *above; /* constant; NULL: the top of the tree */
    void *owner;                     /* constant */
    /* Guarded by the queue's lock. */
    struct spw__victim_share *below, *prev, *next; /* in play: the first below, and neighbours */
    struct spw__victim_own lists[SPW__VICTIM_LISTS];
};

void spw__victims_init(struct spw__victims *victims);
void spw__victims_finish(struct spw__victims *victims);

/* An empty share of a queue, below another share of it or (NULL) at the top. */
void spw__victim_share_init(struct spw__victim_share *share, struct spw__victims *queue,
                            struct spw__victim_share *above, void *owner);

/* Puts an item that is OUT, or in the same share, at the warm end of the list that state names. */
void spw__victims_add(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state);

/* Puts an item that was popped in vain back where it was: at the cold end of the list that state names. */
void spw__victims_put_back(struct spw__victim_share *share, struct spw__item *item, enum spw__item_state state);

/* Takes the item out, if it is in; on return no queue touches it. Its owner adds it to none meanwhile. */
void spw__victims_remove(struct spw__victims *victims, struct spw__item *item);

/* Takes out the coldest item for which claim returns true: clean ones first, then (unless clean_only) dirty ones. claim
 * runs under the queue's lock and takes the reference that keeps the item's owner alive. An item that it refuses is
 * about to be freed or held where it is, and is taken out as well: it is added again when that ends. NULL: nothing left
 * to take. */
struct spw__item *spw__victims_pop(struct spw__victims *victims, bool clean_only,
                                   bool (*claim)(struct spw__item *item));

/* Whose items are wanted as victims, among those of one share and all below it. All run under the queue's lock. */
struct spw__victim_rank {
    /* How much the items of the share itself, or those of a branch, are wanted: the highest go first, of equals clean
     * ones, and then the coldest; below 0: not at all. */
    double (*wanted)(void *owner, void *arg);
    /* Larger items of that share stay where they are. */
    uint64_t (*most_bytes)(void *owner, void *arg);
    /* Held where it is: taken out, as an item that claim refuses. */
    bool (*held)(const struct spw__item *item);
    void *arg;
};

/* How much the best item below top is wanted, of clean items or (unless clean_only) dirty ones; below 0: none is. */
double spw__victims_best(struct spw__victim_share *top, bool clean_only, const struct spw__victim_rank *rank);

/* As spw__victims_pop, the best below top; NULL: none is wanted. */
struct spw__item *spw__victims_pop_best(struct spw__victim_share *top, bool clean_only,
                                        const struct spw__victim_rank *rank, bool (*claim)(struct spw__item *item));

/* The round is over: items that failed become candidates again, the coldest as before. */
void spw__victims_forgive(struct spw__victims *victims);

#endif
