/* Tasks as the core sees them: a node of the ledger that what they allocate is charged to, who works for them, and how
 * far the arbiter has come with them (see arbiter.h).
 *
 * A destroyed task's memory stays the manager's until the manager goes, so that a stale handle is recognised, and is
 * used again once nothing is charged to it any more: buffers outlive their task.
 *
 * Threads: the fields say what guards them.
 */
#ifndef SPW_CORE_TASK_H
#define SPW_CORE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/wait.h"
#include "pool/ledger.h"

#include <spillway/task.h>

#define SPW__TASK_LIVE UINT64_C(0x7370775f7461736b)
#define SPW__TASK_DEAD UINT64_C(0x7370775f646f6e65)
#define SPW__TASK_NAME_BYTES 32

/* What a request that was refused for the sake of others had asked for. */
struct spw__lacked {
    uint64_t bytes; /* 0: nothing that freed memory would help with */
    uint64_t charge;
    spw_tier tier;
    bool in_one; /* memory, not only a promise of it */
};

/* A thread in spw_task_wait_turn. */
struct spw__turn {
    struct spw__waiter waiter; /* first */
    struct spw__turn *next;    /* guarded by the wait lock */
};

struct spw_task {
    struct spw__group node; /* first; its parent is the task's group, its shares lie behind the task */
    _Atomic uint64_t magic; /* atomic */
    spw_manager *manager;   /* constant while it lives, as the next four */
    char name[SPW__TASK_NAME_BYTES];
    int64_t priority;
    uint64_t serial; /* the age: lower is older */
    uint32_t asks_max;
    atomic_bool cancelled;  /* atomic: never cleared */
    atomic_bool gave_up;    /* atomic: it was asked too often, and its error is still to be told so */
    _Atomic uint32_t users; /* atomic: calls on its behalf under way */
    _Atomic uint32_t asks;  /* atomic, changed under the wait lock: SPW_ERETRY and SPW_ESPLIT since it got further */
    _Atomic uint64_t waits, retries, splits; /* atomic */
    /* Guarded by the wait lock. */
    struct spw_task *next;        /* among the live, oldest first, or the dead */
    uint32_t attached, blocked;   /* threads that work for it; those of them that wait, and waits of others */
    uint32_t outsiders;           /* of blocked: waits of threads that are not attached */
    uint32_t n_outside;           /* threads of it between block_begin and _end: they count among the blocked */
    uint32_t unheeded;            /* tickets that ended after a wait, and whose end nobody has looked at */
    bool running;                 /* counted by the arbiter: see spw__arbiter_change_locked */
    struct spw_reclaimer *reclaimers; /* registered */
    bool reclaiming;              /* the callback of one of them runs: its threads go on when that is over */
    struct spw__lacked lacked;
    uint64_t held_when_asked;     /* bytes of the memory tiers */
    struct spw__turn *turns;      /* of threads in spw_task_wait_turn */
    uint64_t backoff_until_ns;    /* mere room does not end its wait before that */
    const char *outside;          /* what a thread of it waits for outside; NULL: nothing */
};

/* The task on whose behalf a call with these options waits: wait->task, else the calling thread's; NULL: none. */
spw_task *spw__task_of(spw_manager *manager, const spw_wait_options *wait);

/* SPW_EINVAL, SPW_EBADHANDLE or SPW_ECANCELED when that task cannot wait. */
int spw__task_check(spw_manager *manager, const spw_wait_options *wait);

/* SPW_EBADHANDLE or SPW_EFORK, with call in the detail. */
int spw__task_check_handle(const spw_task *task, const char *call);

/* The same, and SPW_EINVAL unless the calling thread is attached to task and not in a wait outside. */
int spw__task_check_own(spw_task *task, const char *call);

/* True when the calling thread is attached to task. */
bool spw__task_is_own(const spw_manager *manager, const spw_task *task);

/* True when every thread that is attached to task waits. Wait lock held. */
static inline bool spw__task_all_wait(const spw_task *task)
{
    return task->attached <= task->blocked - task->outsiders;
}

/* What a call on behalf of task (NULL: none) is charged to. */
struct spw__group *spw__task_node(spw_manager *manager, spw_task *task);

/* The parts of spw_task_wait_turn that its two forms share. *own: the options, with the task. */
int spw__task_turn_check(spw_task *task, const spw_wait_options *wait, spw_wait_options *own);
uint64_t spw__task_backoff_until_ns(const spw_task *task);
/* Parks the task; turn's waiter names the token, and the completed hook if it has one. True: it ends with the back-off,
 * which is not the deadline. An asynchronous turn may be over when it returns. */
bool spw__task_enqueue_turn(spw_task *task, struct spw__turn *turn, uint64_t backoff_until_ns, uint64_t deadline_ns);
void spw__task_unlist_turn(spw_task *task, struct spw__turn *turn); /* its waiter is DONE */
int spw__task_turn_conclude(const spw_task *task, int rc);

/* Frees the tasks' memory. */
void spw__tasks_finish(spw_manager *manager);

#endif
