/* Streams through the API. Neighbours: use.c notes what streams still do with buffers, the mover watches events,
 * pool/device speaks to the driver. */
#include "src/core/stream.h"

#include "pool/base/error.h"
#include "pool/device/driver.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"
#include "src/core/ticket.h"

#include <spillway/stream.h>

void spw__streams_init(struct spw_manager *manager)
{
    spw__mutex_init(&manager->streams.lock, SPW__RANK_STREAMS);
}

int spw__streams_check_none(struct spw_manager *manager)
{
    spw__mutex_lock(&manager->streams.lock);
    const uint32_t live = manager->streams.live;
    spw__mutex_unlock(&manager->streams.lock);
    return live ? spw__fail(SPW_EBUSY, "%u stream%s first (spw_stream_destroy)", live,
                            live == 1 ? " is live; destroy it" : "s are live; destroy them")
                : SPW_OK;
}

/* Takes the record of stream out, or the first one for NULL; NULL: there is none. */
static struct spw__stream_record *take_record(struct spw_manager *manager, const void *stream)
{
    struct spw__streams *streams = &manager->streams;
    spw__mutex_lock(&streams->lock);
    struct spw__stream_record **link = &streams->first;
    while (*link && stream && (*link)->stream != stream)
        link = &(*link)->next;
    struct spw__stream_record *record = *link;
    if (record) {
        *link = record->next;
        streams->live--;
    }
    spw__mutex_unlock(&streams->lock);
    return record;
}

void spw__streams_finish(struct spw_manager *manager)
{
    struct spw__stream_record *record;
    while ((record = take_record(manager, NULL)) != NULL) {
        (void)spw__device_stream_destroy(manager->device, record->stream);
        spw__meta_free(&manager->meta, record, sizeof *record);
    }
    spw__mutex_finish(&manager->streams.lock);
}

static int check_device(spw_manager *manager, const char *call)
{
    if (!manager)
        return spw__fail(SPW_EINVAL, "%s: manager is NULL", call);
    const int rc = spw__check_process(manager);
    if (rc == SPW_OK && !manager->device)
        return spw__fail(SPW_ENOTSUP, "%s: this manager has no device: name a device tier (device=), and a driver "
                                      "(driver=cuda, or driver=sim for a simulated device)", call);
    return rc;
}

static int check_stream(spw_manager *manager, const spw_stream *stream, const char *call)
{
    const int rc = check_device(manager, call);
    return rc == SPW_OK && !stream ? spw__fail(SPW_EINVAL, "%s: stream is NULL; CUDA's default stream is named by "
                                                           "CU_STREAM_LEGACY or CU_STREAM_PER_THREAD", call)
                                   : rc;
}

int spw_stream_create(spw_manager *manager, spw_stream **out)
{
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_stream_create: out is NULL");
    *out = NULL;
    int rc = check_device(manager, "spw_stream_create");
    if (rc != SPW_OK)
        return rc;
    struct spw__stream_record *record = spw__meta_alloc(&manager->meta, sizeof *record);
    if (!record)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a stream; raise meta=");
    rc = spw__device_stream_create(manager->device, &record->stream);
    if (rc != SPW_OK) {
        spw__meta_free(&manager->meta, record, sizeof *record);
        return rc;
    }
    *out = record->stream;
    spw__mutex_lock(&manager->streams.lock);
    record->next = manager->streams.first;
    manager->streams.first = record;
    manager->streams.live++;
    spw__mutex_unlock(&manager->streams.lock);
    return SPW_OK;
}

int spw_stream_destroy(spw_manager *manager, spw_stream *stream)
{
    if (!stream)
        return SPW_OK;
    int rc = check_device(manager, "spw_stream_destroy");
    if (rc != SPW_OK)
        return rc;
    struct spw__stream_record *record = take_record(manager, stream);
    if (!record)
        return spw__fail(SPW_EBADHANDLE, "spw_stream_destroy: the stream was destroyed already, or was not created by "
                                         "spw_stream_create of this manager");
    rc = spw__device_stream_destroy(manager->device, stream);
    spw__meta_free(&manager->meta, record, sizeof *record);
    return rc;
}

int spw__stream_end_create(struct spw_manager *manager, void *stream, struct spw__stream_end **out)
{
    struct spw__stream_end *end = spw__meta_alloc(&manager->meta, sizeof *end);
    *out = NULL;
    if (!end)
        return spw__fail(SPW_ENOMETA, "no metadata memory to wait for a stream; raise meta=");
    const int rc = spw__use_create(manager, stream, &end->use);
    if (rc != SPW_OK) {
        spw__meta_free(&manager->meta, end, sizeof *end);
        return rc;
    }
    end->manager = manager;
    atomic_init(&end->refs, 1);
    *out = end;
    return SPW_OK;
}

void spw__stream_end_unref(struct spw__stream_end *end)
{
    struct spw_manager *manager = end->manager;
    if (atomic_fetch_sub(&end->refs, 1) != 1)
        return;
    spw__use_unref(manager, end->use);
    spw__meta_free(&manager->meta, end, sizeof *end);
}

static void end_over(struct spw__move *move, int status)
{
    struct spw__stream_end *end = move->arg;
    status = status == SPW_OK ? spw__loss_check(end->manager) : status; /* work that a lost device ended is not done */
    end->status = status;
    if (status != SPW_OK)
        spw__error_save(&end->error);
    atomic_store(&end->over, true);
    spw__waitset_signal_object(&end->manager->waits, end);
    spw__stream_end_unref(end);
}

void spw__stream_end_watch(struct spw__stream_end *end)
{
    (void)atomic_fetch_add(&end->refs, 1);
    end->use->watch = (struct spw__move){.use = end->use, .done = end_over, .arg = end};
    spw__mover_submit(end->manager->mover, &end->use->watch);
}

int spw__stream_end_result(const struct spw__stream_end *end, int rc)
{
    if (!atomic_load(&end->over))
        return spw__fail(rc, "the wait for a stream ended: %s", spw_strerror(rc));
    return end->status == SPW_OK ? SPW_OK : spw__error_restore(&end->error);
}

/* SPW_EAGAIN: there is something to wait for, by *end; else that is NULL. */
static int look(spw_manager *manager, void *stream, struct spw__stream_end **end)
{
    int rc = spw__stream_end_create(manager, stream, end);
    if (rc != SPW_OK)
        return rc;
    rc = spw__device_event_query(manager->device, (*end)->use->event);
    if (rc != SPW_EAGAIN) {
        spw__stream_end_unref(*end);
        *end = NULL;
    }
    return rc;
}

static int wait_for(spw_manager *manager, struct spw__stream_end *end, const spw_wait_options *wait)
{
    struct spw__waiter waiter = {.object = end, .channels = SPW__CHANNEL_OBJECT, .what = SPW__WAIT_MOVE,
                                 .deadline_ns = spw__deadline_ns(manager, wait), .cancel = wait->cancel,
                                 .task = spw__task_of(manager, wait)};
    spw__wait_enqueue(&manager->waits, &waiter);
    spw__stream_end_watch(end);
    return spw__stream_end_result(end, spw__wait_block(&manager->waits, &waiter));
}

static int check_wait(spw_manager *manager, const spw_stream *stream, const spw_wait_options **wait, const char *call)
{
    static const spw_wait_options defaults = {.timeout_ms = SPW_TIMEOUT_DEFAULT};
    const int rc = check_stream(manager, stream, call);
    *wait = *wait ? *wait : &defaults;
    return rc == SPW_OK ? spw__check_wait(manager, *wait) : rc;
}

int spw_stream_wait(spw_manager *manager, spw_stream *stream, const spw_wait_options *wait)
{
    struct spw__stream_end *end;
    int rc = check_wait(manager, stream, &wait, "spw_stream_wait");
    if (rc != SPW_OK)
        return rc;
    spw__waitset_enter(&manager->waits);
    rc = look(manager, stream, &end);
    if (end) {
        rc = wait->timeout_ms == 0 ? spw__stream_end_result(end, SPW_ETIMEDOUT) : wait_for(manager, end, wait);
        spw__stream_end_unref(end);
    }
    spw__waitset_leave(&manager->waits);
    return rc;
}

int spw__ticket_stream_step(spw_ticket *ticket, int woken)
{
    struct spw__stream_end *end = ticket->stream_end;
    const int rc = spw__stream_end_result(end, woken);
    ticket->stream_end = NULL;
    spw__stream_end_unref(end);
    return rc;
}

int spw_stream_wait_start(spw_manager *manager, spw_stream *stream, const spw_wait_options *wait, spw_ticket **out)
{
    struct spw__stream_end *end;
    spw_ticket *ticket;
    if (!out)
        return spw__fail(SPW_EINVAL, "spw_stream_wait_start: out is NULL");
    *out = NULL;
    int rc = check_wait(manager, stream, &wait, "spw_stream_wait_start");
    if (rc == SPW_OK)
        rc = spw__ticket_create(manager, SPW__TICKET_STREAM, wait, NULL, &ticket);
    if (rc != SPW_OK)
        return rc;
    rc = look(manager, stream, &end);
    if (end) {
        (void)atomic_fetch_add(&end->refs, 1); /* the ticket's step may be over before it is watched */
        ticket->stream_end = end;
        spw__ticket_await_object(ticket, end);
        spw__stream_end_watch(end);
        spw__stream_end_unref(end);
    } else {
        spw__ticket_end(ticket, rc);
    }
    *out = ticket;
    return SPW_OK;
}

int spw_device_launch(spw_manager *manager, spw_stream *stream, spw_device_fn fn, void *arg)
{
    const int rc = check_stream(manager, stream, "spw_device_launch");
    if (rc == SPW_OK && !fn)
        return spw__fail(SPW_EINVAL, "spw_device_launch: fn is NULL");
    return rc == SPW_OK ? spw__device_launch(manager->device, stream, fn, arg) : rc;
}

void *spw_device_address(const void *address, size_t bytes)
{
    return spw__sim_translate((uint64_t)(uintptr_t)address, bytes);
}
