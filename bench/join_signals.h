/* Signals that end bench_join: INT, TERM and HUP, unless the program was started with them ignored.
 *
 * While there is something on disk to take back, a signal is only noted: whoever works looks at join_signal, stops, and
 * cleans up on the normal way. At any other time it ends the program at once. Either way there is one line on stderr,
 * and the exit status is JOIN_SIGNAL_STATUS.
 */
#ifndef BENCH_JOIN_SIGNALS_H
#define BENCH_JOIN_SIGNALS_H

#include <signal.h>

#define JOIN_SIGNAL_STATUS(number) (128 + (number))

extern volatile sig_atomic_t join_signal; /* number of a signal that was noted, 0: none */

void join_signals_install(void);

/* To be called by one thread: from here on signals are noted; or end the program again, also one noted before. */
void join_signals_defer(void);
void join_signals_undefer(void);

/* "SIGTERM" */
const char *join_signal_name(int number);

#endif
