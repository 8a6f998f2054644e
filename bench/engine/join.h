/* The partitioned hash join, from sources to four numbers:
 *
 *     SELECT count(*), sum(l_extendedprice), sum(ps_supplycost * l_quantity), sum(ps_availqty)
 *     FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
 *
 * Mode hold: both tables are held in buffers before the join begins, as after a shuffle. Then
 *     partition   row groups are read back, packed row by row, and scattered into partitions; a consumed group is freed
 *     join        pairs of partitions, once all are complete
 *
 * Threads: one call at a time. Ownership: the caller's manager holds no buffer of ours once eng_join returns.
 */
#ifndef ENGINE_JOIN_H
#define ENGINE_JOIN_H

#include <signal.h>

#include <spillway/spillway.h>

#include "error.h"
#include "sizing.h"
#include "source.h"

/* Sums as two's complement in 128 bits. */
struct eng_answer {
    __int128 rows;
    __int128 sum_extendedprice;
    __int128 sum_supplycost_x_quantity;
    __int128 sum_availqty;
};

struct eng_times {
    double load_s, partition_s, join_s;
};

struct eng_join_options {
    int has_disk;                           /* the manager can spill */
    int show_progress;                      /* on stderr */
    const volatile sig_atomic_t *interrupt; /* not 0: end with ENG_STOPPED. NULL: none */
};

int eng_join(spw_manager *manager, const struct eng_plan *plan, const struct eng_source sources[ENG_SIDES],
             const struct eng_join_options *options, struct eng_answer *answer, struct eng_times *times,
             struct eng_error *error);

/* Decimal text of a 128-bit number; out has room for ENG_NUMBER_MAX bytes. Returns out. */
#define ENG_NUMBER_MAX 48
char *eng_number(__int128 value, char out[ENG_NUMBER_MAX]);

#endif
