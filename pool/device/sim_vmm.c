/* Mapped memory of a simulated device, by CUDA's rules.
 *
 * A reservation is a pair of ranges like the device's own (sim_memory.c): addresses that are never backed, and at the
 * same offsets the bytes. Physical memory is a part of one file without a name, so that it can be mapped at several
 * places, keeps its bytes while it is mapped nowhere, and neighbouring mappings are one range for a copy. A part of the
 * file is given out once and punched out when it is freed.
 *
 *     reserved --mem_map--> mapped --mem_set_access--> accessible --mem_unmap--> reserved --mem_address_free--> gone
 *
 * As allocations are, mappings are given back even after a sticky error, which is then returned.
 */
#include "pool/device/sim_vmm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/base/units.h"
#include "pool/device/sim.h"

#define UNIT SPW__SIM_LARGE_ALIGN

void spw__sim_vmm_init(struct CUctx_st *sim)
{
    sim->vmm.file = -1;
}

static void free_reservation(struct spw__sim_reservation *reservation)
{
    while (reservation->mappings) {
        struct spw__sim_mapping *mapping = reservation->mappings;
        reservation->mappings = mapping->next;
        free(mapping);
    }
    if (reservation->addresses)
        (void)munmap(reservation->addresses, reservation->span);
    if (reservation->backing)
        (void)munmap(reservation->backing, reservation->span);
    free(reservation);
}

void spw__sim_vmm_finish(struct CUctx_st *sim)
{
    struct spw__sim_vmm *vmm = &sim->vmm;
    while (vmm->reservations) {
        struct spw__sim_reservation *reservation = vmm->reservations;
        vmm->reservations = reservation->next;
        free_reservation(reservation);
    }
    while (vmm->physicals) {
        struct spw__sim_physical *physical = vmm->physicals;
        vmm->physicals = physical->next;
        free(physical);
    }
    if (vmm->file >= 0)
        (void)close(vmm->file);
}

/* Finding */

static struct spw__sim_reservation *find_reservation_locked(const struct CUctx_st *sim, uint64_t address)
{
    struct spw__sim_reservation *reservation = sim->vmm.reservations;
    while (reservation && address - (uintptr_t)reservation->addresses >= reservation->bytes)
        reservation = reservation->next;
    return reservation;
}

const struct spw__sim_reservation *spw__sim_vmm_find_locked(const struct CUctx_st *sim, uint64_t address,
                                                            const struct spw__sim_mapping **mapping)
{
    const struct spw__sim_reservation *reservation = find_reservation_locked(sim, address);
    *mapping = reservation ? reservation->mappings : NULL;
    while (*mapping && address - (uintptr_t)reservation->addresses - (*mapping)->offset >= (*mapping)->bytes)
        *mapping = (*mapping)->next;
    return reservation;
}

/* True if mappings cover [offset, offset + bytes) without a gap and, where asked, all are accessible. */
static bool is_covered(const struct spw__sim_reservation *reservation, uint64_t offset, uint64_t bytes, bool accessible)
{
    uint64_t at = offset;
    const struct spw__sim_mapping *mapping = reservation->mappings;
    for (; mapping && at - offset < bytes; mapping = mapping->next) {
        if (at - mapping->offset >= mapping->bytes)
            continue;
        if (accessible && !mapping->accessible)
            return false;
        at = mapping->offset + mapping->bytes;
    }
    return at - offset >= bytes;
}

void *spw__sim_vmm_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes)
{
    const struct spw__sim_reservation *reservation = find_reservation_locked(sim, address);
    if (!reservation)
        return NULL;
    const uint64_t offset = address - (uintptr_t)reservation->addresses;
    const bool inside = bytes <= reservation->bytes - offset;
    return inside && is_covered(reservation, offset, bytes ? bytes : 1, true) ? reservation->backing + offset : NULL;
}

bool spw__sim_vmm_overlaps_locked(const struct CUctx_st *sim, uint64_t first, uint64_t bytes)
{
    const struct spw__sim_reservation *each = sim->vmm.reservations;
    while (each && (first >= (uintptr_t)each->addresses + each->span || first + bytes <= (uintptr_t)each->addresses))
        each = each->next;
    return each != NULL;
}

/* Addresses */

/* The hint is ignored, as a driver may. */
spw__cu_result spw__sim_mem_address_reserve(spw__cu_deviceptr *address, size_t bytes, size_t align,
                                            spw__cu_deviceptr hint, unsigned long long flags)
{
    struct CUctx_st *sim;
    (void)hint;
    if (bytes == 0 || bytes % SPW__IO_BLOCK != 0 || (align & (align - 1)) || flags)
        return SPW__CU_ERROR_INVALID_VALUE;
    if (bytes > SPW__SIM_CAPACITY_MAX || align > UNIT)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    struct spw__sim_reservation *added = calloc(1, sizeof *added);
    if (!added)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    added->bytes = bytes;
    added->span = spw__round_up(bytes, UNIT);
    added->addresses = spw__sim_map_aligned(added->span, PROT_NONE);
    added->backing = spw__sim_map_aligned(added->span, PROT_NONE);
    spw__cu_result result = SPW__CU_ERROR_OUT_OF_MEMORY;
    if (added->addresses && added->backing)
        result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS) {
        free_reservation(added);
        return result;
    }
    added->next = sim->vmm.reservations;
    sim->vmm.reservations = added;
    spw__mutex_unlock(&sim->lock);
    *address = (uintptr_t)added->addresses;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_mem_address_free(spw__cu_deviceptr address, size_t bytes)
{
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    struct spw__sim_reservation **link = &sim->vmm.reservations, *found;
    while (*link && (uintptr_t)(*link)->addresses != address)
        link = &(*link)->next;
    found = *link;
    const spw__cu_result sticky = sim->sticky;
    if (found && (found->bytes != bytes || found->mappings))
        found = NULL;
    if (found)
        *link = found->next;
    spw__mutex_unlock(&sim->lock);
    if (!found)
        return SPW__CU_ERROR_INVALID_VALUE;
    free_reservation(found);
    return sticky;
}

/* Mapping */

static spw__cu_result map_locked(struct CUctx_st *sim, uint64_t address, spw__cu_mem_handle handle,
                                 struct spw__sim_mapping *mapping)
{
    struct spw__sim_reservation *reservation = find_reservation_locked(sim, address);
    struct spw__sim_physical *physical = spw__sim_physical_find_locked(sim, handle);
    if (!reservation || !physical || mapping->bytes > physical->bytes)
        return SPW__CU_ERROR_INVALID_VALUE;
    mapping->offset = address - (uintptr_t)reservation->addresses;
    mapping->physical = physical;
    if (mapping->bytes > reservation->bytes - mapping->offset)
        return SPW__CU_ERROR_INVALID_VALUE;
    struct spw__sim_mapping **link = &reservation->mappings;
    while (*link && (*link)->offset + (*link)->bytes <= mapping->offset)
        link = &(*link)->next;
    if (*link && (*link)->offset < mapping->offset + mapping->bytes)
        return SPW__CU_ERROR_INVALID_VALUE;
    char *bytes = reservation->backing + mapping->offset;
    if (mmap(bytes, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, sim->vmm.file,
             (off_t)physical->offset) == MAP_FAILED)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    (void)madvise(bytes, mapping->bytes, MADV_HUGEPAGE);
    (void)madvise(bytes, mapping->bytes, MADV_DONTFORK);
    physical->mappings++;
    mapping->next = *link;
    *link = mapping;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_mem_map(spw__cu_deviceptr address, size_t bytes, size_t offset, spw__cu_mem_handle handle,
                                unsigned long long flags)
{
    struct CUctx_st *sim;
    if (bytes == 0 || bytes % UNIT != 0 || address % UNIT != 0 || offset || flags)
        return SPW__CU_ERROR_INVALID_VALUE;
    struct spw__sim_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    mapping->bytes = bytes;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result == SPW__CU_SUCCESS) {
        result = map_locked(sim, address, handle, mapping);
        spw__mutex_unlock(&sim->lock);
    }
    if (result != SPW__CU_SUCCESS)
        free(mapping);
    return result;
}

/* The link to the first of the mappings that fill [offset, offset + bytes) exactly, NULL if they do not. */
static struct spw__sim_mapping **find_whole(struct spw__sim_reservation *reservation, uint64_t offset, uint64_t bytes)
{
    struct spw__sim_mapping **first = &reservation->mappings;
    uint64_t at = offset;
    while (*first && (*first)->offset != offset)
        first = &(*first)->next;
    for (const struct spw__sim_mapping *each = *first; each && each->offset == at && at - offset < bytes;
         each = each->next)
        at += each->bytes;
    return bytes && at - offset == bytes ? first : NULL;
}

spw__cu_result spw__sim_mem_set_access(spw__cu_deviceptr address, size_t bytes, const struct CUmemAccessDesc_st *access,
                                       size_t count)
{
    const struct spw__cu_access *wanted = (const struct spw__cu_access *)access;
    struct CUctx_st *sim;
    if (!wanted || count != 1 || wanted->location.type != SPW__CU_MEM_LOCATION_TYPE_DEVICE)
        return SPW__CU_ERROR_INVALID_VALUE;
    if (wanted->flags != SPW__CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        wanted->flags != SPW__CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return SPW__CU_ERROR_NOT_SUPPORTED;
    spw__cu_result result = spw__sim_enter(&sim);
    if (result != SPW__CU_SUCCESS)
        return result;
    struct spw__sim_reservation *reservation = find_reservation_locked(sim, address);
    const uint64_t offset = reservation ? address - (uintptr_t)reservation->addresses : 0;
    struct spw__sim_mapping **first = reservation ? find_whole(reservation, offset, bytes) : NULL;
    if (!first)
        result = SPW__CU_ERROR_INVALID_VALUE;
    else if (wanted->location.id != sim->ordinal)
        result = SPW__CU_ERROR_INVALID_DEVICE;
    for (struct spw__sim_mapping *each = result == SPW__CU_SUCCESS ? *first : NULL;
         each && each->offset < offset + bytes; each = each->next)
        each->accessible = wanted->flags != SPW__CU_MEM_ACCESS_FLAGS_PROT_NONE;
    spw__mutex_unlock(&sim->lock);
    return result;
}

/* Copies that are enqueued meanwhile find the mappings from first on inaccessible. */
static void wait_unused_locked(struct CUctx_st *sim, struct spw__sim_reservation *reservation,
                               struct spw__sim_mapping *first, uint64_t end)
{
    const uint64_t start = first->offset;
    for (struct spw__sim_mapping *each = first; each && each->offset < end; each = each->next)
        each->accessible = false;
    spw__sim_wait_unused_locked(sim, reservation->backing + start, end - start);
}

/* Takes the mappings off; returns the physical memory that goes with them. */
static struct spw__sim_physical *unmap_locked(struct CUctx_st *sim, struct spw__sim_reservation *reservation,
                                              uint64_t offset, uint64_t bytes)
{
    struct spw__sim_mapping **link = &reservation->mappings;
    struct spw__sim_physical *dropped = NULL;
    (void)mmap(reservation->backing + offset, bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    while (*link && (*link)->offset < offset)
        link = &(*link)->next;
    while (*link && (*link)->offset < offset + bytes) {
        struct spw__sim_mapping *mapping = *link;
        *link = mapping->next;
        mapping->physical->mappings--;
        if (spw__sim_physical_drop_locked(sim, mapping->physical)) {
            mapping->physical->next = dropped;
            dropped = mapping->physical;
        }
        free(mapping);
    }
    return dropped;
}

/* As cuMemFree, waits for the work that uses the memory. */
spw__cu_result spw__sim_mem_unmap(spw__cu_deviceptr address, size_t bytes)
{
    struct CUctx_st *sim = spw__sim_enter_to_free();
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    struct spw__sim_reservation *reservation = find_reservation_locked(sim, address);
    const uint64_t offset = reservation ? address - (uintptr_t)reservation->addresses : 0;
    struct spw__sim_mapping **first = reservation ? find_whole(reservation, offset, bytes) : NULL;
    struct spw__sim_physical *dropped = NULL;
    spw__cu_result result = SPW__CU_ERROR_INVALID_VALUE;
    if (first) {
        result = sim->sticky;
        wait_unused_locked(sim, reservation, *first, offset + bytes);
        dropped = unmap_locked(sim, reservation, offset, bytes);
    }
    spw__mutex_unlock(&sim->lock);
    while (dropped) {
        struct spw__sim_physical *physical = dropped;
        dropped = physical->next;
        spw__sim_physical_free(sim, physical);
    }
    return result;
}
