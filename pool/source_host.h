/* Host memory: anonymous mappings on huge pages, not inherited by forked children.
 *
 * A slab is address space first; spw__host_populate gives a part of it memory, before anybody uses it, with several
 * threads where there is much to do. Threads: any, on different slabs or different parts of one.
 */
#ifndef SPW_POOL_SOURCE_HOST_H
#define SPW_POOL_SOURCE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/log.h"

/* Reserves bytes of zeroed address space, 2 MiB aligned. SPW_ENOMEM when the system refuses. */
int spw__host_map(uint64_t bytes, void **out);
void spw__host_unmap(void *base, uint64_t bytes);

/* Lets what is mapped at base get its memory on a NUMA node, when it gets it. SPW_EINVAL: there is no such node. A
 * system that does not let the process choose is said in the log, and it works without. */
int spw__host_bind(void *base, uint64_t bytes, unsigned node, const struct spw__log *log);

/* Touches [begin, begin + bytes): 16 GB/s a core on huge pages, where the users would take 1.5 us for each 4 KiB later.
 * Blocks. SPW_ENOMEM when the system has no memory for it. */
int spw__host_populate(void *begin, uint64_t bytes);

/* Keeps [begin, begin + bytes), which is populated, from being swapped out. False when the limit (RLIMIT_MEMLOCK) or
 * the system refuses: it works without, and the first refusal of a process is said in the log. */
bool spw__host_lock(void *begin, uint64_t bytes, const struct spw__log *log);

/* Gives the memory of whole huge pages inside a part back to the system; the address space stays. Returns the bytes
 * that were in memory and no longer are. */
uint64_t spw__host_discard(void *begin, uint64_t bytes);

#endif
