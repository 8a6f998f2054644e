/* The disk store: space in spill files. One unlinked file per folder; a crash leaves nothing behind.
 *
 * Each folder has a quota and a range allocator over its file; the file grows by fallocate (mode 0) in steps of at most
 * 1 GiB, and is cut back when fallocate fails. Extents are placed lowest free first, so that written blocks are used
 * again while they are hot. The store hands out extents and descriptors; it never reads or writes payload itself.
 *
 * Threads: alloc and free by any thread (rank SPW__RANK_STORE inside); alloc may block on the file system when a file
 * has to grow, never under the lock. Ownership: an extent belongs to its holder until free.
 */
#ifndef SPW_SPILL_STORE_H
#define SPW_SPILL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/log.h"
#include "pool/base/meta.h"
#include "pool/ledger.h"

#include <spillway/spec.h>

struct spw__store;

/* Space in one spill file. bytes == 0: no extent. */
struct spw__extent {
    uint64_t offset;
    uint64_t bytes;  /* rounded up to the block size */
    struct spw__group *group; /* charged for them */
    uint32_t node;
    uint32_t folder;
};

/* Opens one file in each folder (created when missing, mode 0700; refused when others can write to it and it is not
 * sticky). O_DIRECT where the file system takes it. quota 0 means what the file system has free. Errors, with the
 * folder's name in the message: SPW_EINVAL (not a directory, untrusted), SPW_EIO (cannot be used), SPW_ENOMETA. Nothing
 * is left behind on error. */
int spw__store_create(const spw_spec_folder *folders, uint32_t n_folders, struct spw__meta *meta,
                      const struct spw__log *log, struct spw__store **out);

/* Closes and thereby removes the files. NULL is a no-op. */
void spw__store_destroy(struct spw__store *store);

/* Sum of the folders' quotas: the budget of the disk place. */
uint64_t spw__store_quota(const struct spw__store *store);

/* Finds space for bytes (rounded up to the block size), in a folder whose bit in exclude (bit i: folder i) is not set;
 * among several the one with most free space of its quota, and charges group for the disk place. SPW_ENOSPC: no folder
 * has room (quota or file system), or a budget on the way from group to the root has none; SPW_ENOMETA. No change on
 * error; a file system that is full is left as full as it was. */
int spw__store_alloc(struct spw__store *store, struct spw__group *group, uint64_t bytes, uint32_t exclude,
                     struct spw__extent *out);

/* Gives an extent back. The blocks stay allocated for reuse. */
void spw__store_free(struct spw__store *store, const struct spw__extent *extent);

int spw__store_fd(const struct spw__store *store, uint32_t folder);
const char *spw__store_path(const struct spw__store *store, uint32_t folder);
/* Alignment of memory, offsets and lengths: the largest of all folders. */
uint32_t spw__store_block_bytes(const struct spw__store *store);
/* Every folder takes O_DIRECT. */
bool spw__store_is_direct(const struct spw__store *store);
/* Allocated in the file systems now. */
uint64_t spw__store_file_bytes(const struct spw__store *store);

#endif
