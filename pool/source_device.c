/* The device's memory for pools. Neighbours: tier_memory.c asks for it, device/device_map.c speaks to the driver. */
#include "pool/source_device.h"

#include "pool/base/error.h"
#include "pool/base/units.h"

/* A chunk is a sixteenth of its pool: little enough to fit what the pool uses. Up to this: more would not be faster. */
#define CHUNK_LAST_BYTES (UINT64_C(32) << 20)

static int open_plain(struct spw__device_memory *memory, uint64_t size)
{
    const int rc = spw__device_alloc(memory->device, size < SPW__HUGE_PAGE ? SPW__HUGE_PAGE : size, &memory->base);
    if (rc != SPW_OK || !spw__device_is_managed(memory->device, memory->base))
        return rc;
    spw__device_memory_close(memory);
    return spw__fail(SPW_EDEVICE, "the driver gives managed memory, which it moves as it likes: it is of no use here");
}

int spw__device_memory_open(struct spw__device_memory *memory, struct spw__device *device, uint64_t size,
                            uint64_t unit)
{
    *memory = (struct spw__device_memory){.device = device};
    int rc;
    if (unit == 0) {
        rc = open_plain(memory, size);
    } else {
        const uint64_t chunk = spw__smaller(size / 16, CHUNK_LAST_BYTES);
        memory->span = spw__round_up(size, unit);
        memory->chunk = spw__round_up(chunk ? chunk : 1, unit);
        rc = spw__device_reserve(device, memory->span, &memory->base);
    }
    if (rc != SPW_OK)
        *memory = (struct spw__device_memory){.device = NULL};
    return rc;
}

void spw__device_memory_close(struct spw__device_memory *memory)
{
    if (memory->base && memory->span == 0)
        (void)spw__device_free(memory->device, memory->base);
    if (memory->base && memory->span) {
        (void)spw__device_memory_cut(memory, 0);
        (void)spw__device_unreserve(memory->device, memory->base, memory->span);
    }
    *memory = (struct spw__device_memory){.device = NULL};
}

int spw__device_memory_reach(struct spw__device_memory *memory, uint64_t end, const struct spw__log *log)
{
    const uint64_t before = memory->mapped;
    int rc = SPW_OK;
    while (rc == SPW_OK && memory->mapped < end) {
        const uint64_t bytes = spw__smaller(memory->chunk, memory->span - memory->mapped);
        rc = spw__device_map(memory->device, memory->base + memory->mapped, bytes, log);
        memory->mapped += rc == SPW_OK ? bytes : 0;
    }
    if (rc != SPW_OK) {
        spw_error_info why;
        spw__error_save(&why);
        (void)spw__device_memory_cut(memory, before);
        (void)spw__error_restore(&why);
    }
    return rc;
}

uint64_t spw__device_memory_cut(struct spw__device_memory *memory, uint64_t end)
{
    const uint64_t before = memory->mapped;
    while (memory->mapped > end) {
        const uint64_t begin = spw__round_down(memory->mapped - 1, memory->chunk);
        if (begin < end || spw__device_unmap(memory->device, memory->base + begin, memory->mapped - begin) != SPW_OK)
            break;
        memory->mapped = begin;
    }
    return before - memory->mapped;
}

bool spw__pinned_register(struct spw__device *device, void *base, uint64_t bytes, const struct spw__log *log)
{
    spw_error_info kept;
    spw__error_save(&kept);
    const int rc = spw__device_host_register(device, base, bytes);
    if (rc != SPW_OK)
        spw__logf(log, SPW__LOG_WARN, "pinned_host memory of %llu bytes is not registered with the device, and copies "
                                      "take longer: %s", (unsigned long long)bytes, spw_error_detail()->message);
    (void)spw__error_restore(&kept);
    return rc == SPW_OK;
}
