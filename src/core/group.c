/* Groups: life cycle and queries. Neighbours: pool/ledger.c keeps the numbers, group_share.c what groups may have,
 * group_tree.c who is below whom, group_cancel.c ends a group's work. */
#include "src/core/group.h"

#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "src/core/evict.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/reserve.h"

/* Below the root and above a task's node. */
#define DEPTH_MAX (SPW__LEDGER_DEPTH_MAX - 3)

/* So many destroyed groups at least are known as such, before their memory is used again. */
#define DEAD_MIN 32u

#define SHARE {.max_bytes = SPW_NO_LIMIT, .weight = 1}
static const spw_group_options group_defaults = {.struct_size = sizeof(spw_group_options),
                                                 .shares = {SHARE, SHARE, SHARE, SHARE},
                                                 .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};
_Static_assert(SPW_TIER_META == 4, "a share for each");

void spw_group_options_init_sized(spw_group_options *options, size_t size)
{
    spw__sized_give(options, size, &group_defaults);
}

/* Life cycle */

static int check_create(spw_manager *manager, const spw_group_options *options)
{
    int rc = spw__check_wait(manager, &options->wait);
    if (rc == SPW_OK && options->parent)
        rc = spw__group_check_handle(options->parent, "spw_group_create: options.parent");
    if (rc == SPW_OK && options->name && strnlen(options->name, SPW__TAG_BYTES) == SPW__TAG_BYTES)
        rc = spw__fail(SPW_EINVAL, "spw_group_create: the name is longer than %d bytes", SPW__TAG_BYTES - 1);
    if (rc == SPW_OK && options->parent && options->parent->manager != manager)
        rc = spw__fail(SPW_EINVAL, "spw_group_create: options.parent belongs to another manager");
    if (rc == SPW_OK && options->parent && options->parent->node.depth >= DEPTH_MAX)
        rc = spw__fail(SPW_EINVAL, "spw_group_create: groups nest in at most %u levels", DEPTH_MAX);
    for (spw_tier tier = SPW_TIER_DEVICE; rc == SPW_OK && tier < SPW_TIER_META; tier++)
        rc = spw__group_check_share("spw_group_create", tier, &options->shares[tier]);
    return rc == SPW_OK && options->parent ? spw__group_check(&options->parent->node) : rc;
}

/* In the list of all groups. */
static void enlist(spw_group *group)
{
    spw_manager *manager = group->manager;
    spw__mutex_lock(&manager->groups_lock);
    group->next = manager->groups;
    if (group->next)
        group->next->prev = group;
    manager->groups = group;
    spw__mutex_unlock(&manager->groups_lock);
}

/* Takes a group that nobody is charged to any more out of everything, and frees it. */
static void discard(spw_group *group)
{
    spw_manager *manager = group->manager;
    spw__group_drop_minima(manager, &group->node);
    spw__group_leave(manager, &group->node);
    spw__mutex_lock(&manager->groups_lock);
    if (group->prev)
        group->prev->next = group->next;
    else
        manager->groups = group->next;
    if (group->next)
        group->next->prev = group->prev;
    atomic_store(&group->magic, SPW__GROUP_DEAD);
    group->next = NULL;
    if (manager->dead_groups)
        manager->last_dead_group->next = group;
    else
        manager->dead_groups = group;
    manager->last_dead_group = group;
    manager->n_dead_groups++;
    spw__mutex_unlock(&manager->groups_lock);
}

int spw__group_check_handle(const spw_group *group, const char *call)
{
    if (!group)
        return spw__fail(SPW_EBADHANDLE, "%s: group is NULL", call);
    const uint64_t magic = atomic_load(&group->magic);
    if (magic == SPW__GROUP_LIVE)
        return spw__check_process(group->manager);
    return spw__fail(SPW_EBADHANDLE, magic == SPW__GROUP_DEAD ? "%s: the group was destroyed already"
                                                              : "%s: not a group of this library", call);
}

/* Memory for a group and its shares: that of the one that is dead for longest, once there are many, else new. The group
 * is all zero. */
static spw_group *take_memory(spw_manager *manager)
{
    spw_group *group = NULL;
    spw__mutex_lock(&manager->groups_lock);
    if (manager->n_dead_groups > DEAD_MIN) {
        group = manager->dead_groups;
        manager->dead_groups = group->next;
        manager->n_dead_groups--;
    }
    spw__mutex_unlock(&manager->groups_lock);
    if (!group)
        return spw__meta_alloc(&manager->meta, spw__group_size(manager, sizeof *group));
    memset(group, 0, sizeof *group);
    return group;
}

int spw_group_create(spw_manager *manager, const spw_group_options *options, spw_group **out)
{
    spw_group_options taken = group_defaults;
    if (!manager || !out)
        return spw__fail(SPW_EINVAL, "spw_group_create: manager or out is NULL");
    *out = NULL;
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__sized_take(&taken, SPW__SIZED_FIRST(spw_group_options, wait), options, "spw_group_create: options");
    if (rc == SPW_OK)
        rc = check_create(manager, &taken);
    if (rc != SPW_OK)
        return rc;
    spw_group *group = take_memory(manager);
    if (!group)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a group; raise meta=");
    group->manager = manager;
    spw__group_init(&group->node, taken.parent ? &taken.parent->node : &manager->root, &manager->ledger);
    (void)snprintf(group->node.name, sizeof group->node.name, "%s", taken.name ? taken.name : "unnamed");
    group->node.is_group = true;
    spw__group_init_shares(manager, &group->node, spw__group_shares_behind(group, sizeof *group));
    spw__waitset_enter(&manager->waits); /* a wait for its minima may end by a forced destroy */
    spw__group_enter(manager, &group->node);
    enlist(group);
    rc = spw__group_give_shares(group, &taken);
    if (rc == SPW_OK)
        atomic_store(&group->magic, SPW__GROUP_LIVE);
    if (rc == SPW_OK)
        *out = group;
    else
        discard(group);
    spw__waitset_leave(&manager->waits);
    return rc;
}

struct belongings {
    const struct spw__group *node;
    char text[160];
    size_t used;
    unsigned listed;
};

static bool list_child(struct belongings *list, const char *name)
{
    const int n = snprintf(list->text + list->used, sizeof list->text - list->used, "%s\"%s\"",
                           list->listed ? ", " : "", name);
    list->used += (size_t)(n > 0 ? n : 0);
    list->listed++;
    return list->used < sizeof list->text - 48;
}

static int check_children(spw_group *group)
{
    struct belongings list = {.node = &group->node};
    spw__mutex_lock(&group->manager->groups_lock);
    for (const struct spw__group *at = group->node.children; at && list_child(&list, at->name); at = at->next) {
    }
    spw__mutex_unlock(&group->manager->groups_lock);
    return list.listed ? spw__fail(SPW_EBUSY, "the group \"%s\" has groups or tasks below it: %s; destroy them first",
                                   group->node.name, list.text)
                       : SPW_OK;
}

static bool list_buffer(const spw_buffer *buffer, void *arg)
{
    struct belongings *list = arg;
    return !spw__group_is_below(buffer->payload->group, list->node) || list_child(list, buffer->tag);
}

static int check_buffers(spw_group *group)
{
    struct belongings list = {.node = &group->node};
    spw__handles_look(group->manager, list_buffer, &list);
    return list.listed ? spw__fail(SPW_EBUSY, "the group \"%s\" has live buffers: %s; release them first",
                                   group->node.name, list.text)
                       : SPW_OK;
}

/* Empty ones are charged nothing, and name the group all the same. */
static int check_reservations(spw_group *group)
{
    const struct spw__reserved reserved = spw__reservations_of(group->manager, &group->node);
    return reserved.live ? spw__fail(SPW_EBUSY, "the group \"%s\" has %llu reservation%s, of %llu bytes; release %s "
                                                "first", group->node.name, (unsigned long long)reserved.live,
                                     reserved.live == 1 ? "" : "s", (unsigned long long)reserved.bytes,
                                     reserved.live == 1 ? "it" : "them")
                         : SPW_OK;
}

/* Whoever chooses victims has seen the group's waiters last, now that there are none. */
static void forget(spw_group *group)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++) {
        spw__mutex_lock(&group->manager->pressure[tier].lock);
        spw__mutex_unlock(&group->manager->pressure[tier].lock);
    }
}

/* Buffers that were released may still be carried, and be freed then. */
static int wait_for_users(spw_group *group)
{
    spw_manager *manager = group->manager;
    int rc = SPW_OK;
    while (rc == SPW_OK && atomic_load(&group->node.users) != 0) {
        struct spw__waiter waiter = {.object = &group->node, .channels = SPW__CHANNEL_OBJECT,
                                     .deadline_ns = spw__deadline_ns(manager, NULL)};
        spw__waitset_enter(&manager->waits);
        spw__wait_enqueue(&manager->waits, &waiter);
        if (atomic_load(&group->node.users) == 0)
            (void)spw__wait_leave(&manager->waits, &waiter);
        else
            rc = spw__wait_block(&manager->waits, &waiter);
        spw__waitset_leave(&manager->waits);
    }
    return rc == SPW_OK ? rc
                        : spw__fail(SPW_EBUSY, "moves still carry buffers of the group \"%s\" that were released",
                                    group->node.name);
}

static void drain(spw_manager *manager)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        (void)spw__tier_drain(&manager->tiers[tier]);
}

static int check_charges(spw_group *group)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++) {
        const uint64_t left = spw__ledger_committed(&group->node, tier);
        const spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = left};
        if (left)
            return spw__fail_info(&info, SPW_EBUSY, "the group \"%s\" is charged for %llu bytes of %s: raw blocks, or "
                                  "memory that a stream still uses; free it first", group->node.name,
                                  (unsigned long long)left, spw_tier_name(tier));
    }
    return SPW_OK;
}

int spw_group_destroy(spw_group *group)
{
    if (!group)
        return SPW_OK;
    int rc = spw__group_check_handle(group, "spw_group_destroy");
    if (rc != SPW_OK)
        return rc;
    spw_manager *manager = group->manager;
    rc = check_children(group);
    if (rc == SPW_OK)
        rc = check_buffers(group);
    if (rc == SPW_OK)
        rc = check_reservations(group);
    if (rc == SPW_OK)
        forget(group);
    if (rc == SPW_OK)
        rc = wait_for_users(group);
    if (rc != SPW_OK)
        return rc;
    (void)spw__parked_sweep(manager);
    drain(manager);
    rc = check_charges(group);
    if (rc != SPW_OK)
        return rc;
    discard(group);
    return SPW_OK;
}

int spw__groups_check(spw_manager *manager)
{
    struct belongings list = {.used = 0};
    spw__mutex_lock(&manager->groups_lock);
    for (const spw_group *at = manager->groups; at && list_child(&list, at->node.name); at = at->next) {
    }
    spw__mutex_unlock(&manager->groups_lock);
    return list.listed ? spw__fail(SPW_EBUSY, "there are groups left: %s; destroy them first", list.text) : SPW_OK;
}

void spw__groups_finish(spw_manager *manager)
{
    if (manager->last_dead_group)
        manager->last_dead_group->next = manager->groups;
    else
        manager->dead_groups = manager->groups;
    for (spw_group *group = manager->dead_groups, *next; group; group = next) {
        next = group->next;
        spw__meta_free(&manager->meta, group, spw__group_size(manager, sizeof *group));
    }
    manager->groups = manager->dead_groups = manager->last_dead_group = NULL;
    spw__meta_free(&manager->meta, manager->root_shares, manager->n_shares * sizeof *manager->root_shares);
}

/* Queries */

int spw_group_usage_get(spw_group *group, spw_place place, spw_group_usage *usage)
{
    const int rc = spw__group_check_place(group, place, "spw_group_usage_get");
    if (rc != SPW_OK)
        return rc;
    if (!usage || usage->struct_size < SPW__SIZED_FIRST(spw_group_usage, max_bytes))
        return spw__fail(SPW_EINVAL, "spw_group_usage_get: usage is NULL, or its struct_size is not set; use "
                                     "SPW_GROUP_USAGE_INIT");
    const spw_tier tier = SPW_PLACE_TIER(place);
    drain(group->manager);
    const spw_group_usage known = {.struct_size = usage->struct_size,
                                   .committed_bytes = spw__ledger_committed(&group->node, tier),
                                   .peak_bytes = atomic_load(&group->node.gates[tier].peak),
                                   .min_bytes = atomic_load(&group->node.min[tier]),
                                   .max_bytes = atomic_load(&group->node.gates[tier].budget)};
    memcpy(usage, &known, usage->struct_size < sizeof known ? usage->struct_size : sizeof known);
    return SPW_OK;
}
