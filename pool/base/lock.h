/* Locks with ranks: a thread may only take a lock whose rank is above every lock it holds.
 *
 * Debug builds (NDEBUG not set) check the order and the holder and abort on a violation; release builds are a plain
 * pthread mutex. No I/O, no copy and no callback happens under any of these.
 */
#ifndef SPW_BASE_LOCK_H
#define SPW_BASE_LOCK_H

#include <pthread.h>

/* All lock ranks, outermost first. */
enum spw__rank {
    SPW__RANK_THREADS = 1, /* which threads have caches of freed memory */
    SPW__RANK_PUMP,        /* one place's choice of victims */
    SPW__RANK_PAYLOAD,     /* one payload's pieces */
    SPW__RANK_VICTIM,      /* one pool's queue of victims */
    SPW__RANK_HOLE,        /* one hole that is being opened */
    SPW__RANK_WAIT,        /* the waiters of a manager */
    SPW__RANK_CANCEL,      /* one cancel token: the waits that were given it */
    SPW__RANK_PARKED,      /* raw memory freed on streams */
    SPW__RANK_LOOP,        /* what an event loop is told */
    SPW__RANK_MOVER,       /* the mover's inbox */
    SPW__RANK_STORE,       /* space of one spill folder */
    SPW__RANK_CACHES,      /* the list of one pool's caches */
    SPW__RANK_POOL,        /* one pool's range allocator */
    SPW__RANK_DEVICE,      /* pooled events; queues of the simulated device */
    SPW__RANK_IO,          /* queues of the threaded I/O engine */
    SPW__RANK_HANDLES,     /* live and free handles */
    SPW__RANK_GROUPS,      /* the tree of groups */
    SPW__RANK_TICKETS,     /* free tickets */
    SPW__RANK_RAW,         /* one shard of the raw blocks by address */
    SPW__RANK_MOVES,       /* set-aside moves */
    SPW__RANK_EXTERNAL,    /* charges for memory of others */
    SPW__RANK_LEDGER,      /* one tier's groups with minima */
    SPW__RANK_SPARES,      /* payloads kept for the next buffers */
    SPW__RANK_STREAMS,     /* streams that the engine created */
};

struct spw__mutex {
    pthread_mutex_t mutex;
    enum spw__rank rank;
    pthread_t holder; /* debug: valid while held; guarded by mutex */
    int held;
};

void spw__mutex_init(struct spw__mutex *mutex, enum spw__rank rank);
void spw__mutex_finish(struct spw__mutex *mutex);

/* For a lock that many threads take for some hundred nanoseconds each: looks for about as long whether it becomes free.
 * To sleep and be woken takes thousands. */
void spw__mutex_lock_soon(struct spw__mutex *mutex);

/* assert_held aborts unless the calling thread holds mutex. */
#ifdef NDEBUG
static inline void spw__mutex_lock(struct spw__mutex *mutex)
{
    (void)pthread_mutex_lock(&mutex->mutex);
}

static inline void spw__mutex_unlock(struct spw__mutex *mutex)
{
    (void)pthread_mutex_unlock(&mutex->mutex);
}

static inline void spw__mutex_assert_held(const struct spw__mutex *mutex)
{
    (void)mutex;
}
#else
void spw__mutex_lock(struct spw__mutex *mutex);
void spw__mutex_unlock(struct spw__mutex *mutex);
void spw__mutex_assert_held(const struct spw__mutex *mutex);
#endif

/* Condition on a ranked mutex, on CLOCK_MONOTONIC. timeout_ns < 0 waits without limit. Returns 0, or ETIMEDOUT. */
struct spw__cond {
    pthread_cond_t cond;
};
void spw__cond_init(struct spw__cond *cond);
void spw__cond_finish(struct spw__cond *cond);
int spw__cond_wait(struct spw__cond *cond, struct spw__mutex *mutex, long long timeout_ns);
void spw__cond_signal(struct spw__cond *cond);
void spw__cond_broadcast(struct spw__cond *cond);

#endif
