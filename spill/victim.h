/* Victims: per pool, who goes first when room is needed. Clean items before dirty ones, then the least recently used.
 *
 * Invariants: an item is in at most one list of one queue; one that may not go or is moving is in none, and one that is
 * mapped is refused by claim. Every operation is O(1), but pop passes over items that claim refuses, and forgive
 * over those that failed.
 * Threads: any. Ownership: items belong to their owners; popping one hands it, with the reference that claim took, to
 * the caller.
 */
#ifndef SPW_SPILL_VICTIM_H
#define SPW_SPILL_VICTIM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/base/lock.h"
#include "spill/item.h"

struct spw__victim_list {
    struct spw__item *first, *last; /* coldest first */
};

struct spw__victims {
    struct spw__mutex lock;
    struct spw__victim_list lists[3]; /* guarded by lock: clean, dirty, failed */
    _Atomic uint64_t leaving_bytes;   /* atomic: memory that evictions in flight are about to free */
    _Atomic uint64_t arrivals;        /* atomic: how often an item came in, which then can be moved */
};

void spw__victims_init(struct spw__victims *victims);
void spw__victims_finish(struct spw__victims *victims);

/* Puts an item that is OUT at the warm end of the list that state names. */
void spw__victims_add(struct spw__victims *victims, struct spw__item *item, enum spw__item_state state);

/* Puts an item that was popped in vain back where it was: at the cold end of the list that state names. */
void spw__victims_put_back(struct spw__victims *victims, struct spw__item *item, enum spw__item_state state);

/* Takes the item out, if it is in; on return no queue touches it. Its owner adds it to none meanwhile. */
void spw__victims_remove(struct spw__victims *victims, struct spw__item *item);

/* Takes out the coldest item for which claim returns true: clean ones first, then (unless clean_only) dirty ones. claim
 * runs under the queue's lock and takes the reference that keeps the item's owner alive. An item that it refuses is
 * about to be freed or held where it is, and is taken out as well: it is added again when that ends. NULL: nothing left
 * to take. */
struct spw__item *spw__victims_pop(struct spw__victims *victims, bool clean_only,
                                   bool (*claim)(struct spw__item *item));

/* How much an item is wanted as a victim: the highest goes first, among equals the coldest; below 0: not at all. Runs
 * under the queue's lock. */
typedef double spw__victim_score(const struct spw__item *item, void *arg);

/* The highest score in the queue, of clean items or (unless clean_only) dirty ones. Passes over all of them. */
double spw__victims_best(struct spw__victims *victims, bool clean_only, spw__victim_score *score, void *arg);

/* As spw__victims_pop, of the items with the highest score; NULL: none is wanted. Passes over all of them. */
struct spw__item *spw__victims_pop_best(struct spw__victims *victims, bool clean_only, spw__victim_score *score,
                                        void *arg, bool (*claim)(struct spw__item *item));

/* The round is over: items that failed become candidates again, the coldest as before. */
void spw__victims_forgive(struct spw__victims *victims);

#endif
