/* Keeps a generated pair of tables as column shards, in the layout that npy.h reads:
 * FOLDER/lineitem/l_partkey/shard_0000.npy, ... and FOLDER/partsupp/ps_partkey/shard_0000.npy, ...
 * l_orderkey and l_linenumber are kept too; the join ignores them.
 *
 * A table is written under a temporary name and renamed when it is complete, so that nobody ever finds half of one.
 */
#ifndef ENGINE_WRITE_H
#define ENGINE_WRITE_H

#include <signal.h>
#include <stdint.h>

#include "error.h"
#include "tpch.h"

/* Rows of a shard; the last one of a column may be shorter. */
#define ENG_SHARD_ROWS INT64_C(1048576)

/* Writes both tables below folder, which is created when it alone is missing. Fails, leaving nothing behind, when a
 * table is there already, when the disk is full, or (ENG_STOPPED) once *stop is not 0. Blocks on the file system. */
int eng_write_tables(const struct tpch *tpch, const char *folder, const volatile sig_atomic_t *stop,
                     struct eng_error *error);

#endif
