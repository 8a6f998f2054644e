/* Mapped memory of a simulated device: reservations of addresses, physical memory, and what is mapped where.
 *
 * All of it is guarded by the device's lock. For the simulated driver's own files only (sim.h).
 */
#ifndef SPW_DEVICE_SIM_VMM_H
#define SPW_DEVICE_SIM_VMM_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/device/cuda_abi.h"

struct CUctx_st;

#define SPW__SIM_LARGE_ALIGN (2048u * 1024) /* of allocations from this size on, as CUDA's; the unit of mapped memory */
#define SPW__SIM_CAPACITY_MAX (1ull << 45)
#define SPW__SIM_POISON 0xa5                /* what fresh memory holds */
#define SPW__SIM_POISON_MAX (16ull * 1024 * 1024) /* larger ones stay untouched: poison would make them resident */

/* Physical memory: a part of the device's file, which is never given to another. */
struct spw__sim_physical {
    struct spw__sim_physical *next;
    uint64_t offset, bytes; /* in the file */
    unsigned mappings;
    bool released; /* the handle is gone: freed with the last mapping */
    unsigned handle_types;
    bool rdma;
};

struct spw__sim_mapping {
    struct spw__sim_mapping *next; /* by offset */
    uint64_t offset, bytes;        /* in the reservation */
    struct spw__sim_physical *physical;
    bool accessible;
};

struct spw__sim_reservation {
    struct spw__sim_reservation *next;
    char *addresses; /* PROT_NONE, never backed */
    char *backing;   /* at the same offsets, the file's parts that are mapped */
    uint64_t bytes, span;
    struct spw__sim_mapping *mappings;
};

struct spw__sim_vmm {
    int file; /* -1 until there is physical memory */
    uint64_t file_bytes;
    struct spw__sim_reservation *reservations;
    struct spw__sim_physical *physicals;
};

void spw__sim_vmm_init(struct CUctx_st *sim);
void spw__sim_vmm_finish(struct CUctx_st *sim);

/* Where bytes at address lie; NULL unless accessible mappings of one reservation hold them without a gap. */
void *spw__sim_vmm_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes);
/* True if any reservation has an address in [first, first + bytes). */
bool spw__sim_vmm_overlaps_locked(const struct CUctx_st *sim, uint64_t first, uint64_t bytes);
/* The reservation that holds address, and the mapping there or NULL. NULL: none. */
const struct spw__sim_reservation *spw__sim_vmm_find_locked(const struct CUctx_st *sim, uint64_t address,
                                                            const struct spw__sim_mapping **mapping);

/* Physical memory (sim_physical.c). The one behind a handle, NULL if none is. */
struct spw__sim_physical *spw__sim_physical_find_locked(const struct CUctx_st *sim, spw__cu_mem_handle handle);
/* Takes physical off the device if nothing needs it any more: true, and the caller frees it, without the lock. */
bool spw__sim_physical_drop_locked(struct CUctx_st *sim, struct spw__sim_physical *physical);
void spw__sim_physical_free(struct CUctx_st *sim, struct spw__sim_physical *physical);

/* Maps span bytes of fresh private memory at a multiple of SPW__SIM_LARGE_ALIGN; NULL: no address space. */
char *spw__sim_map_aligned(uint64_t span, int protection);

#endif
