/* The simulated driver as a stand-alone libcuda.so.1, so that finding the library, choosing versions and missing
 * symbols are tested too. The same code as behind driver=sim, in a copy of its own: it shares nothing with the program.
 *
 * For tests only; never installed. What is exported is cut by a map (full.map, old.map, bare.map, lacks.map); the rest
 * is set by the environment:
 *
 *     SPILLWAY_LIBCUDA          the device, as a configuration string ("device=16G; driver=sim" if unset): the memory
 *                               of its model, else of its pools; its model; its seed
 *     SPILLWAY_LIBCUDA_VERSION  what cuDriverGetVersion says; 13000 if unset
 *     SPILLWAY_LIBCUDA_NULL     if set, cuGetProcAddress and _v2 report success and find nothing
 *     SPILLWAY_LIBCUDA_LACKS    an entry point that neither finds
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool/device/sim.h"
#include "pool/spec.h"

#define EXPORT __attribute__((visibility("default")))

enum { FOUND = 0, NO_SUCH_SYMBOL = 1, VERSION_TOO_LOW = 2 }; /* CUdriverProcAddressQueryResult */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static spw__cu_result added = SPW__CU_ERROR_NOT_INITIALIZED; /* written by add_device alone */
static struct spw__driver table;                             /* written by make_table alone */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void add_device(void)
{
    static spw_spec spec; /* large for a stack */
    const char *string = getenv("SPILLWAY_LIBCUDA");
    const struct spw__driver *driver;
    struct spw__sim_config config = {.capacity_bytes = 0};
    spw__cu_device device;
    added = SPW__CU_ERROR_NO_DEVICE;
    if (spw_spec_parse(string ? string : "device=16G; driver=sim", &spec) != SPW_OK)
        return;
    const spw_device_model *model = &spec.model;
    for (uint32_t i = 0; i < spec.n_pools[SPW_TIER_DEVICE]; i++)
        config.capacity_bytes += spec.pools[SPW_TIER_DEVICE][i].size_bytes;
    if (model->memory_bytes)
        config.capacity_bytes = model->memory_bytes;
    config.model = (struct spw__sim_model){model->h2d_bytes_per_s, model->d2h_bytes_per_s, model->d2d_bytes_per_s,
                                           model->duplex_bytes_per_s, model->latency_ns};
    config.seed = spec.sim_seed;
    if (spw__driver_sim_add(&config, &driver, &device) == SPW_OK)
        added = SPW__CU_SUCCESS;
}

static spw__cu_result init(unsigned flags)
{
    const spw__cu_result result = spw__sim_init(flags);
    if (result != SPW__CU_SUCCESS)
        return result;
    (void)pthread_once(&once, add_device);
    return added;
}

static spw__cu_result get_version(int *version)
{
    const char *text = getenv("SPILLWAY_LIBCUDA_VERSION");
    *version = text ? atoi(text) : 13000;
    return SPW__CU_SUCCESS;
}

static spw__cu_result get_count(int *count)
{
    *count = added == SPW__CU_SUCCESS;
    return added;
}

static void make_table(void)
{
    table = spw__sim_table;
    table.init = init;
    table.driver_get_version = get_version;
    table.device_get_count = get_count;
}

static const struct spw__driver *get_table(void)
{
    (void)pthread_once(&table_once, make_table);
    return &table;
}

#define SPW__X(field, name, symbol, version, params, args)                                                             \
    EXPORT spw__cu_result symbol params;                                                                               \
    spw__cu_result symbol params                                                                                       \
    {                                                                                                                  \
        return get_table()->field args;                                                                                \
    }
SPW__DRIVER_LIST(SPW__X)
#undef SPW__X

static const struct {
    const char *name;
    int version;
    void (*function)(void);
} symbols[] = {
#define SPW__X(field, name, symbol, version, params, args) {#name, version, (void (*)(void))symbol},
    SPW__DRIVER_LIST(SPW__X)
#undef SPW__X
};

/* The youngest signature that is not younger than the version asked for. */
static int look_up(const char *name, int version, void **out)
{
    const char *lacks = getenv("SPILLWAY_LIBCUDA_LACKS");
    int mine, youngest = 0, status = NO_SUCH_SYMBOL;
    *out = NULL;
    (void)get_version(&mine);
    if (getenv("SPILLWAY_LIBCUDA_NULL"))
        return FOUND;
    if (version > mine)
        return VERSION_TOO_LOW;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (strcmp(symbols[i].name, name) != 0 || (lacks && strcmp(lacks, name) == 0))
            continue;
        if (symbols[i].version > version) {
            status = *out ? status : VERSION_TOO_LOW;
        } else if (symbols[i].version > youngest) {
            youngest = symbols[i].version;
            memcpy(out, &symbols[i].function, sizeof *out);
            status = FOUND;
        }
    }
    return status;
}

/* Of CUDA 11.3 to 11.8. */
EXPORT spw__cu_result cuGetProcAddress(const char *name, void **entry, int version, uint64_t flags);
spw__cu_result cuGetProcAddress(const char *name, void **entry, int version, uint64_t flags)
{
    if (flags)
        return SPW__CU_ERROR_INVALID_VALUE;
    return look_up(name, version, entry) == FOUND ? SPW__CU_SUCCESS : SPW__CU_ERROR_NOT_FOUND;
}

EXPORT spw__cu_result cuGetProcAddress_v2(const char *name, void **entry, int version, uint64_t flags, int *status);
spw__cu_result cuGetProcAddress_v2(const char *name, void **entry, int version, uint64_t flags, int *status)
{
    if (flags)
        return SPW__CU_ERROR_INVALID_VALUE;
    const int found = look_up(name, version, entry);
    if (status)
        *status = found;
    return SPW__CU_SUCCESS;
}

/* Where the byte behind a device address lies, for the fixtures of tests that run on either copy. */
EXPORT void *spillway_sim_host_pointer(uint64_t address);
void *spillway_sim_host_pointer(uint64_t address)
{
    return spw__sim_host_pointer(address);
}
