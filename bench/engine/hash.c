/* The hash table of the join. Neighbour: pair.c, which fills and probes it. */
#include "hash.h"

#include <string.h>

/* Keys of more rows than this get totals. Each such key has 17 rows or more, so totals cost 3 bytes a row at most. */
#define WALK_MAX 16u

/* Per row: the entry, up to 8 bytes of buckets (a power of two between rows and 2 * rows), 3 of totals. */
#define ROW_BYTES 51u
#define FIXED_BYTES 256u

void eng_hash_batch(struct eng_batch *batch, size_t n, unsigned depth)
{
    uint64_t salt = depth * UINT64_C(0xd6e8feb86659fd93);
    for (size_t i = 0; i < n; i++)
        batch->hash[i] = eng_hash(batch->key1[i], batch->key2[i], salt);
}

uint32_t eng_hash_capacity(size_t bytes)
{
    size_t rows = bytes < FIXED_BYTES ? 0 : (bytes - FIXED_BYTES) / ROW_BYTES;
    return rows < ENG_TOTALS - 1 ? (uint32_t)rows : ENG_TOTALS - 1;
}

size_t eng_hash_bytes(uint64_t rows)
{
    return (size_t)rows * ROW_BYTES + FIXED_BYTES;
}

void eng_hash_find(struct eng_hashtable *table, void *memory)
{
    char *at = memory;
    table->totals = (struct eng_totals *)at;
    at += sizeof(struct eng_totals) * (table->capacity / (WALK_MAX + 1) + 1);
    table->entries = (struct eng_entry *)at;
    at += sizeof(struct eng_entry) * table->capacity;
    table->heads = (uint32_t *)at;
}

void eng_hash_begin(struct eng_hashtable *table, void *memory, uint32_t rows)
{
    uint64_t buckets = 16;
    while (buckets < rows)
        buckets *= 2;
    table->capacity = rows;
    table->used = table->dups = table->n_totals = 0;
    table->mask = buckets - 1;
    eng_hash_find(table, memory);
    memset(table->heads, 0, buckets * sizeof *table->heads);
}

void eng_hash_add(struct eng_hashtable *table, const struct eng_batch *batch, size_t n)
{
    struct eng_entry *entries = table->entries;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(&table->heads[batch->hash[i] & table->mask], 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t *head = &table->heads[batch->hash[i] & table->mask];
        uint32_t new_index = table->used++;
        struct eng_entry *row = &entries[new_index];
        uint32_t same = *head;
        row->key1 = batch->key1[i];
        row->key2 = batch->key2[i];
        row->factor = batch->factor[i];
        row->addend = batch->addend[i];
        while (same != 0 && (entries[same - 1].key1 != row->key1 || entries[same - 1].key2 != row->key2))
            same = entries[same - 1].next;
        if (same == 0) {
            row->next = *head;
            row->dup = 0;
            *head = new_index + 1;
        } else {
            row->next = 0;
            row->dup = entries[same - 1].dup;
            entries[same - 1].dup = new_index + 1;
            table->dups++;
        }
    }
}

static inline eng_u128 widen(int64_t value)
{
    __int128 wide = value;
    return (eng_u128)wide;
}

static void total_key(struct eng_hashtable *table, struct eng_entry *first)
{
    struct eng_totals sum = {0, 0, 0};
    const struct eng_entry *row = first;
    for (;;) {
        sum.rows++;
        sum.factor += widen(row->factor);
        sum.addend += widen(row->addend);
        if (row->dup == 0)
            break;
        row = &table->entries[row->dup - 1];
    }
    if (sum.rows > WALK_MAX) {
        table->totals[table->n_totals] = sum;
        first->dup = ENG_TOTALS + table->n_totals++;
    }
}

void eng_hash_finish(struct eng_hashtable *table)
{
    if (table->dups < WALK_MAX)
        return;
    for (uint64_t bucket = 0; bucket <= table->mask; bucket++) {
        for (uint32_t at = table->heads[bucket]; at != 0; at = table->entries[at - 1].next)
            total_key(table, &table->entries[at - 1]);
    }
}

/* All rows of the build side that have the key of row against one row of the probe side. */
static inline void match(const struct eng_hashtable *table, const struct eng_entry *row, int64_t factor, int64_t addend,
                         struct eng_sums *sums)
{
    if (row->dup >= ENG_TOTALS) {
        const struct eng_totals *totals = &table->totals[row->dup - ENG_TOTALS];
        sums->rows += totals->rows;
        sums->products += totals->factor * widen(factor);
        sums->build_addend += totals->addend;
        sums->probe_addend += totals->rows * widen(addend);
        return;
    }
    for (;;) {
        sums->rows++;
        sums->products += (eng_u128)((__int128)row->factor * factor);
        sums->build_addend += widen(row->addend);
        sums->probe_addend += widen(addend);
        if (row->dup == 0)
            return;
        row = &table->entries[row->dup - 1];
    }
}

void eng_hash_probe(const struct eng_hashtable *table, const struct eng_batch *batch, size_t n, struct eng_sums *sums)
{
    const struct eng_entry *entries = table->entries;
    struct eng_sums local = {0, 0, 0, 0};
    uint32_t first[ENG_BATCH];
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(&table->heads[batch->hash[i] & table->mask]);
    for (size_t i = 0; i < n; i++) {
        first[i] = table->heads[batch->hash[i] & table->mask];
        if (first[i] != 0)
            __builtin_prefetch(&entries[first[i] - 1]);
    }
    for (size_t i = 0; i < n; i++) {
        for (uint32_t at = first[i]; at != 0; at = entries[at - 1].next) {
            const struct eng_entry *row = &entries[at - 1];
            if (row->key1 == batch->key1[i] && row->key2 == batch->key2[i]) {
                match(table, row, batch->factor[i], batch->addend[i], &local);
                break;
            }
        }
    }
    eng_sums_add(sums, &local);
}

void eng_sums_add(struct eng_sums *sums, const struct eng_sums *more)
{
    sums->rows += more->rows;
    sums->products += more->products;
    sums->build_addend += more->build_addend;
    sums->probe_addend += more->probe_addend;
}
