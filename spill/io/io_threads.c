/* The threaded engine: workers that call pread and pwrite, for where io_uring is refused. Neighbours: engine.h.
 *
 * start --queue--> worker: pread/pwrite until finished --finished--> collect (owner thread)
 */
#include "spill/io/engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/thread.h"
#include "pool/base/lock.h"

#define DEFAULT_THREADS 4u
#define MAX_THREADS 64u

struct threads {
    struct spw__io io; /* first member */
    struct spw__mutex lock;
    struct spw__cond work;
    struct spw__io_list queue;    /* guarded by lock: to be transferred */
    struct spw__io_list finished; /* guarded by lock: have their result */
    bool stop;                    /* guarded by lock */
    uint32_t n_workers;           /* constant once created */
    pthread_t workers[MAX_THREADS];
};

static void transfer(struct spw__io_req *req)
{
    ssize_t moved;
    do {
        char *data = (char *)req->data + req->moved;
        const off_t offset = (off_t)(req->offset + req->moved);
        const uint32_t bytes = spw__io_next_bytes(req);
        moved = req->write ? pwrite(req->fd, data, bytes, offset) : pread(req->fd, data, bytes, offset);
        if (moved < 0)
            moved = -errno;
    } while (!spw__io_advance(req, moved));
}

static void *worker_main(void *arg)
{
    struct threads *threads = arg;
    struct spw__io_req *req;
    spw__mutex_lock(&threads->lock);
    for (;;) {
        while (!threads->stop && !threads->queue.head)
            (void)spw__cond_wait(&threads->work, &threads->lock, -1);
        req = spw__io_list_pop(&threads->queue);
        if (!req)
            break;
        spw__mutex_unlock(&threads->lock);
        transfer(req);
        spw__mutex_lock(&threads->lock);
        const bool first = !threads->finished.head;
        spw__io_list_push(&threads->finished, req);
        if (first) { /* the owner takes the whole list: only its first entry needs a signal */
            spw__mutex_unlock(&threads->lock);
            spw__io_event_signal(&threads->io);
            spw__mutex_lock(&threads->lock);
        }
    }
    spw__mutex_unlock(&threads->lock);
    return NULL;
}

static void threads_start(struct spw__io *io, struct spw__io_req *req)
{
    struct threads *threads = (struct threads *)io;
    spw__mutex_lock(&threads->lock);
    spw__io_list_push(&threads->queue, req);
    spw__mutex_unlock(&threads->lock);
    spw__cond_signal(&threads->work);
}

static void take_finished(struct threads *threads)
{
    struct spw__io_list list;
    struct spw__io_req *req;
    spw__mutex_lock(&threads->lock);
    list = threads->finished;
    threads->finished.head = NULL;
    spw__mutex_unlock(&threads->lock);
    while ((req = spw__io_list_pop(&list)) != NULL)
        spw__io_list_push(&threads->io.completed, req);
}

static void threads_collect(struct spw__io *io, int64_t timeout_ns)
{
    struct threads *threads = (struct threads *)io;
    if (timeout_ns == 0 && atomic_load(&io->watched))
        spw__io_event_drain(io); /* before the list is taken: who adds to it later signals later */
    take_finished(threads);
    if (io->completed.head || timeout_ns == 0)
        return;
    const struct timespec until = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct pollfd event = {.fd = io->event_fd, .events = POLLIN};
    if (ppoll(&event, 1, timeout_ns < 0 ? NULL : &until, NULL) > 0)
        spw__io_event_drain(io);
    take_finished(threads);
}

static void threads_destroy(struct spw__io *io)
{
    struct threads *threads = (struct threads *)io;
    spw__mutex_lock(&threads->lock);
    threads->stop = true;
    spw__mutex_unlock(&threads->lock);
    spw__cond_broadcast(&threads->work);
    for (uint32_t i = 0; i < threads->n_workers; i++)
        (void)pthread_join(threads->workers[i], NULL);
    spw__cond_finish(&threads->work);
    spw__mutex_finish(&threads->lock);
    spw__io_finish(io);
    spw__meta_free(io->meta, threads, sizeof *threads);
}

static const struct spw__io_ops threads_ops = {
    .destroy = threads_destroy,
    .start = threads_start,
    .collect = threads_collect,
};

/* Starts up to wanted workers. One is enough to go on; returns the errno of the first that could not be started. */
static int start_workers(struct threads *threads, uint32_t wanted)
{
    int error = 0;
    while (threads->n_workers < wanted && error == 0) {
        error = spw__thread_create(&threads->workers[threads->n_workers], worker_main, threads);
        if (error == 0)
            threads->n_workers++;
    }
    return error;
}

int spw__io_threads_create(const struct spw__io_config *config, struct spw__io **out)
{
    uint32_t wanted = config->threads ? config->threads : DEFAULT_THREADS;
    struct threads *threads = spw__meta_alloc(config->meta, sizeof *threads);
    int rc;
    if (!threads)
        return spw__fail(SPW_ENOMETA, "no metadata memory for an I/O engine (%zu bytes): raise meta=", sizeof *threads);
    rc = spw__io_init(&threads->io, &threads_ops, config);
    if (rc != 0) {
        spw__meta_free(config->meta, threads, sizeof *threads);
        return rc;
    }
    spw__mutex_init(&threads->lock, SPW__RANK_IO);
    spw__cond_init(&threads->work);
    wanted = wanted < config->depth ? wanted : config->depth;
    wanted = wanted < MAX_THREADS ? wanted : MAX_THREADS;
    const spw_error_info info = {.os_errno = start_workers(threads, wanted)};
    if (threads->n_workers == 0) {
        threads_destroy(&threads->io);
        return spw__fail_info(&info, SPW_EIO, "no thread for disk I/O could be started: %s", strerror(info.os_errno));
    }
    if (info.os_errno != 0)
        spw__logf(config->log, SPW__LOG_WARN, "only %u of %u threads for disk I/O could be started: %s",
                  threads->n_workers, wanted, strerror(info.os_errno));
    *out = &threads->io;
    return 0;
}
