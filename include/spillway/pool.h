/* Raw memory: plain pointers from a tier's pools, for what is no buffer (send rings, hash tables, scratch of kernels,
 * the hooks of other allocators), charged to the same budgets as buffers.
 *
 * Raw memory does not move, is never pushed out and has no content that Spillway knows of. A request that finds no
 * room evicts buffers and waits as spw_alloc does; raw memory itself never makes room, unless a reclaimer of its
 * owner's frees it (reclaim.h).
 *
 * Stream order (device only). A block that is freed with a stream may be handed out at once to an allocation on the
 * same stream, and to everybody else once the work that the stream had been given by then has completed. Until then
 * its bytes stay committed. It is given back by the library's own thread (with threads=0: by spw_progress and calls
 * that wait) and by allocations that find no room. On host places the work of a stream is not the library's concern: a
 * stream is ignored, and the block is free at once.
 *
 * Threads: every call may be made from any thread; a block may be freed by another thread than the one that got it.
 * Ownership: a block belongs to whoever allocated it until it is freed; the manager cannot be destroyed before that.
 */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/buffer.h>
#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/reserve.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

/* Raw memory. A plain value: it may be copied, and whoever keeps only ptr can free it with spw_pool_free_ptr. */
typedef struct spw_block {
    void *ptr;            /* a device address when the place is the device: the CPU must not touch it */
    size_t size;          /* as asked for, in bytes */
    uint64_t reserved[2]; /* which allocation of this address it is, so that a stale copy is recognised */
} spw_block;

/* Options of spw_pool_alloc. */
typedef struct spw_pool_options {
    size_t struct_size;
    uint32_t flags; /* 0 or SPW_NOWAIT: neither evict nor wait, SPW_EAGAIN instead */
    spw_wait_options wait;
    spw_reservation *reservation; /* NULL: none. Else it pays, as for buffers; it must be of that place */
    spw_group *group; /* who is charged, as for buffers (group.h). Not owned */
} spw_pool_options;

/* A pool's memory as one piece of address space. */
typedef struct spw_pool_region {
    void *base;
    size_t size; /* bytes */
} spw_pool_region;

/* Sets every field to its default, as spw_options_init(_sized) does. Never blocks; any thread. Since 0.1. */
SPW_API void spw_pool_options_init_sized(spw_pool_options *options, size_t size);

static inline void spw_pool_options_init(spw_pool_options *options)
{
    spw_pool_options_init_sized(options, sizeof *options);
}

/* Allocates bytes (content undefined) at a memory place, at an address that is a multiple of align: a power of two up
 * to 2 MiB, or 0 for the place's own (64 on host places, 256 on the device). The pool is chosen by bytes, and the
 * charge is that of a buffer of this size, in pools of 4 GiB and more up to a sixteenth more: spw_pool_usable_size says
 * how much. There each thread keeps some of what it frees for its next requests; it is taken back before anything
 * fails, and for statistics.
 * stream: the stream on which the memory is going to be used first; NULL: none, it can be used anywhere. It must
 * belong to the manager's device and is not kept beyond the call.
 * Blocks as spw_alloc: colder buffers of the place are evicted as needed, then it waits until the deadline. options
 * NULL means the defaults; they are read during the call only. bytes 0 gives a block with a NULL pointer, which need
 * not be freed.
 * Errors: SPW_EINVAL (a place that does not exist, align, options), SPW_ENOMEM (no room before the deadline),
 * SPW_EFRAG (enough is free, but in no hole that fits), SPW_EAGAIN (NOWAIT), SPW_ETOOBIG (no pool can ever hold it),
 * SPW_ENOMETA, SPW_ECANCELED, SPW_ESHUTDOWN, SPW_ENOSPC, SPW_EIO or SPW_EDEVICE (what would have made room cannot be
 * pushed out), SPW_EFORK. On error *block is empty and nothing was charged; the detail names pool, request, free and
 * largest free bytes. Any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_pool_alloc(spw_manager *manager, spw_place place, size_t bytes, size_t align,
                                          spw_stream *stream, const spw_pool_options *options, spw_block *block);

/* Frees a block. stream: the one that uses it last, or NULL when no work that uses it is pending (or on a host place);
 * work of other streams on it must come before, by events of the caller's. The stream need only exist during the call.
 * *block is read, not changed: it is stale from then on, as are its copies. A block with a NULL pointer is a no-op.
 * Does not block, but for one case: when there is no memory or no event to remember the stream by, it waits for it.
 * SPW_EBADHANDLE, and nothing happens, for a block that is not live: freed already (also when another block lies there
 * now), or from elsewhere; the detail names pointer, place and pool. SPW_EINVAL, SPW_EFORK. The result may be ignored,
 * as that of free: an error leaves everything as it was, and there is nothing to do about it. Any thread. Since 0.1. */
SPW_API int spw_pool_free(spw_manager *manager, const spw_block *block, spw_stream *stream);

/* The same for hooks that keep only the pointer. A pointer that was freed and handed out again cannot be told from the
 * later block: a double free is recognised until then. Does not block, as spw_pool_free. SPW_EBADHANDLE, SPW_EINVAL,
 * SPW_EFORK. Any thread. Since 0.1. */
SPW_API int spw_pool_free_ptr(spw_manager *manager, void *ptr, spw_stream *stream);

/* Bytes from ptr on that belong to the live block which begins there: at least as many as asked for, and those that are
 * charged. 0, with SPW_EBADHANDLE as the thread's detail, when there is none. Never blocks; any thread. Since 0.1. */
SPW_API size_t spw_pool_usable_size(spw_manager *manager, const void *ptr);

/* Gives the physical memory of free host pools back to the system, in whole huge pages, until keep_bytes of the
 * place's free memory still have theirs; *trimmed (may be NULL) says how many bytes went. Budgets and addresses stay:
 * memory comes back, zeroed, with the first use of each page, for the price of a page fault. On the device (grow=vmm
 * only) what lies behind a pool's last allocation goes back to the driver, in whole chunks, and comes back when the
 * pool grows. Nothing to give, and SPW_OK, with grow=plain, and for pinned_host memory that is registered with the
 * device. Do not trim a place whose regions a transport has registered: it would go on using the pages that went.
 * Allocations that find no room meanwhile wait for the end.
 * Blocks on the system. SPW_EINVAL for a place that does not exist, SPW_EFORK. Any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_pool_trim(spw_manager *manager, spw_place place, uint64_t keep_bytes, uint64_t *trimmed);

/* Tells where a place's pools lie, in the order of the specification, for transports that register memory: every
 * buffer and block of the place lies inside one of them, and they stay as they are until the manager is destroyed. With
 * grow=vmm the device's are addresses, of which only a part has memory at any time.
 * Fills at most max regions (an array of the caller's, may be NULL when max is 0); *n is how many there are. Never
 * blocks. SPW_EINVAL for a place that does not exist, SPW_EFORK. Any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_pool_regions(spw_manager *manager, spw_place place, spw_pool_region *regions,
                                            uint32_t max, uint32_t *n);

SPW_END_DECLS

#endif
