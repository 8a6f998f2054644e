/* Structs that begin with their own size (options, specifications, snapshots), passed between a program and a library
 * that may have been built from different headers. Fields are only ever added, at the end.
 *
 *     older program: its struct is shorter; what is missing is at its default
 *     newer program: its struct is longer; accepted as long as what this library does not know is all zero
 *
 * A struct must not have padding at its end: an older program's garbage would lie where a new field begins.
 * Threads: any. Ownership: everything is copied.
 */
#ifndef SPW_BASE_SIZED_H
#define SPW_BASE_SIZED_H

#include <stddef.h>

/* Size of type in the first version that had it: `last` was its last field then, and stays the one named here. */
#define SPW__SIZED_FIRST(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* Copies *given over *known, which holds the defaults and its own size; NULL given leaves them. first: the least size
 * that ever was. SPW_EINVAL, with `what` in the detail and *known unchanged: too small, or an unknown tail that is not
 * zero. */
int spw__sized_take(void *known, size_t first, const void *given, const char *what);

/* Copies *known, but for its size, to the first bytes of *out, which is out_size bytes large and gets that as its size;
 * zeroes what lies beyond. */
void spw__sized_give(void *out, size_t out_size, const void *known);

#endif
