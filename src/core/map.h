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
    bool used;        /* a stream was given something to do with it, or a writer is not alone: see spw__use_order */
    bool inside;      /* the call has waited: spw__waitset_leave follows once it has looked at the manager for the last
                         time */
};

/* Beside the public flags: the view is a ticket's own, and is not in the way of the buffer's release. */
#define SPW__MAP_HELD 0x80000000u

/* The parts of spw_map and spw_unmap that know no handle. Arguments are checked, but for what another thread may
 * change. */
int spw__payload_map(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                     struct spw__mapped *mapped);
int spw__payload_unmap(struct spw__payload *payload, uint32_t view_id, bool write, void *stream);

/* The steps of a map, for whoever waits between them without a thread (see map.c). A fetch belongs to the map that
 * created it until end_locked. Payload locked, but for request and fetched. */
struct spw__fetch;
/* What a map finds: SPW_OK and pinned; SPW_EAGAIN and *fetch set (its request is to be run) or NULL (another is at
 * work: wait for a change of the payload); or an error. */
int spw__map_look_locked(struct spw__payload *payload, spw_place place, uint32_t flags, const spw_map_options *options,
                         struct spw__mapped *mapped, struct spw__fetch **fetch);
struct spw__request *spw__fetch_request(struct spw__fetch *fetch);
void spw__fetch_settle_locked(struct spw__fetch *fetch); /* its request was granted */
/* Does what can be done now: SPW_OK when DONE, SPW_EAGAIN when the next step waits for a change. */
int spw__fetch_step_locked(struct spw__fetch *fetch);
/* Ends it with rc, which becomes the error of a move; one whose bytes are on their way goes on by itself. */
int spw__fetch_end_locked(struct spw__fetch *fetch, int rc);
void spw__map_fetched(struct spw__payload *payload); /* other maps waited for the fetch to end. Payload unlocked */

#endif
