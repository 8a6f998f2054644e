/* Range allocator: nodes in address order, and what happens to them.
 *
 *     recycled --take_nodes--> (carve, split) --> live <--give, carve--> hole
 *        ^                                         |  ^
 *        |                      free in the window |  | claim_take, claim_drop
 *        +-- unlink (coalescing) --+               v  |
 *                                                claimed
 *
 * Neighbours: range_layout.h (nodes), range_bins.h and range_bins.c (the default choice among holes), range_tree.c (the
 * address-ordered one), range_window.c (windows), range_check.c (the expensive check), pool/base/meta (nodes' memory).
 * Users: memory pools, spill files.
 */
#include "pool/range.h"

#include <inttypes.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/range_bins.h"
#include "pool/range_layout.h"

#define HOLE_BITS_BYTES (SEGMENT_NODES / 8)
#define SINGLE_SEGMENTS 32u
#define SLAB_SEGMENTS 128u /* of 16 KiB: a huge page */
/* Everything inlined into allocation and free: 100 ns a pair become 92. */
#define FLATTEN __attribute__((flatten))

/* Nodes: segments, recycling, address order */

struct node *spw__range_live(const struct spw__range *range, uint32_t index)
{
    if (index / SEGMENT_NODES >= range->n_segments)
        return NULL;
    struct node *node = at(range, index);
    return node->free_next == TAG_LIVE ? node : NULL;
}

static int make_segment_room(struct spw__range *range)
{
    const uint32_t room = range->segments_room ? range->segments_room * 2 : 8;
    struct node **table = spw__meta_alloc(range->meta, room * sizeof *table);
    uint64_t *bits = table ? spw__meta_alloc(range->meta, room * HOLE_BITS_BYTES) : NULL;
    if (!bits) {
        spw__meta_free(range->meta, table, room * sizeof *table);
        return SPW_ENOMETA;
    }
    if (range->n_segments) {
        memcpy(table, range->segments, range->n_segments * sizeof *table);
        memcpy(bits, range->hole_bits, range->n_segments * HOLE_BITS_BYTES);
    }
    spw__meta_free(range->meta, range->segments, range->segments_room * sizeof *table);
    spw__meta_free(range->meta, range->hole_bits, range->segments_room * HOLE_BITS_BYTES);
    range->segments = table;
    range->hole_bits = bits;
    range->segments_room = room;
    return SPW_OK;
}

/* No detail of its own: whoever asked may do without, or describes what it was for. From the first SINGLE_SEGMENTS on
 * they come by SLAB_SEGMENTS, in one piece on huge pages: nodes are looked up at random. */
static int make_segment(struct spw__range *range)
{
    struct node *nodes = NULL;
    const uint32_t n = range->n_segments < SINGLE_SEGMENTS ? 1 : SLAB_SEGMENTS;
    if (range->n_segments + n > SEGMENTS_MAX)
        return SPW_ENOMETA;
    while (range->n_segments + n > range->segments_room)
        if (make_segment_room(range) != SPW_OK)
            return SPW_ENOMETA;
    nodes = spw__meta_alloc(range->meta, n * SEGMENT_NODES * sizeof(struct node));
    if (!nodes)
        return SPW_ENOMETA;
    for (uint32_t i = 0; i < n; i++)
        range->segments[range->n_segments++] = nodes + i * SEGMENT_NODES;
    return SPW_OK;
}

void spw__range_recycle(struct spw__range *range, uint32_t index)
{
    struct node *node = at(range, index);
    node->free_next = TAG_RECYCLED;
    node->next = range->recycled;
    range->recycled = index;
}

static inline int take_node(struct spw__range *range, uint32_t *out)
{
    *out = range->recycled;
    if (*out != NONE) {
        range->recycled = at(range, *out)->next;
        return SPW_OK;
    }
    const int rc = range->fresh == range->n_segments * SEGMENT_NODES ? make_segment(range) : SPW_OK;
    if (rc == SPW_OK)
        *out = range->fresh++;
    return rc;
}

int spw__range_take_nodes(struct spw__range *range, uint32_t *nodes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const int rc = take_node(range, &nodes[i]);
        if (rc != SPW_OK) {
            while (i-- > 0)
                spw__range_recycle(range, nodes[i]);
            return rc;
        }
    }
    return SPW_OK;
}

/* Puts a new live node between two neighbours in address order (NONE: an end). Writes to them, but reads nothing from
 * them: they need not be near. */
void spw__range_link(struct spw__range *range, uint32_t prev, uint32_t next, uint32_t fresh, uint64_t offset,
                     uint64_t bytes)
{
    *at(range, fresh) = (struct node){.offset = offset, .bytes = bytes, .prev = prev, .next = next,
                                      .free_next = TAG_LIVE};
    range->n_nodes++;
    if (prev == NONE)
        range->first = fresh;
    else
        at(range, prev)->next = fresh;
    if (next == NONE)
        range->last = fresh;
    else
        at(range, next)->prev = fresh;
}

void spw__range_unlink(struct spw__range *range, uint32_t index)
{
    const struct node *node = at(range, index);
    if (node->prev == NONE)
        range->first = node->next;
    else
        at(range, node->prev)->next = node->next;
    if (node->next == NONE)
        range->last = node->prev;
    else
        at(range, node->next)->prev = node->prev;
    range->n_nodes--;
    spw__range_recycle(range, index);
}

/* Holes */

static inline void note_larger(struct spw__range *range, uint32_t index, uint64_t bytes)
{
    if (bytes > range->largest_bytes) {
        range->largest_bytes = bytes;
        range->largest = index;
    }
}

static inline void forget_largest(struct spw__range *range, uint32_t index)
{
    if (index == range->largest) {
        range->largest = NONE;
        range->largest_bytes = UINT64_MAX;
    }
}

static inline void insert_hole(struct spw__range *range, uint32_t index)
{
    range->hole_bits[index / 64] |= UINT64_C(1) << index % 64;
    if (range->n_holes++ == 0)
        range->largest_bytes = 0;
    if (range->address_ordered) {
        spw__tree_insert(range, index);
        return;
    }
    bins_insert(range, index);
    note_larger(range, index, at(range, index)->bytes);
}

/* Takes a hole out of its bin or the tree; its node is live then. */
static inline void remove_hole(struct spw__range *range, uint32_t index)
{
    range->hole_bits[index / 64] &= ~(UINT64_C(1) << index % 64);
    range->n_holes--;
    if (range->address_ordered)
        spw__tree_remove(range, index);
    else
        bins_remove(range, index);
    forget_largest(range, index);
    at(range, index)->free_next = TAG_LIVE;
}

/* A hole's new extent. Most holes change their bin, but not large ones that lose or gain a little. */
static inline void reshape_hole(struct spw__range *range, uint32_t index, uint64_t offset, uint64_t bytes)
{
    struct node *hole = at(range, index);
    if (range->address_ordered) {
        spw__tree_remove(range, index);
        hole->offset = offset;
        hole->bytes = bytes;
        spw__tree_insert(range, index);
        return;
    }
    forget_largest(range, index);
    if (bin_of(range, hole->bytes) == bin_of(range, bytes)) {
        bins_reshape(range, index, offset, bytes);
    } else {
        bins_remove(range, index);
        hole->offset = offset;
        hole->bytes = bytes;
        bins_insert(range, index);
    }
    note_larger(range, index, bytes);
}

static uint64_t largest_hole(const struct spw__range *range)
{
    uint32_t largest = range->root;
    if (range->address_ordered)
        return largest == NONE ? 0 : at(range, largest)->bytes;
    return range->n_holes == 0                   ? 0
           : range->largest_bytes != UINT64_MAX ? range->largest_bytes
                                                : spw__bins_largest(range, &largest);
}

int spw__range_carve(struct spw__range *range, uint32_t index, uint64_t start, uint64_t bytes, uint32_t *out)
{
    struct node *hole = index == NONE ? NULL : at(range, index);
    const uint64_t before = start - (hole ? hole->offset : range->top);
    const uint64_t behind = hole ? hole->bytes - before - bytes : 0;
    const unsigned count = hole ? (before ? 1u : 0u) + (behind ? 1u : 0u) : before ? 2u : 1u;
    uint32_t fresh[2] = {NONE, NONE};
    const int rc = count == 1 ? take_node(range, fresh) : spw__range_take_nodes(range, fresh, count);
    if (rc != SPW_OK)
        return rc;
    range->total_free -= bytes;
    *out = fresh[0];
    if (!hole) {
        if (before) {
            spw__range_link(range, range->last, NONE, fresh[1], range->top, before);
            insert_hole(range, fresh[1]);
        }
        spw__range_link(range, range->last, NONE, fresh[0], start, bytes);
        range->top = start + bytes;
        if (range->top > range->high)
            range->high = range->top;
    } else if (before) {
        reshape_hole(range, index, hole->offset, before);
        spw__range_link(range, index, hole->next, fresh[0], start, bytes);
        if (behind) {
            spw__range_link(range, fresh[0], at(range, fresh[0])->next, fresh[1], start + bytes, behind);
            insert_hole(range, fresh[1]);
        }
    } else if (behind) {
        spw__range_link(range, hole->prev, index, fresh[0], start, bytes);
        reshape_hole(range, index, start + bytes, behind);
    } else {
        remove_hole(range, index);
        *out = index;
    }
    return SPW_OK;
}

/* A live node at the end, and the hole before it, become part of what lies behind the last node. */
static void give_to_end(struct spw__range *range, uint32_t index)
{
    const uint32_t prev = at(range, index)->prev;
    if (prev != NONE && is_hole(range, prev)) {
        remove_hole(range, prev);
        spw__range_unlink(range, index);
        index = prev;
    }
    range->top = at(range, index)->offset;
    spw__range_unlink(range, index);
}

uint32_t spw__range_give(struct spw__range *range, uint32_t index)
{
    const struct node *node = at(range, index);
    const uint32_t prev = node->prev, next = node->next;
    range->total_free += node->bytes;
    if (next == NONE) {
        give_to_end(range, index);
        return NONE;
    }
    const bool next_is_hole = is_hole(range, next);
    if (prev != NONE && is_hole(range, prev)) {
        uint64_t bytes = at(range, prev)->bytes + node->bytes;
        if (next_is_hole) {
            bytes += at(range, next)->bytes;
            remove_hole(range, next);
            spw__range_unlink(range, next);
        }
        spw__range_unlink(range, index);
        reshape_hole(range, prev, at(range, prev)->offset, bytes);
        return prev;
    }
    if (!next_is_hole) {
        insert_hole(range, index);
        return index;
    }
    const uint64_t bytes = node->bytes + at(range, next)->bytes;
    spw__range_unlink(range, index);
    reshape_hole(range, next, node->offset, bytes);
    return next;
}

/* Life cycle */

int spw__range_create(uint64_t size, uint32_t granularity, bool address_ordered, struct spw__meta *meta,
                      struct spw__range **out)
{
    *out = NULL;
    if (granularity == 0 || (granularity & (granularity - 1)) != 0 || size > MAX_SIZE)
        return spw__fail(SPW_EINVAL, "a range of %" PRIu64 " bytes with a granularity of %" PRIu32, size, granularity);
    struct spw__range *range = spw__meta_alloc(meta, sizeof *range);
    if (!range)
        return spw__fail(SPW_ENOMETA, "no metadata memory for a range; raise meta=");
    range->meta = meta;
    range->recycled = range->first = range->last = range->largest = range->root = NONE;
    range->shift = (unsigned)__builtin_ctz(granularity);
    range->address_ordered = address_ordered;
    const int rc = spw__range_grow(range, size);
    if (rc != SPW_OK) {
        spw__range_destroy(range);
        return rc;
    }
    *out = range;
    return SPW_OK;
}

void spw__range_destroy(struct spw__range *range)
{
    if (!range)
        return;
    for (uint32_t i = 0, n; i < range->n_segments; i += n) {
        n = i < SINGLE_SEGMENTS ? 1 : SLAB_SEGMENTS;
        spw__meta_free(range->meta, range->segments[i], n * SEGMENT_NODES * sizeof(struct node));
    }
    spw__meta_free(range->meta, range->segments, range->segments_room * sizeof(struct node *));
    spw__meta_free(range->meta, range->hole_bits, range->segments_room * HOLE_BITS_BYTES);
    spw__meta_free(range->meta, range->bins, range->n_bins * sizeof *range->bins);
    spw__meta_free(range->meta, range, sizeof *range);
}

/* Bins for holes of up to size bytes. */
static int make_bins(struct spw__range *range, uint64_t size)
{
    const uint32_t count = (bin_of(range, size) / SUBS + 1) * SUBS;
    if (range->address_ordered || count <= range->n_bins)
        return SPW_OK;
    struct bin *bins = spw__meta_alloc(range->meta, count * sizeof *bins);
    if (!bins)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the bins of a range; raise meta=");
    if (range->n_bins)
        memcpy(bins, range->bins, range->n_bins * sizeof *bins);
    for (uint32_t i = range->n_bins; i < count; i++)
        bins[i].head = NONE;
    spw__meta_free(range->meta, range->bins, range->n_bins * sizeof *bins);
    range->bins = bins;
    range->n_bins = count;
    return SPW_OK;
}

int spw__range_grow(struct spw__range *range, uint64_t new_size)
{
    const uint64_t size = new_size >> range->shift << range->shift;
    if (size < range->size || size > MAX_SIZE)
        return spw__fail(SPW_EINVAL, "a range of %" PRIu64 " bytes cannot grow to %" PRIu64, range->size, new_size);
    const int rc = make_bins(range, size);
    if (rc != SPW_OK)
        return rc;
    range->total_free += size - range->size;
    range->size = size;
    range->frees++;
    return SPW_OK;
}

void spw__range_shrink(struct spw__range *range, uint64_t new_size)
{
    range->total_free -= range->size - new_size;
    range->size = new_size;
    range->high = range->high < new_size ? range->high : new_size;
}

/* Operations */

/* A last look into the bins whose holes may fit, at every hole, before the answer is "fragmented". */
static uint32_t find_hidden(struct spw__range *range, uint64_t bytes, uint64_t align)
{
    if (range->largest_bytes == UINT64_MAX)
        range->largest_bytes = spw__bins_largest(range, &range->largest);
    return bytes > range->largest_bytes ? NONE : spw__bins_find_hidden(range, bytes, align, EVERY);
}

/* Chooses a hole, or NONE with *behind for the space behind the last node, or NONE when nothing fits. Old space goes
 * before new. */
static uint32_t find(struct spw__range *range, uint64_t bytes, uint64_t align, bool *behind)
{
    uint32_t hole;
    *behind = fits_behind(range, bytes, align);
    if (range->address_ordered)
        return spw__tree_find(range, bytes, align);
    hole = bins_find(range, bytes, align);
    if (hole != NONE || range->n_holes <= FEW_HOLES)
        return hole;
    if (aligned_up(range->top, align) + bytes > range->high)
        hole = spw__bins_find_hidden(range, bytes, align, LAST_TRIES);
    return hole != NONE || *behind ? hole : find_hidden(range, bytes, align);
}

/* "Not now" (ENOMEM, EFRAG) is an everyday answer on the way from pool to pool: whoever asked writes the detail. */
FLATTEN int spw__range_alloc(struct spw__range *range, uint64_t bytes, uint64_t align, uint32_t *node, uint64_t *offset)
{
    const uint64_t grain = UINT64_C(1) << range->shift;
    bool behind;
    if ((align & (align - 1)) != 0)
        return spw__fail(SPW_EINVAL, "an alignment of %" PRIu64 " is not a power of two", align);
    if (align < grain)
        align = grain;
    if (align > MAX_SIZE)
        align = MAX_SIZE; /* either way only offset 0 is a multiple */
    if (bytes == 0)
        bytes = grain;
    if (bytes > range->total_free)
        return SPW_ENOMEM;
    bytes = aligned_up(bytes, grain);
    const uint32_t hole = find(range, bytes, align, &behind);
    if (hole == NONE && !behind)
        return SPW_EFRAG;
    const uint64_t start = aligned_up(hole == NONE ? range->top : at(range, hole)->offset, align);
    const int rc = spw__range_carve(range, hole, start, bytes, node);
    if (rc == SPW_OK)
        *offset = start;
    return rc;
}

FLATTEN int spw__range_free(struct spw__range *range, uint32_t index)
{
    struct node *node = spw__range_live(range, index);
    if (!node)
        return spw__fail(SPW_EBADHANDLE, "range node %" PRIu32 " is not a live allocation", index);
    if (range->claim_bytes && node->offset < range->claim_offset + range->claim_bytes &&
        end_of(node) > range->claim_offset)
        node->free_next = TAG_CLAIMED;
    else
        (void)spw__range_give(range, index);
    range->frees++;
    return SPW_OK;
}

int spw__range_split(struct spw__range *range, uint32_t index, uint64_t bytes, uint32_t *tail)
{
    struct node *node = spw__range_live(range, index);
    if (!node)
        return spw__fail(SPW_EBADHANDLE, "range node %" PRIu32 " is not a live allocation", index);
    if (bytes == 0 || bytes >= node->bytes || bytes % (UINT64_C(1) << range->shift) != 0)
        return spw__fail(SPW_EINVAL, "%" PRIu64 " bytes are no place to split an allocation of %" PRIu64, bytes,
                         node->bytes);
    const int rc = spw__range_take_nodes(range, tail, 1);
    if (rc != SPW_OK)
        return rc;
    spw__range_link(range, index, node->next, *tail, node->offset + bytes, node->bytes - bytes);
    node->bytes = bytes;
    return SPW_OK;
}

/* Queries */

uint64_t spw__range_offset(const struct spw__range *range, uint32_t node)
{
    return at(range, node)->offset;
}

uint64_t spw__range_bytes(const struct spw__range *range, uint32_t node)
{
    return at(range, node)->bytes;
}

uint64_t spw__range_size(const struct spw__range *range)
{
    return range->size;
}

uint64_t spw__range_total_free(const struct spw__range *range)
{
    return range->total_free;
}

uint64_t spw__range_largest_free(const struct spw__range *range)
{
    const uint64_t hole = largest_hole(range), behind = range->size - range->top;
    return hole > behind ? hole : behind;
}

uint64_t spw__range_frees(const struct spw__range *range)
{
    return range->frees;
}

uint64_t spw__range_tail(const struct spw__range *range)
{
    return range->top;
}
