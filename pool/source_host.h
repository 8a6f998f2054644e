/* Host memory: anonymous mappings on huge pages, not inherited by forked children. */
#ifndef SPW_POOL_SOURCE_HOST_H
#define SPW_POOL_SOURCE_HOST_H

#include <stdint.h>

/* Reserves bytes of zeroed address space, 2 MiB aligned; memory is taken at first touch, lowest addresses first as the
 * pools use them. SPW_ENOMEM when the system refuses. */
int spw__host_map(uint64_t bytes, void **out);
void spw__host_unmap(void *base, uint64_t bytes);

#endif
