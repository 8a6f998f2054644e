/* Streams: queues of work on the manager's device.
 *
 * A stream is CUDA's CUstream, or one of the simulated device's: the same calls and the same rules for both. Every call
 * of this library that takes a stream takes one of spw_stream_create's or a CUstream of the engine's own, of the same
 * device, as it is (cast to spw_stream *). CUDA's default streams have handles of their own for that (CU_STREAM_LEGACY,
 * CU_STREAM_PER_THREAD): NULL always means "no stream".
 *
 *     spw_map(stream) --> work is given to the stream --> spw_unmap(stream) --> moves and frees come after that work
 *
 * Threads: every call may be made from any thread. Ownership: a stream belongs to whoever created it; the manager
 * cannot be destroyed before those of spw_stream_create are.
 *
 * Besides the errors that a call names, each gives SPW_EINVAL for NULL, SPW_ENOTSUP when the manager has no device, and
 * SPW_EFORK in a forked child. A handle that is no live stream cannot be told from a CUstream of the engine's: what the
 * driver says about it is SPW_EDEVICE.
 */
#ifndef SPILLWAY_STREAM_H
#define SPILLWAY_STREAM_H

#include <stddef.h>

#include <spillway/buffer.h>
#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/ticket.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

/* Creates a stream of the manager's device, which does not wait for CUDA's legacy default stream (it is non-blocking).
 * Blocks no longer than the driver takes. SPW_EDEVICE (the driver refuses), SPW_ENOMETA; *out is then NULL. Since 0.1.
 */
SPW_API SPW_MUST_CHECK int spw_stream_create(spw_manager *manager, spw_stream **out);

/* Destroys a stream that spw_stream_create gave. Blocks until the work that it was given is done. SPW_EBADHANDLE, and
 * nothing happens, when the handle is none of this manager's, or was destroyed already; SPW_EDEVICE when the device is
 * lost: the stream is gone all the same. NULL is a no-op. The result may be ignored. Since 0.1. */
SPW_API int spw_stream_destroy(spw_manager *manager, spw_stream *stream);

/* Waits until the stream has done all that it was given so far. Blocks until then or the deadline, as any wait: with
 * its task, and ended by its token. wait NULL means the defaults. A timeout of 0 looks once, and may not see what has
 * only just been done: to look again and again, poll a ticket. Errors: SPW_ETIMEDOUT, SPW_ECANCELED, SPW_ESHUTDOWN,
 * SPW_EDEVICE (what it was given failed, or the device is lost), SPW_ENOMETA. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_stream_wait(spw_manager *manager, spw_stream *stream, const spw_wait_options *wait);

/* Starts spw_stream_wait: the ticket ends when the stream has done what it was given before the start, and brings
 * nothing. The stream must exist until the call returns. As the other calls of its kind (ticket.h). Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_stream_wait_start(spw_manager *manager, spw_stream *stream, const spw_wait_options *wait,
                                                 spw_ticket **out);

/* Work in stream order: see spw_device_launch. */
typedef void (*spw_device_fn)(void *arg);

/* Gives the stream host code to run in its order, where a kernel would be launched on a GPU: on the simulated device
 * only, for engines, tests and examples that run without one. fn(arg) is called once, from a thread of the library's,
 * after what the stream was given before and before what it is given later, beside the work of other streams; not at
 * all once the device is lost. It may read and write device memory through spw_device_address and any host memory that
 * the stream's order says is its own; it may wait for what other threads do, but must not call this library. arg is the
 * caller's, and must last until the stream has done it.
 * Does not block. SPW_ENOTSUP on CUDA (launch kernels there), SPW_EDEVICE, SPW_EINVAL (fn is NULL). Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_device_launch(spw_manager *manager, spw_stream *stream, spw_device_fn fn, void *arg);

/* Inside a launched function: where the CPU finds the bytes behind a device address, valid until the function returns.
 * NULL everywhere else, and unless all of the bytes lie in the memory of the function's device: an address that was
 * never given out may still lie in a pool's memory. Never blocks. Since 0.1. */
SPW_API void *spw_device_address(const void *address, size_t bytes);

SPW_END_DECLS

#endif
