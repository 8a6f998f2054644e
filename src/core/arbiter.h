/* The arbiter: who gives way when every task waits.
 *
 * Every wait of the library is known to it through the wait set's hook: a task runs as long as one of its threads does.
 * When no task runs, neither the mover nor a reclaimer has anything under way, no request is patient (patience.h), and
 * a task waits for memory, nothing will happen by itself:
 *
 *     look: a barrier of the queue is up           --lift--> those behind it are tried
 *           a reclaimer was not tried yet      --summon: who waits for room there--> it is called
 *           a holder that could help was not asked --ask_retry: the least important--> its wait ends with SPW_ERETRY
 *           none is left to ask, tasks are parked  --give_turn: the most important--> its wait_turn ends
 *           all who wait had their turn            --ask_split: the most important--> its wait ends with SPW_ESPLIT
 *           it was asked asks_max times in a row   --give_up--> its wait ends with SPW_ENOMEM, holders named
 *
 * Every step lets a task run, so that the next look comes only when it waits again. A task's count begins anew once it
 * has what it lacked, or holds more than when it was asked (granted): what it merely gets back of what it gave does not
 * count, or it could get and give back the same for ever. tests/model/ checks this protocol; the names in brackets and
 * behind the arrows are its transitions.
 *
 * A parked task is woken when another finishes (give_turn), when what it lacked is free and nobody waits for it
 * (wake_satisfied), or by the ladder; not merely because something was freed. Memory without a task prevents nothing:
 * only tasks count as running.
 *
 * Threads: all state is guarded by the manager's wait lock, but for what is marked atomic.
 */
#ifndef SPW_CORE_ARBITER_H
#define SPW_CORE_ARBITER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/base/wait.h"
#include "src/core/task.h"

struct spw_manager;
struct spw__request;

struct spw__arbiter {
    struct spw_task *tasks, *last; /* live ones, oldest first */
    struct spw_task *dead;
    uint32_t n_running;         /* tasks that run */
    _Atomic uint32_t n_tasks;   /* atomic, changed under the lock */
    _Atomic uint32_t n_parked;  /* atomic, changed under the lock */
    uint64_t next_serial;
};

/* The wait set's hook: a thread begins (1) or ends (-1) to wait for waiter. Wait lock held. */
void spw__arbiter_blocked(void *arg, struct spw__waiter *waiter, int change);

/* Threads of task have come (attached), or wait (blocked). Wait lock held. It runs as long as one of its threads does;
 * and while it has tickets whose end nobody has looked at, unless one of its threads waits in the library: who sleeps
 * on a descriptor is about to look. */
void spw__arbiter_change_locked(struct spw_manager *manager, struct spw_task *task, int attached, int blocked);

/* Looks whether somebody has to give way. Wait lock held, or not. */
void spw__arbiter_look_locked(struct spw_manager *manager);
void spw__arbiter_look(struct spw_manager *manager);

/* Something was freed: parked tasks that lacked no more than what is free go on. Not under a lock. */
void spw__arbiter_wake_satisfied(struct spw_manager *manager);

/* The parked task of highest priority goes on. Wait lock held. */
void spw__arbiter_give_turn_locked(struct spw_manager *manager);

/* A request of task was granted. */
void spw__arbiter_granted(struct spw_manager *manager, struct spw_task *task, uint64_t bytes);

/* Writes who holds memory of tier, at most size bytes with the terminating 0: `"scan" 12345 (waits), others 678; 2
 * other requests wait`. */
void spw__arbiter_describe(struct spw_manager *manager, spw_tier tier, char *text, size_t size);

#endif
