/* Integrity: XXH3-64 sums with the identity of what was summed in them, so that a misplaced piece is caught as well as
 * a damaged one.
 *
 * A piece is summed in the segments in which the mover carries it, all of one size for as long as the mover lives (the
 * last one shorter). The sum of a piece is the sum modulo 2^64 of its segments' XXH3-64 hashes, each seeded with the
 * piece's identity and the segment's index: segments may therefore be hashed in any order, by any thread, as they pass
 * by. Pure functions; any thread.
 */
#ifndef SPW_SPILL_INTEGRITY_H
#define SPW_SPILL_INTEGRITY_H

#include <stddef.h>
#include <stdint.h>

/* Hash of one segment, the index-th of the piece named identity. Runs the widest of SSE2/AVX2/AVX-512 that the
 * processor has. */
uint64_t spw__integrity_segment(uint64_t identity, uint64_t index, const void *data, size_t bytes);

/* Name of the variant in use: "scalar", "sse2", "avx2" or "avx512". For tests. */
const char *spw__integrity_variant(void);

#endif
