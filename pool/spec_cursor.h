/* A place in a configuration string, and what every part of its grammar does there: take characters and numbers, and
 * say what was expected instead. For spec.c and spec_model.c only.
 *
 * Threads: any; a cursor is its caller's.
 */
#ifndef SPW_POOL_SPEC_CURSOR_H
#define SPW_POOL_SPEC_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include <spillway/export.h>

struct spw__spec_cursor {
    const char *start;    /* of the whole text: offsets count from here */
    const char *p;        /* the next byte */
    const char *end;      /* of the section or of the text; not readable */
    const char *variable; /* environment variable that the text comes from, or NULL */
};

int spw__spec_fail_at(const struct spw__spec_cursor *c, const char *where, const char *format, ...) SPW_PRINTF(3, 4);

/* "expected <what>, found <the word that begins at where>". */
int spw__spec_expected(const struct spw__spec_cursor *c, const char *where, const char *what);

bool spw__spec_take_char(struct spw__spec_cursor *c, char wanted);

/* Decimal digits and, with suffixes, at most one of K, M, G, T. False, with the cursor where it was, when there is no
 * digit. What does not fit in 64 bits gives UINT64_MAX, which every caller refuses. */
bool spw__spec_take_number(struct spw__spec_cursor *c, bool suffixes, uint64_t *out);

/* A number ends at c->end or at one of the bytes in `then`. Asked before its bounds are: a wrong byte is a better
 * answer than a wrong size. */
int spw__spec_end_number(const struct spw__spec_cursor *c, bool suffixes, const char *then);

#endif
