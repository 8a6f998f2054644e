/* Raw memory: the public calls. Neighbours: pressure.c finds the room, raw.c knows every block by its address, parked.c
 * keeps what streams may still use. */
#include "src/core/group.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

#include "pool/base/error.h"
#include "pool/base/sized.h"

#include <spillway/pool.h>

static const spw_pool_options pool_defaults = {.struct_size = sizeof(spw_pool_options),
                                               .wait = {.timeout_ms = SPW_TIMEOUT_DEFAULT}};

void spw_pool_options_init_sized(spw_pool_options *options, size_t size)
{
    spw__sized_give(options, size, &pool_defaults);
}

static int check_place(const spw_manager *manager, spw_place place, const char *call)
{
    if (!manager)
        return spw__fail(SPW_EINVAL, "%s: manager is NULL", call);
    const int rc = spw__check_process(manager);
    return rc == SPW_OK ? spw__check_place(manager, place, call) : rc;
}

static int check_alloc(spw_manager *manager, size_t align, const spw_pool_options *options)
{
    if ((align & (align - 1)) != 0 || align > SPW__ALIGN_MAX)
        return spw__fail(SPW_EINVAL, "spw_pool_alloc: an alignment of %zu is not a power of two up to 2 MiB", align);
    if (options->flags & ~SPW_NOWAIT)
        return spw__fail(SPW_EINVAL, "spw_pool_alloc: unknown flags 0x%x; SPW_NOWAIT is the only one", options->flags);
    return spw__check_wait(manager, &options->wait);
}

static void count_alloc(spw_manager *manager, const struct spw__block *block, uint64_t sign)
{
    const unsigned first = SPW__CORE_TIERS + block->tier * (unsigned)SPW__TIER_COUNTERS;
    spw__core_count(manager, first + SPW__TIER_ALLOCS, sign);
    spw__core_count(manager, first + SPW__TIER_ALLOC_BYTES, sign * block->bytes);
}

static void give_block(spw_manager *manager, struct spw__block *block, spw_stream *stream)
{
    const bool parks = block->tier == SPW_TIER_DEVICE && stream;
    const uint64_t bytes = block->bytes;
    const bool keeps = !parks && spw__reclaim_keeps(manager, block);
    if (keeps)
        block->group = NULL; /* its charge is kept */
    else
        spw__core_count(manager, SPW__CORE_RELEASE_BYTES + block->tier, bytes);
    if (parks)
        spw__park(manager, block, stream);
    else
        (void)spw__tier_free(spw__tier_of(manager, (spw_tier)block->tier), block);
    if (keeps)
        spw__reclaim_keep(manager, bytes);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

/* Takes a block that the same stream has parked. */
static bool take_parked(struct spw__request *request, spw_stream *stream)
{
    const bool taken = stream && request->first == SPW_TIER_DEVICE && !request->reservation &&
                       spw__parked_take(request->manager, request->group, stream, request->first, request->bytes,
                                        request->align, &request->block);
    if (taken)
        count_alloc(request->manager, &request->block, 1);
    return taken;
}

/* Gives back what was granted for nothing: nobody has used it yet. */
static void take_back(struct spw__request *request, spw_stream *stream)
{
    spw_manager *manager = request->manager;
    count_alloc(manager, &request->block, UINT64_MAX);
    if (request->reservation) {
        spw__reservation_put_back(request->reservation, request->block.bytes);
        request->block.group = NULL;
        stream = NULL;
    }
    give_block(manager, &request->block, stream);
}

/* Checks the arguments and makes a request of them; *taken: the options as this version knows them. */
static int prepare(spw_manager *manager, spw_place place, size_t bytes, size_t align, const spw_pool_options *options,
                   spw_pool_options *taken, struct spw__request *request)
{
    struct spw__group *group;
    *taken = pool_defaults;
    int rc = check_place(manager, place, "spw_pool_alloc");
    if (rc == SPW_OK)
        rc = spw__sized_take(taken, SPW__SIZED_FIRST(spw_pool_options, wait), options, "spw_pool_alloc: options");
    options = taken;
    if (rc == SPW_OK)
        rc = check_alloc(manager, align, options);
    if (rc == SPW_OK)
        rc = spw__group_charged(manager, options->group, &options->wait, "spw_pool_alloc", &group);
    if (rc != SPW_OK)
        return rc;
    /* Never 0: raw memory does not go to disk, and needs no gaps before it to suit one. */
    if (align < spw__tier_of(manager, SPW_PLACE_TIER(place))->granularity)
        align = spw__tier_of(manager, SPW_PLACE_TIER(place))->granularity;
    rc = spw__reservation_check(options->reservation, manager, SPW_PLACE_TIER(place), SPW_PLACE_TIER(place),
                                "spw_pool_alloc");
    if (rc != SPW_OK)
        return rc;
    *request = (struct spw__request){.manager = manager, .bytes = bytes, .align = align,
                                     .group = options->reservation ? options->reservation->group : group,
                                     .reservation = options->reservation,
                                     .nowait = (options->flags & SPW_NOWAIT) != 0,
                                     .first = SPW_PLACE_TIER(place), .lowest = SPW_PLACE_TIER(place)};
    return SPW_OK;
}

int spw__raw_wrap(struct spw__request *request, void *stream, spw_block *block)
{
    uint64_t serial;
    if (request->bytes == 0)
        return SPW_OK;
    if (request->reservation)
        request->block.group = request->group;
    const int rc = spw__raw_insert(&request->manager->raw, &request->block, &serial);
    if (rc != SPW_OK) {
        take_back(request, stream);
        return rc;
    }
    *block = (spw_block){.ptr = (void *)(uintptr_t)request->block.address, .size = request->bytes,
                         .reserved = {serial, SPW_PLACE(request->first, 0)}};
    return SPW_OK;
}

int spw_pool_alloc(spw_manager *manager, spw_place place, size_t bytes, size_t align, spw_stream *stream,
                   const spw_pool_options *options, spw_block *block)
{
    spw_pool_options taken;
    struct spw__request request;
    if (!block)
        return spw__fail(SPW_EINVAL, "spw_pool_alloc: block is NULL");
    *block = (spw_block){.ptr = NULL};
    int rc = prepare(manager, place, bytes, align, options, &taken, &request);
    if (rc != SPW_OK)
        return rc;
    if (bytes && !take_parked(&request, stream))
        rc = spw__request_run(&request, &taken.wait);
    rc = rc == SPW_OK ? spw__raw_wrap(&request, stream, block) : rc;
    spw__request_over(&request);
    return rc;
}

int spw_pool_alloc_start(spw_manager *manager, spw_place place, size_t bytes, size_t align, spw_stream *stream,
                         const spw_pool_options *options, spw_ticket **out)
{
    spw_pool_options taken;
    struct spw__request request;
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_pool_alloc_start: out is NULL");
    *out = NULL;
    int rc = prepare(manager, place, bytes, align, options, &taken, &request);
    if (rc == SPW_OK && request.nowait)
        rc = spw__ticket_refuse_nowait("spw_pool_alloc_start");
    if (rc == SPW_OK)
        rc = spw__ticket_create(manager, SPW__TICKET_BLOCK, &taken.wait, request.group, &ticket);
    if (rc != SPW_OK)
        return rc;
    ticket->request = request;
    if (bytes && take_parked(&ticket->request, stream)) {
        spw__ticket_end(ticket, spw__raw_wrap(&ticket->request, stream, &ticket->got.block));
        *out = ticket;
    } else {
        *out = spw__ticket_begin_request(ticket);
    }
    return SPW_OK;
}

/* Names the memory that address lies in: nothing is known of it there, or no longer. */
static int fail_unknown(spw_manager *manager, const char *call, uint64_t address, bool replaced)
{
    const void *ptr = (const void *)(uintptr_t)address;
    for (spw_tier tier = SPW_TIER_DEVICE; tier < SPW__MEMORY_TIERS; tier++)
        for (uint32_t i = 0; i < manager->tiers[tier].n_pools; i++) {
            const struct spw__pool *pool = &manager->tiers[tier].pools[i];
            if (address - pool->base >= pool->size)
                continue;
            const spw_error_info info = {.place = SPW_PLACE(tier, 0), .pool = i};
            return spw__fail_info(&info, SPW_EBADHANDLE, "%s: %p in pool %u of %s %s", call, ptr, i,
                                  spw_tier_name(tier),
                                  replaced ? "was freed already: the block that begins there now is a later one"
                                           : "is not the beginning of a live block: it was freed already, or never "
                                             "handed out");
        }
    return spw__fail(SPW_EBADHANDLE, "%s: %p lies in no pool of this manager", call, ptr);
}

static int free_address(spw_manager *manager, const char *call, void *ptr, uint64_t serial, spw_stream *stream)
{
    struct spw__block found;
    const int rc = manager ? spw__check_process(manager) : spw__fail(SPW_EINVAL, "%s: manager is NULL", call);
    if (rc != SPW_OK || !ptr)
        return rc;
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (!spw__raw_look(&manager->raw, address, serial, true, &found))
        return fail_unknown(manager, call, address,
                            spw__raw_look(&manager->raw, address, SPW__RAW_ANY, false, &found));
    give_block(manager, &found, stream);
    return SPW_OK;
}

int spw_pool_free(spw_manager *manager, const spw_block *block, spw_stream *stream)
{
    if (!block)
        return spw__fail(SPW_EINVAL, "spw_pool_free: block is NULL");
    /* No block has this serial number: it stands for any. */
    const uint64_t serial = block->reserved[0] == SPW__RAW_ANY ? 0 : block->reserved[0];
    return free_address(manager, "spw_pool_free", block->ptr, serial, stream);
}

int spw_pool_free_ptr(spw_manager *manager, void *ptr, spw_stream *stream)
{
    return free_address(manager, "spw_pool_free_ptr", ptr, SPW__RAW_ANY, stream);
}

size_t spw_pool_usable_size(spw_manager *manager, const void *ptr)
{
    struct spw__block found;
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (!manager || spw__check_process(manager) != SPW_OK || !ptr)
        return 0;
    if (spw__raw_look(&manager->raw, address, SPW__RAW_ANY, false, &found))
        return found.bytes;
    (void)fail_unknown(manager, "spw_pool_usable_size", address, false);
    return 0;
}

int spw_pool_trim(spw_manager *manager, spw_place place, uint64_t keep_bytes, uint64_t *trimmed)
{
    if (trimmed)
        *trimmed = 0;
    const int rc = check_place(manager, place, "spw_pool_trim");
    if (rc != SPW_OK)
        return rc;
    const uint64_t bytes = spw__tier_trim(spw__tier_of(manager, SPW_PLACE_TIER(place)), keep_bytes);
    spw__pressure_kick(manager, SPW_TIER_HOST); /* a victim may have found the pool busy */
    if (trimmed)
        *trimmed = bytes;
    return SPW_OK;
}

int spw_pool_regions(spw_manager *manager, spw_place place, spw_pool_region *regions, uint32_t max, uint32_t *n)
{
    if (!n || (!regions && max))
        return spw__fail(SPW_EINVAL, "spw_pool_regions: n is NULL, or regions is NULL and max is not 0");
    *n = 0;
    const int rc = check_place(manager, place, "spw_pool_regions");
    if (rc != SPW_OK)
        return rc;
    const struct spw__tier *tier = spw__tier_of(manager, SPW_PLACE_TIER(place));
    *n = tier->n_pools;
    for (uint32_t i = 0; i < tier->n_pools && i < max; i++)
        regions[i] = (spw_pool_region){.base = (void *)(uintptr_t)tier->pools[i].base, .size = tier->pools[i].size};
    return SPW_OK;
}
