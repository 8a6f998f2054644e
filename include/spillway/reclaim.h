/* Reclaimers and external charges: memory that no buffer holds, and that still gives way, or still counts.
 *
 * A reclaimer makes an operator's own state (a hash table in raw memory, say) reclaimable. While the operator's task
 * waits and somebody else lacks room in a place, the library calls the operator's function, which frees what it can:
 * it writes partitions to buffers or files, and frees the raw memory that they lay in.
 *
 *     registered --its owner waits, somebody lacks room--> called --freed what was asked for--> registered
 *                                                             \--freed less--> spent --its owner has run again, or
 *                                                                      nobody waits for room there--> registered
 *
 * When a reclaimer is called:
 * - Never under a lock of the library, and only while its owner waits: while every thread that is attached to its task
 *   waits in the library or is between spw_task_block_begin and _end. (A task that no thread is attached to waits too:
 *   attach a thread before it touches what a reclaimer of the task frees.) Or by spw_task_pressure, on the caller.
 * - By a thread whose own request waits for room in the reclaimer's place. Where only tickets wait there, by a thread
 *   that the library has for nothing else (it starts with the first reclaimer), so that a callback holds up no move;
 *   with threads=0 by spw_progress, whose thread counts as waiting meanwhile, or by any call that waits. Never for a
 *   request or ticket with SPW_NOWAIT or a timeout of 0. The deadlines of a thread that calls one are looked at again
 *   when the callback has returned: keep callbacks short where deadlines are.
 * - One reclaimer of a task at a time. While one runs the threads of its task do not go on: waits that end, and
 *   spw_task_block_end and spw_task_attach, last until it is over. So it must not wait for them, nor take a lock that
 *   they hold during a call of the library.
 * - Only for what is lacking. Victims are chosen in this order: buffers of which a clean copy lies below; then
 *   whichever costs less for a MiB, spilling the coldest buffer or the cheapest reclaimer, buffers first among equals;
 *   then what is left of either. Spilling a MiB costs what the copies from that tier to the one below it took so far,
 *   summed, per MiB; 0.5 ms before there were any. Among reclaimers: the lower cost_ns_per_mib, then the lower
 *   priority, then the younger.
 * - Before any task is asked for memory (SPW_ERETRY) the reclaimers of waiting tasks have been called.
 *
 * Inside the callback no request waits for room, and no other reclaimer is called. What is allocated there comes out
 * of the reclaimer's own reserve (options.reserve_bytes), or of a reservation that the call names, and else fails with
 * SPW_ENOMEM: budget is taken from nobody who waits. Raw memory of the same task and place that the callback frees
 * fills the reserve up first, but for small objects. A map may wait for the buffer's own moves. No ticket is started or
 * waited for (SPW_EINVAL).
 *
 * Threads: every call may be made from any thread. Ownership: the caller owns a reclaimer, and unregisters it before it
 * destroys its task.
 */
#ifndef SPILLWAY_RECLAIM_H
#define SPILLWAY_RECLAIM_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

typedef struct spw_reclaimer spw_reclaimer;

/* options.priority: that of the task. */
#define SPW_RECLAIMER_PRIORITY_TASK INT64_MIN

/* Options of spw_reclaimer_register. */
typedef struct spw_reclaimer_options {
    size_t struct_size;
    const char *name; /* for messages: at most 31 bytes, copied; NULL: "" */
    spw_place place;  /* the memory that it frees */
    uint32_t reserved; /* must be 0 */
    int64_t priority; /* larger is called later, among equal costs. Initialised to SPW_RECLAIMER_PRIORITY_TASK */
    uint64_t cost_ns_per_mib; /* what freeing a MiB costs, with what it takes to build it again; 0: nothing */
    uint64_t reserve_bytes;   /* set aside for what the callback allocates; 0: it can allocate nothing */
    /* Bytes that reclaim could free now. 0: it is not called, and counts as spent. */
    uint64_t (*estimate)(void *arg);
    /* Frees bytes, or as much as it can; more only where they cannot be freed apart. Returns how many it freed. */
    uint64_t (*reclaim)(void *arg, uint64_t bytes);
    void *arg;
} spw_reclaimer_options;

/* Sets every field to its default, as spw_options_init(_sized) does. Never blocks; any thread. Since 0.1. */
SPW_API void spw_reclaimer_options_init_sized(spw_reclaimer_options *options, size_t size);

static inline void spw_reclaimer_options_init(spw_reclaimer_options *options)
{
    spw_reclaimer_options_init_sized(options, sizeof *options);
}

/* Registers a reclaimer of task. Its reserve is charged to the task, and found as by spw_reserve with its defaults:
 * only for that it may wait. From now on it may be called, even before this returns, when the task waits.
 * Errors: SPW_EINVAL (NULL, options, a place that is no memory tier of the manager), SPW_ENOMETA, SPW_EBADHANDLE,
 * SPW_EFORK, SPW_ENOMEM (also: no thread for tickets could be started), and those of spw_reserve. On error *out is NULL
 * and nothing is set aside. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reclaimer_register(spw_task *task, const spw_reclaimer_options *options,
                                                  spw_reclaimer **out);

/* Ends a reclaimer: once this returns it is called no more, is not running, and its reserve is free. Waits for a call
 * that is under way on another thread. From inside its own callback it returns at once: that call is the last, and the
 * reserve is free once it has returned. Errors: SPW_EBADHANDLE (unregistered already), SPW_EBUSY (from inside the
 * callback of another reclaimer, while this one runs: nothing happens), SPW_EFORK. NULL is a no-op. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reclaimer_unregister(spw_reclaimer *reclaimer);

/* Asks whether others lack memory: *bytes (NULL: not wanted) is what those who wait for room in place on behalf of
 * other tasks, or none, lacked when it was called. The reclaimers of task in that place are called for it on this
 * thread, which works for task: call it where the state is fit for that, whatever other threads of the task do. Does
 * not wait. From inside a callback *bytes is 0. Errors: SPW_EINVAL (this thread does not work for task, or is between
 * spw_task_block_begin and _end; a place that is no memory tier), SPW_EBADHANDLE, SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_pressure(spw_task *task, spw_place place, uint64_t *bytes);

/* Counts memory that somebody else allocated, a library with a pool of its own, say, as committed in a memory place:
 * bytes more, or less when negative. It is charged to the task that the calling thread works for, if any. Never refused
 * for want of room: what exceeds the budget is overbooked, counted and shown (spw_tier_stats), and as after the budget
 * was lowered nothing new is granted, and whoever asks sets off spilling, until it holds again. What is given back may
 * have been charged by any thread, and goes to those who wait.
 * tag says in statistics and messages whose memory it is: 1 to 31 printable ASCII characters other than " and \. A
 * manager with charges left is not destroyed.
 * Does not block. Errors, after which nothing has changed: SPW_EINVAL (NULL, the place, the tag; less than is charged
 * under the tag in that place would be left; all tags together would be charged 2^62 or more there), SPW_ENOMETA,
 * SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_external_charge(spw_manager *manager, spw_place place, int64_t bytes, const char *tag);

SPW_END_DECLS

#endif
