/* What the rest of the library needs from the configuration grammar beyond <spillway/spec.h>.
 *
 * Threads: any. Ownership: as in <spillway/spec.h>; values of the environment are pointed into as well.
 */
#ifndef SPW_POOL_SPEC_H
#define SPW_POOL_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <spillway/spec.h>

/* A section each; `pinned` and `pinned_host` are one. */
enum spw__spec_section {
    SPW__SPEC_DEVICE,
    SPW__SPEC_DEVICE_ID,
    SPW__SPEC_PINNED_HOST,
    SPW__SPEC_HOST,
    SPW__SPEC_DISK,
    SPW__SPEC_META,
    SPW__SPEC_STAGING,
    SPW__SPEC_PIECE,
    SPW__SPEC_DRIVER,
    SPW__SPEC_IO,
    SPW__SPEC_IO_THREADS,
    SPW__SPEC_THREADS,
    SPW__SPEC_VERIFY,
    SPW__SPEC_PLACEMENT,
    SPW__SPEC_NUMA,
    SPW__SPEC_HEADROOM,
    SPW__SPEC_MODEL,
    SPW__SPEC_GROW,
};

#define SPW__SPEC_BIT(section) (UINT32_C(1) << (section))

/* spw_spec_parse, and in *named a bit for each section that the string names. */
SPW_MUST_CHECK int spw__spec_parse(const char *string, spw_spec *spec, uint32_t *named);

/* Applies SPILLWAY_<KEY> (SPILLWAY_HOST, SPILLWAY_IO_THREADS, ...) for every section that *named lacks, and adds its
 * bit. An empty variable counts as not set. get is secure_getenv, or a test's. On error, which names the variable,
 * *spec and *named are untouched. */
SPW_MUST_CHECK int spw__spec_environment(spw_spec *spec, uint32_t *named, char *(*get)(const char *name));

/* Lays the parts that *fields sets over *spec, and adds their bits. SPW_EINVAL, and nothing changed, when one is out of
 * bounds. */
SPW_MUST_CHECK int spw__spec_fields(spw_spec *spec, uint32_t *named, const spw_spec *fields);

/* What parts contradict each other once all of them are known: a model needs the simulated device, and memory for the
 * device pools that are named. SPW_EINVAL. */
SPW_MUST_CHECK int spw__spec_check(const spw_spec *spec, uint32_t named);

/* What the pools of a memory tier have together. */
uint64_t spw__spec_tier_bytes(const spw_spec *spec, unsigned tier);

/* True if the spec has a model of the simulated device. */
bool spw__spec_has_model(const spw_spec *spec);

/* A caller's spec as this version knows it. SPW_EINVAL, with `what` in the detail. */
SPW_MUST_CHECK int spw__spec_take(spw_spec *spec, const spw_spec *given, const char *what);

#endif
