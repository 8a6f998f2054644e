/* The real clock. */
#include "pool/base/clock.h"

#include <time.h>

uint64_t spw__clock_monotonic_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
