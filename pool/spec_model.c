/* Models of the simulated device: model=NAME/SCALE, or the figures one by one. docs/spec.md has the grammar,
 * and where the presets' figures come from.
 */
#include "pool/spec_model.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "pool/base/error.h"

#define SCALE_MAX 1048576u
#define GB UINT64_C(1000000000)
#define US UINT64_C(1000)

static const struct preset {
    const char *name;
    spw_device_model model;
} presets[] = {
    {"b200", {180 * GB, 32 * GB, 32 * GB, 4000 * GB, 21 * GB, 10 * US}},
    {"h200", {141 * GB, 64 * GB, 64 * GB, 2400 * GB, 128 * GB, 10 * US}},
    {"gh200-c2c", {96 * GB, 450 * GB, 450 * GB, 2000 * GB, 900 * GB, 10 * US}},
    {"a10-pcie4", {24 * GB, 32 * GB, 32 * GB, 300 * GB, 64 * GB, 10 * US}},
};

const struct spw__spec_part spw__spec_parts[] = {
    {"mem", SPW__SPEC_PART_SIZE, offsetof(spw_device_model, memory_bytes)},
    {"h2d", SPW__SPEC_PART_SIZE, offsetof(spw_device_model, h2d_bytes_per_s)},
    {"d2h", SPW__SPEC_PART_SIZE, offsetof(spw_device_model, d2h_bytes_per_s)},
    {"d2d", SPW__SPEC_PART_SIZE, offsetof(spw_device_model, d2d_bytes_per_s)},
    {"duplex", SPW__SPEC_PART_DUPLEX, offsetof(spw_device_model, duplex_bytes_per_s)},
    {"latency", SPW__SPEC_PART_LATENCY, offsetof(spw_device_model, latency_ns)},
    {NULL, SPW__SPEC_PART_SIZE, 0},
};

static uint64_t *field_of(spw_device_model *model, const struct spw__spec_part *part)
{
    return (uint64_t *)((char *)model + part->field);
}

static bool take_text(struct spw__spec_cursor *c, const char *text)
{
    const size_t length = strlen(text);
    if ((size_t)(c->end - c->p) < length || memcmp(c->p, text, length) != 0)
        return false;
    c->p += length;
    return true;
}

/* A part or a name ends here. */
static bool at_end(const struct spw__spec_cursor *c)
{
    return c->p == c->end || *c->p == ',' || *c->p == '/';
}

static int parse_size(struct spw__spec_cursor *c, const char *what, uint64_t *out)
{
    const char *const where = c->p;
    if (!spw__spec_take_number(c, true, out))
        return spw__spec_expected(c, where, what);
    if (!at_end(c))
        return spw__spec_expected(c, c->p, isdigit((unsigned char)c->p[-1]) ? "a digit, K, M, G, T, ',', '/' or the end"
                                                                            : "',', '/' or the end");
    return *out == 0 || *out == UINT64_MAX ? spw__spec_expected(c, where, what) : SPW_OK;
}

static int parse_latency(struct spw__spec_cursor *c, uint64_t *out)
{
    const char *const where = c->p, *const what = "a latency from 0ns to 1000000us, with ns or us behind it";
    if (!spw__spec_take_number(c, false, out))
        return spw__spec_expected(c, where, what);
    const bool microseconds = take_text(c, "us");
    if ((!microseconds && !take_text(c, "ns")) || !at_end(c))
        return spw__spec_expected(c, where, what);
    if (microseconds && *out <= SPW__SPEC_LATENCY_MAX_NS)
        *out *= US;
    return *out > SPW__SPEC_LATENCY_MAX_NS ? spw__spec_expected(c, where, what) : SPW_OK;
}

static int parse_part(struct spw__spec_cursor *c, const struct spw__spec_part *part, spw_device_model *model)
{
    uint64_t *const out = field_of(model, part);
    if (!spw__spec_take_char(c, ':') && !spw__spec_take_char(c, '='))
        return spw__spec_expected(c, c->p, "':'");
    switch (part->kind) {
    case SPW__SPEC_PART_LATENCY: return parse_latency(c, out);
    case SPW__SPEC_PART_DUPLEX:
        if (take_text(c, "free")) {
            *out = 0;
            return at_end(c) ? SPW_OK : spw__spec_expected(c, c->p, "',', '/' or the end");
        }
        return parse_size(c, "bytes per second above 0 and below 2^64, such as 20G, or free", out);
    default:
        return parse_size(c, part->field == 0 ? "a size above 0 and below 2^64, such as 16G"
                                              : "bytes per second above 0 and below 2^64, such as 20G", out);
    }
}

/* A preset's name, as the first word only, or a part that was not there yet. */
static int parse_word(struct spw__spec_cursor *c, bool first, uint32_t *seen, spw_device_model *model)
{
    const char *const word = c->p;
    while (c->p < c->end && (islower((unsigned char)*c->p) || isdigit((unsigned char)*c->p) || *c->p == '-'))
        c->p++;
    const size_t length = (size_t)(c->p - word);
    for (size_t i = 0; first && i < sizeof presets / sizeof *presets; i++)
        if (strlen(presets[i].name) == length && memcmp(presets[i].name, word, length) == 0) {
            *model = presets[i].model;
            return at_end(c) ? SPW_OK : spw__spec_expected(c, c->p, "',', '/' or the end");
        }
    for (unsigned i = 0; spw__spec_parts[i].name; i++)
        if (strlen(spw__spec_parts[i].name) == length && memcmp(spw__spec_parts[i].name, word, length) == 0) {
            if (*seen & (1u << i))
                return spw__spec_expected(c, word, "each part of a model once");
            *seen |= 1u << i;
            return parse_part(c, &spw__spec_parts[i], model);
        }
    return spw__spec_expected(c, word, first ? "a model (b200, h200, gh200-c2c, a10-pcie4) or its parts (mem:, h2d:, "
                                               "d2h:, d2d:, duplex:, latency:)"
                                             : "a part of a model (mem:, h2d:, d2h:, d2d:, duplex:, latency:)");
}

static int parse_scale(struct spw__spec_cursor *c, uint64_t *scale)
{
    const char *const where = c->p;
    if (*scale)
        return spw__spec_expected(c, where, "one scale");
    if (!spw__spec_take_number(c, false, scale) || (c->p != c->end && *c->p != ',') || *scale == 0 ||
        *scale > SCALE_MAX)
        return spw__spec_expected(c, where, "a scale, a number from 1 to 1048576");
    return SPW_OK;
}

/* The scale divides all sizes and bandwidths, wherever it stands. None becomes 0, which means something else. */
int spw__spec_parse_model(struct spw__spec_cursor *c, spw_device_model *model)
{
    spw_device_model parsed = {.memory_bytes = 0};
    uint64_t scale = 0;
    uint32_t seen = 0;
    bool first = true;
    do {
        int rc = parse_word(c, first, &seen, &parsed);
        if (rc == SPW_OK && spw__spec_take_char(c, '/'))
            rc = parse_scale(c, &scale);
        if (rc != SPW_OK)
            return rc;
        first = false;
    } while (spw__spec_take_char(c, ','));
    for (const struct spw__spec_part *part = spw__spec_parts; part->name && scale; part++) {
        uint64_t *const value = field_of(&parsed, part);
        if (part->kind != SPW__SPEC_PART_LATENCY && *value)
            *value = *value / scale ? *value / scale : 1;
    }
    *model = parsed;
    return SPW_OK;
}

bool spw__spec_has_model(const spw_spec *spec)
{
    static const spw_device_model none;
    return memcmp(&spec->model, &none, sizeof none) != 0;
}

uint64_t spw__spec_tier_bytes(const spw_spec *spec, unsigned tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < spec->n_pools[tier]; i++)
        bytes += spec->pools[tier][i].size_bytes;
    return bytes;
}

int spw__spec_check(const spw_spec *spec, uint32_t named)
{
    const uint64_t memory = spec->model.memory_bytes;
    const bool has_device = named & SPW__SPEC_BIT(SPW__SPEC_DEVICE);
    const uint64_t wanted = has_device ? spw__spec_tier_bytes(spec, SPW_TIER_DEVICE) : 0;
    const spw_error_info info = {.place = SPW_DEVICE, .requested_bytes = wanted, .limit_bytes = memory};
    if (spw__spec_has_model(spec) && spec->driver != SPW_DRIVER_SIM)
        return spw__fail(SPW_EINVAL, "a model (model=) is of the simulated device, and the driver is %s: add "
                                     "driver=sim", spec->driver == SPW_DRIVER_CUDA ? "cuda" : "auto");
    if (memory == 0 || wanted <= memory)
        return SPW_OK;
    return spw__fail_info(&info, SPW_EINVAL, "the pools of device= have %llu bytes together, and the memory of model= "
                                             "is %llu bytes: lower device=, or the scale of model=",
                          (unsigned long long)wanted, (unsigned long long)memory);
}
