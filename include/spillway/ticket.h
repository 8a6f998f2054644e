/* Tickets: calls that were started and not waited for.
 *
 * Each call that may wait for memory has a form that starts it and returns a ticket at once: for event loops, and for
 * threads that have something better to do. The ticket carries what the call will bring.
 *
 *     spw_..._start --> under way --the call ends--> done: poll gives its result; take gives what it brought
 *                           \--spw_ticket_cancel--> cancelled: poll gives SPW_ECANCELED, and nothing was brought
 *
 * A ticket ends in exactly one of the two, once. An event loop watches spw_manager_fd, or its threads wait with
 * spw_ticket_wait. The work is done by the library's own thread; with threads=0 by spw_progress and by calls that wait.
 * A request that is served at once ends before the call that started it returns.
 *
 * Options are read while the call is started, tags are copied. What they name must last longer: the cancel token, the
 * reservation, the stream (of a map), the buffer (of a map) and the group until the ticket has ended, which one that
 * was destroyed under way does soon after; a task cannot be destroyed before it has, and somebody has looked.
 * options.wait says, as for any call, how long it may take from its start and on whose behalf it waits: a ticket under
 * way is one of its task's waits, and may end with SPW_ERETRY or SPW_ESPLIT. A thread of a task that sleeps on a
 * descriptor says so (spw_task_block_begin), or the task counts as running; as it does, unless it waits in the library,
 * from the end of a ticket that had to wait until somebody has looked at that.
 * The flags that forbid to wait (SPW_NOWAIT, SPW_MAP_NOWAIT, SPW_RESERVE_TRY) are SPW_EINVAL here: a call that does not
 * wait needs no ticket.
 *
 * Threads: every call may be made from any thread; a ticket may be polled, waited for and cancelled by several at once,
 * but not while it is destroyed.
 * Ownership: the caller owns the ticket, and what it takes out of it. The manager cannot be destroyed before its
 * tickets are; a forced destroy ends and frees them.
 *
 * Besides the errors that a call names, each that takes a ticket gives SPW_EBADHANDLE for NULL, for one that was
 * destroyed or is none, and SPW_EFORK in a forked child.
 */
#ifndef SPILLWAY_TICKET_H
#define SPILLWAY_TICKET_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/buffer.h>
#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/group.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/pool.h>
#include <spillway/reserve.h>
#include <spillway/task.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

typedef struct spw_ticket spw_ticket;

/* Start spw_admit, spw_alloc, spw_map, spw_reserve and spw_pool_alloc: the same arguments, of which those that would
 * take the result are replaced by the ticket. What is wrong with the arguments is told at once (SPW_EINVAL,
 * SPW_EBADHANDLE, SPW_EFORK, SPW_ECANCELED for a token or task that was cancelled before), as is SPW_ENOMETA when there
 * is no memory for a ticket; *out is then NULL. Everything else ends the ticket. None waits; memory of a pool that was
 * never used may first have to come from the system, as with SPW_NOWAIT.
 * spw_map_start: with options.stream, what the stream is given after the ticket has ended comes after earlier uses of
 * the buffer and after its copies, which need not be over when the ticket is (see spw_map). spw_pool_alloc_start:
 * stream only offers what the same stream has freed; it is not kept. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_admit_start(spw_manager *manager, size_t bytes, const spw_admit_options *options,
                                           spw_ticket **out);
SPW_API SPW_MUST_CHECK int spw_alloc_start(spw_manager *manager, spw_place place, size_t bytes,
                                           const spw_alloc_options *options, spw_ticket **out);
SPW_API SPW_MUST_CHECK int spw_map_start(spw_buffer *buffer, spw_place place, uint32_t flags,
                                         const spw_map_options *options, spw_ticket **out);
SPW_API SPW_MUST_CHECK int spw_reserve_start(spw_manager *manager, spw_place place, uint64_t bytes,
                                             const spw_reserve_options *options, spw_ticket **out);
SPW_API SPW_MUST_CHECK int spw_pool_alloc_start(spw_manager *manager, spw_place place, size_t bytes, size_t align,
                                                spw_stream *stream, const spw_pool_options *options, spw_ticket **out);

/* Starts spw_task_wait_turn, for a loop that was told SPW_ERETRY by a ticket: it ends when the task has its turn, and
 * brings nothing. Otherwise as the calls above. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_wait_turn_start(spw_task *task, const spw_wait_options *wait, spw_ticket **out);

/* Starts spw_reservation_grow: the reservation has grown once the ticket has ended with SPW_OK, and is as before if it
 * ends otherwise. The ticket brings nothing to be taken, and destroying it later takes nothing back. Until it has ended
 * the reservation may be used, grown and shrunk, but neither released nor merged into another, as during a blocking
 * call; once it was cancelled or destroyed under way it may. wait NULL means the defaults. Otherwise as the calls
 * above. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reservation_grow_start(spw_reservation *reservation, uint64_t bytes,
                                                      const spw_wait_options *wait, spw_ticket **out);

/* Starts spw_buffer_make_writable. buffer is the caller's, and as it was, until the result is taken: in place of the
 * caller's reference spw_ticket_take_buffer then gives either the same buffer, unsealed, or the copy. A ticket that
 * failed, was cancelled, or is destroyed without that leaves everything as before. The bytes of a copy are carried by
 * the mover, like those of a move; a deadline counts for the waits before that. A copy has the head that the buffer had
 * at the start.
 * From the start until the result was taken or the ticket destroyed the bytes are held where they lie, as by a map, and
 * the caller keeps its reference. What the caller does with it in between is told when the result is to be taken, and
 * changes nothing: SPW_EBUSY when the buffer was to be unsealed and has another reference or another such ticket by
 * now, SPW_EMAPPED when a view of it is open and no reference but the caller's is left; it may be taken once that has
 * ended.
 * Otherwise as the calls above. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_make_writable_start(spw_buffer *buffer, spw_place place,
                                                          const spw_alloc_options *options, spw_ticket **out);

/* Starts to give a group a share of a place, as spw_group_set does but for the wait: room for a higher minimum is made
 * as by spw_group_create. The share, all of it, is the group's once the ticket has ended with SPW_OK, which brings
 * nothing to be taken; if it ends otherwise the share is as before. So a group that needs minima is created without
 * any, which does not wait, and gets them by one of these for each place. While it is under way nobody pushes the group
 * below the minimum that it waits for; a share that another call sets meanwhile counts until then. On disk, where only
 * clean copies can be given up, it ends at once. wait NULL means the defaults. A minimum that can never be had is told
 * at once (SPW_ETOOBIG); the ticket ends with the errors of spw_group_create's waits, and SPW_ECANCELED when the group
 * is cancelled. Otherwise as the calls above. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_set_start(spw_group *group, spw_place place, const spw_group_share *share,
                                               const spw_wait_options *wait, spw_ticket **out);

/* SPW_EAGAIN while the ticket is under way; then the result of the call, for ever: SPW_OK, or its error, whose detail
 * becomes the thread's. Never blocks. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_ticket_poll(spw_ticket *ticket);

/* Waits until the ticket has ended, and returns the result of the call as spw_ticket_poll does. wait NULL means the
 * defaults. What ends this wait alone leaves the ticket under way, as spw_ticket_poll then says: SPW_ETIMEDOUT,
 * SPW_ECANCELED (this wait's token, its task), SPW_ESHUTDOWN, SPW_EINVAL. A task's thread that waits here counts as
 * waiting; for a ticket that no task started it may be asked itself, with SPW_ERETRY, SPW_ESPLIT or SPW_ENOMEM for this
 * wait. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_ticket_wait(spw_ticket *ticket, const spw_wait_options *wait);

/* Cancels the call. A ticket that is under way ends with SPW_ECANCELED, soon and without waiting for anybody; what it
 * had got meanwhile is given back. One that has ended stays as it is: spw_ticket_poll says which it was. SPW_OK in both
 * cases. A map's move under way may still end, and the bytes then lie at its place. Does not block. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_ticket_cancel(spw_ticket *ticket);

/* Hands over what the call brought, which is the caller's from then on: a buffer (admit, alloc, make_writable: see
 * there for two more errors), an open view (map), a reservation or a block. SPW_EINVAL, and *out is empty, when it was
 * taken already, or when the ticket is under way, failed or is of another kind. Never block. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_ticket_take_buffer(spw_ticket *ticket, spw_buffer **out);
SPW_API SPW_MUST_CHECK int spw_ticket_take_view(spw_ticket *ticket, spw_view *out);
SPW_API SPW_MUST_CHECK int spw_ticket_take_reservation(spw_ticket *ticket, spw_reservation **out);
SPW_API SPW_MUST_CHECK int spw_ticket_take_block(spw_ticket *ticket, spw_block *out);

/* Ends the ticket: what is under way is cancelled, which nobody waits for, and what was not taken is given back.
 * SPW_EBADHANDLE for one that was destroyed already. NULL is a no-op. Does not block. The result may be ignored, as
 * that of free. Since 0.1. */
SPW_API int spw_ticket_destroy(spw_ticket *ticket);

/* A descriptor for event loops: while it is readable, call spw_progress(manager, 0), then poll the tickets. It is
 * readable as long as a ticket that has ended was not looked at (poll, wait, take, destroy), and with threads=0 as long
 * as spw_progress has something to do, or device work is to be asked for again. It is only to be polled: nothing is
 * read from it, and it becomes unreadable by itself. The same one each time, close-on-exec; it belongs to the manager
 * and is closed with it. Never blocks. Errors are negative: SPW_EINVAL (NULL), SPW_ENOMEM (the system has no
 * descriptor, or no memory for one, left), SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_manager_fd(spw_manager *manager);

SPW_END_DECLS

#endif
