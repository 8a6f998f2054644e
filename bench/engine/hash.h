/* The hash join's inner part: hashing of keys, and a hash table over build rows in memory that it is given.
 *
 * Keys are hashed as int64, so that int32 and int64 columns of equal value meet. Each row keeps its place in one of two
 * lists: the rows of a bucket that differ in their key (next), and behind each of them the rows of the same key (dup).
 * A key of many rows gets their totals once the table is complete, so that a probe of it costs one step, not many.
 *
 * Threads: a table belongs to one thread. Ownership: the memory belongs to the caller.
 */
#ifndef ENGINE_HASH_H
#define ENGINE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ENG_BATCH 512u /* rows decoded at once: five columns of them stay in the first-level cache */

/* Rows as int64 columns. */
struct eng_batch {
    int64_t key1[ENG_BATCH], key2[ENG_BATCH], factor[ENG_BATCH], addend[ENG_BATCH];
    uint64_t hash[ENG_BATCH];
};

/* What the join adds up, modulo 2^128: two's complement, so that negative sums come out right. */
typedef unsigned __int128 eng_u128;
struct eng_sums {
    eng_u128 rows;
    eng_u128 products;     /* build factor * probe factor */
    eng_u128 build_addend;
    eng_u128 probe_addend;
};

static inline uint64_t eng_hash(int64_t key1, int64_t key2, uint64_t salt)
{
    uint64_t x = (uint64_t)key1 * UINT64_C(0x9e3779b97f4a7c15) + salt;
    x ^= x >> 32;
    x += (uint64_t)key2 * UINT64_C(0xc2b2ae3d27d4eb4f);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 32)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 29);
}

/* Hashes the first n keys of a batch. Depth 0 is what tables and the first partitioning use; each level of
 * repartitioning has a hash of its own. */
void eng_hash_batch(struct eng_batch *batch, size_t n, unsigned depth);

struct eng_entry {
    int64_t key1, key2, factor, addend;
    uint32_t next; /* index + 1 of the bucket's next key, 0: none */
    uint32_t dup;  /* index + 1 of the next row of this key, 0: none; or ENG_TOTALS + index of the key's totals */
};

#define ENG_TOTALS UINT32_C(0x80000000)

/* Totals over all rows of one key. */
struct eng_totals {
    eng_u128 rows, factor, addend;
};

struct eng_hashtable {
    struct eng_entry *entries;
    uint32_t *heads; /* mask + 1 buckets: index + 1 of the first key, 0: none */
    struct eng_totals *totals;
    uint32_t capacity, used, dups, n_totals;
    uint64_t mask;
};

/* How many rows fit into bytes of memory, and how many bytes that many rows want. */
uint32_t eng_hash_capacity(size_t bytes);
size_t eng_hash_bytes(uint64_t rows);

/* Lays out an empty table for at most rows rows in memory (64-byte aligned; eng_hash_bytes(rows) of it). */
void eng_hash_begin(struct eng_hashtable *table, void *memory, uint32_t rows);

/* Says where the memory of a table that was begun is to be found from here on: each launched function sees the device's
 * at an address of its own. */
void eng_hash_find(struct eng_hashtable *table, void *memory);

/* Adds the first n rows of a batch whose hashes are those of depth 0. */
void eng_hash_add(struct eng_hashtable *table, const struct eng_batch *batch, size_t n);

/* Completes the table: to be called once, between the last add and the first probe. */
void eng_hash_finish(struct eng_hashtable *table);

/* Joins the first n rows of a batch with the table and adds what matches to sums. */
void eng_hash_probe(const struct eng_hashtable *table, const struct eng_batch *batch, size_t n, struct eng_sums *sums);

void eng_sums_add(struct eng_sums *sums, const struct eng_sums *more);

#endif
