/* Demand: what those lack who wait for victims of a tier, and what the tier has for them. Neighbours: pump.c, which
 * decides by it what to do next; rank.c picks the victim.
 *
 * Threads: all is guarded by the tier's pressure lock. */
#ifndef SPW_CORE_DEMAND_H
#define SPW_CORE_DEMAND_H

#include "src/core/hole.h"
#include "src/core/pressure.h"

/* The demand of those who wait for a tier's victims. */
struct spw__demand {
    struct spw__tier *tier;
    uint64_t enough;        /* more memory than this is not to be had without a victim, and no more of the budget: */
    uint64_t enough_budget; /* who comes later does not change what is to be done */
    uint32_t n_waiters;
    struct spw__hole_none none; /* what is known to have no window: those who lack it are left out */
    uint64_t bytes;            /* of memory */
    uint64_t budget_bytes;     /* of the budget */
    uint64_t admission_bytes;  /* of bytes, of admissions */
    uint64_t admission_budget_bytes;
    uint64_t least_bytes;      /* of the smallest waiter for memory: a pool that cannot hold it is of no use */
    uint64_t fragmented_bytes; /* of the oldest waiter that only lacks a hole */
    uint64_t fragmented_align;
    bool fragmented_admission;
    uint32_t route;            /* lowest place in the tier's route that a waiter can use */
    bool any;
    bool anywhere;             /* somebody wants nothing but budget: a victim of any pool is of use */
    uint64_t stuck_bytes;      /* of the oldest that was left out; 0: none was */
    struct spw__group *stuck_requester;
    const struct spw_task *but; /* whose waits are left out as well, while all others are looked at; NULL: nobody's */
    int complete_with;         /* when set: every waiter ends with it, of those that complete_of lacks room for */
    const struct spw__group *complete_of; /* the root: those whom no group refuses */
    struct spw__group *requester; /* of the oldest waiter; used until the choice was made */
    struct spw__group *lacking;   /* groups that refuse waiters, each with its lack */
};

/* Looks at those whose victims come from tier, oldest first, until it is clear what to do. complete_with: see there. */
struct spw__demand spw__demand_look_locked(struct spw_manager *manager, struct spw__tier *tier, int complete_with,
                                           const struct spw__group *complete_of);

struct spw__supply {
    uint64_t leaving; /* of the pools of use */
    uint64_t memory;  /* free there, or leaving */
    uint64_t scrap;   /* the same, of the pool that comes closest to holding the smallest waiter */
    uint64_t budget;  /* free, or about to be: whatever leaves, of any pool, is charged to it */
    uint64_t overbooked; /* beyond the budget: nobody gets anything before it is gone */
    bool in_flight;   /* some eviction is, of use or not */
};

/* What the pools that the waiters can use have free, and will have when evictions in flight are done; and what the
 * budget has. Memory that is scattered over pools that hold none of the waiters counts for nothing. */
struct spw__supply spw__demand_supply(struct spw_manager *manager, const struct spw__demand *demand);

/* What it leaves uncovered; where only a hole is missing, what that takes. */
uint64_t spw__demand_deficit(const struct spw__demand *demand, const struct spw__supply *supply);

/* What those lack whom a group refuses, and what is leaving there does not cover. */
uint64_t spw__group_deficit(const struct spw__group *group, spw_tier tier);

bool spw__supply_covers(const struct spw__supply *supply, uint64_t bytes, uint64_t budget_bytes);

/* The group whose maximum refuses the request in a tier; NULL: none does. */
struct spw__group *spw__request_refused_by(const struct spw__request *request, const struct spw__tier *tier);

#endif
