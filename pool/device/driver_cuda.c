/* CUDA's driver behind the driver table: libcuda.so.1, found at run time, so that one binary runs with and without it.
 *
 * An entry point is asked for at the lower of two versions: the driver's, and the one whose signature driver.h has. A
 * newer driver then answers with exactly that signature; an older one could only answer with an older signature, so
 * that there the entry counts as missing without being asked for. Drivers of CUDA 11.3 to 11.8 have an older
 * cuGetProcAddress, those before have none. Where it is not there, or answers "success" with a NULL pointer, the
 * exported symbol of that signature is taken by its own name.
 */
#include "pool/device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"

typedef spw__cu_result (*get_proc_address_fn)(const char *name, void **entry, int version, uint64_t flags);
typedef spw__cu_result (*get_proc_address_v2_fn)(const char *name, void **entry, int version, uint64_t flags,
                                                 int *status);
typedef spw__cu_result (*get_version_fn)(int *version);

struct library {
    void *handle;
    int version;
    get_proc_address_fn get_proc_address; /* each NULL where the library lacks it */
    get_proc_address_v2_fn get_proc_address_v2;
};

static const struct entry {
    const char *name, *symbol;
    int version;
    size_t offset; /* of the field in the table */
    bool required;
} entries[] = {
#define SPW__X(field, name, symbol, version, params, args)                                                             \
    {#name, #symbol, version, offsetof(struct spw__driver, field), true},
    SPW__DRIVER_REQUIRED_LIST(SPW__X)
#undef SPW__X
#define SPW__X(field, name, symbol, version, params, args)                                                             \
    {#name, #symbol, version, offsetof(struct spw__driver, field), false},
    SPW__DRIVER_OPTIONAL_LIST(SPW__X)
#undef SPW__X
};

/* All written by load() alone, before any reader. */
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static struct spw__driver table;
static bool loaded;
static char reason[256];

static void *ask(const struct library *library, const struct entry *entry)
{
    void *found = NULL;
    int status = 0;
    spw__cu_result result = SPW__CU_ERROR_NOT_FOUND;
    if (library->get_proc_address_v2)
        result = library->get_proc_address_v2(entry->name, &found, entry->version, 0, &status);
    else if (library->get_proc_address)
        result = library->get_proc_address(entry->name, &found, entry->version, 0);
    return result == SPW__CU_SUCCESS && status == 0 ? found : NULL;
}

static void *find(const struct library *library, const struct entry *entry)
{
    if (library->version < entry->version)
        return NULL;
    void *found = ask(library, entry);
    return found ? found : dlsym(library->handle, entry->symbol);
}

static bool open_library(struct library *library)
{
    /* Never closed: libcuda keeps threads of its own. */
    library->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library->handle) {
        const char *why = dlerror();
        (void)snprintf(reason, sizeof reason, "no CUDA driver: %s", why ? why : "libcuda.so.1 cannot be loaded");
        return false;
    }
    const get_version_fn get_version = (get_version_fn)dlsym(library->handle, "cuDriverGetVersion");
    if (!get_version || get_version(&library->version) != SPW__CU_SUCCESS) {
        (void)snprintf(reason, sizeof reason, "libcuda.so.1 does not tell its version");
        return false;
    }
    library->get_proc_address = (get_proc_address_fn)dlsym(library->handle, "cuGetProcAddress");
    library->get_proc_address_v2 = (get_proc_address_v2_fn)dlsym(library->handle, "cuGetProcAddress_v2");
    return true;
}

static void load(void)
{
    struct library library = {NULL, 0, NULL, NULL};
    if (!open_library(&library))
        return;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = find(&library, &entries[i]);
        if (!found && entries[i].required) {
            (void)snprintf(reason, sizeof reason, "libcuda.so.1 of CUDA %d.%d lacks %s of CUDA %d.%d",
                           library.version / 1000, library.version % 1000 / 10, entries[i].symbol,
                           entries[i].version / 1000, entries[i].version % 1000 / 10);
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
