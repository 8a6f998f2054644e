/* The configuration grammar: from text to spw_spec. docs/spec.md describes it.
 *
 * One cursor walks the text once; every failure names the byte it stopped at and what would have been right there.
 * Neighbours: spec_cursor.c (characters, numbers, errors), spec_model.c (the value of model=), spec_keys.h (the table
 * of keys), spec_format.c (from spw_spec to text, and routing).
 */
#include "pool/spec.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/base/sized.h"
#include "pool/spec_cursor.h"
#include "pool/spec_keys.h"
#include "pool/spec_model.h"

/* The upper bounds of ge.flowGraphMemMaxSize, as documented, which sections do not have. */
#define BARE_MAX (UINT64_C(256) << 30) /* of one pool, and of all together */
#define POOL_DEFAULT (UINT64_C(10) << 30)

#define POOLS(tier) SPW__SPEC_KIND_POOLS, SPW__SPEC_##tier, SPW_TIER_##tier, 0, NULL, NULL
#define BYTES(section, name) SPW__SPEC_KIND_BYTES, SPW__SPEC_##section, offsetof(spw_spec, name), 0, NULL, NULL
#define NUMBER(section, name, max)                                                                                     \
    SPW__SPEC_KIND_NUMBER, SPW__SPEC_##section, offsetof(spw_spec, name), max, NULL, "a number from 0 to " #max
#define CHOICE(section, name, max, text, ...)                                                                          \
    SPW__SPEC_KIND_CHOICE, SPW__SPEC_##section, offsetof(spw_spec, name), max, (const char *const[]){__VA_ARGS__}, text

const struct spw__spec_key spw__spec_keys[SPW__SPEC_N_KEYS] = {
    {"device", POOLS(DEVICE)},
    {"device_id", NUMBER(DEVICE_ID, device_id, 255)},
    {"pinned", POOLS(PINNED_HOST)},
    {"pinned_host", POOLS(PINNED_HOST)},
    {"host", POOLS(HOST)},
    {"disk", SPW__SPEC_KIND_FOLDERS, SPW__SPEC_DISK, 0, 0, NULL, NULL},
    {"meta", BYTES(META, meta_bytes)},
    {"staging", BYTES(STAGING, staging_bytes)},
    {"piece", BYTES(PIECE, piece_bytes)},
    {"driver", SPW__SPEC_KIND_DRIVER, SPW__SPEC_DRIVER, offsetof(spw_spec, driver), 2,
     (const char *const[]){"auto", "cuda", "sim"}, "auto, cuda or sim"},
    {"model", SPW__SPEC_KIND_MODEL, SPW__SPEC_MODEL, offsetof(spw_spec, model), 0, NULL, NULL},
    {"grow", CHOICE(GROW, grow, 1, "plain or vmm", "plain", "vmm")},
    {"io", CHOICE(IO, io, 2, "auto, uring or threads", "auto", "uring", "threads")},
    {"io_threads", NUMBER(IO_THREADS, io_threads, 256)},
    {"threads", NUMBER(THREADS, threads, 1)},
    {"verify", NUMBER(VERIFY, verify, 1)},
    {"placement", CHOICE(PLACEMENT, placement, 1, "auto or address", "auto", "address")},
    {"numa", NUMBER(NUMA, numa_node, 1023)},
    {"headroom", NUMBER(HEADROOM, headroom_percent, 50)},
};
_Static_assert(sizeof(int) == 4 && sizeof(spw_driver_kind) == 4 && sizeof(spw_io_kind) == 4 &&
                   sizeof(spw_placement) == 4,
               "fields of NUMBER and CHOICE are stored as 32 bits");

/* Pools */

static int parse_limit(struct spw__spec_cursor *c, bool bare, spw_spec_pool *pool)
{
    const char *const where = c->p;
    const uint64_t size = pool->size_bytes;
    uint64_t *const limit = &pool->limit_bytes;
    if (!spw__spec_take_number(c, !bare, limit))
        return spw__spec_expected(c, where, "a limit in bytes");
    const int rc = spw__spec_end_number(c, !bare, ",");
    if (rc != SPW_OK)
        return rc;
    if (*limit != 0 && (*limit < SPW__SPEC_POOL_MIN || *limit > SPW__SPEC_LIMIT_MAX))
        return spw__spec_expected(c, where, "a limit of 0 (unlimited) or from 1024 to 2147483648 bytes");
    if (*limit > size)
        return spw__spec_fail_at(c, where, "expected a limit of at most the size of its pool, %" PRIu64
                                           " bytes, found %" PRIu64, size, *limit);
    return SPW_OK;
}

static int parse_pool(struct spw__spec_cursor *c, bool bare, uint64_t *total, spw_spec_pool *pool)
{
    const uint64_t max = bare ? BARE_MAX : UINT64_MAX - 1;
    const char *const where = c->p;
    pool->limit_bytes = 0;
    if (!spw__spec_take_number(c, !bare, &pool->size_bytes))
        return spw__spec_expected(c, where, bare ? "a pool size in bytes" : "a pool size, such as 10G");
    const int rc = spw__spec_end_number(c, !bare, ":,");
    if (rc != SPW_OK)
        return rc;
    if (pool->size_bytes < SPW__SPEC_POOL_MIN || pool->size_bytes > max)
        return spw__spec_expected(c, where, bare ? "a pool size from 1024 to 274877906944 bytes"
                                                 : "a pool size from 1024 bytes to below 2^64");
    if (pool->size_bytes > max - *total)
        return spw__spec_expected(c, where, bare ? "pools of at most 274877906944 bytes together"
                                                 : "pools of less than 2^64 bytes together");
    *total += pool->size_bytes;
    return spw__spec_take_char(c, ':') ? parse_limit(c, bare, pool) : SPW_OK;
}

static int parse_pools(struct spw__spec_cursor *c, bool bare, spw_spec *spec, size_t tier)
{
    uint64_t total = 0;
    uint32_t n = 0;
    if (!bare && c->end - c->p == 1 && spw__spec_take_char(c, '0')) {
        spec->n_pools[tier] = 0;
        return SPW_OK;
    }
    do {
        if (n == SPW_SPEC_POOLS_MAX)
            return spw__spec_expected(c, c->p, "at most 128 pools");
        const int rc = parse_pool(c, bare, &total, &spec->pools[tier][n]);
        if (rc != SPW_OK)
            return rc;
        n++;
    } while (spw__spec_take_char(c, ','));
    spec->n_pools[tier] = n;
    return SPW_OK;
}

/* Folders */

/* What follows the last ':' is a quota if it begins like one; that a wrong quota should silently become a part of the
 * folder's name is the one thing to prevent. */
static int parse_folder(struct spw__spec_cursor *c, const char *end, spw_spec_folder *folder)
{
    const char *const start = c->p;
    const char *const colon = memrchr(start, ':', (size_t)(end - start));
    const bool quota = colon && (colon + 1 == end || isdigit((unsigned char)colon[1]));
    const char *const path_end = quota ? colon : end;
    if (path_end == start)
        return spw__spec_expected(c, start, "a folder");
    for (; c->p < path_end; c->p++)
        if ((unsigned char)*c->p <= ' ' || *c->p == 0x7f)
            return spw__spec_expected(c, c->p, "a folder's name without spaces");
    *folder = (spw_spec_folder){start, (size_t)(path_end - start), 0};
    if (!quota)
        return SPW_OK;
    c->p = colon + 1;
    if (!spw__spec_take_number(c, true, &folder->quota_bytes) || folder->quota_bytes == UINT64_MAX)
        return spw__spec_expected(c, colon + 1, "a quota, such as 500G (0: no quota)");
    if (c->p != end)
        return spw__spec_expected(c, c->p, "the end of the quota (a folder whose own name has this form is followed by "
                                           ":0)");
    return SPW_OK;
}

static int parse_folders(struct spw__spec_cursor *c, spw_spec *spec)
{
    uint32_t n = 0;
    if (c->end - c->p == 1 && spw__spec_take_char(c, '0')) {
        spec->n_folders = 0;
        return SPW_OK;
    }
    do {
        const char *comma = memchr(c->p, ',', (size_t)(c->end - c->p));
        if (n == SPW_SPEC_FOLDERS_MAX)
            return spw__spec_expected(c, c->p, "at most 16 folders");
        const int rc = parse_folder(c, comma ? comma : c->end, &spec->folders[n]);
        if (rc != SPW_OK)
            return rc;
        n++;
    } while (spw__spec_take_char(c, ','));
    spec->n_folders = n;
    return SPW_OK;
}

/* Values and sections */

static int parse_bytes(struct spw__spec_cursor *c, uint64_t *out)
{
    const char *const where = c->p;
    if (!spw__spec_take_number(c, true, out))
        return spw__spec_expected(c, where, "a size, such as 64M");
    const int rc = spw__spec_end_number(c, true, "");
    if (rc == SPW_OK && *out == UINT64_MAX)
        return spw__spec_expected(c, where, "a size below 2^64 bytes");
    return rc;
}

static int parse_number(struct spw__spec_cursor *c, const struct spw__spec_key *key, uint32_t *out)
{
    const char *const where = c->p;
    uint64_t number;
    if (!spw__spec_take_number(c, false, &number))
        return spw__spec_expected(c, where, key->expected);
    const int rc = spw__spec_end_number(c, false, "");
    if (rc == SPW_OK && number > key->max)
        return spw__spec_expected(c, where, key->expected);
    *out = (uint32_t)number;
    return rc;
}

static int parse_choice(struct spw__spec_cursor *c, const struct spw__spec_key *key, uint32_t *out)
{
    const size_t length = (size_t)(c->end - c->p);
    for (*out = 0; *out <= key->max; ++*out)
        if (strlen(key->words[*out]) == length && memcmp(key->words[*out], c->p, length) == 0) {
            c->p = c->end;
            return SPW_OK;
        }
    return spw__spec_expected(c, c->p, key->expected);
}

/* auto, cuda, sim, or sim:SEED. */
static int parse_driver(struct spw__spec_cursor *c, const struct spw__spec_key *key, spw_spec *spec)
{
    const char *const end = c->end;
    const char *const colon = c->p == end ? NULL : memchr(c->p + 1, ':', (size_t)(end - c->p) - 1);
    uint32_t driver;
    if (colon)
        c->end = colon;
    const int rc = parse_choice(c, key, &driver);
    c->end = end;
    if (rc != SPW_OK)
        return rc;
    spec->driver = (spw_driver_kind)driver;
    if (!colon)
        return SPW_OK;
    if (driver != SPW_DRIVER_SIM)
        return spw__spec_expected(c, colon, "the end, as only sim has a seed (driver=sim:SEED)");
    const char *const where = ++c->p;
    if (!spw__spec_take_number(c, false, &spec->sim_seed) || c->p != end || spec->sim_seed == 0 ||
        spec->sim_seed == UINT64_MAX)
        return spw__spec_expected(c, where, "a seed, a number from 1 to below 2^64 - 1");
    return SPW_OK;
}

static int parse_value(struct spw__spec_cursor *c, const struct spw__spec_key *key, spw_spec *spec)
{
    char *const field = (char *)spec + key->field;
    uint64_t bytes;
    uint32_t number = 0;
    int rc;
    switch (key->kind) {
    case SPW__SPEC_KIND_POOLS: return parse_pools(c, false, spec, key->field);
    case SPW__SPEC_KIND_FOLDERS: return parse_folders(c, spec);
    case SPW__SPEC_KIND_DRIVER: return parse_driver(c, key, spec);
    case SPW__SPEC_KIND_MODEL: return spw__spec_parse_model(c, &spec->model);
    case SPW__SPEC_KIND_BYTES:
        rc = parse_bytes(c, &bytes);
        if (rc == SPW_OK)
            memcpy(field, &bytes, sizeof bytes);
        return rc;
    case SPW__SPEC_KIND_NUMBER:
    case SPW__SPEC_KIND_CHOICE:
        rc = key->kind == SPW__SPEC_KIND_NUMBER ? parse_number(c, key, &number) : parse_choice(c, key, &number);
        if (rc == SPW_OK)
            memcpy(field, &number, sizeof number);
        return rc;
    }
    return SPW_EINVAL;
}

static int parse_key(struct spw__spec_cursor *c, uint32_t named, const struct spw__spec_key **out)
{
    const char *const word = c->p;
    while (c->p < c->end && ((*c->p >= 'a' && *c->p <= 'z') || *c->p == '_'))
        c->p++;
    const size_t length = (size_t)(c->p - word);
    if (length > 0 && !spw__spec_take_char(c, '='))
        return spw__spec_expected(c, c->p, "'='");
    const struct spw__spec_key *key = spw__spec_keys;
    while (key < spw__spec_keys + SPW__SPEC_N_KEYS &&
           (strlen(key->name) != length || memcmp(key->name, word, length) != 0))
        key++;
    if (key == spw__spec_keys + SPW__SPEC_N_KEYS)
        return spw__spec_expected(c, word, "a key (device, device_id, pinned, host, disk, meta, staging, piece, "
                                           "driver, model, grow, io, io_threads, threads, verify, placement, numa, "
                                           "headroom)");
    if (named & SPW__SPEC_BIT(key->section))
        return spw__spec_expected(c, word, "each section once");
    *out = key;
    return SPW_OK;
}

static int parse_sections(struct spw__spec_cursor *c, spw_spec *spec, uint32_t *named)
{
    const char *const text_end = c->end, *model = NULL;
    for (;;) {
        const struct spw__spec_key *key = NULL;
        const char *const where = c->p;
        int rc = parse_key(c, *named, &key);
        if (rc != SPW_OK)
            return rc;
        if (key->kind == SPW__SPEC_KIND_MODEL)
            model = where;
        const char *const semicolon = memchr(c->p, ';', (size_t)(text_end - c->p));
        c->end = semicolon ? semicolon : text_end;
        rc = parse_value(c, key, spec);
        if (rc != SPW_OK)
            return rc;
        *named |= SPW__SPEC_BIT(key->section);
        c->end = text_end;
        if (!spw__spec_take_char(c, ';'))
            break;
        while (spw__spec_take_char(c, ' ')) {
        }
    }
    /* A driver that the string leaves open is known later: spw__spec_check. */
    if (model && (*named & SPW__SPEC_BIT(SPW__SPEC_DRIVER)) && spec->driver != SPW_DRIVER_SIM)
        return spw__spec_fail_at(c, model, "expected driver=sim beside a model, which is of the simulated device, "
                                           "found driver=%s", spec->driver == SPW_DRIVER_CUDA ? "cuda" : "auto");
    return SPW_OK;
}

/* Entry points */

#define FIRST_SIZE SPW__SIZED_FIRST(spw_spec, grow)

static const spw_spec empty = {.struct_size = sizeof(spw_spec), .threads = -1, .verify = -1, .numa_node = -1,
                               .headroom_percent = -1};
static const spw_spec no_string = {.struct_size = sizeof(spw_spec), .threads = -1, .verify = -1, .numa_node = -1,
                                   .headroom_percent = -1,
                                   .pools = {[SPW_TIER_DEVICE] = {{.size_bytes = POOL_DEFAULT}}},
                                   .n_pools = {[SPW_TIER_DEVICE] = 1}};

void spw_spec_init_sized(spw_spec *spec, size_t size)
{
    spw__sized_give(spec, size, &no_string);
}

void spw_spec_init_empty_sized(spw_spec *spec, size_t size)
{
    spw__sized_give(spec, size, &empty);
}

int spw__spec_take(spw_spec *spec, const spw_spec *given, const char *what)
{
    *spec = empty;
    return spw__sized_take(spec, FIRST_SIZE, given, what);
}

int spw__spec_parse(const char *string, spw_spec *spec, uint32_t *named)
{
    spw_spec parsed;
    uint32_t seen = 0;
    int rc = SPW_OK;
    parsed = no_string;
    if (string) {
        struct spw__spec_cursor c = {string, string, string + strlen(string), NULL};
        if (c.p == c.end)
            return spw__spec_fail_at(&c, c.p, "expected a pool size in bytes or a section, found an empty string");
        parsed = empty;
        if (strchr(string, '=')) {
            rc = parse_sections(&c, &parsed, &seen);
        } else {
            rc = parse_pools(&c, true, &parsed, SPW_TIER_DEVICE);
            seen = SPW__SPEC_BIT(SPW__SPEC_DEVICE);
        }
    }
    if (rc != SPW_OK)
        return rc;
    *spec = parsed;
    *named = seen;
    return SPW_OK;
}

int spw_spec_parse_sized(const char *string, spw_spec *spec, size_t size)
{
    spw_spec parsed;
    uint32_t named;
    if (!spec || size < FIRST_SIZE)
        return spw__fail(SPW_EINVAL, "spw_spec_parse: spec is NULL, or %zu bytes are no spw_spec", size);
    const int rc = spw__spec_parse(string, &parsed, &named);
    if (rc != SPW_OK)
        return rc;
    if (size < sizeof parsed && memcmp((char *)&parsed + size, (const char *)&empty + size, sizeof parsed - size) != 0)
        return spw__fail(SPW_EINVAL, "spw_spec_parse: the string sets what a spw_spec of %zu bytes has no field for; "
                                     "build the program with a newer <spillway/spec.h>", size);
    spw__sized_give(spec, size, &parsed);
    return SPW_OK;
}

int spw__spec_environment(spw_spec *spec, uint32_t *named, char *(*get)(const char *name))
{
    spw_spec parsed = *spec;
    uint32_t seen = *named;
    for (const struct spw__spec_key *key = spw__spec_keys; key < spw__spec_keys + SPW__SPEC_N_KEYS; key++) {
        char name[32] = "SPILLWAY_";
        if (seen & SPW__SPEC_BIT(key->section))
            continue;
        for (size_t i = 0, n = strlen(name); key->name[i]; i++)
            name[n + i] = (char)toupper((unsigned char)key->name[i]);
        const char *const value = get(name);
        if (!value || !*value)
            continue;
        struct spw__spec_cursor c = {value, value, value + strlen(value), name};
        const int rc = parse_value(&c, key, &parsed);
        if (rc != SPW_OK)
            return rc;
        seen |= SPW__SPEC_BIT(key->section);
    }
    *spec = parsed;
    *named = seen;
    return SPW_OK;
}
