/* Fault points: per point a count of calls and the window of calls that fail. */
#include "pool/base/fault.h"

#include <limits.h>

struct point {
    _Atomic long calls;   /* atomic, as all: since it was armed */
    _Atomic long first;   /* of the window, from 1; 0: not armed */
    _Atomic long last;
    _Atomic int os_errno; /* what the calls in the window fail with */
};

static struct point points[SPW__FAULT_COUNT];
_Atomic int spw__faults_armed; /* atomic */

int spw__fault_hit(enum spw__fault_point which)
{
    struct point *point = &points[which];
    const long first = atomic_load(&point->first);
    if (first == 0)
        return 0;
    const long call = atomic_fetch_add(&point->calls, 1) + 1;
    return call >= first && call <= atomic_load(&point->last) ? atomic_load(&point->os_errno) : 0;
}

void spw__fault_arm(enum spw__fault_point which, long nth, long count, int os_errno)
{
    struct point *point = &points[which];
    spw__fault_disarm(which);
    atomic_store(&point->calls, 0);
    atomic_store(&point->os_errno, os_errno);
    atomic_store(&point->last, count == 0 ? LONG_MAX : nth + count - 1);
    atomic_store(&point->first, nth);
    (void)atomic_fetch_add(&spw__faults_armed, 1);
}

void spw__fault_disarm(enum spw__fault_point which)
{
    if (atomic_exchange(&points[which].first, 0) != 0)
        (void)atomic_fetch_sub(&spw__faults_armed, 1);
}

long spw__fault_calls(enum spw__fault_point which)
{
    return atomic_load(&points[which].calls);
}
