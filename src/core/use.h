/* Uses: what a stream was given to do with a payload's memory, and may still be doing. Moves, frees and maps come
 * after.
 *
 *     spw_unmap(stream) --note--> pending --its event completed--> over
 *
 * A payload remembers one use: a later one waits, on the device, for the earlier, and so covers it. Each use carries a
 * move of its own, without bytes, by which the mover reports its end: to be told needs no memory and nobody's turn.
 *
 * A spill under way uses the memory as well: who maps for writing comes after it, and then the copies on disk go, which
 * would differ from what is written.
 *
 * Threads: any; a payload's last_use and watched are guarded by its lock. Ownership: counted references.
 */
#ifndef SPW_CORE_USE_H
#define SPW_CORE_USE_H

#include "src/core/payload.h"

#include <spillway/wait.h>

/* A use that is over when stream has done all that it was given so far; one reference. SPW_ENOMETA, SPW_EDEVICE. */
int spw__use_create(struct spw_manager *manager, void *stream, struct spw__use **out);

struct spw__use *spw__use_ref(struct spw__use *use);
void spw__use_unref(struct spw_manager *manager, struct spw__use *use);

/* True while what a stream was given has not completed. */
bool spw__use_pending(struct spw_manager *manager, const struct spw__use *use);
/* The same for who asks whether the memory is free: until then it is not. */
bool spw__use_holds(struct spw_manager *manager, const struct spw__use *use);

/* Notes a use on stream that later moves must wait for. Payload locked. SPW_ENOMETA, SPW_EDEVICE: nothing was noted,
 * and the caller lets the stream finish instead. */
int spw__use_note_locked(struct spw__payload *payload, void *stream);

/* After a map, which holds the pieces: what is enqueued on stream from now on comes after the last use; without a
 * stream the call waits for that use. write: it also waits for spills that began before the map, and drops the copies
 * on disk. Errors: those of a wait, SPW_EDEVICE. */
int spw__use_order(struct spw__payload *payload, bool write, void *stream, const spw_wait_options *wait);

/* The same without the wait: SPW_EAGAIN, and the end of the last use, or of a move, will be reported as a change of the
 * payload. The payload is locked; the lock may be released in between. */
int spw__use_look_locked(struct spw__payload *payload, bool write, void *stream);

/* Calls done once the payload's last use, which is pending, has completed. Nobody else refers to the payload. */
void spw__use_when_over(struct spw__payload *payload, void (*done)(struct spw__move *move, int status));

/* The move by which the mover will report the end of the last use, to be submitted; NULL when it does so already. What
 * follows is a look at who waits for the payload, and spw__payload_purge. Payload locked. */
struct spw__move *spw__use_watch_locked(struct spw__payload *payload);

/* rc, the error that ended a wait for the payload, with what it waited for. Payload unlocked. */
int spw__use_fail_wait(struct spw__payload *payload, int rc);

/* Waits until the payload's state changes; it is locked on entry and unlocked on return. SPW_ECANCELED also when its
 * group is cancelled. */
int spw__payload_wait_unlock(struct spw__payload *payload, const spw_wait_options *wait, uint64_t deadline_ns);

#endif
