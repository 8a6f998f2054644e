/* How much memory this process may use. */
#ifndef ENGINE_SYSMEM_H
#define ENGINE_SYSMEM_H

#include <stdint.h>

/* Bytes: the machine's memory, or the least limit of the control groups (version 1 and 2) around this process, or its
 * limit on address space, whichever is smallest. */
uint64_t eng_memory_allowed(void);

#endif
