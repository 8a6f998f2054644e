/* CUDA's driver behind the driver table: libcuda.so.1, found at run time, so that one binary runs with and without it.
 *
 * An entry point is asked for at the version whose signature driver.h has, never at a newer one: the driver then
 * answers with exactly that signature however new it is. Drivers before CUDA 12 have an older cuGetProcAddress; there,
 * and where it answers "success" with a NULL pointer, the exported symbol of that signature is taken by its own name.
 */
#include "pool/device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"

typedef spw__cu_result (*get_proc_address_fn)(const char *name, void **entry, int version, uint64_t flags, int *status);
typedef spw__cu_result (*get_version_fn)(int *version);

static const struct entry {
    const char *name, *symbol;
    int version;
    size_t offset; /* of the field in the table */
} entries[] = {
#define SPW__X(field, name, symbol, version, params) {#name, #symbol, version, offsetof(struct spw__driver, field)},
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};

/* All written by load() alone, before any reader. */
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static struct spw__driver table;
static bool loaded;
static char reason[256];

static void *find(void *library, get_proc_address_fn get_proc_address, int driver_version, const struct entry *entry)
{
    void *found = NULL;
    int status = 0;
    /* A driver older than the signature could only answer with an older one, which must not be called through ours. */
    if (driver_version < entry->version)
        return NULL;
    if (get_proc_address &&
        (get_proc_address(entry->name, &found, entry->version, 0, &status) != SPW__CU_SUCCESS || status != 0))
        found = NULL;
    return found ? found : dlsym(library, entry->symbol);
}

static void load(void)
{
    int version = 0;
    /* Never closed: libcuda keeps threads of its own. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        (void)snprintf(reason, sizeof reason, "no CUDA driver: %s", why ? why : "libcuda.so.1 cannot be loaded");
        return;
    }
    const get_version_fn get_version = (get_version_fn)dlsym(library, "cuDriverGetVersion");
    const get_proc_address_fn get_proc_address = (get_proc_address_fn)dlsym(library, "cuGetProcAddress_v2");
    if (!get_version || get_version(&version) != SPW__CU_SUCCESS) {
        (void)snprintf(reason, sizeof reason, "libcuda.so.1 does not tell its version");
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = find(library, get_proc_address, version, &entries[i]);
        if (!found) {
            (void)snprintf(reason, sizeof reason, "libcuda.so.1 of CUDA %d.%d lacks %s of CUDA %d.%d", version / 1000,
                           version % 1000 / 10, entries[i].name, entries[i].version / 1000,
                           entries[i].version % 1000 / 10);
            return;
        }
        memcpy((char *)&table + entries[i].offset, &found, sizeof found);
    }
    loaded = true;
}

int spw__driver_cuda(const struct spw__driver **out)
{
    (void)pthread_once(&load_once, load);
    if (!loaded)
        return spw__fail(SPW_ENOTSUP, "%s", reason);
    *out = &table;
    return 0;
}
