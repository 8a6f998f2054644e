/* Inside the queues of victims: the lists of one share, and the tree of those in play. For victim.c, which keeps them,
 * and victim_rank.c, which chooses by them; everybody else includes victim.h.
 *
 * Threads: all under the queue's lock. */
#ifndef SPW_SPILL_VICTIM_SHARE_H
#define SPW_SPILL_VICTIM_SHARE_H

#include "spill/victim.h"

/* Takes the item out of all lists; it is let go, and no more touched, only when its state says so. (victim.c) */
void spw__victim_unlink_locked(struct spw__item *item);
void spw__victim_let_go_locked(struct spw__item *item);

/* True when the share, or one below it, has items. */
static inline bool spw__victim_share_in_play(const struct spw__victim_share *share)
{
    return share->below || share->lists[SPW__ITEM_CLEAN - 1].list.first ||
           share->lists[SPW__ITEM_DIRTY - 1].list.first || share->lists[SPW__ITEM_FAILED - 1].list.first;
}

/* The share has come into play: it is hung below the one above, and that likewise. (victim_rank.c) */
void spw__victim_share_enter(struct spw__victim_share *share);

/* The share is not in play any more. */
void spw__victim_share_leave(struct spw__victim_share *share);

static inline struct spw__victim_own *spw__victim_own_of(struct spw__victim_share *share, enum spw__item_state state)
{
    return &share->lists[state - SPW__ITEM_CLEAN];
}

/* Lists; which: those of a queue or those of a share. */

static inline void spw__victim_append(struct spw__victim_list *list, struct spw__item *item, enum spw__item_list which)
{
    item->links[which] = (struct spw__item_links){.prev = list->last};
    if (list->last)
        list->last->links[which].next = item;
    else
        list->first = item;
    list->last = item;
}

static inline void spw__victim_prepend(struct spw__victim_list *list, struct spw__item *item, enum spw__item_list which)
{
    item->links[which] = (struct spw__item_links){.next = list->first};
    if (list->first)
        list->first->links[which].prev = item;
    else
        list->last = item;
    list->first = item;
}

static inline void spw__victim_unlink(struct spw__victim_list *list, struct spw__item *item, enum spw__item_list which)
{
    const struct spw__item_links links = item->links[which];
    if (links.prev)
        links.prev->links[which].next = links.next;
    else
        list->first = links.next;
    if (links.next)
        links.next->links[which].prev = links.prev;
    else
        list->last = links.prev;
    item->links[which] = (struct spw__item_links){.prev = NULL};
}

/* Moves an item that is not the last to the end. */
static inline void spw__victim_warm(struct spw__victim_list *list, struct spw__item *item, enum spw__item_list which)
{
    const struct spw__item_links links = item->links[which];
    if (links.prev)
        links.prev->links[which].next = links.next;
    else
        list->first = links.next;
    links.next->links[which].prev = links.prev;
    list->last->links[which].next = item;
    item->links[which] = (struct spw__item_links){.prev = list->last};
    list->last = item;
}

#endif
