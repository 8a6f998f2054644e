/* The device layer's inside: what device.c (memory, streams, copies, events), device_map.c (memory that is mapped as
 * it is needed, what the driver says of an address) and loss.c (when a device is lost) share. For these files only.
 */
#ifndef SPW_DEVICE_INSIDE_H
#define SPW_DEVICE_INSIDE_H

#include <stdatomic.h>

#include "pool/base/error.h"
#include "pool/base/lock.h"
#include "pool/device/device.h"
#include "pool/device/driver.h"

struct spw__event {
    spw__cu_event event;
    struct spw__event *next; /* in the pool; guarded by the device's lock */
};

/* Constant where nothing else is said. */
struct spw__device {
    const struct spw__driver *driver;
    spw__cu_device ordinal;
    spw__cu_context context;
    bool simulated;
    struct spw__meta *meta;
    struct spw__mutex lock;
    struct spw__event *idle; /* the pool of events; guarded by lock */
    _Atomic long live;       /* atomic: allocations, reservations, streams, events and registrations not given back */
    atomic_bool never_batches;  /* atomic: the driver has a call for several copies, and does not support it here */
    _Atomic unsigned map_wants; /* atomic: SPW__MAP_ bits, what mapped memory is asked to be capable of */
    atomic_bool map_looked_at;  /* atomic: the first mapped memory was */
    _Atomic int loss;           /* atomic: enum spw__loss, only upwards */
    char loss_text[96];         /* written by who made it DESCRIBED, constant once it is LOST */
    _Atomic unsigned unanswered; /* atomic: questions whether work is done that had no answer, in a row */
    _Atomic uint64_t unanswered_since_ns; /* atomic: when the first of these was asked */
};

enum { SPW__MAP_EXPORT = 1, SPW__MAP_RDMA = 2 };

enum spw__loss { SPW__LOSS_NONE, SPW__LOSS_DESCRIBED, SPW__LOSS_LOST };

/* The device is lost from now on, if it is not yet, since the call named what reported result. (loss.c) */
void spw__device_lose(struct spw__device *device, spw__cu_result result, const char *what);

/* Makes the context current, *pushed if it was not so. */
static inline spw__cu_result enter(const struct spw__device *device, bool *pushed)
{
    spw__cu_context current = NULL;
    spw__cu_result result = device->driver->ctx_get_current(&current);
    *pushed = false;
    if (result == SPW__CU_SUCCESS && current != device->context) {
        result = device->driver->ctx_push_current(device->context);
        *pushed = result == SPW__CU_SUCCESS;
    }
    return result;
}

static inline void leave(const struct spw__device *device, bool pushed)
{
    spw__cu_context popped;
    if (pushed && device->driver->ctx_pop_current(&popped) != SPW__CU_SUCCESS)
        (void)device->driver->ctx_pop_current(&popped); /* the thread is to have its own context back */
}

/* The result of one entry point, called with the device's context current. */
#define CALL(device, entry, ...)                                                                                       \
    ({                                                                                                                 \
        bool pushed_;                                                                                                  \
        spw__cu_result result_ = enter(device, &pushed_);                                                              \
        if (result_ == SPW__CU_SUCCESS)                                                                                \
            result_ = (device)->driver->entry(__VA_ARGS__);                                                            \
        leave(device, pushed_);                                                                                        \
        result_;                                                                                                       \
    })

static inline const char *error_name(const struct spw__driver *driver, spw__cu_result result)
{
    const char *name = NULL;
    return driver->get_error_name(result, &name) == SPW__CU_SUCCESS && name ? name : "an error without a name";
}

/* The same for what is given back: an error that passes, such as a want of memory in the driver, must leave nothing
 * behind. One that stays is of a context whose memory is gone anyway. */
#define GIVE_BACK(device, entry, ...)                                                                                  \
    ({                                                                                                                 \
        spw__cu_result given_ = CALL(device, entry, __VA_ARGS__);                                                      \
        if (given_ != SPW__CU_SUCCESS && !spw__cu_is_sticky(given_))                                                   \
            given_ = CALL(device, entry, __VA_ARGS__);                                                                 \
        given_;                                                                                                        \
    })

/* What a result means that comes of a caller's mistake: the only handles that callers give are streams, and the
 * simulated device permits everything but calls from the functions that it runs. */
static inline const char *remedy(const struct spw__device *device, spw__cu_result result)
{
    if (result == SPW__CU_ERROR_INVALID_HANDLE)
        return "; the stream is not live, or not one of this device";
    return device->simulated && result == SPW__CU_ERROR_NOT_PERMITTED
               ? "; a function that was launched on a stream may not call the library"
               : "";
}

/* 0, or SPW_EDEVICE with the driver's name of the error. A sticky one loses the device. */
static inline int check(struct spw__device *device, spw__cu_result result, const char *what)
{
    const spw_error_info info = {.place = SPW_DEVICE};
    if (result == SPW__CU_SUCCESS)
        return 0;
    if (spw__cu_is_sticky(result))
        spw__device_lose(device, result, what);
    return spw__fail_info(&info, SPW_EDEVICE, "device %d: %s: %s (%u)%s", device->ordinal, what,
                          error_name(device->driver, result), result, remedy(device, result));
}

/* SPW_ENOMEM, with what the device still has. */
int spw__device_no_memory(const struct spw__device *device, uint64_t bytes);

#endif
