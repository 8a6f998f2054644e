/* The simulated driver's table: each entry point behind a counter that makes its n-th call fail.
 *
 * A call that fails does nothing else, as on CUDA where the error comes from before the work. While nothing is armed an
 * entry point costs one relaxed load more. Neighbours: sim.h declares the entry points that are wrapped here.
 */
#include <limits.h>
#include <stdatomic.h>

#include "pool/device/sim.h"

static struct point {
    _Atomic long calls;    /* atomic, as all: since it was armed */
    _Atomic long first;    /* of the window of calls that fail, from 1; 0: not armed */
    _Atomic long last;
    _Atomic unsigned result;
} points[SPW__ENTRY_COUNT];

static _Atomic int armed; /* atomic: points that are armed */

static spw__cu_result hit(struct point *point)
{
    const long first = atomic_load(&point->first);
    if (first == 0)
        return SPW__CU_SUCCESS;
    const long call = atomic_fetch_add(&point->calls, 1) + 1;
    if (call < first || call > atomic_load(&point->last))
        return SPW__CU_SUCCESS;
    const spw__cu_result result = atomic_load(&point->result);
    if (spw__cu_is_sticky(result))
        spw__sim_lose(result);
    return result;
}

static spw__cu_result fault(enum spw__driver_entry entry)
{
    return atomic_load_explicit(&armed, memory_order_relaxed) == 0 ? SPW__CU_SUCCESS : hit(&points[entry]);
}

void spw__sim_fail(enum spw__driver_entry entry, long nth, long count, spw__cu_result result)
{
    struct point *point = &points[entry];
    if (atomic_exchange(&point->first, 0) != 0)
        (void)atomic_fetch_sub(&armed, 1);
    if (nth == 0)
        return;
    atomic_store(&point->calls, 0);
    atomic_store(&point->result, result);
    atomic_store(&point->last, count == 0 ? LONG_MAX : nth + count - 1);
    atomic_store(&point->first, nth);
    (void)atomic_fetch_add(&armed, 1);
}

long spw__sim_calls(enum spw__driver_entry entry)
{
    return atomic_load(&points[entry].calls);
}

#define SPW__X(field, name, symbol, version, params, args)                                                             \
    static spw__cu_result faulty_##field params                                                                        \
    {                                                                                                                  \
        const spw__cu_result outcome = fault(SPW__ENTRY_##field);                                                      \
        return outcome == SPW__CU_SUCCESS ? spw__sim_##field args : outcome;                                           \
    }
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X

const struct spw__driver spw__sim_table = {
#define SPW__X(field, name, symbol, version, params, args) .field = faulty_##field,
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};
