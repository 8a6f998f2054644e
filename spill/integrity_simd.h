/* XXH3-64 as compiled for one instruction set each; integrity.c chooses among them. All give the same value for the
 * same bytes. Pure functions; any thread, on a processor that has the instruction set. */
#ifndef SPW_SPILL_INTEGRITY_SIMD_H
#define SPW_SPILL_INTEGRITY_SIMD_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t (*spw__xxh3_fn)(const void *data, size_t bytes, uint64_t seed);

uint64_t spw__xxh3_base(const void *data, size_t bytes, uint64_t seed); /* SSE2 on x86-64, plain C elsewhere */
#if defined(__x86_64__)
uint64_t spw__xxh3_avx2(const void *data, size_t bytes, uint64_t seed);
uint64_t spw__xxh3_avx512(const void *data, size_t bytes, uint64_t seed); /* needs AVX-512F */
#endif

#endif
