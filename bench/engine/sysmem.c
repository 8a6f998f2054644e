/* Memory limits of this process. Neighbour: join_options.c, for the budget when none is given. */
#include "sysmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t read_limit(const char *path)
{
    uint64_t value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &value) != 1) /* "max" */
        value = UINT64_MAX;
    (void)fclose(file);
    return value;
}

/* The least limit of a group and of all groups around it. group begins with a slash and is cut down on the way. */
static uint64_t least_limit(const char *root, char *group, const char *file)
{
    char path[4400];
    uint64_t least = UINT64_MAX;
    for (;;) {
        char *slash;
        (void)snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        uint64_t limit = read_limit(path);
        least = limit < least ? limit : least;
        if ((slash = strrchr(group, '/')) == NULL)
            return least;
        *slash = 0;
    }
}

/* Lines are "0::/group" (version 2) or "5:memory:/group" (version 1). */
static uint64_t group_limit(void)
{
    char line[4096];
    uint64_t least = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return least;
    while (fgets(line, sizeof line, file) != NULL) {
        char *names = strchr(line, ':'), *group = names == NULL ? NULL : strchr(names + 1, ':');
        uint64_t limit = UINT64_MAX;
        if (group == NULL)
            continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (names[1] == 0)
            limit = least_limit("/sys/fs/cgroup", group, "memory.max");
        else if (strstr(names + 1, "memory") != NULL)
            limit = least_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        least = limit < least ? limit : least;
    }
    (void)fclose(file);
    return least;
}

uint64_t eng_memory_allowed(void)
{
    struct rlimit rlimit;
    uint64_t allowed = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = group_limit();
    allowed = group < allowed ? group : allowed;
    if (getrlimit(RLIMIT_AS, &rlimit) == 0 && rlimit.rlim_cur != RLIM_INFINITY && rlimit.rlim_cur < allowed)
        allowed = rlimit.rlim_cur;
    return allowed;
}
