/* Bringing a payload together at a place. */
#ifndef SPW_CORE_MAP_H
#define SPW_CORE_MAP_H

#include "src/core/payload.h"

#include <spillway/buffer.h>

/* The parts of spw_map and spw_unmap that know no handle. Arguments are checked. */
int spw__payload_map(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                     spw_tier *tier, uint64_t *address);
/* After a map on the device: what is enqueued on stream from now on comes after the last use that unmap noted; without a
 * stream the call waits for that use. Errors: those of a wait, SPW_EDEVICE. */
int spw__payload_order_use(struct spw__payload *payload, void *stream, const spw_wait_options *wait);

/* Waits until no move of a piece is in flight. It must be pinned, so that none begins. */
int spw__payload_await_piece(struct spw__piece *piece);

int spw__payload_unmap(struct spw__payload *payload, bool write, void *stream);

#endif
