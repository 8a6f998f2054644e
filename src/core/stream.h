/* The streams that a manager has created, so that it knows whether one is left, and the waits for the end of streams.
 *
 * An end is what a stream had been given when somebody began to wait for it:
 *
 *     end_create --> pending --the mover finds its event completed: end_over--> over, and whoever waits for it is told
 *
 * The mover holds a reference until then: who waited may give up and go.
 *
 * Threads: the fields say what guards them. Ownership: counted references.
 */
#ifndef SPW_CORE_STREAM_H
#define SPW_CORE_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/base/lock.h"
#include "src/core/use.h"

#include <spillway/error.h>

struct spw__stream_record {
    void *stream;
    struct spw__stream_record *next;
};

struct spw__streams {
    struct spw__mutex lock;
    struct spw__stream_record *first; /* guarded by lock */
    uint32_t live;                    /* guarded by lock */
};

struct spw__stream_end {
    struct spw_manager *manager; /* constant, as use */
    struct spw__use *use;
    _Atomic uint32_t refs;       /* atomic */
    atomic_bool over;            /* atomic: status and error are constant from then on */
    int status;
    spw_error_info error;
};

/* The end of what stream was given so far; one reference. SPW_ENOMETA, SPW_EDEVICE. */
int spw__stream_end_create(struct spw_manager *manager, void *stream, struct spw__stream_end **out);
/* Lets the mover watch it: then its end is signalled as that of an object of the waits. Once. */
void spw__stream_end_watch(struct spw__stream_end *end);
/* The result of a wait that ended with rc: the stream's, if it is over. */
int spw__stream_end_result(const struct spw__stream_end *end, int rc);
void spw__stream_end_unref(struct spw__stream_end *end);

void spw__streams_init(struct spw_manager *manager);
/* SPW_EBUSY, with how many, while one is live. */
int spw__streams_check_none(struct spw_manager *manager);
/* Waits for those that are left, and destroys them. No other call runs. */
void spw__streams_finish(struct spw_manager *manager);

#endif
