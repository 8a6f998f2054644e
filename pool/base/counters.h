/* Event counters: sharded by thread so that counting costs nanoseconds; exact when summed. Threads: any. */
#ifndef SPW_BASE_COUNTERS_H
#define SPW_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#define SPW__COUNTER_SHARDS 8u
#define SPW__COUNTERS_MAX 160u

struct spw__counters {
    struct {
        _Alignas(64) _Atomic uint64_t value[SPW__COUNTERS_MAX]; /* atomic */
    } shard[SPW__COUNTER_SHARDS];
};

/* Shard + 1 of the calling thread; 0: not dealt yet. Owner thread only. It lies in the threads' static block, of which
 * it takes a word even from a library that is loaded late: else each look at it would be a call of the loader's. */
extern _Thread_local unsigned spw__counter_mine __attribute__((tls_model("initial-exec")));

unsigned spw__counter_deal(void); /* Returns what is now in spw__counter_mine. */

static inline unsigned spw__counter_shard(void) /* of the calling thread */
{
    return (spw__counter_mine ? spw__counter_mine : spw__counter_deal()) - 1;
}

static inline void spw__count(struct spw__counters *counters, unsigned which, uint64_t amount)
{
    (void)atomic_fetch_add_explicit(&counters->shard[spw__counter_shard()].value[which], amount, memory_order_relaxed);
}

uint64_t spw__counter_sum(const struct spw__counters *counters, unsigned which);

#endif
