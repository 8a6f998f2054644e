/* Sharded event counters: each thread is dealt a shard at its first count. */
#include "pool/base/counters.h"

unsigned spw__counter_shard(void)
{
    static _Atomic unsigned next;
    static _Thread_local unsigned mine; /* shard + 1; 0: not dealt yet */
    if (mine == 0)
        mine = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SPW__COUNTER_SHARDS + 1;
    return mine - 1;
}

uint64_t spw__counter_sum(const struct spw__counters *counters, unsigned which)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SPW__COUNTER_SHARDS; i++)
        sum += atomic_load_explicit(&counters->shard[i].value[which], memory_order_relaxed);
    return sum;
}
