/* The check of the join: the same question answered by a sort-merge join on plain memory, with a loader of its own.
 *
 * It shares nothing with the hash join but the names of the columns: neither npy.c nor source.c nor the library.
 * Memory: 32 bytes for each row of both tables, outside every budget.
 */
#ifndef ENGINE_VERIFY_H
#define ENGINE_VERIFY_H

#include "error.h"
#include "join.h"
#include "tpch.h"

/* Where a table is to be read from: tpch, or else a folder. */
struct eng_verify_input {
    const struct tpch *tpch;
    const char *folder;
};

int eng_verify(const struct eng_verify_input inputs[ENG_SIDES], struct eng_answer *answer, struct eng_error *error);

/* The part behind the loading, for tests: sorts both arrays in place and merges them. */
struct eng_verify_row {
    int64_t key1, key2, factor, addend;
};
void eng_verify_merge(struct eng_verify_row *partsupp, size_t n_partsupp, struct eng_verify_row *lineitem,
                      size_t n_lineitem, struct eng_answer *answer);

#endif
