/* Arrivals: copies that a map with a stream has enqueued and does not wait for.
 *
 *     fetch_step --spw__arrive_locked: copies enqueued--> ARRIVING --their event completed: arrived--> IDLE
 *         \--not all of the bytes are within reach of a copy engine: SPW_EAGAIN, moves carry them
 *
 *     ARRIVING --the device is lost, no view open: arrived--> IDLE, at the old place
 *              \--the same while views are open: arrived--> STRANDED --the last unmap--> IDLE, at the old place
 *
 * The new place is published at once, and the copies' end becomes the payload's last use: so whatever comes next (the
 * map's stream, other maps, moves, frees) is ordered after them as after any use. The old place stays the authoritative
 * copy until they have completed, and counts as free only then; the payload cannot move meanwhile.
 *
 * Threads: any; all that an arrival changes is guarded by its payload's lock. Ownership: it holds a reference to the
 * payload, and one to the use, until the copies have completed.
 */
#ifndef SPW_CORE_ARRIVE_H
#define SPW_CORE_ARRIVE_H

#include "src/core/payload.h"

/* Brings the pieces to the blocks found for them (piece->to), which are charged to group from then on; discard: their
 * content is not needed. SPW_OK: they are there. SPW_EAGAIN: nothing happened, moves are to do it. Else an error, and
 * the pieces are where they were. Every piece is IDLE. The payload is locked; the lock is released in between. */
int spw__arrive_locked(struct spw__payload *payload, struct spw__group *group, bool discard);

/* SPW_EDEVICE, with detail, while the payload is STRANDED, or will be: what its views show is not its content. Payload
 * locked. */
int spw__arrival_check_locked(const struct spw__payload *payload);

/* The same without ARRIVING: SPW_EAGAIN, and the arrival's end will be reported as a change of the payload. */
int spw__arrival_look_locked(const struct spw__payload *payload);

/* The last view was closed: a stranded payload lies at its old place again. Payload locked. */
void spw__arrival_unstrand_locked(struct spw__payload *payload);

#endif
