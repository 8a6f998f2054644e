/* How a join is cut so that it runs within its budgets: threads, row groups, partitions, chunks, working memory.
 *
 * Memory that is mapped cannot be pushed out. All threads together keep at most half of the work place mapped, so that
 * what they wait for can always be made:
 *
 *     half of (the work place's largest pool - staging) = threads * share
 *     share = 5/8 work memory (the scatter's areas, then the hash table) + 1/4 a row group + 1/8 chunks on their way
 *
 * On the device two row groups share the quarter: one is brought while the other is worked on.
 *
 * Threads: pure functions.
 */
#ifndef ENGINE_SIZING_H
#define ENGINE_SIZING_H

#include <spillway/spillway.h>

#include "error.h"
#include "source.h"

/* The smallest workable budgets: this much of the work place (without staging) for each thread, and this much of any
 * tier that exists. --help and docs/bench_join.md state them. */
#define ENG_WORK_MIN (UINT64_C(1536) << 10)
#define ENG_TIER_MIN (UINT64_C(1) << 20)

/* Where rows are worked on. AUTO: on the device where its budget has ENG_WORK_MIN for each thread, or for each CPU when
 * the number of threads is not given; else on the host. */
enum eng_work { ENG_WORK_AUTO, ENG_WORK_HOST, ENG_WORK_DEVICE };

struct eng_plan {
    unsigned threads;
    spw_place work;         /* device, or host, or pinned_host where there is no host tier */
    uint64_t staging_bytes; /* what the library sets aside, by its documented default or the spec */
    uint64_t work_bytes;    /* working memory of a thread */
    uint32_t group_rows;
    uint32_t fanout;        /* partitions */
    uint32_t chunk_bytes;   /* at most; a partition's area in the working memory may be less */
};

/* Bytes of all pools of a tier. */
uint64_t eng_tier_bytes(const spw_spec *spec, spw_tier tier);

/* Plans the join of the two sources. threads 0: as many as there are CPUs, fewer when the budgets are small. */
int eng_plan_make(struct eng_plan *plan, const spw_spec *spec, enum eng_work work, unsigned threads,
                  const struct eng_source sources[ENG_SIDES], struct eng_error *error);

/* Partitions and bytes of each partition's chunk for a scatter whose build side has build_rows, in a thread's working
 * memory: enough partitions for their hash tables to fit, but chunks large enough to be worth an I/O. */
void eng_plan_scatter(const struct eng_plan *plan, uint64_t build_rows, uint32_t least, uint32_t *fanout,
                      uint32_t *chunk_bytes);

#endif
