/* Copies and allocations by CUDA's driver without Spillway: what it is measured against, in the same process and
 * context.
 *
 * The driver is loaded here as the library does it, so that the program also starts where there is none.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc_bench.h"
#include "device_bench.h"

typedef unsigned long long address;

/* The entry points, with the signatures that the exported symbols have had since CUDA 4 (registration: 6.5). */
struct driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int size, int device);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*mem_alloc)(address *at, size_t bytes);
    int (*mem_free)(address at);
    int (*host_alloc)(void **out, size_t bytes); /* NULL: not there */
    int (*host_free)(void *at);
    int (*host_register)(void *at, size_t bytes, unsigned flags);
    int (*host_unregister)(void *at);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*to_device)(address dst, const void *src, size_t bytes, void *stream);
    int (*from_device)(void *dst, address src, size_t bytes, void *stream);
};

struct plain {
    struct driver driver;
    int device;
    void *context, *streams[2];
    size_t bytes;
    char *host;     /* twice bytes: one half each way */
    address memory; /* the same */
    bool allocated;
};

static bool load(struct driver *driver, char why[256])
{
    const struct {
        const char *symbol;
        void *at;
        bool optional;
    } entries[] = {
        {"cuInit", &driver->init, false},
        {"cuDriverGetVersion", &driver->driver_version, false},
        {"cuDeviceGet", &driver->device_get, false},
        {"cuDeviceGetName", &driver->device_name, false},
        {"cuDevicePrimaryCtxRetain", &driver->retain, false},
        {"cuDevicePrimaryCtxRelease_v2", &driver->release, false},
        {"cuCtxPushCurrent_v2", &driver->push, false},
        {"cuCtxPopCurrent_v2", &driver->pop, false},
        {"cuMemAlloc_v2", &driver->mem_alloc, false},
        {"cuMemFree_v2", &driver->mem_free, false},
        {"cuMemAllocHost_v2", &driver->host_alloc, true},
        {"cuMemFreeHost", &driver->host_free, true},
        {"cuMemHostRegister_v2", &driver->host_register, false},
        {"cuMemHostUnregister", &driver->host_unregister, false},
        {"cuStreamCreate", &driver->stream_create, false},
        {"cuStreamDestroy_v2", &driver->stream_destroy, false},
        {"cuStreamSynchronize", &driver->stream_wait, false},
        {"cuMemcpyHtoDAsync_v2", &driver->to_device, false},
        {"cuMemcpyDtoHAsync_v2", &driver->from_device, false},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        (void)snprintf(why, 256, "no CUDA driver: %s", error ? error : "libcuda.so.1 cannot be loaded");
        return false;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = dlsym(library, entries[i].symbol);
        if (!found && !entries[i].optional) {
            (void)snprintf(why, 256, "libcuda.so.1 lacks %s", entries[i].symbol);
            return false;
        }
        memcpy(entries[i].at, &found, sizeof found);
    }
    return true;
}

static void must_be_0(int result, const char *what)
{
    if (result == 0)
        return;
    (void)fprintf(stderr, "bench_device: %s: CUDA error %d\n", what, result);
    exit(1);
}

/* The driver's own pinned memory, or huge pages that it is told of. */
static void take_host(struct plain *plain)
{
    void *at = NULL;
    plain->allocated = plain->driver.host_alloc && plain->driver.host_free;
    if (plain->allocated) {
        must_be_0(plain->driver.host_alloc(&at, 2 * plain->bytes), "cuMemAllocHost");
    } else {
        at = mmap(NULL, 2 * plain->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            must_be_0(2, "mmap");
        (void)madvise(at, 2 * plain->bytes, MADV_HUGEPAGE);
        memset(at, 1, 2 * plain->bytes);
        must_be_0(plain->driver.host_register(at, 2 * plain->bytes, 1), "cuMemHostRegister");
    }
    plain->host = at;
    memset(plain->host, 1, 2 * plain->bytes);
}

bool plain_open(const struct options *options, struct result *result, struct plain **out, char why[256])
{
    struct plain *plain = calloc(1, sizeof *plain);
    if (!plain)
        abort();
    const struct driver *driver = &plain->driver;
    plain->bytes = options->bytes;
    int error = 0;
    if (!load(&plain->driver, why))
        goto fail;
    error = driver->init(0);
    if (error == 0)
        error = driver->device_get(&plain->device, (int)options->device);
    if (error != 0) {
        (void)snprintf(why, 256, "the CUDA driver finds no device %u: error %d", options->device, error);
        goto fail;
    }
    must_be_0(driver->retain(&plain->context, plain->device), "cuDevicePrimaryCtxRetain");
    must_be_0(driver->push(plain->context), "cuCtxPushCurrent");
    must_be_0(driver->driver_version(&result->driver_version), "cuDriverGetVersion");
    must_be_0(driver->device_name(result->device, sizeof result->device, plain->device), "cuDeviceGetName");
    take_host(plain);
    result->allocated = plain->allocated;
    must_be_0(driver->mem_alloc(&plain->memory, 2 * plain->bytes), "cuMemAlloc");
    for (unsigned i = 0; i < 2; i++)
        must_be_0(driver->stream_create(&plain->streams[i], 1), "cuStreamCreate");
    *out = plain;
    return true;
fail:
    free(plain);
    return false;
}

void plain_close(struct plain *plain)
{
    void *popped;
    if (!plain)
        return;
    const struct driver *driver = &plain->driver;
    for (unsigned i = 0; i < 2; i++)
        must_be_0(driver->stream_destroy(plain->streams[i]), "cuStreamDestroy");
    must_be_0(driver->mem_free(plain->memory), "cuMemFree");
    if (plain->allocated) {
        must_be_0(driver->host_free(plain->host), "cuMemFreeHost");
    } else {
        must_be_0(driver->host_unregister(plain->host), "cuMemHostUnregister");
        (void)munmap(plain->host, 2 * plain->bytes);
    }
    must_be_0(driver->pop(&popped), "cuCtxPopCurrent");
    must_be_0(driver->release(plain->device), "cuDevicePrimaryCtxRelease");
    free(plain);
}

/* Bytes to the device, and from it, in pieces, on a stream for each direction; nanoseconds until all are there. */
static double copy(struct plain *plain, size_t to, size_t from)
{
    const struct driver *driver = &plain->driver;
    const double start = now_ns();
    for (size_t at = 0; at < to || at < from; at += PIECE_BYTES) {
        const size_t up = at < to ? to - at : 0, down = at < from ? from - at : 0;
        if (up)
            must_be_0(driver->to_device(plain->memory + at, plain->host + at, up < PIECE_BYTES ? up : PIECE_BYTES,
                                        plain->streams[0]), "cuMemcpyHtoDAsync");
        if (down)
            must_be_0(driver->from_device(plain->host + plain->bytes + at, plain->memory + plain->bytes + at,
                                          down < PIECE_BYTES ? down : PIECE_BYTES, plain->streams[1]),
                      "cuMemcpyDtoHAsync");
    }
    for (unsigned i = 0; i < 2; i++)
        must_be_0(driver->stream_wait(plain->streams[i]), "cuStreamSynchronize");
    return now_ns() - start;
}

static struct figure copies(struct plain *plain, const struct options *options, size_t to, size_t from)
{
    double ns[REPEATS_MAX];
    for (unsigned i = 0; i < options->warm_up; i++)
        (void)copy(plain, to, from);
    for (unsigned i = 0; i < options->repeats; i++)
        ns[i] = copy(plain, to, from);
    return figure_from(ns, options->repeats);
}

void plain_measure(struct plain *plain, const struct options *options, struct costs *times)
{
    double ns[REPEATS_MAX];
    times->h2d = copies(plain, options, options->bytes, 0);
    times->d2h = copies(plain, options, 0, options->bytes);
    times->both = copies(plain, options, options->bytes, options->bytes);
    for (unsigned i = 0; i < RELOADS; i++)
        times->reload[i] = copies(plain, options, reload_bytes[i], 0);
    for (unsigned i = 0; i < options->repeats; i++) {
        address at;
        const double start = now_ns();
        for (unsigned n = 0; n < options->pairs; n++) {
            must_be_0(plain->driver.mem_alloc(&at, MIB), "cuMemAlloc");
            must_be_0(plain->driver.mem_free(at), "cuMemFree");
        }
        ns[i] = (now_ns() - start) / options->pairs;
    }
    times->pair = figure_from(ns, options->repeats);
}
