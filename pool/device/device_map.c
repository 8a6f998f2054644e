/* Memory that is mapped as it is needed, and what the driver says of an address. Neighbours: device.c has plain
 * allocations; pool/source_device.c decides which it is.
 *
 * The handle of physical memory is released as soon as it is mapped: the mapping keeps the memory, and whoever wants to
 * export it has the driver name the handle again (cuMemRetainAllocationHandle).
 */
#include "pool/device/device.h"

#include "pool/base/units.h"
#include "pool/device/inside.h"

static struct spw__cu_mem_prop prop_of(const struct spw__device *device, unsigned wants)
{
    struct spw__cu_mem_prop prop = {.type = SPW__CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {SPW__CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};
    if (wants & SPW__MAP_EXPORT)
        prop.requested_handle_types = SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.flags.gpu_direct_rdma_capable = (wants & SPW__MAP_RDMA) != 0;
    return prop;
}

static bool has(const struct spw__device *device, spw__cu_device_attribute attribute)
{
    int value = 0;
    return device->driver->device_get_attribute(&value, attribute, device->ordinal) == SPW__CU_SUCCESS && value != 0;
}

uint64_t spw__device_map_unit(struct spw__device *device)
{
    size_t unit = 0;
    unsigned wants = 0;
    if (!has(device, SPW__CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return 0;
    if (has(device, SPW__CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        wants |= SPW__MAP_EXPORT;
    if (has(device, SPW__CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        wants |= SPW__MAP_RDMA;
    const struct spw__cu_mem_prop prop = prop_of(device, wants);
    if (CALL(device, mem_get_allocation_granularity, &unit, spw__cu_mem_prop(&prop),
             SPW__CU_MEM_ALLOC_GRANULARITY_MINIMUM) != SPW__CU_SUCCESS || unit == 0)
        return 0;
    atomic_store(&device->map_wants, wants);
    return spw__round_up(unit, SPW__HUGE_PAGE);
}

static void count_live(struct spw__device *device, long change)
{
    (void)atomic_fetch_add_explicit(&device->live, change, memory_order_relaxed);
}

int spw__device_reserve(struct spw__device *device, uint64_t bytes, uint64_t *address)
{
    spw__cu_deviceptr found = 0;
    const spw__cu_result result = CALL(device, mem_address_reserve, &found, (size_t)bytes, SPW__HUGE_PAGE, 0, 0);
    if (result == SPW__CU_ERROR_OUT_OF_MEMORY)
        return spw__fail(SPW_ENOMEM, "device %d has no %llu bytes of address space left", device->ordinal,
                         (unsigned long long)bytes);
    const int rc = check(device, result, "cuMemAddressReserve");
    if (rc != 0)
        return rc;
    count_live(device, 1);
    *address = found;
    return 0;
}

int spw__device_unreserve(struct spw__device *device, uint64_t address, uint64_t bytes)
{
    count_live(device, -1);
    return check(device, GIVE_BACK(device, mem_address_free, address, (size_t)bytes), "cuMemAddressFree");
}

static void say_missing(const struct spw__device *device, unsigned missing, const struct spw__log *log)
{
    spw__logf(log, SPW__LOG_INFO, "device %d: memory that is mapped as it is needed cannot be%s%s%s", device->ordinal,
              missing & SPW__MAP_EXPORT ? " exported to other processes" : "",
              missing == (SPW__MAP_EXPORT | SPW__MAP_RDMA) ? " nor" : "",
              missing & SPW__MAP_RDMA ? " reached by GPUDirect RDMA" : "");
}

/* A pointer attribute that is a number, 0 where the driver does not answer. */
static uint64_t attribute_of(struct spw__device *device, spw__cu_pointer_attribute attribute, uint64_t address)
{
    uint64_t value = 0; /* of up to eight bytes, the least significant first */
    const spw__cu_result result = CALL(device, pointer_get_attribute, &value, attribute, address);
    return result == SPW__CU_SUCCESS ? value : 0;
}

bool spw__device_is_managed(struct spw__device *device, uint64_t address)
{
    return attribute_of(device, SPW__CU_POINTER_ATTRIBUTE_IS_MANAGED, address) != 0;
}

/* What was asked for is not always what came: a driver may drop the request silently. */
static void look_once(struct spw__device *device, uint64_t address, const struct spw__log *log)
{
    unsigned missing = SPW__MAP_EXPORT | SPW__MAP_RDMA;
    if (atomic_exchange(&device->map_looked_at, true))
        return;
    if (attribute_of(device, SPW__CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) &
        SPW__CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        missing &= ~(unsigned)SPW__MAP_EXPORT;
    if (attribute_of(device, SPW__CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address))
        missing &= ~(unsigned)SPW__MAP_RDMA;
    if (missing)
        say_missing(device, missing, log);
}

static spw__cu_result create(struct spw__device *device, uint64_t bytes, spw__cu_mem_handle *handle)
{
    const unsigned wants = atomic_load(&device->map_wants);
    const struct spw__cu_mem_prop prop = prop_of(device, wants);
    spw__cu_result result = CALL(device, mem_create, handle, (size_t)bytes, spw__cu_mem_prop(&prop), 0);
    if (result == SPW__CU_SUCCESS || result == SPW__CU_ERROR_OUT_OF_MEMORY || spw__cu_is_sticky(result) || !wants)
        return result;
    /* A process may lack a right that the device's attribute knows nothing of (in a container, say). */
    const struct spw__cu_mem_prop plain = prop_of(device, 0);
    result = CALL(device, mem_create, handle, (size_t)bytes, spw__cu_mem_prop(&plain), 0);
    if (result == SPW__CU_SUCCESS)
        atomic_store(&device->map_wants, 0);
    return result;
}

int spw__device_map(struct spw__device *device, uint64_t address, uint64_t bytes, const struct spw__log *log)
{
    const struct spw__cu_access access = {.location = {SPW__CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal},
                                          .flags = SPW__CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    spw__cu_mem_handle handle = 0;
    const spw__cu_result created = create(device, bytes, &handle);
    if (created == SPW__CU_ERROR_OUT_OF_MEMORY)
        return spw__device_no_memory(device, bytes);
    int rc = check(device, created, "cuMemCreate");
    if (rc != 0)
        return rc;
    rc = check(device, CALL(device, mem_map, address, (size_t)bytes, 0, handle, 0), "cuMemMap");
    const bool mapped = rc == 0;
    (void)GIVE_BACK(device, mem_release, handle); /* what it may report is the device's, and comes again below */
    if (rc == 0)
        rc = check(device, CALL(device, mem_set_access, address, (size_t)bytes, spw__cu_access(&access), 1),
                   "cuMemSetAccess");
    if (rc != 0 && mapped)
        (void)GIVE_BACK(device, mem_unmap, address, (size_t)bytes);
    if (rc == 0)
        look_once(device, address, log);
    return rc;
}

int spw__device_unmap(struct spw__device *device, uint64_t address, uint64_t bytes)
{
    return check(device, GIVE_BACK(device, mem_unmap, address, (size_t)bytes), "cuMemUnmap");
}
