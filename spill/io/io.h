/* Disk I/O engines behind one interface: io_uring, and threads with pread/pwrite where that is refused.
 *
 * An engine transfers whole requests: short transfers are continued, EINTR and EAGAIN retried inside. It knows neither
 * buffers nor policy. A request is embedded in its user's struct and belongs to the engine from a successful submit
 * until its done callback is called, which happens only inside spw__io_poll, on the polling thread, without any lock
 * held.
 *
 *     idle --submit--> in flight --(all bytes, or an error)--> completed --poll: done(req)--> idle
 *
 * Threads: submit, poll and destroy by the one owning thread at a time (the mover, or whoever drives it); wake by any.
 */
#ifndef SPW_SPILL_IO_H
#define SPW_SPILL_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/base/log.h"
#include "pool/base/meta.h"

#include <spillway/spec.h>

struct spw__io;

struct spw__io_req {
    int fd;
    bool write;
    void *data;      /* for O_DIRECT descriptors: aligned as the file system asks, and offset and bytes too */
    uint64_t offset;
    uint32_t bytes;  /* <= 1 GiB */
    int result;      /* when done: 0, or a positive errno; ENODATA when a read met the end of the file */
    void (*done)(struct spw__io_req *req);
    /* private to the engine from here on */
    struct spw__io_req *next;
    uint32_t moved; /* bytes transferred so far */
};

struct spw__io_config {
    spw_io_kind kind;      /* AUTO: io_uring where it works, else threads and a line in the log */
    uint32_t depth;        /* most requests in flight */
    uint32_t threads;      /* of the threaded engine; 0: default */
    bool single_owner;     /* true: one thread owns the engine for ever (SINGLE_ISSUER may be used) */
    const struct spw__log *log;
    struct spw__meta *meta;
};

/* Errors: SPW_ENOTSUP (kind URING and the kernel refuses it), SPW_ENOMETA, SPW_EIO. With single_owner the ring is
 * enabled by the first submit or poll, so that create may run on another thread. */
int spw__io_create(const struct spw__io_config *config, struct spw__io **out);

/* Cancels nothing: the caller drains first (in_flight must be 0). NULL is a no-op. */
void spw__io_destroy(struct spw__io *io);

/* Queues req. SPW_EAGAIN when depth requests are in flight: poll first. Every other failure reaches the request itself,
 * as its result. Never blocks on the disk. */
int spw__io_submit(struct spw__io *io, struct spw__io_req *req);

/* Hands queued requests to the kernel, reaps what is complete and calls done for each; returns how many. timeout_ns: 0
 * does not wait; > 0 waits at most so long for a completion or a wake; < 0 waits without limit (for a completion or a
 * wake). */
unsigned spw__io_poll(struct spw__io *io, int64_t timeout_ns);

/* Ends the current or next wait of spw__io_poll. Any thread; async-signal-safe; never blocks. */
void spw__io_wake(struct spw__io *io);

/* A descriptor of the engine's that is readable when requests have completed that no poll has seen, from the first call
 * on; a poll that does not wait clears it too. It may be readable without cause, once. Any thread. */
int spw__io_fd(struct spw__io *io);

/* Requests were submitted that the kernel has not taken yet: another poll hands them over. Owner thread. */
bool spw__io_unsent(const struct spw__io *io);

/* Tells the engine that memory is used often (registered buffers). Best effort: 0, or SPW_ENOTSUP / SPW_ENOMEM, after
 * which everything works as before, only slower. At most once per engine, before the first submit. */
int spw__io_register(struct spw__io *io, void *base, size_t bytes);

unsigned spw__io_in_flight(const struct spw__io *io); /* for tests; the mover counts its own */
bool spw__io_is_uring(const struct spw__io *io);

#endif
