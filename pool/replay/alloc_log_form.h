/* The forms of an allocation log, one line at a time: what alloc_log.c asks of alloc_log_csv.c and alloc_log_json.c.
 * For these files only. */
#ifndef SPW_POOL_REPLAY_ALLOC_LOG_FORM_H
#define SPW_POOL_REPLAY_ALLOC_LOG_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>

/* A line without its end. Not terminated. */
struct spw__form_line {
    const char *start;
    const char *end;
    size_t number; /* counted from 1 */
};

struct spw__form_record {
    enum {
        SPW__FORM_NOTHING,
        SPW__FORM_ALLOC,
        SPW__FORM_FREE,
        SPW__FORM_FREE_ECHO, /* repeats a free that may have been logged already */
        SPW__FORM_REALLOC,
        SPW__FORM_FAILURE
    } kind;
    uint64_t pointer;     /* 0: null */
    uint64_t old_pointer; /* of REALLOC */
    uint64_t bytes;
    const char *place; /* of our own form, in the line; NULL in the others */
    size_t place_length;
};

struct spw__form {
    const char *name;
    bool (*is_first)(const struct spw__form_line *line); /* whether a log of this form may begin with the line */
    bool has_header;                                     /* the first line is not a record */
    int (*parse)(const struct spw__form_line *line, struct spw__form_record *record);
};

extern const struct spw__form spw__form_rmm;
extern const struct spw__form spw__form_rmm_old;
extern const struct spw__form spw__form_own;
extern const struct spw__form spw__form_umpire;

/* SPW_EINVAL: "line N: expected <what>, found <what begins at where>". */
int spw__form_expected(const struct spw__form_line *line, const char *where, const char *what);

/* All of [s, end) as a decimal number, or as a hexadecimal one behind 0x. False when it is none, or above 2^64 - 1. */
bool spw__form_number(const char *s, const char *end, uint64_t *out);
bool spw__form_hexadecimal(const char *s, const char *end, uint64_t *out); /* with or without 0x */

#endif
