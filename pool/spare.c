/* Caches of spare blocks. See spare.h for the states and the bounds. Neighbours: thread_cache.c (whose cache is whose),
 * range.c (what the blocks are), tier_small.c (the user). */
#include "pool/spare.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "pool/base/error.h"
#include "pool/base/units.h"

#define CACHE_BYTES_MAX (UINT64_C(512) << 20)
#define CACHES_SHARE 64u /* of the pool: all caches */
#define BLOCK_SHARE 32u  /* of a cache: one block */
#define BIN_SHARE 64u    /* of a cache: a block that a bin has room for */

#define SUB_BITS 5u /* log2 of the bins to a doubling */
#define BINS_MAX 416u
#define BIN_BLOCKS_MAX 32u
#define NEAR_BINS 2u    /* what a sixteenth more may lie in */
#define LINE_BLOCKS 16u /* that wait for the range */

#define CHUNKS_MAX 24u /* of 32-bit nodes */
#define CHUNK_BITS 9u  /* log2 of the words of the first chunk; each next one has twice as many */

/* The word of a block: its grain in the upper 30 bits, so that a name that is out of date is told from the block that
 * has its node now, and below it what it is. 0: nothing is known of the node. */
#define WORD_LIVE 1u
#define WORD_SPARE 2u
typedef _Atomic uint32_t block_word;

struct entry {
    uint64_t offset;
    uint32_t node;
    uint32_t grains;
};

struct cache {
    struct spw__cache head; /* first */
    uint32_t hand;          /* guarded by the cache's guard, as everything below: next bin to make room in */
    uint32_t n_line;
    uint64_t line_bytes;
    struct entry line[LINE_BLOCKS];
    uint64_t room_for; /* what the cache could hold when room was worked out */
    uint8_t n[BINS_MAX];
    uint8_t room[BINS_MAX]; /* n is not to grow above this */
    struct entry entries[]; /* bin b begins at spare->begins[b] */
};

struct spw__spare {
    struct spw__spare_config config;
    struct spw__caches caches;
    unsigned shift; /* log2 of the granularity */
    uint32_t n_bins;
    uint16_t begins[BINS_MAX + 1];
    block_word *_Atomic chunks[CHUNKS_MAX]; /* atomic: set once, under the pool's lock */
};

static struct spw__spare *spare_of(const struct cache *cache)
{
    return (struct spw__spare *)(void *)((char *)cache->head.of - offsetof(struct spw__spare, caches));
}

/* Words */

static size_t chunk_words(unsigned chunk)
{
    return (size_t)1 << (CHUNK_BITS + chunk);
}

/* The word of a node; NULL when none near it was ever noted. */
static block_word *word_at(const struct spw__spare *spare, uint32_t node)
{
    const uint64_t biased = (uint64_t)node + (1u << CHUNK_BITS);
    const unsigned bit = 63u - (unsigned)__builtin_clzll(biased);
    block_word *words = bit - CHUNK_BITS < CHUNKS_MAX
                            ? atomic_load_explicit(&spare->chunks[bit - CHUNK_BITS], memory_order_acquire)
                            : NULL;
    return words ? &words[biased - (UINT64_C(1) << bit)] : NULL;
}

static uint32_t word_of(const struct spw__spare *spare, uint64_t offset, uint32_t state)
{
    return (uint32_t)(offset >> spare->shift) << 2 | state;
}

void spw__spare_note_locked(struct spw__spare *spare, uint32_t node, uint64_t offset)
{
    block_word *word = word_at(spare, node);
    if (!word) {
        const unsigned chunk = 63u - CHUNK_BITS - (unsigned)__builtin_clzll((uint64_t)node + (1u << CHUNK_BITS));
        block_word *words = chunk < CHUNKS_MAX
                                ? spw__meta_alloc(spare->config.meta, chunk_words(chunk) * sizeof *words)
                                : NULL;
        if (!words)
            return;
        atomic_store_explicit(&spare->chunks[chunk], words, memory_order_release);
        word = word_at(spare, node);
    }
    atomic_store_explicit(word, word_of(spare, offset, WORD_LIVE), memory_order_relaxed);
}

/* From live to another state, which one of all who try at once does. */
static bool leave_live(block_word *word, uint32_t live, uint32_t next)
{
    return atomic_load_explicit(word, memory_order_relaxed) == live &&
           atomic_compare_exchange_strong_explicit(word, &live, next, memory_order_relaxed, memory_order_relaxed);
}

int spw__spare_forget_locked(struct spw__spare *spare, uint32_t node, uint64_t offset)
{
    block_word *word = word_at(spare, node);
    if (!word || atomic_load_explicit(word, memory_order_relaxed) == 0 ||
        leave_live(word, word_of(spare, offset, WORD_LIVE), 0))
        return SPW_OK;
    return spw__fail(SPW_EBADHANDLE, "node %" PRIu32 " is not the live block at %" PRIu64 ": it was freed already, or "
                                     "never allocated", node, offset);
}

/* Bins */

static uint32_t bin_of(uint64_t grains)
{
    const unsigned step = 63u - SUB_BITS - (unsigned)__builtin_clzll(grains | 1u << SUB_BITS);
    return (step << SUB_BITS) + (uint32_t)(grains >> step);
}

/* Smallest block of a bin, in grains. */
static uint64_t bin_grains(uint32_t bin)
{
    const uint32_t step = bin >> SUB_BITS ? (bin >> SUB_BITS) - 1 : 0;
    return (uint64_t)(bin - (step << SUB_BITS)) << step;
}

/* Blocks that a bin has room for in a cache of most bytes. Where frees and allocs of a size come at random, a bin of n
 * runs empty or full in 2 of n + 1 calls; of all ways to spend the same bytes, the fewest do where n + 1 falls with the
 * root of the size. The tenth is such that the bound of the cache itself is seldom met. */
static uint32_t bin_room(uint64_t bytes, uint64_t most)
{
    uint32_t n = 1;
    while (n < BIN_BLOCKS_MAX && (n + 2) * (n + 2) * bytes <= most / 10)
        n++;
    return bytes <= most / BIN_SHARE ? n : 0;
}

static __attribute__((noinline)) void make_room_guarded(struct cache *cache, uint64_t most)
{
    const struct spw__spare *spare = spare_of(cache);
    for (uint32_t i = 0; i < spare->n_bins; i++)
        cache->room[i] = (uint8_t)bin_room(bin_grains(i) << spare->shift, most);
    cache->room_for = most;
}

static struct entry *bin_entries(struct cache *cache, uint32_t bin)
{
    return &cache->entries[spare_of(cache)->begins[bin]];
}

/* Takes the youngest block of a bin that suits. */
static bool take_from_bin(struct cache *cache, uint32_t bin, uint32_t grains, uint64_t align, struct entry *out)
{
    struct entry *entries = bin_entries(cache, bin);
    for (uint32_t i = cache->n[bin]; i-- > 0;) {
        if (entries[i].grains < grains || entries[i].grains > grains + grains / 16 || entries[i].offset & (align - 1))
            continue;
        *out = entries[i];
        entries[i] = entries[--cache->n[bin]];
        return true;
    }
    return false;
}

static bool take_guarded(struct cache *cache, uint32_t grains, uint64_t align, struct entry *out)
{
    const uint32_t first = bin_of(grains);
    for (uint32_t bin = first; bin <= first + NEAR_BINS; bin++)
        if (cache->n[bin] && take_from_bin(cache, bin, grains, align, out))
            return true;
    return false;
}

/* Giving back, guarded */

static void give_locked(struct spw__spare *spare, const struct entry *entries, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        atomic_store_explicit(word_at(spare, entries[i].node), 0, memory_order_relaxed);
        (void)spw__range_free(spare->config.range, entries[i].node);
    }
}

/* Gives the line back. The bytes are still charged. */
static uint64_t give_line_locked(struct cache *cache)
{
    const uint64_t bytes = cache->line_bytes;
    give_locked(spare_of(cache), cache->line, cache->n_line);
    cache->head.bytes -= bytes;
    cache->line_bytes = 0;
    cache->n_line = 0;
    return bytes;
}

static uint64_t give_bin_locked(struct cache *cache, uint32_t bin)
{
    const struct entry *entries = bin_entries(cache, bin);
    uint64_t grains = 0;
    for (uint32_t i = 0; i < cache->n[bin]; i++)
        grains += entries[i].grains;
    give_locked(spare_of(cache), entries, cache->n[bin]);
    cache->n[bin] = 0;
    cache->head.bytes -= grains << spare_of(cache)->shift;
    return grains << spare_of(cache)->shift;
}

/* Gives back the line, and bins in turn (what is in use now comes back by itself) until most bytes are left. */
static __attribute__((noinline)) void shrink_guarded(struct cache *cache, uint64_t most)
{
    struct spw__spare *spare = spare_of(cache);
    spw__mutex_lock_soon(spare->config.lock);
    uint64_t bytes = give_line_locked(cache);
    while (cache->head.bytes > most) {
        cache->hand = (cache->hand + 1) % spare->n_bins;
        if (cache->n[cache->hand])
            bytes += give_bin_locked(cache, cache->hand);
    }
    spw__mutex_unlock(spare->config.lock);
    spw__ledger_uncommit(cache->head.group, spare->config.tier, bytes);
}

static void flush_all_guarded(struct spw__cache *head)
{
    shrink_guarded((struct cache *)(void *)head, 0);
}

/* Life cycle */

int spw__spare_create(const struct spw__spare_config *config, struct spw__spare **out)
{
    struct spw__spare *spare = spw__meta_alloc(config->meta, sizeof *spare);
    *out = NULL;
    if (!spare)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the spare blocks of a pool; raise meta=");
    spare->config = *config;
    spare->shift = (unsigned)__builtin_ctz(config->granularity);
    spare->n_bins = bin_of(SPW__SPARE_LARGEST >> spare->shift) + 1;
    const uint64_t most = spw__smaller(CACHE_BYTES_MAX, config->size / CACHES_SHARE);
    for (uint32_t i = 0; i < spare->n_bins; i++)
        spare->begins[i + 1] = (uint16_t)(spare->begins[i] + bin_room(bin_grains(i) << spare->shift, most));
    spare->caches = (struct spw__caches){
        .cache_size = sizeof(struct cache) + spare->begins[spare->n_bins] * sizeof(struct entry),
        .share_bytes = config->size / CACHES_SHARE, .most_bytes = CACHE_BYTES_MAX, .tier = config->tier,
        .meta = config->meta, .waits = config->waits, .counters = config->counters,
        .count_allocs = config->count_allocs, .count_bytes = config->count_bytes, .flush = flush_all_guarded};
    spw__caches_init(&spare->caches);
    *out = spare;
    return SPW_OK;
}

void spw__spare_destroy(struct spw__spare *spare)
{
    if (!spare)
        return;
    spw__caches_finish(&spare->caches);
    for (unsigned i = 0; i < CHUNKS_MAX; i++)
        spw__meta_free(spare->config.meta, atomic_load(&spare->chunks[i]), chunk_words(i) * sizeof(block_word));
    spw__meta_free(spare->config.meta, spare, sizeof *spare);
}

/* Operations */

/* From the range, in exchange for the line: what that was charged pays for the block as far as it goes. */
static __attribute__((noinline)) int alloc_from_range_guarded(struct cache *cache, uint64_t bytes, uint64_t align,
                                                              struct spw__spare_block *out)
{
    struct spw__spare *spare = spare_of(cache);
    struct spw__group *group = cache->head.group;
    const spw_tier tier = spare->config.tier;
    uint64_t charged = cache->line_bytes;
    int rc = SPW_OK;
    if (charged < bytes && spw__ledger_commit(group, tier, bytes - charged))
        charged = bytes;
    spw__mutex_lock_soon(spare->config.lock);
    (void)give_line_locked(cache);
    rc = charged < bytes ? SPW_ENOMEM
                         : spw__range_alloc(spare->config.range, bytes, align, &out->node, &out->offset);
    if (rc == SPW_OK)
        spw__spare_note_locked(spare, out->node, out->offset);
    spw__mutex_unlock(spare->config.lock);
    out->bytes = bytes;
    spw__ledger_uncommit(group, tier, rc == SPW_OK ? charged - bytes : charged);
    return rc;
}

int spw__spare_alloc(struct spw__spare *spare, struct spw__group *group, uint64_t bytes, uint64_t align,
                     bool may_register, struct spw__spare_block *out)
{
    const uint32_t grains = (uint32_t)(bytes >> spare->shift);
    struct spw__cache *head = spw__cache_own(&spare->caches);
    struct entry found;
    int rc = SPW_OK;
    if (!head && may_register)
        head = spw__cache_register(&spare->caches, group);
    if (!head)
        return SPW_ENOMETA;
    struct cache *cache = (struct cache *)(void *)head;
    spw__cache_guard(head);
    if (head->group != group) {
        (void)spw__cache_drain_guarded(head);
        head->group = group;
    }
    if (take_guarded(cache, grains, align, &found)) {
        *out = (struct spw__spare_block){found.offset, (uint64_t)found.grains << spare->shift, found.node};
        head->bytes -= out->bytes;
        atomic_store_explicit(word_at(spare, found.node), word_of(spare, found.offset, WORD_LIVE),
                              memory_order_relaxed);
    } else {
        rc = alloc_from_range_guarded(cache, bytes, align, out);
    }
    if (rc == SPW_OK) {
        head->allocs++;
        head->alloc_bytes += out->bytes;
    }
    spw__cache_unguard(head);
    return rc;
}

/* Puts a block into its bin, or in line when that is full. */
static void put_guarded(struct cache *cache, uint64_t offset, uint64_t bytes, uint32_t node, uint64_t most)
{
    const struct spw__spare *spare = spare_of(cache);
    const struct entry entry = {offset, node, (uint32_t)(bytes >> spare->shift)};
    const uint32_t bin = bin_of(entry.grains), n = cache->n[bin];
    cache->head.bytes += bytes;
    if (cache->room_for != most)
        make_room_guarded(cache, most);
    if (n < cache->room[bin]) {
        cache->entries[spare->begins[bin] + n] = entry;
        cache->n[bin] = (uint8_t)(n + 1);
    } else {
        cache->line[cache->n_line++] = entry;
        cache->line_bytes += bytes;
    }
    if (cache->n_line == LINE_BLOCKS || cache->head.bytes > most)
        shrink_guarded(cache, most);
}

bool spw__spare_keep(struct spw__spare *spare, struct spw__group *group, uint64_t offset, uint64_t bytes,
                     uint32_t node)
{
    block_word *word = word_at(spare, node);
    __builtin_prefetch(word, 1);
    struct spw__cache *cache = spw__cache_own(&spare->caches);
    if (!cache || !word || bytes > SPW__SPARE_LARGEST)
        return false;
    spw__cache_guard(cache);
    const uint64_t most = spw__cache_most(cache);
    const bool kept = cache->group == group && bytes <= most / BLOCK_SHARE && !spw__caches_lacking(&spare->caches) &&
                      leave_live(word, word_of(spare, offset, WORD_LIVE), word_of(spare, offset, WORD_SPARE));
    if (kept)
        put_guarded((struct cache *)(void *)cache, offset, bytes, node, most);
    spw__cache_unguard(cache);
    return kept;
}

uint64_t spw__spare_drain(struct spw__spare *spare)
{
    return spw__caches_drain(&spare->caches);
}

uint64_t spw__spare_cached_most(const struct spw__spare *spare)
{
    return spw__caches_most(&spare->caches);
}

/* The expensive check */

static bool check_entry(const struct spw__spare *spare, const struct entry *entry, uint32_t bin)
{
    const struct spw__range *range = spare->config.range;
    const char *what = NULL;
    if (bin != UINT32_MAX && bin_of(entry->grains) != bin)
        what = "is in the bin of another size";
    else if (atomic_load(word_at(spare, entry->node)) != word_of(spare, entry->offset, WORD_SPARE))
        what = "is not said to be one, or lies in two places";
    else if (spw__range_first_live(range, entry->offset) != entry->node ||
             spw__range_offset(range, entry->node) != entry->offset ||
             spw__range_bytes(range, entry->node) != (uint64_t)entry->grains << spare->shift)
        what = "is not the allocation that it was";
    if (what)
        (void)fprintf(stderr, "spillway: the spare block of node %" PRIu32 " %s\n", entry->node, what);
    /* For the time of the check it is live: an entry that names it again is found out. */
    atomic_store(word_at(spare, entry->node), word_of(spare, entry->offset, WORD_LIVE));
    return !what;
}

static bool check_cache(const struct spw__spare *spare, struct cache *cache, struct spw__spare_usage *usage)
{
    uint64_t grains = 0;
    bool good = true;
    for (uint32_t bin = 0; bin < spare->n_bins; bin++)
        for (uint32_t i = 0; i < cache->n[bin]; i++, usage->blocks++) {
            good &= check_entry(spare, &bin_entries(cache, bin)[i], bin);
            grains += bin_entries(cache, bin)[i].grains;
        }
    for (uint32_t i = 0; i < cache->n_line; i++, usage->blocks++) {
        good &= check_entry(spare, &cache->line[i], UINT32_MAX);
        grains += cache->line[i].grains;
    }
    usage->bytes += grains << spare->shift;
    usage->caches++;
    if (grains << spare->shift == cache->head.bytes)
        return good;
    (void)fprintf(stderr, "spillway: a cache does not hold the bytes that it says\n");
    return false;
}

/* Words are as they were before. */
static void restore_words(const struct spw__spare *spare, struct cache *cache)
{
    for (uint32_t bin = 0; bin < spare->n_bins; bin++)
        for (uint32_t i = 0; i < cache->n[bin]; i++) {
            const struct entry *entry = &bin_entries(cache, bin)[i];
            atomic_store(word_at(spare, entry->node), word_of(spare, entry->offset, WORD_SPARE));
        }
    for (uint32_t i = 0; i < cache->n_line; i++)
        atomic_store(word_at(spare, cache->line[i].node), word_of(spare, cache->line[i].offset, WORD_SPARE));
}

bool spw__spare_check(struct spw__spare *spare, struct spw__spare_usage *usage)
{
    bool good = true;
    *usage = (struct spw__spare_usage){.bytes = 0};
    for (struct spw__cache *cache = spare->caches.first; cache; cache = cache->next)
        good &= check_cache(spare, (struct cache *)(void *)cache, usage);
    for (struct spw__cache *cache = spare->caches.first; cache; cache = cache->next)
        restore_words(spare, (struct cache *)(void *)cache);
    return good;
}
