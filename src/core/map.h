/* Bringing a payload together at a place. */
#ifndef SPW_CORE_MAP_H
#define SPW_CORE_MAP_H

#include "src/core/payload.h"

#include <spillway/buffer.h>

/* What a map gives. */
struct spw__mapped {
    spw_tier tier;
    uint64_t address;
    uint32_t view_id; /* names the view among those open on the payload */
    bool used;        /* a stream was given something to do with it: see spw__use_order */
};

/* The parts of spw_map and spw_unmap that know no handle. Arguments are checked, but for what another thread may
 * change. */
int spw__payload_map(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                     struct spw__mapped *mapped);
int spw__payload_unmap(struct spw__payload *payload, uint32_t view_id, bool write, void *stream);

/* True when no move of any piece is in flight. Payload locked. */
bool spw__payload_idle_locked(const struct spw__payload *payload);

#endif
