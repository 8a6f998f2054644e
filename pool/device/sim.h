/* The simulated device's inside: what driver_sim.c (devices, contexts), sim_memory.c (addresses, bytes), sim_vmm.c and
 * sim_physical.c (mapped memory), sim_stream.c (streams, copies, launches), sim_batch.c (several copies at once),
 * sim_event.c (events), sim_run.c (the streams' threads), sim_engine.c (copies at a model's pace), sim_schedule.c (the
 * adversarial schedule), sim_attribute.c and sim_fault.c (the table, with its faults) share.
 *
 * Handles are pointers to the structures below under the tags that the ABI gives them. One lock per device guards all
 * of it; bytes are copied, poisoned and given back, and launched functions run, outside the lock.
 * Its host memory is plain heap memory, as a driver's own is: no budget of Spillway pays for it.
 */
#ifndef SPW_DEVICE_SIM_H
#define SPW_DEVICE_SIM_H

#include <stdbool.h>

#include "pool/base/fault.h"
#include "pool/base/lock.h"
#include "pool/device/driver.h"
#include "pool/device/sim_model.h"
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
    uint64_t done_ns; /* with a model: its time of that */
    /* With a seed: */
    bool granted;               /* its record is granted a turn */
    bool asked;                 /* patience is drawn */
    unsigned patience;          /* queries that are still answered with NOT_READY */
    struct CUstream_st *stream; /* records it; valid until granted */
};

enum spw__sim_op_kind { SPW__SIM_COPY, SPW__SIM_FUNCTION, SPW__SIM_SIGNAL, SPW__SIM_WAIT };

/* An enqueued operation. It stays at the head of its queue while it runs. */
struct spw__sim_op {
    struct spw__sim_op *next;
    struct CUstream_st *stream;
    uint64_t seq; /* the device's count of operations */
    enum spw__sim_op_kind kind;
    void *dst; /* COPY: host pointers, device memory's lie in the backing */
    const void *src;
    size_t bytes;
    void (*fn)(void *arg); /* FUNCTION */
    void *arg;
    struct spw__sim_mark *mark;  /* SIGNAL, WAIT: one reference */
    enum spw__sim_engine engine; /* COPY */
    uint64_t enqueued_ns;        /* with a model */
    /* With a seed: */
    struct spw__sim_op *next_turn;
    bool granted;
};

/* A stream: a FIFO with a thread that runs it. */
struct CUstream_st {
    struct CUctx_st *sim;
    struct CUstream_st *next;
    struct spw__sim_op *head, **tail;
    uint64_t enqueued, completed; /* operations, ever */
    bool running;                 /* the thread is in a copy or a function, without the lock */
    bool closing;
    struct spw__cond work; /* head, turn or closing changed */
    pthread_t thread;
    uint64_t at_ns;             /* with a model: its time of the latest completion */
    struct CUstream_st *behind; /* with a model: next in line for the same engine */
    /* With a seed: */
    struct spw__sim_op *undecided; /* the first that is not granted a turn */
    struct spw__sim_op *turn;      /* what the thread is to run now */
};

/* The adversarial schedule: see sim_schedule.c. */
struct spw__sim_schedule {
    uint64_t seed;                                           /* 0: none, the streams' threads run as they come */
    uint64_t random;                                         /* state of the draws */
    unsigned eagerness, burst_max, pieces_max, patience_max; /* the seed's temper */
    struct spw__sim_op *turns, **turns_tail;                 /* granted, not started: in the order granted */
    struct spw__sim_op *holder;                              /* holds the turn: nothing else starts while it runs */
    uint64_t held_since_ns;
    unsigned n_long;      /* functions that run on after they lost the turn */
    uint64_t calls;       /* of the API */
    uint64_t called_ns;   /* the latest one */
    uint64_t progress_ns; /* the latest completion, or help */
};

/* Copies at the model's pace: see sim_engine.c. */
struct spw__sim_pacing {
    bool on;
    const struct spw__log *log; /* may be NULL */
    struct spw__sim_link link;
    struct CUstream_st *lines[SPW__SIM_ENGINES]; /* of streams with a copy that is ready; the first one's runs */
    uint64_t copies, late;                       /* late: the machine took longer than the model */
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
    uint64_t ops;                       /* operations enqueued, ever */
    struct spw__sim_schedule schedule;
    struct spw__sim_pacing pacing;
    _Atomic long events;   /* atomic: not destroyed */
    unsigned copying;      /* copies that run at this moment */
    spw__cu_result sticky; /* SUCCESS, or what every call reports from now on */
};

/* Gives the thread's current device, locked. Without a current context, or after a sticky error, that error and no
 * lock. */
spw__cu_result spw__sim_enter(struct CUctx_st **sim);

/* The same for calls that give something back: even after a sticky error. NULL without a current context, or inside a
 * launched function. */
struct CUctx_st *spw__sim_enter_to_free(void);

/* What a fault point says: SUCCESS, or for ENOMEM, ENOTRECOVERABLE (sticky) and any other errno OUT_OF_MEMORY,
 * ECC_UNCORRECTABLE and OPERATING_SYSTEM. */
spw__cu_result spw__sim_fault_locked(struct CUctx_st *sim, enum spw__fault_point point);

int spw__sim_memory_init(struct CUctx_st *sim); /* -1: no address space */
void spw__sim_memory_finish(struct CUctx_st *sim);
/* Where bytes at address lie, NULL unless one live allocation, or accessible mapped memory without a gap, holds them.
 */
void *spw__sim_translate_locked(const struct CUctx_st *sim, uint64_t address, uint64_t bytes);
/* True if the CPU may own [base, base + bytes): nothing of it is a device address. */
bool spw__sim_is_host_locked(const struct CUctx_st *sim, const void *base, uint64_t bytes);

/* The live allocation that holds address, NULL if none does. */
const struct spw__sim_range *spw__sim_allocation_locked(const struct CUctx_st *sim, uint64_t address);

/* sim_stream.c. Device operands of a copy were translated by the caller: NULL means they are not inside one live
 * allocation. */
spw__cu_result spw__sim_copy_locked(struct CUctx_st *sim, struct CUstream_st *stream, enum spw__sim_engine engine,
                                    void *dst, const void *src, size_t bytes);
/* Checks a stream handle; NULL becomes the default stream, started when it is first needed. */
spw__cu_result spw__sim_resolve_locked(struct CUctx_st *sim, struct CUstream_st **stream);
void spw__sim_enqueue_locked(struct CUstream_st *stream, struct spw__sim_op *op);
/* What an entry point that enqueued or waited does last: with a seed the schedule goes on. May wait for copies. */
void spw__sim_called_locked(struct CUctx_st *sim);
/* Waits for enqueued operations that read or write the bytes at start, as translated; without the lock meanwhile. */
void spw__sim_wait_unused_locked(struct CUctx_st *sim, const void *start, uint64_t bytes);
void spw__sim_streams_finish(struct CUctx_st *sim); /* runs what is queued, ends every stream */

/* sim_run.c */
int spw__sim_start_worker(struct CUstream_st *stream);
void spw__sim_complete_locked(struct CUctx_st *sim, struct CUstream_st *stream); /* its head has run: frees it */
void spw__sim_put_mark_locked(struct spw__sim_mark *mark);
bool spw__sim_in_function(void); /* of the calling thread: it is running a launched function */
/* Until something completed; with a seed, not for ever: what holds everything up is found out meanwhile. */
void spw__sim_wait_locked(struct CUctx_st *sim);

/* sim_engine.c */
void spw__sim_pacing_init(struct CUctx_st *sim, const struct spw__sim_config *config); /* after the schedule's */
void spw__sim_pacing_finish(const struct CUctx_st *sim); /* after the streams' */
void spw__sim_pacing_enter_worker(const struct CUctx_st *sim);
/* Copies when the engine gets to it, and returns at the model's end of it. */
void spw__sim_pace_copy_locked(struct CUctx_st *sim, struct CUstream_st *stream, const struct spw__sim_op *op);

/* sim_schedule.c; every call but init and is_on needs a seed. */
void spw__sim_schedule_init(struct CUctx_st *sim, uint64_t seed);
static inline bool spw__sim_schedule_is_on(const struct CUctx_st *sim)
{
    return sim->schedule.seed != 0;
}
uint64_t spw__sim_draw_locked(struct CUctx_st *sim, uint64_t n);          /* 0..n-1 */
size_t spw__sim_schedule_piece_locked(struct CUctx_st *sim, size_t left); /* of a copy: 1..left */
void spw__sim_schedule_called_locked(struct CUctx_st *sim);               /* a call: some of the work may run */
void spw__sim_schedule_queried_locked(struct CUctx_st *sim, struct spw__sim_mark *mark); /* which is not done */
/* Grants op a turn, and before it what it depends on. */
void spw__sim_schedule_force_locked(struct CUctx_st *sim, struct spw__sim_op *op);
void spw__sim_schedule_force_stream_locked(struct CUctx_st *sim, struct CUstream_st *stream);
void spw__sim_schedule_pump_locked(struct CUctx_st *sim);                          /* starts what may start */
void spw__sim_schedule_ended_locked(struct CUctx_st *sim, struct spw__sim_op *op); /* op ran, before it is completed */
void spw__sim_schedule_stalled_locked(struct CUctx_st *sim); /* a wait was long: helps what is held up */
void spw__sim_schedule_idle_locked(struct CUctx_st *sim);    /* a worker found nothing to do for long */
long long spw__sim_schedule_idle_ns(void);
long long spw__sim_schedule_stall_ns(void);

/* The device is lost from now on. Returns when no copy runs any more. */
void spw__sim_lose_locked(struct CUctx_st *sim, spw__cu_result sticky);
/* The same for the calling thread's current device; without one, for all of the process. */
void spw__sim_lose(spw__cu_result sticky);

extern const struct spw__driver spw__sim_table;

/* The entry points themselves, behind the faults of the table: spw__sim_ and its field. */
#define SPW__X(field, name, symbol, version, params, args) spw__cu_result spw__sim_##field params;
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X

#endif
