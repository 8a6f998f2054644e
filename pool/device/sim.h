/* The simulated device's inside: what driver_sim.c (devices, contexts), sim_memory.c (addresses, bytes), sim_vmm.c and
 * sim_physical.c (mapped memory), sim_stream.c (streams, events, copies), sim_batch.c (several copies at once),
 * sim_attribute.c and sim_fault.c (the table, with its faults) share.
 *
 * Handles are pointers to the structures below under the tags that the ABI gives them. One lock per device guards all
 * of it; bytes are copied, poisoned and given back outside the lock.
 * Its host memory is plain heap memory, as a driver's own is: no budget of Spillway pays for it.
 */
#ifndef SPW_DEVICE_SIM_H
#define SPW_DEVICE_SIM_H

#include <stdbool.h>

#include "pool/base/fault.h"
#include "pool/base/lock.h"
#include "pool/device/driver.h"
#include "pool/device/sim_vmm.h"

/* A live allocation, or registered host memory. */
struct spw__sim_range {
    struct spw__sim_range *next; /* allocations: by offset */
    uintptr_t start;             /* allocations: offset in the reservation; registrations: address */
    uint64_t bytes;              /* charged */
    uint64_t span;               /* address space, bytes rounded up */
    bool freeing;                /* no longer usable, but its addresses are not free yet */
};

/* One record of an event: what waiters wait for, even when the event is recorded again later. */
struct spw__sim_mark {
    unsigned refs;
    bool done;
};

enum spw__sim_op_kind { SPW__SIM_COPY, SPW__SIM_SIGNAL, SPW__SIM_WAIT };

/* An enqueued operation. It stays at the head of its queue while it runs. */
struct spw__sim_op {
    struct spw__sim_op *next;
    enum spw__sim_op_kind kind;
    void *dst; /* COPY: host pointers, device memory's lie in the backing */
    const void *src;
    size_t bytes;
    struct spw__sim_mark *mark; /* SIGNAL, WAIT: one reference */
};

/* A stream: a FIFO with a thread that runs it. */
struct CUstream_st {
    struct CUctx_st *sim;
    struct CUstream_st *next;
    struct spw__sim_op *head, **tail;
    uint64_t enqueued, completed; /* operations, ever */
    bool closing;
    struct spw__cond work; /* head or closing changed */
    pthread_t thread;
};

struct CUevent_st {
    struct CUctx_st *sim;
    struct spw__sim_mark *mark; /* of the latest record, NULL: never recorded; one reference */
};

/* A device, and its primary context. Fields are constant or guarded by lock. */
struct CUctx_st {
    struct spw__mutex lock;
    struct spw__cond progress; /* some operation completed */
    spw__cu_device ordinal;
    unsigned retained;
    uint64_t capacity, used;
    char *reservation; /* the addresses: PROT_NONE, never backed */
    char *backing;     /* the bytes, at the same offsets */
    uint64_t span;     /* size of each */
    struct spw__sim_range *allocations, *registrations;
    struct spw__sim_vmm vmm;
    struct CUstream_st *streams;
    struct CUstream_st *default_stream; /* started with its first operation */
    spw__cu_result sticky;              /* SUCCESS, or what every call reports from now on */
};

/* Gives the thread's current device, locked. Without a current context, or after a sticky error, that error and no
 * lock. */
spw__cu_result spw__sim_enter(struct CUctx_st **sim);

/* The same for calls that give something back: even after a sticky error. NULL without a current context. */
struct CUctx_st *spw__sim_enter_to_free(void);

/* What a fault point says: SUCCESS, or for ENOMEM, ENOTRECOVERABLE (sticky) and any other errno OUT_OF_MEMORY,
 * ECC_UNCORRECTABLE and OPERATING_SYSTEM. */
spw__cu_result spw__sim_fault_locked(struct CUctx_st *sim, enum spw__fault_point point);

int spw__sim_memory_init(struct CUctx_st *sim); /* -1: no address space */
void spw__sim_memory_finish(struct CUctx_st *sim);
/* Where bytes at address lie, NULL unless one live allocation, or accessible mapped memory without a gap, holds them. */
void *spw__sim_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes);
/* True if the CPU may own [base, base + bytes): nothing of it is a device address. */
bool spw__sim_is_host_locked(const struct CUctx_st *sim, const void *base, uint64_t bytes);

/* The live allocation that holds address, NULL if none does. */
const struct spw__sim_range *spw__sim_allocation_locked(const struct CUctx_st *sim, uint64_t address);

/* True while an enqueued operation reads or writes the bytes at start, as translated. */
bool spw__sim_in_use_locked(const struct CUctx_st *sim, const char *start, uint64_t bytes);
void spw__sim_streams_finish(struct CUctx_st *sim); /* runs what is queued, ends every stream */

/* Loses the calling thread's current device, as after a sticky error; nothing without one. */
void spw__sim_lose(spw__cu_result sticky);

extern const struct spw__driver spw__sim_table;

/* The entry points themselves, behind the faults of the table: spw__sim_ and its field. */
#define SPW__X(field, name, symbol, version, params, args) spw__cu_result spw__sim_##field params;
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X

#endif
