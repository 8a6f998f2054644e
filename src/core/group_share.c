/* What groups may have: shares, and how a minimum is set aside, at creation, by a call that does not wait, or by a
 * ticket. Neighbours: pool/ledger.c keeps the numbers, pressure.c finds room for minima, ticket.c lets a ticket end. */
#include "src/core/group.h"

#include "pool/base/error.h"
#include "src/core/evict.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

int spw__group_check_share(const char *call, spw_tier tier, const spw_group_share *share)
{
    if (share->weight == 0 || share->reserved)
        return spw__fail(SPW_EINVAL, "%s: the share of %s has weight 0, or sets what is reserved; start from "
                                     "spw_group_options_init", call, spw_tier_name(tier));
    if (share->min_bytes > share->max_bytes)
        return spw__fail(SPW_EINVAL, "%s: the minimum in %s, %llu bytes, is above the maximum of %llu", call,
                         spw_tier_name(tier), (unsigned long long)share->min_bytes,
                         (unsigned long long)share->max_bytes);
    return SPW_OK;
}

/* Bytes of a place that are the library's own for good. */
static uint64_t set_aside(const spw_manager *manager, spw_tier tier)
{
    return (unsigned)tier < SPW__MEMORY_TIERS ? manager->tiers[tier].set_aside : 0;
}

/* SPW_ETOOBIG when all minima together can never be had: node's new one, which replaces old, and those of the others.
 */
static int check_min(const spw_manager *manager, const char *call, const struct spw__group *node, spw_tier tier,
                     uint64_t min, uint64_t old)
{
    uint64_t sum = min;
    for (const struct spw__group *at = node->parent; at; at = at->parent) {
        const uint64_t others = atomic_load(&at->child_mins[tier]) - old;
        const uint64_t budget = atomic_load(&at->gates[tier].budget);
        sum += at->parent ? 0 : set_aside(manager, tier);
        if (others > budget || sum > budget - others) {
            const spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = min, .limit_bytes = budget};
            return spw__fail_info(&info, SPW_ETOOBIG, "%s: a minimum of %llu bytes in %s can never be had: the %s\"%s\""
                                  " has at most %llu there, and owes %llu to others", call, (unsigned long long)min,
                                  spw_tier_name(tier), at->parent ? "group " : "place ",
                                  at->parent ? at->name : spw_tier_name(tier), (unsigned long long)budget,
                                  (unsigned long long)others);
        }
        old = atomic_load(&at->min[tier]);
        sum = sum + others > old ? sum + others : old;
    }
    return SPW_OK;
}

static int fail_min(const struct spw__group *node, spw_tier tier, uint64_t min)
{
    const spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = min,
                                 .free_bytes = spw__ledger_free_on_path(node->parent, tier)};
    return spw__fail_info(&info, SPW_ENOMEM, "no room for a minimum of %llu bytes in %s of the group \"%s\": %llu are "
                          "free; release something first, or lower another group's minimum", (unsigned long long)min,
                          spw_tier_name(tier), node->name, (unsigned long long)info.free_bytes);
}

/* A request for a minimum, whose attempt sets it. */
static struct spw__request request_of(spw_manager *manager, struct spw__group *node, spw_tier tier, uint64_t min)
{
    return (struct spw__request){.manager = manager, .group = node->parent, .bytes = min, .min_of = node, .first = tier,
                                 .lowest = tier};
}

/* On disk clean copies are given up for it. */
static int take_disk_min(spw_manager *manager, struct spw__group *node, uint64_t min)
{
    do {
        if (spw__ledger_set_min(node, SPW_TIER_DISK, min))
            return SPW_OK;
    } while (spw__evict_reclaim_disk(manager, node->parent, min));
    return fail_min(node, SPW_TIER_DISK, min);
}

/* Memory is made free for it as for an allocation. */
static int take_min(spw_manager *manager, struct spw__group *node, spw_tier tier, uint64_t min,
                    const spw_wait_options *wait)
{
    if (min == 0 || spw__ledger_set_min(node, tier, min))
        return SPW_OK;
    if ((unsigned)tier >= SPW__MEMORY_TIERS)
        return take_disk_min(manager, node, min);
    struct spw__request request = request_of(manager, node, tier, min);
    const int rc = spw__request_run(&request, wait);
    spw__request_over(&request); /* the creation is inside by itself */
    return rc;
}

/* Something may be granted now that was not before. */
static void announce(spw_manager *manager, spw_tier tier)
{
    if ((unsigned)tier < SPW__MEMORY_TIERS) {
        spw__waitset_signal(&manager->waits, SPW__CHANNEL(tier));
        spw__pressure_budget_changed(manager, tier);
    }
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

void spw__group_drop_minima(spw_manager *manager, struct spw__group *node)
{
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW_TIER_META; tier++)
        if (atomic_load(&node->min[tier])) {
            (void)spw__ledger_set_min(node, tier, 0); /* less is always granted */
            announce(manager, tier);
        }
}

/* A share but for its minimum. */
static void set_limits(struct spw__group *node, spw_tier tier, const spw_group_share *share)
{
    atomic_store(&node->gates[tier].budget, share->max_bytes);
    atomic_store(&node->weight[tier], share->weight);
}

int spw__group_give_shares(spw_group *group, const spw_group_options *options)
{
    struct spw__group *node = &group->node;
    int rc = SPW_OK;
    for (spw_tier tier = SPW_TIER_DEVICE; rc == SPW_OK && tier < SPW_TIER_META; tier++) {
        const spw_group_share *share = &options->shares[tier];
        set_limits(node, tier, share);
        rc = share->min_bytes ? check_min(group->manager, "spw_group_create", node, tier, share->min_bytes, 0) : SPW_OK;
    }
    for (spw_tier tier = SPW_TIER_DEVICE; rc == SPW_OK && tier < SPW_TIER_META; tier++)
        rc = take_min(group->manager, node, tier, options->shares[tier].min_bytes, &options->wait);
    return rc;
}

int spw__group_check_place(const spw_group *group, spw_place place, const char *call)
{
    const int rc = spw__group_check_handle(group, call);
    if (rc != SPW_OK)
        return rc;
    if (place == SPW_PLACE_NONE || SPW_PLACE_INDEX(place) != 0 || (unsigned)SPW_PLACE_TIER(place) >= SPW_TIER_META)
        return spw__fail(SPW_EINVAL, "%s: groups have shares of device, pinned_host, host and disk", call);
    return SPW_OK;
}

/* Checks a new share of a place. */
static int check_set(spw_group *group, spw_place place, const spw_group_share *share, const char *call)
{
    int rc = spw__group_check_place(group, place, call);
    if (rc == SPW_OK && !share)
        rc = spw__fail(SPW_EINVAL, "%s: share is NULL", call);
    if (rc != SPW_OK)
        return rc;
    const spw_tier tier = SPW_PLACE_TIER(place);
    const uint64_t old = atomic_load(&group->node.min[tier]);
    rc = spw__group_check_share(call, tier, share);
    if (rc == SPW_OK && share->min_bytes > old)
        rc = check_min(group->manager, call, &group->node, tier, share->min_bytes, old);
    return rc;
}

int spw_group_set(spw_group *group, spw_place place, const spw_group_share *share)
{
    const int rc = check_set(group, place, share, "spw_group_set");
    if (rc != SPW_OK)
        return rc;
    const spw_tier tier = SPW_PLACE_TIER(place);
    if (!spw__ledger_set_min(&group->node, tier, share->min_bytes)) {
        announce(group->manager, tier); /* the try held the bytes for a moment */
        return fail_min(&group->node, tier, share->min_bytes);
    }
    set_limits(&group->node, tier, share);
    announce(group->manager, tier);
    return SPW_OK;
}

/* Tickets */

void spw__group_share_granted(spw_ticket *ticket)
{
    set_limits(ticket->group, ticket->request.lowest, &ticket->got.share);
}

void spw__group_share_revoke(spw_ticket *ticket)
{
    (void)spw__ledger_set_min(ticket->group, ticket->request.lowest, ticket->old_min);
}

void spw__group_share_over(spw_ticket *ticket)
{
    const spw_tier tier = ticket->request.lowest;
    atomic_store(&ticket->group->awaited_min[tier], 0);
    announce(ticket->manager, tier);
}

/* Sets the minimum at once, or asks for the memory that it lacks. */
static void begin(spw_ticket *ticket, spw_tier tier)
{
    struct spw__group *node = ticket->group;
    const uint64_t min = ticket->got.share.min_bytes;
    ticket->request = request_of(ticket->manager, node, tier, min);
    ticket->old_min = atomic_load(&node->min[tier]);
    if (min > ticket->old_min && (unsigned)tier < SPW__MEMORY_TIERS) {
        atomic_store(&node->awaited_min[tier], min);
        (void)spw__ticket_begin_request(ticket);
    } else {
        const int rc = tier == SPW_TIER_DISK                  ? take_disk_min(ticket->manager, node, min)
                       : spw__ledger_set_min(node, tier, min) ? SPW_OK
                                                              : fail_min(node, tier, min);
        spw__ticket_end(ticket, rc);
    }
}

int spw_group_set_start(spw_group *group, spw_place place, const spw_group_share *share, const spw_wait_options *wait,
                        spw_ticket **out)
{
    static const char call[] = "spw_group_set_start";
    static const spw_wait_options defaults = {.timeout_ms = SPW_TIMEOUT_DEFAULT};
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "%s: out is NULL", call);
    *out = NULL;
    int rc = check_set(group, place, share, call);
    if (rc == SPW_OK)
        rc = spw__check_wait(group->manager, wait ? wait : &defaults);
    if (rc == SPW_OK)
        rc = spw__group_check(&group->node);
    if (rc == SPW_OK)
        rc = spw__ticket_create(group->manager, SPW__TICKET_SHARE, wait ? wait : &defaults, &group->node, &ticket);
    if (rc != SPW_OK)
        return rc;
    ticket->got.share = *share;
    *out = ticket;
    begin(ticket, SPW_PLACE_TIER(place));
    return SPW_OK;
}
