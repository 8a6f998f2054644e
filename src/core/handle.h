/* Handles: what users hold. Apart from payloads, so that several may share one (slices).
 *
 * Handles lie in chunks that the manager keeps until it is destroyed and reuses oldest first: a stale handle is found
 * dead, not unmapped, and a double release is an error instead of a crash.
 */
#ifndef SPW_CORE_HANDLE_H
#define SPW_CORE_HANDLE_H

#include "src/core/payload.h"

#include <spillway/buffer.h>
#include <spillway/head.h>

#define SPW__HANDLE_LIVE UINT64_C(0x7370775f6c697665)
#define SPW__HANDLE_DEAD UINT64_C(0x7370775f64656164)
#define SPW__TAG_BYTES 32

struct spw_buffer {
    _Atomic uint64_t magic; /* atomic */
    _Atomic uint32_t refs;  /* atomic */
    spw_manager *manager;
    struct spw__payload *payload;
    struct spw_head *head;        /* guarded by the payload's lock; NULL until it is set */
    struct spw_buffer *next_free; /* guarded by the handles' lock */
    char tag[SPW__TAG_BYTES];
};

/* The options of spw_alloc as this version knows them. SPW_EINVAL. */
int spw__alloc_options_take(spw_alloc_options *options, const spw_alloc_options *given, const char *what);

/* spw_alloc with options as this version knows them, at a memory place, charged to group. */
int spw__alloc_in(spw_manager *manager, struct spw__group *group, spw_place place, size_t bytes,
                  const spw_alloc_options *options, spw_buffer **out);

/* Checks the other options of an allocation, on behalf of call. */
int spw__alloc_options_check(spw_manager *manager, const char *call, const spw_alloc_options *options);

struct spw__request;

/* Makes a request of an allocation at a memory place, charged to group, whose other options were checked. */
int spw__alloc_request(spw_manager *manager, struct spw__group *group, spw_place place, size_t bytes,
                       const spw_alloc_options *options, struct spw__request *request);

/* Makes a buffer of what a request got: block -> payload -> handle. SPW_ENOMETA: nothing is left of it. (admit.c) */
int spw__buffer_wrap(struct spw__request *request, const char *tag, spw_buffer **out);

/* SPW_ENOMETA when the budget is used up. The handle has one reference and takes over the payload's. */
int spw__handle_create(spw_manager *manager, struct spw__payload *payload, const char *tag, spw_buffer **out);
void spw__handle_destroy(spw_buffer *buffer);

/* Visits live handles until visit returns false. Not together with create or destroy by other threads' will. */
void spw__handles_visit(spw_manager *manager, bool (*visit)(spw_buffer *buffer, void *arg), void *arg);
void spw__handles_finish(spw_manager *manager);

/* The same at any time, under the handles' lock: visit takes none. */
void spw__handles_look(spw_manager *manager, bool (*visit)(const spw_buffer *buffer, void *arg), void *arg);

/* A walk over the handles in parts. Zero-initialised at the start. */
struct spw__handles_cursor {
    struct spw__handle_chunk *chunk;
    unsigned at;
    bool begun;
};

/* Takes up to max references to payloads of live buffers that are charged to group or below it, from the cursor on.
 * 0: there are no more. A buffer that is made meanwhile may be missed. */
unsigned spw__handles_take(spw_manager *manager, struct spw__handles_cursor *cursor, const struct spw__group *group,
                           struct spw__payload **out, unsigned max);

/* SPW_OK, or SPW_EBADHANDLE / SPW_EFORK with detail. call names the public function. */
int spw__handle_check(const spw_buffer *buffer, const char *call);

/* Returns rc; the error's detail, when it concerns the one buffer and not the room for it, names the buffer: payloads,
 * where it was found, do not know their tags. */
int spw__handle_name(int rc, const char *tag);

#endif
