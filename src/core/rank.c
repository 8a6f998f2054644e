/* Who gives way: see rank.h. */
#include "src/core/rank.h"

#include "src/core/manager.h"
#include "src/core/payload.h"

static uint64_t above(uint64_t bytes, uint64_t than)
{
    return bytes > than ? bytes - than : 0;
}

/* What it has, or waits for: what went below that would have to be made free once more. */
static uint64_t min_of(const struct spw__group *group, spw_tier tier)
{
    const uint64_t min = atomic_load_explicit(&group->min[tier], memory_order_relaxed);
    const uint64_t awaited = atomic_load_explicit(&group->awaited_min[tier], memory_order_relaxed);
    return min > awaited ? min : awaited;
}

/* What group will have when the evictions in flight are done. */
static uint64_t staying(const struct spw__group *group, spw_tier tier)
{
    return above(spw__ledger_committed(group, tier),
                 atomic_load_explicit(&group->leaving[tier], memory_order_relaxed));
}

/* What a group holds beyond its minimum, for its weight. */
static double share_of(const struct spw__group *group, spw_tier tier)
{
    const uint32_t weight = atomic_load_explicit(&group->weight[tier], memory_order_relaxed);
    return (double)above(staying(group, tier), min_of(group, tier)) / (double)weight;
}

/* How large a victim of group may be: what it, and each group above it, has beyond its minimum, but for those that
 * requester belongs to. */
static uint64_t spare_bytes(const struct spw__group *group, spw_tier tier, const struct spw__group *requester)
{
    uint64_t spare = UINT64_MAX;
    for (; group; group = group->parent) {
        const uint64_t min = min_of(group, tier);
        if (min && !spw__group_is_below(requester, group)) {
            const uint64_t here = above(staying(group, tier), min);
            spare = here < spare ? here : spare;
        }
    }
    return spare;
}

bool spw__rank_protects(const struct spw__group *group, spw_tier tier, uint64_t bytes,
                        const struct spw__group *requester)
{
    return bytes > spare_bytes(group, tier, requester);
}

/* What is charged to group itself, and to none of those below it. */
static double own_share(struct spw_manager *manager, const struct spw__group *group, spw_tier tier)
{
    uint64_t own = staying(group, tier);
    spw__mutex_lock(&manager->groups_lock);
    for (const struct spw__group *child = group->children; child; child = child->next) {
        const uint64_t stays = staying(child, tier);
        own = above(own, stays > min_of(child, tier) ? stays : min_of(child, tier));
    }
    spw__mutex_unlock(&manager->groups_lock);
    return (double)own;
}

struct scale {
    const struct spw__choice *choice;
    double own_share; /* of what lacks room */
};

/* Among the children of what lacks room, each with all below it, and what is charged to that itself. */
static double wanted(void *owner, void *arg)
{
    const struct scale *scale = arg;
    const struct spw__choice *choice = scale->choice;
    const struct spw__group *group = owner;
    return group == choice->lacking ? scale->own_share : share_of(group, choice->tier);
}

static uint64_t most_bytes(void *owner, void *arg)
{
    const struct spw__choice *choice = ((const struct scale *)arg)->choice;
    return spare_bytes(owner, choice->tier, choice->requester);
}

static bool is_held(const struct spw__item *item)
{
    return spw__piece_pinned((const struct spw__piece *)(const void *)item);
}

static bool can_hold(const struct spw__tier *tier, const struct spw__choice *choice, uint32_t at)
{
    return tier->pools[tier->route[at]].size >= choice->least_bytes;
}

/* From the pool with the item that is wanted most. */
static struct spw__item *pop_ranked(struct spw_manager *manager, const struct spw__choice *choice,
                                    struct spw__victims **queue)
{
    const struct spw__tier *tier = spw__tier_of(manager, choice->tier);
    struct spw__victim_share *shares = choice->lacking->shares + manager->first_share[tier->tier], *top = NULL;
    struct scale scale = {.choice = choice, .own_share = own_share(manager, choice->lacking, choice->tier)};
    const struct spw__victim_rank rank = {.wanted = wanted, .most_bytes = most_bytes, .held = is_held, .arg = &scale};
    double best = -1;
    for (uint32_t at = choice->route; at < tier->n_pools; at++) {
        struct spw__victim_share *looked = &shares[tier->route[at]];
        const double here = can_hold(tier, choice, at) ? spw__victims_best(looked, choice->clean_only, &rank) : -1;
        if (here > best) {
            best = here;
            top = looked;
        }
    }
    if (!top)
        return NULL;
    *queue = top->queue;
    return spw__victims_pop_best(top, choice->clean_only, &rank, spw__evict_claim);
}

static double wanted_alike(void *owner, void *arg)
{
    (void)owner;
    (void)arg;
    return 0;
}

static uint64_t any_bytes(void *owner, void *arg)
{
    (void)owner;
    (void)arg;
    return UINT64_MAX;
}

struct spw__item *spw__rank_pop_coldest_below(struct spw__victim_share *share)
{
    static const struct spw__victim_rank rank = {.wanted = wanted_alike, .most_bytes = any_bytes, .held = is_held};
    return spw__victims_pop_best(share, true, &rank, spw__evict_claim);
}

static struct spw__item *pop_coldest(struct spw_manager *manager, const struct spw__choice *choice, bool clean_only,
                                     struct spw__victims **queue)
{
    const struct spw__tier *tier = spw__tier_of(manager, choice->tier);
    struct spw__item *item = NULL;
    for (uint32_t at = choice->route; at < tier->n_pools && !item; at++) {
        if (!can_hold(tier, choice, at))
            continue;
        *queue = &manager->victims[tier->tier][tier->route[at]];
        item = spw__victims_pop(*queue, clean_only, spw__evict_claim);
    }
    return item;
}

bool spw__rank_pop(struct spw_manager *manager, const struct spw__choice *choice, struct spw__victim *victim)
{
    victim->tier = choice->tier;
    if (atomic_load(&manager->n_groups)) {
        victim->item = pop_ranked(manager, choice, &victim->queue);
        return victim->item != NULL;
    }
    victim->item = pop_coldest(manager, choice, true, &victim->queue);
    if (!victim->item && !choice->clean_only)
        victim->item = pop_coldest(manager, choice, false, &victim->queue);
    return victim->item != NULL;
}
