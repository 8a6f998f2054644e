/* What a simulated device says about itself and about its addresses: the attributes that Spillway asks for. */
#include <string.h>

#include "pool/device/sim.h"

spw__cu_result spw__sim_device_get_attribute(int *value, spw__cu_device_attribute attribute, spw__cu_device device)
{
    spw__cu_device known;
    if (spw__sim_device_get(&known, device) != SPW__CU_SUCCESS)
        return SPW__CU_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case SPW__CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; return SPW__CU_SUCCESS; /* one each way */
    case SPW__CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case SPW__CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case SPW__CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case SPW__CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case SPW__CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: *value = 1; return SPW__CU_SUCCESS;
    default: return SPW__CU_ERROR_INVALID_VALUE;
    }
}

/* What an address belongs to. */
struct target {
    bool device, mapped, legacy_ipc, rdma;
    uint64_t start, bytes;
    unsigned handle_types;
};

static bool find_target_locked(const struct CUctx_st *sim, uint64_t address, struct target *target)
{
    const struct spw__sim_mapping *mapping;
    const struct spw__sim_reservation *reservation = spw__sim_vmm_find_locked(sim, address, &mapping);
    const struct spw__sim_range *range = spw__sim_allocation_locked(sim, address);
    memset(target, 0, sizeof *target);
    if (range) {
        *target = (struct target){.device = true, .mapped = true, .legacy_ipc = true, .rdma = true,
                                  .start = (uintptr_t)sim->reservation + range->start, .bytes = range->bytes};
        return true;
    }
    if (reservation) {
        *target = (struct target){.device = true, .mapped = mapping != NULL, .rdma = mapping && mapping->physical->rdma,
                                  .start = (uintptr_t)reservation->addresses, .bytes = reservation->bytes,
                                  .handle_types = mapping ? mapping->physical->handle_types : 0};
        return true;
    }
    for (range = sim->registrations; range && address - range->start >= range->bytes; range = range->next) {
    }
    if (range)
        *target = (struct target){.mapped = true, .start = range->start, .bytes = range->bytes};
    return range != NULL;
}

static spw__cu_result give(void *value, unsigned number)
{
    memcpy(value, &number, sizeof number);
    return SPW__CU_SUCCESS;
}

static spw__cu_result give_wide(void *value, uint64_t number)
{
    memcpy(value, &number, sizeof number);
    return SPW__CU_SUCCESS;
}

static spw__cu_result answer_locked(const struct CUctx_st *sim, void *value, spw__cu_pointer_attribute attribute,
                                    const struct target *target)
{
    switch (attribute) {
    case SPW__CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return give(value, target->device ? SPW__CU_MEMORYTYPE_DEVICE : SPW__CU_MEMORYTYPE_HOST);
    case SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED: return give(value, 0);
    case SPW__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return give(value, 0);
    case SPW__CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give(value, (unsigned)sim->ordinal);
    case SPW__CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return give(value, target->legacy_ipc);
    case SPW__CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return give_wide(value, target->start);
    case SPW__CU_POINTER_ATTRIBUTE_RANGE_SIZE: return give_wide(value, target->bytes);
    case SPW__CU_POINTER_ATTRIBUTE_MAPPED: return give(value, target->mapped);
    case SPW__CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return give(value, target->handle_types);
    case SPW__CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return give(value, target->rdma);
    default: return SPW__CU_ERROR_INVALID_VALUE;
    }
}

spw__cu_result spw__sim_pointer_get_attribute(void *value, spw__cu_pointer_attribute attribute,
                                              spw__cu_deviceptr address)
{
    struct target target;
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    result = find_target_locked(sim, address, &target) ? answer_locked(sim, value, attribute, &target)
                                                       : SPW__CU_ERROR_INVALID_VALUE;
    spw__mutex_unlock(&sim->lock);
    return result;
}

/* Synchronous operations always synchronize here, so that there is nothing to remember. */
spw__cu_result spw__sim_pointer_set_attribute(const void *value, spw__cu_pointer_attribute attribute,
                                              spw__cu_deviceptr address)
{
    struct target target;
    struct CUctx_st *sim;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    if (!value || attribute != SPW__CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !find_target_locked(sim, address, &target) ||
        !target.device)
        result = SPW__CU_ERROR_INVALID_VALUE;
    spw__mutex_unlock(&sim->lock);
    return result;
}
