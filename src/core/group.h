/* Groups as the rest of src/core sees them: which one a call is charged to, and which belong together. The budgets
 * themselves are nodes of pool/ledger.h. Neighbours: rank.c decides who gives way. */
#ifndef SPW_CORE_GROUP_H
#define SPW_CORE_GROUP_H

#include "pool/ledger.h"

#include <spillway/group.h>

struct spw_group {
    struct spw__group node; /* first; its shares lie behind the group (spw__group_size) */
    _Atomic uint64_t magic; /* atomic */
    spw_manager *manager;   /* constant */
    spw_group *next, *prev; /* guarded by the manager's lock of groups: all groups, for a forced end; or those that were
                               destroyed, whose memory is kept so that a stale handle is recognised */
};

#define SPW__GROUP_LIVE UINT64_C(0x7370775f67726f75)
#define SPW__GROUP_DEAD UINT64_C(0x7370775f676f6e65)

/* SPW_OK, or SPW_EBADHANDLE / SPW_EFORK with detail. call names the public function. */
int spw__group_check_handle(const spw_group *group, const char *call);

/* Which node a call is charged to: that of given, else of the task on whose behalf it waits, else the manager's root.
 * SPW_EINVAL: a group of another manager; SPW_ECANCELED. */
int spw__group_charged(spw_manager *manager, spw_group *given, const spw_wait_options *wait, const char *call,
                       struct spw__group **out);

/* The group that a node belongs to: itself, or that of a task, which may have ended. */
struct spw__group *spw__group_of(struct spw__group *node);

/* SPW_EINVAL, on behalf of call: a share that is none. (group_share.c, as all up to give_shares) */
int spw__group_check_share(const char *call, spw_tier tier, const spw_group_share *share);
/* SPW_EINVAL unless group is one, and place one that groups have shares of. */
int spw__group_check_place(const spw_group *group, spw_place place, const char *call);
/* The shares of a group that is being created; it may wait for its minima. On failure some may be set aside. */
int spw__group_give_shares(spw_group *group, const spw_group_options *options);
void spw__group_drop_minima(spw_manager *manager, struct spw__group *node);

/* SPW_ECANCELED with detail when group, or one above it, is cancelled. */
int spw__group_check(const struct spw__group *group);

/* Makes the shares of the tree's root, once all queues are there; spw__groups_finish frees them. SPW_ENOMETA. */
int spw__groups_init_root(spw_manager *manager);

/* Bytes of what begins with a node and is size long itself, with the node's shares of the queues of victims behind it.
 */
size_t spw__group_size(const spw_manager *manager, size_t size);

/* Makes the shares of a node at shares, below those of its parent; shares_behind: where they are as the size says. */
void spw__group_init_shares(spw_manager *manager, struct spw__group *node, struct spw__victim_share *shares);
struct spw__victim_share *spw__group_shares_behind(void *object, size_t size);

/* Puts a node, a group's or a task's, into the tree that choices of victims and statistics go through; takes it out. */
void spw__group_enter(spw_manager *manager, struct spw__group *node);
void spw__group_leave(spw_manager *manager, struct spw__group *node);

/* Bracket what names a node without being charged to it: the node is there until the last has ended. */
void spw__group_use(struct spw__group *node);
void spw__group_unuse(spw_manager *manager, struct spw__group *node);

/* One group in a list of all, parents before their children. */
struct spw__group_report {
    char name[32];
    uint32_t parent; /* place in the list, counted from 1; 0: the manager */
    bool cancelled;
    struct {
        uint64_t committed_bytes, peak_bytes, min_bytes, max_bytes;
        uint32_t weight;
    } tiers[SPW_TIER_META];
};

struct spw__group_list {
    struct spw__group_report *reports;
    uint32_t n, room;
};

/* Lists all groups. SPW_ENOMETA. finish gives the list back. */
int spw__groups_list(spw_manager *manager, struct spw__group_list *list);
void spw__groups_list_finish(spw_manager *manager, struct spw__group_list *list);

/* SPW_EBUSY, with their names, when there are groups. */
int spw__groups_check(spw_manager *manager);

/* Frees what groups are left at a forced end. */
void spw__groups_finish(spw_manager *manager);

#endif
