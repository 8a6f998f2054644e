/* Allocation logs: what a program asked of its memory, read from one of three forms. docs/logs.md describes them.
 *
 * RMM's CSV, Umpire's JSON lines, and our own CSV become one list of operations over numbered blocks. Reading is all or
 * nothing: a malformed line is an error that names the line and what was expected there. A log that begins in the
 * middle of a run is not malformed: frees of pointers that it never allocated are counted and left out.
 *
 * Why pool/replay: replaying drives pool/range.h, and both the command (src/cmd) and bench_replay use it. It lies above
 * pool, which knows nothing of it, and is no part of the library: it is linked into these two programs only.
 *
 * Threads: a log belongs to one thread until it is read; then any may look at it.
 * Ownership: the log owns its arrays until spw__alloc_log_finish.
 */
#ifndef SPW_POOL_REPLAY_ALLOC_LOG_H
#define SPW_POOL_REPLAY_ALLOC_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>

/* Bytes that may be live at once: sums of offsets and sizes stay far from 2^64, and below what a range manages. */
#define SPW__ALLOC_LOG_LIVE_MAX  (UINT64_C(1) << 50)
#define SPW__ALLOC_LOG_PLACE_MAX 32u

struct spw__alloc_log {
    const char *form;                     /* name of the form, for reports */
    char place[SPW__ALLOC_LOG_PLACE_MAX]; /* of our own form; empty in the others */
    uint32_t *ops;                        /* in order: block * 2, + 1 when it is freed */
    size_t n_ops;
    uint64_t *sizes; /* of the blocks, in bytes as logged, never 0 */
    uint32_t n_blocks;
    uint64_t events; /* lines that say that something happened */
    uint64_t peak_live_bytes;
    uint64_t logged_failures; /* requests that had failed when the log was written: they took no memory */
    uint64_t unknown_frees;   /* of pointers that the log does not allocate */
    uint64_t lost_frees;      /* pointers that were allocated anew without having been freed */
};

static inline uint32_t spw__alloc_log_block(uint32_t op)
{
    return op / 2;
}

static inline bool spw__alloc_log_frees(uint32_t op)
{
    return op % 2 != 0;
}

/* Reads the file at path. place picks one of the places of a log in our own form; NULL: it must be about one only.
 * SPW_EINVAL: the file cannot be read or is malformed; SPW_ENOMETA: no memory. *log is untouched on error. */
SPW_MUST_CHECK int spw__alloc_log_read(const char *path, const char *place, struct spw__alloc_log *log);

void spw__alloc_log_finish(struct spw__alloc_log *log);

#endif
