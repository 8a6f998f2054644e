/* The tree of budgets. See ledger.h. Neighbours: pool/base/gate.h is one budget, tier.c and spill/store charge. */
#include "pool/ledger.h"

#include <assert.h>
#include <string.h>

/* In the committed word of a gate whose group has a minimum. The root's word never has it. */
#define GUARDED (UINT64_C(1) << 63)

enum outcome { GRANTED, REFUSED, MEETS_GUARD };

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void spw__ledger_init(struct spw__ledger *ledger)
{
    for (int tier = 0; tier < SPW_TIER_META; tier++)
        spw__mutex_init(&ledger->locks[tier], SPW__RANK_LEDGER);
}

void spw__ledger_finish(struct spw__ledger *ledger)
{
    for (int tier = 0; tier < SPW_TIER_META; tier++)
        spw__mutex_finish(&ledger->locks[tier]);
}

void spw__group_init(struct spw__group *group, struct spw__group *parent, struct spw__ledger *ledger)
{
    group->parent = parent;
    group->ledger = ledger;
    group->depth = parent ? parent->depth + 1 : 0;
    assert(group->depth < SPW__LEDGER_DEPTH_MAX);
    atomic_init(&group->cancelled, false);
    atomic_init(&group->users, 0);
    group->is_group = false;
    memset(group->name, 0, sizeof group->name);
    group->shares = NULL;
    group->children = group->next = group->prev = NULL;
    for (int tier = 0; tier < SPW_TIER_META; tier++) {
        spw__gate_init(&group->gates[tier], UINT64_MAX);
        atomic_init(&group->min[tier], 0);
        atomic_init(&group->child_mins[tier], 0);
        atomic_init(&group->weight[tier], 1);
        atomic_init(&group->leaving[tier], 0);
        group->lack[tier] = (struct spw__lack){.next = NULL};
    }
}

/* One gate */

static uint64_t word_of(const struct spw__group *group, spw_tier tier)
{
    return atomic_load_explicit(&group->gates[tier].committed, memory_order_acquire);
}

static uint64_t budget_of(const struct spw__group *group, spw_tier tier)
{
    return atomic_load_explicit(&group->gates[tier].budget, memory_order_relaxed);
}

static uint64_t min_of(const struct spw__group *group, spw_tier tier)
{
    return atomic_load_explicit(&group->min[tier], memory_order_relaxed);
}

static bool has_room(uint64_t word, uint64_t budget, uint64_t bytes)
{
    const uint64_t committed = word & ~GUARDED;
    return committed <= budget && bytes <= budget - committed;
}

/* guard: the bits that the caller may meet, being under the ledger's lock; else none. */
static enum outcome commit_one(struct spw__group *group, spw_tier tier, uint64_t bytes, uint64_t guard)
{
    struct spw__gate *gate = &group->gates[tier];
    uint64_t word = atomic_load_explicit(&gate->committed, memory_order_relaxed);
    do {
        if (word & GUARDED & ~guard)
            return MEETS_GUARD;
        if (!has_room(word, budget_of(group, tier), bytes))
            return REFUSED;
    } while (!atomic_compare_exchange_weak_explicit(&gate->committed, &word, word + bytes, memory_order_acq_rel,
                                                    memory_order_relaxed));
    spw__gate_note_peak(gate, (word & ~GUARDED) + bytes);
    return GRANTED;
}

/* False, and no change: the gate is guarded. */
static bool uncommit_one(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__gate *gate = &group->gates[tier];
    uint64_t word = atomic_load_explicit(&gate->committed, memory_order_relaxed);
    do {
        if (word & GUARDED)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&gate->committed, &word, word - bytes, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

/* The way under the ledger's lock */

/* What a gate passes on to the one above when its committed bytes go from before to after. */
static uint64_t passed_on(uint64_t more, uint64_t less, uint64_t min)
{
    return larger(more, min) - larger(less, min);
}

static void uncommit_locked(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    for (struct spw__group *at = group, *parent; at && bytes; at = parent) {
        parent = at->parent;
        const uint64_t word = atomic_fetch_sub_explicit(&at->gates[tier].committed, bytes, memory_order_acq_rel);
        const uint64_t committed = word & ~GUARDED;
        if (word & GUARDED)
            bytes = passed_on(committed, committed - bytes, min_of(at, tier));
    }
}

/* What a guarded gate passes on is known before anything is charged, since it cannot change meanwhile. */
static bool commit_locked(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__group *path[SPW__LEDGER_DEPTH_MAX];
    uint64_t shares[SPW__LEDGER_DEPTH_MAX];
    unsigned n = 0;
    for (struct spw__group *at = group; at && bytes; at = at->parent) {
        const uint64_t word = word_of(at, tier);
        if (!has_room(word, budget_of(at, tier), bytes))
            return false;
        path[n] = at;
        shares[n++] = bytes;
        if (word & GUARDED)
            bytes = passed_on((word & ~GUARDED) + bytes, word & ~GUARDED, min_of(at, tier));
    }
    for (unsigned left = n; left > 0; left--)
        if (commit_one(path[left - 1], tier, shares[left - 1], GUARDED) != GRANTED) {
            if (left < n)
                uncommit_locked(path[left], tier, shares[left]);
            return false;
        }
    return true;
}

static struct spw__mutex *lock_of(const struct spw__group *group, spw_tier tier)
{
    return &group->ledger->locks[tier];
}

static bool commit_guarded(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    spw__mutex_lock(lock_of(group, tier));
    const bool granted = commit_locked(group, tier, bytes);
    spw__mutex_unlock(lock_of(group, tier));
    return granted;
}

/* The way without */

/* A refusal that a look already shows charges nobody: what is held for a moment may be what another then misses. */
bool spw__ledger_climb(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__group *path[SPW__LEDGER_DEPTH_MAX];
    unsigned n = 0;
    for (struct spw__group *at = group; at; at = at->parent) {
        const uint64_t word = word_of(at, tier);
        if (word & GUARDED)
            return commit_guarded(group, tier, bytes);
        if (!has_room(word, budget_of(at, tier), bytes))
            return false;
        path[n++] = at;
    }
    for (unsigned left = n; left > 0; left--) {
        const enum outcome outcome = commit_one(path[left - 1], tier, bytes, 0);
        if (outcome == GRANTED)
            continue;
        if (left < n)
            spw__ledger_uncommit(path[left], tier, bytes);
        return outcome == MEETS_GUARD && commit_guarded(group, tier, bytes);
    }
    return true;
}

void spw__ledger_descend(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__group *at = group, *parent;
    /* The parent is looked up first: a node may be used anew as soon as nothing is charged to it. */
    for (; (parent = at->parent); at = parent)
        if (!uncommit_one(at, tier, bytes)) {
            spw__mutex_lock(lock_of(at, tier));
            uncommit_locked(at, tier, bytes);
            spw__mutex_unlock(lock_of(at, tier));
            return;
        }
    spw__gate_uncommit(&at->gates[tier], bytes);
}

/* Seldom asked for, so that it is always under the lock where there is one. */
uint64_t spw__ledger_overbook(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__mutex *lock = group->parent && group->ledger ? lock_of(group, tier) : NULL;
    uint64_t most = 0;
    if (lock)
        spw__mutex_lock(lock);
    for (struct spw__group *at = group; at && bytes; at = at->parent) {
        struct spw__gate *gate = &at->gates[tier];
        const uint64_t word = atomic_fetch_add_explicit(&gate->committed, bytes, memory_order_acq_rel);
        const uint64_t before = word & ~GUARDED, budget = budget_of(at, tier);
        const uint64_t excess = before + bytes > budget ? before + bytes - budget : 0;
        most = larger(most, excess < bytes ? excess : bytes);
        spw__gate_note_peak(gate, before + bytes);
        if (word & GUARDED)
            bytes = passed_on(before + bytes, before, min_of(at, tier));
    }
    if (lock)
        spw__mutex_unlock(lock);
    return most;
}

bool spw__ledger_set_min(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    struct spw__gate *gate = &group->gates[tier];
    bool done = true;
    spw__mutex_lock(lock_of(group, tier));
    /* From here on the gate is still: who was about to change it comes to the lock. */
    const uint64_t committed = atomic_fetch_or_explicit(&gate->committed, GUARDED, memory_order_acq_rel) & ~GUARDED;
    const uint64_t old = min_of(group, tier);
    const uint64_t before = larger(committed, old), after = larger(committed, bytes);
    if (after > before)
        done = commit_locked(group->parent, tier, after - before);
    if (done) {
        atomic_store_explicit(&group->min[tier], bytes, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&group->parent->child_mins[tier], bytes - old, memory_order_relaxed);
    }
    if (after < before)
        uncommit_locked(group->parent, tier, before - after);
    if (min_of(group, tier) == 0)
        (void)atomic_fetch_and_explicit(&gate->committed, ~GUARDED, memory_order_acq_rel);
    spw__mutex_unlock(lock_of(group, tier));
    return done;
}

/* Looks */

uint64_t spw__ledger_committed(const struct spw__group *group, spw_tier tier)
{
    return word_of(group, tier) & ~GUARDED;
}

uint64_t spw__ledger_min_lack(const struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    const uint64_t had = larger(spw__ledger_committed(group, tier), min_of(group, tier));
    return bytes > had ? bytes - had : 0;
}

/* What group can be charged before those above notice. */
static uint64_t unused_min(const struct spw__group *group, spw_tier tier)
{
    const uint64_t committed = spw__ledger_committed(group, tier), min = min_of(group, tier);
    return min > committed ? min - committed : 0;
}

uint64_t spw__ledger_free_on_path(const struct spw__group *group, spw_tier tier)
{
    uint64_t least = UINT64_MAX, unused = 0;
    for (; group; group = group->parent) {
        const uint64_t committed = spw__ledger_committed(group, tier), budget = budget_of(group, tier);
        const uint64_t room = budget > committed ? budget - committed : 0;
        const uint64_t here = room < UINT64_MAX - unused ? room + unused : UINT64_MAX;
        least = here < least ? here : least;
        unused += unused_min(group, tier);
    }
    return least;
}

bool spw__ledger_within_min(const struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    for (const struct spw__group *at = group; at->parent; at = at->parent) {
        const uint64_t committed = spw__ledger_committed(at, tier), min = min_of(at, tier);
        if (committed < min && bytes <= min - committed)
            return true;
    }
    return false;
}

struct spw__group *spw__ledger_short(struct spw__group *group, spw_tier tier, uint64_t bytes)
{
    for (; group && bytes; group = group->parent) {
        if (!has_room(word_of(group, tier), budget_of(group, tier), bytes))
            return group;
        const uint64_t unused = unused_min(group, tier);
        bytes = bytes > unused ? bytes - unused : 0;
    }
    return NULL;
}

struct spw__group *spw__ledger_never_fits(struct spw__group *group, spw_tier tier, uint64_t bytes, uint64_t set_aside)
{
    const struct spw__group *from = NULL;
    for (; group; from = group, group = group->parent) {
        const uint64_t mins = atomic_load_explicit(&group->child_mins[tier], memory_order_relaxed);
        const uint64_t own = from ? min_of(from, tier) : 0;
        const uint64_t taken = (mins > own ? mins - own : 0) + (group->parent ? 0 : set_aside);
        const uint64_t budget = budget_of(group, tier);
        if (taken > budget || bytes > budget - taken)
            return group;
    }
    return NULL;
}

bool spw__group_describe(struct spw__group *group, spw_tier tier, uint64_t bytes, spw_error_info *info)
{
    const struct spw__group *lacking = spw__ledger_short(group, tier, bytes);
    if (!lacking || !lacking->parent)
        return false;
    info->limit_bytes = budget_of(lacking, tier);
    info->group_committed_bytes = spw__ledger_committed(lacking, tier);
    info->free_bytes = info->limit_bytes > info->group_committed_bytes
                           ? info->limit_bytes - info->group_committed_bytes : 0;
    memcpy(info->group, lacking->name, sizeof info->group);
    return true;
}

void spw__group_note_leaving(struct spw__group *group, spw_tier tier, int64_t bytes)
{
    for (; group; group = group->parent)
        (void)atomic_fetch_add_explicit(&group->leaving[tier], (uint64_t)bytes, memory_order_relaxed);
}
