/* A thread's place of work: its working memory, and how functions run there on rows that lie at the work place.
 *
 * On the host a function runs at once, on memory as it is. On the device it is launched: it runs on one of two lanes,
 * each a stream, so that what the next function works on is brought there while the last one still runs; and it finds
 * memory through eng_worker_at. Either way it calls nothing of the library, and what it is given lasts until
 * eng_worker_wait.
 *
 *     eng_worker_map(lane) --> eng_worker_run(lane) --> eng_worker_wait(lane) --> unmap, drop, read what it left
 *
 * Threads: a worker belongs to one thread. What launched functions are given belongs to them until the wait.
 */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include <spillway/spillway.h>

#include "store.h"

#define ENG_LANES 2u

struct eng_worker {
    const struct eng_store *store;
    spw_buffer *buffer;             /* working memory, NULL: not taken */
    spw_view view;
    unsigned lanes;                 /* 1 on the host */
    spw_stream *streams[ENG_LANES]; /* NULL on the host */
    int pending[ENG_LANES];         /* something was launched, and not waited for; owner thread only */
    struct eng_copy {
        const struct eng_worker *worker;
        void *to;
        const void *from;
        size_t bytes;
    } copy;                         /* the copy that eng_worker_keep launched last */
};

/* Whether functions can be launched on the manager's device: on the simulated one only. */
int eng_device_can_run(spw_manager *manager);

/* Takes working memory of bytes. finish gives it back once nothing runs on it any more: only then may what functions
 * were given be freed, whatever happened. finish of a worker that is all zero does nothing. */
int eng_worker_init(struct eng_worker *worker, const struct eng_store *store, size_t bytes, struct eng_error *error);
void eng_worker_finish(struct eng_worker *worker);

/* Starts a function on a lane; it comes after what the lane was given before. */
int eng_worker_run(struct eng_worker *worker, unsigned lane, spw_device_fn fn, void *arg, struct eng_error *error);

/* Waits until a lane has done what it was given. */
int eng_worker_wait(struct eng_worker *worker, unsigned lane, struct eng_error *error);

/* For functions that run: where the bytes of an address at the work place are found, until the function ends. */
void *eng_worker_at(const struct eng_worker *worker, const void *address, size_t bytes);

/* Maps a sealed buffer for reading by functions of the lane. May block while it is brought to the work place. */
int eng_worker_map(struct eng_worker *worker, unsigned lane, spw_buffer *buffer, spw_view *view,
                   struct eng_error *error);

/* Makes a sealed buffer of bytes at content, which lie in the working memory. They may be overwritten by functions that
 * are started on the same lane. Blocks while memory is short. */
int eng_worker_keep(struct eng_worker *worker, unsigned lane, const char *tag, const void *content, size_t bytes,
                    spw_buffer **out, struct eng_error *error);

#endif
