/* The disk store: opens the spill files, hands out their space and lets them grow. Neighbours: pool/range.h keeps the
 * free space, store_folder.c opens folders and files; the mover reads and writes the extents.
 *
 * A folder's file and its range have the same size at all times but while a grower is at work:
 *
 *     still --alloc finds no hole: grow_locked--> growing --fallocate succeeds--> still, larger
 *                                                         --it fails, the file is cut back--> still, as before
 *
 * Only one thread at a time is in "growing"; others that find no hole meanwhile wait for it and look again.
 */
#include "spill/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/error.h"
#include "pool/base/fault.h"
#include "pool/base/lock.h"
#include "pool/base/units.h"
#include "pool/range.h"
#include "spill/store_folder.h"

/* A file grows by twice as much each time, so that small jobs claim little and large ones seldom grow. */
#define STEP_MIN_BYTES (UINT64_C(64) << 20)
#define STEP_MAX_BYTES (UINT64_C(1) << 30)

/* One spill file and its space. */
struct space {
    struct spw__folder folder; /* constant once opened */
    struct spw__mutex lock;
    struct spw__cond grown;
    struct spw__range *range;     /* guarded by lock; NULL: the file is empty */
    uint64_t step_bytes;          /* guarded by lock: next growth */
    bool growing;                 /* guarded by lock */
    bool sparse;                  /* owner: the thread that set growing; no fallocate here, growth is ftruncate */
    _Atomic uint64_t file_bytes;  /* atomic, written under lock: size of the file and of the range */
    _Atomic uint64_t alloc_bytes; /* atomic, written under lock: in live extents */
};

struct spw__store {
    struct spw__meta *meta;
    const struct spw__log *log;
    uint32_t n_spaces; /* opened so far */
    uint32_t capacity;
    uint32_t block_bytes;
    bool direct;
    struct space spaces[];
};

static size_t store_bytes(uint32_t capacity)
{
    return sizeof(struct spw__store) + capacity * sizeof(struct space);
}

void spw__store_destroy(struct spw__store *store)
{
    if (!store)
        return;
    for (uint32_t i = store->n_spaces; i-- > 0;) {
        struct space *space = &store->spaces[i];
        spw__range_destroy(space->range);
        spw__cond_finish(&space->grown);
        spw__mutex_finish(&space->lock);
        spw__folder_close(&space->folder, store->meta);
    }
    spw__meta_free(store->meta, store, store_bytes(store->capacity));
}

/* A folder that is named twice, by whatever name, would count the same free space twice. */
static int check_twice(const struct spw__store *store, const struct spw__folder *folder)
{
    for (uint32_t i = 0; i < store->n_spaces; i++)
        if (store->spaces[i].folder.device == folder->device && store->spaces[i].folder.inode == folder->inode)
            return spw__fail(SPW_EINVAL, "spill folder %s is named twice (%s); name each folder once", folder->path,
                             store->spaces[i].folder.path);
    return 0;
}

int spw__store_create(const spw_spec_folder *folders, uint32_t n_folders, struct spw__meta *meta,
                      const struct spw__log *log, struct spw__store **out)
{
    struct spw__store *store;
    int rc;
    *out = NULL;
    if (n_folders == 0 || n_folders > SPW_SPEC_FOLDERS_MAX)
        return spw__fail(SPW_EINVAL, "%u spill folders: there must be 1 to %u", n_folders, SPW_SPEC_FOLDERS_MAX);
    store = spw__meta_alloc(meta, store_bytes(n_folders));
    if (!store)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the disk store (%zu bytes): raise meta=",
                         store_bytes(n_folders));
    store->meta = meta;
    store->log = log;
    store->capacity = n_folders;
    store->block_bytes = SPW__IO_BLOCK;
    store->direct = true;
    while (store->n_spaces < n_folders) {
        struct space *space = &store->spaces[store->n_spaces];
        rc = spw__folder_open(&folders[store->n_spaces], meta, log, &space->folder);
        if (rc != 0) {
            spw__store_destroy(store);
            return rc;
        }
        rc = check_twice(store, &space->folder);
        if (rc != 0) {
            spw__folder_close(&space->folder, meta);
            spw__store_destroy(store);
            return rc;
        }
        spw__mutex_init(&space->lock, SPW__RANK_STORE);
        spw__cond_init(&space->grown);
        space->step_bytes = STEP_MIN_BYTES;
        store->n_spaces++;
        store->direct = store->direct && space->folder.direct;
        if (space->folder.block_bytes > store->block_bytes)
            store->block_bytes = space->folder.block_bytes;
    }
    for (uint32_t i = 0; i < n_folders; i++)
        store->spaces[i].folder.quota_bytes -= store->spaces[i].folder.quota_bytes % store->block_bytes;
    *out = store;
    return 0;
}

static void cut_file(const struct spw__store *store, const struct space *space, uint64_t bytes)
{
    if (ftruncate(space->folder.fd, (off_t)bytes) != 0)
        spw__logf(store->log, SPW__LOG_WARN, "spill folder %s: the file could not be cut back: %s", space->folder.path,
                  strerror(errno));
}

/* Makes the file, old_bytes long, new_bytes long, all blocks allocated. 0, or an errno and the file as it was. */
static int extend_file(struct spw__store *store, struct space *space, uint64_t old_bytes, uint64_t new_bytes)
{
    const int fd = space->folder.fd;
    uint64_t at = old_bytes;
    int error = 0;
    while (!space->sparse && at < new_bytes && error == 0) {
        const uint64_t step = new_bytes - at < STEP_MAX_BYTES ? new_bytes - at : STEP_MAX_BYTES;
        error = spw__fault(SPW__FAULT_STORE_SPACE);
        if (error == 0 && fallocate(fd, 0, (off_t)at, (off_t)step) != 0)
            error = errno;
        if (error == 0)
            at += step;
        else if (error == EINTR)
            error = 0;
        else if (error == EOPNOTSUPP || error == ENOSYS) {
            spw__logf(store->log, SPW__LOG_WARN, "spill folder %s: space cannot be set aside (%s); a full disk will "
                      "show when it is written", space->folder.path, strerror(error));
            space->sparse = true;
            error = 0;
        }
    }
    if (error == 0 && space->sparse && ftruncate(fd, (off_t)new_bytes) != 0)
        error = errno;
    /* What a failed fallocate has allocated stays in the file, and the disk full, unless the file is cut back. */
    if (error != 0)
        cut_file(store, space, old_bytes);
    return error;
}

static int adopt_growth_locked(struct spw__store *store, struct space *space, uint64_t new_bytes)
{
    int rc;
    spw__mutex_assert_held(&space->lock);
    if (space->range)
        rc = spw__range_grow(space->range, new_bytes);
    else /* lowest address first, so that written blocks are used again while they are hot */
        rc = spw__range_create(new_bytes, store->block_bytes, true, store->meta, &space->range);
    if (rc == 0)
        atomic_store_explicit(&space->file_bytes, new_bytes, memory_order_relaxed);
    return rc;
}

/* Lets the file grow so that bytes fit at its end. Called with the lock held, which is released meanwhile. 0: look
 * again; SPW_ENOSPC with *os_errno 0 (quota) or the file system's answer; SPW_ENOMETA. */
static int grow_locked(struct spw__store *store, struct space *space, uint64_t bytes, int *os_errno)
{
    const uint64_t quota = space->folder.quota_bytes;
    const uint64_t old_bytes = atomic_load_explicit(&space->file_bytes, memory_order_relaxed);
    const uint64_t tail = space->range ? spw__range_tail(space->range) : 0;
    uint64_t new_bytes;
    int rc = 0;

    spw__mutex_assert_held(&space->lock);
    *os_errno = 0;
    if (bytes > quota || tail > quota - bytes)
        return SPW_ENOSPC;
    const uint64_t least_bytes = tail + bytes;
    assert(least_bytes > old_bytes); /* else there was a hole at the end */
    const uint64_t step_bytes = space->step_bytes < quota - old_bytes ? space->step_bytes : quota - old_bytes;
    new_bytes = least_bytes > old_bytes + step_bytes ? least_bytes : old_bytes + step_bytes;
    new_bytes -= new_bytes % store->block_bytes;

    space->growing = true;
    spw__mutex_unlock(&space->lock);
    *os_errno = extend_file(store, space, old_bytes, new_bytes);
    const bool shrunk = *os_errno != 0 && new_bytes > least_bytes;
    if (shrunk) {
        new_bytes = least_bytes;
        *os_errno = extend_file(store, space, old_bytes, new_bytes);
    }
    spw__mutex_lock(&space->lock);
    if (*os_errno != 0)
        rc = SPW_ENOSPC;
    else
        rc = adopt_growth_locked(store, space, new_bytes);
    if (rc == SPW_ENOMETA) {
        spw__mutex_unlock(&space->lock);
        cut_file(store, space, old_bytes);
        spw__mutex_lock(&space->lock);
    }
    if (shrunk || rc != 0)
        space->step_bytes = STEP_MIN_BYTES;
    else if (space->step_bytes < STEP_MAX_BYTES)
        space->step_bytes *= 2;
    space->growing = false;
    spw__cond_broadcast(&space->grown);
    return rc;
}

/* One folder's try. Errors as grow_locked. */
static int alloc_in(struct spw__store *store, struct space *space, uint64_t bytes, struct spw__extent *extent,
                    int *os_errno)
{
    int rc;
    *os_errno = 0;
    spw__mutex_lock(&space->lock);
    do {
        rc = space->range ? spw__range_alloc(space->range, bytes, 0, &extent->node, &extent->offset) : SPW_ENOMEM;
        if (rc == 0 || rc == SPW_ENOMETA)
            break;
        if (space->growing)
            rc = spw__cond_wait(&space->grown, &space->lock, -1);
        else
            rc = grow_locked(store, space, bytes, os_errno);
        if (rc == 0)
            rc = SPW_EAGAIN;
    } while (rc == SPW_EAGAIN);
    if (rc == 0)
        atomic_fetch_add_explicit(&space->alloc_bytes, bytes, memory_order_relaxed);
    spw__mutex_unlock(&space->lock);
    return rc;
}

static uint64_t free_quota(const struct space *space)
{
    const uint64_t used = atomic_load_explicit(&space->alloc_bytes, memory_order_relaxed);
    return space->folder.quota_bytes > used ? space->folder.quota_bytes - used : 0;
}

/* The folder with most free quota among those whose bit in skip is not set; n_spaces when there is none. */
static uint32_t choose(const struct spw__store *store, uint32_t skip)
{
    uint32_t best = store->n_spaces;
    for (uint32_t i = 0; i < store->n_spaces; i++)
        if (!(skip & (UINT32_C(1) << i)) &&
            (best == store->n_spaces || free_quota(&store->spaces[i]) > free_quota(&store->spaces[best])))
            best = i;
    return best;
}

/* What every folder answered, and what would help. */
static int fail_no_space(const struct spw__store *store, uint64_t bytes, uint32_t exclude, const int *os_errnos)
{
    spw_error_info info = {.place = SPW_DISK, .requested_bytes = bytes};
    char list[256] = "";
    size_t used = 0;
    bool quota = false;
    bool full = false;
    for (uint32_t i = 0; i < store->n_spaces; i++) {
        const struct space *space = &store->spaces[i];
        const bool skipped = (exclude & (UINT32_C(1) << i)) != 0;
        info.limit_bytes += space->folder.quota_bytes;
        info.free_bytes += free_quota(space);
        if (os_errnos[i])
            info.os_errno = os_errnos[i];
        quota = quota || (!skipped && !os_errnos[i]);
        full = full || (!skipped && os_errnos[i]);
        const int n = snprintf(list + used, sizeof list - used, "%s%s: %s", i ? ", " : "", space->folder.path,
                               skipped ? "left out" : os_errnos[i] ? strerror(os_errnos[i]) : "quota used up");
        used = used + (size_t)n < sizeof list ? used + (size_t)n : sizeof list - 1;
    }
    return spw__fail_info(&info, SPW_ENOSPC, "no room to spill %llu bytes (%s): %s%s%s", (unsigned long long)bytes,
                          list, full ? "free space there" : "", full && quota ? " or " : "",
                          quota ? "raise the quota in disk=" : full ? "" : "add a folder to disk=");
}

/* A budget is used up: a group's, or that of all folders together, which is a quota somebody gave, or what the file
 * systems had free at the start. */
static int fail_budget(const struct spw__store *store, struct spw__group *group, uint64_t bytes)
{
    spw_error_info info = {.place = SPW_DISK, .requested_bytes = bytes};
    if (spw__group_describe(group, SPW_TIER_DISK, bytes, &info))
        return spw__fail_info(&info, SPW_ENOSPC,
                              "no room to spill %llu bytes: the group \"%s\" may have %llu on disk, and has %llu; "
                              "raise its disk share with spw_group_set", (unsigned long long)bytes, info.group,
                              (unsigned long long)info.limit_bytes, (unsigned long long)info.group_committed_bytes);
    const struct spw__group *root = group;
    while (root->parent)
        root = root->parent;
    info.free_bytes = spw__gate_free(&root->gates[SPW_TIER_DISK]);
    info.limit_bytes = atomic_load(&root->gates[SPW_TIER_DISK].budget);
    char list[160] = "";
    size_t used = 0;
    bool given = false;
    for (uint32_t i = 0; i < store->n_spaces && used < sizeof list - 1; i++) {
        given |= store->spaces[i].folder.quota_given;
        const int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", store->spaces[i].folder.path);
        used += n > 0 ? (size_t)n : 0;
    }
    return spw__fail_info(&info, SPW_ENOSPC,
                          "no room to spill %llu bytes in %s: the disk budget has %llu of %llu left; %s, or add a "
                          "folder to disk=", (unsigned long long)bytes, list, (unsigned long long)info.free_bytes,
                          (unsigned long long)info.limit_bytes,
                          given ? "raise the quota in disk=" : "free space there (that is what the file system had)");
}

int spw__store_alloc(struct spw__store *store, struct spw__group *group, uint64_t bytes, uint32_t exclude,
                     struct spw__extent *out)
{
    int os_errnos[SPW_SPEC_FOLDERS_MAX] = {0};
    struct spw__extent extent = {0};
    uint32_t skip = exclude;
    uint32_t i;
    int rc = SPW_ENOSPC;

    if (bytes == 0 || bytes > UINT64_MAX / 2)
        return spw__fail(SPW_EINVAL, "an extent of %llu bytes", (unsigned long long)bytes);
    extent.bytes = spw__round_up(bytes, store->block_bytes);
    extent.group = group;
    if (!spw__ledger_commit(group, SPW_TIER_DISK, extent.bytes))
        return fail_budget(store, group, extent.bytes);
    while ((i = choose(store, skip)) < store->n_spaces) {
        rc = alloc_in(store, &store->spaces[i], extent.bytes, &extent, &os_errnos[i]);
        if (rc == 0) {
            extent.folder = i;
            *out = extent;
            return 0;
        }
        if (rc == SPW_ENOMETA)
            break;
        skip |= UINT32_C(1) << i;
    }
    spw__ledger_uncommit(group, SPW_TIER_DISK, extent.bytes);
    if (rc == SPW_ENOMETA)
        return spw__fail(rc, "no metadata memory for space in a spill file: raise meta=");
    return fail_no_space(store, extent.bytes, exclude, os_errnos);
}

void spw__store_free(struct spw__store *store, const struct spw__extent *extent)
{
    struct space *space = &store->spaces[extent->folder];
    spw__mutex_lock(&space->lock);
    const int rc = spw__range_free(space->range, extent->node);
    if (rc == 0)
        atomic_fetch_sub_explicit(&space->alloc_bytes, extent->bytes, memory_order_relaxed);
    spw__mutex_unlock(&space->lock);
    if (rc == 0)
        spw__ledger_uncommit(extent->group, SPW_TIER_DISK, extent->bytes);
}

uint64_t spw__store_quota(const struct spw__store *store)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < store->n_spaces; i++)
        sum += store->spaces[i].folder.quota_bytes;
    return sum;
}

uint64_t spw__store_file_bytes(const struct spw__store *store)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < store->n_spaces; i++)
        sum += atomic_load_explicit(&store->spaces[i].file_bytes, memory_order_relaxed);
    return sum;
}

int spw__store_fd(const struct spw__store *store, uint32_t folder)
{
    return store->spaces[folder].folder.fd;
}

const char *spw__store_path(const struct spw__store *store, uint32_t folder)
{
    return store->spaces[folder].folder.path;
}

uint32_t spw__store_block_bytes(const struct spw__store *store)
{
    return store->block_bytes;
}

bool spw__store_is_direct(const struct spw__store *store)
{
    return store->direct;
}
