/* An ordered, augmented tree of waiters: a treap whose nodes lie in the waiters, so that it needs no memory and never
 * fails. Neighbours: wait_pass.c keeps two per channel, one of objects and one of deadlines; wait_walk.c goes through
 * those of a channel key by key.
 *
 * Order: (key, band, net_bytes, sequence), all ascending; sequence makes it strict. Where all are to be in one order
 * the key is 0. Each node knows, of all below it, the least need, and the least of those that are marked: what cannot
 * be served is skipped by whole subtrees. insert, remove and next take O(log n), first O(1).
 *
 * Threads: none of its own; guarded by its user's lock. Ownership: a node belongs to its user, who takes it out.
 */
#ifndef SPW_BASE_WAIT_QUEUE_H
#define SPW_BASE_WAIT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spw__wait_order {
    uintptr_t key;
    uint64_t band;
    int64_t net_bytes;
    uint64_t sequence;
};

struct spw__wait_node {
    /* Set by the user before insert, constant until remove. */
    struct spw__wait_order order;
    void *owner;
    uint64_t need; /* 0: unknown, within every bound */
    bool marked;
    /* Guarded by the user's lock. */
    uint64_t priority; /* of a parent not below that of its children */
    struct spw__wait_node *left, *right;
    uint64_t least, least_marked; /* of the subtree: the least need, and that of the marked; UINT64_MAX: of nobody */
};

struct spw__wait_queue {
    struct spw__wait_node *root, *first; /* guarded by the user's lock */
};

/* What next looks for: a node whose need is within the bound, marked if only those are asked for. */
struct spw__wait_filter {
    uint64_t bound; /* inclusive; below UINT64_MAX */
    bool marked_only;
};

#define SPW__WAIT_UNBOUNDED (UINT64_MAX - 1)

static inline bool spw__wait_before(const struct spw__wait_order *a, const struct spw__wait_order *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    if (a->band != b->band)
        return a->band < b->band;
    return a->net_bytes != b->net_bytes ? a->net_bytes < b->net_bytes : a->sequence < b->sequence;
}

void spw__wait_queue_insert(struct spw__wait_queue *queue, struct spw__wait_node *node);
void spw__wait_queue_remove(struct spw__wait_queue *queue, struct spw__wait_node *node);

/* The first node after a place in the order (NULL: from the start) that passes filter (NULL: any); NULL when none. */
struct spw__wait_node *spw__wait_queue_next(const struct spw__wait_queue *queue, const struct spw__wait_order *after,
                                            const struct spw__wait_filter *filter);

/* Walks the whole tree: order, heap, every least, first. Returns the number of nodes, SIZE_MAX on damage. */
size_t spw__x_wait_queue_check(const struct spw__wait_queue *queue);

#endif
