/* When a device is lost: the first sticky error is kept, with its name. Neighbours: device.c reports every error here.
 *
 *     NONE --a call reports a sticky error--> DESCRIBED --its name is written down--> LOST
 *
 * What was enqueued on a lost device is over: the driver has ended it. Without the loss, "over" is only what the driver
 * says is done: its error may have nothing to do with the work that was asked about. A driver that has no answer any
 * more, however often it is asked, is taken for lost: else whoever waits for the work would wait for ever.
 */
#include <stdio.h>
#include <time.h>

#include "pool/base/clock.h"
#include "pool/device/inside.h"

/* Both: so many questions, over so long a time. A driver in trouble answers wrongly at once, and many times. */
#define UNANSWERED_MAX 64u
#define UNANSWERED_NS  UINT64_C(1000000000)
#define PAUSE_NS       500000 /* between two questions of a thread that waits */

void spw__device_lose(struct spw__device *device, spw__cu_result result, const char *what)
{
    int none = SPW__LOSS_NONE;
    if (!atomic_compare_exchange_strong(&device->loss, &none, SPW__LOSS_DESCRIBED))
        return;
    (void)snprintf(device->loss_text, sizeof device->loss_text, "%s (%u), reported by %s",
                   error_name(device->driver, result), result, what);
    atomic_store(&device->loss, SPW__LOSS_LOST);
}

bool spw__device_is_lost(const struct spw__device *device)
{
    return atomic_load_explicit(&device->loss, memory_order_acquire) == SPW__LOSS_LOST;
}

const char *spw__device_loss(const struct spw__device *device)
{
    return device->loss_text;
}

/* Notes an answer to the question whether work is done. */
static void note_answer(struct spw__device *device, spw__cu_result result, const char *what)
{
    if (result == SPW__CU_SUCCESS || result == SPW__CU_ERROR_NOT_READY) {
        atomic_store_explicit(&device->unanswered, 0, memory_order_relaxed);
        return;
    }
    const uint64_t now = spw__clock_monotonic_ns();
    const unsigned before = atomic_fetch_add(&device->unanswered, 1);
    if (before == 0)
        atomic_store(&device->unanswered_since_ns, now);
    const uint64_t since = atomic_load(&device->unanswered_since_ns);
    if (spw__cu_is_sticky(result) || (before + 1 >= UNANSWERED_MAX && now >= since + UNANSWERED_NS))
        spw__device_lose(device, result, what);
}

bool spw__device_event_pending(struct spw__device *device, struct spw__event *event)
{
    if (spw__device_is_lost(device))
        return false;
    const spw__cu_result result = CALL(device, event_query, event->event);
    note_answer(device, result, "cuEventQuery");
    return result != SPW__CU_SUCCESS && !spw__device_is_lost(device);
}

static bool is_callers_mistake(spw__cu_result result)
{
    return result == SPW__CU_ERROR_INVALID_HANDLE || result == SPW__CU_ERROR_INVALID_VALUE;
}

int spw__device_settle(struct spw__device *device, spw__stream stream)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (;;) {
        const spw__cu_result result = CALL(device, stream_synchronize, stream);
        if (result == SPW__CU_SUCCESS || is_callers_mistake(result))
            return check(device, result, "cuStreamSynchronize");
        note_answer(device, result, "cuStreamSynchronize");
        if (spw__device_is_lost(device))
            return check(device, result, "cuStreamSynchronize");
        (void)nanosleep(&pause, NULL);
    }
}
