/* Physical memory of a simulated device: parts of one file without a name, for sim_vmm.c to map. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/device/sim.h"

#define UNIT SPW__SIM_LARGE_ALIGN

static spw__cu_result check_prop(const struct spw__cu_mem_prop *prop)
{
    static const unsigned char none[sizeof prop->flags.reserved];
    if (!prop || prop->flags.compression_type || prop->flags.usage || prop->win32_meta_data ||
        memcmp(prop->flags.reserved, none, sizeof none) != 0)
        return SPW__CU_ERROR_INVALID_VALUE;
    if (prop->type != SPW__CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != SPW__CU_MEM_LOCATION_TYPE_DEVICE ||
        (prop->requested_handle_types & ~(unsigned)SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return SPW__CU_ERROR_NOT_SUPPORTED;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_mem_get_allocation_granularity(size_t *granularity, const struct CUmemAllocationProp_st *prop,
                                                       spw__cu_granularity option)
{
    const spw__cu_result result = check_prop((const struct spw__cu_mem_prop *)prop);
    if (result != SPW__CU_SUCCESS)
        return result;
    if (option > SPW__CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return SPW__CU_ERROR_INVALID_VALUE;
    *granularity = UNIT;
    return SPW__CU_SUCCESS;
}

/* A part of the file for physical, charged to the device. */
static spw__cu_result create_locked(struct CUctx_st *sim, struct spw__sim_physical *physical, int device)
{
    struct spw__sim_vmm *vmm = &sim->vmm;
    if (device != sim->ordinal)
        return SPW__CU_ERROR_INVALID_DEVICE;
    const spw__cu_result fault = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_ALLOC);
    if (fault != SPW__CU_SUCCESS)
        return fault;
    if (physical->bytes > sim->capacity - sim->used)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    if (vmm->file < 0)
        vmm->file = memfd_create("spillway simulated device", MFD_CLOEXEC);
    if (vmm->file < 0 || ftruncate(vmm->file, (off_t)(vmm->file_bytes + physical->bytes)) != 0)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    physical->offset = vmm->file_bytes;
    vmm->file_bytes += physical->bytes;
    sim->used += physical->bytes;
    physical->next = vmm->physicals;
    vmm->physicals = physical;
    return SPW__CU_SUCCESS;
}

/* Nobody else knows the part yet. What cannot be poisoned reads as zero. */
static void poison(int file, const struct spw__sim_physical *physical)
{
    if (physical->bytes > SPW__SIM_POISON_MAX)
        return;
    void *bytes = mmap(NULL, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)physical->offset);
    if (bytes == MAP_FAILED)
        return;
    memset(bytes, SPW__SIM_POISON, physical->bytes);
    (void)munmap(bytes, physical->bytes);
}

spw__cu_result spw__sim_mem_create(spw__cu_mem_handle *handle, size_t bytes, const struct CUmemAllocationProp_st *prop,
                                   unsigned long long flags)
{
    const struct spw__cu_mem_prop *wanted = (const struct spw__cu_mem_prop *)prop;
    struct CUctx_st *sim;
    spw__cu_result result = check_prop(wanted);
    if (result != SPW__CU_SUCCESS)
        return result;
    if (bytes == 0 || bytes % UNIT != 0 || flags)
        return SPW__CU_ERROR_INVALID_VALUE;
    struct spw__sim_physical *physical = calloc(1, sizeof *physical);
    if (!physical)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    physical->bytes = bytes;
    physical->handle_types = wanted->requested_handle_types;
    physical->rdma = wanted->flags.gpu_direct_rdma_capable != 0;
    result = spw__sim_enter(&sim);
    if (result == SPW__CU_SUCCESS) {
        result = create_locked(sim, physical, wanted->location.id);
        spw__mutex_unlock(&sim->lock);
    }
    if (result != SPW__CU_SUCCESS) {
        free(physical);
        return result;
    }
    poison(sim->vmm.file, physical);
    *handle = (uintptr_t)physical;
    return SPW__CU_SUCCESS;
}

struct spw__sim_physical *spw__sim_physical_find_locked(const struct CUctx_st *sim, spw__cu_mem_handle handle)
{
    struct spw__sim_physical *physical = sim->vmm.physicals;
    while (physical && (uintptr_t)physical != handle)
        physical = physical->next;
    return physical && !physical->released ? physical : NULL;
}

bool spw__sim_physical_drop_locked(struct CUctx_st *sim, struct spw__sim_physical *physical)
{
    struct spw__sim_physical **link = &sim->vmm.physicals;
    if (physical->mappings || !physical->released)
        return false;
    while (*link != physical)
        link = &(*link)->next;
    *link = physical->next;
    return true;
}

/* What the device has free grows only once the memory has gone back to the system. */
void spw__sim_physical_free(struct CUctx_st *sim, struct spw__sim_physical *physical)
{
    (void)fallocate(sim->vmm.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
                    (off_t)physical->bytes);
    spw__mutex_lock(&sim->lock);
    sim->used -= physical->bytes;
    spw__mutex_unlock(&sim->lock);
    free(physical);
}

spw__cu_result spw__sim_mem_release(spw__cu_mem_handle handle)
{
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    struct spw__sim_physical *physical = spw__sim_physical_find_locked(sim, handle);
    const spw__cu_result sticky = sim->sticky;
    if (physical)
        physical->released = true;
    const bool dropped = physical && spw__sim_physical_drop_locked(sim, physical);
    spw__mutex_unlock(&sim->lock);
    if (dropped)
        spw__sim_physical_free(sim, physical);
    return physical ? sticky : SPW__CU_ERROR_INVALID_VALUE;
}
