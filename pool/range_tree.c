/* Holes in address order, for the address-ordered variant: a binary search tree by offset that is at the same time a
 * heap by size (a Cartesian tree). A subtree's root is its largest hole, so that first fit walks down one path, and the
 * largest hole is at the top. Equal sizes are ordered by a hash of the node's index, as in a treap, which keeps paths
 * logarithmic for equal sizes; for mixed sizes their order does the same, unless they rise or fall with the address.
 * Neighbours: range.c.
 */
#include "pool/range_layout.h"

/* Whether hole a belongs above hole b. */
static bool above(const struct spw__range *range, uint32_t a, uint32_t b)
{
    const uint64_t a_bytes = at(range, a)->bytes, b_bytes = at(range, b)->bytes;
    return a_bytes != b_bytes ? a_bytes > b_bytes : a * UINT32_C(2654435769) > b * UINT32_C(2654435769);
}

void spw__tree_insert(struct spw__range *range, uint32_t index)
{
    struct node *node = at(range, index);
    uint32_t *link = &range->root;
    while (*link != NONE && above(range, *link, index)) {
        struct node *root = at(range, *link);
        link = node->offset < root->offset ? &root->left : &root->right;
    }
    /* What was here is divided between the two sides of the new hole. */
    uint32_t rest = *link, *low = &node->left, *high = &node->right;
    *link = index;
    while (rest != NONE) {
        struct node *root = at(range, rest);
        if (root->offset < node->offset) {
            *low = rest;
            low = &root->right;
            rest = *low;
        } else {
            *high = rest;
            high = &root->left;
            rest = *high;
        }
    }
    *low = *high = NONE;
}

void spw__tree_remove(struct spw__range *range, uint32_t index)
{
    const struct node *node = at(range, index);
    uint32_t *link = &range->root;
    while (*link != index) {
        struct node *root = at(range, *link);
        link = node->offset < root->offset ? &root->left : &root->right;
    }
    uint32_t low = node->left, high = node->right;
    while (low != NONE && high != NONE) {
        if (above(range, low, high)) {
            *link = low;
            link = &at(range, low)->right;
            low = *link;
        } else {
            *link = high;
            link = &at(range, high)->left;
            high = *link;
        }
    }
    *link = low != NONE ? low : high;
}

/* The lowest hole that fits, NONE when none does. */
uint32_t spw__tree_find(const struct spw__range *range, uint64_t bytes, uint64_t align)
{
    uint32_t i = range->root;
    if (i == NONE || at(range, i)->bytes < bytes)
        return NONE;
    for (uint32_t left = at(range, i)->left; left != NONE && at(range, left)->bytes >= bytes;
         left = at(range, i)->left)
        i = left;
    /* Large enough, but its start may not suit a large alignment: then one after the other. */
    while (i != NONE && !(is_hole(range, i) && fits(at(range, i), bytes, align)))
        i = at(range, i)->next;
    return i;
}
