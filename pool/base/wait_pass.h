/* Inside the wait primitive: how a waiter ends, passes over those that wait, barriers. For wait.c, wait_pass.c and
 * wait_cancel.c, and for those above that end waits or change who runs while they hold the lock (arbiter, tasks,
 * tickets); everybody else includes wait.h.
 *
 * Threads: all under the set's lock. Ownership: as in wait.h.
 */
#ifndef SPW_BASE_WAIT_PASS_H
#define SPW_BASE_WAIT_PASS_H

#include "pool/base/wait.h"

/* Puts the waiter into its trees, with a place in the order, and takes it out again. */
void spw__wait_insert_locked(struct spw__waitset *set, struct spw__waiter *waiter);

/* The waiter is DONE. An asynchronous one is not to be touched after. */
void spw__wait_finish_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result);

/* The same with what an attempt or a visit gave: SPW_OK is a grant that passes over the fronts. */
void spw__wait_give_locked(struct spw__waitset *set, struct spw__waiter *waiter, int result);

/* One attempt; SPW_EAGAIN when all its channels are barred to it. */
int spw__wait_attempt_locked(struct spw__waitset *set, struct spw__waiter *waiter);

/* Attempts, in order, all on channels that could now proceed. */
void spw__wait_pass_locked(struct spw__waitset *set, uint32_t channels);

/* A grant to by (NULL: to somebody who did not queue) passed over the channel's front. */
void spw__wait_pass_over_locked(struct spw__waitset *set, unsigned channel, const struct spw__waiter *by);

/* Something was freed: barriers on channels have not stalled. */
void spw__wait_note_freed_locked(struct spw__waitset *set, uint32_t channels);

/* Ends barriers under which nothing was freed until now_ns; UINT64_MAX: all, since what their holders wait for will not
 * come soon. */
void spw__wait_lapse_locked(struct spw__waitset *set, uint64_t now_ns);

/* When the channel's barrier stalls; UINT64_MAX without one. */
uint64_t spw__wait_lapse_ns_locked(const struct spw__waitset *set, unsigned channel);

/* True when a blocked thread keeps the waiter's time, and nobody else has to. */
bool spw__wait_times_itself(const struct spw__waitset *set, const struct spw__waiter *waiter);

/* Ends every hold of the lock: makes the passes that became necessary meanwhile, and notes what is due next. */
void spw__wait_settle_locked(struct spw__waitset *set);
void spw__wait_settle_unlock(struct spw__waitset *set);

/* Puts the waiter on its token's list; false, and it is not: the token was triggered. (wait_cancel.c) */
bool spw__wait_join_cancel_locked(struct spw__waiter *waiter);
void spw__wait_leave_cancel_locked(struct spw__waiter *waiter);

#endif
