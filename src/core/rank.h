/* Who gives way: victims of one group before those of another. See "Who gives way" in <spillway/group.h>. Neighbours:
 * evict.c pops by it for pump.c, spill/victim_rank.c looks through the queues.
 *
 * Threads: any; looks only, at what may change meanwhile. */
#ifndef SPW_CORE_RANK_H
#define SPW_CORE_RANK_H

#include "pool/ledger.h"
#include "src/core/evict.h"

struct spw_manager;

/* Pops the victim that is to go: of the group that holds most beyond its minimum, for its weight among the children of
 * the one that lacks room; there, and where there are no groups, clean ones first, then the coldest. Sets item, queue
 * and tier; false: there is none. Without groups it takes constant time; else some for each group and task below the
 * one that lacks room, but for whole branches that hold less than another, and none for the victims of others. */
bool spw__rank_pop(struct spw_manager *manager, const struct spw__choice *choice, struct spw__victim *victim);

/* The coldest clean victim among those of a share and all below it; NULL: there is none. */
struct spw__item *spw__rank_pop_coldest_below(struct spw__victim_share *share);

/* True when freeing bytes of group would push it, or a group above it, below a minimum, and requester belongs to
 * neither. */
bool spw__rank_protects(const struct spw__group *group, spw_tier tier, uint64_t bytes,
                        const struct spw__group *requester);

#endif
