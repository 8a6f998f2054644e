/* One device, spoken to through the driver table: memory, streams, asynchronous copies, pooled events.
 *
 * The same code runs on CUDA's driver API and on the simulated driver (driver.h): this layer only turns their results
 * into SPW_ codes and keeps the pools of events. Device addresses are plain numbers; the CPU must not touch them.
 * Completion is found by polling events, never by callbacks. A sticky error is reported by every later call as
 * SPW_EDEVICE with the driver's name of it: the device is lost.
 *
 * Threads: any; each call makes the device's context current first. No call blocks for longer than it takes to enqueue,
 * but for those that bring memory or give it back, register it, or wait for streams, as open, close and stream_destroy
 * do.
 */
#ifndef SPW_DEVICE_DEVICE_H
#define SPW_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/log.h"
#include "pool/base/meta.h"
#include "pool/device/driver.h"

#include <spillway/spec.h>

struct spw__device;
struct spw__event;        /* pooled */
typedef void *spw__stream; /* CUstream, as the public opaque spw_stream */

struct spw__device_config {
    spw_driver_kind kind;  /* AUTO: CUDA when a device answers, else SPW_ENOTSUP (simulation is never slipped in) */
    uint32_t device_id;
    uint64_t capacity_bytes; /* memory of the simulated device, and how it runs: driver.h */
    struct spw__sim_model model;
    uint64_t seed;
    const struct spw__log *log;
    struct spw__meta *meta;
};

/* SPW_ENOTSUP: no such driver or no device; SPW_EDEVICE; SPW_ENOMEM; SPW_ENOMETA. */
int spw__device_open(const struct spw__device_config *config, struct spw__device **out);
void spw__device_close(struct spw__device *device); /* everything must have been given back; NULL is a no-op */

bool spw__device_is_simulated(const struct spw__device *device); /* for tests */

/* True from the first call on that reported a sticky error: the driver has given up the context with all that lies in
 * its memory, and nothing that was enqueued goes on. Never again false. Any thread. (loss.c) */
bool spw__device_is_lost(const struct spw__device *device);
/* Of a lost device: the driver's name of that error, and the call that reported it. Lives as long as the device. */
const char *spw__device_loss(const struct spw__device *device);

/* A plain allocation, aligned to 2 MiB at least where bytes is that large, else to 256. SPW_ENOMEM, SPW_EDEVICE. */
int spw__device_alloc(struct spw__device *device, uint64_t bytes, uint64_t *address);
int spw__device_free(struct spw__device *device, uint64_t address);

/* True for managed memory, which the driver moves as it likes: Spillway's never is. */
bool spw__device_is_managed(struct spw__device *device, uint64_t address);

/* Memory that comes as it is needed (device_map.c): addresses first, and memory behind parts of them later. */

/* Everything below counts in multiples of this, 2 MiB or more; 0: the device or its driver maps no memory. */
uint64_t spw__device_map_unit(struct spw__device *device);
/* Addresses alone, aligned to 2 MiB at least. SPW_ENOMEM, SPW_EDEVICE. */
int spw__device_reserve(struct spw__device *device, uint64_t bytes, uint64_t *address);
int spw__device_unreserve(struct spw__device *device, uint64_t address, uint64_t bytes);
/* Fresh memory behind reserved addresses. It can be exported (as a file descriptor) and reached by GPUDirect RDMA where
 * the device says that it can; the first time that is checked, and what is missing is said in the log. The driver names
 * the memory's handle when it is asked for by address. SPW_ENOMEM, SPW_EDEVICE: nothing is mapped. */
int spw__device_map(struct spw__device *device, uint64_t address, uint64_t bytes, const struct spw__log *log);
/* Gives back what one map has brought: whole, and no work may use it any more. SPW_EDEVICE: it may be there
 * still. */
int spw__device_unmap(struct spw__device *device, uint64_t address, uint64_t bytes);

int spw__device_stream_create(struct spw__device *device, spw__stream *out);
int spw__device_stream_destroy(struct spw__device *device, spw__stream stream); /* waits for its work */

/* Enqueue on stream (NULL: the default stream). Host memory should be registered, else the driver may copy
 * synchronously. */
int spw__device_copy_to(struct spw__device *device, spw__stream stream, uint64_t device_dst, const void *src,
                        uint64_t bytes);
int spw__device_copy_from(struct spw__device *device, spw__stream stream, void *dst, uint64_t device_src,
                          uint64_t bytes);
int spw__device_copy_within(struct spw__device *device, spw__stream stream, uint64_t device_dst, uint64_t device_src,
                            uint64_t bytes);

enum spw__copy_kind { SPW__COPY_TO, SPW__COPY_FROM, SPW__COPY_WITHIN };

struct spw__device_copy {
    enum spw__copy_kind kind;
    uint64_t dst, src; /* on the device, or of the CPU, as kind says */
    uint64_t bytes;
};

/* As many as one call of the driver takes. */
#define SPW__COPIES_MAX 32u

/* Enqueues several copies on stream, a created one, by one call where the driver has it; they are not ordered among
 * each other. When one is refused, *done says how many before it are enqueued, and none after it is. */
int spw__device_copy_batch(struct spw__device *device, spw__stream stream, const struct spw__device_copy *copies,
                           unsigned n, unsigned *done);

/* Enqueues fn(arg), run once in stream order, with no lock held; spw__sim_translate is valid inside it. fn may not call
 * the device. SPW_ENOTSUP on CUDA, where the application launches kernels itself. */
int spw__device_launch(struct spw__device *device, spw__stream stream, void (*fn)(void *arg), void *arg);
int spw__device_synchronize(struct spw__device *device, spw__stream stream); /* blocks until the stream is idle */

/* The same where memory is at stake that stream may use: an error that passes is no end of the wait. 0, or SPW_EDEVICE:
 * the device is lost, or the stream is none of its own; nothing uses the memory any more. (loss.c) */
int spw__device_settle(struct spw__device *device, spw__stream stream);

/* Takes an event from the pool and records it on stream. */
int spw__device_event_record(struct spw__device *device, spw__stream stream, struct spw__event **out);
/* 0: done; SPW_EAGAIN: not yet; SPW_EDEVICE. Never blocks. */
int spw__device_event_query(struct spw__device *device, struct spw__event *event);
/* True while what came before the event may still run. It never will again on a lost device, and whether it does is not
 * known while the driver answers with an error that passes: it is asked again, until it is clear that the device is as
 * good as lost. The thread's error detail stays as it is. (loss.c) */
bool spw__device_event_pending(struct spw__device *device, struct spw__event *event);
/* Makes what is enqueued on stream later wait for event; the CPU does not wait. */
int spw__device_event_order(struct spw__device *device, spw__stream stream, struct spw__event *event);
/* Gives the event back to the pool. NULL is a no-op. */
void spw__device_event_put(struct spw__device *device, struct spw__event *event);

/* Page-locks host memory for the driver. A failure is no error of Spillway: copies are slower. */
int spw__device_host_register(struct spw__device *device, void *base, uint64_t bytes);
void spw__device_host_unregister(struct spw__device *device, void *base);

#endif
