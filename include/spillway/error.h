/* Error codes, their texts, and the detail behind the last failure of a thread.
 *
 * Every fallible call returns SPW_OK (0) or one of the negative codes below. The code says what kind of failure it was;
 * spw_error_detail() says what was short, by how much, and which setting would have changed the outcome.
 *
 * Threads: everything here may be called from any thread; detail is per thread.
 * Ownership: every string and struct returned here belongs to the library; nothing is to be freed.
 */
#ifndef SPILLWAY_ERROR_H
#define SPILLWAY_ERROR_H

#include <stdint.h>

#include <spillway/export.h>
#include <spillway/place.h>

SPW_BEGIN_DECLS

/* name, value, text: the one list from which codes, names and texts are made. */
#define SPW_ERROR_LIST(X)                                                                                              \
    X(EINVAL, -1, "invalid argument")                                                                                  \
    X(ESPEC, -2, "malformed configuration string")                                                                     \
    X(ENOMEM, -3, "no room before the deadline")                                                                       \
    X(EFRAG, -4, "enough bytes are free, but no contiguous hole fits")                                                 \
    X(ETOOBIG, -5, "the request can never fit")                                                                        \
    X(ENOMETA, -6, "the metadata budget is used up")                                                                   \
    X(EAGAIN, -7, "would have to wait")                                                                                \
    X(ETIMEDOUT, -8, "timed out")                                                                                      \
    X(ECANCELED, -9, "cancelled")                                                                                      \
    X(ESHUTDOWN, -10, "the manager is shutting down")                                                                  \
    X(ERETRY, -11, "give something back, wait your turn, and try again")                                               \
    X(ESPLIT, -12, "split the work and try again")                                                                     \
    X(ENOSPC, -13, "no space left in any spill folder")                                                                \
    X(EIO, -14, "input/output error on every spill folder")                                                            \
    X(ECORRUPT, -15, "data read back differs from what was written")                                                   \
    X(EDEVICE, -16, "device error")                                                                                    \
    X(ENOTSUP, -17, "not supported here")                                                                              \
    X(EBUSY, -18, "still in use")                                                                                      \
    X(ESEALED, -19, "the buffer is sealed")                                                                            \
    X(EMAPPED, -20, "the buffer is mapped")                                                                            \
    X(EWRONGTIER, -21, "the bytes lie in another tier")                                                                \
    X(EFORK, -22, "called in a forked child")                                                                          \
    X(EBADHANDLE, -23, "not a live handle")

/* Result of a call: SPW_OK, or a negative SPW_E... code. */
enum spw_error {
    SPW_OK = 0,
#define SPW_X(name, value, text) SPW_##name = value,
    SPW_ERROR_LIST(SPW_X)
#undef SPW_X
};

/* What is known about the last failure of this thread. Fields that do not apply are 0. */
typedef struct spw_error_info {
    int code;                 /* the code that was returned */
    spw_place place;          /* the place that was short or broken, SPW_PLACE_NONE if none */
    uint32_t pool;            /* the pool asked first, counted from 0 in the order of the specification */
    uint64_t requested_bytes; /* what was asked for */
    uint64_t free_bytes;      /* budget not committed at that moment */
    uint64_t largest_free_bytes; /* largest contiguous hole at that moment */
    uint64_t limit_bytes;     /* the budget or the limit that stood in the way */
    uint64_t offset_bytes;    /* byte offset: of an error in a string, or of a failed transfer in a spill file */
    uint64_t group_committed_bytes; /* what the group named below has there; limit_bytes is its maximum then */
    char group[32];           /* whose maximum stood in the way; "": the place's budget did, or no budget */
    int os_errno;             /* errno of the system call behind it, 0 if none */
    char message[768];        /* one line, in English: what failed, by how much, and what would help */
} spw_error_info;

/* Text of a code, for example "no room before the deadline". Never NULL; unknown codes give "unknown error".
 * Since 0.1. */
SPW_API const char *spw_strerror(int code);

/* Name of a code, for example "SPW_ENOMEM". Never NULL. Since 0.1. */
SPW_API const char *spw_error_name(int code);

/* Detail of the calling thread's last failed call. Never NULL; valid until that thread's next call into the library.
 * A call that succeeds does not clear it. Since 0.1. */
SPW_API const spw_error_info *spw_error_detail(void);

SPW_END_DECLS

#endif
