/* Heads: 1024 bytes of metadata that stay in host memory beside a buffer, wherever its payload lies.
 *
 * A head describes a message (origin: the Mbuf head of Ascend DataFlow): type, shape, return code, route label, times
 * and a user area. It survives spill and return byte for byte and is readable without bringing the payload back. Its
 * memory comes from the meta budget and exists only once it is set; it does not count against pool limits.
 *
 * Threads: any. Ownership: heads are copied in and out; nothing points into the library.
 */
#ifndef SPILLWAY_HEAD_H
#define SPILLWAY_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include <spillway/buffer.h>
#include <spillway/export.h>

SPW_BEGIN_DECLS

#define SPW_HEAD_BYTES 1024u
#define SPW_HEAD_DIMS_MAX 32u
#define SPW_HEAD_USER_BYTES 704u

/* All fields but payload_bytes are the engine's; the library neither reads nor changes them. */
typedef struct spw_head {
    uint64_t payload_bytes;           /* size of the buffer; set by the library when the head is read */
    uint32_t data_type;               /* the engine's own numbering */
    uint32_t n_dims;                  /* dimensions in shape, at most SPW_HEAD_DIMS_MAX */
    int32_t return_code;              /* of the step that produced the message */
    uint32_t flags;
    uint64_t route_label;
    uint64_t start_ns;                /* of that step; any clock */
    uint64_t end_ns;
    uint64_t reserved[2];             /* must be 0 */
    int64_t shape[SPW_HEAD_DIMS_MAX]; /* entries from n_dims on are ignored */
    uint8_t user[SPW_HEAD_USER_BYTES];
} spw_head;

/* Copies the buffer's head to *head: all zero but payload_bytes when none was set. Does not block, allocates nothing.
 * SPW_EINVAL, SPW_EBADHANDLE. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_head(const spw_buffer *buffer, spw_head *head);

/* Makes *head the buffer's head, sealed or not: it is the metadata of this handle, not a part of the content. Does not
 * block. SPW_EINVAL (n_dims, reserved), SPW_ENOMETA when it is the first and the meta budget is used up; the old head
 * then stays. Since 0.1. */
SPW_API SPW_MUST_CHECK int spw_buffer_set_meta(spw_buffer *buffer, const spw_head *head);

SPW_END_DECLS

#endif
