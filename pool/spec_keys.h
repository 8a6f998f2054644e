/* The table of keys of the sectioned form: what spec.c parses by, spec_fields.c checks by and spec_format.c writes by.
 * For these only. */
#ifndef SPW_POOL_SPEC_KEYS_H
#define SPW_POOL_SPEC_KEYS_H

#include "pool/spec.h"

enum spw__spec_kind {
    SPW__SPEC_KIND_POOLS,   /* size[:limit],... of the tier in `field` */
    SPW__SPEC_KIND_FOLDERS, /* path[:quota],... */
    SPW__SPEC_KIND_BYTES,   /* a size; the field at offset `field` is an uint64_t */
    SPW__SPEC_KIND_NUMBER,  /* 0 to max; the field is an uint32_t or an int, whose -1 means the default */
    SPW__SPEC_KIND_CHOICE,  /* one of the words; the field is an enum, the index of the word */
    SPW__SPEC_KIND_DRIVER,  /* the same, and behind "sim" a seed, in sim_seed */
    SPW__SPEC_KIND_MODEL,   /* a preset or figures; the field is a spw_device_model */
};

struct spw__spec_key {
    const char *name;
    enum spw__spec_kind kind;
    enum spw__spec_section section;
    size_t field;
    uint32_t max; /* of NUMBER, CHOICE and DRIVER */
    const char *const *words;
    const char *expected; /* of a value that is wrong, for NUMBER, CHOICE and DRIVER */
};

/* The bounds of ge.flowGraphMemMaxSize, as documented, that every form keeps. */
#define SPW__SPEC_POOL_MIN UINT64_C(1024)
#define SPW__SPEC_LIMIT_MAX (UINT64_C(2) << 30)

#define SPW__SPEC_N_KEYS 19
extern const struct spw__spec_key spw__spec_keys[SPW__SPEC_N_KEYS];

#endif
