/* Host memory: what a forked child sees of it, where it lies, and what is said when it cannot be locked. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/source_host.h"

#define MIB (UINT64_C(1) << 20)

static char *base;
static unsigned lines;
static char last_line[256];

static void keep(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    lines++;
    (void)strncpy(last_line, line, sizeof last_line - 1);
}

static const struct spw__log log_lines = {.fn = keep};

static void setup(void)
{
    void *mapped;
    ck_assert_int_eq(spw__host_map(4 * MIB, &mapped), SPW_OK);
    base = mapped;
}

static void teardown(void)
{
    spw__host_unmap(base, 4 * MIB);
}

START_TEST(a_forked_child_does_not_have_the_memory)
{
    int status = 0;
    ck_assert_int_eq(spw__host_populate(base, 4 * MIB), SPW_OK);
    base[0] = 1;
    const pid_t child = fork();
    if (child == 0) /* nothing lies there: advice about it is refused */
        _exit(madvise(base, MIB, MADV_NORMAL) != 0 ? 42 : 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 42);
    ck_assert_int_eq(base[0], 1);
}
END_TEST

START_TEST(that_memory_cannot_be_locked_is_said_once)
{
    const struct rlimit none = {0, 0};
    ck_assert_int_eq(spw__host_populate(base, 4 * MIB), SPW_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    if (spw__host_lock(base, MIB, &log_lines)) /* allowed whatever the limit says */
        return;
    ck_assert_uint_eq(lines, 1);
    ck_assert_ptr_nonnull(strstr(last_line, "ulimit -l"));
    ck_assert(!spw__host_lock(base + MIB, MIB, &log_lines));
    ck_assert_uint_eq(lines, 1);
    base[0] = 1; /* it works all the same */
}
END_TEST

START_TEST(memory_is_bound_to_node_0)
{
    int mode = -1;
    unsigned long nodes[16] = {0};
    ck_assert_int_eq(spw__host_bind(base, 4 * MIB, 0, &log_lines), SPW_OK);
    ck_assert_int_eq(spw__host_populate(base, 4 * MIB), SPW_OK);
    memset(base, 1, 4 * MIB);
    if (lines > 0) { /* refused: said, and nothing else */
        ck_assert_ptr_nonnull(strstr(last_line, "not bound to NUMA node 0"));
        return;
    }
    enum { BY_ADDRESS = 2 };
    if (syscall(SYS_get_mempolicy, &mode, nodes, 1024ul, base, BY_ADDRESS) == 0) {
        ck_assert_int_eq(mode, 2);
        ck_assert_uint_eq(nodes[0], 1);
    }
}
END_TEST

START_TEST(a_node_that_does_not_exist_is_an_error_that_names_it)
{
    ck_assert_int_eq(spw__host_bind(base, 4 * MIB, 1023, &log_lines), SPW_EINVAL);
    ck_assert_ptr_nonnull(strstr(spw_error_detail()->message, "numa=1023"));
    ck_assert_int_eq(spw__host_bind(base, 4 * MIB, 5000, &log_lines), SPW_EINVAL);
    ck_assert_uint_eq(lines, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("source_host");
    TCase *tcase = tcase_create("source_host");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_forked_child_does_not_have_the_memory);
    tcase_add_test(tcase, that_memory_cannot_be_locked_is_said_once);
    tcase_add_test(tcase, memory_is_bound_to_node_0);
    tcase_add_test(tcase, a_node_that_does_not_exist_is_an_error_that_names_it);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
