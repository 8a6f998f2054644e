/* What the tests share that play seeds: a failure names its seed and specification. */
#ifndef SPW_TESTS_SEEDED_FIXTURE_H
#define SPW_TESTS_SEEDED_FIXTURE_H

#include "tests/manager_fixture.h"

static const char *spec_now;
static unsigned seed_now;

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: %s (seed %u, \"%s\"): %s\n", __FILE__, __LINE__, #condition, seed_now,       \
                          spec_now, spw_error_detail()->message);                                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The next of a sequence of random numbers, below n. */
static inline unsigned next_below(uint64_t *state, unsigned n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)((*state >> 20) % n);
}

#endif
