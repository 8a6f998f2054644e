/* The part of disk I/O that does not depend on the engine: choosing one, the life of a request, waiting and waking, and
 * the fault points. Neighbours: io_uring.c and io_threads.c below engine.h; the mover above. */
#include "spill/io/engine.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/error.h"
#include "pool/base/fault.h"

/* Both the largest block size in use and what IO_SHORT cuts at: a cut must leave a transfer that O_DIRECT accepts. */
#define BLOCK_BYTES 4096u

int spw__io_create(const struct spw__io_config *config, struct spw__io **out)
{
    int rc;
    *out = NULL;
    if (config->depth == 0)
        return spw__fail(SPW_EINVAL, "an I/O engine needs a depth of at least 1");
    if (config->kind == SPW_IO_THREADS)
        return spw__io_threads_create(config, out);
    rc = spw__io_uring_create(config, out);
    if (rc == SPW_ENOTSUP && config->kind == SPW_IO_AUTO) {
        spw__logf(config->log, SPW__LOG_WARN, "%s; using threads", spw_error_detail()->message);
        rc = spw__io_threads_create(config, out);
    }
    return rc;
}

int spw__io_init(struct spw__io *io, const struct spw__io_ops *ops, const struct spw__io_config *config)
{
    io->ops = ops;
    io->meta = config->meta;
    io->depth = config->depth;
    atomic_init(&io->watched, false);
    atomic_init(&io->woken, false);
    io->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (io->event_fd < 0) {
        const spw_error_info info = {.os_errno = errno};
        return spw__fail_info(&info, SPW_EIO, "no eventfd for disk I/O: %s", strerror(info.os_errno));
    }
    return 0;
}

void spw__io_finish(struct spw__io *io)
{
    (void)close(io->event_fd);
}

void spw__io_destroy(struct spw__io *io)
{
    if (io)
        io->ops->destroy(io);
}

int spw__io_submit(struct spw__io *io, struct spw__io_req *req)
{
    if (io->in_flight == io->depth)
        return SPW_EAGAIN;
    io->in_flight++;
    req->moved = 0;
    req->result = spw__fault(SPW__FAULT_IO_SUBMIT);
    if (req->result != 0 || req->bytes == 0)
        spw__io_list_push(&io->completed, req);
    else
        io->ops->start(io, req);
    return 0;
}

uint32_t spw__io_next_bytes(const struct spw__io_req *req)
{
    const uint32_t rest = req->bytes - req->moved;
    if (rest > BLOCK_BYTES && spw__fault(SPW__FAULT_IO_SHORT) != 0)
        return rest / 2 > BLOCK_BYTES ? rest / 2 / BLOCK_BYTES * BLOCK_BYTES : BLOCK_BYTES;
    return rest;
}

bool spw__io_advance(struct spw__io_req *req, ssize_t moved)
{
    /* ECANCELED: the kernel could not start a worker for it just then; nothing here cancels. */
    if (moved == -EINTR || moved == -EAGAIN || moved == -ECANCELED)
        return false;
    /* A read that stopped inside a block met the end of the file, and O_DIRECT refuses the rest for its alignment. */
    if (moved == -EINVAL && !req->write && req->moved != 0 && (req->offset + req->moved) % BLOCK_BYTES != 0)
        moved = 0;
    if (moved <= 0) {
        req->result = moved < 0 ? (int)-moved : req->write ? EIO : ENODATA;
        return true;
    }
    req->moved += (uint32_t)moved;
    if (req->moved < req->bytes)
        return false;
    req->result = spw__fault(req->write ? SPW__FAULT_IO_WRITE : SPW__FAULT_IO_READ);
    if (!req->write && spw__fault(SPW__FAULT_IO_FLIP) != 0)
        ((unsigned char *)req->data)[req->bytes / 2] ^= 0x10;
    return true;
}

/* Calls done for what is complete now; what a callback completes at once is left for the next poll. */
static unsigned deliver(struct spw__io *io)
{
    struct spw__io_list list = io->completed;
    struct spw__io_req *req;
    unsigned n = 0;
    io->completed.head = NULL;
    while ((req = spw__io_list_pop(&list)) != NULL) {
        io->in_flight--;
        n++;
        req->done(req);
    }
    return n;
}

unsigned spw__io_poll(struct spw__io *io, int64_t timeout_ns)
{
    const bool waits = timeout_ns != 0;
    const uint64_t start_ns = timeout_ns > 0 ? spw__clock_monotonic_ns() : 0;
    int64_t left_ns = timeout_ns;

    if (io->completed.head || (waits && atomic_exchange(&io->woken, false)))
        left_ns = 0;
    for (;;) {
        const bool last = left_ns == 0;
        io->ops->collect(io, left_ns);
        /* A wake belongs to a wait: polls that do not wait leave it for the next one that does. */
        if (last || io->completed.head || atomic_exchange(&io->woken, false))
            break;
        if (timeout_ns > 0) {
            const uint64_t spent_ns = spw__clock_monotonic_ns() - start_ns;
            left_ns = spent_ns < (uint64_t)timeout_ns ? timeout_ns - (int64_t)spent_ns : 0;
        }
    }
    return deliver(io);
}

void spw__io_event_signal(struct spw__io *io)
{
    const uint64_t one = 1;
    const int saved = errno;
    /* It can only fail by overflow, and then the descriptor is readable already. */
    const ssize_t written = write(io->event_fd, &one, sizeof one);
    (void)written;
    errno = saved;
}

void spw__io_event_drain(struct spw__io *io)
{
    uint64_t count;
    const ssize_t got = read(io->event_fd, &count, sizeof count);
    (void)got;
}

void spw__io_wake(struct spw__io *io)
{
    /* Whoever set woken before has signalled or is about to: one signal wakes as well as many. */
    if (!atomic_exchange(&io->woken, true))
        spw__io_event_signal(io);
}

int spw__io_fd(struct spw__io *io)
{
    atomic_store(&io->watched, true);
    return io->ops->fd ? io->ops->fd(io) : io->event_fd;
}

bool spw__io_unsent(const struct spw__io *io)
{
    return io->ops->unsent && io->ops->unsent(io);
}

int spw__io_register(struct spw__io *io, void *base, size_t bytes)
{
    if (!io->ops->register_memory)
        return SPW_ENOTSUP;
    return io->ops->register_memory(io, base, bytes);
}

unsigned spw__io_in_flight(const struct spw__io *io)
{
    return io->in_flight;
}

bool spw__io_is_uring(const struct spw__io *io)
{
    return io->ops->is_uring;
}
