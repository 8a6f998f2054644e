/* Where functions on rows run. Neighbours: store.c (buffers); partition.c and pair.c, whose functions these are. */
#include "worker.h"

#include <string.h>

static void do_nothing(void *arg)
{
    (void)arg;
}

int eng_device_can_run(spw_manager *manager)
{
    spw_stream *stream;
    if (spw_stream_create(manager, &stream) != 0)
        return 0;
    int can = spw_device_launch(manager, stream, do_nothing, NULL) == 0;
    (void)spw_stream_destroy(manager, stream);
    return can;
}

static int on_device(const struct eng_worker *worker)
{
    return SPW_PLACE_TIER(worker->store->work) == SPW_TIER_DEVICE;
}

int eng_worker_init(struct eng_worker *worker, const struct eng_store *store, size_t bytes, struct eng_error *error)
{
    memset(worker, 0, sizeof *worker);
    worker->store = store;
    worker->lanes = 1;
    if (eng_store_alloc(store, "work", bytes, NULL, &worker->buffer, &worker->view, error) != 0)
        return -1;
    if (!on_device(worker))
        return 0;
    worker->lanes = ENG_LANES;
    for (unsigned lane = 0; lane < ENG_LANES; lane++) {
        int code = spw_stream_create(store->manager, &worker->streams[lane]);
        if (code != 0)
            return eng_fail_library(error, code, "cannot create a stream");
    }
    return 0;
}

void eng_worker_finish(struct eng_worker *worker)
{
    for (unsigned lane = 0; lane < ENG_LANES; lane++) {
        if (worker->streams[lane] != NULL)
            (void)spw_stream_destroy(worker->store->manager, worker->streams[lane]);
        worker->streams[lane] = NULL;
    }
    if (worker->buffer != NULL)
        eng_store_drop(worker->buffer, &worker->view);
    worker->buffer = NULL;
}

int eng_worker_run(struct eng_worker *worker, unsigned lane, spw_device_fn fn, void *arg, struct eng_error *error)
{
    if (!on_device(worker)) {
        fn(arg);
        return 0;
    }
    int code = spw_device_launch(worker->store->manager, worker->streams[lane], fn, arg);
    worker->pending[lane] |= code == 0;
    return code == 0 ? 0 : eng_fail_library(error, code, "cannot launch a function on the device");
}

/* Neither a deadline nor the crew's token ends this wait: functions end by themselves, and their memory must not go
 * before they have. */
int eng_worker_wait(struct eng_worker *worker, unsigned lane, struct eng_error *error)
{
    spw_wait_options options;
    if (!worker->pending[lane])
        return 0;
    spw_wait_options_init(&options);
    options.timeout_ms = SPW_TIMEOUT_INFINITE;
    int code = spw_stream_wait(worker->store->manager, worker->streams[lane], &options);
    worker->pending[lane] = 0;
    return code == 0 ? 0 : eng_fail_library(error, code, "cannot finish what was launched on the device");
}

void *eng_worker_at(const struct eng_worker *worker, const void *address, size_t bytes)
{
    return on_device(worker) ? spw_device_address(address, bytes) : (void *)(uintptr_t)address;
}

int eng_worker_map(struct eng_worker *worker, unsigned lane, spw_buffer *buffer, spw_view *view,
                   struct eng_error *error)
{
    return eng_store_map(worker->store, buffer, worker->streams[lane], view, error);
}

static void copy_content(void *arg)
{
    const struct eng_copy *copy = arg;
    memcpy(eng_worker_at(copy->worker, copy->to, copy->bytes), eng_worker_at(copy->worker, copy->from, copy->bytes),
           copy->bytes);
}

/* The buffer is one of the device's, whatever has to leave for it: the CPU cannot reach the content, so that it could
 * not be written anywhere else. */
static int keep_on_device(struct eng_worker *worker, unsigned lane, const char *tag, const void *content, size_t bytes,
                          spw_buffer **out, struct eng_error *error)
{
    const struct eng_store *store = worker->store;
    spw_view view;
    if (eng_worker_wait(worker, lane, error) != 0) /* for the copy before this one */
        return -1;
    if (eng_store_alloc(store, tag, bytes, worker->streams[lane], out, &view, error) != 0)
        return -1;
    worker->copy = (struct eng_copy){worker, view.data, content, bytes};
    int result = eng_worker_run(worker, lane, copy_content, &worker->copy, error);
    (void)spw_unmap(*out, &view, worker->streams[lane]);
    int code = result == 0 ? spw_buffer_seal(*out) : 0;
    if (code != 0)
        result = eng_store_fail(store, code, "seal", tag, error);
    if (result == 0)
        return 0;
    (void)spw_buffer_release(*out);
    *out = NULL;
    return -1;
}

int eng_worker_keep(struct eng_worker *worker, unsigned lane, const char *tag, const void *content, size_t bytes,
                    spw_buffer **out, struct eng_error *error)
{
    return on_device(worker) ? keep_on_device(worker, lane, tag, content, bytes, out, error)
                             : eng_store_keep(worker->store, tag, content, bytes, out, error);
}
