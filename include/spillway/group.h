/* Groups: a tree of budgets for queries and tenants.
 *
 * Every byte that Spillway hands out is charged to one group, and with it to all groups above, up to the manager's own
 * budgets. Of each place a group has a maximum, beyond which it gets nothing and makes room among its own buffers
 * first, and a minimum, which is set aside for it: nobody else can have it, and nobody pushes the group below it.
 *
 *     manager's budgets
 *      |-- tenant A (max 60 %)
 *      |    |-- query 1 (min 10 %)      a charge to query 1 is one to tenant A and to the manager as well
 *      |    '-- query 2
 *      '-- tenant B
 *
 * Who gives way. A request that a group's maximum refuses takes its victims from that group and those below it, and
 * from nobody else. One that finds the place itself full takes them first from whoever holds most, beyond its minimum,
 * for its weight among the siblings, and there the coldest; never so that a group would fall below its minimum, but for
 * the groups that the request itself belongs to.
 *
 * Threads: every call may be made from any thread; a group must not be used while it is destroyed.
 * Ownership: the caller owns the group; it must be destroyed after its tasks, buffers, raw blocks, reservations and
 * child groups, and before its manager.
 *
 * Besides the errors that a call names, each that takes a group gives SPW_EBADHANDLE for NULL where one is needed, and
 * for a group that was destroyed or is none.
 */
#ifndef SPILLWAY_GROUP_H
#define SPILLWAY_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/manager.h>
#include <spillway/place.h>
#include <spillway/wait.h>

SPW_BEGIN_DECLS

#define SPW_NO_LIMIT UINT64_MAX

/* A group's part of one place. Bytes. */
typedef struct spw_group_share {
    uint64_t min_bytes; /* set aside for the group; 0: nothing */
    uint64_t max_bytes; /* SPW_NO_LIMIT: whatever the group above has */
    uint32_t weight;    /* how much of what is above all minima it deserves beside its siblings: who holds most for its
                           weight is asked to make room first. At least 1. What is charged to the group above itself
                           counts like a sibling of weight 1 */
    uint32_t reserved;  /* must be 0 */
} spw_group_share;

/* Options of spw_group_create. */
typedef struct spw_group_options {
    size_t struct_size;
    spw_group *parent; /* NULL: the manager's budgets */
    const char *name;  /* for messages and statistics: at most 31 bytes, copied; NULL: "unnamed" */
    spw_group_share shares[SPW_TIER_META]; /* by spw_tier: device, pinned_host, host, disk */
    spw_wait_options wait; /* for the minima: room for them is made as for an allocation */
} spw_group_options;

/* Sets every field to its default: no minima, no limits, weight 1. As spw_options_init(_sized) otherwise. Since 0.1. */
SPW_API void spw_group_options_init_sized(spw_group_options *options, size_t size);

static inline void spw_group_options_init(spw_group_options *options)
{
    spw_group_options_init_sized(options, sizeof *options);
}

/* Creates a group, below another or below the manager's budgets. options NULL means the defaults; they are read during
 * the call only. Minima are set aside before it returns: what is free at once, else it evicts buffers that nobody maps,
 * and waits as spw_alloc does.
 * Errors: SPW_EINVAL (NULL, options, a minimum above the maximum, weight 0, more than 13 levels of groups), SPW_ETOOBIG
 * (the minima of the siblings and this one are together more than the group above, or the place, can have), SPW_ENOMEM
 * (no room for the minima before the deadline), SPW_ECANCELED (also when the parent was cancelled), SPW_ENOMETA,
 * SPW_ENOSPC, SPW_EIO, SPW_EDEVICE, SPW_ESHUTDOWN, SPW_EFORK. On error *out is NULL. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_create(spw_manager *manager, const spw_group_options *options, spw_group **out);

/* Changes a group's share of a place (SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST or SPW_DISK), all of it. Does not wait, as
 * spw_set_budget. A maximum below what is charged makes the excess overbooked, as there: nothing new is granted until
 * the group is below it again, and it spills as soon as it asks. A minimum that is raised takes what is free at this
 * moment; spw_group_set_start (ticket.h) waits for what it lacks. SPW_EINVAL (no share, a place that groups have no
 * share of, a share as for spw_group_create), SPW_ETOOBIG as for that, SPW_ENOMEM (there is no room for the higher
 * minimum now, and nothing was changed), SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_set(spw_group *group, spw_place place, const spw_group_share *share);

/* Ends the group's work, and that of all groups below it, for good: every wait that is charged to them ends with
 * SPW_ECANCELED, now and from now on, and so does every request; the bytes of their buffers are freed in every tier
 * without being written anywhere, those of mapped ones when their last view is closed, and those that a stream still
 * uses when it is done. Handles stay valid until they are released, but a map of one is SPW_ECANCELED. Raw blocks and
 * reservations are their holders': they stay charged until they are given back. A group that is cancelled already is
 * left as it is. Does not block. SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_cancel(spw_group *group);

/* Destroys a group that nothing belongs to any more; its minima are free then. SPW_EBUSY, and nothing happens, while it
 * has child groups, tasks, live buffers or reservations, or bytes charged to it: the detail names them. Waits, at most
 * the manager's default timeout, for moves that still carry buffers which were released. SPW_EFORK. NULL is a no-op.
 * Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_destroy(spw_group *group);

/* What a group has of a place at this moment. Bytes; exact. */
typedef struct spw_group_usage {
    size_t struct_size;       /* set by the caller; SPW_GROUP_USAGE_INIT does it */
    uint64_t committed_bytes; /* charged to it, and to the groups below */
    uint64_t peak_bytes;      /* the highest value of that so far */
    uint64_t min_bytes;
    uint64_t max_bytes;
} spw_group_usage;

/* Initialiser of a spw_group_usage: everything 0 but struct_size. */
#ifdef __cplusplus
#  define SPW_GROUP_USAGE_INIT spw_group_usage{sizeof(spw_group_usage), 0, 0, 0, 0}
#else
#  define SPW_GROUP_USAGE_INIT (spw_group_usage){.struct_size = sizeof(spw_group_usage)}
#endif

/* Says what a group has of a place. As spw_stats_snapshot, it first takes back what threads cache of small objects.
 * usage->struct_size must be set, and is kept. SPW_EINVAL (no usage, no struct_size, a place that groups have no share
 * of), SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_group_usage_get(spw_group *group, spw_place place, spw_group_usage *usage);

SPW_END_DECLS

#endif
