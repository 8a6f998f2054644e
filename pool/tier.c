/* Tiers: sources + pools + ledger. Neighbours: range.c finds holes, tier_memory.c brings memory, src/core decides what
 * happens when a request does not fit. */
#include "pool/tier.h"

#include <string.h>

#include "pool/base/error.h"
#include "pool/tier_memory.h"
#include "pool/tier_small.h"

/* Pools grow by little at first, so that small jobs take little, then by much. */
#define GROW_FIRST_BYTES (UINT64_C(32) << 20)
#define GROW_LAST_BYTES (UINT64_C(256) << 20)
#define GROW_PART_BYTES (UINT64_C(64) << 20)

/* Where charge bytes would end behind the last allocation. */
static uint64_t end_locked(const struct spw__pool *pool, uint64_t charge, uint64_t align)
{
    const uint64_t tail = spw__range_tail(pool->range);
    return (align ? spw__round_up(tail, align) : tail) + charge;
}

/* Lets the pool grow to need bytes; the lock is released meanwhile. SPW_OK: look again. Why the system refuses is
 * nobody's error: the request may still find room elsewhere. */
static int grow_locked(struct spw__tier *tier, struct spw__pool *pool, uint64_t need)
{
    spw_error_info kept;
    const uint64_t begin = pool->grown;
    uint64_t end = begin + pool->step;
    int rc = SPW_OK;
    end = spw__round_up(end > need ? end : need, pool->unit);
    end = end < pool->size ? end : pool->size;
    pool->growing = true;
    spw__error_save(&kept);
    /* In parts, so that whoever waits for a little of it does not wait for all of it. */
    for (uint64_t at = begin, part; rc == SPW_OK && at < end; at = part) {
        const uint64_t most = spw__round_up(GROW_PART_BYTES, pool->unit);
        part = end - at < most ? end : at + most;
        spw__mutex_unlock(&pool->lock);
        rc = spw__pool_populate(tier, pool, at, part);
        spw__mutex_lock(&pool->lock);
        if (rc == SPW_OK)
            rc = spw__range_grow(pool->range, part);
        if (rc == SPW_OK)
            pool->grown = part;
        if (pool->reach < pool->grown) /* a device that had no memory before has some now */
            pool->reach = pool->grown;
        pool->growing = rc == SPW_OK && part < end;
        spw__cond_broadcast(&pool->grown_cond);
    }
    if (tier->tier == SPW_TIER_DEVICE) /* others may have its memory for long, which is not to be waited for */
        pool->reach = rc == SPW_OK ? pool->size : pool->grown;
    if (rc == SPW_OK && pool->step < GROW_LAST_BYTES)
        pool->step *= 2;
    (void)spw__error_restore(&kept);
    return rc;
}

/* True when charge bytes fit between the last allocation and the pool's end, but not in what is grown. */
static bool can_grow_locked(const struct spw__pool *pool, uint64_t charge, uint64_t align)
{
    return pool->grown < pool->size && end_locked(pool, charge, align) <= pool->size;
}

static uint64_t free_locked(const struct spw__pool *pool)
{
    return spw__range_total_free(pool->range) + pool->reach - pool->grown;
}

/* Orders route by limit, keeping the written order among equals: insertion, since there are at most 128 pools. */
static void sort_route(struct spw__tier *tier)
{
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        uint32_t at = i;
        for (; at > 0 && tier->pools[tier->route[at - 1]].limit > tier->pools[i].limit; at--)
            tier->route[at] = tier->route[at - 1];
        tier->route[at] = i;
    }
}

static void find_largest_request(struct spw__tier *tier)
{
    tier->largest_request = 0;
    for (uint32_t i = 0; i < tier->n_pools; i++) {
        const struct spw__pool *pool = &tier->pools[i];
        const uint64_t holds = spw__smaller(pool->size - pool->set_aside, pool->limit);
        if (tier->largest_request < holds)
            tier->largest_request = holds;
    }
}

void spw__tier_set_aside(struct spw__tier *tier, const struct spw__block *block)
{
    tier->pools[block->pool].set_aside += block->bytes;
    tier->set_aside += block->bytes;
    find_largest_request(tier);
}

int spw__tier_init(struct spw__tier *tier, const struct spw__tier_config *config)
{
    int rc = SPW_OK;
    *tier = (struct spw__tier){.tier = config->tier, .device = config->device, .log = config->log, .meta = config->meta,
                               .waits = config->waits, .counters = config->counters,
                               .small_max_bytes = config->piece_bytes ? config->piece_bytes : UINT64_MAX,
                               .numa = config->numa,
                               .first_counter = config->first_counter,
                               .granularity = config->tier == SPW_TIER_DEVICE ? 256 : 64};
    if (config->n_pools == 0)
        return SPW_OK;
    if (config->tier == SPW_TIER_DEVICE && config->maps) {
        tier->map_unit = spw__device_map_unit(config->device);
        if (tier->map_unit == 0)
            spw__logf(config->log, SPW__LOG_WARN, "grow=vmm: the device cannot map memory as it is needed; its pools "
                                                  "are allocated whole");
    }
    tier->pools = spw__meta_alloc(tier->meta, config->n_pools * sizeof *tier->pools);
    tier->route = spw__meta_alloc(tier->meta, config->n_pools * sizeof *tier->route);
    tier->n_pools = config->n_pools;
    if (!tier->pools || !tier->route)
        rc = spw__fail(SPW_ENOMETA, "no metadata memory for %u pools; raise meta=", config->n_pools);
    for (uint32_t i = 0; rc == SPW_OK && i < config->n_pools; i++) {
        struct spw__pool *pool = &tier->pools[i];
        spw__mutex_init(&pool->lock, SPW__RANK_POOL);
        pool->limit = config->pools[i].limit_bytes ? config->pools[i].limit_bytes : UINT64_MAX;
        pool->size = config->pools[i].size_bytes / tier->granularity * tier->granularity;
        spw__cond_init(&pool->grown_cond);
        pool->grown = spw__tier_grows(tier) ? 0 : pool->size;
        pool->reach = pool->size;
        pool->step = GROW_FIRST_BYTES;
        rc = spw__range_create(pool->grown, tier->granularity, config->address_ordered, tier->meta, &pool->range);
        if (rc == SPW_OK && !config->address_ordered)
            rc = spw__tier_small_init(tier, pool);
        if (rc == SPW_OK)
            rc = spw__pool_map(tier, pool);
        tier->size += pool->size;
    }
    if (rc != SPW_OK) {
        spw__tier_finish(tier);
        return rc;
    }
    find_largest_request(tier);
    sort_route(tier);
    tier->present = true;
    return SPW_OK;
}

void spw__tier_finish(struct spw__tier *tier)
{
    for (uint32_t i = 0; tier->pools && i < tier->n_pools; i++) {
        struct spw__pool *pool = &tier->pools[i];
        if (!pool->limit) /* init did not come this far */
            break;
        spw__pool_unmap(tier, pool);
        spw__small_destroy(pool->small);
        spw__spare_destroy(pool->spare);
        spw__range_destroy(pool->range);
        spw__meta_free(tier->meta, pool->owners, pool->n_owners * sizeof *pool->owners);
        spw__cond_finish(&pool->grown_cond);
        spw__mutex_finish(&pool->lock);
    }
    spw__meta_free(tier->meta, tier->pools, tier->n_pools * sizeof *tier->pools);
    spw__meta_free(tier->meta, tier->route, tier->n_pools * sizeof *tier->route);
    *tier = (struct spw__tier){.tier = tier->tier};
}

static void count(struct spw__tier *tier, enum spw__tier_counter which, uint64_t amount)
{
    spw__count(tier->counters, tier->first_counter + which, amount);
}

static int pool_alloc(struct spw__tier *tier, uint32_t index, uint64_t charge, uint64_t align, enum spw__grow may_grow,
                      struct spw__block *out)
{
    struct spw__pool *pool = &tier->pools[index];
    const bool may_be_kept = pool->spare && spw__tier_caches(tier, pool, charge, charge, align);
    uint64_t offset = 0;
    int rc;
    if (align == 0 && charge >= SPW__DIRECT_MIN_BYTES)
        align = SPW__IO_BLOCK;
    spw__mutex_lock(&pool->lock);
    while ((rc = spw__range_alloc(pool->range, charge, align, &out->node, &offset)) != SPW_OK) {
        int grew = SPW_OK;
        const bool waits = pool->growing && (pool->trimming || may_grow == SPW__GROW_FREELY);
        if (may_grow == SPW__GROW_NOT || rc == SPW_ENOMETA ||
            (!waits && (pool->growing || !can_grow_locked(pool, charge, align))))
            break;
        if (waits)
            (void)spw__cond_wait(&pool->grown_cond, &pool->lock, -1);
        else
            grew = grow_locked(tier, pool, end_locked(pool, charge, align));
        if (grew != SPW_OK) {
            rc = grew == SPW_ENOMETA ? grew : rc;
            break;
        }
    }
    /* What has no memory yet is free as well: together it may be enough, and only a hole is missing. */
    if (rc == SPW_ENOMEM && !can_grow_locked(pool, charge, align) && free_locked(pool) >= charge)
        rc = SPW_EFRAG;
    if (rc == SPW_OK && may_be_kept)
        spw__spare_note_locked(pool->spare, out->node, offset);
    spw__mutex_unlock(&pool->lock);
    if (rc == SPW_OK) {
        out->address = pool->base + offset;
        out->pool = (uint16_t)index;
    }
    return rc;
}

/* Offers the request to the pools that may hold it, once. group NULL: its bytes are charged already. *over_budget: it
 * is the budget that has no room. */
static int place(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, uint64_t align,
                 enum spw__grow may_grow, bool *over_budget, struct spw__block *out)
{
    const uint64_t charge = spw__tier_charge(tier, bytes);
    const uint32_t first = spw__tier_first_route(tier, bytes);
    const bool charged = group == NULL;
    bool committed = charged, cached = false;
    int rc = SPW_ETOOBIG;
    *over_budget = false;
    for (uint32_t at = first; at < tier->n_pools && rc != SPW_OK && rc != SPW_ENOMETA; at++) {
        const struct spw__pool *pool = &tier->pools[tier->route[at]];
        if (pool->size - pool->set_aside < charge)
            continue;
        cached = !charged && spw__tier_caches(tier, pool, bytes, charge, align) &&
                 spw__tier_cached_alloc(tier, tier->route[at], group, charge, align, may_grow != SPW__GROW_NOT, out) ==
                     SPW_OK;
        if (!cached && !committed && !spw__ledger_commit(group, tier->tier, charge)) {
            *over_budget = true;
            return SPW_ENOMEM;
        }
        committed |= !cached;
        const int tried = cached ? SPW_OK : pool_alloc(tier, tier->route[at], charge, align, may_grow, out);
        /* "Fragmented" is the better news of two pools: there, moving something would help. */
        rc = rc == SPW_EFRAG && tried == SPW_ENOMEM ? rc : tried;
        if (rc == SPW_OK && at > first)
            count(tier, SPW__TIER_FALLBACKS, 1);
    }
    if (committed && !charged && (rc != SPW_OK || cached))
        spw__ledger_uncommit(group, tier->tier, charge);
    if (rc != SPW_OK || cached) /* what comes from a cache has its charge, and is counted */
        return rc;
    out->bytes = charge;
    out->group = group;
    out->tier = (uint8_t)tier->tier;
    count(tier, SPW__TIER_ALLOCS, 1);
    count(tier, SPW__TIER_ALLOC_BYTES, charge);
    return SPW_OK;
}

/* Most requests for raw memory end here: the pool that they prefer serves them from the thread's cache. */
static bool serve_from_cache(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, uint64_t charge,
                             uint64_t align, bool may_register, struct spw__block *out)
{
    const uint32_t index = tier->route[spw__tier_first_route(tier, bytes)];
    const struct spw__pool *pool = &tier->pools[index];
    return pool->size - pool->set_aside >= charge && spw__tier_caches(tier, pool, bytes, charge, align) &&
           spw__tier_cached_alloc(tier, index, group, charge, align, may_register, out) == SPW_OK;
}

int spw__tier_alloc_aligned(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, uint64_t align,
                            enum spw__grow may_grow, struct spw__block *out)
{
    const uint64_t charge = spw__tier_charge(tier, bytes);
    bool over_budget;
    if (!tier->present || bytes > tier->largest_request ||
        spw__ledger_never_fits(group, tier->tier, charge, tier->set_aside)) {
        *out = (struct spw__block){.bytes = 0};
        return SPW_ETOOBIG;
    }
    if (tier->n_cached != 0 &&
        serve_from_cache(tier, group, bytes, charge, align, may_grow != SPW__GROW_NOT, out))
        return SPW_OK;
    *out = (struct spw__block){.bytes = 0};
    int rc = place(tier, group, bytes, align, may_grow, &over_budget, out);
    if ((rc == SPW_ENOMEM || rc == SPW_EFRAG) && tier->n_cached != 0) {
        (void)spw__tier_drain(tier); /* or another thread's drain, whose bytes are as good */
        rc = place(tier, group, bytes, align, may_grow, &over_budget, out);
    }
    if (over_budget)
        count(tier, SPW__TIER_FAIL_BUDGET, 1);
    if (rc == SPW_EFRAG)
        count(tier, SPW__TIER_FAIL_FRAGMENTED, 1);
    return rc;
}

int spw__tier_alloc_charged(struct spw__tier *tier, uint64_t bytes, uint64_t align, enum spw__grow may_grow,
                            struct spw__block *out)
{
    bool over_budget;
    *out = (struct spw__block){.bytes = 0};
    if (!tier->present || bytes > tier->largest_request)
        return SPW_ETOOBIG;
    int rc = place(tier, NULL, bytes, align, may_grow, &over_budget, out);
    if ((rc == SPW_ENOMEM || rc == SPW_EFRAG) && tier->n_cached != 0) {
        (void)spw__tier_drain(tier);
        rc = place(tier, NULL, bytes, align, may_grow, &over_budget, out);
    }
    if (rc == SPW_EFRAG)
        count(tier, SPW__TIER_FAIL_FRAGMENTED, 1);
    return rc;
}

int spw__tier_alloc(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, struct spw__block *out)
{
    return spw__tier_alloc_aligned(tier, group, bytes, 0, SPW__GROW_FREELY, out);
}

int spw__tier_try(struct spw__tier *tier, struct spw__group *group, uint64_t bytes, struct spw__block *out)
{
    return spw__tier_alloc_aligned(tier, group, bytes, 0, SPW__GROW_NOT, out);
}

bool spw__tier_grow_for(struct spw__tier *tier, uint64_t bytes)
{
    const uint64_t charge = spw__tier_charge(tier, bytes);
    bool found = false;
    for (uint32_t at = spw__tier_first_route(tier, bytes); at < tier->n_pools && !found; at++) {
        struct spw__pool *pool = &tier->pools[tier->route[at]];
        spw__mutex_lock(&pool->lock);
        found = spw__range_largest_free(pool->range) >= charge;
        if (!found && !pool->growing && can_grow_locked(pool, charge, 0))
            found = grow_locked(tier, pool, end_locked(pool, charge, 0)) == SPW_OK;
        spw__mutex_unlock(&pool->lock);
    }
    return found;
}

bool spw__tier_grow_for_all(struct spw__tier *tier, uint64_t least_bytes, uint64_t total_bytes)
{
    bool grew = false;
    for (uint32_t at = spw__tier_first_route(tier, least_bytes); at < tier->n_pools; at++) {
        struct spw__pool *pool = &tier->pools[tier->route[at]];
        spw__mutex_lock(&pool->lock);
        if (pool->growing) /* the next part of another thread's growth may be all that is missing */
            grew |= spw__cond_wait(&pool->grown_cond, &pool->lock, -1) == 0;
        const uint64_t tail = spw__range_tail(pool->range);
        const uint64_t end = total_bytes < pool->size - tail ? tail + total_bytes : pool->size;
        if (!pool->growing && end > pool->grown && spw__range_largest_free(pool->range) < total_bytes)
            grew |= grow_locked(tier, pool, end) == SPW_OK;
        spw__mutex_unlock(&pool->lock);
    }
    return grew;
}

int spw__tier_free(struct spw__tier *tier, struct spw__block *block)
{
    struct spw__pool *pool = &tier->pools[block->pool];
    bool back = true;
    int rc;
    if (block->slot) {
        rc = spw__tier_small_free(tier, block, &back);
    } else if (pool->spare && spw__tier_keep(tier, block)) {
        rc = SPW_OK;
        back = false;
    } else {
        spw__mutex_lock(&pool->lock);
        rc = pool->spare ? spw__spare_forget_locked(pool->spare, block->node, block->address - pool->base) : SPW_OK;
        if (rc == SPW_OK)
            rc = spw__range_free(pool->range, block->node);
        if (rc == SPW_OK && block->node < pool->n_owners)
            pool->owners[block->node] = NULL;
        spw__mutex_unlock(&pool->lock);
        if (rc == SPW_OK && block->group)
            spw__ledger_uncommit(block->group, tier->tier, block->bytes);
    }
    if (rc != SPW_OK)
        return rc;
    block->bytes = 0;
    if (back)
        spw__waitset_signal(tier->waits, SPW__CHANNEL(tier->tier));
    return SPW_OK;
}

int spw__tier_split(struct spw__tier *tier, struct spw__block *block, uint64_t bytes, struct spw__block *tail)
{
    struct spw__pool *pool = &tier->pools[block->pool];
    *tail = *block;
    if (block->slot) {
        tail->bytes = 0;
        return spw__fail(SPW_EINVAL, "a small object of %llu bytes has no parts", (unsigned long long)block->bytes);
    }
    spw__mutex_lock(&pool->lock);
    const int rc = spw__range_split(pool->range, block->node, bytes, &tail->node);
    spw__mutex_unlock(&pool->lock);
    if (rc != SPW_OK) {
        tail->bytes = 0;
        return rc;
    }
    tail->address = block->address + bytes;
    tail->bytes = block->bytes - bytes;
    block->bytes = bytes;
    return SPW_OK;
}

/* Makes room for a node's owner: nodes are numbered densely, so that the table doubles. */
static bool reach_owner_locked(struct spw__tier *tier, struct spw__pool *pool, uint32_t node)
{
    if (node < pool->n_owners)
        return true;
    uint32_t n = pool->n_owners ? pool->n_owners : 64;
    while (n <= node)
        n *= 2;
    void **owners = spw__meta_alloc(tier->meta, n * sizeof *owners);
    if (!owners)
        return false;
    if (pool->owners)
        memcpy(owners, pool->owners, pool->n_owners * sizeof *owners);
    spw__meta_free(tier->meta, pool->owners, pool->n_owners * sizeof *owners);
    pool->owners = owners;
    pool->n_owners = n;
    return true;
}

void spw__tier_set_owner(struct spw__tier *tier, const struct spw__block *block, void *owner)
{
    struct spw__pool *pool = &tier->pools[block->pool];
    if (block->slot)
        return;
    spw__mutex_lock(&pool->lock);
    if (pool->spare) /* who frees it gives it back to the range, where its owner is forgotten */
        (void)spw__spare_forget_locked(pool->spare, block->node, block->address - pool->base);
    if (reach_owner_locked(tier, pool, block->node))
        pool->owners[block->node] = owner;
    spw__mutex_unlock(&pool->lock);
}

uint64_t spw__tier_largest_free_from(struct spw__tier *tier, uint32_t route)
{
    uint64_t largest = 0;
    for (; route < tier->n_pools; route++) {
        struct spw__pool *pool = &tier->pools[tier->route[route]];
        spw__mutex_lock(&pool->lock);
        const uint64_t hole = spw__range_largest_free(pool->range);
        const uint64_t tail = pool->reach - spw__range_tail(pool->range);
        spw__mutex_unlock(&pool->lock);
        largest = hole > largest ? hole : largest;
        largest = tail > largest ? tail : largest;
    }
    return largest;
}

uint64_t spw__tier_largest_free(struct spw__tier *tier)
{
    return spw__tier_largest_free_from(tier, 0);
}

uint64_t spw__tier_free_from(struct spw__tier *tier, uint32_t route)
{
    uint64_t bytes = 0;
    for (; route < tier->n_pools; route++)
        bytes += spw__pool_free(&tier->pools[tier->route[route]]);
    return bytes;
}

uint64_t spw__pool_free(struct spw__pool *pool)
{
    spw__mutex_lock(&pool->lock);
    const uint64_t bytes = free_locked(pool);
    spw__mutex_unlock(&pool->lock);
    return bytes;
}
