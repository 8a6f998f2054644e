/* Windows of a range: finding the one that is cheapest to empty, keeping others out of it meanwhile, and walking over
 * what lives there. Everything here is linear in the nodes. Neighbour: range.c. */
#include <inttypes.h>

#include "pool/base/error.h"
#include "pool/base/units.h"
#include "pool/range_layout.h"

/* Search */

/* A window that moves up the addresses. `from` is the first node that ends behind its start, `to` the first that was
 * not yet counted; live_bytes are those of the live nodes between. */
struct sweep {
    uint64_t start;
    uint64_t live_bytes;
    uint32_t from;
    uint32_t to;
};

static void move_start(const struct spw__range *range, struct sweep *sweep, uint64_t start)
{
    sweep->start = start;
    while (sweep->from != NONE && end_of(at(range, sweep->from)) <= start) {
        const struct node *node = at(range, sweep->from);
        if (sweep->from == sweep->to)
            sweep->to = node->next; /* passed by uncounted */
        else if (!is_hole(range, sweep->from))
            sweep->live_bytes -= node->bytes;
        sweep->from = node->next;
    }
}

/* Counts what the window overlaps. False when something there must stay; *behind is where that ends. */
static bool fill(const struct spw__range *range, struct sweep *sweep, uint64_t end,
                 bool (*movable)(void *arg, uint32_t node, uint64_t bytes), void *arg, uint64_t *behind)
{
    for (; sweep->to != NONE && at(range, sweep->to)->offset < end; sweep->to = at(range, sweep->to)->next) {
        const struct node *node = at(range, sweep->to);
        if (is_hole(range, sweep->to))
            continue;
        if (node->free_next == TAG_CLAIMED || !movable(arg, sweep->to, node->bytes)) {
            *behind = end_of(node);
            sweep->from = sweep->to = node->next;
            sweep->live_bytes = 0;
            return false;
        }
        sweep->live_bytes += node->bytes;
    }
    return true;
}

/* The best window can be pushed down to where a live node ends, or to 0, without overlapping more: only those starts,
 * aligned, are tried. */
int spw__range_window(const struct spw__range *range, uint64_t bytes, uint64_t align,
                      bool (*movable)(void *arg, uint32_t node, uint64_t bytes), void *arg, uint64_t *offset)
{
    const uint64_t grain = UINT64_C(1) << range->shift;
    uint64_t best = UINT64_MAX, behind = 0;
    struct sweep sweep = {0, 0, range->first, range->first};
    if ((align & (align - 1)) != 0 || bytes == 0 || bytes > MAX_SIZE)
        return spw__fail(SPW_EINVAL, "a window of %" PRIu64 " bytes, aligned to %" PRIu64, bytes, align);
    align = align < grain ? grain : align > MAX_SIZE ? MAX_SIZE : align;
    bytes = aligned_up(bytes, grain);
    while (best != 0) {
        const uint64_t start = aligned_up(behind, align);
        if (start + bytes > range->size)
            break;
        move_start(range, &sweep, start);
        if (!fill(range, &sweep, start + bytes, movable, arg, &behind))
            continue;
        if (sweep.live_bytes < best) {
            best = sweep.live_bytes;
            *offset = start;
        }
        uint32_t live = sweep.from;
        while (live != NONE && is_hole(range, live))
            live = at(range, live)->next;
        if (live == NONE)
            break;
        behind = end_of(at(range, live));
    }
    return best == UINT64_MAX ? SPW_EFRAG : SPW_OK;
}

/* Walking */

uint32_t spw__range_first_live(const struct spw__range *range, uint64_t offset)
{
    uint32_t i = range->first;
    while (i != NONE && (end_of(at(range, i)) <= offset || at(range, i)->free_next != TAG_LIVE))
        i = at(range, i)->next;
    return i;
}

uint32_t spw__range_next_live(const struct spw__range *range, uint32_t node)
{
    uint32_t i = at(range, node)->next;
    while (i != NONE && at(range, i)->free_next != TAG_LIVE)
        i = at(range, i)->next;
    return i;
}

/* Claiming */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t first_from(const struct spw__range *range, uint64_t offset)
{
    uint32_t i = range->first;
    while (i != NONE && end_of(at(range, i)) <= offset)
        i = at(range, i)->next;
    return i;
}

/* Takes [start, end) of a hole, or of the space behind the last node, into the claim. */
static int claim_part(struct spw__range *range, uint32_t hole, uint64_t start, uint64_t end, uint32_t *node)
{
    const int rc = spw__range_carve(range, hole, start, end - start, node);
    if (rc == SPW_OK)
        at(range, *node)->free_next = TAG_CLAIMED;
    return rc;
}

int spw__range_claim(struct spw__range *range, uint64_t offset, uint64_t bytes)
{
    const uint64_t end = offset + bytes, grain = UINT64_C(1) << range->shift;
    if (bytes == 0 || bytes > range->size || offset > range->size - bytes || (offset | bytes) % grain != 0)
        return spw__fail(SPW_EINVAL, "no window of %" PRIu64 " bytes at %" PRIu64 " to claim", bytes, offset);
    if (range->claim_bytes)
        return spw__fail(SPW_EBUSY, "another window is claimed");
    int rc = spw__range_take_nodes(range, range->claim_spare, 2);
    if (rc != SPW_OK)
        return rc;
    range->claim_offset = offset;
    range->claim_bytes = bytes;
    for (uint32_t i = first_from(range, offset); rc == SPW_OK && i != NONE && at(range, i)->offset < end;
         i = at(range, i)->next) {
        const struct node *node = at(range, i);
        if (is_hole(range, i))
            rc = claim_part(range, i, larger(node->offset, offset), spw__smaller(end_of(node), end), &i);
    }
    uint32_t behind;
    if (rc == SPW_OK && range->top < end)
        rc = claim_part(range, NONE, larger(range->top, offset), end, &behind);
    if (rc != SPW_OK)
        spw__range_claim_drop(range);
    return rc;
}

bool spw__range_claim_ready(const struct spw__range *range)
{
    const uint32_t live = spw__range_first_live(range, range->claim_offset);
    return range->claim_bytes && (live == NONE || at(range, live)->offset >= range->claim_offset + range->claim_bytes);
}

static void end_claim(struct spw__range *range)
{
    range->claim_bytes = 0;
    spw__range_recycle(range, range->claim_spare[0]);
    spw__range_recycle(range, range->claim_spare[1]);
}

void spw__range_claim_drop(struct spw__range *range)
{
    const uint64_t end = range->claim_offset + range->claim_bytes;
    uint32_t i = first_from(range, range->claim_offset);
    if (!range->claim_bytes)
        return;
    end_claim(range);
    while (i != NONE && at(range, i)->offset < end) {
        if (at(range, i)->free_next == TAG_CLAIMED) {
            at(range, i)->free_next = TAG_LIVE;
            i = spw__range_give(range, i);
            if (i == NONE)
                break;
        }
        i = at(range, i)->next;
    }
}

/* Cuts a live node; the part behind is `fresh`. */
static void cut(struct spw__range *range, uint32_t index, uint64_t bytes, uint32_t fresh)
{
    struct node *node = at(range, index);
    spw__range_link(range, index, node->next, fresh, node->offset + bytes, node->bytes - bytes);
    node->bytes = bytes;
}

/* The window becomes one live node; what blocks at its borders had outside of it is freed. */
int spw__range_claim_take(struct spw__range *range, uint32_t *node)
{
    const uint64_t start = range->claim_offset, bytes = range->claim_bytes;
    if (!spw__range_claim_ready(range))
        return spw__fail(SPW_EBUSY, "the window at %" PRIu64 " is not claimed, or not empty yet", start);
    uint32_t window = first_from(range, start), before = NONE, behind = NONE;
    at(range, window)->free_next = TAG_LIVE;
    while (end_of(at(range, window)) < start + bytes) {
        const uint32_t next = at(range, window)->next;
        at(range, window)->bytes += at(range, next)->bytes;
        spw__range_unlink(range, next);
    }
    end_claim(range);
    if (at(range, window)->offset < start) {
        before = window;
        (void)spw__range_take_nodes(range, &window, 1); /* the spare ones: cannot fail */
        cut(range, before, start - at(range, before)->offset, window);
    }
    if (at(range, window)->bytes > bytes) {
        (void)spw__range_take_nodes(range, &behind, 1);
        cut(range, window, bytes, behind);
        (void)spw__range_give(range, behind);
    }
    if (before != NONE)
        (void)spw__range_give(range, before);
    *node = window;
    return SPW_OK;
}
