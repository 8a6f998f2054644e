/* The ledger: budgets per tier as a tree of groups. A charge climbs from its group to the root, whose gates are the
 * budgets of the places; it is granted by all of them or by none.
 *
 * There is one group today, the root; charges name it, so that a tree of queries and tenants changes no caller.
 * Threads: any; lock-free. Ownership: a charge is stored with what it pays for, so that a free from any thread is
 * exact.
 */
#ifndef SPW_POOL_LEDGER_H
#define SPW_POOL_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

#include "pool/base/gate.h"

#include <spillway/place.h>

struct spw__group {
    struct spw__group *parent; /* NULL: the root */
    struct spw__gate gates[SPW_TIER_META]; /* of the tiers of payload; meta is charged to struct spw__meta alone */
};

static inline void spw__ledger_uncommit_until(struct spw__group *group, const struct spw__group *end, spw_tier tier,
                                              uint64_t bytes)
{
    for (; group != end; group = group->parent)
        spw__gate_uncommit(&group->gates[tier], bytes);
}

/* Charges bytes of tier to group and all above it; false and no change when one of them has no room. */
static inline bool spw__ledger_commit(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    for (struct spw__group *at = group; at; at = at->parent)
        if (!spw__gate_commit(&at->gates[tier], bytes)) {
            spw__ledger_uncommit_until(group, at, tier, bytes);
            return false;
        }
    return true;
}

static inline void spw__ledger_uncommit(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    spw__ledger_uncommit_until(group, NULL, tier, bytes);
}

#endif
