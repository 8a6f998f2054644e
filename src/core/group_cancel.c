/* Cancelling a group: its waits end, and the bytes of its buffers go. Neighbours: payload.c frees what nobody uses,
 * pressure.c and use.c end the waits.
 *
 * The flag is set first. A wait looks at it after it was enqueued, and a new buffer after its handle can be found; what
 * was there before is found by the walk over all waits and by the walk over all handles that follow. So nothing is
 * missed. */
#include "src/core/group.h"

#include "pool/base/error.h"
#include "src/core/handle.h"
#include "src/core/manager.h"
#include "src/core/pressure.h"

enum { BATCH = 64 };

static int visit_cancelled(struct spw__waiter *waiter, void *arg)
{
    const struct spw__request *request = (const struct spw__request *)(const void *)waiter;
    (void)arg;
    return spw__ledger_cancelled(spw__request_payer(request)) ? SPW_ECANCELED : SPW_EAGAIN;
}

void spw__pressure_end_cancelled(struct spw_manager *manager)
{
    spw__waitset_visit(&manager->waits, SPW__CHANNELS_MEMORY, visit_cancelled, NULL);
}

/* The payload has no future: what moves it is called off, and what is idle is freed. */
static void cancel_payload(struct spw__payload *payload)
{
    spw__mutex_lock(&payload->lock);
    payload->cancelled = true;
    for (uint32_t i = 0; i < payload->n_pieces; i++) {
        struct spw__piece *piece = &payload->pieces[i];
        if (piece->move)
            spw__mover_drop(piece->move);
        spw__piece_requeue_locked(piece, false); /* it is no victim any more */
    }
    spw__mutex_unlock(&payload->lock);
    spw__payload_purge(payload);
    spw__waitset_signal_object(&payload->manager->waits, payload);
}

int spw_group_cancel(spw_group *group)
{
    const int rc = spw__group_check_handle(group, "spw_group_cancel");
    if (rc != SPW_OK)
        return rc;
    spw_manager *manager = group->manager;
    if (atomic_exchange(&group->node.cancelled, true))
        return SPW_OK;
    spw__pressure_end_cancelled(manager);
    struct spw__handles_cursor cursor = {.chunk = NULL};
    struct spw__payload *batch[BATCH];
    unsigned n;
    while ((n = spw__handles_take(manager, &cursor, &group->node, batch, BATCH)) != 0)
        for (unsigned i = 0; i < n; i++) {
            cancel_payload(batch[i]);
            spw__payload_unref(batch[i]);
        }
    spw__pressure_kick(manager, SPW_TIER_HOST);
    return SPW_OK;
}
