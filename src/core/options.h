/* Options: from what the user gave (option fields, string, environment) to one complete specification. Threads: any, as
 * long as nobody changes the environment. */
#ifndef SPW_CORE_OPTIONS_H
#define SPW_CORE_OPTIONS_H

#include <stdbool.h>

#include <spillway/manager.h>
#include <spillway/spec.h>

#define SPW__META_BYTES_DEFAULT (UINT64_C(64) << 20)

struct spw__settings {
    spw_spec spec;      /* folder paths point into the user's string or the environment */
    const char *string; /* the configuration string; NULL: there is none */
    bool defaulted;     /* nobody named a tier: host stands in, and a device only where there is one */
    uint64_t staging_bytes, piece_bytes; /* resolved */
    bool verify, own_thread;
};

/* Precedence: option, string, environment. SPW_ESPEC, SPW_EINVAL. */
int spw__settings_init(struct spw__settings *settings, const spw_options *options);

/* Sizes that follow from the tiers, once it is known which exist (a device may be missing). */
void spw__settings_resolve(struct spw__settings *settings);

/* Bytes of memory that this process may use: the machine's, or its cgroup's limit if that is lower. */
uint64_t spw__process_memory_bytes(void);

#endif
