/* Raw blocks by address. Neighbours: pool.c, the only user. */
#include "src/core/raw.h"

#include "pool/base/error.h"

/* Addresses and sizes are multiples of a tier's granularity, 64 or more. Two entries a cache line: with 100 000 live
 * blocks a look costs one miss, where chains of larger entries took three. */
enum { GRAIN_BITS = 6 };

struct spw__raw_entry {
    uint64_t address_grains : 52; /* 0: the entry is not used */
    uint64_t pool : 10;
    uint64_t tier : 2;
    uint64_t grains : 56;
    uint64_t slot : 8;
    struct spw__group *group;
    uint32_t node;
    uint32_t serial;
};
_Static_assert(sizeof(struct spw__raw_entry) == 32, "two entries a cache line");

enum { FIRST_ROOM = 16 };

void spw__raw_init(struct spw__raw *raw, struct spw__meta *meta)
{
    raw->meta = meta;
    for (unsigned i = 0; i < SPW__MEMORY_TIERS; i++)
        spw__gate_init(&raw->live_bytes[i], UINT64_MAX);
    for (unsigned i = 0; i < SPW__RAW_SHARDS; i++)
        spw__mutex_init(&raw->shards[i].lock, SPW__RANK_RAW);
}

void spw__raw_finish(struct spw__raw *raw)
{
    for (unsigned i = 0; i < SPW__RAW_SHARDS; i++) {
        struct spw__raw_shard *shard = &raw->shards[i];
        spw__meta_free(raw->meta, shard->entries, shard->room * sizeof *shard->entries);
        spw__mutex_finish(&shard->lock);
    }
}

static uint64_t hash(uint64_t address_grains)
{
    return address_grains * UINT64_C(0x9e3779b97f4a7c15);
}

static struct spw__raw_shard *shard_of(struct spw__raw *raw, uint64_t address)
{
    return &raw->shards[hash(address >> GRAIN_BITS) >> 59];
}
_Static_assert(SPW__RAW_SHARDS == 32, "the five highest bits of the hash");

static uint32_t home(const struct spw__raw_shard *shard, uint64_t address_grains)
{
    return (uint32_t)(hash(address_grains) >> 27) & (shard->room - 1);
}

/* Where the entry of the address is, or the unused one where it would be. There always is an unused one. */
static uint32_t find_locked(const struct spw__raw_shard *shard, uint64_t address_grains)
{
    uint32_t at = home(shard, address_grains);
    while (shard->entries[at].address_grains && shard->entries[at].address_grains != address_grains)
        at = (at + 1) & (shard->room - 1);
    return at;
}

/* Makes room for one more: doubles at three quarters. Without memory the table is filled to the last entry but one. */
static bool provide_locked(struct spw__raw *raw, struct spw__raw_shard *shard)
{
    const uint32_t room = shard->room;
    struct spw__raw_entry *const old = shard->entries;
    if (shard->used < room / 4 * 3)
        return true;
    const uint32_t doubled = room ? room * 2 : FIRST_ROOM;
    struct spw__raw_entry *entries = doubled ? spw__meta_alloc(raw->meta, doubled * sizeof *entries) : NULL;
    if (!entries)
        return shard->used + 1 < room;
    shard->entries = entries;
    shard->room = doubled;
    for (uint32_t i = 0; i < room; i++)
        if (old[i].address_grains)
            entries[find_locked(shard, old[i].address_grains)] = old[i];
    spw__meta_free(raw->meta, old, room * sizeof *old);
    return true;
}

/* Takes an entry out and moves up those behind it that were displaced by it. */
static void remove_locked(struct spw__raw_shard *shard, uint32_t hole)
{
    const uint32_t mask = shard->room - 1;
    for (uint32_t at = (hole + 1) & mask; shard->entries[at].address_grains; at = (at + 1) & mask) {
        const uint32_t wants = home(shard, shard->entries[at].address_grains);
        if (((at - wants) & mask) < ((at - hole) & mask))
            continue; /* its home lies behind the hole */
        shard->entries[hole] = shard->entries[at];
        hole = at;
    }
    shard->entries[hole].address_grains = 0;
    shard->used--;
}

int spw__raw_insert(struct spw__raw *raw, const struct spw__block *block, uint64_t *serial)
{
    struct spw__raw_shard *shard = shard_of(raw, block->address);
    const uint64_t address_grains = block->address >> GRAIN_BITS;
    spw__mutex_lock(&shard->lock);
    const bool provided = provide_locked(raw, shard);
    if (provided) {
        shard->serial += shard->serial == UINT32_MAX ? 2 : 1;
        shard->entries[find_locked(shard, address_grains)] = (struct spw__raw_entry){
            .address_grains = address_grains & ((UINT64_C(1) << 52) - 1), .pool = block->pool & 0x3ffu,
            .tier = block->tier & 3u, .grains = (block->bytes >> GRAIN_BITS) & ((UINT64_C(1) << 56) - 1),
            .slot = block->slot, .group = block->group, .node = block->node, .serial = shard->serial};
        *serial = shard->serial;
        shard->used++;
        shard->live[block->tier]++;
        shard->allocs[block->tier]++;
    }
    spw__mutex_unlock(&shard->lock);
    if (!provided)
        return spw__fail(SPW_ENOMETA, "no metadata memory to remember a raw block by; raise meta=");
    (void)spw__gate_commit(&raw->live_bytes[block->tier], block->bytes);
    return SPW_OK;
}

bool spw__raw_look(struct spw__raw *raw, uint64_t address, uint64_t serial, bool take, struct spw__block *out)
{
    struct spw__raw_shard *shard = shard_of(raw, address);
    bool found = false;
    if (address % (1u << GRAIN_BITS) != 0)
        return false;
    spw__mutex_lock(&shard->lock);
    if (shard->room) {
        const uint32_t at = find_locked(shard, address >> GRAIN_BITS);
        const struct spw__raw_entry *entry = &shard->entries[at];
        found = entry->address_grains && (serial == SPW__RAW_ANY || entry->serial == serial);
        if (found)
            *out = (struct spw__block){.address = address, .bytes = (uint64_t)entry->grains << GRAIN_BITS,
                                       .group = entry->group, .node = entry->node, .pool = (uint16_t)entry->pool,
                                       .tier = (uint8_t)entry->tier, .slot = (uint8_t)entry->slot};
        if (found && take) {
            remove_locked(shard, at);
            shard->live[out->tier]--;
        }
    }
    spw__mutex_unlock(&shard->lock);
    if (found && take)
        spw__gate_uncommit(&raw->live_bytes[out->tier], out->bytes);
    return found;
}

struct spw__raw_usage spw__raw_usage(struct spw__raw *raw, spw_tier tier)
{
    struct spw__raw_usage usage = {.live_bytes = atomic_load(&raw->live_bytes[tier].committed),
                                   .peak_bytes = atomic_load(&raw->live_bytes[tier].peak)};
    for (unsigned i = 0; i < SPW__RAW_SHARDS; i++) {
        spw__mutex_lock(&raw->shards[i].lock);
        usage.allocs += raw->shards[i].allocs[tier];
        usage.live += raw->shards[i].live[tier];
        spw__mutex_unlock(&raw->shards[i].lock);
    }
    return usage;
}
