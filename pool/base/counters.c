/* Sharded event counters: each thread is dealt a shard at its first count. */
#include "pool/base/counters.h"

_Thread_local unsigned spw__counter_mine;

unsigned spw__counter_deal(void)
{
    static _Atomic unsigned next;
    spw__counter_mine = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % SPW__COUNTER_SHARDS + 1;
    return spw__counter_mine;
}

uint64_t spw__counter_sum(const struct spw__counters *counters, unsigned which)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < SPW__COUNTER_SHARDS; i++)
        sum += atomic_load_explicit(&counters->shard[i].value[which], memory_order_relaxed);
    return sum;
}
