/* The simulated device's inside: what driver_sim.c (devices, contexts, table), sim_memory.c (addresses, bytes) and
 * sim_stream.c (streams, events, copies) share.
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
    struct CUstream_st *streams;
    struct CUstream_st *default_stream; /* started with its first operation */
    spw__cu_result sticky;              /* SUCCESS, or what every call reports from now on */
};

/* Gives the thread's current device, locked. Without a current context, or after a sticky error, that error and no
 * lock. */
spw__cu_result spw__sim_enter(struct CUctx_st **sim);

/* What a fault point says: SUCCESS, or for ENOMEM, ENOTRECOVERABLE (sticky) and any other errno OUT_OF_MEMORY,
 * ECC_UNCORRECTABLE and OPERATING_SYSTEM. */
spw__cu_result spw__sim_fault_locked(struct CUctx_st *sim, enum spw__fault_point point);

int spw__sim_memory_init(struct CUctx_st *sim); /* -1: no address space */
void spw__sim_memory_finish(struct CUctx_st *sim);
/* Where bytes at address lie, NULL unless one live allocation holds them all. */
void *spw__sim_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes);
/* True if the CPU may own [base, base + bytes): nothing of it is a device address. */
bool spw__sim_is_host_locked(const struct CUctx_st *sim, const void *base, uint64_t bytes);

/* True while an enqueued copy reads or writes the backing at [offset, offset + bytes). */
bool spw__sim_in_use_locked(const struct CUctx_st *sim, uint64_t offset, uint64_t bytes);
void spw__sim_streams_finish(struct CUctx_st *sim); /* runs what is queued, ends every stream */

/* The entry points themselves: spw__sim_ and the table's field. */
#define SPW__X(field, name, symbol, version, params) spw__cu_result spw__sim_##field params;
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X

#endif
