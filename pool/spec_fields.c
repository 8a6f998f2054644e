/* Parts given as fields of a spw_spec instead of text: checked like parsed ones, and laid over them.
 * Neighbours: spec.c (text), spec_model.c, spec_keys.h. */
#include <stdbool.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/spec_keys.h"
#include "pool/spec_model.h"

static int check_pools(const spw_spec *fields, unsigned tier)
{
    uint64_t total = 0;
    if (fields->n_pools[tier] > SPW_SPEC_POOLS_MAX)
        return spw__fail(SPW_EINVAL, "options.fields: %u pools in %s: at most %u", fields->n_pools[tier],
                         spw_tier_name((spw_tier)tier), SPW_SPEC_POOLS_MAX);
    for (uint32_t i = 0; i < fields->n_pools[tier]; i++) {
        const spw_spec_pool *pool = &fields->pools[tier][i];
        if (pool->size_bytes < SPW__SPEC_POOL_MIN || pool->limit_bytes > pool->size_bytes ||
            pool->limit_bytes > SPW__SPEC_LIMIT_MAX ||
            (pool->limit_bytes != 0 && pool->limit_bytes < SPW__SPEC_POOL_MIN))
            return spw__fail(SPW_EINVAL, "options.fields: pool %u of %s: a pool has 1024 bytes or more, and a limit of "
                                         "0 or from 1024 to its size and to 2 GiB", i, spw_tier_name((spw_tier)tier));
        if (__builtin_add_overflow(total, pool->size_bytes, &total) || total == UINT64_MAX)
            return spw__fail(SPW_EINVAL, "options.fields: the pools of %s are 2^64 bytes or more together",
                             spw_tier_name((spw_tier)tier));
    }
    return SPW_OK;
}

/* A value of the field behind key, in the bounds that its text has. -1 is "default" where 0 says something. */
static int check_value(const spw_spec *fields, const struct spw__spec_key *key)
{
    const char *field = (const char *)fields + key->field;
    const bool has_default = key->section == SPW__SPEC_THREADS || key->section == SPW__SPEC_VERIFY ||
                             key->section == SPW__SPEC_NUMA || key->section == SPW__SPEC_HEADROOM;
    uint64_t bytes;
    int32_t number;
    switch (key->kind) {
    case SPW__SPEC_KIND_BYTES:
        memcpy(&bytes, field, sizeof bytes);
        if (bytes == UINT64_MAX)
            return spw__fail(SPW_EINVAL, "options.fields: %s is 2^64 - 1 bytes; it is less", key->name);
        break;
    case SPW__SPEC_KIND_DRIVER:
    case SPW__SPEC_KIND_NUMBER:
    case SPW__SPEC_KIND_CHOICE:
        memcpy(&number, field, sizeof number);
        if ((uint32_t)number > key->max && !(has_default && number == -1))
            return spw__fail(SPW_EINVAL, "options.fields: %s is %d; expected %s%s", key->name, number, key->expected,
                             has_default ? ", or -1 for the default" : "");
        if (key->kind == SPW__SPEC_KIND_DRIVER && fields->sim_seed && fields->driver != SPW_DRIVER_SIM)
            return spw__fail(SPW_EINVAL, "options.fields: sim_seed is set, and driver is not SPW_DRIVER_SIM");
        break;
    case SPW__SPEC_KIND_MODEL:
        if (fields->model.latency_ns > SPW__SPEC_LATENCY_MAX_NS)
            return spw__fail(SPW_EINVAL, "options.fields: model.latency_ns is more than a second");
        break;
    case SPW__SPEC_KIND_POOLS:
    case SPW__SPEC_KIND_FOLDERS: break;
    }
    return SPW_OK;
}

static int check_fields(const spw_spec *fields)
{
    int rc = SPW_OK;
    for (unsigned tier = 0; rc == SPW_OK && tier < 3; tier++)
        rc = check_pools(fields, tier);
    if (rc != SPW_OK)
        return rc;
    if (fields->n_folders > SPW_SPEC_FOLDERS_MAX)
        return spw__fail(SPW_EINVAL, "options.fields: %u spill folders: at most %u", fields->n_folders,
                         SPW_SPEC_FOLDERS_MAX);
    for (uint32_t i = 0; i < fields->n_folders; i++)
        if (!fields->folders[i].path || fields->folders[i].path_length == 0 ||
            fields->folders[i].quota_bytes == UINT64_MAX)
            return spw__fail(SPW_EINVAL, "options.fields: spill folder %u has no path, or a quota of 2^64 - 1 bytes",
                             i);
    for (unsigned i = 0; rc == SPW_OK && i < SPW__SPEC_N_KEYS; i++)
        rc = check_value(fields, &spw__spec_keys[i]);
    return rc;
}

/* True when the field behind key says something other than "default". */
static bool is_set(const spw_spec *fields, const struct spw__spec_key *key)
{
    const char *field = (const char *)fields + key->field;
    uint64_t bytes;
    int32_t number;
    switch (key->kind) {
    case SPW__SPEC_KIND_POOLS: return fields->n_pools[key->field] != 0;
    case SPW__SPEC_KIND_FOLDERS: return fields->n_folders != 0;
    case SPW__SPEC_KIND_BYTES: memcpy(&bytes, field, sizeof bytes); return bytes != 0;
    case SPW__SPEC_KIND_DRIVER:
    case SPW__SPEC_KIND_CHOICE: memcpy(&number, field, sizeof number); return number != 0;
    case SPW__SPEC_KIND_MODEL: return spw__spec_has_model(fields);
    case SPW__SPEC_KIND_NUMBER:
        memcpy(&number, field, sizeof number);
        /* device_id and io_threads have 0 for "default"; threads, verify, numa_node and headroom_percent have -1. */
        return key->section == SPW__SPEC_DEVICE_ID || key->section == SPW__SPEC_IO_THREADS ? number != 0 : number >= 0;
    }
    return false;
}

static void copy_part(spw_spec *spec, const spw_spec *fields, const struct spw__spec_key *key)
{
    switch (key->kind) {
    case SPW__SPEC_KIND_POOLS:
        memcpy(spec->pools[key->field], fields->pools[key->field], sizeof spec->pools[key->field]);
        spec->n_pools[key->field] = fields->n_pools[key->field];
        break;
    case SPW__SPEC_KIND_FOLDERS:
        memcpy(spec->folders, fields->folders, sizeof spec->folders);
        spec->n_folders = fields->n_folders;
        break;
    case SPW__SPEC_KIND_BYTES:
        memcpy((char *)spec + key->field, (const char *)fields + key->field, sizeof(uint64_t));
        break;
    case SPW__SPEC_KIND_DRIVER:
        spec->driver = fields->driver;
        spec->sim_seed = fields->sim_seed;
        break;
    case SPW__SPEC_KIND_MODEL: spec->model = fields->model; break;
    case SPW__SPEC_KIND_NUMBER:
    case SPW__SPEC_KIND_CHOICE:
        memcpy((char *)spec + key->field, (const char *)fields + key->field, sizeof(uint32_t));
        break;
    }
}

int spw__spec_fields(spw_spec *spec, uint32_t *named, const spw_spec *fields)
{
    spw_spec taken;
    int rc = spw__spec_take(&taken, fields, "options.fields");
    fields = &taken;
    if (rc == SPW_OK)
        rc = check_fields(fields);
    if (rc != SPW_OK)
        return rc;
    for (const struct spw__spec_key *key = spw__spec_keys; key < spw__spec_keys + SPW__SPEC_N_KEYS; key++)
        if (is_set(fields, key)) {
            copy_part(spec, fields, key);
            *named |= SPW__SPEC_BIT(key->section);
        }
    return SPW_OK;
}
