/* Payloads: the bytes behind a handle, cut into pieces, each with a state of its own.
 *
 * A piece has a copy in memory (mem), one on disk (disk), or both (then the disk's is a clean copy: of sealed content,
 * or of content that nobody could change since it was written).
 *
 *     IDLE, mem        --evict_start--> SPILLING --evict_done--> IDLE, disk only (or mem in a lower tier)
 *     IDLE, mem + disk --evict_start (drop)--------------------> IDLE, disk only
 *     SPILLING         --cancelled, failed, or mapped meanwhile: evict_done--> IDLE, mem as before
 *     IDLE, mem + disk --a writer comes: spw__use_look_locked-----------> IDLE, mem only
 *     IDLE             --start_moves--> FETCHING --fetch_done--> IDLE, mem at the place asked for
 *     IDLE             --spw__arrive_locked--> ARRIVING --arrived--> IDLE, the same with copies enqueued: see arrive.h
 *     IDLE, disk only  --fetch_done(SPW_ECORRUPT)--> lost: the error sticks
 *     IDLE, not in use --its group is cancelled: spw__payload_purge--> IDLE, nothing
 *
 * Invariants: one authoritative copy at any time; the source is freed only after the new place is published, under the
 * payload's lock; a piece with pins does not move; while a view with WRITE is in its user's hands no piece is leaving,
 * or has a copy on disk; a piece that is sealed or spillable, IDLE, in memory, without pins and not gathering is in a
 * queue of victims, and no other is, but for one that was pinned there: a map leaves it queued, so that most maps need
 * no second lock, and the queue passes it over (spw__evict_claim) or the last unmap moves it to the warm end.
 *
 * Threads: fields are guarded by the payload's lock unless they say otherwise; whoever has just made the payload, or
 * has given back its last reference, is alone with it. Ownership: handles, moves and fetches hold references; the last
 * one frees the memory in every tier.
 */
#ifndef SPW_CORE_PAYLOAD_H
#define SPW_CORE_PAYLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"
#include "pool/tier.h"
#include "spill/item.h"
#include "spill/mover.h"
#include "src/core/reserve.h"

struct spw_manager;
struct spw__fetch;
struct spw__hole;

enum spw__piece_state { SPW__PIECE_IDLE, SPW__PIECE_SPILLING, SPW__PIECE_FETCHING, SPW__PIECE_ARRIVING,
                        SPW__PIECE_STRANDED };

struct spw__piece {
    struct spw__item item; /* first: spill/ hands items back; guarded by its queue's lock */
    struct spw__payload *payload; /* constant */
    struct spw__block mem; /* where its owner is noted, under the pool's lock, is what a search for a hole sees of it */
    union {
        struct spw__block to;   /* while moving to memory: where to */
        struct spw__block from; /* ARRIVING and STRANDED: where mem was, and the content is */
    };
    struct spw__extent disk;
    uint64_t sum; /* of the disk copy */
    uint64_t written_ns; /* when that was written */
    struct spw__move *move; /* in flight: SPILLING or FETCHING */
    struct spw__hole *hole; /* that the piece's move helps to open; NULL: none */
    _Atomic uint32_t pins; /* atomic, written under the payload's lock: queues look whether there are any */
    uint32_t index; /* constant */
    uint8_t state; /* enum spw__piece_state */
    int lost;      /* 0, or the error that sticks to it */
};

/* Which views are open: an empty buffer has no piece to pin, and a copy of a view that was closed must be told apart.
 */
enum { SPW__FEW_VIEWS = 3 };
#define SPW__VIEW_HELD UINT32_C(0x80000000) /* in the id of a ticket's own */
struct spw__views {
    uint32_t *ids; /* few, or metadata memory once there are more */
    uint32_t n, room;
    uint32_t held; /* of these, tickets' own, which no caller can close */
    uint32_t next; /* id of the next view */
    uint32_t few[SPW__FEW_VIEWS];
};

struct spw__payload {
    struct spw__mutex lock; /* first: a spare payload keeps it, and nothing else */
    struct spw_manager *manager; /* constant, as group, identity, size and n_pieces */
    struct spw__payload *next_spare; /* guarded by the spares' lock */
    struct spw__group *group;
    struct spw__use *last_use; /* NULL: nothing pending on a stream */
    struct spw__fetch *fetch;  /* at most one map brings the pieces together */
    uint64_t identity;         /* of the first piece; those of the others follow */
    uint64_t size;
    _Atomic uint32_t refs; /* atomic */
    struct spw__views views;
    uint32_t writers;      /* open views with WRITE */
    uint32_t n_pieces;
    bool sealed;
    bool spillable;        /* unsealed, and its owner lets it be pushed out */
    bool cancelled;        /* its group was: it is freed, but for what is used, and cannot be mapped */
    bool watched;          /* the mover will report the end of last_use */
    bool gathering;        /* the fetch has its room: no piece may leave */
    uint8_t overbooked;    /* tier + 1 where its memory was paid for by overbooking: there it goes first. 0: nowhere */
    struct spw__piece pieces[];
};

/* Makes a payload of size bytes over block (taken over; bytes 0 when size is 0). SPW_ENOMETA: block is still the
 * caller's. The result has one reference. */
int spw__payload_create(struct spw_manager *manager, struct spw__group *group, uint64_t size, struct spw__block *block,
                        struct spw__payload **out);

/* Frees the spares: no other call of the manager runs. */
void spw__payload_spares_finish(struct spw_manager *manager);

/* The memory of a payload was paid for by reservation, whose group is charged from now on. Lock held. */
void spw__payload_set_paid_locked(struct spw__payload *payload, const spw_reservation *reservation);

void spw__payload_ref(struct spw__payload *payload);
/* Takes a reference unless the payload is about to be freed. */
bool spw__payload_try_ref(struct spw__payload *payload);
/* The last one frees. Outside the choice of victims, what was freed is followed by spw__pressure_kick. */
void spw__payload_unref(struct spw__payload *payload);

/* Frees the bytes of a cancelled payload in every tier, but for what a view, a fetch, a move or a stream still uses:
 * for that it is called again when the use is over. Nothing happens to others. The caller holds a reference. */
void spw__payload_purge(struct spw__payload *payload);

/* SPW_ECANCELED, with detail, when the payload is cancelled. Payload locked. */
int spw__payload_check_locked(const struct spw__payload *payload);

uint64_t spw__piece_bytes(const struct spw__piece *piece);

/* Puts the piece's memory at block, and names it there as what can be moved. Payload locked, or not yet shared. */
void spw__piece_set_memory(struct spw__piece *piece, const struct spw__block *block);

/* True when a map holds the piece where it is. Any thread that keeps the piece alive. */
static inline bool spw__piece_pinned(const struct spw__piece *piece)
{
    return atomic_load_explicit(&piece->pins, memory_order_relaxed) != 0;
}

/* Adds a pin, or takes one away. Payload locked. */
static inline void spw__piece_pin_locked(struct spw__piece *piece, int32_t pins)
{
    const uint32_t now = atomic_load_explicit(&piece->pins, memory_order_relaxed);
    atomic_store_explicit(&piece->pins, now + (uint32_t)pins, memory_order_relaxed);
}

/* Where the piece counts as a victim: its owner's share of the queue of the pool that it lies in. Payload locked. */
struct spw__victim_share *spw__piece_share_locked(const struct spw__piece *piece);

/* True when the piece may be a victim. Payload locked. */
bool spw__piece_evictable_locked(const struct spw__piece *piece);

/* Queues the piece as a victim if it may be one, takes it out otherwise. Payload locked. */
void spw__piece_requeue_locked(struct spw__piece *piece, bool failed);

/* True when no move of any piece is in flight. Payload locked. */
bool spw__payload_idle_locked(const struct spw__payload *payload);

/* True when a spill of any piece is in flight. Payload locked. */
bool spw__payload_leaving_locked(const struct spw__payload *payload);

/* True while copies of it that were enqueued are under way: all pieces are ARRIVING. Payload locked. */
static inline bool spw__payload_arrives_locked(const struct spw__payload *payload)
{
    return payload->n_pieces && payload->pieces[0].state == SPW__PIECE_ARRIVING;
}

/* True when any piece has a copy on disk. Payload locked. */
bool spw__payload_on_disk_locked(const struct spw__payload *payload);

/* Gives back what lies on disk, which is about to differ from what is in memory. Payload locked. */
void spw__payload_drop_disk_locked(struct spw__payload *payload);

/* True when all pieces lie in one memory tier one behind the other; *tier and *address say where. Payload locked. */
bool spw__payload_contiguous_locked(const struct spw__payload *payload, spw_tier *tier, uint64_t *address);

/* Where a move of piece begins: memory if it is there and not lost, else disk. Payload locked. */
void spw__piece_source_locked(const struct spw__piece *piece, struct spw__end *from);

#endif
