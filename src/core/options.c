/* Options. Neighbours: pool/spec.c parses, manager.c builds what comes out. Precedence: option, string, environment. */
#include "src/core/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/units.h"
#include "pool/spec.h"

enum { PATH_BYTES = 4096 };

#define DEFAULT_PIECE_BYTES (UINT64_C(16) << 20)
#define DEFAULT_STAGING_BYTES (UINT64_C(64) << 20)

static uint64_t read_number(const char *path)
{
    char line[64];
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    char *read = fgets(line, sizeof line, file);
    (void)fclose(file);
    if (!read || line[0] < '0' || line[0] > '9') /* "max" */
        return UINT64_MAX;
    return strtoull(line, NULL, 10);
}

/* The limit of the group that a line of /proc/self/cgroup names, and of all above it. */
static uint64_t limit_of_path(const char *root, char *path, const char *file)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        char name[PATH_BYTES];
        (void)snprintf(name, sizeof name, "%s%s/%s", root, path, file);
        const uint64_t limit = read_number(name);
        least = limit < least ? limit : least;
        char *slash = strrchr(path, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

static uint64_t cgroup_limit(void)
{
    char line[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return least;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        uint64_t limit = UINT64_MAX;
        if (strcmp(controllers + 1, "") == 0)
            limit = limit_of_path("/sys/fs/cgroup", path, "memory.max");
        else if (strstr(controllers + 1, "memory"))
            limit = limit_of_path("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes");
        least = limit < least ? limit : least;
    }
    (void)fclose(file);
    return least;
}

uint64_t spw__process_memory_bytes(void)
{
    const uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t group = cgroup_limit();
    return group < machine ? group : machine;
}

int spw__settings_init(struct spw__settings *settings, const spw_options *options)
{
    const uint32_t tiers =
        SPW__SPEC_BIT(SPW__SPEC_DEVICE) | SPW__SPEC_BIT(SPW__SPEC_PINNED_HOST) | SPW__SPEC_BIT(SPW__SPEC_HOST);
    spw_spec *spec = &settings->spec;
    uint32_t named = 0;
    memset(settings, 0, sizeof *settings);
    spw_spec_init(spec);
    settings->string = options->spec ? options->spec : secure_getenv("SPILLWAY_SPEC");
    int rc = settings->string ? spw__spec_parse(settings->string, spec, &named) : SPW_OK;
    if (rc == SPW_OK && options->fields)
        rc = spw__spec_fields(spec, &named, options->fields);
    if (rc == SPW_OK)
        rc = spw__spec_environment(spec, &named, secure_getenv);
    if (rc == SPW_OK)
        rc = spw__spec_check(spec, named);
    if (rc != SPW_OK)
        return rc;
    settings->defaulted = !settings->string && !(named & tiers);
    if (settings->defaulted) {
        spec->pools[SPW_TIER_HOST][0] = (spw_spec_pool){.size_bytes = spw__process_memory_bytes() / 2};
        spec->n_pools[SPW_TIER_HOST] = 1;
    } else if (!(named & SPW__SPEC_BIT(SPW__SPEC_DEVICE))) {
        spec->n_pools[SPW_TIER_DEVICE] = 0; /* a tier that is not named is absent */
    }
    return SPW_OK;
}

/* Whole blocks, at least one. */
static uint64_t in_blocks(uint64_t bytes)
{
    return bytes < SPW__IO_BLOCK ? SPW__IO_BLOCK : spw__round_down(bytes, SPW__IO_BLOCK);
}

void spw__settings_resolve(struct spw__settings *settings)
{
    const spw_spec *spec = &settings->spec;
    uint64_t smallest = UINT64_MAX;
    for (unsigned tier = 0; tier < SPW__MEMORY_TIERS; tier++) {
        const uint64_t size = spw__spec_tier_bytes(spec, tier);
        if (size)
            smallest = spw__smaller(smallest, size);
    }
    settings->piece_bytes =
        in_blocks(spw__smaller(spec->piece_bytes ? spec->piece_bytes : DEFAULT_PIECE_BYTES, smallest / 8));
    settings->staging_bytes =
        in_blocks(spw__smaller(spec->staging_bytes ? spec->staging_bytes : DEFAULT_STAGING_BYTES, smallest / 4));
    settings->verify = spec->verify != 0;
    settings->own_thread = spec->threads != 0;
}
