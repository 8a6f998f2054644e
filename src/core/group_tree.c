/* The tree of groups: who is below whom, and what names a group. Neighbours: group.c, and task.c, whose nodes hang in
 * it too. */
#include "src/core/group.h"

#include <stddef.h>
#include <string.h>

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/task.h"

/* Shares lie where any type may. */
static size_t rounded(size_t size)
{
    const size_t unit = _Alignof(max_align_t);
    return (size + unit - 1) / unit * unit;
}

size_t spw__group_size(const spw_manager *manager, size_t size)
{
    return rounded(size) + manager->n_shares * sizeof(struct spw__victim_share);
}

struct spw__victim_share *spw__group_shares_behind(void *object, size_t size)
{
    return (struct spw__victim_share *)(void *)((char *)object + rounded(size));
}

void spw__group_init_shares(spw_manager *manager, struct spw__group *node, struct spw__victim_share *shares)
{
    node->shares = shares;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        for (uint32_t pool = 0; pool < manager->tiers[tier].n_pools; pool++) {
            const uint32_t at = manager->first_share[tier] + pool;
            spw__victim_share_init(&shares[at], &manager->victims[tier][pool],
                                   node->parent ? &node->parent->shares[at] : NULL, node);
        }
}

int spw__groups_init_root(spw_manager *manager)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        manager->first_share[tier] = manager->n_shares;
        manager->n_shares += manager->tiers[tier].n_pools;
    }
    manager->root_shares = spw__meta_alloc(&manager->meta, manager->n_shares * sizeof *manager->root_shares);
    if (!manager->root_shares)
        return spw__fail(SPW_ENOMETA, "no metadata memory for %u pools; raise meta=", manager->n_shares);
    spw__group_init_shares(manager, &manager->root, manager->root_shares);
    return SPW_OK;
}

void spw__group_enter(spw_manager *manager, struct spw__group *node)
{
    spw__mutex_lock(&manager->groups_lock);
    node->next = node->parent->children;
    if (node->next)
        node->next->prev = node;
    node->parent->children = node;
    (void)atomic_fetch_add(&manager->n_groups, node->is_group);
    spw__mutex_unlock(&manager->groups_lock);
}

void spw__group_leave(spw_manager *manager, struct spw__group *node)
{
    spw__mutex_lock(&manager->groups_lock);
    if (node->prev)
        node->prev->next = node->next;
    else
        node->parent->children = node->next;
    if (node->next)
        node->next->prev = node->prev;
    (void)atomic_fetch_sub(&manager->n_groups, node->is_group);
    spw__mutex_unlock(&manager->groups_lock);
}

void spw__group_use(struct spw__group *node)
{
    for (; node->parent; node = node->parent)
        (void)atomic_fetch_add_explicit(&node->users, 1, memory_order_relaxed);
}

/* The parent is looked up first, and outlives this: a node may be gone once nothing uses it. Signals need the address
 * alone. */
void spw__group_unuse(spw_manager *manager, struct spw__group *node)
{
    struct spw__group *parent;
    for (; (parent = node->parent); node = parent)
        if (atomic_fetch_sub_explicit(&node->users, 1, memory_order_acq_rel) == 1)
            spw__waitset_signal_object(&manager->waits, node);
}

int spw__group_check(const struct spw__group *group)
{
    return spw__ledger_cancelled(group) ? spw__fail(SPW_ECANCELED, "the group \"%s\" was cancelled", group->name)
                                        : SPW_OK;
}

int spw__group_charged(spw_manager *manager, spw_group *given, const spw_wait_options *wait, const char *call,
                       struct spw__group **out)
{
    const int rc = given ? spw__group_check_handle(given, call) : SPW_OK;
    if (rc != SPW_OK)
        return rc;
    *out = given ? &given->node : spw__task_node(manager, spw__task_of(manager, wait));
    if (given && given->manager != manager)
        return spw__fail(SPW_EINVAL, "%s: options.group belongs to another manager", call);
    return spw__group_check(*out);
}

struct spw__group *spw__group_of(struct spw__group *node)
{
    while (node->parent && !node->is_group)
        node = node->parent;
    return node;
}

static void report_one(const struct spw__group *node, uint32_t parent, struct spw__group_report *report)
{
    memcpy(report->name, node->name, sizeof report->name);
    report->parent = parent;
    report->cancelled = spw__ledger_cancelled(node);
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++) {
        report->tiers[tier].committed_bytes = spw__ledger_committed(node, tier);
        report->tiers[tier].peak_bytes = atomic_load(&node->gates[tier].peak);
        report->tiers[tier].min_bytes = atomic_load(&node->min[tier]);
        report->tiers[tier].max_bytes = atomic_load(&node->gates[tier].budget);
        report->tiers[tier].weight = atomic_load(&node->weight[tier]);
    }
}

/* No deeper than the ledger's levels. */
static void list_below_locked(struct spw__group_list *list, const struct spw__group *node, uint32_t place)
{
    for (const struct spw__group *child = node->children; child && list->n < list->room; child = child->next) {
        if (!child->is_group)
            continue;
        report_one(child, place, &list->reports[list->n++]);
        list_below_locked(list, child, list->n);
    }
}

int spw__groups_list(spw_manager *manager, struct spw__group_list *list)
{
    *list = (struct spw__group_list){.room = atomic_load(&manager->n_groups)};
    if (list->room == 0)
        return SPW_OK;
    list->reports = spw__meta_alloc(&manager->meta, list->room * sizeof *list->reports);
    if (!list->reports)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a list of %u groups; raise meta=", list->room);
    spw__mutex_lock(&manager->groups_lock);
    list_below_locked(list, &manager->root, 0);
    spw__mutex_unlock(&manager->groups_lock);
    return SPW_OK;
}

void spw__groups_list_finish(spw_manager *manager, struct spw__group_list *list)
{
    spw__meta_free(&manager->meta, list->reports, list->room * sizeof *list->reports);
    *list = (struct spw__group_list){.n = 0};
}
