/* External charges. Neighbours: pool/ledger counts them, pressure.c makes room for what they overbook. */
#include "src/core/external.h"

#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

struct spw__external_entry {
    struct spw__external_entry *next; /* guarded by the lock, as bytes */
    struct spw__group *group;         /* constant, as all below but bytes */
    spw_tier tier;
    char tag[SPW__EXTERNAL_TAG_BYTES];
    uint64_t bytes;
};

/* More in one place is a mistake: what the ledger adds to it stays far from overflow. */
#define BYTES_MAX (UINT64_C(1) << 62)

void spw__external_init(struct spw__external *external)
{
    spw__mutex_init(&external->lock, SPW__RANK_EXTERNAL);
}

void spw__external_finish(struct spw_manager *manager)
{
    struct spw__external *external = &manager->external;
    while (external->entries) {
        struct spw__external_entry *entry = external->entries;
        external->entries = entry->next;
        spw__meta_free(&manager->meta, entry, sizeof *entry);
    }
    spw__mutex_finish(&external->lock);
}

static uint64_t sum_locked(const struct spw_manager *manager, spw_tier tier)
{
    uint64_t bytes = 0;
    for (const struct spw__external_entry *at = manager->external.entries; at; at = at->next)
        bytes += at->tier == tier ? at->bytes : 0;
    return bytes;
}

uint64_t spw__external_bytes(struct spw_manager *manager, spw_tier tier)
{
    spw__mutex_lock(&manager->external.lock);
    const uint64_t bytes = sum_locked(manager, tier);
    spw__mutex_unlock(&manager->external.lock);
    return bytes;
}

/* By tier, then by tag. */
static int compare(spw_tier tier, const char *tag, spw_tier other_tier, const char *other_tag)
{
    return tier != other_tier ? (tier < other_tier ? -1 : 1) : strcmp(tag, other_tag);
}

bool spw__external_next(struct spw_manager *manager, struct spw__external_sum *sum)
{
    const struct spw__external_entry *best = NULL;
    uint64_t bytes = 0;
    spw__mutex_lock(&manager->external.lock);
    for (const struct spw__external_entry *at = manager->external.entries; at; at = at->next)
        if (compare(at->tier, at->tag, sum->tier, sum->tag) > 0 &&
            (!best || compare(at->tier, at->tag, best->tier, best->tag) < 0))
            best = at;
    for (const struct spw__external_entry *at = best; at; at = at->next)
        bytes += compare(at->tier, at->tag, best->tier, best->tag) == 0 ? at->bytes : 0;
    if (best) {
        *sum = (struct spw__external_sum){.tier = best->tier, .bytes = bytes};
        memcpy(sum->tag, best->tag, sizeof sum->tag);
    }
    spw__mutex_unlock(&manager->external.lock);
    return best != NULL;
}

int spw__external_check_none(struct spw_manager *manager)
{
    struct spw__external_sum sum = {.bytes = 0};
    char text[256] = "";
    size_t used = 0;
    while (used + 80 < sizeof text && spw__external_next(manager, &sum)) {
        const int n = snprintf(text + used, sizeof text - used, "%s\"%s\" (%llu bytes of %s)", used ? ", " : "",
                               sum.tag, (unsigned long long)sum.bytes, spw_tier_name(sum.tier));
        used += (size_t)(n > 0 ? n : 0);
    }
    return used ? spw__fail(SPW_EBUSY, "external charges are left: %s; give them back first", text) : SPW_OK;
}

static bool is_tag(const char *tag)
{
    const size_t length = tag ? strnlen(tag, SPW__EXTERNAL_TAG_BYTES) : 0;
    for (size_t i = 0; i < length; i++)
        if (tag[i] < ' ' || tag[i] > '~' || tag[i] == '"' || tag[i] == '\\')
            return false;
    return length > 0 && length < SPW__EXTERNAL_TAG_BYTES;
}

/* What is charged under the tag by all groups, and the entry of one of them. */
static uint64_t find_locked(struct spw_manager *manager, spw_tier tier, const char *tag, const struct spw__group *group,
                            struct spw__external_entry **own)
{
    uint64_t bytes = 0;
    *own = NULL;
    for (struct spw__external_entry *at = manager->external.entries; at; at = at->next)
        if (compare(at->tier, at->tag, tier, tag) == 0) {
            bytes += at->bytes;
            if (at->group == group)
                *own = at;
        }
    return bytes;
}

static struct spw__external_entry *add_entry_locked(struct spw_manager *manager, spw_tier tier, const char *tag,
                                                    struct spw__group *group)
{
    struct spw__external_entry **link = &manager->external.entries;
    struct spw__external_entry *entry = spw__meta_alloc(&manager->meta, sizeof *entry);
    if (!entry)
        return NULL;
    *entry = (struct spw__external_entry){.group = group, .tier = tier};
    memcpy(entry->tag, tag, strlen(tag));
    while (*link)
        link = &(*link)->next;
    *link = entry;
    return entry;
}

static int charge(struct spw_manager *manager, spw_tier tier, uint64_t bytes, const char *tag, struct spw__group *group)
{
    struct spw__external_entry *own;
    uint64_t excess = 0;
    int rc = SPW_OK;
    spw__mutex_lock(&manager->external.lock);
    (void)find_locked(manager, tier, tag, group, &own);
    if (sum_locked(manager, tier) + bytes >= BYTES_MAX)
        rc = SPW_EINVAL;
    else if (!own && !(own = add_entry_locked(manager, tier, tag, group)))
        rc = SPW_ENOMETA;
    if (rc == SPW_OK) {
        own->bytes += bytes;
        excess = spw__ledger_overbook(group, tier, bytes);
    }
    spw__mutex_unlock(&manager->external.lock);
    if (rc == SPW_EINVAL)
        return spw__fail(SPW_EINVAL, "spw_external_charge: with this for \"%s\" 2^62 bytes or more of %s would be "
                                     "charged from outside", tag, spw_tier_name(tier));
    if (rc == SPW_ENOMETA)
        return spw__fail(SPW_ENOMETA, "no metadata memory for an external charge; raise meta=");
    if (excess) {
        spw__core_count(manager, SPW__CORE_OVERBOOKS + (unsigned)tier, 1);
        spw__core_count(manager, SPW__CORE_OVERBOOK_BYTES + (unsigned)tier, excess);
    }
    return SPW_OK;
}

/* Takes bytes back out of an entry, as many as it has and are wanted; returns them. */
static uint64_t take_back_locked(struct spw__external_entry *entry, uint64_t bytes)
{
    const uint64_t taken = bytes < entry->bytes ? bytes : entry->bytes;
    entry->bytes -= taken;
    if (taken)
        spw__ledger_uncommit(entry->group, entry->tier, taken);
    return taken;
}

static void sweep_locked(struct spw_manager *manager)
{
    for (struct spw__external_entry **link = &manager->external.entries; *link;) {
        struct spw__external_entry *entry = *link;
        if (entry->bytes) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        spw__meta_free(&manager->meta, entry, sizeof *entry);
    }
}

static int give_back(struct spw_manager *manager, spw_tier tier, uint64_t bytes, const char *tag,
                     const struct spw__group *group)
{
    struct spw__external_entry *own;
    spw__mutex_lock(&manager->external.lock);
    const uint64_t charged = find_locked(manager, tier, tag, group, &own);
    uint64_t left = charged < bytes ? 0 : bytes;
    if (own)
        left -= take_back_locked(own, left);
    for (struct spw__external_entry *at = manager->external.entries; left; at = at->next)
        if (compare(at->tier, at->tag, tier, tag) == 0)
            left -= take_back_locked(at, left);
    sweep_locked(manager);
    spw__mutex_unlock(&manager->external.lock);
    if (charged >= bytes)
        return SPW_OK;
    return spw__fail(SPW_EINVAL, "spw_external_charge: %llu bytes of %s given back under \"%s\", which is charged %llu",
                     (unsigned long long)bytes, spw_tier_name(tier), tag, (unsigned long long)charged);
}

int spw_external_charge(spw_manager *manager, spw_place place, int64_t bytes, const char *tag)
{
    if (!manager)
        return spw__fail(SPW_EINVAL, "spw_external_charge: manager is NULL");
    int rc = spw__check_process(manager);
    if (rc == SPW_OK)
        rc = spw__check_place(manager, place, "spw_external_charge");
    if (rc != SPW_OK)
        return rc;
    if (!is_tag(tag))
        return spw__fail(SPW_EINVAL, "spw_external_charge: the tag is not 1 to %d printable ASCII characters, none of "
                                     "them \" or \\", SPW__EXTERNAL_TAG_BYTES - 1);
    const spw_tier tier = SPW_PLACE_TIER(place);
    struct spw__group *group = spw__task_node(manager, spw__task_of(manager, NULL));
    if (bytes > 0)
        rc = charge(manager, tier, (uint64_t)bytes, tag, group);
    else if (bytes < 0)
        rc = give_back(manager, tier, -(uint64_t)bytes, tag, group);
    if (rc != SPW_OK || bytes == 0)
        return rc;
    /* As after a change of the budget: what was given back is for those who wait, and those that more was taken from
     * look again at what they need. */
    spw__waitset_signal(&manager->waits, SPW__CHANNEL(tier));
    spw__pressure_kick(manager, SPW_TIER_HOST);
    return SPW_OK;
}
