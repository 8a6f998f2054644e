/* The mover: carries bytes between tiers. It knows places and extents, neither buffers nor budgets.
 *
 * A move is staged, written to its full length (with a sum where it goes to disk), and only then reported as done; its
 * owner publishes the new place and frees the source. Any failure leaves the source as it was. Moves never wait for a
 * budget: what they need (an extent, a staging slot, a unit) is either there at once, or freed by moves in flight.
 *
 *     submit --> QUEUED --start: a unit is free, the extent found--> RUNNING --last unit done--> DONE (callback)
 *                  ^  \--cancel before start--> DONE (SPW_ECANCELED)   |
 *                  \---- a folder failed: next folder, from offset 0 --/
 *
 * A move is cut into units of one segment each; several are in flight, of several moves. Each unit is a small state
 * machine in transfer.c. Demand moves (a caller waits for the data) overtake the others, which do not starve.
 *
 * Threads: submit and cancel by any. Everything else happens on the driving thread: the mover's own, or with threads=0
 * whoever calls spw__mover_drive (one at a time). done is called there, without locks.
 * Ownership: a move belongs to the mover from submit until done is called.
 */
#ifndef SPW_SPILL_MOVER_H
#define SPW_SPILL_MOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/clock.h"
#include "pool/base/counters.h"
#include "pool/base/lock.h"
#include "pool/base/log.h"
#include "pool/base/meta.h"
#include "pool/device/device.h"
#include "spill/io/io.h"
#include "spill/store.h"

#include <spillway/place.h>

/* One end of a move. */
struct spw__end {
    spw_tier tier;
    uint64_t address;          /* memory tiers */
    uint64_t capacity;         /* memory tiers: bytes that belong to this end, >= the move's */
    /* disk: the source's, or found by the mover for a destination, and given back by it when the move fails. */
    struct spw__extent extent;
};

struct spw__use;

struct spw__move {
    /* Set by the owner. bytes 0: nothing is carried, done is called once `use` has completed. */
    struct spw__end from, to;
    uint64_t bytes;
    struct spw__group *group;   /* charged for the disk space of a destination */
    uint64_t identity;          /* of the piece, mixed into its sum */
    uint64_t sum;               /* in: expected, for reads; out: for writes to disk */
    struct spw__use *use;       /* last use on a device stream that must come first; not owned; NULL: none */
    bool demand;
    void (*done)(struct spw__move *move, int status); /* on failure the thread's error detail describes it */
    void *arg;
    atomic_bool cancel;         /* atomic: set by spw__mover_cancel, looked at before the first segment */
    atomic_bool drop;           /* atomic: set by spw__mover_drop, looked at before each segment */
    /* Owner thread of the mover only. */
    struct spw__move *next;
    uint64_t issued_bytes;
    uint64_t found_sum;
    uint64_t started_ns;
    uint32_t units;             /* in flight */
    uint32_t excluded_folders;
    int status;
    int os_errno;
    uint64_t failed_offset;
    char reason[120];
};

/* The last use of memory on a stream: shared by its owner and the moves that must come after it. */
struct spw__use {
    struct spw__event *event;
    _Atomic uint32_t refs; /* atomic */
    struct spw__move watch; /* its owner's, to be told when the use is over: one at a time */
};

/* Counters, from first_counter on. */
enum spw__mover_counter {
    SPW__MOVER_DISK_WRITTEN = 0,
    SPW__MOVER_DISK_READ,
    SPW__MOVER_CORRUPT,
    SPW__MOVER_EDGES, /* per [from][to]: copies, bytes, ns */
    SPW__MOVER_COUNTERS = SPW__MOVER_EDGES + 3 * SPW_TIER_COUNT * SPW_TIER_COUNT
};

struct spw__mover_config {
    struct spw__store *store;   /* NULL: no disk tier; not owned */
    struct spw__device *device; /* NULL: no device tier; not owned */
    void *staging;              /* CPU memory, I/O-aligned; not owned */
    uint64_t staging_bytes;
    spw_io_kind io;
    uint32_t io_threads;
    bool own_thread;
    bool verify;
    const struct spw__clock *clock;
    const struct spw__log *log;
    struct spw__meta *meta;
    struct spw__counters *counters;
    unsigned first_counter;
    /* Asked when there is no room for a charge of bytes to group: frees disk space that is not the only copy; false
     * when there is none. */
    bool (*reclaim_disk)(void *arg, struct spw__group *group, uint64_t bytes);
    void *reclaim_arg;
    /* Called without locks when the last move under way is over. May be NULL. */
    void (*idle)(void *arg);
    void *idle_arg;
    /* Called without locks by the mover's own thread before it sleeps: does what has come due, and returns in how many
     * nanoseconds it wants to be called again; -1: not before spw__mover_wake. May be NULL. */
    int64_t (*due)(void *arg);
    void *due_arg;
    /* Without a thread of the mover's: called, also under locks, when what spw__mover_due_ns says may have changed. May
     * be NULL. */
    void (*changed)(void *arg);
    void *changed_arg;
};

struct spw__mover;

/* SPW_ENOMETA, SPW_ENOTSUP (io=uring and the kernel refuses), SPW_EIO, SPW_EDEVICE, SPW_ENOMEM (no thread). */
int spw__mover_create(const struct spw__mover_config *config, struct spw__mover **out);

/* Finishes every move that was submitted, then ends the thread. NULL is a no-op. */
void spw__mover_destroy(struct spw__mover *mover);

void spw__mover_submit(struct spw__mover *mover, struct spw__move *move);

/* Something is due earlier than the due hook last said. Any thread, also under locks; never blocks. */
void spw__mover_wake(struct spw__mover *mover);

/* A move that has not started ends with SPW_ECANCELED; one that has goes on. */
void spw__mover_cancel(struct spw__move *move);

/* Nobody needs the move any more: no further segment of it starts, and it ends with SPW_ECANCELED unless all of them
 * had. */
void spw__mover_drop(struct spw__move *move);

/* threads=0: one round of progress, waiting for a completion for at most timeout_ns. Returns true when work is left.
 * When another thread drives already it waits for a moment and returns. */
bool spw__mover_drive(struct spw__mover *mover, int64_t timeout_ns);

/* When spw__mover_drive has something to do, by the real clock: 0: now; UINT64_MAX: once the descriptor is readable, or
 * the changed hook was called. While somebody drives, and with a thread of the mover's, it is UINT64_MAX. Any thread.
 */
uint64_t spw__mover_due_ns(struct spw__mover *mover);
/* Readable when I/O has completed that spw__mover_drive has not seen; the mover's. Before that is relied upon it must
 * have been asked for. Any thread. */
int spw__mover_fd(struct spw__mover *mover);

/* True while a move is under way: from its submission until its done has returned. Any thread. */
bool spw__mover_busy(const struct spw__mover *mover);

/* Enqueues a copy between the device and another memory tier, or within the device, on a copy stream of the mover's,
 * after the use (NULL: none), and returns: for who orders what comes next by an event of that stream. The driver may
 * make copies of pageable memory at once. SPW_EDEVICE: it was not enqueued. Any thread. */
int spw__mover_enqueue(struct spw__mover *mover, const struct spw__end *from, const struct spw__end *to, uint64_t bytes,
                       const struct spw__use *after);
/* The stream of the copies that end on the device, or of those that leave it. */
spw__stream spw__mover_copy_stream(const struct spw__mover *mover, bool to_device);
/* Counts such a copy, that has completed, with the moves of its edge. */
void spw__mover_count_copy(struct spw__mover *mover, spw_tier from, spw_tier to, uint64_t bytes, uint64_t started_ns);

bool spw__mover_io_is_uring(const struct spw__mover *mover);

#endif
