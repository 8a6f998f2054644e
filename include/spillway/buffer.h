/* Buffers: payloads that live in whichever tier has room, and the maps through which their bytes are reached.
 *
 * A buffer begins unsealed: it belongs to its producer, can be written, cannot be retained, and is pushed out only if
 * its producer marked it spillable. Seal makes its content immutable and the buffer a candidate for spilling whenever
 * it is not mapped. Mapping brings the bytes to a place and holds them there; unmap lets go.
 *
 *     admit or alloc --> unsealed --------------seal--> sealed --release of the last reference--> gone
 *                        (map READ|WRITE)             (map READ; a victim while it is not mapped)
 *                           |        ^                   ^   |
 *        set_spillable(true)|        |(false)            |   \--make_writable--> unsealed
 *                           v        |                   |
 *                        unsealed, spillable --seal------/
 *                        (map READ|WRITE; a victim while it is not mapped)
 *
 * Threads: every call may be made from any thread at any time, except that one view must not be used by two threads at
 * once. Ownership: admit and alloc give the caller one reference; retain adds one; release gives one back.
 *
 * Under a reservation (options.reservation, see reserve.h) the bytes come out of it in one step, and go back to it when
 * the call fails. SPW_EINVAL when it holds less than the call would be charged, or is of another place or manager,
 * SPW_EBADHANDLE when it is not live.
 *
 * Besides the errors that a call names, each that takes a buffer gives SPW_EBADHANDLE for NULL, for a handle that was
 * released or is none, and SPW_EFORK in a forked child.
 */
#ifndef SPILLWAY_BUFFER_H
#define SPILLWAY_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/reserve.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

typedef struct spw_buffer spw_buffer;
typedef struct spw_stream spw_stream; /* opaque: a CUstream, or a stream of the simulated device */

/* Neither evict nor wait for others: SPW_EAGAIN instead. For progress threads. Free memory that was never used may
 * first have to come from the system, which takes its time. */
#define SPW_NOWAIT 0x1u

/* Options of spw_admit. */
typedef struct spw_admit_options {
    size_t struct_size;
    spw_place prefer; /* first place tried; SPW_PLACE_NONE: the best that exists */
    spw_place lowest; /* last place tried, and the one whose coldest buffers make room when all are full, see spw_admit;
                         SPW_PLACE_NONE: the lowest memory tier that exists */
    uint32_t flags;   /* 0 or SPW_NOWAIT */
    const char *tag;  /* who holds it, for messages and statistics: at most 31 bytes, copied; NULL: "" */
    spw_wait_options wait;
    spw_reservation *reservation; /* NULL: none. Else it pays, and its place is the only one tried: it must be one from
                                     prefer to lowest */
    spw_group *group; /* who is charged (group.h); NULL: the task of wait, else the manager's budgets alone. Not owned;
                         a reservation is charged to its own */
} spw_admit_options;

/* Options of spw_alloc. */
typedef struct spw_alloc_options {
    size_t struct_size;
    uint32_t flags; /* 0 or SPW_NOWAIT */
    const char *tag;
    spw_wait_options wait;
    spw_reservation *reservation; /* NULL: none. Else it pays; it must be of the place that is asked for */
    spw_group *group; /* as in spw_admit_options; spw_buffer_make_writable: NULL is the task, else the buffer's group */
} spw_alloc_options;

/* Set every field to its default, as spw_options_init(_sized) does. Never block; any thread. Since 0.1. */
SPW_API void spw_admit_options_init_sized(spw_admit_options *options, size_t size);
SPW_API void spw_alloc_options_init_sized(spw_alloc_options *options, size_t size);

static inline void spw_admit_options_init(spw_admit_options *options)
{
    spw_admit_options_init_sized(options, sizeof *options);
}

static inline void spw_alloc_options_init(spw_alloc_options *options)
{
    spw_alloc_options_init_sized(options, sizeof *options);
}

/* Takes in a buffer of bytes (content undefined, contiguous) in the first of device, pinned_host and host that has
 * room, pushing nobody out. Only when all of them are full it waits, while the coldest buffers of the lowest that may
 * go are moved to the next lower place that has room, else to disk; those with an unchanged copy on disk are just
 * dropped from memory. Never causes a copy from device to pinned_host (origin: RapidsMPF's "a spill that never needs to
 * spill"). options NULL means the defaults; they are read during the call only. bytes may be 0. Blocks until there is
 * room or the deadline, unless NOWAIT or a timeout of 0 says otherwise. Errors: SPW_EINVAL (NULL, options, a place
 * that does not exist), SPW_ENOMEM (no room before the deadline), SPW_EFRAG (at the deadline enough was free, but in no
 * hole that fits), SPW_EAGAIN (NOWAIT), SPW_ETOOBIG (no pool, or no budget that is charged, can ever hold it),
 * SPW_ENOMETA, SPW_ECANCELED, SPW_ESHUTDOWN (a forced destroy), SPW_ENOSPC, SPW_EIO or SPW_EDEVICE (what would have
 * made room cannot be pushed out), SPW_EFORK. On error *out is NULL. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_admit(spw_manager *manager, size_t bytes, const spw_admit_options *options,
                                     spw_buffer **out);

/* Allocates a buffer in a memory place and nowhere else, evicting colder buffers of that place as needed and waiting
 * until the deadline. Errors as spw_admit. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_alloc(spw_manager *manager, spw_place place, size_t bytes,
                                     const spw_alloc_options *options, spw_buffer **out);

/* Makes the content immutable and the buffer spillable when it is not mapped. SPW_ESEALED when it is sealed already,
 * SPW_EMAPPED while it is mapped for writing. Does not block. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_seal(spw_buffer *buffer);

/* Says of an unsealed buffer whether it may be pushed out, to disk too, while no view of it is open: for a producer
 * that is not done with it, but does not need it for a while, as when its task was asked with SPW_ERETRY. Marking wakes
 * who waits for room. false takes it back: a spill under way is called off or ends, none begins later, and what was
 * pushed out stays where it is until it is mapped or written. Before a map for writing returns, no spill reads the
 * bytes any more, and their copies on disk are given back: what comes back from there is never older than what was
 * written last. A map that only reads keeps those copies. A sealed buffer can always be pushed out: true changes
 * nothing, false is SPW_ESEALED. A buffer that make_writable unsealed is not spillable until it is marked anew. Does
 * not block. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_set_spillable(spw_buffer *buffer, bool spillable);

/* Adds a reference to a sealed buffer. SPW_EINVAL when it is not sealed. Does not block. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_retain(spw_buffer *buffer);

/* Gives a reference back; the last one frees the payload in every tier once its last use on a stream has completed.
 * SPW_EMAPPED, and nothing happens, when it is the last and a view is still open. SPW_EBADHANDLE for a handle that was
 * freed already. NULL is a no-op. Does not block. The result may be ignored, as that of free: there is nothing to undo,
 * both errors are mistakes of the program's and leave everything as it was. Since 0.1. */
SPW_API int spw_buffer_release(spw_buffer *buffer);

/* Makes *buffer one that the caller may write: nothing happens when it is unsealed, wherever it lies; when the caller's
 * reference is the only one, it is unsealed where it is (place says where to bring it if it is on disk) and its copies
 * below are dropped (SPW_EMAPPED while it is mapped); otherwise a copy is allocated in the tier where the bytes lie,
 * under its budget, the caller's reference to the shared one is given back, and *buffer is the copy, with its head and
 * tag. Blocks as spw_map and spw_alloc do, and while the bytes are copied; their errors; on error *buffer is as before.
 * options NULL means the defaults. (Origin: data shared between DataFlow's nodes is immutable; copy before changing.)
 * Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_make_writable(spw_buffer **buffer, spw_place place,
                                                    const spw_alloc_options *options);

/* Size in bytes, as asked for; 0, with the thread's detail, when buffer is no live handle.
 * Does not block. Since 0.1. */
SPW_API size_t spw_buffer_size(const spw_buffer *buffer);

/* Where the bytes lie at this moment: the lowest place among its pieces (SPW_DISK when any piece is on disk only).
 * Another thread may change it at once unless the caller holds a map. SPW_PLACE_NONE for an empty buffer, whose bytes
 * lie nowhere, for one whose group was cancelled, once its bytes are freed, and, with the thread's detail, when it is
 * no live handle. Does not block. Since 0.1. */
SPW_API spw_place spw_buffer_place(const spw_buffer *buffer);

/* Its tag, never NULL, valid as long as the buffer; "" when it is no live handle. Does not block. Since 0.1. */
SPW_API const char *spw_buffer_tag(const spw_buffer *buffer);

/* Copies bytes from src (CPU memory) into an unsealed buffer at offset, wherever it lies, device included; the way to
 * fill an admitted buffer whose place the CPU cannot address. Blocks until the copy is done, and before that, for at
 * most the manager's default timeout, for what streams still do with it. A spillable buffer that does not lie together
 * in memory any more is brought there first, as spw_map does it, but for content that is overwritten as a whole: to the
 * lowest place, from where its lowest bytes lie upward, that has a pool which can hold it. SPW_ESEALED when sealed,
 * SPW_EINVAL when offset + bytes is beyond its size, SPW_EDEVICE, and the other errors of spw_map. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_write(spw_buffer *buffer, size_t offset, const void *src, size_t bytes);

/* Map flags. */
#define SPW_MAP_READ 0x01u
#define SPW_MAP_WRITE 0x02u   /* unsealed buffers only */
#define SPW_MAP_DISCARD 0x04u /* with WRITE: the old content is not needed, is not moved, and may be lost even when
                                 the map fails */
#define SPW_MAP_NOMOVE 0x08u  /* SPW_EWRONGTIER instead of moving the bytes */
#define SPW_MAP_HERE 0x10u    /* map wherever the bytes lie in memory; place is only asked when they are on disk */
#define SPW_MAP_NOWAIT 0x20u  /* neither evict, nor wait for room, nor read from disk, nor (WRITE) wait for a spill of
                                 the buffer: SPW_EAGAIN instead. A copy from another memory tier is made, and waited
                                 for unless there is a stream */

/* Options of spw_map. */
typedef struct spw_map_options {
    size_t struct_size;
    spw_stream *stream; /* whose work will use the view, see spw_map; NULL: the caller, or work not yet ordered */
    spw_wait_options wait;
    spw_reservation *reservation; /* NULL: none. Else it pays for what is moved to place, of which it must be; it is not
                                     touched when nothing moves */
} spw_map_options;

/* Sets every field to its default, as spw_options_init(_sized) does. Never blocks; any thread. Since 0.1. */
SPW_API void spw_map_options_init_sized(spw_map_options *options, size_t size);

static inline void spw_map_options_init(spw_map_options *options)
{
    spw_map_options_init_sized(options, sizeof *options);
}

/* An open map. data is a device address when place is a device: the CPU must not touch it. */
typedef struct spw_view {
    void *data;
    size_t size;
    spw_place place;
    uint32_t flags;
    void *reserved[2];
} spw_view;

/* Makes the whole payload addressable at place, contiguous, and holds it there until spw_unmap. If the bytes lie
 * elsewhere they are moved (reserving room may evict colder buffers and wait); bytes read back from disk are checked
 * against what was written. Several maps of one buffer may be open, all at one place. A map that meets a spill of the
 * buffer calls it off if it has not begun; one with WRITE also waits until what has begun is over.
 * Without a stream it blocks until the bytes are there and all earlier uses of the buffer, those that were given to
 * spw_unmap, have completed.
 * With one (stream.h) it enqueues the copies on streams of the library's own, after those uses, makes the stream wait
 * for them, and returns: what the stream is given from now on runs after the copies, on the device. The CPU may touch
 * what data points to only after a wait for the stream (spw_stream_wait), on host places too. The place that the bytes
 * leave stays committed until the copies have completed; until then the buffer can be mapped where it is going, but not
 * move on. Such a call blocks nevertheless while room has to be made, bytes are read from disk, an earlier move of the
 * buffer is under way, or the bytes go from one host place to another; and, with bytes of a host place that is not
 * registered with the driver (host never is), while a stream uses them, and for as long as the driver takes, which may
 * copy such memory at once. When the device fails before the copies have completed, the bytes are where they came from:
 * maps give SPW_EDEVICE until the views that were opened meanwhile are closed.
 * Errors: SPW_EINVAL (NULL, flags, options, a place that does not exist), SPW_EWRONGTIER (NOMOVE), SPW_EMAPPED (mapped
 * elsewhere at this moment), SPW_ESEALED (WRITE), SPW_EAGAIN (NOWAIT), SPW_ETIMEDOUT (there is room, but a move or an
 * earlier use of the buffer did not end before the deadline), SPW_ECORRUPT (this buffer is lost, others are not),
 * SPW_EIO or SPW_EDEVICE (the copy failed, or its only copy lay on a device that is lost), and those of spw_alloc, of
 * which SPW_ENOMEM and SPW_EFRAG mean that there was no room before the deadline. On error nothing is mapped and the
 * bytes are where they were, but that with WRITE | DISCARD the old content may be lost; after SPW_ETIMEDOUT and
 * SPW_ECANCELED a move under way may still end, and the bytes then lie at place. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_map(spw_buffer *buffer, spw_place place, uint32_t flags, const spw_map_options *options,
                                   spw_view *view);

/* Closes a view, and empties it. stream: whose work uses the view last (on any place); the next use and the next move
 * wait for what it has been given so far, and the call does not block, but for one case: when there is no memory or no
 * event to remember the stream by, it waits for it. NULL: nothing pending uses the view.
 * SPW_EBADHANDLE when the view is not open on this buffer: closed already, or never; SPW_EDEVICE when that waiting
 * fails, the view being closed all the same. The result may be ignored: the view is closed whenever it was open. Since
 * 0.1. */
SPW_API int spw_unmap(spw_buffer *buffer, spw_view *view, spw_stream *stream);

SPW_END_DECLS

#endif
