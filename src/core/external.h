/* External charges: memory of others, by tag, that the ledger counts.
 *
 * An entry is what one group was charged under one tag in one tier: a give-back takes from the calling thread's group
 * first, then from the others, so that every charge goes back where it was made. Invariant: the entries' sum is part of
 * what the ledger has committed.
 *
 * Threads: any. Ownership: entries are metadata memory, and go when nothing is charged to them.
 */
#ifndef SPW_CORE_EXTERNAL_H
#define SPW_CORE_EXTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"

#include <spillway/reclaim.h>

#define SPW__EXTERNAL_TAG_BYTES 32

struct spw__external_entry;

struct spw__external {
    struct spw__mutex lock;
    struct spw__external_entry *entries; /* guarded by lock: oldest first */
};

void spw__external_init(struct spw__external *external);
void spw__external_finish(struct spw_manager *manager); /* forgets what is left */

/* What is charged in a tier, under all tags. */
uint64_t spw__external_bytes(struct spw_manager *manager, spw_tier tier);

/* What is charged under one tag in one tier. */
struct spw__external_sum {
    spw_tier tier;
    char tag[SPW__EXTERNAL_TAG_BYTES];
    uint64_t bytes;
};

/* Finds the sum that comes after *sum, by tier and tag (tier 0 and "": from the beginning). False: there is none. */
bool spw__external_next(struct spw_manager *manager, struct spw__external_sum *sum);

/* SPW_EBUSY, with tags and bytes, while anything is charged. */
int spw__external_check_none(struct spw_manager *manager);

#endif
