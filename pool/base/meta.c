/* Metadata memory: plain heap memory behind a gate. */
#include "pool/base/meta.h"

#include <stdlib.h>
#include <string.h>

#include "pool/base/fault.h"

void spw__meta_init(struct spw__meta *meta, uint64_t budget_bytes)
{
    spw__gate_init(&meta->gate, budget_bytes);
}

void *spw__meta_alloc(struct spw__meta *meta, size_t size)
{
    void *ptr = NULL;
    if (spw__fault(SPW__FAULT_META_ALLOC) != 0)
        return NULL;
    if (meta && !spw__gate_commit(&meta->gate, size))
        return NULL;
    if (size < 64)
        ptr = calloc(1, size ? size : 1);
    else if (posix_memalign(&ptr, 64, size) == 0)
        memset(ptr, 0, size);
    if (!ptr && meta)
        spw__gate_uncommit(&meta->gate, size);
    return ptr;
}

void spw__meta_free(struct spw__meta *meta, void *ptr, size_t size)
{
    if (!ptr)
        return;
    free(ptr);
    if (meta)
        spw__gate_uncommit(&meta->gate, size);
}
