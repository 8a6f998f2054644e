/* Sizes and sums that every floor agrees on. Pure; any thread. */
#ifndef SPW_BASE_UNITS_H
#define SPW_BASE_UNITS_H

#include <stdint.h>

/* Device, pinned_host and host: the tiers with pools, numbered from 0 as in spw_tier. */
#define SPW__MEMORY_TIERS 3

/* What O_DIRECT asks of memory, offsets and lengths; a spill folder may ask for more. */
#define SPW__IO_BLOCK UINT32_C(4096)

/* Blocks of at least this many bytes are whole I/O blocks at aligned addresses, so that they go to disk without a copy;
 * below, the padding would cost more than the copy. */
#define SPW__DIRECT_MIN_BYTES (UINT32_C(32) << 10)

/* What memory is taken from the system in, and the largest alignment that a pool gives. */
#define SPW__HUGE_PAGE (UINT64_C(2) << 20)

static inline uint64_t spw__smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t spw__round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static inline uint64_t spw__round_down(uint64_t value, uint64_t unit)
{
    return value / unit * unit;
}

#endif
