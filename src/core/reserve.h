/* Reservations inside: handles that cost a few nanoseconds, and how an allocation is paid out of one.
 *
 * Slots lie in chunks of metadata memory that are never given back while the manager lives, so that a second release
 * and a stale handle are recognised. Threads are dealt shards of slots and walk through theirs round and round, so that
 * a slot is used again as late as possible; a slot is taken with one compare-and-swap, and no lock.
 *
 *     DEAD --claim (spw_reserve, split)--> CLAIMED --filled--> LIVE --release or merge--> CLAIMED --emptied--> DEAD
 *
 * Paying: spend moves bytes from the reservation to an allocation under way; settle ends that, with the bytes spent, or
 * back where they were. A block that was paid for names no group; its owner takes the charge over by naming the
 * reservation's, or gives it back with put_back and frees a block that still names none. Nothing of this passes the
 * ledger: committed does not change.
 *
 * Threads: any. Ownership: whoever has a reservation among its options keeps it live during the call.
 */
#ifndef SPW_CORE_RESERVE_H
#define SPW_CORE_RESERVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/counters.h"
#include "pool/tier.h"

#include <spillway/reserve.h>

struct spw_reservation {
    _Alignas(64) _Atomic uint64_t magic; /* atomic */
    _Atomic uint64_t bytes;   /* atomic: neither allocated nor being allocated */
    _Atomic uint64_t pending; /* atomic: of allocations under way */
    spw_manager *manager;     /* constant while live */
    _Atomic(struct spw__group *) group; /* atomic: as tier */
    _Atomic uint32_t tier;    /* atomic: constant while live, but looked at by whoever sums up */
    _Atomic bool overbooks;   /* atomic: it exceeded the budget when it was granted */
};

#define SPW__SLOT_LIVE UINT64_C(0x7370775f72736c76)
#define SPW__SLOT_CLAIMED UINT64_C(0x7370775f7273636c)
#define SPW__SLOT_DEAD UINT64_C(0x7370775f72736464)

/* Chunk 0 holds this many slots; each further one as many as all before it. */
enum { SPW__RESERVATION_CHUNK = 64, SPW__RESERVATION_CHUNKS = 24 };

struct spw__reservation_shard {
    _Alignas(64) _Atomic uint32_t cursor; /* atomic: where its threads look next */
    _Atomic uint32_t room;                /* atomic: slots, a power of two or 0; only grows */
    _Atomic(struct spw_reservation *) chunks[SPW__RESERVATION_CHUNKS]; /* atomic; only NULL changes */
};

struct spw__reservations {
    struct spw__reservation_shard shards[SPW__COUNTER_SHARDS];
};

/* A slot that is the caller's to fill; NULL: SPW_ENOMETA, with detail. (reserve_slots.c, as all up to look) */
spw_reservation *spw__reservation_claim(struct spw_manager *manager);
/* Makes a claimed slot live, and returns it. */
spw_reservation *spw__reservation_fill(spw_reservation *slot, struct spw_manager *manager, struct spw__group *group,
                                       spw_tier tier, uint64_t bytes, bool overbooks);
/* A claimed slot is anybody's again. */
void spw__reservation_bury(spw_reservation *slot);

void spw__reservations_finish(struct spw_manager *manager); /* forgets what is live */

struct spw__request;

/* Makes a reservation of what a request got; SPW_ENOMETA: it was given back. (reserve.c) */
int spw__reservation_wrap(const struct spw__request *request, spw_reservation **out);
/* Gives back what such a request got. */
void spw__reservation_ungrant(const struct spw__request *request);

struct spw__reserved {
    uint64_t live;  /* reservations */
    uint64_t bytes; /* that they hold */
};
/* A look at what may change meanwhile. */
struct spw__reserved spw__reservations_look(struct spw_manager *manager, spw_tier tier);

/* Reservations charged to group, or to one below it; empty ones too, which the ledger knows nothing of. A group that
 * one of them named when this began is not freed before it ends. */
struct spw__reserved spw__reservations_of(struct spw_manager *manager, const struct spw__group *group);

/* SPW_EBUSY, with how many hold how much, while any is live. */
int spw__reservations_check_none(struct spw_manager *manager);

/* SPW_OK when NULL, or live and of this manager and a tier from first to lowest; else SPW_EBADHANDLE or SPW_EINVAL,
 * with call in the detail. */
int spw__reservation_check(const spw_reservation *reservation, const spw_manager *manager, spw_tier first,
                           spw_tier lowest, const char *call);

static inline spw_tier spw__reservation_tier(const spw_reservation *reservation)
{
    return (spw_tier)atomic_load_explicit(&reservation->tier, memory_order_relaxed);
}

/* SPW_EINVAL, and no change, when the reservation holds less. Each success is followed by settle. */
int spw__reservation_spend(spw_reservation *reservation, uint64_t bytes);
void spw__reservation_settle(spw_reservation *reservation, uint64_t bytes, bool spent);

/* Its place as tier + 1 when it exceeded the budget; else 0. */
static inline uint8_t spw__reservation_overbooked(const spw_reservation *reservation)
{
    return atomic_load(&reservation->overbooks) ? (uint8_t)(spw__reservation_tier(reservation) + 1) : 0;
}

/* spw_reserve with its defaults, for whatever group. */
int spw__reserve_for(struct spw_manager *manager, struct spw__group *group, spw_tier tier, uint64_t bytes,
                     spw_reservation **out);

/* Gives back bytes that were spent, of a block that names no group. */
void spw__reservation_put_back(spw_reservation *reservation, uint64_t bytes);

#endif
