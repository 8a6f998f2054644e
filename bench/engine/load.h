/* Loading: a table's rows into buffers, each source byte read once.
 *
 * A table is a list of row groups; a group has one sealed buffer for each of its four columns, wherever they were
 * admitted. Loading straight into the admitted memory when the CPU can reach it; through a small scratch when not.
 *
 * Threads: eng_load runs the crew. Ownership: a table owns its groups' buffers until the partition phase takes them.
 */
#ifndef ENGINE_LOAD_H
#define ENGINE_LOAD_H

#include "crew.h"
#include "source.h"
#include "store.h"

struct eng_group {
    spw_buffer *columns[ENG_COLUMNS]; /* NULL: not loaded, or taken */
    int64_t first;
    uint32_t rows;
};

struct eng_table {
    const struct eng_source *source;
    struct eng_group *groups;
    uint32_t n_groups;
};

/* Cuts a table into groups of at most group_rows; nothing is loaded yet. */
int eng_table_init(struct eng_table *table, const struct eng_source *source, uint32_t group_rows,
                   struct eng_error *error);
void eng_table_finish(struct eng_table *table);

/* Loads both tables, partsupp first. */
int eng_load(struct eng_table tables[ENG_SIDES], const struct eng_store *store, struct eng_crew *crew,
             struct eng_error *error);

#endif
