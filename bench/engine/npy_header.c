/* The header of an .npy file: a Python dictionary with the keys descr, fortran_order and shape, in any order.
 * Neighbours: npy.c, which reads it from files, and write.c, which writes it. */
#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct cursor {
    const char *at;
    const char *end;
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

static int take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return 0;
    c->at++;
    return 1;
}

static int take_word(struct cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return 0;
    c->at += n;
    return 1;
}

/* A quoted string without escapes; what does not fit in out is cut. */
static int take_string(struct cursor *c, char *out, size_t size)
{
    char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    size_t n = 0;
    if (quote == 0)
        return 0;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (n + 1 < size)
            out[n++] = *c->at;
    }
    out[n] = 0;
    return take(c, quote);
}

static int take_number(struct cursor *c, uint64_t *out)
{
    uint64_t value = 0;
    skip_space(c);
    const char *start = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (value > ((uint64_t)INT64_MAX - 9) / 10)
            return 0;
        value = value * 10 + (uint64_t)(*c->at - '0');
    }
    if (c->at == start)
        return 0;
    if (c->at < c->end && *c->at == 'L') /* Python 2 */
        c->at++;
    *out = value;
    return 1;
}

static int take_shape(struct cursor *c, struct npy_header *header)
{
    header->dimensions = 0;
    header->rows = 0;
    if (!take(c, '('))
        return 0;
    while (!take(c, ')')) {
        uint64_t extent;
        if (!take_number(c, &extent))
            return 0;
        if (header->dimensions++ == 0)
            header->rows = extent;
        if (!take(c, ',')) {
            if (!take(c, ')'))
                return 0;
            break;
        }
    }
    return 1;
}

/* Structured types are lists; only their presence matters, so that the caller can refuse them by name. */
static int take_descr(struct cursor *c, struct npy_header *header)
{
    if (take_string(c, header->descr, sizeof header->descr))
        return 1;
    if (!take(c, '['))
        return 0;
    for (unsigned depth = 1; depth > 0 && c->at < c->end; c->at++)
        depth = *c->at == '[' ? depth + 1 : *c->at == ']' ? depth - 1 : depth;
    memcpy(header->descr, "[", 2);
    return 1;
}

const char *npy_parse_dictionary(const char *text, size_t length, struct npy_header *header)
{
    struct cursor c = {text, text + length};
    unsigned seen = 0;
    if (!take(&c, '{'))
        return "the header is no dictionary";
    while (!take(&c, '}')) {
        char key[24];
        if (!take_string(&c, key, sizeof key) || !take(&c, ':'))
            return "the header's dictionary is malformed";
        if (strcmp(key, "descr") == 0) {
            if (!take_descr(&c, header))
                return "the header's descr is malformed";
            seen |= 1u;
        } else if (strcmp(key, "fortran_order") == 0) {
            header->fortran_order = take_word(&c, "True");
            if (!header->fortran_order && !take_word(&c, "False"))
                return "the header's fortran_order is neither True nor False";
            seen |= 2u;
        } else if (strcmp(key, "shape") == 0) {
            if (!take_shape(&c, header))
                return "the header's shape is malformed";
            seen |= 4u;
        } else {
            return "the header has an unknown key";
        }
        if (!take(&c, ',')) {
            if (!take(&c, '}'))
                return "the header's dictionary is malformed";
            break;
        }
    }
    return seen == 7u ? NULL : "the header lacks descr, fortran_order or shape";
}

size_t npy_format_header(char out[NPY_HEADER_MAX], unsigned width, int64_t rows)
{
    static const char magic[8] = {(char)0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    memset(out, ' ', NPY_HEADER_MAX);
    memcpy(out, magic, sizeof magic);
    int n = snprintf(out + 10, NPY_HEADER_MAX - 10,
                     "{'descr': '<i%u', 'fortran_order': False, 'shape': (%" PRId64 ",), }",
                     width, rows);
    size_t length = (10 + (size_t)n + 1 + 63) / 64 * 64;
    out[10 + n] = ' ';
    out[length - 1] = '\n';
    out[8] = (char)((length - 10) & 0xff);
    out[9] = (char)((length - 10) >> 8);
    return length;
}
