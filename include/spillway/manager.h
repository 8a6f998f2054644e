/* The manager: owns the memory of all tiers, the spill files and the thread that moves bytes between them.
 *
 * Threads: every call may be made from any thread, but for spw_manager_destroy, which must be the last.
 * Ownership: the caller owns the manager; buffers belong to it and must be released before it is destroyed.
 *
 * Life cycle: spw_options_init -> spw_manager_create -> (buffers) -> spw_manager_destroy.
 */
#ifndef SPILLWAY_MANAGER_H
#define SPILLWAY_MANAGER_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/error.h>
#include <spillway/export.h>
#include <spillway/place.h>
#include <spillway/spec.h>

SPW_BEGIN_DECLS

typedef struct spw_manager spw_manager;

/* Receives one line (no newline) about something worth knowing that is no error: a fallback taken, a limit met. level
 * is 1 (error), 2 (warning), 3 (info) or 4 (debug). May be called from any thread of the library; must not call back
 * into it. */
typedef void (*spw_log_fn)(void *arg, int level, const char *line);

/* How to create a manager. Precedence for each part: field here, then spec string, then environment variable. */
typedef struct spw_options {
    size_t struct_size;
    const char *spec;           /* configuration string (spec.h); NULL: $SPILLWAY_SPEC, else the defaults. Copied */
    const spw_spec *fields;     /* parts that override the string's: start from spw_spec_init_empty and set pools,
                                   folders (any path), sizes or choices; what is at its default there overrides
                                   nothing. NULL: none. Read during the call only */
    int64_t default_timeout_ms; /* for SPW_TIMEOUT_DEFAULT; initialised to 60000 */
    spw_log_fn log;             /* NULL: warnings and errors go to stderr */
    void *log_arg;
} spw_options;

/* Sets every field to its default in a struct of that size. A library that knows more fields than the program's header
 * writes no further than size; one that knows fewer zeroes the rest. Never blocks; any thread. Since 0.1. */
SPW_API void spw_options_init_sized(spw_options *options, size_t size);

/* The same for a struct of the program's own header. Since 0.1. */
static inline void spw_options_init(spw_options *options)
{
    spw_options_init_sized(options, sizeof *options);
}

/* Creates a manager: parses the configuration, reserves all memory (all or nothing), opens the spill folders, starts
 * the mover thread unless threads=0. options NULL means the defaults. Blocks on the file system.
 * A spill folder that does not exist is created, and removed again at destroy (after a crash the empty folder may stay;
 * the files in it are unlinked from the start). Staging is set aside out of pinned_host, else host, else meta.
 * Errors: SPW_ESPEC (the string, or an environment variable), SPW_EINVAL (options; no memory tier is left; a model
 * without driver=sim, or with less memory than device= has; a folder that is none, is named twice, or can be written to
 * by others), SPW_ENOMEM (the system refuses the memory), SPW_ENOMETA (meta= is too small for the bookkeeping),
 * SPW_EDEVICE or SPW_ENOTSUP (the driver asked for is not there), SPW_EIO (a folder cannot be used). On error *out is
 * NULL and nothing is left behind. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_manager_create(const spw_options *options, spw_manager **out);

/* Destroys a manager to which nothing belongs any more: waits for moves in flight and for streams that still use freed
 * memory, ends the threads, removes the spill files, frees all memory. No other call on the manager may run meanwhile.
 * SPW_EBUSY while tickets, buffers, raw blocks, streams, reclaimers, external charges, reservations, tasks or groups
 * are left: the detail names them, buffers by tag, or says how many of how many bytes there are, and nothing is freed.
 * SPW_EFORK. NULL is a no-op. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_manager_destroy(spw_manager *manager);

/* The same with whatever is live; for exits on a fatal error. In this order: waits, on any thread, end with
 * SPW_ESHUTDOWN, and it returns only when the calls that waited have; tickets are destroyed, with what was not taken
 * from them; live buffers are dropped, mapped or not, and their handles poisoned, so that a use gives SPW_EBADHANDLE;
 * then all memory goes, that of all handles, of open views and of raw blocks too. From its return on every handle, view
 * and block of the manager dangles: any use is undefined, as is that of the manager. A call that begins while it runs,
 * or runs without waiting, is a race of the program's. In a forked child, and for NULL, nothing happens. Since 0.1. */
SPW_API void spw_manager_destroy_force(spw_manager *manager);

/* Sets the budget of a place (SPW_DEVICE, SPW_PINNED_HOST, SPW_HOST, SPW_DISK or SPW_META), in bytes, at most the size
 * of its pools. Does not wait; the system may be asked for memory on behalf of those who do. Lowering it below what is
 * committed makes the excess overbooked: nothing new is granted until committed is below the budget again, and spilling
 * starts as soon as somebody asks. Raising it lets those who wait proceed. SPW_EINVAL (NULL, a place that does not
 * exist, a budget above its pools), SPW_EFORK. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_set_budget(spw_manager *manager, spw_place place, uint64_t bytes);

/* Budget of a place in bytes, as created or set last; 0 when manager is NULL or the place does not exist. Never blocks.
 * Since 0.1. */
SPW_API uint64_t spw_budget(spw_manager *manager, spw_place place);

/* Runs moves, completions and tickets that are due, and waits for what is under way for at most max_ns nanoseconds (0:
 * one round, without waiting). With threads=0 this is the only thing that moves bytes, besides calls that wait, which
 * drive it themselves; and it may call reclaimers (reclaim.h), for as long as they take. With a mover thread it does
 * nothing, and returns 0.
 * Returns 1 while moves are queued or in flight, also when all there is to do is to wait for them, or while another
 * thread drives them; else 0. 1 is no reason to call again: a loop that does so spins until the copies are done. Such a
 * loop sleeps on spw_manager_fd (ticket.h), which is readable when there is something to do, or lets this call wait, by
 * max_ns. Errors are negative: SPW_EINVAL (NULL), SPW_EFORK; when a move fails, that is the error of the call or ticket
 * that wanted it. Any thread. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_progress(spw_manager *manager, uint64_t max_ns);

SPW_END_DECLS

#endif
