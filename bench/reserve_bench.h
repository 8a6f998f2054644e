/* What the parts of bench_reserve share: how a figure is taken. Neighbours: bench_reserve.c (the program),
 * reserve_buffers.c (buffers: admission, maps, and what to compare them with), reserve_ledger.c (reservations),
 * reserve_groups.c (what groups cost each other), reserve_waiters.c. */
#ifndef SPW_BENCH_RESERVE_BENCH_H
#define SPW_BENCH_RESERVE_BENCH_H

#include <stdbool.h>

#include <spillway/spillway.h>

/* Nanoseconds of one pair of calls: the median of the means of many chunks, the 10th and the 90th percentile. */
struct figure {
    double median, low, high;
};

/* How many pairs are played: first without looking, then in chunks that are timed one by one. */
struct plan {
    unsigned warm_up, chunks, per_chunk;
};

/* Sorts the means. */
struct figure figure_from(double *means, unsigned n);

/* Plays pairs(arg, n) by the plan. */
struct figure figure_of(void (*pairs)(void *arg, unsigned n), void *arg, const struct plan *plan);

/* Ends the program with the thread's error detail unless rc is SPW_OK. */
void must(int rc);

/* A manager of one host tier, without a spill folder. */
spw_manager *manager_of(const char *spec);

/* Reservations of 1 MiB in the host tier, made and released at once: by one thread, under as many groups one within the
 * other, or by several threads, as each of them sees it. (reserve_ledger.c) */
#define DEPTH_MAX 4u
#define THREADS_MAX 8u
struct figure reserve_release(const struct plan *plan, unsigned depth);
struct figure reserve_release_threads(const struct plan *plan, unsigned n_threads);

/* n requests wait for a full tier, as tickets, and its holder gives back what one needs, n times: nanoseconds of each
 * until the last has it. (reserve_waiters.c) */
double waiter_served(unsigned n);

/* What others cost a group: nanoseconds of a request that its maximum refuses and that finds no victim of its own, while
 * another group has so many buffers; and of a request that waits until something is released in its group, while so
 * many wait in 100 other groups, which have none to give. (reserve_groups.c) */
double victim_sought(unsigned n_others);
double waiter_beside(unsigned n_others);

/* Buffers of 1 MiB in the host tier, one thread. (reserve_buffers.c) */
struct figure admit_release(const struct plan *plan);
struct figure admit_seal_release(const struct plan *plan);

/* Maps of one resident buffer, or of several in turn, which changes who is the next victim. (reserve_buffers.c) */
struct figure map_unmap(const struct plan *plan, unsigned n_buffers, bool sealed);

/* What the same machine takes for less: memory from malloc, one lock, one counter. (reserve_buffers.c) */
struct figure malloc_free(const struct plan *plan);
struct figure lock_unlock(const struct plan *plan);
struct figure add_sub(const struct plan *plan);

#endif
