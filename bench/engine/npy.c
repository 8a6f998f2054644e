/* Discovery and range reads of sharded columns. Neighbours: npy_header.c (the header's text), source.c (the user). */
#include "npy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMED_MAX       5            /* how many missing or stray names an error lists */
#define HEADER_TEXT_MAX (1u << 20)   /* larger headers exist only for structured types */

int npy_shard_path(char *out, size_t size, const char *folder, uint32_t shard)
{
    int n = snprintf(out, size, "%s/shard_%04" PRIu32 ".npy", folder, shard);
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

/* Only the name that npy_shard_path would write counts: four digits, more from 10000 on, no other zeros in front. */
static int parse_shard_name(const char *name, uint32_t *shard)
{
    char expected[32];
    uint32_t value;
    if (sscanf(name, "shard_%9" SCNu32, &value) != 1)
        return 0;
    (void)snprintf(expected, sizeof expected, "shard_%04" PRIu32 ".npy", value);
    *shard = value;
    return strcmp(name, expected) == 0;
}

/* A name that does not fit any more is left out. */
static void append_name(char *list, size_t size, const char *name, unsigned position)
{
    size_t used = strlen(list);
    int n = snprintf(list + used, size - used, "%s%s", position == 0 ? "" : ", ", name);
    if (n < 0 || (size_t)n >= size - used)
        list[used] = 0;
}

struct listing {
    uint32_t *shards;
    size_t count, capacity;
    char stray[256];
    unsigned n_stray;
};

static int listing_add(struct listing *l, uint32_t shard)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity == 0 ? 64 : l->capacity * 2;
        uint32_t *grown = realloc(l->shards, capacity * sizeof *grown);
        if (grown == NULL)
            return -1;
        l->shards = grown;
        l->capacity = capacity;
    }
    l->shards[l->count++] = shard;
    return 0;
}

static int list_folder(struct listing *l, const char *folder, struct eng_error *error)
{
    struct dirent *entry;
    int result = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return eng_fail(error, ENG_FAILED, "cannot open the column folder '%s': %s", folder, strerror(errno));
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        uint32_t shard;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!parse_shard_name(entry->d_name, &shard)) {
            if (l->n_stray < NAMED_MAX)
                append_name(l->stray, sizeof l->stray, entry->d_name, l->n_stray);
            l->n_stray++;
        } else if (listing_add(l, shard) != 0) {
            result = eng_fail(error, ENG_FAILED, "out of memory while listing '%s'", folder);
            break;
        }
    }
    if (result == 0 && errno != 0)
        result = eng_fail(error, ENG_FAILED, "cannot list '%s': %s", folder, strerror(errno));
    (void)closedir(dir);
    return result;
}

static int compare_shards(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int check_contiguous(struct listing *l, const char *folder, struct eng_error *error)
{
    char missing[256] = "";
    unsigned named = 0;
    uint32_t expected = 0;
    qsort(l->shards, l->count, sizeof *l->shards, compare_shards);
    if (l->shards[l->count - 1] + 1 == l->count)
        return 0;
    for (size_t i = 0; i < l->count && named < NAMED_MAX; expected++) {
        if (l->shards[i] == expected) {
            i++;
        } else {
            char name[32];
            (void)snprintf(name, sizeof name, "shard_%04" PRIu32 ".npy", expected);
            append_name(missing, sizeof missing, name, named++);
        }
    }
    return eng_fail(error, ENG_FAILED, "'%s' has a gap: %zu of %" PRIu32 " shards are missing, among them %s", folder,
                    (size_t)l->shards[l->count - 1] + 1 - l->count, l->shards[l->count - 1] + 1, missing);
}

/* Finds the shards of a folder: how many there are, once their names are known to be 0 .. n-1 and nothing else. */
static int discover(const char *folder, uint32_t *n_shards, struct eng_error *error)
{
    struct listing l = {NULL, 0, 0, "", 0};
    int result = list_folder(&l, folder, error);
    if (result == 0 && l.n_stray > 0)
        result = eng_fail(error, ENG_FAILED,
                          "'%s' holds %u name%s other than shard_0000.npy, shard_0001.npy, ...: %s%s",
                          folder, l.n_stray, l.n_stray == 1 ? "" : "s", l.stray, l.n_stray > NAMED_MAX ? ", ..." : "");
    else if (result == 0 && l.count == 0)
        result = eng_fail(error, ENG_FAILED, "'%s' holds no shards: shard_0000.npy is missing", folder);
    else if (result == 0)
        result = check_contiguous(&l, folder, error);
    *n_shards = (uint32_t)l.count;
    free(l.shards);
    return result;
}

static int read_fully(int fd, void *out, size_t bytes, uint64_t offset)
{
    char *to = out;
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? 0 : errno;
            return -1;
        }
        to += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Reads magic, version, length and dictionary; nothing behind them. */
static int read_header(int fd, const char *path, struct npy_header *header, uint64_t *data_offset,
                       struct eng_error *error)
{
    unsigned char head[12];
    char *text;
    const char *wrong;
    if (read_fully(fd, head, 10, 0) != 0)
        return eng_fail(error, ENG_FAILED, "'%s' is no npy file: %s", path,
                        errno != 0 ? strerror(errno) : "it is shorter than a header");
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return eng_fail(error, ENG_FAILED, "'%s' is no npy file: it does not begin with \\x93NUMPY", path);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return eng_fail(error, ENG_FAILED, "'%s' has npy version %u.%u; 1.0, 2.0 and 3.0 are known", path, head[6],
                        head[7]);
    size_t start = head[6] == 1 ? 10 : 12;
    if (start == 12 && read_fully(fd, head + 10, 2, 10) != 0)
        return eng_fail(error, ENG_FAILED, "'%s' is cut within its header", path);
    size_t length = head[8] | (size_t)head[9] << 8;
    if (start == 12)
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (length > HEADER_TEXT_MAX)
        return eng_fail(error, ENG_FAILED, "'%s' claims a header of %zu bytes", path, length);
    if ((text = malloc(length + 1)) == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory while reading '%s'", path);
    if (read_fully(fd, text, length, start) != 0)
        wrong = "the file is cut within its header";
    else
        wrong = npy_parse_dictionary(text, length, header);
    free(text);
    *data_offset = start + length;
    return wrong == NULL ? 0 : eng_fail(error, ENG_FAILED, "'%s': %s", path, wrong);
}

static int check_header(const struct npy_header *header, const char *path, unsigned *width, struct eng_error *error)
{
    const char *descr = header->descr;
    if (descr[0] == '>')
        return eng_fail(error, ENG_FAILED, "'%s' has dtype '%s': foreign byte order; '<i4' or '<i8' is wanted", path,
                        descr);
    if (strcmp(descr, "<i4") != 0 && strcmp(descr, "<i8") != 0)
        return eng_fail(error, ENG_FAILED, "'%s' has %s%s%s; '<i4' or '<i8' is wanted", path,
                        descr[0] == '[' ? "a structured dtype" : "dtype '", descr[0] == '[' ? "" : descr,
                        descr[0] == '[' ? "" : "'");
    if (header->fortran_order)
        return eng_fail(error, ENG_FAILED, "'%s' is in Fortran order; C order is wanted", path);
    if (header->dimensions == 0)
        return eng_fail(error, ENG_FAILED, "'%s' is 0-dimensional: a single number, no column", path);
    if (header->dimensions != 1)
        return eng_fail(error, ENG_FAILED, "'%s' has %u dimensions; a column has one", path, header->dimensions);
    *width = descr[2] == '4' ? 4 : 8;
    return 0;
}

static int open_shard(struct npy_column *column, uint32_t shard, const char *path, int fd, struct eng_error *error)
{
    struct npy_header header;
    struct stat st;
    unsigned width = 0;
    if (fstat(fd, &st) != 0)
        return eng_fail(error, ENG_FAILED, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return eng_fail(error, ENG_FAILED, "'%s' is no regular file", path);
    if (read_header(fd, path, &header, &column->data_offset[shard], error) != 0 ||
        check_header(&header, path, &width, error) != 0)
        return -1;
    if (shard == 0)
        column->width = width;
    if (width != column->width)
        return eng_fail(error, ENG_FAILED, "'%s' has dtype '%s', the first shard has '<i%u'", path, header.descr,
                        column->width);
    if (header.rows > (uint64_t)(INT64_MAX / 8 - column->first_row[shard]))
        return eng_fail(error, ENG_FAILED, "'%s' claims %" PRIu64 " rows", path, header.rows);
    uint64_t wanted = header.rows * width, present = (uint64_t)st.st_size - column->data_offset[shard];
    if (present < wanted)
        return eng_fail(error, ENG_FAILED,
                        "'%s' is truncated: %" PRIu64 " rows want %" PRIu64 " bytes of data, it holds %" PRIu64, path,
                        header.rows, wanted, present);
    if (present > wanted)
        return eng_fail(error, ENG_FAILED,
                        "'%s' is too long: %" PRIu64 " rows want %" PRIu64 " bytes of data, it holds %" PRIu64, path,
                        header.rows, wanted, present);
    column->first_row[shard + 1] = column->first_row[shard] + (int64_t)header.rows;
    return 0;
}

int npy_column_open(struct npy_column *column, const char *folder, struct eng_error *error)
{
    char path[4096];
    int result;
    memset(column, 0, sizeof *column);
    if (discover(folder, &column->n_shards, error) != 0)
        return -1;
    column->folder = strdup(folder);
    column->first_row = calloc((size_t)column->n_shards + 1, sizeof *column->first_row);
    column->data_offset = calloc(column->n_shards, sizeof *column->data_offset);
    result = column->folder == NULL || column->first_row == NULL || column->data_offset == NULL
                 ? eng_fail(error, ENG_FAILED, "out of memory while opening '%s'", folder)
                 : 0;
    for (uint32_t i = 0; result == 0 && i < column->n_shards; i++) {
        if (npy_shard_path(path, sizeof path, folder, i) != 0) {
            result = eng_fail(error, ENG_FAILED, "the path of '%s' is too long", folder);
            break;
        }
        /* O_NONBLOCK: a named pipe must not hold us; it is refused after fstat. */
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) {
            result = eng_fail(error, ENG_FAILED, "cannot open '%s': %s", path, strerror(errno));
            break;
        }
        result = open_shard(column, i, path, fd, error);
        (void)close(fd);
    }
    if (result == 0)
        column->rows = column->first_row[column->n_shards];
    else
        npy_column_close(column);
    return result;
}

void npy_column_close(struct npy_column *column)
{
    free(column->folder);
    free(column->first_row);
    free(column->data_offset);
    memset(column, 0, sizeof *column);
}

uint32_t npy_column_locate(const struct npy_column *column, int64_t row)
{
    uint32_t low = 0, high = column->n_shards - 1; /* the last shard whose first row is not above row */
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (column->first_row[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void npy_reader_init(struct npy_reader *reader, const struct npy_column *column)
{
    reader->column = column;
    reader->fd = -1;
    reader->shard = 0;
}

void npy_reader_finish(struct npy_reader *reader)
{
    if (reader->fd >= 0)
        (void)close(reader->fd);
    reader->fd = -1;
}

int npy_reader_read(struct npy_reader *reader, int64_t first, int64_t n, void *out, struct eng_error *error)
{
    const struct npy_column *column = reader->column;
    char path[4096];
    char *to = out;
    while (n > 0) {
        uint32_t shard = npy_column_locate(column, first);
        int64_t left = column->first_row[shard + 1] - first;
        int64_t rows = n < left ? n : left;
        size_t bytes = (size_t)rows * column->width;
        uint64_t offset = column->data_offset[shard] + (uint64_t)(first - column->first_row[shard]) * column->width;
        (void)npy_shard_path(path, sizeof path, column->folder, shard);
        if (reader->fd < 0 || reader->shard != shard) {
            npy_reader_finish(reader);
            reader->fd = open(path, O_RDONLY | O_CLOEXEC);
            if (reader->fd < 0)
                return eng_fail(error, ENG_FAILED, "cannot open '%s': %s", path, strerror(errno));
            reader->shard = shard;
        }
        if (read_fully(reader->fd, to, bytes, offset) != 0)
            return eng_fail(error, ENG_FAILED, "cannot read '%s' at byte %" PRIu64 ": %s", path, offset,
                            errno != 0 ? strerror(errno) : "the file was truncated while it was loaded");
        (void)posix_fadvise(reader->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
        to += bytes;
        first += rows;
        n -= rows;
    }
    return 0;
}
