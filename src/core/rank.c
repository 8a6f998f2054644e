/* Who gives way: see rank.h. */
#include "src/core/rank.h"

#include "src/core/manager.h"
#include "src/core/payload.h"

static uint64_t above(uint64_t bytes, uint64_t than)
{
    return bytes > than ? bytes - than : 0;
}

static uint64_t min_of(const struct spw__group *group, spw_tier tier)
{
    return atomic_load_explicit(&group->min[tier], memory_order_relaxed);
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

bool spw__rank_protects(const struct spw__group *group, spw_tier tier, uint64_t bytes,
                        const struct spw__group *requester)
{
    for (; group; group = group->parent) {
        const uint64_t min = min_of(group, tier);
        if (min && above(staying(group, tier), bytes) < min && !spw__group_is_below(requester, group))
            return true;
    }
    return false;
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

static double score(const struct spw__item *item, void *arg)
{
    const struct scale *scale = arg;
    const struct spw__choice *choice = scale->choice;
    const struct spw__piece *piece = (const struct spw__piece *)(const void *)item;
    struct spw__group *group = piece->payload->group;
    const uint64_t bytes = atomic_load_explicit(&item->bytes, memory_order_relaxed);
    if (spw__piece_pinned(piece) || !spw__group_is_below(group, choice->lacking) ||
        spw__rank_protects(group, choice->tier, bytes, choice->requester))
        return -1;
    const struct spw__group *child = spw__group_child_towards(group, choice->lacking);
    return child ? share_of(child, choice->tier) : scale->own_share;
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
    struct scale scale = {.choice = choice, .own_share = own_share(manager, choice->lacking, choice->tier)};
    double best = -1;
    *queue = NULL;
    for (uint32_t at = choice->route; at < tier->n_pools; at++) {
        struct spw__victims *looked = &manager->victims[tier->tier][tier->route[at]];
        const double wanted =
            can_hold(tier, choice, at) ? spw__victims_best(looked, choice->clean_only, score, &scale) : -1;
        if (wanted > best) {
            best = wanted;
            *queue = looked;
        }
    }
    return *queue ? spw__victims_pop_best(*queue, choice->clean_only, score, &scale, spw__evict_claim) : NULL;
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
