/* XXH3 for any processor of the architecture. Neighbours: integrity.c. */
#if defined(__x86_64__)
#define XXH_VECTOR 1 /* XXH_SSE2 */
#else
#define XXH_VECTOR 0 /* XXH_SCALAR */
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "spill/integrity_simd.h"

uint64_t spw__xxh3_base(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
