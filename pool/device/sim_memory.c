/* Memory of a simulated device: addresses that the CPU cannot touch, the bytes behind them, and registered host memory.
 *
 * Two mappings of the same size. The reservation is PROT_NONE and never backed: its addresses are handed out, and a
 * CPU that follows one dies. The backing holds the bytes at the same offsets. Capacity counts bytes; the mappings are
 * larger, so that rounding each allocation up to pages costs addresses only. A handful of allocations is the norm (one
 * per pool), so a sorted list and first fit do.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/base/units.h"
#include "pool/device/sim.h"

#define SMALL_ALIGN 4096u /* so that freed memory can go back page by page */
#define CHARGE_UNIT 256u
#define SLACK_BYTES (1024ull * 1024 * 1024) /* addresses beyond twice the capacity */

char *spw__sim_map_aligned(uint64_t span, int protection)
{
    /* One unit more than needed, the ends cut off. */
    char *raw = mmap(NULL, span + SPW__SIM_LARGE_ALIGN, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    const uint64_t head = spw__round_up((uintptr_t)raw, SPW__SIM_LARGE_ALIGN) - (uintptr_t)raw;
    if (head)
        (void)munmap(raw, head);
    if (head < SPW__SIM_LARGE_ALIGN)
        (void)munmap(raw + head + span, SPW__SIM_LARGE_ALIGN - head);
    return raw + head;
}

int spw__sim_memory_init(struct CUctx_st *sim)
{
    if (sim->capacity > SPW__SIM_CAPACITY_MAX)
        return -1;
    sim->span = spw__round_up(2 * sim->capacity + SLACK_BYTES, SPW__SIM_LARGE_ALIGN);
    sim->reservation = spw__sim_map_aligned(sim->span, PROT_NONE);
    sim->backing = spw__sim_map_aligned(sim->span, PROT_READ | PROT_WRITE);
    if (!sim->reservation || !sim->backing)
        return -1;
    (void)madvise(sim->backing, sim->span, MADV_HUGEPAGE);
    (void)madvise(sim->backing, sim->span, MADV_DONTFORK);
    spw__sim_vmm_init(sim);
    return 0;
}

static void free_ranges(struct spw__sim_range **list)
{
    while (*list) {
        struct spw__sim_range *range = *list;
        *list = range->next;
        free(range);
    }
}

void spw__sim_memory_finish(struct CUctx_st *sim)
{
    free_ranges(&sim->allocations);
    free_ranges(&sim->registrations);
    spw__sim_vmm_finish(sim);
    if (sim->backing)
        (void)munmap(sim->backing, sim->span);
    if (sim->reservation)
        (void)munmap(sim->reservation, sim->span);
}

static uint64_t address_of(const struct CUctx_st *sim, uint64_t offset)
{
    return (uintptr_t)sim->reservation + offset;
}

/* The link to the allocation that holds offset, NULL if none does. */
static struct spw__sim_range **find_locked(struct CUctx_st *sim, uint64_t offset)
{
    for (struct spw__sim_range **link = &sim->allocations; *link && (*link)->start <= offset; link = &(*link)->next)
        if (offset - (*link)->start < (*link)->bytes)
            return link;
    return NULL;
}

const struct spw__sim_range *spw__sim_allocation_locked(const struct CUctx_st *sim, uint64_t address)
{
    const uint64_t offset = address - (uintptr_t)sim->reservation; /* wraps to beyond the span below it */
    const struct spw__sim_range *range = offset < sim->span ? sim->allocations : NULL;
    while (range && (range->start > offset || offset - range->start >= range->bytes))
        range = range->next;
    return range && !range->freeing ? range : NULL;
}

void *spw__sim_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes)
{
    const uint64_t offset = address - (uintptr_t)sim->reservation;
    if (offset >= sim->span)
        return spw__sim_vmm_translate_locked(sim, address, bytes);
    const struct spw__sim_range *range = spw__sim_allocation_locked(sim, address);
    return range && bytes <= range->bytes - (offset - range->start) ? sim->backing + offset : NULL;
}

bool spw__sim_is_host_locked(const struct CUctx_st *sim, const void *base, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)base, reserved = (uintptr_t)sim->reservation;
    return base && bytes <= UINTPTR_MAX - first && (first >= reserved + sim->span || first + bytes <= reserved) &&
           !spw__sim_vmm_overlaps_locked(sim, first, bytes);
}

spw__cu_result spw__sim_mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    struct CUctx_st *sim;
    const spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    *free_bytes = sim->capacity - sim->used;
    *total_bytes = sim->capacity;
    spw__mutex_unlock(&sim->lock);
    return SPW__CU_SUCCESS;
}

/* Puts range at the first gap of its span; false if there is none. */
static bool place_locked(struct CUctx_st *sim, struct spw__sim_range *range, uint64_t align)
{
    uint64_t start = 0;
    struct spw__sim_range **link = &sim->allocations;
    for (; *link && (*link)->start < start + range->span; link = &(*link)->next)
        start = spw__round_up((*link)->start + (*link)->span, align);
    if (start + range->span > sim->span)
        return false;
    range->start = start;
    range->next = *link;
    *link = range;
    return true;
}

static spw__cu_result alloc_locked(struct CUctx_st *sim, struct spw__sim_range *range)
{
    const spw__cu_result fault = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_ALLOC);
    if (fault != SPW__CU_SUCCESS)
        return fault;
    if (range->bytes > sim->capacity - sim->used)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    const uint64_t align = range->bytes >= SPW__SIM_LARGE_ALIGN ? SPW__SIM_LARGE_ALIGN : SMALL_ALIGN;
    range->span = spw__round_up(range->bytes, align);
    if (!place_locked(sim, range, align))
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    sim->used += range->bytes;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_mem_alloc(spw__cu_deviceptr *address, size_t bytes)
{
    struct CUctx_st *sim;
    if (bytes == 0)
        return SPW__CU_ERROR_INVALID_VALUE;
    if (bytes > SPW__SIM_CAPACITY_MAX)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    struct spw__sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    range->bytes = spw__round_up(bytes, CHARGE_UNIT);
    spw__cu_result result = spw__sim_enter(&sim);
    if (result == SPW__CU_SUCCESS) {
        result = alloc_locked(sim, range);
        spw__mutex_unlock(&sim->lock);
    }
    if (result != SPW__CU_SUCCESS) {
        free(range);
        return result;
    }
    /* Nobody else knows the range yet, so its fields can be read and its bytes written without the lock. */
    if (range->bytes <= SPW__SIM_POISON_MAX)
        memset(sim->backing + range->start, SPW__SIM_POISON, range->bytes);
    *address = address_of(sim, range->start);
    return SPW__CU_SUCCESS;
}

/* As CUDA's, waits for the work that uses the memory. After a sticky error it is freed nonetheless, and the error
 * returned. */
spw__cu_result spw__sim_mem_free(spw__cu_deviceptr address)
{
    spw__cu_result result = address == 0 ? SPW__CU_SUCCESS : SPW__CU_ERROR_INVALID_VALUE;
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    const uint64_t offset = address - (uintptr_t)sim->reservation;
    struct spw__sim_range **link = find_locked(sim, offset);
    struct spw__sim_range *range = link ? *link : NULL;
    if (range && range->start == offset && !range->freeing) {
        range->freeing = true; /* enqueued copies still run, new ones are refused */
        spw__sim_wait_unused_locked(sim, sim->backing + range->start, range->bytes);
        spw__mutex_unlock(&sim->lock);
        (void)madvise(sim->backing + range->start, range->span, MADV_DONTNEED);
        spw__mutex_lock(&sim->lock);
        link = find_locked(sim, offset);
        *link = range->next;
        sim->used -= range->bytes;
        free(range);
        result = sim->sticky;
    }
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_mem_host_register(void *base, size_t bytes, unsigned flags)
{
    struct CUctx_st *sim;
    (void)flags; /* every simulated registration is portable */
    struct spw__sim_range *added = calloc(1, sizeof *added);
    if (!added)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result == SPW__CU_SUCCESS) {
        *added = (struct spw__sim_range){sim->registrations, (uintptr_t)base, bytes, bytes, false};
        if (bytes == 0 || !spw__sim_is_host_locked(sim, base, bytes))
            result = SPW__CU_ERROR_INVALID_VALUE;
        for (const struct spw__sim_range *other = sim->registrations; other; other = other->next)
            if (added->start < other->start + other->bytes && other->start < added->start + bytes)
                result = SPW__CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        if (result == SPW__CU_SUCCESS)
            sim->registrations = added;
        spw__mutex_unlock(&sim->lock);
    }
    if (result != SPW__CU_SUCCESS)
        free(added);
    return result;
}

/* Ends the registration even after a sticky error. */
spw__cu_result spw__sim_mem_host_unregister(void *base)
{
    struct CUctx_st *sim;
    if (spw__sim_ctx_get_current(&sim) != SPW__CU_SUCCESS || !sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    spw__mutex_lock(&sim->lock);
    spw__cu_result result = sim->sticky;
    struct spw__sim_range **link = &sim->registrations;
    while (*link && (*link)->start != (uintptr_t)base)
        link = &(*link)->next;
    struct spw__sim_range *range = *link;
    if (range) {
        *link = range->next;
        free(range);
    } else {
        result = SPW__CU_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    spw__mutex_unlock(&sim->lock);
    return result;
}
