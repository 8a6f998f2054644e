/* Reservations: bytes of a place promised before they are allocated.
 *
 * A reservation is committed like memory in use: nobody else can have its bytes. What is allocated under it (the option
 * reservation of spw_admit, spw_alloc, spw_map and spw_pool_alloc) takes its bytes from it in one step: at no moment
 * are they counted twice, or not at all.
 *
 *     none --spw_reserve--> held --an allocation under it--> held, less --spw_reservation_release--> none
 *                           (what is left is free again)
 *
 * A reservation is budget, not a place in memory. An allocation under it may find the bytes free but no hole that fits,
 * or the pools for its size taken by others: then it waits and makes room as any other does, its bytes staying
 * reserved.
 *
 * Threads: every call may be made from any thread. One reservation may be used by several threads at once, but not
 * while it is released or merged into another.
 * Ownership: the caller owns a reservation; it must be released before its manager is destroyed. What was allocated
 * under it is independent of it.
 *
 * Besides the errors that a call names, each that takes a reservation gives SPW_EBADHANDLE for NULL, for one that was
 * released or is none, and SPW_EFORK in a forked child.
 */
#ifndef SPILLWAY_RESERVE_H
#define SPILLWAY_RESERVE_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

typedef struct spw_reservation spw_reservation;

/* Flags of spw_reserve. */
#define SPW_RESERVE_TRY 0x1u      /* neither evict nor wait: SPW_EAGAIN instead */
#define SPW_RESERVE_OVERBOOK 0x2u /* grant it at once, beyond the budget if need be. What exceeds it is counted and
                                     shown (spw_tier_stats), and what is allocated under the reservation is the first to
                                     be spilled once anything else asks for room. Not together with UPTO */
#define SPW_RESERVE_UPTO 0x4u     /* as much as there is, between options.least_bytes and bytes */

#define SPW_NET_BYTES_DEFAULT INT64_MAX /* as much as is reserved */

/* Options of spw_reserve. */
typedef struct spw_reserve_options {
    size_t struct_size;
    uint32_t flags;
    uint32_t reserved;    /* 0 */
    uint64_t least_bytes; /* with UPTO: what the reservation is of no use without; 0 means 1. Else 0 */
    int64_t net_bytes;    /* what the work is expected to add to the place in the end, negative when it frees more than
                             it takes: among requests of an age those that free most go first. Initialised to
                             SPW_NET_BYTES_DEFAULT */
    spw_wait_options wait;
    spw_group *group; /* who is charged (group.h); NULL: the task of wait, else the manager's budgets. Not owned */
} spw_reserve_options;

/* Sets every field to its default, as spw_options_init(_sized) does. Never blocks; any thread. Since 0.1. */
SPW_API void spw_reserve_options_init_sized(spw_reserve_options *options, size_t size);

static inline void spw_reserve_options_init(spw_reserve_options *options)
{
    spw_reserve_options_init_sized(options, sizeof *options);
}

/* Reserves bytes of a memory place, rounded up to what one allocation of them would be charged: colder buffers of the
 * place are evicted as needed, and it waits, oldest request first, until the deadline. bytes 0 gives a valid, empty
 * reservation at once. options NULL means the defaults; they are read during the call only.
 * With UPTO it takes what is free at once, after clean copies have been dropped; when that is less than least_bytes, or
 * others wait already, it evicts and waits for just these. spw_reservation_size says how much it became.
 * Errors: SPW_EINVAL (NULL, options, a place that does not exist), SPW_ETOOBIG (more than the budget could ever grant,
 * at once, whoever waits; with OVERBOOK: more than the place's pools hold), SPW_ENOMEM (no room before the deadline),
 * SPW_EAGAIN (TRY), SPW_ENOMETA, SPW_ECANCELED, SPW_ESHUTDOWN (a forced destroy), SPW_ENOSPC, SPW_EIO or SPW_EDEVICE
 * (what would have made room cannot be pushed out), SPW_EFORK. On error *out is NULL and nothing is reserved. Since
 * 0.1. */
SPW_API SPW_MUST_CHECK int spw_reserve(spw_manager *manager, spw_place place, uint64_t bytes,
                                       const spw_reserve_options *options, spw_reservation **out);

/* Bytes not yet allocated from it, those of allocations included that are under way. 0, with the thread's detail, when
 * it is no live reservation. Never blocks. Since 0.1. */
SPW_API uint64_t spw_reservation_size(const spw_reservation *reservation);

/* Adds bytes, rounded up as by spw_reserve. Blocks as spw_reserve; wait NULL means the defaults; its errors. On error
 * the reservation is as before. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reservation_grow(spw_reservation *reservation, uint64_t bytes,
                                                const spw_wait_options *wait);

/* Gives just so many bytes back, for others to have. More than it holds: SPW_EINVAL, and nothing changes. Never blocks.
 * Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reservation_shrink(spw_reservation *reservation, uint64_t bytes);

/* Moves just so many bytes to a new reservation of the caller's. SPW_EINVAL (out is NULL, more than it holds) and
 * SPW_ENOMETA: nothing changes, *out is NULL. Never blocks. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reservation_split(spw_reservation *reservation, uint64_t bytes, spw_reservation **out);

/* Moves all bytes of from to into; from is gone as if released. SPW_EINVAL, and nothing changes, unless they are two
 * reservations of one place, charged to one group or task; SPW_EBUSY while an allocation under from is under way. Never
 * blocks. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_reservation_merge(spw_reservation *into, spw_reservation *from);

/* Ends a reservation: what is left of it is free again, and those who wait are served. SPW_EBADHANDLE for one that was
 * released already, SPW_EBUSY, and nothing happens, while an allocation under it is under way. NULL is a no-op. Does
 * not block. The result may be ignored, as that of free: both errors are mistakes of the program's and leave everything
 * as it was. Since 0.1. */
SPW_API int spw_reservation_release(spw_reservation *reservation);

SPW_END_DECLS

#endif
