/* Charges without memory: what reservations hold, and what has its memory already. Neighbours: tier.c charges and
 * allocates in one. */
#include "pool/tier.h"

int spw__tier_reserve(struct spw__tier *tier, struct spw__group *group, uint64_t bytes)
{
    if (spw__ledger_never_fits(group, tier->tier, bytes, tier->set_aside))
        return SPW_ETOOBIG;
    if (spw__ledger_commit(group, tier->tier, bytes))
        return SPW_OK;
    if (tier->n_cached != 0) { /* what threads cache is charged: as in spw__tier_alloc, it goes first */
        (void)spw__tier_drain(tier);
        if (spw__ledger_commit(group, tier->tier, bytes))
            return SPW_OK;
    }
    spw__count(tier->counters, tier->first_counter + SPW__TIER_FAIL_BUDGET, 1);
    return SPW_ENOMEM;
}

bool spw__tier_adopt(struct spw__tier *tier, struct spw__group *group, struct spw__block *block)
{
    if (group && !spw__ledger_commit(group, tier->tier, block->bytes))
        return false;
    block->group = group;
    spw__count(tier->counters, tier->first_counter + SPW__TIER_ALLOCS, 1);
    spw__count(tier->counters, tier->first_counter + SPW__TIER_ALLOC_BYTES, block->bytes);
    return true;
}
