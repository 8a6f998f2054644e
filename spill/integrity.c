/* Sums of segments: the seed that carries a segment's identity, and the choice of the fastest XXH3. Neighbours:
 * integrity_simd.h and the sources behind it, each compiled for one instruction set. */
#include "spill/integrity.h"

#include <stdatomic.h>

#include "spill/integrity_simd.h"

struct variant {
    spw__xxh3_fn hash;
    const char *name;
};

#if defined(__x86_64__)
static const struct variant base = {spw__xxh3_base, "sse2"};
static const struct variant avx2 = {spw__xxh3_avx2, "avx2"};
static const struct variant avx512 = {spw__xxh3_avx512, "avx512"};
#else
static const struct variant base = {spw__xxh3_base, "scalar"};
#endif

/* atomic: NULL until the first use; every thread would choose the same */
static _Atomic(const struct variant *) chosen;

static const struct variant *choose(void)
{
    const struct variant *best = &base;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        best = &avx512;
    else if (__builtin_cpu_supports("avx2"))
        best = &avx2;
#endif
    atomic_store_explicit(&chosen, best, memory_order_relaxed);
    return best;
}

static const struct variant *variant(void)
{
    const struct variant *best = atomic_load_explicit(&chosen, memory_order_relaxed);
    return best ? best : choose();
}

/* A bijection that spreads every bit over all others (the finaliser of splitmix64). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t spw__integrity_segment(uint64_t identity, uint64_t index, const void *data, size_t bytes)
{
    /* Mixed one after the other, so that (identity, index) and (identity + d, index - d) get unrelated seeds. */
    const uint64_t seed = mix(mix(identity + UINT64_C(0x9e3779b97f4a7c15)) + index);
    return variant()->hash(data, bytes, seed);
}

const char *spw__integrity_variant(void)
{
    return variant()->name;
}
