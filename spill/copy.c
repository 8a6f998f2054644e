/* Non-temporal copies. */
#include "spill/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

enum { STREAM_MIN_BYTES = 64 << 10 };

void spw__copy_streaming(void *dst, const void *src, size_t bytes)
{
    if (bytes < STREAM_MIN_BYTES) {
        if (bytes) /* of nothing there may be no address */
            memcpy(dst, src, bytes);
        return;
    }
    char *to = dst;
    const char *from = src;
    const size_t lead = (64 - ((uintptr_t)to & 63)) & 63;
    memcpy(to, from, lead);
    to += lead;
    from += lead;
    bytes -= lead;
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
        _mm_prefetch(from + 1024, _MM_HINT_NTA);
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
        _mm_stream_si128((__m128i *)(void *)to, a);
        _mm_stream_si128((__m128i *)(void *)(to + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + 48), d);
    }
    _mm_sfence();
    memcpy(to, from, bytes);
}
#else
void spw__copy_streaming(void *dst, const void *src, size_t bytes)
{
    if (bytes)
        memcpy(dst, src, bytes);
}
#endif
