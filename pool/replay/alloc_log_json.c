/* Umpire's replay logs: a JSON object a line. Neighbour: alloc_log.c.
 *
 * An allocation is logged twice: as a request, and again with its result, which is what counts; a request without a
 * result failed. Lines of other events are not looked into, since Umpire does not write all of them as valid JSON.
 */
#include <string.h>

#include "pool/replay/alloc_log_form.h"

#define DEPTH_MAX 16

struct cursor {
    const struct spw__form_line *line;
    const char *at;
};

/* A value: a string's content without its quotes, or a number's digits. */
struct value {
    const char *start;
    const char *end;
};

/* What the events of interest say. */
struct facts {
    struct value event;
    struct value pointer; /* payload's ptr or memory_ptr */
    struct value size;
    struct value result; /* result's memory_ptr or ptr */
    bool has_result;
};

static bool is(const struct value *value, const char *word)
{
    const size_t length = strlen(word);
    return value->start && (size_t)(value->end - value->start) == length && memcmp(value->start, word, length) == 0;
}

static int expected(const struct cursor *c, const char *what)
{
    return spw__form_expected(c->line, c->at, what);
}

static void skip_spaces(struct cursor *c)
{
    while (c->at < c->line->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

static bool take(struct cursor *c, char wanted)
{
    skip_spaces(c);
    if (c->at == c->line->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static int take_string(struct cursor *c, struct value *out)
{
    if (!take(c, '"'))
        return expected(c, "a string");
    out->start = c->at;
    for (; c->at < c->line->end && *c->at != '"'; c->at++)
        if (*c->at == '\\' && c->at + 1 < c->line->end)
            c->at++;
    out->end = c->at;
    return take(c, '"') ? SPW_OK : expected(c, "'\"'");
}

static int take_object(struct cursor *c, struct facts *facts, const struct value *parent, unsigned depth);

/* A number, true, false or null: what a comma or a bracket ends. */
static int take_word(struct cursor *c, struct value *out)
{
    out->start = c->at;
    while (c->at < c->line->end && !strchr(",]} \t\":[{", *c->at))
        c->at++;
    out->end = c->at;
    return out->start == out->end ? expected(c, "a value") : SPW_OK;
}

static int take_value(struct cursor *c, struct facts *facts, const struct value *key, struct value *out, unsigned depth)
{
    skip_spaces(c);
    *out = (struct value){NULL, NULL};
    if (c->at == c->line->end)
        return expected(c, "a value");
    if (*c->at == '"')
        return take_string(c, out);
    if (*c->at == '{')
        return take_object(c, facts, key, depth);
    if (*c->at != '[')
        return take_word(c, out);
    c->at++;
    if (depth == DEPTH_MAX)
        return expected(c, "fewer levels");
    if (take(c, ']'))
        return SPW_OK;
    do {
        struct value ignored;
        const int rc = take_value(c, facts, NULL, &ignored, depth + 1);
        if (rc != SPW_OK)
            return rc;
    } while (take(c, ','));
    return take(c, ']') ? SPW_OK : expected(c, "',' or ']'");
}

static void note(struct facts *facts, const struct value *parent, const struct value *key, const struct value *value)
{
    if (!parent)
        return;
    if (is(parent, "payload")) {
        if (is(key, "memory_ptr") || is(key, "ptr"))
            facts->pointer = *value;
        else if (is(key, "size"))
            facts->size = *value;
    } else if (is(parent, "result") && (is(key, "memory_ptr") || is(key, "ptr"))) {
        facts->result = *value;
    }
}

static int take_object(struct cursor *c, struct facts *facts, const struct value *parent, unsigned depth)
{
    if (!take(c, '{'))
        return expected(c, "'{'");
    if (depth == DEPTH_MAX)
        return expected(c, "fewer levels");
    if (take(c, '}'))
        return SPW_OK;
    do {
        struct value key, value;
        int rc = take_string(c, &key);
        if (rc == SPW_OK && !take(c, ':'))
            rc = expected(c, "':'");
        if (rc == SPW_OK)
            rc = take_value(c, facts, &key, &value, depth + 1);
        if (rc != SPW_OK)
            return rc;
        if (!parent && is(&key, "result"))
            facts->has_result = true;
        if (depth < 2)
            note(facts, parent, &key, &value);
    } while (take(c, ','));
    return take(c, '}') ? SPW_OK : expected(c, "',' or '}'");
}

/* The name of the event by its key alone, for lines that may not be JSON; empty when there is none. */
static struct value event_of(const struct spw__form_line *line)
{
    static const char key[] = "\"event\"";
    struct value name = {line->start, line->start};
    const char *at = memmem(line->start, (size_t)(line->end - line->start), key, sizeof key - 1);
    if (!at)
        return name;
    for (at += sizeof key - 1; at < line->end && (*at == ' ' || *at == ':'); at++) {
    }
    if (at == line->end || *at != '"')
        return name;
    const char *const end = memchr(at + 1, '"', (size_t)(line->end - at - 1));
    return end ? (struct value){at + 1, end} : name;
}

static int get_pointer(const struct spw__form_line *line, const struct value *value, const char *what, uint64_t *out)
{
    if (!value->start)
        return spw__form_expected(line, line->end, what);
    if (is(value, "(nil)") || is(value, "nullptr")) {
        *out = 0;
        return SPW_OK;
    }
    return spw__form_hexadecimal(value->start, value->end, out) ? SPW_OK : spw__form_expected(line, value->start, what);
}

static int get_size(const struct spw__form_line *line, const struct facts *facts, uint64_t *out)
{
    if (!facts->size.start)
        return spw__form_expected(line, line->end, "a payload with a size");
    return spw__form_number(facts->size.start, facts->size.end, out)
               ? SPW_OK
               : spw__form_expected(line, facts->size.start, "a size in bytes");
}

static int fill(const struct spw__form_line *line, const struct facts *facts, struct spw__form_record *record)
{
    int rc = SPW_OK;
    if (is(&facts->event, "deallocate")) {
        record->kind = facts->has_result ? SPW__FORM_FREE_ECHO : SPW__FORM_FREE;
        return get_pointer(line, &facts->pointer, "a payload with a memory_ptr", &record->pointer);
    }
    if (!is(&facts->event, "move"))
        rc = get_size(line, facts, &record->bytes);
    if (rc != SPW_OK || !facts->has_result)
        return rc;
    rc = get_pointer(line, &facts->result, "a result with a memory_ptr", &record->pointer);
    if (rc != SPW_OK)
        return rc;
    if (is(&facts->event, "allocate")) {
        record->kind = SPW__FORM_ALLOC;
        return SPW_OK;
    }
    rc = get_pointer(line, &facts->pointer, "a payload with a ptr", &record->old_pointer);
    if (is(&facts->event, "move")) {
        /* Where it went was logged as an allocation; that the old place was left is said here only. */
        record->kind = record->pointer == record->old_pointer ? SPW__FORM_NOTHING : SPW__FORM_FREE_ECHO;
        record->pointer = record->old_pointer;
    } else {
        record->kind = SPW__FORM_REALLOC;
    }
    return rc;
}

static int parse(const struct spw__form_line *line, struct spw__form_record *record)
{
    struct cursor c = {line, line->start};
    const struct value event = event_of(line);
    struct facts facts = {.event = event};
    if (*line->start != '{')
        return spw__form_expected(line, line->start, "a JSON object");
    if (line->end[-1] != '}')
        return spw__form_expected(line, line->end, "'}'");
    if (event.start == event.end)
        return spw__form_expected(line, line->start, "an object with an \"event\"");
    const bool moves = is(&event, "move") && memmem(line->start, (size_t)(line->end - line->start), "\"result\"", 8);
    if (!moves && !is(&event, "allocate") && !is(&event, "deallocate") && !is(&event, "reallocate") &&
        !is(&event, "reallocate_ex"))
        return SPW_OK;
    int rc = take_object(&c, &facts, NULL, 0);
    skip_spaces(&c);
    if (rc == SPW_OK && c.at != line->end)
        rc = expected(&c, "the end of the line");
    return rc == SPW_OK ? fill(line, &facts, record) : rc;
}

static bool begins(const struct spw__form_line *line)
{
    return *line->start == '{';
}

const struct spw__form spw__form_umpire = {"Umpire's JSON lines", begins, false, parse};
