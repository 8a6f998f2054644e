/* Logs in CSV: RMM's, with and without its column of threads, and our own. Neighbour: alloc_log.c. */
#include <spillway/place.h>
#include <string.h>

#include "pool/replay/alloc_log_form.h"

#define COLUMNS_MAX 6u

struct field {
    const char *start;
    const char *end;
};

static bool is(const struct field *field, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(field->end - field->start) == length && memcmp(field->start, word, length) == 0;
}

static bool line_is(const struct spw__form_line *line, const char *text)
{
    return is(&(const struct field){line->start, line->end}, text);
}

/* Cuts a line at its commas; no form quotes. */
static int cut(const struct spw__form_line *line, const char *const *names, unsigned n, struct field *fields)
{
    const char *at = line->start;
    for (unsigned i = 0; i < n; i++) {
        const char *comma = memchr(at, ',', (size_t)(line->end - at));
        if (i + 1 < n && !comma)
            return spw__form_expected(line, line->end, names[i + 1]);
        if (i + 1 == n && comma)
            return spw__form_expected(line, comma, "the end of the line");
        fields[i] = (struct field){at, comma ? comma : line->end};
        if (fields[i].start == fields[i].end)
            return spw__form_expected(line, at, names[i]);
        at = comma ? comma + 1 : at;
    }
    return SPW_OK;
}

static bool digits(const char **at, const char *end)
{
    const char *const start = *at;
    while (*at < end && **at >= '0' && **at <= '9')
        ++*at;
    return *at != start;
}

/* 12:34:56.789012, 12:34:56:789012 (older), or seconds since some epoch: 1634567890.123456. */
static bool is_time(const struct field *field)
{
    const char *at = field->start;
    unsigned colons = 0;
    if (!digits(&at, field->end))
        return false;
    while (at < field->end && *at == ':' && colons < 3) {
        at++;
        colons++;
        if (!digits(&at, field->end))
            return false;
    }
    if (at < field->end && *at == '.' && colons != 3) {
        at++;
        colons = colons == 0 ? 3 : colons + 1;
        if (!digits(&at, field->end))
            return false;
    }
    return at == field->end && colons == 3;
}

static bool is_pointer(const struct field *field, uint64_t *out)
{
    if (is(field, "(nil)")) {
        *out = 0;
        return true;
    }
    return spw__form_hexadecimal(field->start, field->end, out);
}

/* RMM */

static int parse_rmm_fields(const struct spw__form_line *line, const struct field *time,
                            struct spw__form_record *record)
{
    const struct field *const action = time + 1, *const pointer = time + 2, *const size = time + 3,
                              *const stream = time + 4;
    uint64_t ignored;
    if (!is_time(time))
        return spw__form_expected(line, time->start, "a time such as 12:34:56.789012");
    if (is(action, "allocate"))
        record->kind = SPW__FORM_ALLOC;
    else if (is(action, "free") || is(action, "deallocate"))
        record->kind = SPW__FORM_FREE;
    else if (is(action, "allocate failure"))
        record->kind = SPW__FORM_FAILURE;
    else
        return spw__form_expected(line, action->start, "allocate, free or allocate failure");
    if (!is_pointer(pointer, &record->pointer))
        return spw__form_expected(line, pointer->start, "a pointer such as 0x7f0000000000, or (nil)");
    if (!spw__form_number(size->start, size->end, &record->bytes))
        return spw__form_expected(line, size->start, "a size in bytes");
    if (!is_pointer(stream, &ignored))
        return spw__form_expected(line, stream->start, "a stream such as 0x0, or (nil)");
    return SPW_OK;
}

static const char *const rmm_names[] = {"a thread number", "a time", "an action", "a pointer", "a size", "a stream"};

static int parse_rmm(const struct spw__form_line *line, struct spw__form_record *record)
{
    struct field fields[COLUMNS_MAX];
    uint64_t ignored;
    const int rc = cut(line, rmm_names, 6, fields);
    if (rc != SPW_OK)
        return rc;
    if (!spw__form_number(fields[0].start, fields[0].end, &ignored))
        return spw__form_expected(line, fields[0].start, rmm_names[0]);
    return parse_rmm_fields(line, &fields[1], record);
}

static int parse_rmm_old(const struct spw__form_line *line, struct spw__form_record *record)
{
    struct field fields[COLUMNS_MAX];
    const int rc = cut(line, rmm_names + 1, 5, fields);
    return rc != SPW_OK ? rc : parse_rmm_fields(line, &fields[0], record);
}

static bool begins_rmm(const struct spw__form_line *line)
{
    return line_is(line, "Thread,Time,Action,Pointer,Size,Stream");
}

static bool begins_rmm_old(const struct spw__form_line *line)
{
    return line_is(line, "Time,Action,Pointer,Size,Stream");
}

/* Our own */

/* A tier's name, and :INDEX where the index is not 0. */
static bool is_place(const struct field *field)
{
    const char *colon = memchr(field->start, ':', (size_t)(field->end - field->start));
    const struct field name = {field->start, colon ? colon : field->end};
    uint64_t index = 1;
    if (colon && (!spw__form_number(colon + 1, field->end, &index) || index > 255 || colon[1] == '0'))
        return false;
    for (int tier = SPW_TIER_DEVICE; tier <= SPW_TIER_DISK; tier++)
        if (is(&name, spw_tier_name((spw_tier)tier)))
            return true;
    return false;
}

static int parse_own(const struct spw__form_line *line, struct spw__form_record *record)
{
    static const char *const names[] = {"a time in ns", "a thread number", "an action",
                                        "a place",      "a block number",  "a size in bytes"};
    enum { TIME, THREAD, ACTION, PLACE, BLOCK, BYTES };
    struct field fields[COLUMNS_MAX];
    uint64_t numbers[COLUMNS_MAX];
    const int rc = cut(line, names, 6, fields);
    if (rc != SPW_OK)
        return rc;
    for (unsigned i = TIME; i <= BYTES; i++)
        if (i != ACTION && i != PLACE && !spw__form_number(fields[i].start, fields[i].end, &numbers[i]))
            return spw__form_expected(line, fields[i].start, names[i]);
    if (is(&fields[ACTION], "alloc"))
        record->kind = SPW__FORM_ALLOC;
    else if (is(&fields[ACTION], "free"))
        record->kind = SPW__FORM_FREE;
    else if (is(&fields[ACTION], "fail"))
        record->kind = SPW__FORM_FAILURE;
    else
        return spw__form_expected(line, fields[ACTION].start, "alloc, free or fail");
    if (!is_place(&fields[PLACE]))
        return spw__form_expected(line, fields[PLACE].start, "a place: device, pinned_host, host, disk (:1, :2, ...)");
    if (numbers[BLOCK] == 0 && record->kind != SPW__FORM_FAILURE)
        return spw__form_expected(line, fields[BLOCK].start, "a block number above 0");
    record->pointer = numbers[BLOCK];
    record->bytes = numbers[BYTES];
    record->place = fields[PLACE].start;
    record->place_length = (size_t)(fields[PLACE].end - fields[PLACE].start);
    return SPW_OK;
}

static bool begins_own(const struct spw__form_line *line)
{
    return line_is(line, "time_ns,thread,action,place,block,bytes");
}

const struct spw__form spw__form_rmm = {"RMM's CSV", begins_rmm, true, parse_rmm};
const struct spw__form spw__form_rmm_old = {"RMM's CSV without threads", begins_rmm_old, true, parse_rmm_old};
const struct spw__form spw__form_own = {"Spillway's CSV", begins_own, true, parse_own};
