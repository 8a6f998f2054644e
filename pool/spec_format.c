/* The other uses of a spw_spec: writing it back as text, and routing a request to its pools.
 *
 * Neighbours: spec.c (parsing), spec_model.c (the parts of a model), spec_keys.h (the table of keys).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/spec_keys.h"
#include "pool/spec_model.h"

/* Text so far: what does not fit is counted all the same. */
struct text {
    char *buf;
    size_t size;
    size_t length;
};

static void put(struct text *text, const char *format, ...) SPW_PRINTF(2, 3);

static void put(struct text *text, const char *format, ...)
{
    const size_t room = text->length < text->size ? text->size - text->length : 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room ? text->buf + text->length : NULL, room, format, args);
    va_end(args);
    text->length += n > 0 ? (size_t)n : 0;
}

/* The shortest exact form: 10G, 1025. */
static void put_size(struct text *text, uint64_t bytes)
{
    unsigned unit = 0;
    while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    put(text, "%" PRIu64 "%.*s", bytes, unit ? 1 : 0, &"-KMGT"[unit]);
}

static void put_pools(struct text *text, const spw_spec *spec, size_t tier)
{
    if (spec->n_pools[tier] == 0)
        put(text, "0");
    for (uint32_t i = 0; i < spec->n_pools[tier]; i++) {
        if (i)
            put(text, ",");
        put_size(text, spec->pools[tier][i].size_bytes);
        if (spec->pools[tier][i].limit_bytes) {
            put(text, ":");
            put_size(text, spec->pools[tier][i].limit_bytes);
        }
    }
}

static void put_folders(struct text *text, const spw_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_folders; i++) {
        const spw_spec_folder *folder = &spec->folders[i];
        put(text, "%s%.*s", i ? "," : "", (int)folder->path_length, folder->path);
        /* A zero quota is written where the name alone would be read as something else. */
        if (folder->quota_bytes || memchr(folder->path, ':', folder->path_length) ||
            (folder->path_length == 1 && *folder->path == '0')) {
            put(text, ":");
            put_size(text, folder->quota_bytes);
        }
    }
}

/* Only what is not at its default, so that nothing is left to divide. */
static void put_model(struct text *text, const spw_device_model *model)
{
    const char *separator = "";
    for (const struct spw__spec_part *part = spw__spec_parts; part->name; part++) {
        uint64_t value;
        memcpy(&value, (const char *)model + part->field, sizeof value);
        if (value == 0)
            continue;
        put(text, "%s%s:", separator, part->name);
        if (part->kind == SPW__SPEC_PART_LATENCY)
            put(text, "%" PRIu64 "%s", value % 1000 ? value : value / 1000, value % 1000 ? "ns" : "us");
        else
            put_size(text, value);
        separator = ",";
    }
}

/* Whether a field holds something else than its default. */
static bool differs(const struct spw__spec_key *key, const spw_spec *spec, const spw_spec *defaults)
{
    const size_t size = key->kind == SPW__SPEC_KIND_MODEL   ? sizeof(spw_device_model)
                        : key->kind == SPW__SPEC_KIND_BYTES ? sizeof(uint64_t)
                                                            : sizeof(uint32_t);
    return memcmp((const char *)spec + key->field, (const char *)defaults + key->field, size) != 0;
}

static void put_value(struct text *text, const struct spw__spec_key *key, const spw_spec *spec)
{
    uint64_t bytes;
    uint32_t number;
    switch (key->kind) {
    case SPW__SPEC_KIND_POOLS: put_pools(text, spec, key->field); break;
    case SPW__SPEC_KIND_FOLDERS: put_folders(text, spec); break;
    case SPW__SPEC_KIND_BYTES:
        memcpy(&bytes, (const char *)spec + key->field, sizeof bytes);
        put_size(text, bytes);
        break;
    case SPW__SPEC_KIND_MODEL: put_model(text, &spec->model); break;
    case SPW__SPEC_KIND_DRIVER:
    case SPW__SPEC_KIND_NUMBER:
    case SPW__SPEC_KIND_CHOICE:
        memcpy(&number, (const char *)spec + key->field, sizeof number);
        if (key->kind != SPW__SPEC_KIND_NUMBER && number <= key->max)
            put(text, "%s", key->words[number]);
        else
            put(text, "%" PRIu32, number);
        if (key->kind == SPW__SPEC_KIND_DRIVER && spec->sim_seed)
            put(text, ":%" PRIu64, spec->sim_seed);
        break;
    }
}

/* The device section is always written, so that the text is never empty and always has a "=". */
size_t spw_spec_format(const spw_spec *given, char *buf, size_t size)
{
    struct text text = {buf, buf ? size : 0, 0};
    spw_spec taken, defaults;
    const spw_spec *const spec = &taken;
    uint32_t written = 0;
    if (text.size > 0)
        buf[0] = '\0';
    if (!given)
        (void)spw__fail(SPW_EINVAL, "spw_spec_format: spec is NULL");
    if (!given || spw__spec_take(&taken, given, "spw_spec_format: spec") != SPW_OK)
        return 0;
    spw_spec_init(&defaults);
    for (const struct spw__spec_key *key = spw__spec_keys; key < spw__spec_keys + SPW__SPEC_N_KEYS; key++) {
        bool named;
        switch (key->kind) {
        case SPW__SPEC_KIND_POOLS: named = spec->n_pools[key->field] > 0 || key->section == SPW__SPEC_DEVICE; break;
        case SPW__SPEC_KIND_FOLDERS: named = spec->n_folders > 0; break;
        default: named = differs(key, spec, &defaults); break;
        }
        if (!named || (written & SPW__SPEC_BIT(key->section)))
            continue;
        put(&text, "%s%s=", written ? "; " : "", key->name);
        put_value(&text, key, spec);
        written |= SPW__SPEC_BIT(key->section);
    }
    return text.length;
}

static uint64_t reach(const spw_spec_pool *pool)
{
    return pool->limit_bytes ? pool->limit_bytes : UINT64_MAX;
}

/* It reads only what every version of spw_spec has, and so takes the struct as it is, without a copy of 6 KiB.
 * The limit is compared with the payload alone; heads are charged to meta. An insertion sort keeps ties in the order
 * written. A pool smaller than the request can never hold it, whatever its limit. */
size_t spw_spec_route(const spw_spec *spec, spw_tier tier, uint64_t bytes, uint32_t *order)
{
    size_t n = 0;
    if (!spec || !order || (unsigned)tier > SPW_TIER_HOST)
        return 0;
    const spw_spec_pool *const pools = spec->pools[tier];
    for (uint32_t i = 0; i < spec->n_pools[tier]; i++) {
        if (reach(&pools[i]) < bytes || pools[i].size_bytes < bytes)
            continue;
        size_t at = n++;
        for (; at > 0 && reach(&pools[order[at - 1]]) > reach(&pools[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}
