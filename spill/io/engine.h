/* What io.c and the two engines share: the vtable, the lists, and the rules for one transfer. Private to spill/io.
 *
 * The shared part owns the request's state machine (io.h), counting, waiting, waking and fault points; an engine only
 * starts transfers and collects their results.
 */
#ifndef SPW_SPILL_IO_ENGINE_H
#define SPW_SPILL_IO_ENGINE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "spill/io/io.h"

/* First in, first out; linked through spw__io_req.next. */
struct spw__io_list {
    struct spw__io_req *head;
    struct spw__io_req *tail;
};

struct spw__io_ops {
    /* Ends the engine and frees it; nothing is in flight. */
    void (*destroy)(struct spw__io *io);
    /* Takes req over. Never fails and never blocks on the disk: errors become the request's result. */
    void (*start)(struct spw__io *io, struct spw__io_req *req);
    /* Hands what was started to the kernel and moves finished requests to io->completed. When there are none it waits
     * for one or for io->event_fd, at most timeout_ns (0: not at all; < 0: without limit); may return early. */
    void (*collect)(struct spw__io *io, int64_t timeout_ns);
    /* As spw__io_register. NULL: not supported. */
    int (*register_memory)(struct spw__io *io, void *base, size_t bytes);
    /* As spw__io_fd and spw__io_unsent. NULL: event_fd, and there are none. */
    int (*fd)(const struct spw__io *io);
    bool (*unsent)(const struct spw__io *io);
    bool is_uring;
};

/* The common head of an engine, which embeds it as its first member. */
struct spw__io {
    const struct spw__io_ops *ops;
    struct spw__meta *meta;
    uint32_t depth;
    uint32_t in_flight;            /* owner thread only: submitted and not yet given to done */
    struct spw__io_list completed; /* owner thread only: finished, done not yet called */
    int event_fd;                  /* readable after a wake; engines may signal it too */
    atomic_bool watched;           /* atomic: somebody sleeps on spw__io_fd */
    atomic_bool woken;             /* atomic: a wake that no wait has seen yet */
};

/* Each fills the engine's part; the head's fields are set by spw__io_init. Errors as spw__io_create. */
int spw__io_uring_create(const struct spw__io_config *config, struct spw__io **out);
int spw__io_threads_create(const struct spw__io_config *config, struct spw__io **out);

/* Sets up the head of an engine (SPW_EIO when there is no descriptor for event_fd) and takes it down again. */
int spw__io_init(struct spw__io *io, const struct spw__io_ops *ops, const struct spw__io_config *config);
void spw__io_finish(struct spw__io *io);

/* Makes event_fd readable, and not readable again. Any thread. */
void spw__io_event_signal(struct spw__io *io);
void spw__io_event_drain(struct spw__io *io);

/* Bytes to transfer next for req, from its moved on. */
uint32_t spw__io_next_bytes(const struct spw__io_req *req);

/* Accounts for one transfer that returned moved bytes or a negative errno. True: the request is finished and has its
 * result; false: transfer the rest (spw__io_next_bytes). Any thread that holds the request. */
bool spw__io_advance(struct spw__io_req *req, ssize_t moved);

static inline void spw__io_list_push(struct spw__io_list *list, struct spw__io_req *req)
{
    req->next = NULL;
    if (list->head)
        list->tail->next = req;
    else
        list->head = req;
    list->tail = req;
}

static inline struct spw__io_req *spw__io_list_pop(struct spw__io_list *list)
{
    struct spw__io_req *req = list->head;
    if (req)
        list->head = req->next;
    return req;
}

#endif
