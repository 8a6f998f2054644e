/* The cursor of the configuration grammar: see spec_cursor.h. */
#include "pool/spec_cursor.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"

int spw__spec_fail_at(const struct spw__spec_cursor *c, const char *where, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const spw_error_info info = {.offset_bytes = (uint64_t)(where - c->start)};
    return spw__fail_info(&info, SPW_ESPEC, "%s, byte %" PRIu64 ": %s",
                          c->variable ? c->variable : "configuration string", info.offset_bytes, text);
}

int spw__spec_expected(const struct spw__spec_cursor *c, const char *where, const char *what)
{
    char word[32];
    size_t n = 0;
    for (; where + n < c->end && n < sizeof word - 1; n++) {
        if (n > 0 && (strchr(" ,:;=", word[0]) || strchr(" ,:;=", where[n])))
            break;
        word[n] = '?';
        if (isprint((unsigned char)where[n]))
            word[n] = where[n];
    }
    word[n] = '\0';
    if (n == 0)
        return spw__spec_fail_at(c, where, "expected %s, found the end", what);
    return spw__spec_fail_at(c, where, "expected %s, found \"%s\"", what, word);
}

bool spw__spec_take_char(struct spw__spec_cursor *c, char wanted)
{
    if (c->p == c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

bool spw__spec_take_number(struct spw__spec_cursor *c, bool suffixes, uint64_t *out)
{
    static const char units[] = "KMGT";
    const char *const start = c->p;
    uint64_t value = 0;
    bool overflow = false;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        overflow |= __builtin_mul_overflow(value, UINT64_C(10), &value);
        overflow |= __builtin_add_overflow(value, (uint64_t)(*c->p - '0'), &value);
    }
    if (c->p == start)
        return false;
    const char *unit = suffixes && c->p < c->end ? memchr(units, *c->p, sizeof units - 1) : NULL;
    if (unit) {
        overflow |= __builtin_mul_overflow(value, UINT64_C(1024) << 10 * (unit - units), &value);
        c->p++;
    }
    *out = overflow ? UINT64_MAX : value;
    return true;
}

int spw__spec_end_number(const struct spw__spec_cursor *c, bool suffixes, const char *then)
{
    char what[64];
    if (c->p == c->end || strchr(then, *c->p))
        return SPW_OK;
    const bool digits = isdigit((unsigned char)c->p[-1]) != 0;
    (void)snprintf(what, sizeof what, "%s%s%s%sthe end", digits ? "a digit, " : "",
                   digits && suffixes ? "K, M, G, T, " : "", *then == ':' ? "':', " : "", *then ? "',' or " : "or ");
    return spw__spec_expected(c, c->p, digits || *then ? what : "the end");
}
