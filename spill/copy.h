/* Copies between CPU memories. Pure functions; any thread. */
#ifndef SPW_SPILL_COPY_H
#define SPW_SPILL_COPY_H

#include <stddef.h>

/* memcpy that does not fill the caches with what nobody reads soon: 29 GB/s against 21 for megabytes. */
void spw__copy_streaming(void *dst, const void *src, size_t bytes);

#endif
