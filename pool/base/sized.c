/* Structs that begin with their own size. See sized.h. */
#include "pool/base/sized.h"

#include <string.h>

#include "pool/base/error.h"

/* A size that is off by more than any header will ever add is no size: the struct was not initialised. */
enum { MOST_ADDED = 4096 };

static size_t size_of(const void *sized)
{
    size_t size;
    memcpy(&size, sized, sizeof size);
    return size;
}

int spw__sized_take(void *known, size_t first, const void *given, const char *what)
{
    const size_t size = size_of(known);
    const size_t given_size = given ? size_of(given) : size;
    if (!given)
        return SPW_OK;
    if (given_size < first || given_size > size + MOST_ADDED)
        return spw__fail(SPW_EINVAL, "%s: struct_size is %zu, not %zu; use its init function", what, given_size, size);
    for (size_t i = size; i < given_size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return spw__fail(SPW_EINVAL, "%s: byte %zu is set in a struct of %zu bytes, of which this version knows "
                                         "%zu: the program was built for a newer one",
                             what, i, given_size, size);
    memcpy(known, given, given_size < size ? given_size : size);
    memcpy(known, &size, sizeof size);
    return SPW_OK;
}

void spw__sized_give(void *out, size_t out_size, const void *known)
{
    const size_t size = size_of(known);
    if (out_size < sizeof out_size)
        return;
    memset(out, 0, out_size);
    memcpy(out, known, out_size < size ? out_size : size);
    memcpy(out, &out_size, sizeof out_size);
}
