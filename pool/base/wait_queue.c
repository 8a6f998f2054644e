/* The tree of waiters: see wait_queue.h. */
#include "pool/base/wait_queue.h"

/* Spreads sequence numbers, so that the tree's shape does not follow the order of arrival (splitmix64's finish). */
static uint64_t priority_of(uint64_t sequence)
{
    uint64_t x = sequence + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void include(struct spw__wait_node *node, const struct spw__wait_node *child)
{
    if (!child)
        return;
    if (node->least > child->least)
        node->least = child->least;
    if (node->least_marked > child->least_marked)
        node->least_marked = child->least_marked;
}

/* Recomputes what node knows of its subtree from itself and its children. */
static void update(struct spw__wait_node *node)
{
    node->least = node->need;
    node->least_marked = node->marked ? node->need : UINT64_MAX;
    include(node, node->left);
    include(node, node->right);
}

/* Parts a tree into those before order and the others. */
static void split(struct spw__wait_node *root, const struct spw__wait_order *order, struct spw__wait_node **before,
                  struct spw__wait_node **others)
{
    if (!root) {
        *before = *others = NULL;
        return;
    }
    if (spw__wait_before(&root->order, order)) {
        split(root->right, order, &root->right, others);
        *before = root;
    } else {
        split(root->left, order, before, &root->left);
        *others = root;
    }
    update(root);
}

/* One tree of two, all of a before all of b. */
static struct spw__wait_node *merge(struct spw__wait_node *a, struct spw__wait_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->priority >= b->priority) {
        a->right = merge(a->right, b);
        update(a);
        return a;
    }
    b->left = merge(a, b->left);
    update(b);
    return b;
}

static struct spw__wait_node *insert(struct spw__wait_node *root, struct spw__wait_node *node)
{
    if (!root || node->priority > root->priority) {
        split(root, &node->order, &node->left, &node->right);
        root = node;
    } else if (spw__wait_before(&node->order, &root->order)) {
        root->left = insert(root->left, node);
    } else {
        root->right = insert(root->right, node);
    }
    update(root);
    return root;
}

static struct spw__wait_node *without(struct spw__wait_node *root, const struct spw__wait_node *node)
{
    if (root == node)
        return merge(root->left, root->right);
    if (spw__wait_before(&node->order, &root->order))
        root->left = without(root->left, node);
    else
        root->right = without(root->right, node);
    update(root);
    return root;
}

static struct spw__wait_node *leftmost(struct spw__wait_node *root)
{
    while (root && root->left)
        root = root->left;
    return root;
}

void spw__wait_queue_insert(struct spw__wait_queue *queue, struct spw__wait_node *node)
{
    node->priority = priority_of(node->order.sequence);
    if (node->need > SPW__WAIT_UNBOUNDED)
        node->need = SPW__WAIT_UNBOUNDED;
    queue->root = insert(queue->root, node);
    if (!queue->first || spw__wait_before(&node->order, &queue->first->order))
        queue->first = node;
}

void spw__wait_queue_remove(struct spw__wait_queue *queue, struct spw__wait_node *node)
{
    queue->root = without(queue->root, node);
    node->left = node->right = NULL;
    if (queue->first == node)
        queue->first = leftmost(queue->root);
}

static bool passes(const struct spw__wait_node *node, const struct spw__wait_filter *filter)
{
    return !filter || (node->need <= filter->bound && (node->marked || !filter->marked_only));
}

/* True when the node root, or one below it, passes. */
static bool any_passes(const struct spw__wait_node *root, const struct spw__wait_filter *filter)
{
    return !filter || (filter->marked_only ? root->least_marked : root->least) <= filter->bound;
}

static struct spw__wait_node *find(struct spw__wait_node *root, const struct spw__wait_order *after,
                                   const struct spw__wait_filter *filter)
{
    if (!root || !any_passes(root, filter))
        return NULL;
    if (after && !spw__wait_before(after, &root->order))
        return find(root->right, after, filter);
    struct spw__wait_node *found = find(root->left, after, filter);
    if (found)
        return found;
    return passes(root, filter) ? root : find(root->right, NULL, filter);
}

struct spw__wait_node *spw__wait_queue_next(const struct spw__wait_queue *queue, const struct spw__wait_order *after,
                                            const struct spw__wait_filter *filter)
{
    return find(queue->root, after, filter);
}

/* Checks the subtree, whose nodes lie after *last in the order; *last becomes its last. */
static size_t check(const struct spw__wait_node *root, const struct spw__wait_node **last)
{
    if (!root)
        return 0;
    const size_t left = check(root->left, last);
    if (left == SIZE_MAX || (*last && !spw__wait_before(&(*last)->order, &root->order)))
        return SIZE_MAX;
    *last = root;
    const size_t right = check(root->right, last);
    struct spw__wait_node again = *root;
    update(&again);
    const bool sound = right != SIZE_MAX && again.least == root->least && again.least_marked == root->least_marked &&
                       (!root->left || root->left->priority <= root->priority) &&
                       (!root->right || root->right->priority <= root->priority);
    return sound ? left + 1 + right : SIZE_MAX;
}

size_t spw__x_wait_queue_check(const struct spw__wait_queue *queue)
{
    const struct spw__wait_node *last = NULL, *first = queue->root;
    while (first && first->left)
        first = first->left;
    return first == queue->first ? check(queue->root, &last) : SIZE_MAX;
}
