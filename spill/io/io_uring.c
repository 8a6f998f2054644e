/* The io_uring engine: one ring, requests as SQEs that a poll hands over in one system call. Neighbours: engine.h.
 *
 * There is no SQPOLL: its kernel thread costs 0.7 s of CPU per GB on two cores. A wake arrives as the completion of a
 * poll on event_fd that is always armed in the ring, so that one wait covers disk and wakes.
 */
#include "spill/io/engine.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"

#define REGISTER_MAX_BYTES (UINT64_C(1) << 30) /* the kernel's limit on one registered buffer */

struct uring {
    struct spw__io io; /* first member */
    struct io_uring ring;
    bool disabled;   /* owner thread only: to be enabled by the owner's first poll */
    bool wake_armed; /* owner thread only: the poll on event_fd is in the ring */
    uintptr_t registered_base; /* constant from the first submit on, as the next */
    size_t registered_bytes;   /* 0: nothing is registered */
};

static void uring_destroy(struct spw__io *io)
{
    struct uring *uring = (struct uring *)io;
    io_uring_queue_exit(&uring->ring);
    spw__io_finish(io);
    spw__meta_free(io->meta, uring, sizeof *uring);
}

/* There is one SQE for each request, the wake and a timeout; only timeouts that a refused submit left behind (kernels
 * without IORING_FEAT_EXT_ARG) can use them up. */
static struct io_uring_sqe *get_sqe(struct uring *uring)
{
    struct io_uring_sqe *sqe;
    while ((sqe = io_uring_get_sqe(&uring->ring)) == NULL)
        (void)io_uring_submit(&uring->ring);
    return sqe;
}

static void uring_start(struct spw__io *io, struct spw__io_req *req)
{
    struct uring *uring = (struct uring *)io;
    struct io_uring_sqe *sqe = get_sqe(uring);
    char *data = (char *)req->data + req->moved;
    const uint64_t offset = req->offset + req->moved;
    const uint32_t bytes = spw__io_next_bytes(req);
    const uintptr_t begin = (uintptr_t)data - uring->registered_base;
    const bool fixed = begin < uring->registered_bytes && bytes <= uring->registered_bytes - begin;

    if (fixed && req->write)
        io_uring_prep_write_fixed(sqe, req->fd, data, bytes, offset, 0);
    else if (fixed)
        io_uring_prep_read_fixed(sqe, req->fd, data, bytes, offset, 0);
    else if (req->write)
        io_uring_prep_write(sqe, req->fd, data, bytes, offset);
    else
        io_uring_prep_read(sqe, req->fd, data, bytes, offset);
    io_uring_sqe_set_data(sqe, req);
}

/* Takes what is in the completion ring; rests of short transfers become new SQEs for the next submit. */
static void reap(struct uring *uring)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned n = 0;
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        struct spw__io_req *req = io_uring_cqe_get_data(cqe);
        n++;
        if (cqe->user_data == LIBURING_UDATA_TIMEOUT)
            continue; /* kernels without IORING_FEAT_EXT_ARG: the end of a wait */
        if (!req) {
            spw__io_event_drain(&uring->io);
            uring->wake_armed = false;
        } else if (spw__io_advance(req, cqe->res)) {
            spw__io_list_push(&uring->io.completed, req);
        } else {
            uring_start(&uring->io, req);
        }
    }
    io_uring_cq_advance(&uring->ring, n);
}

static int submit_and_wait(struct uring *uring, int64_t timeout_ns)
{
    struct __kernel_timespec until;
    struct io_uring_cqe *cqe;
    if (timeout_ns == 0)
        return io_uring_submit_and_get_events(&uring->ring);
    if (timeout_ns < 0)
        return io_uring_submit_and_wait(&uring->ring, 1);
    until.tv_sec = timeout_ns / 1000000000;
    until.tv_nsec = timeout_ns % 1000000000;
    return io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &until, NULL);
}

static void uring_collect(struct spw__io *io, int64_t timeout_ns)
{
    struct uring *uring = (struct uring *)io;
    int rc;
    /* io_uring_enable_rings is declared by liburing 2.3, but its shared library does not export it. */
    if (uring->disabled &&
        io_uring_register((unsigned)uring->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0)
        uring->disabled = false;
    if (timeout_ns != 0 && !uring->wake_armed) {
        struct io_uring_sqe *sqe = get_sqe(uring);
        io_uring_prep_poll_add(sqe, io->event_fd, POLLIN);
        io_uring_sqe_set_data(sqe, NULL);
        uring->wake_armed = true;
    }
    rc = submit_and_wait(uring, timeout_ns);
    reap(uring);
    if (rc < 0 && rc != -ETIME && rc != -EINTR && timeout_ns != 0 && !io->completed.head) {
        /* The kernel has no memory for requests, or wants completions reaped first: both pass. */
        struct pollfd event = {.fd = io->event_fd, .events = POLLIN};
        (void)poll(&event, 1, 1);
    }
}

static int uring_register(struct spw__io *io, void *base, size_t bytes)
{
    struct uring *uring = (struct uring *)io;
    const struct iovec region = {base, bytes < REGISTER_MAX_BYTES ? bytes : REGISTER_MAX_BYTES};
    const int rc = io_uring_register_buffers(&uring->ring, &region, 1);
    if (rc < 0)
        return rc == -ENOMEM ? SPW_ENOMEM : SPW_ENOTSUP;
    uring->registered_base = (uintptr_t)base;
    uring->registered_bytes = region.iov_len;
    return 0;
}

static int uring_fd(const struct spw__io *io)
{
    return ((const struct uring *)io)->ring.ring_fd;
}

static bool uring_unsent(const struct spw__io *io)
{
    return io_uring_sq_ready(&((const struct uring *)io)->ring) != 0;
}

static const struct spw__io_ops uring_ops = {
    .destroy = uring_destroy,
    .start = uring_start,
    .collect = uring_collect,
    .register_memory = uring_register,
    .fd = uring_fd,
    .unsent = uring_unsent,
    .is_uring = true,
};

/* 0, or a negative errno when the running kernel has io_uring without one of the operations used here. */
static int check_operations(struct io_uring *ring)
{
    static const int needed[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
                                 IORING_OP_POLL_ADD};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    int rc = probe ? 0 : -EOPNOTSUPP;
    for (size_t i = 0; probe && i < sizeof needed / sizeof needed[0]; i++)
        if (!io_uring_opcode_supported(probe, needed[i]))
            rc = -EOPNOTSUPP;
    io_uring_free_probe(probe);
    return rc;
}

/* Opens the ring with the cheapest way of delivering completions that the kernel takes. */
static int open_ring(struct uring *uring, const struct spw__io_config *config)
{
    static const unsigned flags[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
        IORING_SETUP_COOP_TASKRUN,                                                         /* Linux 5.19 */
        0,
    };
    int rc = -EINVAL;
    for (size_t i = config->single_owner ? 0 : 1; i < sizeof flags / sizeof flags[0]; i++) {
        struct io_uring_params params = {.flags = flags[i]};
        rc = -spw__fault(SPW__FAULT_IO_SETUP);
        if (rc == 0) /* one SQE beyond depth for the poll on event_fd, one for a timeout */
            rc = io_uring_queue_init_params(config->depth + 2, &uring->ring, &params);
        if (rc == 0) {
            uring->disabled = (flags[i] & IORING_SETUP_R_DISABLED) != 0;
            break;
        }
    }
    if (rc == 0 && (rc = check_operations(&uring->ring)) != 0)
        io_uring_queue_exit(&uring->ring);
    return rc;
}

int spw__io_uring_create(const struct spw__io_config *config, struct spw__io **out)
{
    struct uring *uring = spw__meta_alloc(config->meta, sizeof *uring);
    int rc;
    if (!uring)
        return spw__fail(SPW_ENOMETA, "no metadata memory for an I/O engine (%zu bytes): raise meta=", sizeof *uring);
    rc = spw__io_init(&uring->io, &uring_ops, config);
    if (rc != 0)
        goto no_head;
    rc = open_ring(uring, config);
    if (rc != 0) {
        const spw_error_info info = {.os_errno = -rc};
        rc = spw__fail_info(&info, SPW_ENOTSUP, "io_uring is not available here (%s)", strerror(info.os_errno));
        goto no_ring;
    }
    (void)io_uring_ring_dontfork(&uring->ring);
    *out = &uring->io;
    return 0;

no_ring:
    spw__io_finish(&uring->io);
no_head:
    spw__meta_free(config->meta, uring, sizeof *uring);
    return rc;
}
