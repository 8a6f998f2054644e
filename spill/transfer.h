/* Transfers: one segment's way from source to destination. Used by mover.c alone.
 *
 *     to disk:    [copy in: device or unaligned memory --> slot] --> write --> done
 *     from disk:  read --> check --> [copy out: slot --> device or unaligned memory] --> done
 *     memory:     copy --> done (device copies: enqueued, done when their event is)
 *
 *     IDLE --launch--> COPY_IN --event--> IO --completion--> COPY_OUT --event--> IDLE, each step optional
 */
#ifndef SPW_SPILL_TRANSFER_H
#define SPW_SPILL_TRANSFER_H

#include "spill/mover.h"

enum { SPW__UNITS = 32, SPW__SLOTS_MAX = 64 };

enum spw__phase { SPW__PHASE_IDLE, SPW__PHASE_COPY_IN, SPW__PHASE_IO, SPW__PHASE_COPY_OUT };

/* Driving thread only. */
struct spw__unit {
    struct spw__io_req req; /* first: done callbacks cast back */
    struct spw__mover *mover;
    struct spw__move *move;
    struct spw__event *event;
    struct spw__device_copy copy; /* with a device: what is enqueued, or about to be */
    struct spw__unit *follower;   /* shares the event of this unit, whose copies were enqueued together; NULL: none */
    uint64_t offset;        /* within the move */
    uint32_t bytes;
    int slot;               /* staging slot, -1: none */
    enum spw__phase phase;
};

/* Small copies of one direction that a round has come upon: they are enqueued together, by one call where the driver
 * has it, and share one event. */
struct spw__batch {
    struct spw__unit *first, *last;
    unsigned n;
};

struct spw__mover {
    /* Constant once created. */
    struct spw__mover_config config;
    struct spw__io *io;
    spw__stream to_device, from_device;
    uint64_t segment_bytes; /* unit of transfer and of summing */
    uint32_t block_bytes;   /* alignment of direct I/O */
    /* Driving thread only. */
    struct spw__unit units[SPW__UNITS];
    uint32_t n_busy;        /* units */
    uint32_t n_events;      /* units that wait for a device event */
    struct spw__batch batches[2]; /* from the device and within it; to it */
    bool slot_busy[SPW__SLOTS_MAX];
    uint32_t n_slots;
    struct spw__move *queues[2], *queue_tails[2]; /* demand, background */
    struct spw__move *running;
    uint32_t demand_streak;
    uint64_t event_poll_ns; /* how long to wait before device events are looked at again, for who sleeps elsewhere */
    bool copied;            /* a CPU copy was made this round: poll before the next */
    /* Inbox. */
    struct spw__mutex lock;
    struct spw__move *inbox, *inbox_tail; /* guarded by lock */
    bool stopping;                        /* guarded by lock */
    _Atomic uint64_t under_way;           /* atomic: moves submitted whose done has not returned */
    atomic_bool sleeping;                 /* atomic: the driving thread waits, or is about to */
    _Atomic uint64_t next_ns;             /* atomic: when the last round wants to be followed by another */
    atomic_bool driving;                  /* atomic: who sets it is the driving thread until it clears it */
    pthread_t thread;                     /* constant once created; with own_thread */
};

/* Launches the next segment of move if a unit and, where needed, a slot are free: true when it did. */
bool spw__transfer_launch(struct spw__mover *mover, struct spw__move *move);

/* Enqueues the copies that are batched. After launches, and after I/O has completed. */
void spw__transfer_flush(struct spw__mover *mover);

/* Advances units whose device event has completed. */
void spw__transfer_poll_events(struct spw__mover *mover);

#endif
