/* XXH3 with AVX-512F. Neighbours: integrity.c. */
#define XXH_VECTOR 3 /* XXH_AVX512 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "spill/integrity_simd.h"

uint64_t spw__xxh3_avx512(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
