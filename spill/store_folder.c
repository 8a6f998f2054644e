/* Opening a spill folder and the file in it. Neighbours: store.c, which hands out the file's space. */
#include "spill/store_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/error.h"
#include "pool/base/fault.h"

/* Another process that made the folder removes it as its manager goes, maybe between any two of our calls. */
#define TRIES_MAX 1000

static int fail_os(const struct spw__folder *folder, int code, int os_errno, const char *what)
{
    const spw_error_info info = {.place = SPW_DISK, .os_errno = os_errno};
    return spw__fail_info(&info, code, "spill folder %s: %s: %s", folder->path, what, strerror(os_errno));
}

/* Opens the folder itself, made when missing. */
static int open_directory(struct spw__folder *folder, int *dir_fd)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    folder->created = false;
    *dir_fd = open(folder->path, flags);
    for (int tries = 0; *dir_fd < 0 && errno == ENOENT && tries < TRIES_MAX; tries++) {
        folder->created = mkdir(folder->path, 0700) == 0;
        if (!folder->created && errno != EEXIST)
            return fail_os(folder, SPW_EIO, errno, "it cannot be created");
        *dir_fd = open(folder->path, flags);
    }
    if (*dir_fd < 0)
        return fail_os(folder, errno == ENOTDIR ? SPW_EINVAL : SPW_EIO, errno, "it cannot be opened");
    return 0;
}

/* True if the folder that was opened was removed since: nothing can be made in it. Its name goes last. */
static bool is_gone(const struct spw__folder *folder, int dir_fd)
{
    struct stat opened, named;
    if (dir_fd < 0 || fstat(dir_fd, &opened) != 0)
        return false;
    if (opened.st_nlink == 0)
        return true;
    if (stat(folder->path, &named) != 0)
        return errno == ENOENT;
    return named.st_dev != opened.st_dev || named.st_ino != opened.st_ino;
}

/* Somebody who can write to the folder could put names of his own in the way; the sticky bit keeps our names ours. */
static int check_trust(struct spw__folder *folder, int dir_fd)
{
    struct stat status;
    if (fstat(dir_fd, &status) != 0)
        return fail_os(folder, SPW_EIO, errno, "it cannot be examined");
    folder->device = status.st_dev;
    folder->inode = status.st_ino;
    if ((status.st_mode & S_ISVTX) != 0)
        return 0;
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return spw__fail(SPW_EINVAL, "spill folder %s: others can write to it (mode %03o): chmod go-w it, or name "
                         "another folder in disk=", folder->path, (unsigned)(status.st_mode & 0777));
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return spw__fail(SPW_EINVAL, "spill folder %s: it belongs to another user (uid %u): name a folder of your own "
                         "in disk=", folder->path, (unsigned)status.st_uid);
    return 0;
}

/* For file systems without O_TMPFILE: a name that nobody else has, removed at once. */
static int open_named(int dir_fd)
{
    char name[64];
    int fd = -1;
    int tries = 0;
    do {
        (void)snprintf(name, sizeof name, ".spillway-%ld-%llx", (long)getpid(),
                       (unsigned long long)spw__clock_monotonic_ns());
        fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EEXIST && ++tries < 100);
    if (fd >= 0)
        (void)unlinkat(dir_fd, name, 0);
    return fd;
}

/* STORE_OPEN counts in this order: the open without a name, the open by name if that failed, the step to O_DIRECT. */
static int open_file(struct spw__folder *folder, int dir_fd, const struct spw__log *log)
{
    int error = spw__fault(SPW__FAULT_STORE_OPEN);
    if (error == 0 && (folder->fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) < 0)
        error = errno;
    if (error == EOPNOTSUPP || error == EISDIR || error == ENOENT || error == EINVAL) {
        error = spw__fault(SPW__FAULT_STORE_OPEN);
        if (error == 0 && (folder->fd = open_named(dir_fd)) < 0)
            error = errno;
    }
    if (error != 0)
        return fail_os(folder, SPW_EIO, error, "no file can be created in it");

    error = spw__fault(SPW__FAULT_STORE_OPEN);
    if (error == 0 && fcntl(folder->fd, F_SETFL, O_DIRECT) != 0)
        error = errno;
    folder->direct = error == 0;
    if (!folder->direct)
        spw__logf(log, SPW__LOG_WARN, "spill folder %s: no O_DIRECT (%s); what is spilled passes through the page "
                  "cache", folder->path, strerror(error));
    return 0;
}

static void find_alignment(struct spw__folder *folder)
{
    folder->block_bytes = SPW__IO_BLOCK;
#ifdef STATX_DIOALIGN
    struct statx status;
    if (statx(folder->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN)) {
        if (status.stx_dio_offset_align > folder->block_bytes)
            folder->block_bytes = status.stx_dio_offset_align;
        if (status.stx_dio_mem_align > folder->block_bytes)
            folder->block_bytes = status.stx_dio_mem_align;
    }
#endif
}

static int find_quota(struct spw__folder *folder, uint64_t quota_bytes)
{
    struct statvfs status;
    folder->quota_bytes = quota_bytes;
    folder->quota_given = quota_bytes != 0;
    if (quota_bytes != 0)
        return 0;
    if (fstatvfs(folder->fd, &status) != 0)
        return fail_os(folder, SPW_EIO, errno, "its free space cannot be found out");
    folder->quota_bytes = (uint64_t)status.f_bavail * status.f_frsize;
    return 0;
}

int spw__folder_open(const spw_spec_folder *spec, struct spw__meta *meta, const struct spw__log *log,
                     struct spw__folder *folder)
{
    int dir_fd = -1;
    int tries = 0;
    int rc;
    *folder = (struct spw__folder){.fd = -1, .path_bytes = spec->path_length + 1};
    folder->path = spw__meta_alloc(meta, folder->path_bytes);
    if (!folder->path)
        return spw__fail(SPW_ENOMETA, "no metadata memory for the name of a spill folder: raise meta=");
    memcpy(folder->path, spec->path, spec->path_length);

    do {
        if (dir_fd >= 0) {
            (void)close(dir_fd);
            (void)sched_yield(); /* whoever removes it may not have come to its name yet */
        }
        rc = open_directory(folder, &dir_fd);
        if (rc == 0)
            rc = check_trust(folder, dir_fd);
        if (rc == 0)
            rc = open_file(folder, dir_fd, log);
    } while (rc != 0 && is_gone(folder, dir_fd) && ++tries < TRIES_MAX);
    if (rc == 0)
        rc = find_quota(folder, spec->quota_bytes);
    if (rc == 0)
        find_alignment(folder);
    if (dir_fd >= 0)
        (void)close(dir_fd);
    if (rc != 0)
        spw__folder_close(folder, meta);
    return rc;
}

void spw__folder_close(struct spw__folder *folder, struct spw__meta *meta)
{
    struct stat status;
    if (folder->fd >= 0)
        (void)close(folder->fd);
    /* The name may mean another folder by now (a relative path, a renamed one); and others may have files in it. */
    if (folder->created && lstat(folder->path, &status) == 0 && status.st_dev == folder->device &&
        status.st_ino == folder->inode)
        (void)rmdir(folder->path);
    spw__meta_free(meta, folder->path, folder->path_bytes);
}
