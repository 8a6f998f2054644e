/* The ledger: budgets per tier as a tree of groups. A charge climbs from its group to the root, whose gates are the
 * budgets of the places; it is granted by all of them or by none.
 *
 * Minima. A group may have bytes set aside: for each child its parent is charged the larger of what the child has
 * committed and the child's minimum, beside what the parent has committed itself. This is exact at rest; while a charge
 * is on its way a parent is charged too much rather than too little, since charges go from the root down and come back
 * from the group up. So nobody else can have what is set aside, and a group gets its minimum whoever else asks.
 *
 * Where no group on the way has a minimum a charge is lock-free: one compare-and-swap per gate. What a group with a
 * minimum passes on depends on what it has, so its gate is guarded: a bit in the committed word itself, which a
 * lock-free climb meets in the very step in which it would change it, sends the climb to the ledger's lock. Under that
 * lock a guarded gate changes for nobody else.
 *
 *     free     --spw__ledger_set_min, more than 0--> guarded
 *     guarded  --spw__ledger_set_min, 0-----------> free
 *
 * Threads: any. Ownership: a charge is stored with what it pays for, so that a free from any thread is exact; a node
 * must outlive its charges and the nodes below it.
 */
#ifndef SPW_POOL_LEDGER_H
#define SPW_POOL_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

#include "pool/base/gate.h"
#include "pool/base/lock.h"

#include <spillway/error.h>
#include <spillway/place.h>

/* Nodes on a way from a group to the root, both counted. */
#define SPW__LEDGER_DEPTH_MAX 16u

struct spw__ledger {
    struct spw__mutex locks[SPW_TIER_META]; /* leaf locks: of all guarded gates of a tier, and of the minima */
};

struct spw__group;
struct spw__victim_share;

/* Those who wait for room in a tier and whom a group refuses. Of src/core/demand.c, under the tier's pressure lock. */
struct spw__lack {
    struct spw__group *next;      /* another group with such waiters */
    struct spw__group *requester; /* the group of the oldest */
    uint64_t bytes;               /* of those that were looked at */
    uint32_t n_waiters;           /* so many */
    bool listed;
    bool admission;               /* one of them is an admission */
};

struct spw__group {
    struct spw__group *parent;  /* constant; NULL: the root */
    struct spw__ledger *ledger; /* constant; NULL: no group of the tree may have a minimum */
    uint32_t depth;             /* constant; 0: the root */
    char name[32];              /* constant: for messages */
    bool is_group;              /* constant: else it is a task's node, or the root */
    _Atomic bool cancelled;     /* atomic: with all below, for good */
    struct spw__gate gates[SPW_TIER_META]; /* of the tiers of payload; meta is charged to struct spw__meta alone. Read
                                              committed with spw__ledger_committed */
    _Atomic uint64_t min[SPW_TIER_META];       /* atomic; changed under the ledger's lock */
    _Atomic uint64_t awaited_min[SPW_TIER_META]; /* atomic: a higher one that src/core waits for; 0: none */
    _Atomic uint64_t child_mins[SPW_TIER_META]; /* atomic; changed under the ledger's lock: sum over the children */
    _Atomic uint32_t weight[SPW_TIER_META];    /* atomic: deserts beside the siblings; at least 1 */
    _Atomic uint64_t leaving[SPW_TIER_META];   /* atomic: committed bytes that evictions in flight are about to free */
    struct spw__lack lack[SPW_TIER_META];
    struct spw__victim_share *shares; /* constant: of src/core, one per queue of victims (group_tree.c) */
    _Atomic uint32_t users; /* atomic: what names it without being charged: payloads, tickets, and holes being opened */
    struct spw__group *children, *next, *prev; /* guarded by the manager's lock of groups; next and prev: siblings */
};

void spw__ledger_init(struct spw__ledger *ledger);
void spw__ledger_finish(struct spw__ledger *ledger);

/* Makes a node below parent (NULL: a root), without limits or minima. At most SPW__LEDGER_DEPTH_MAX levels. */
void spw__group_init(struct spw__group *group, struct spw__group *parent, struct spw__ledger *ledger);

/* The ways of a group that is not the root. */
bool spw__ledger_climb(struct spw__group *group, spw_tier tier, uint64_t bytes);
void spw__ledger_descend(struct spw__group *group, spw_tier tier, uint64_t bytes);

/* Charges bytes of tier to group and all above it; false and no change when one of them has no room. */
static inline bool spw__ledger_commit(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    return group->parent ? spw__ledger_climb(group, tier, bytes) : spw__gate_commit(&group->gates[tier], bytes);
}

/* Charges bytes of tier to group and all above it whatever their budgets say. Returns how many of them exceed the
 * budget that is exceeded most. */
uint64_t spw__ledger_overbook(struct spw__group *group, spw_tier tier, uint64_t bytes);

/* Gives back bytes that were charged to group. */
static inline void spw__ledger_uncommit(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    if (group->parent)
        spw__ledger_descend(group, tier, bytes);
    else
        spw__gate_uncommit(&group->gates[tier], bytes);
}

/* Sets bytes aside for a group that is not the root. More than before: false, and no change, when those above have no
 * room for the difference now. Less: what nobody uses of it is free at once. */
bool spw__ledger_set_min(struct spw__group *group, spw_tier tier, uint64_t bytes);

/* What those above would have to grant for such a minimum. A look at what may change meanwhile. */
uint64_t spw__ledger_min_lack(const struct spw__group *group, spw_tier tier, uint64_t bytes);

/* Bytes that are charged to group, by itself and all below it. */
uint64_t spw__ledger_committed(const struct spw__group *group, spw_tier tier);

/* The largest charge that would be granted now. Like all below a look at what may change meanwhile. */
uint64_t spw__ledger_free_on_path(const struct spw__group *group, spw_tier tier);

/* True when group, or one above it below the root, has so much of its minimum left: it is set aside already, and nobody
 * else waits for it. */
bool spw__ledger_within_min(const struct spw__group *group, spw_tier tier, uint64_t bytes);

/* Who refuses a charge of bytes: the first on the way up; NULL: nobody. */
struct spw__group *spw__ledger_short(struct spw__group *group, spw_tier tier, uint64_t bytes);

/* Who could not grant a charge of bytes even with nothing else charged but the minima of others and, to the root,
 * set_aside bytes: the first on the way up; NULL: it fits once the others give way. */
struct spw__group *spw__ledger_never_fits(struct spw__group *group, spw_tier tier, uint64_t bytes, uint64_t set_aside);

/* When it is a group that refuses a charge of bytes, and not the root: its name, maximum and use in *info, and true. */
bool spw__group_describe(struct spw__group *group, spw_tier tier, uint64_t bytes, spw_error_info *info);

/* True when group or one above it is cancelled. */
static inline bool spw__ledger_cancelled(const struct spw__group *group)
{
    for (; group; group = group->parent)
        if (atomic_load_explicit(&group->cancelled, memory_order_acquire))
            return true;
    return false;
}

/* Counts bytes as leaving, or, negative, as gone or staying, for group and all above it. */
void spw__group_note_leaving(struct spw__group *group, spw_tier tier, int64_t bytes);

/* True when node is group, or somewhere below it. */
static inline bool spw__group_is_below(const struct spw__group *node, const struct spw__group *group)
{
    while (node && node->depth > group->depth)
        node = node->parent;
    return node == group;
}

#endif
