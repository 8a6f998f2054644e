/* Headroom: room in pinned_host and host that spilling in the background keeps free for what is received.
 *
 *     off  --an admission had to wait (shortfall)--> armed: the whole headroom is wanted
 *     armed, nothing wanted  --an admission leaves less than half of it free (admitted), or waits (shortfall)--> wanted
 *     armed, wanted  --all of it is free, or nothing more can go (satisfied)--> nothing wanted
 *     armed  --twice of it is free, and nothing is wanted (admitted)--> off
 *
 * So it begins with a deficit, is never more than what the watermarks name, and stops by itself. Its victims are those
 * of an admission: the device gives none, and nothing is copied from the device to pinned_host for it.
 *
 * Threads: any; the fields are atomic. What is decided on them may lag behind: the next admission looks again.
 */
#ifndef SPW_CORE_HEADROOM_H
#define SPW_CORE_HEADROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <spillway/place.h>

struct spw_manager;

struct spw__headroom {
    uint64_t high_bytes;         /* constant; 0: none */
    atomic_bool armed;           /* atomic */
    _Atomic uint64_t want_bytes; /* atomic: to be free; 0: nothing is wanted */
};

/* percent: of the tiers' sizes; negative: the default. Before anything is admitted. */
void spw__headroom_init(struct spw_manager *manager, int percent);

/* An admission found no room in the tiers from first to lowest. */
void spw__headroom_shortfall(struct spw_manager *manager, spw_tier first, spw_tier lowest);

/* An admission was placed in tier. */
void spw__headroom_admitted(struct spw_manager *manager, spw_tier tier);

/* Bytes that a victim of tier should bring, with leaving_bytes on their way; 0: nothing is wanted any more. */
uint64_t spw__headroom_deficit(struct spw_manager *manager, spw_tier tier, uint64_t leaving_bytes);

/* Nothing more can go. */
void spw__headroom_satisfied(struct spw_manager *manager, spw_tier tier);

bool spw__headroom_wanted(const struct spw_manager *manager, spw_tier tier);

#endif
