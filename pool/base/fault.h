/* Fault points: named places where a test makes the n-th call fail.
 *
 * Compiled into every build; when nothing is armed a point costs one relaxed load. Process-wide; tests that arm points
 * run in processes of their own. Threads: any.
 */
#ifndef SPW_BASE_FAULT_H
#define SPW_BASE_FAULT_H

#include <stdatomic.h>

#define SPW__FAULT_LIST(X)                                                                                             \
    X(META_ALLOC)   /* metadata memory */                                                                              \
    X(HOST_MAP)     /* mmap of a host slab */                                                                          \
    X(HOST_POPULATE) /* giving a part of a host slab memory */                                                         \
    X(DEVICE_OPEN)  /* opening the driver */                                                                           \
    X(DEVICE_ALLOC) /* device memory */                                                                                \
    X(DEVICE_COPY)  /* enqueueing a device copy */                                                                     \
    X(DEVICE_EVENT) /* an event that reports an error */                                                               \
    X(IO_SETUP)     /* setting up io_uring */                                                                          \
    X(IO_SUBMIT)    /* submitting an I/O: EIO before it starts */                                                      \
    X(IO_WRITE)     /* a write completes with the armed errno */                                                       \
    X(IO_READ)      /* a read completes with the armed errno */                                                        \
    X(IO_SHORT)     /* a transfer moves only part of its bytes */                                                      \
    X(IO_FLIP)      /* one bit of a read differs */                                                                    \
    X(STORE_OPEN)   /* opening a spill file */                                                                         \
    X(STORE_SPACE)  /* space in a spill file: the armed errno */                                                       \
    X(THREAD)       /* starting a thread */                                                                            \
    X(EVENT_FD)     /* a descriptor for event loops */                                                                 \
    X(SKIP_COPY_ORDER)   /* not a failure: a device copy does not come after the last use of its bytes */              \
    X(SKIP_STREAM_ORDER) /* the same: a map's stream does not come after the last use, copies included */              \
    X(SKIP_FREE_WAIT)    /* the same: memory counts as free before its last use has completed */

enum spw__fault_point {
#define SPW__X(name) SPW__FAULT_##name,
    SPW__FAULT_LIST(SPW__X)
#undef SPW__X
        SPW__FAULT_COUNT
};

extern _Atomic int spw__faults_armed; /* atomic: number of armed points */

int spw__fault_hit(enum spw__fault_point point);

/* 0, or the armed errno when this call is the one that must fail. */
static inline int spw__fault(enum spw__fault_point point)
{
    return atomic_load_explicit(&spw__faults_armed, memory_order_relaxed) == 0 ? 0 : spw__fault_hit(point);
}

/* Makes the nth (from 1) and the following count - 1 calls of point fail with os_errno; count 0 means for ever. */
void spw__fault_arm(enum spw__fault_point point, long nth, long count, int os_errno);
void spw__fault_disarm(enum spw__fault_point point);
/* Calls of point seen since it was armed. */
long spw__fault_calls(enum spw__fault_point point);

#endif
