/* Running a suite: the end of a test program. */
#ifndef SPW_TESTS_SUITE_FIXTURE_H
#define SPW_TESTS_SUITE_FIXTURE_H

#include <check.h>
#include <stdlib.h>

/* The exit status of the program. Frees suite. */
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
