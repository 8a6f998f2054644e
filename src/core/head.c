/* Heads. Neighbours: handle.c frees them with their handle. */
#include <spillway/head.h>

#include <string.h>

#include "pool/base/error.h"
#include "src/core/handle.h"
#include "src/core/manager.h"

_Static_assert(sizeof(spw_head) == SPW_HEAD_BYTES, "a head is 1024 bytes");

int spw_buffer_head(const spw_buffer *buffer, spw_head *head)
{
    const int rc = spw__handle_check(buffer, "spw_buffer_head");
    if (rc != SPW_OK)
        return rc;
    if (!head)
        return spw__fail(SPW_EINVAL, "spw_buffer_head: head is NULL");
    struct spw__payload *payload = buffer->payload;
    spw__mutex_lock(&payload->lock);
    if (buffer->head)
        *head = *buffer->head;
    else
        memset(head, 0, sizeof *head);
    spw__mutex_unlock(&payload->lock);
    head->payload_bytes = payload->size;
    return SPW_OK;
}

int spw_buffer_set_meta(spw_buffer *buffer, const spw_head *head)
{
    const int rc = spw__handle_check(buffer, "spw_buffer_set_meta");
    if (rc != SPW_OK)
        return rc;
    if (!head || head->n_dims > SPW_HEAD_DIMS_MAX || head->reserved[0] || head->reserved[1])
        return spw__fail(SPW_EINVAL, "spw_buffer_set_meta: head is NULL, has more than %u dimensions, or its reserved "
                                     "fields are not 0", SPW_HEAD_DIMS_MAX);
    struct spw__payload *payload = buffer->payload;
    spw_head *fresh = NULL;
    spw__mutex_lock(&payload->lock);
    const bool first = !buffer->head;
    spw__mutex_unlock(&payload->lock);
    if (first && !(fresh = spw__meta_alloc(&buffer->manager->meta, sizeof *fresh)))
        return spw__fail(SPW_ENOMETA, "no metadata memory for a head of %u bytes; raise meta=", SPW_HEAD_BYTES);
    spw__mutex_lock(&payload->lock);
    if (!buffer->head) {
        buffer->head = fresh;
        fresh = NULL;
    }
    *buffer->head = *head;
    spw__mutex_unlock(&payload->lock);
    spw__meta_free(&buffer->manager->meta, fresh, sizeof *fresh); /* another thread set the first one meanwhile */
    return SPW_OK;
}
