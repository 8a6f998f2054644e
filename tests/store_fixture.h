/* One store in a fresh folder. Ends every test with a look for files and metadata that are left. */
#ifndef SPW_TESTS_STORE_FIXTURE_H
#define SPW_TESTS_STORE_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spill/store.h"

#define MIB (UINT64_C(1) << 20)
#define BLOCK UINT64_C(4096)

static char root[256]; /* a fresh folder on a disk */
static struct spw__meta meta;
static struct spw__group group; /* its gate is that of the disk place */
static struct spw__store *store;
static unsigned log_lines;
static char last_line[512];

static inline void keep_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    log_lines++;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
}

static const struct spw__log line_log = {.fn = keep_line};

static inline void setup(void)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%.200s/spillway-store-XXXXXX", folder ? folder : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(root));
    spw__meta_init(&meta, 16 * MIB);
    spw__group_init(&group, NULL, NULL);
}

static inline unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

/* What every test ends with: no file, no byte of metadata. */
static inline void teardown(void)
{
    spw__store_destroy(store);
    ck_assert_uint_eq(atomic_load(&meta.gate.committed), 0);
    ck_assert_uint_eq(count_entries(root), 0);
    ck_assert_int_eq(rmdir(root), 0);
}

static inline spw_spec_folder folder_of(const char *path, uint64_t quota_bytes)
{
    return (spw_spec_folder){path, strlen(path), quota_bytes};
}

static inline int create_in(const char *path, uint64_t quota_bytes)
{
    const spw_spec_folder folder = folder_of(path, quota_bytes);
    return spw__store_create(&folder, 1, &meta, &line_log, &store);
}

static inline void open_store(uint64_t quota_bytes)
{
    ck_assert_int_eq(create_in(root, quota_bytes), SPW_OK);
}

static inline struct spw__extent take(uint64_t bytes)
{
    struct spw__extent extent = {0};
    ck_assert_int_eq(spw__store_alloc(store, &group, bytes, 0, &extent), SPW_OK);
    ck_assert_uint_ge(extent.bytes, bytes);
    return extent;
}

#endif
