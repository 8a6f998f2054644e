/* One spill folder: trusted or refused, made when missing, and the unlinked file in it.
 *
 * Threads: open and close by the thread that creates and destroys the store; the struct is constant in between.
 */
#ifndef SPW_SPILL_STORE_FOLDER_H
#define SPW_SPILL_STORE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "pool/base/log.h"
#include "pool/base/meta.h"
#include "pool/base/units.h"

#include <spillway/spec.h>

struct spw__folder {
    char *path; /* owned, terminated */
    size_t path_bytes;
    int fd; /* the spill file */
    uint64_t quota_bytes;
    bool quota_given; /* else it is what the file system had free */
    uint32_t block_bytes; /* alignment that transfers need: a power of two, at least SPW__IO_BLOCK */
    bool direct;          /* the file is open with O_DIRECT */
    bool created;         /* the folder was made here and goes with the file */
    dev_t device;         /* of the folder: what close compares before it removes a folder of that name */
    ino_t inode;
};

/* Errors as spw__store_create. On error nothing is left behind. */
int spw__folder_open(const spw_spec_folder *spec, struct spw__meta *meta, const struct spw__log *log,
                     struct spw__folder *folder);
void spw__folder_close(struct spw__folder *folder, struct spw__meta *meta);

#endif
