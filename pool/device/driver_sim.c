/* The simulated driver: devices, contexts, errors. Neighbours: sim_memory.c, sim_vmm.c, sim_stream.c, sim_event.c,
 * sim_batch.c, sim_attribute.c, and sim_fault.c with the table (sim.h).
 *
 * A process may have several simulated devices, each added by whoever wants one. As on CUDA, a call finds its device
 * through the calling thread's current context, and the context is a pointer that only the driver looks into.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "pool/base/error.h"
#include "pool/device/sim.h"

enum { DEVICES_MAX = 64, CONTEXTS_MAX = 8, DRIVER_VERSION = 13000 };

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER; /* innermost: nothing is locked under it */
static struct CUctx_st *devices[DEVICES_MAX];                    /* guarded by devices_lock */

static _Atomic long left_behind; /* atomic */

static _Thread_local struct CUctx_st *contexts[CONTEXTS_MAX]; /* the thread's stack, current one last */
static _Thread_local unsigned n_contexts;

static struct CUctx_st *find_device(spw__cu_device device)
{
    if (device < 0 || device >= DEVICES_MAX)
        return NULL;
    (void)pthread_mutex_lock(&devices_lock);
    struct CUctx_st *sim = devices[device];
    (void)pthread_mutex_unlock(&devices_lock);
    return sim;
}

/* As a driver that stops a device before it says that it is lost: nothing is copied any more once anybody knows. */
static void wait_for_copies_locked(struct CUctx_st *sim)
{
    while (sim->copying)
        (void)spw__cond_wait(&sim->progress, &sim->lock, -1);
}

spw__cu_result spw__sim_enter(struct CUctx_st **out)
{
    struct CUctx_st *sim = n_contexts ? contexts[n_contexts - 1] : NULL;
    if (spw__sim_in_function())
        return SPW__CU_ERROR_NOT_PERMITTED;
    if (!sim)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    spw__mutex_lock(&sim->lock);
    const spw__cu_result sticky = sim->sticky;
    if (sticky != SPW__CU_SUCCESS) {
        wait_for_copies_locked(sim);
        spw__mutex_unlock(&sim->lock);
    }
    *out = sim;
    return sticky;
}

struct CUctx_st *spw__sim_enter_to_free(void)
{
    struct CUctx_st *sim = n_contexts && !spw__sim_in_function() ? contexts[n_contexts - 1] : NULL;
    if (sim)
        spw__mutex_lock(&sim->lock);
    return sim;
}

void spw__sim_lose_locked(struct CUctx_st *sim, spw__cu_result sticky)
{
    sim->sticky = sticky;
    wait_for_copies_locked(sim);
}

void spw__sim_lose(spw__cu_result sticky)
{
    const struct CUctx_st *current = n_contexts ? contexts[n_contexts - 1] : NULL;
    for (spw__cu_device device = 0; device < DEVICES_MAX; device++) {
        struct CUctx_st *sim = find_device(device);
        if (!sim || (current && current != sim))
            continue;
        spw__mutex_lock(&sim->lock);
        spw__sim_lose_locked(sim, sticky);
        spw__mutex_unlock(&sim->lock);
    }
}

spw__cu_result spw__sim_fault_locked(struct CUctx_st *sim, enum spw__fault_point point)
{
    switch (spw__fault(point)) {
    case 0: return SPW__CU_SUCCESS;
    case ENOMEM: return SPW__CU_ERROR_OUT_OF_MEMORY;
    case ENOTRECOVERABLE: spw__sim_lose_locked(sim, SPW__CU_ERROR_ECC_UNCORRECTABLE); return sim->sticky;
    default: return SPW__CU_ERROR_OPERATING_SYSTEM;
    }
}

spw__cu_result spw__sim_get_error_name(spw__cu_result result, const char **name)
{
    switch (result) {
#define SPW__X(id, value)                                                                                              \
    case value: *name = "CUDA_" #id; return SPW__CU_SUCCESS;
        SPW__CU_RESULT_LIST(SPW__X)
#undef SPW__X
    default: *name = NULL; return SPW__CU_ERROR_INVALID_VALUE;
    }
}

spw__cu_result spw__sim_init(unsigned flags)
{
    return flags == 0 ? SPW__CU_SUCCESS : SPW__CU_ERROR_INVALID_VALUE;
}

spw__cu_result spw__sim_driver_get_version(int *version)
{
    *version = DRIVER_VERSION;
    return SPW__CU_SUCCESS;
}

/* Ordinals are not dense: a removed device leaves its number to the next one added. */
spw__cu_result spw__sim_device_get_count(int *count)
{
    *count = DEVICES_MAX;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_device_get(spw__cu_device *device, int ordinal)
{
    if (!find_device(ordinal))
        return SPW__CU_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_device_get_name(char *name, int size, spw__cu_device device)
{
    if (size <= 0)
        return SPW__CU_ERROR_INVALID_VALUE;
    if (!find_device(device))
        return SPW__CU_ERROR_INVALID_DEVICE;
    (void)snprintf(name, (size_t)size, "simulated device %d", device);
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_primary_ctx_retain(spw__cu_context *context, spw__cu_device device)
{
    struct CUctx_st *sim = find_device(device);
    if (!sim)
        return SPW__CU_ERROR_INVALID_DEVICE;
    spw__mutex_lock(&sim->lock);
    const spw__cu_result result = spw__sim_fault_locked(sim, SPW__FAULT_DEVICE_OPEN);
    if (result == SPW__CU_SUCCESS) {
        sim->retained++;
        *context = sim;
    }
    spw__mutex_unlock(&sim->lock);
    return result;
}

spw__cu_result spw__sim_primary_ctx_release(spw__cu_device device)
{
    struct CUctx_st *sim = find_device(device);
    if (!sim)
        return SPW__CU_ERROR_INVALID_DEVICE;
    spw__mutex_lock(&sim->lock);
    const bool was_retained = sim->retained > 0;
    sim->retained -= was_retained;
    spw__mutex_unlock(&sim->lock);
    return was_retained ? SPW__CU_SUCCESS : SPW__CU_ERROR_INVALID_CONTEXT;
}

spw__cu_result spw__sim_ctx_get_current(spw__cu_context *context)
{
    *context = n_contexts ? contexts[n_contexts - 1] : NULL;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_ctx_push_current(spw__cu_context context)
{
    if (!context)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    if (n_contexts == CONTEXTS_MAX)
        return SPW__CU_ERROR_OUT_OF_MEMORY;
    contexts[n_contexts++] = context;
    return SPW__CU_SUCCESS;
}

spw__cu_result spw__sim_ctx_pop_current(spw__cu_context *context)
{
    if (n_contexts == 0)
        return SPW__CU_ERROR_INVALID_CONTEXT;
    *context = contexts[--n_contexts];
    return SPW__CU_SUCCESS;
}

/* Counted when nobody uses the device any more. */
static long count_left(const struct CUctx_st *sim)
{
    long left = (long)sim->retained + atomic_load(&sim->events);
    for (const struct spw__sim_range *range = sim->allocations; range; range = range->next)
        left++;
    for (const struct spw__sim_range *range = sim->registrations; range; range = range->next)
        left++;
    for (const struct CUstream_st *stream = sim->streams; stream; stream = stream->next)
        left += stream != sim->default_stream;
    for (const struct spw__sim_reservation *at = sim->vmm.reservations; at; at = at->next)
        left++;
    for (const struct spw__sim_physical *at = sim->vmm.physicals; at; at = at->next)
        left++;
    return left;
}

static void destroy(struct CUctx_st *sim)
{
    spw__sim_streams_finish(sim);
    spw__sim_pacing_finish(sim);
    spw__sim_memory_finish(sim);
    spw__cond_finish(&sim->progress);
    spw__mutex_finish(&sim->lock);
    free(sim);
}

/* A seed of the environment makes every device of a test run adversarial. One that is passed over in silence would let
 * that run prove nothing. */
static int find_seed(const struct spw__sim_config *config, uint64_t *seed)
{
    const char *text = config->seed == 0 ? getenv("SPILLWAY_SIM_SEED") : NULL;
    char *end = NULL;
    *seed = config->seed;
    if (!text || !*text)
        return 0;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno != 0 || *seed == UINT64_MAX)
        return spw__fail(SPW_ESPEC, "SPILLWAY_SIM_SEED: expected a seed, a number from 1 to below 2^64 - 1 (0 or not "
                                    "set: none), found \"%.40s\"", text);
    return 0;
}

int spw__driver_sim_add(const struct spw__sim_config *config, const struct spw__driver **out, spw__cu_device *device)
{
    int slot = 0;
    uint64_t seed;
    const int rc = find_seed(config, &seed);
    if (rc != 0)
        return rc;
    struct CUctx_st *sim = calloc(1, sizeof *sim);
    if (!sim)
        return spw__fail(SPW_ENOMEM, "no host memory for a simulated device");
    spw__mutex_init(&sim->lock, SPW__RANK_DEVICE);
    spw__cond_init(&sim->progress);
    spw__sim_schedule_init(sim, seed);
    spw__sim_pacing_init(sim, config);
    sim->capacity = config->capacity_bytes;
    if (spw__sim_memory_init(sim) != 0) {
        destroy(sim);
        return spw__fail(SPW_ENOMEM, "no address space for a simulated device of %llu bytes",
                         (unsigned long long)config->capacity_bytes);
    }
    (void)pthread_mutex_lock(&devices_lock);
    while (slot < DEVICES_MAX && devices[slot])
        slot++;
    if (slot < DEVICES_MAX) {
        sim->ordinal = slot;
        devices[slot] = sim;
    }
    (void)pthread_mutex_unlock(&devices_lock);
    if (slot == DEVICES_MAX) {
        destroy(sim);
        return spw__fail(SPW_ENOMEM, "this process has %d simulated devices already", DEVICES_MAX);
    }
    *out = &spw__sim_table;
    *device = slot;
    return 0;
}

void spw__driver_sim_remove(spw__cu_device device)
{
    struct CUctx_st *sim = find_device(device);
    if (!sim)
        return;
    (void)pthread_mutex_lock(&devices_lock);
    devices[device] = NULL;
    (void)pthread_mutex_unlock(&devices_lock);
    (void)atomic_fetch_add(&left_behind, count_left(sim));
    destroy(sim);
}

long spw__sim_left_behind(void)
{
    return atomic_load(&left_behind);
}

void *spw__sim_host_pointer(uint64_t address)
{
    void *host = NULL;
    for (spw__cu_device device = 0; device < DEVICES_MAX && !host; device++) {
        struct CUctx_st *sim = find_device(device);
        if (!sim)
            continue;
        spw__mutex_lock(&sim->lock);
        host = spw__sim_translate_locked(sim, address, 1);
        spw__mutex_unlock(&sim->lock);
    }
    return host;
}
