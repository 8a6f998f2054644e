/* Joining one pair of partitions, however large they are.
 *
 *     both sides of a pair
 *       | one side is empty ................... give both back, unread
 *       | a hash table of one side fits ....... build it, stream the other side past it
 *       | two blocks hold it, one key dominates,
 *       | or the depth is used up ............. blocks: build a part, stream the other side past it, repeat
 *       ` else ................................ scatter both sides by another hash, join each pair of parts
 *
 * Blocks always end, whatever the keys are; scattering is there to make them rare.
 *
 * Threads: one joiner belongs to one thread.
 */
#ifndef ENGINE_PAIR_H
#define ENGINE_PAIR_H

#include "crew.h"
#include "partition.h"
#include "sizing.h"

/* What a join adds up. */
struct eng_totals_of_join {
    eng_u128 rows, products, addend[ENG_SIDES];
};

/* Lasts until its worker is finished, since launched functions may run on it until then. */
struct eng_joiner {
    struct eng_worker *worker;
    const struct eng_plan *plan;
    const struct eng_format *formats; /* of the sides */
    struct eng_crew *crew;
    struct eng_scatter *scatter;      /* for pairs that are too large */
    struct eng_totals_of_join totals;
    struct eng_hashtable table;       /* in the worker's memory; each function finds out where that is */
    struct eng_visit {
        struct eng_joiner *joiner;
        const struct eng_format *format;
        spw_buffer *buffer;           /* of the chunk that is mapped; NULL: none */
        spw_view view;
        int last;                     /* the buffer is given back with the view */
        uint32_t first, rows;         /* of the chunk: what is worked on */
        struct eng_sums sums;
    } visits[ENG_LANES];              /* what each lane works on */
};

/* Joins sides[ENG_PARTSUPP] with sides[ENG_LINEITEM] and empties both. On failure they keep what was not consumed. */
int eng_pair_join(struct eng_joiner *joiner, struct eng_bin *const sides[ENG_SIDES], struct eng_error *error);

#endif
