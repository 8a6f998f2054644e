/* Reading an allocation log: lines in, numbered blocks out. Neighbours: alloc_log_csv.c, alloc_log_json.c (forms). */
#include "pool/replay/alloc_log.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/replay/alloc_log_form.h"

#define NO_BLOCK   UINT32_MAX
#define BLOCKS_MAX (UINT32_MAX / 2)

static const struct spw__form *const forms[] = {&spw__form_rmm, &spw__form_rmm_old, &spw__form_own, &spw__form_umpire};

/* What is at a pointer. Zero-sized blocks may share the pointer of a real one, and are counted beside it. */
struct slot {
    uint64_t pointer; /* 0: the slot is empty */
    uint64_t zeros;
    uint32_t block; /* or NO_BLOCK */
};

struct reader {
    struct spw__alloc_log log;
    const struct spw__form *form;
    const char *wanted; /* the place asked for, or NULL */
    uint64_t live_bytes;
    struct slot *slots; /* open addressing; n_slots is a power of two */
    size_t n_slots;
    size_t n_used;
    size_t ops_room;
    uint32_t sizes_room;
};

/* Errors and numbers */

int spw__form_expected(const struct spw__form_line *line, const char *where, const char *what)
{
    char word[32];
    size_t n = 0;
    for (; where + n < line->end && n < sizeof word - 1 && (n == 0 || !strchr(", \"", where[n])); n++)
        word[n] = isprint((unsigned char)where[n]) ? where[n] : '?';
    word[n] = '\0';
    if (n == 0)
        return spw__fail(SPW_EINVAL, "line %zu: expected %s, found the end of the line", line->number, what);
    return spw__fail(SPW_EINVAL, "line %zu: expected %s, found \"%s\"", line->number, what, word);
}

static bool to_number(const char *s, const char *end, uint64_t base, uint64_t *out)
{
    uint64_t value = 0;
    if (s == end)
        return false;
    for (; s < end; s++) {
        const int c = tolower((unsigned char)*s);
        const uint64_t digit = (uint64_t)(c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99);
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool spw__form_number(const char *s, const char *end, uint64_t *out)
{
    return to_number(s, end, 10, out);
}

bool spw__form_hexadecimal(const char *s, const char *end, uint64_t *out)
{
    const bool prefix = end - s > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
    return to_number(prefix ? s + 2 : s, end, 16, out);
}

static int no_memory(void)
{
    return spw__fail(SPW_ENOMETA, "out of memory");
}

/* Pointers */

static struct slot *find(const struct reader *r, uint64_t pointer)
{
    size_t i = (size_t)((pointer * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (r->n_slots - 1);
    while (r->slots[i].pointer != 0 && r->slots[i].pointer != pointer)
        i = (i + 1) & (r->n_slots - 1);
    return &r->slots[i];
}

/* Slots of pointers that are not live any more are left behind when the table grows. */
static int make_slots(struct reader *r)
{
    const struct reader old = *r;
    size_t live = 0;
    for (size_t i = 0; i < old.n_slots; i++)
        live += old.slots[i].pointer && (old.slots[i].block != NO_BLOCK || old.slots[i].zeros);
    size_t room = 1024;
    while (room < live * 4)
        room *= 2;
    r->slots = calloc(room, sizeof *r->slots);
    if (!r->slots) {
        r->slots = old.slots;
        return no_memory();
    }
    r->n_slots = room;
    r->n_used = live;
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].pointer && (old.slots[i].block != NO_BLOCK || old.slots[i].zeros))
            *find(r, old.slots[i].pointer) = old.slots[i];
    free(old.slots);
    return SPW_OK;
}

static int take_slot(struct reader *r, uint64_t pointer, struct slot **out)
{
    if (r->n_used * 2 >= r->n_slots && make_slots(r) != SPW_OK)
        return SPW_ENOMETA;
    *out = find(r, pointer);
    if ((*out)->pointer == 0) {
        **out = (struct slot){pointer, 0, NO_BLOCK};
        r->n_used++;
    }
    return SPW_OK;
}

/* Operations */

static int grow(void *array_ref, size_t used, size_t *room, size_t size)
{
    void *array;
    memcpy(&array, array_ref, sizeof array);
    if (used < *room)
        return SPW_OK;
    const size_t more = *room ? *room * 2 : 1024;
    array = reallocarray(array, more, size);
    if (!array)
        return no_memory();
    memcpy(array_ref, &array, sizeof array);
    *room = more;
    return SPW_OK;
}

static int add_op(struct reader *r, uint32_t op)
{
    const int rc = grow(&r->log.ops, r->log.n_ops, &r->ops_room, sizeof *r->log.ops);
    if (rc == SPW_OK)
        r->log.ops[r->log.n_ops++] = op;
    return rc;
}

static int end_block(struct reader *r, struct slot *slot)
{
    const uint32_t block = slot->block;
    slot->block = NO_BLOCK;
    r->live_bytes -= r->log.sizes[block];
    return add_op(r, block * 2 + 1);
}

static int begin_block(struct reader *r, const struct spw__form_line *line, uint64_t pointer, uint64_t bytes)
{
    struct slot *slot;
    size_t room = r->sizes_room;
    if (pointer == 0)
        return bytes == 0 ? SPW_OK
                          : spw__fail(SPW_EINVAL, "line %zu: expected the pointer of %" PRIu64 " bytes, found null",
                                      line->number, bytes);
    int rc = take_slot(r, pointer, &slot);
    if (rc == SPW_OK && bytes == 0) {
        slot->zeros++;
        return SPW_OK;
    }
    if (rc == SPW_OK && slot->block != NO_BLOCK) {
        r->log.lost_frees++;
        rc = end_block(r, slot);
    }
    if (rc != SPW_OK)
        return rc;
    if (bytes > SPW__ALLOC_LOG_LIVE_MAX || r->live_bytes > SPW__ALLOC_LOG_LIVE_MAX - bytes)
        return spw__fail(SPW_EINVAL,
                         "line %zu: expected at most 2^50 live bytes, found %" PRIu64 " more on top of %" PRIu64,
                         line->number, bytes, r->live_bytes);
    if (r->log.n_blocks == BLOCKS_MAX)
        return spw__fail(SPW_EINVAL, "line %zu: expected at most %" PRIu32 " allocations", line->number, BLOCKS_MAX);
    rc = grow(&r->log.sizes, r->log.n_blocks, &room, sizeof *r->log.sizes);
    r->sizes_room = (uint32_t)room;
    if (rc != SPW_OK)
        return rc;
    r->log.sizes[r->log.n_blocks] = bytes;
    slot->block = r->log.n_blocks++;
    r->live_bytes += bytes;
    if (r->log.peak_live_bytes < r->live_bytes)
        r->log.peak_live_bytes = r->live_bytes;
    return add_op(r, slot->block * 2);
}

static int free_pointer(struct reader *r, uint64_t pointer, bool may_be_known)
{
    struct slot *slot = pointer && r->n_slots ? find(r, pointer) : NULL;
    if (pointer == 0)
        return SPW_OK;
    if (slot && slot->pointer && slot->block != NO_BLOCK)
        return end_block(r, slot);
    if (slot && slot->zeros)
        slot->zeros--;
    else if (!may_be_known)
        r->log.unknown_frees++;
    return SPW_OK;
}

/* A reallocation may have logged the allocation and the free it is made of: only what is missing is done. */
static int reallocate(struct reader *r, const struct spw__form_line *line, const struct spw__form_record *record)
{
    const int rc = free_pointer(r, record->old_pointer, true);
    const struct slot *slot = record->pointer && r->n_slots ? find(r, record->pointer) : NULL;
    if (rc != SPW_OK || (slot && slot->pointer && slot->block != NO_BLOCK))
        return rc;
    return begin_block(r, line, record->pointer, record->bytes);
}

static int apply(struct reader *r, const struct spw__form_line *line, const struct spw__form_record *record)
{
    r->log.events += record->kind != SPW__FORM_NOTHING && record->kind != SPW__FORM_FREE_ECHO;
    switch (record->kind) {
    case SPW__FORM_NOTHING: return SPW_OK;
    case SPW__FORM_ALLOC: return begin_block(r, line, record->pointer, record->bytes);
    case SPW__FORM_FREE: return free_pointer(r, record->pointer, false);
    case SPW__FORM_FREE_ECHO: return free_pointer(r, record->pointer, true);
    case SPW__FORM_REALLOC: return reallocate(r, line, record);
    case SPW__FORM_FAILURE: r->log.logged_failures++; return SPW_OK;
    }
    return SPW_EINVAL;
}

/* Lines */

/* Whether a record is about the place that is read; without a wish, the first one named is that place. */
static int choose_place(struct reader *r, const struct spw__form_line *line, const struct spw__form_record *record,
                        bool *chosen)
{
    *chosen = true;
    if (!record->place)
        return SPW_OK;
    if (r->log.place[0] == '\0')
        memcpy(r->log.place, record->place, record->place_length);
    *chosen =
        strlen(r->log.place) == record->place_length && memcmp(r->log.place, record->place, record->place_length) == 0;
    if (!*chosen && !r->wanted)
        return spw__fail(SPW_EINVAL, "line %zu: expected events of %s only, found %.*s: --place picks one of them",
                         line->number, r->log.place, (int)record->place_length, record->place);
    return SPW_OK;
}

static int read_line(struct reader *r, const struct spw__form_line *line)
{
    struct spw__form_record record = {.kind = SPW__FORM_NOTHING};
    bool chosen = true;
    if (line->start == line->end || *line->start == '#')
        return SPW_OK;
    if (!r->form) {
        for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !r->form; i++)
            if (forms[i]->is_first(line))
                r->form = forms[i];
        if (!r->form)
            return spw__form_expected(line, line->start,
                                      "a header (Thread,Time,Action,Pointer,Size,Stream or "
                                      "time_ns,thread,action,place,block,bytes) or a JSON object");
        r->log.form = r->form->name;
        if (r->form->has_header)
            return SPW_OK;
    }
    int rc = r->form->parse(line, &record);
    if (rc == SPW_OK)
        rc = choose_place(r, line, &record, &chosen);
    return rc == SPW_OK && chosen ? apply(r, line, &record) : rc;
}

static int read_lines(struct reader *r, FILE *file)
{
    char *text = NULL;
    size_t room = 0;
    struct spw__form_line line = {.number = 0};
    int rc = SPW_OK;
    ssize_t length;
    while (rc == SPW_OK && (length = getline(&text, &room, file)) >= 0) {
        if (length > 0 && text[length - 1] == '\n')
            length--;
        if (length > 0 && text[length - 1] == '\r')
            length--;
        line = (struct spw__form_line){text, text + length, line.number + 1};
        rc = read_line(r, &line);
    }
    if (rc == SPW_OK && ferror(file))
        rc = spw__fail(SPW_EINVAL, "cannot be read: %s", strerror(errno));
    if (rc == SPW_OK && !r->form)
        rc = spw__fail(SPW_EINVAL, "line 1: expected an allocation log, found an empty file");
    if (rc == SPW_OK && r->log.n_blocks == 0)
        rc = spw__fail(SPW_EINVAL, "line %zu: expected at least one allocation%s%s, found the end of the file",
                       line.number, r->log.place[0] ? " in " : "", r->log.place);
    free(text);
    return rc;
}

int spw__alloc_log_read(const char *path, const char *place, struct spw__alloc_log *log)
{
    struct reader r = {.wanted = place};
    FILE *file = fopen(path, "re");
    if (!file)
        return spw__fail(SPW_EINVAL, "cannot be opened: %s", strerror(errno));
    if (place)
        (void)snprintf(r.log.place, sizeof r.log.place, "%s", place);
    const int rc = read_lines(&r, file);
    (void)fclose(file);
    free(r.slots);
    if (rc != SPW_OK)
        spw__alloc_log_finish(&r.log);
    else
        *log = r.log;
    return rc;
}

void spw__alloc_log_finish(struct spw__alloc_log *log)
{
    free(log->ops);
    free(log->sizes);
    *log = (struct spw__alloc_log){.form = NULL};
}
