/* Opening a hole: enough bytes are free, but no hole fits, so live blocks move within their pool.
 *
 * The window to clear is a run of neighbouring blocks together with the holes around them. Two kinds are looked at:
 * windows just as large as the request, whose blocks must find room in holes elsewhere, and windows whose holes alone
 * add up to the request, where closing the ranks is enough and always possible. Of all that work, the one with the
 * fewest live bytes is taken. Only when the range places the blocks otherwise than foreseen, and one of them finds no
 * room, is the whole pool packed anew.
 *
 * Neighbour: replay.c.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/replay/replay_run.h"

/* How many windows of the first kind are tried, cheapest first. Each try packs its blocks on paper. */
#define TRIES 256u

/* Live blocks [begin, end) in order of their addresses, and the holes before, between and behind them. */
struct window {
    uint64_t live_bytes;
    uint32_t begin;
    uint32_t end;
};

/* A pool by address, and scratch memory. */
struct view {
    struct spw__replay *replay;
    struct spw__replay_pool *pool;
    uint32_t *live;         /* blocks by address */
    uint32_t *order;        /* scratch: blocks by size */
    uint64_t *holes;        /* scratch: hole i lies before live[i], hole n behind the last */
    struct window *windows; /* n + 1 */
    uint32_t n;
    uint64_t charge; /* of the request */
};

static int by_address(const void *a, const void *b, void *blocks)
{
    const struct spw__replay_block *all = blocks;
    const uint64_t x = all[*(const uint32_t *)a].offset, y = all[*(const uint32_t *)b].offset;
    return (x > y) - (x < y);
}

/* Larger blocks first: what is left then finds room more easily. Ties by address, so that runs repeat. */
static int by_size(const void *a, const void *b, void *blocks)
{
    const struct spw__replay_block *all = blocks;
    const uint64_t x = all[*(const uint32_t *)a].charge, y = all[*(const uint32_t *)b].charge;
    return x == y ? by_address(a, b, blocks) : (x < y) - (x > y);
}

static int by_live_bytes(const void *a, const void *b)
{
    const struct window *x = a, *y = b;
    if (x->live_bytes != y->live_bytes)
        return x->live_bytes < y->live_bytes ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void view_finish(struct view *view)
{
    free(view->live);
    free(view->order);
    free(view->holes);
    free(view->windows);
}

static int view_init(struct view *view, struct spw__replay *replay, struct spw__replay_pool *pool, uint64_t charge)
{
    const size_t n = pool->n_live;
    *view = (struct view){.replay = replay, .pool = pool, .n = pool->n_live, .charge = charge};
    view->live = malloc((n + 1) * sizeof *view->live);
    view->order = malloc((n + 1) * sizeof *view->order);
    view->holes = malloc((n + 1) * sizeof *view->holes);
    view->windows = malloc((n + 1) * sizeof *view->windows);
    if (!view->live || !view->order || !view->holes || !view->windows) {
        view_finish(view);
        return spw__fail(SPW_ENOMETA, "out of memory");
    }
    if (n)
        memcpy(view->live, pool->live, n * sizeof *view->live);
    qsort_r(view->live, n, sizeof *view->live, by_address, replay->blocks);
    return SPW_OK;
}

static struct spw__replay_block *block_at(const struct view *view, uint32_t i)
{
    return &view->replay->blocks[view->live[i]];
}

/* Where hole i begins and ends. */
static uint64_t hole_begin(const struct view *view, uint32_t i)
{
    return i ? block_at(view, i - 1)->offset + block_at(view, i - 1)->charge : 0;
}

static uint64_t hole_end(const struct view *view, uint32_t i)
{
    return i < view->n ? block_at(view, i)->offset : view->pool->size;
}

/* Bytes of a cleared window behind which the request's alignment is kept. */
static uint64_t usable(const struct view *view, const struct window *window)
{
    const uint64_t align = spw__replay_align(view->charge) ? spw__replay_align(view->charge) : 1;
    const uint64_t begin = (hole_begin(view, window->begin) + align - 1) / align * align;
    const uint64_t end = hole_end(view, window->end);
    return begin < end ? end - begin : 0;
}

/* The smallest window from each block on that holds the request: with its blocks gone, or with its blocks in it too. */
static uint32_t find_windows(struct view *view, bool with_blocks)
{
    struct window window = {0, 0, 0};
    uint32_t n = 0;
    for (; window.begin <= view->n; window.begin++) {
        while (usable(view, &window) < view->charge + (with_blocks ? window.live_bytes : 0)) {
            if (window.end == view->n)
                return n;
            window.live_bytes += block_at(view, window.end++)->charge;
        }
        view->windows[n++] = window;
        if (window.end > window.begin)
            window.live_bytes -= block_at(view, window.begin)->charge;
        else
            window.end++;
    }
    return n;
}

static void order_blocks(struct view *view, const struct window *window)
{
    const uint32_t n = window->end - window->begin;
    memcpy(view->order, view->live + window->begin, n * sizeof *view->order);
    qsort_r(view->order, n, sizeof *view->order, by_size, view->replay->blocks);
}

/* Whether the blocks of a window find room beside the request and in the other holes, by best fit. */
static bool fits_elsewhere(struct view *view, const struct window *window)
{
    uint32_t n = 0;
    view->holes[n++] = usable(view, window) - view->charge;
    for (uint32_t i = 0; i <= view->n; i++)
        if ((i < window->begin || i > window->end) && hole_end(view, i) > hole_begin(view, i))
            view->holes[n++] = hole_end(view, i) - hole_begin(view, i);
    order_blocks(view, window);
    for (uint32_t i = 0; i < window->end - window->begin; i++) {
        const uint64_t charge = view->replay->blocks[view->order[i]].charge;
        uint32_t best = n;
        for (uint32_t hole = 0; hole < n; hole++)
            if (view->holes[hole] >= charge && (best == n || view->holes[hole] < view->holes[best]))
                best = hole;
        if (best == n)
            return false;
        view->holes[best] -= charge;
    }
    return true;
}

/* The window to clear. False when no run of holes adds up to the request: too few bytes are free. */
static bool choose(struct view *view, struct window *out)
{
    uint32_t n = find_windows(view, true);
    if (n == 0)
        return false;
    *out = view->windows[0];
    for (uint32_t i = 1; i < n; i++)
        if (view->windows[i].live_bytes < out->live_bytes)
            *out = view->windows[i];
    n = find_windows(view, false);
    qsort(view->windows, n, sizeof *view->windows, by_live_bytes);
    for (uint32_t i = 0; i < n && i < TRIES && view->windows[i].live_bytes < out->live_bytes; i++)
        if (fits_elsewhere(view, &view->windows[i])) {
            *out = view->windows[i];
            break;
        }
    return true;
}

static int place(struct spw__range *range, struct spw__replay_block *b)
{
    return spw__range_alloc(range, b->charge, spw__replay_align(b->charge), &b->node, &b->offset);
}

static void count_move(struct view *view, uint32_t block, uint64_t from)
{
    const struct spw__replay_block *b = &view->replay->blocks[block];
    struct spw__replay_result *result = view->replay->result;
    uint64_t *high = &result->high_bytes[view->pool - view->replay->pools];
    if (b->offset == from)
        return;
    result->moves++;
    result->moved_bytes += b->charge;
    if (*high < b->offset + b->charge)
        *high = b->offset + b->charge;
}

/* Packs every block and the request into a fresh range, largest first. Lowest address first cannot fail: it leaves no
 * hole. The offsets before are in view->holes. */
static int pack_anew(struct view *view, uint32_t request)
{
    struct spw__range *range = NULL;
    struct spw__replay_block *const blocks = view->replay->blocks;
    int rc = SPW_EFRAG;
    memcpy(view->order, view->live, view->n * sizeof *view->order);
    view->order[view->n] = request;
    qsort_r(view->order, view->n + 1, sizeof *view->order, by_size, blocks);
    for (int address = view->replay->config.address_ordered; rc == SPW_EFRAG && address <= 1; address++) {
        spw__range_destroy(range);
        rc = spw__range_create(view->pool->size, view->replay->granularity, address != 0, NULL, &range);
        for (uint32_t i = 0; rc == SPW_OK && i <= view->n; i++)
            rc = place(range, &blocks[view->order[i]]);
    }
    spw__range_destroy(view->pool->range);
    view->pool->range = range;
    for (uint32_t i = 0; rc == SPW_OK && i < view->n; i++)
        count_move(view, view->live[i], view->holes[i]);
    return rc;
}

static int clear(struct view *view, const struct window *window, uint32_t request)
{
    struct spw__replay_block *const blocks = view->replay->blocks;
    struct spw__range *const range = view->pool->range;
    const uint32_t n = window->end - window->begin;
    int rc = SPW_OK;
    order_blocks(view, window);
    for (uint32_t i = 0; i < view->n; i++)
        view->holes[i] = block_at(view, i)->offset;
    for (uint32_t i = 0; rc == SPW_OK && i < n; i++)
        rc = spw__range_free(range, blocks[view->order[i]].node);
    if (rc == SPW_OK)
        rc = place(range, &blocks[request]);
    for (uint32_t i = 0; rc == SPW_OK && i < n; i++)
        rc = place(range, &blocks[view->order[i]]);
    if (rc == SPW_ENOMEM || rc == SPW_EFRAG)
        return pack_anew(view, request);
    for (uint32_t i = window->begin; rc == SPW_OK && i < window->end; i++)
        count_move(view, view->live[i], view->holes[i]);
    return rc;
}

int spw__replay_open_hole(struct spw__replay *replay, struct spw__replay_pool *pool, uint32_t block)
{
    struct view view;
    struct window window;
    if (spw__range_total_free(pool->range) < replay->blocks[block].charge)
        return SPW_ENOMEM;
    int rc = view_init(&view, replay, pool, replay->blocks[block].charge);
    if (rc != SPW_OK)
        return rc;
    rc = choose(&view, &window) ? clear(&view, &window, block) : SPW_ENOMEM;
    replay->result->holes += rc == SPW_OK;
    view_finish(&view);
    return rc;
}
