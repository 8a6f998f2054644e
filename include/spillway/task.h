/* Tasks: units of the engine's work that hold memory and wait for more of it.
 *
 * The arbiter knows them. When every task waits and nothing can be evicted or is on its way, somebody has to give way:
 * the least important task is asked to give back (SPW_ERETRY), then the others, each gets its turn, and the most
 * important one is asked to take less (SPW_ESPLIT). No wait hangs because every task waits for another.
 *
 * What a task does on SPW_ERETRY: it seals, unmaps, marks spillable (spw_buffer_set_spillable) or releases what it can,
 * calls spw_task_wait_turn, and tries again. On SPW_ESPLIT: it tries again with a part of the work. A task that is
 * asked again and again without getting further ends with SPW_ENOMEM, whose detail names who holds the memory.
 *
 *     running --its threads all wait--> waiting --granted--> running
 *                                        |--SPW_ERETRY--> running --spw_task_wait_turn--> parked --its turn--> running
 *                                        |--SPW_ESPLIT--> running
 *                                        \--SPW_ENOMEM, SPW_ECANCELED, deadline--> running
 *
 * A thread works for the task that it is attached to: its calls that may wait are on behalf of that task unless
 * wait.task says otherwise, and what it allocates is charged to it. A task waits when all its attached threads wait in
 * this library or are between spw_task_block_begin and _end. A task without attached threads never keeps the arbiter
 * from acting: whoever names a task in wait.task alone must expect to be asked while it computes.
 *
 * Threads: every call may be made from any thread; attach, detach and block_begin/_end concern the calling one.
 * Ownership: the caller owns the task, and destroys it before its group and its manager; buffers outlive it.
 *
 * Besides the errors that a call names, each that takes a task gives SPW_EBADHANDLE for NULL, for one that was
 * destroyed or is none, and SPW_EFORK in a forked child.
 *
 * (Origin: the retry and split of Spark RAPIDS' task arbitration.)
 */
#ifndef SPILLWAY_TASK_H
#define SPILLWAY_TASK_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

/* Asked so often in a row, a task gets SPW_ENOMEM instead. */
#define SPW_TASK_ASKS_MAX 500u

/* Options of spw_task_create. */
typedef struct spw_task_options {
    size_t struct_size;
    spw_group *group; /* what it allocates is charged to; NULL: the manager's own budgets */
    const char *name; /* for messages and statistics: at most 31 bytes, copied; NULL: "" */
    int64_t priority; /* larger is more important; among equals the older task is */
    uint32_t asks_max; /* SPW_ERETRY and SPW_ESPLIT in a row before SPW_ENOMEM; 0: SPW_TASK_ASKS_MAX */
    uint32_t reserved; /* must be 0 */
} spw_task_options;

/* What a task holds and went through. */
typedef struct spw_task_usage {
    size_t struct_size;
    uint64_t committed_bytes[SPW_TIER_META]; /* charged to it now, by spw_tier: reservations included */
    uint64_t peak_bytes[SPW_TIER_META];
    uint64_t waits, retries, splits; /* waits for room that began; SPW_ERETRY and SPW_ESPLIT that it was given */
} spw_task_usage;

/* Set every field to its default, as spw_options_init(_sized) does. Never block; any thread. Since 0.1. */
SPW_API void spw_task_options_init_sized(spw_task_options *options, size_t size);
SPW_API void spw_task_usage_init_sized(spw_task_usage *usage, size_t size);

static inline void spw_task_options_init(spw_task_options *options)
{
    spw_task_options_init_sized(options, sizeof *options);
}

static inline void spw_task_usage_init(spw_task_usage *usage)
{
    spw_task_usage_init_sized(usage, sizeof *usage);
}

/* Creates a task; options NULL means the defaults. Never blocks. SPW_EINVAL, SPW_ENOMETA, SPW_ECANCELED (its group was
 * cancelled), SPW_EFORK. On error *out is NULL. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_create(spw_manager *manager, const spw_task_options *options, spw_task **out);

/* Destroys a task that no thread is attached to, on whose behalf no call or ticket is under way, and that has no
 * reclaimer. What it allocated stays where it is, as memory without a task. The parked task of highest priority gets
 * its turn. Never blocks. SPW_EBUSY (threads, calls, tickets or reclaimers: nothing happens). NULL is a no-op. Since
 * 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_destroy(spw_task *task);

/* The calling thread works for task from now on, until it detaches, which it must do before it ends. Blocks only
 * while a reclaimer of the task runs (reclaim.h). SPW_EBUSY: it works for a task of that manager already; SPW_EINVAL:
 * it works for tasks of four managers already, or is inside a reclaimer. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_attach(spw_task *task);

/* Ends what spw_task_attach began on this thread. Never blocks. SPW_EINVAL: it does not work for task, or is between
 * spw_task_block_begin and _end, or inside a reclaimer. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_detach(spw_task *task);

/* The calling thread is about to wait for something outside the library (the network, a foreign pool), and is done with
 * it: in between it counts as waiting. what says in messages for what: a string that stays valid until _end. May not
 * nest. Never block, but for _end while a reclaimer of the task runs. SPW_EINVAL (a thread between the two already, or
 * not; a thread of another task; from inside a reclaimer). Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_block_begin(spw_task *task, const char *what);
SPW_API SPW_MUST_CHECK int spw_task_block_end(spw_task *task);

/* After SPW_ERETRY, once the task has given back what it can: waits until another task has finished, or until as much
 * as it lacked is free and nobody else waits for it, or until the arbiter gives it its turn because all others wait;
 * not merely until something is freed. The more often it was asked in a row, the longer it waits for mere room. Returns
 * at once when the task was not asked since it last got further. wait NULL means the defaults; wait.task must be NULL
 * or task. Errors: SPW_ETIMEDOUT, SPW_ECANCELED, SPW_ESHUTDOWN, SPW_EINVAL (also from inside a reclaimer). Since 0.1.
 */
SPW_API SPW_MUST_CHECK int spw_task_wait_turn(spw_task *task, const spw_wait_options *wait);

/* Ends every wait on behalf of the task with SPW_ECANCELED, now and from now on. What it holds stays its holders'. Does
 * not block; any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_cancel(spw_task *task);

/* Reads what the task holds. usage->struct_size must be set (spw_task_usage_init), and is kept. Never blocks.
 * SPW_EINVAL (usage is NULL, or its struct_size not set). Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_task_usage_get(spw_task *task, spw_task_usage *usage);

SPW_END_DECLS

#endif
