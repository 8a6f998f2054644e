/* Starting threads. Neighbours: the mover, the simulated device's streams, the threaded I/O engine, host slabs. */
#include "pool/base/thread.h"

#include <signal.h>

#include "pool/base/fault.h"

int spw__thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int error = spw__fault(SPW__FAULT_THREAD);
    if (error != 0)
        return error;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
