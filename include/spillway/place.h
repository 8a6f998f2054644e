/* Places: a tier of memory and an index within it (device 0, host of NUMA node 1).
 *
 * A place is a plain number, so that it can be compared, switched on and stored. SPW_DEVICE and its siblings mean
 * index 0, which is the only index that exists today.
 */
#ifndef SPILLWAY_PLACE_H
#define SPILLWAY_PLACE_H

#include <stdint.h>

#include <spillway/export.h>

SPW_BEGIN_DECLS

/* Tiers, best first. META is not a tier of payload: it is the budget of handles and heads. */
typedef enum spw_tier {
    SPW_TIER_DEVICE = 0,
    SPW_TIER_PINNED_HOST = 1,
    SPW_TIER_HOST = 2,
    SPW_TIER_DISK = 3,
    SPW_TIER_META = 4
} spw_tier;

#define SPW_TIER_COUNT 5

/* Tier + 1 in the low 8 bits, index above; 0 is no place. */
typedef uint32_t spw_place;

#define SPW_PLACE(tier, index) ((spw_place)(((uint32_t)(index) << 8) | ((uint32_t)(tier) + 1u)))
#define SPW_PLACE_NONE ((spw_place)0)
#define SPW_DEVICE SPW_PLACE(SPW_TIER_DEVICE, 0)
#define SPW_PINNED_HOST SPW_PLACE(SPW_TIER_PINNED_HOST, 0)
#define SPW_HOST SPW_PLACE(SPW_TIER_HOST, 0)
#define SPW_DISK SPW_PLACE(SPW_TIER_DISK, 0)
#define SPW_META SPW_PLACE(SPW_TIER_META, 0)

/* Tier of a place; the place must not be SPW_PLACE_NONE. */
#define SPW_PLACE_TIER(place) ((spw_tier)(((place) & 0xffu) - 1u))
#define SPW_PLACE_INDEX(place) ((uint32_t)((place) >> 8))

/* Name of a tier as it stands in statistics, JSON keys and messages: "device", "pinned_host", "host", "disk", "meta".
 * Unknown tiers give "?". Never NULL, never freed. Any thread. Since 0.1. */
SPW_API const char *spw_tier_name(spw_tier tier);

SPW_END_DECLS

#endif
