/* The configuration string, parsed without a manager and without allocating.
 *
 * A bare string ("10737418240,2147483648:2097152") is a value of Ascend DataFlow's ge.flowGraphMemMaxSize: it sets up
 * the pools of the device tier and is held to that system's documented rules, with the one difference that limits are
 * kept to the byte (upstream truncates to KiB). A string with "=" in it is a list of sections:
 *
 *     device=10G,2G:20M,1G:2M; pinned=64G,4G:2M; host=128G; disk=/nvme0/spill:500G,/nvme1/spill:500G; driver=auto
 *
 * docs/spec.md has the grammar and a table of every key, unit and default.
 *
 * Threads: all calls are pure functions of their arguments (and the calling thread's error detail): any thread, none
 * blocks or allocates, and a spw_spec that nobody writes may be read by many.
 * Ownership: a spw_spec is a plain value; folder paths point into the string that was parsed, which must outlive it.
 */
#ifndef SPILLWAY_SPEC_H
#define SPILLWAY_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/export.h>
#include <spillway/place.h>

SPW_BEGIN_DECLS

#define SPW_SPEC_POOLS_MAX 128u  /* pools of one tier */
#define SPW_SPEC_FOLDERS_MAX 16u /* spill folders */

/* A part of a tier's memory, with an upper limit on the size of a request. */
typedef struct spw_spec_pool {
    uint64_t size_bytes;
    uint64_t limit_bytes; /* 0: unlimited */
} spw_spec_pool;

/* A spill folder. The path is not terminated: it lies in the parsed string. */
typedef struct spw_spec_folder {
    const char *path;
    size_t path_length;
    uint64_t quota_bytes; /* 0: whatever the file system has free */
} spw_spec_folder;

typedef enum spw_driver_kind { SPW_DRIVER_AUTO = 0, SPW_DRIVER_CUDA = 1, SPW_DRIVER_SIM = 2 } spw_driver_kind;
typedef enum spw_io_kind { SPW_IO_AUTO = 0, SPW_IO_URING = 1, SPW_IO_THREADS = 2 } spw_io_kind;
typedef enum spw_placement { SPW_PLACEMENT_AUTO = 0, SPW_PLACEMENT_ADDRESS = 1 } spw_placement;

/* How device pools get their memory: all of it at create in one allocation a pool, or mapped as it is needed. */
typedef enum spw_grow { SPW_GROW_PLAIN = 0, SPW_GROW_VMM = 1 } spw_grow;

/* What the simulated device is like; all zero: memory for its pools, and copies as fast as the machine makes them.
 * Figures are after the division by a scale. */
typedef struct spw_device_model {
    uint64_t memory_bytes;       /* 0: what the pools need */
    uint64_t h2d_bytes_per_s;    /* to the device; 0, as below: without limit */
    uint64_t d2h_bytes_per_s;    /* from the device */
    uint64_t d2d_bytes_per_s;    /* within the device */
    uint64_t duplex_bytes_per_s; /* to and from it together while both run; 0: neither slows the other */
    uint64_t latency_ns;         /* of each copy; at most 10^9 */
} spw_device_model;

/* A parsed configuration. A tier that the string does not name has no pools. */
typedef struct spw_spec {
    size_t struct_size;
    spw_spec_pool pools[3][SPW_SPEC_POOLS_MAX]; /* indexed by spw_tier: device, pinned_host, host */
    uint32_t n_pools[3];
    spw_spec_folder folders[SPW_SPEC_FOLDERS_MAX];
    uint32_t n_folders;
    uint64_t meta_bytes;    /* 0: default */
    uint64_t staging_bytes; /* 0: default */
    uint64_t piece_bytes;   /* 0: default */
    uint32_t device_id;
    uint32_t io_threads;    /* 0: default */
    int threads;            /* -1: default; 0: the engine drives everything with spw_progress; 1: one mover thread */
    int verify;             /* -1: default (on); 0 off; 1 on */
    spw_driver_kind driver;
    spw_io_kind io;
    spw_placement placement;
    int numa_node;          /* -1: default (wherever the system puts it); where host and pinned memory shall lie */
    int headroom_percent;   /* -1: default; 0: off; 1 to 50: of pinned_host and host each, what spilling in the
                               background keeps free once admissions have found too little */
    spw_grow grow;
    uint64_t sim_seed;      /* of the simulated device's adversarial schedule, which gives streams their turns as late
                               and as interleaved as the API permits; 0: none */
    spw_device_model model;
} spw_spec;

/* Gives the spec that stands for no string at all: one device pool of 10 GiB without a limit (origin: the default of
 * ge.flowGraphMemMaxSize), every other field at its default, in a struct of size bytes. Never fails. Since 0.1. */
SPW_API void spw_spec_init_sized(spw_spec *spec, size_t size);

/* Gives a spec that names nothing: no pools, no folders, every field at its default. To set parts by hand, for
 * spw_options.fields. Never fails. Since 0.1. */
SPW_API void spw_spec_init_empty_sized(spw_spec *spec, size_t size);

/* Parses a whole string into a spec of size bytes. string NULL gives spw_spec_init's result; an empty string is an
 * error. On error *spec is untouched, the code is SPW_ESPEC, and spw_error_detail() has the byte offset and what was
 * expected there; SPW_EINVAL when spec is NULL or size is no size of a spw_spec. Does not block, does not allocate.
 * Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_spec_parse_sized(const char *string, spw_spec *spec, size_t size);

/* The same for a spw_spec of the program's own header. Since 0.1. */
static inline void spw_spec_init(spw_spec *spec)
{
    spw_spec_init_sized(spec, sizeof *spec);
}

static inline void spw_spec_init_empty(spw_spec *spec)
{
    spw_spec_init_empty_sized(spec, sizeof *spec);
}

SPW_MUST_CHECK static inline int spw_spec_parse(const char *string, spw_spec *spec)
{
    return spw_spec_parse_sized(string, spec, sizeof *spec);
}

/* Writes the canonical sectioned form of spec, which parses back to an equal spec, into buf (always terminated when
 * size > 0). Returns the length without the terminator, as snprintf does; a result >= size means it was cut. 0, with
 * SPW_EINVAL as the thread's detail, for a spec that was not initialised or has fields of a newer version. Does not
 * block, does not allocate. Since 0.1. */
SPW_API size_t spw_spec_format(const spw_spec *spec, char *buf, size_t size);

/* Writes the order in which the pools of tier are asked for a request of bytes: the smallest limit that holds the
 * request first, then upward, ties in the order written, unlimited last; never a pool whose limit is below bytes.
 * order must have room for SPW_SPEC_POOLS_MAX entries. Returns how many were written; 0 means the request can never
 * fit ("too big"), or that tier is no memory tier. Since 0.1. */
SPW_API size_t spw_spec_route(const spw_spec *spec, spw_tier tier, uint64_t bytes, uint32_t *order);

SPW_END_DECLS

#endif
