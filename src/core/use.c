/* Uses of payloads on streams. Neighbours: view.c and map.c note and order them, evict.c and payload.c wait for them.
 */
#include "src/core/use.h"

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "src/core/arrive.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

struct spw__use *spw__use_ref(struct spw__use *use)
{
    if (use)
        (void)atomic_fetch_add(&use->refs, 1);
    return use;
}

void spw__use_unref(struct spw_manager *manager, struct spw__use *use)
{
    if (!use || atomic_fetch_sub(&use->refs, 1) != 1)
        return;
    spw__device_event_put(manager->device, use->event);
    spw__meta_free(&manager->meta, use, sizeof *use);
}

bool spw__use_pending(struct spw_manager *manager, const struct spw__use *use)
{
    return use && spw__device_event_pending(manager->device, use->event);
}

bool spw__use_holds(struct spw_manager *manager, const struct spw__use *use)
{
    return spw__use_pending(manager, use) && !spw__fault(SPW__FAULT_SKIP_FREE_WAIT);
}

int spw__use_create(struct spw_manager *manager, void *stream, struct spw__use **out)
{
    struct spw__use *use = spw__meta_alloc(&manager->meta, sizeof *use);
    *out = NULL;
    if (!use)
        return spw__fail(SPW_ENOMETA, "no metadata memory to remember a use on a stream; raise meta=");
    const int rc = spw__device_event_record(manager->device, stream, &use->event);
    if (rc != SPW_OK) {
        spw__meta_free(&manager->meta, use, sizeof *use);
        return rc;
    }
    atomic_init(&use->refs, 1);
    *out = use;
    return SPW_OK;
}

int spw__use_note_locked(struct spw__payload *payload, void *stream)
{
    struct spw_manager *manager = payload->manager;
    struct spw__use *use;
    /* The new event covers the old one: its stream waits for it first. */
    int rc = payload->last_use ? spw__device_event_order(manager->device, stream, payload->last_use->event) : SPW_OK;
    if (rc == SPW_OK)
        rc = spw__use_create(manager, stream, &use);
    if (rc != SPW_OK)
        return rc;
    spw__use_unref(manager, payload->last_use);
    payload->last_use = use;
    return SPW_OK;
}

int spw__use_fail_wait(struct spw__payload *payload, int rc)
{
    spw__mutex_lock(&payload->lock);
    const bool used = !spw__payload_arrives_locked(payload) && spw__use_pending(payload->manager, payload->last_use);
    spw__mutex_unlock(&payload->lock);
    return spw__fail(rc, "the wait for %s ended: %s",
                     used ? "a stream that still uses this buffer" : "a move of this buffer", spw_strerror(rc));
}

int spw__payload_wait_unlock(struct spw__payload *payload, const spw_wait_options *wait, uint64_t deadline_ns)
{
    struct spw__waitset *waits = &payload->manager->waits;
    struct spw__waiter waiter = {.object = payload, .channels = SPW__CHANNEL_OBJECT, .deadline_ns = deadline_ns,
                                 .cancel = wait ? wait->cancel : NULL, .what = SPW__WAIT_MOVE,
                                 .task = spw__task_of(payload->manager, wait)};
    int rc = spw__payload_check_locked(payload);
    if (rc != SPW_OK) {
        spw__mutex_unlock(&payload->lock);
        return rc;
    }
    spw__wait_enqueue(waits, &waiter);
    spw__mutex_unlock(&payload->lock);
    rc = spw__wait_block(waits, &waiter);
    if (rc == SPW_OK)
        return spw__group_check(payload->group);
    return spw__use_fail_wait(payload, rc);
}

/* The watched use has completed: whoever waits for the payload looks again. */
static void watched_use_over(struct spw__move *move, int status)
{
    struct spw__payload *payload = move->arg;
    struct spw_manager *manager = payload->manager;
    struct spw__use *use = move->use;
    (void)status; /* a lost context ends the use as well: the copy that needs the bytes reports it */
    spw__mutex_lock(&payload->lock);
    payload->watched = false;
    spw__mutex_unlock(&payload->lock);
    spw__use_unref(manager, use);
    spw__payload_purge(payload);
    spw__waitset_signal_object(&manager->waits, payload);
    spw__payload_unref(payload);
    spw__pressure_kick(manager, SPW_TIER_HOST);
}

struct spw__move *spw__use_watch_locked(struct spw__payload *payload)
{
    struct spw__use *use = payload->last_use;
    if (payload->watched)
        return NULL;
    payload->watched = true;
    use->watch = (struct spw__move){.use = spw__use_ref(use), .done = watched_use_over, .arg = payload};
    spw__payload_ref(payload);
    return &use->watch;
}

int spw__use_look_locked(struct spw__payload *payload, bool write, void *stream)
{
    struct spw_manager *manager = payload->manager;
    if (write && spw__payload_leaving_locked(payload))
        return SPW_EAGAIN;
    if (write)
        spw__payload_drop_disk_locked(payload);
    if (stream) { /* what a lost device was given is over */
        const bool orders = payload->last_use && !spw__loss_of(manager, SPW_TIER_DEVICE) &&
                            !spw__fault(SPW__FAULT_SKIP_STREAM_ORDER);
        const int rc = orders ? spw__device_event_order(manager->device, stream, payload->last_use->event) : SPW_OK;
        return rc == SPW_OK ? spw__arrival_check_locked(payload) : rc;
    }
    while (spw__use_pending(manager, payload->last_use)) {
        struct spw__move *watch = spw__use_watch_locked(payload);
        if (watch) {
            spw__mutex_unlock(&payload->lock);
            spw__mover_submit(manager->mover, watch);
            spw__mutex_lock(&payload->lock);
        }
        if (payload->watched) /* else it was over before we could wait */
            return SPW_EAGAIN;
    }
    return spw__arrival_look_locked(payload); /* the use that has ended may have been a copy that failed */
}

int spw__use_order(struct spw__payload *payload, bool write, void *stream, const spw_wait_options *wait)
{
    struct spw_manager *manager = payload->manager;
    const uint64_t deadline_ns = spw__deadline_ns(manager, wait);
    int rc;
    spw__waitset_enter(&manager->waits);
    spw__mutex_lock(&payload->lock);
    do {
        rc = spw__use_look_locked(payload, write, stream);
        if (rc != SPW_EAGAIN)
            break;
        rc = spw__payload_wait_unlock(payload, wait, deadline_ns);
        spw__mutex_lock(&payload->lock);
    } while (rc == SPW_OK);
    spw__mutex_unlock(&payload->lock);
    spw__waitset_leave(&manager->waits);
    return rc;
}

void spw__use_when_over(struct spw__payload *payload, void (*done)(struct spw__move *move, int status))
{
    struct spw__use *use = payload->last_use;
    use->watch = (struct spw__move){.use = use, .done = done, .arg = payload};
    spw__mover_submit(payload->manager->mover, &use->watch);
}
