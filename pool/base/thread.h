/* Threads of our own: with every signal blocked, so that none of the process's ends up in, or interrupts, our work. */
#ifndef SPW_BASE_THREAD_H
#define SPW_BASE_THREAD_H

#include <pthread.h>

/* pthread_create; 0 or an errno. Fault point THREAD. */
int spw__thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
