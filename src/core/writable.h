/* What the two forms of spw_buffer_make_writable share. Threads: any. */
#ifndef SPW_CORE_WRITABLE_H
#define SPW_CORE_WRITABLE_H

#include "src/core/handle.h"

/* Whether a buffer's payload, which the call holds by one view, is the sole owner's to unseal. SPW_OK: *sole says so,
 * else a copy is needed. SPW_EAGAIN: it would be, once a move or a ticket's view that is in the way has ended: wait for
 * a change. SPW_EMAPPED: the sole owner has other views open: their reader relies on the content, and the reference
 * could not be given back for a copy. tag: for messages; of buffer nothing but the references is looked at. held: the
 * view is a ticket's. Payload locked. */
int spw__writable_look_locked(const spw_buffer *buffer, const struct spw__payload *payload, const char *tag, bool held,
                              bool *sole);

/* Unseals; copies on disk go. The payload is held by a view: nothing moves. Locked. */
void spw__writable_unseal_locked(struct spw__payload *payload);

/* Who is charged for a copy of a buffer of payload. Errors as spw__group_charged. */
int spw__writable_charged(struct spw__payload *payload, const spw_alloc_options *options, struct spw__group **out);

#endif
