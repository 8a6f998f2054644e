/* XXH3 with AVX2. Neighbours: integrity.c. */
#define XXH_VECTOR 2 /* XXH_AVX2 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "spill/integrity_simd.h"

uint64_t spw__xxh3_avx2(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
