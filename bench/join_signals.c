/* Signals. Neighbours: bench_join.c says when there is something to clean up; engine/crew.c looks at the number. */
#include "join_signals.h"

#include <string.h>
#include <unistd.h>

static const struct {
    int number;
    const char *name;
    const char *line;
} signals[] = {
    {SIGINT, "SIGINT", "bench_join: interrupted by SIGINT\n"},
    {SIGTERM, "SIGTERM", "bench_join: interrupted by SIGTERM\n"},
    {SIGHUP, "SIGHUP", "bench_join: interrupted by SIGHUP\n"},
};

#define N_SIGNALS (sizeof signals / sizeof signals[0])

volatile sig_atomic_t join_signal;
static volatile sig_atomic_t deferred;

static void end_now(int number)
{
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (signals[i].number == number && write(STDERR_FILENO, signals[i].line, strlen(signals[i].line)) < 0)
            break; /* nobody is left to tell */
    }
    _exit(JOIN_SIGNAL_STATUS(number));
}

static void on_signal(int number)
{
    join_signal = number;
    if (!deferred)
        end_now(number);
}

void join_signals_install(void)
{
    struct sigaction action, old;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (sigaction(signals[i].number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(signals[i].number, &action, NULL);
    }
}

void join_signals_defer(void)
{
    deferred = 1;
}

void join_signals_undefer(void)
{
    deferred = 0;
    if (join_signal != 0)
        end_now(join_signal);
}

const char *join_signal_name(int number)
{
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (signals[i].number == number)
            return signals[i].name;
    }
    return "a signal";
}
