/* Pools' memory by tier. Neighbours: source_host.c and source_device.c, which bring it; tier.c, which cuts it up. */
#include "pool/tier_memory.h"

#include "pool/source_device.h"
#include "pool/source_host.h"

static void *host_address(const struct spw__pool *pool, uint64_t offset)
{
    return (void *)(uintptr_t)(pool->base + offset);
}

/* Address space; and what a driver must know as one region gets its memory now and whole: pinned memory to be
 * registered (a copy may not cross from one registration into another). */
static int map_host(struct spw__tier *tier, struct spw__pool *pool)
{
    void *base = NULL;
    const bool registers = tier->tier == SPW_TIER_PINNED_HOST && tier->device;
    int rc = spw__host_map(pool->size, &base);
    pool->base = (uint64_t)(uintptr_t)base;
    if (rc == SPW_OK && tier->numa)
        rc = spw__host_bind(base, pool->size, tier->numa - 1, tier->log);
    if (rc == SPW_OK && registers)
        rc = spw__host_populate(base, pool->size);
    if (rc == SPW_OK && registers) { /* a driver that refuses copies more slowly, and that is all */
        pool->registered = spw__pinned_register(tier->device, base, pool->size, tier->log);
        if (!pool->registered)
            (void)spw__host_lock(base, pool->size, tier->log);
    }
    return rc;
}

int spw__pool_map(struct spw__tier *tier, struct spw__pool *pool)
{
    pool->unit = SPW__HUGE_PAGE;
    if (tier->tier != SPW_TIER_DEVICE)
        return map_host(tier, pool);
    const int rc = spw__device_memory_open(&pool->on_device, tier->device, pool->size, tier->map_unit);
    pool->base = pool->on_device.base;
    if (tier->map_unit)
        pool->unit = pool->on_device.chunk;
    return rc;
}

void spw__pool_unmap(struct spw__tier *tier, struct spw__pool *pool)
{
    if (!pool->base)
        return;
    if (tier->tier == SPW_TIER_DEVICE) {
        spw__device_memory_close(&pool->on_device);
        return;
    }
    if (pool->registered)
        spw__device_host_unregister(tier->device, host_address(pool, 0));
    spw__host_unmap(host_address(pool, 0), pool->size);
}

int spw__pool_populate(struct spw__tier *tier, struct spw__pool *pool, uint64_t begin, uint64_t end)
{
    if (tier->tier == SPW_TIER_DEVICE)
        return spw__device_memory_reach(&pool->on_device, end, tier->log);
    const int rc = spw__host_populate(host_address(pool, begin), end - begin);
    if (rc == SPW_OK && tier->tier == SPW_TIER_PINNED_HOST)
        (void)spw__host_lock(host_address(pool, begin), end - begin, tier->log);
    return rc;
}
