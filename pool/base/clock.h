/* The clock: monotonic nanoseconds, replaceable in tests. Threads: any. */
#ifndef SPW_BASE_CLOCK_H
#define SPW_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

/* now_ns NULL: CLOCK_MONOTONIC. A manual clock stands still until a test moves it (manual_ns). */
struct spw__clock {
    uint64_t (*now_ns)(const struct spw__clock *clock);
    _Atomic uint64_t manual_ns; /* atomic */
};

uint64_t spw__clock_monotonic_ns(void);

static inline uint64_t spw__clock_now_ns(const struct spw__clock *clock)
{
    return clock && clock->now_ns ? clock->now_ns(clock) : spw__clock_monotonic_ns();
}

#endif
