/* How long copies take on the modelled link: arithmetic only, no clock, no thread, no lock.
 *
 * Three engines, one copy at a time each: to the device, from it, and within it. A copy costs the link's latency, then
 * its bytes flow at the engine's rate. While bytes flow in both directions and duplex is less than the two rates' sum,
 * both get their share of duplex in proportion to their rates. Times are nanoseconds of one clock, whichever.
 *
 *     lane: idle --spw__sim_link_start--> waiting (latency) --> flowing --spw__sim_link_advance--> idle
 *
 * Threads: the caller's lock.
 */
#ifndef SPW_DEVICE_SIM_MODEL_H
#define SPW_DEVICE_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/device/driver.h"

enum spw__sim_engine { SPW__SIM_H2D, SPW__SIM_D2H, SPW__SIM_D2D, SPW__SIM_ENGINES };

struct spw__sim_lane {
    bool busy;
    uint64_t flow_ns; /* from when on its bytes flow */
    double left;      /* bytes, at the link's time */
    uint64_t free_ns; /* when the latest copy ended */
};

struct spw__sim_link {
    struct spw__sim_model model;
    uint64_t now_ns; /* what the lanes' state is of */
    struct spw__sim_lane lanes[SPW__SIM_ENGINES];
};

void spw__sim_link_init(struct spw__sim_link *link, const struct spw__sim_model *model, uint64_t now_ns);

/* Starts a copy on an idle engine at ready_ns or when the engine's previous copy ended, whichever is later. That may be
 * in the past: whoever is told of an end some microseconds late loses nothing by it. */
void spw__sim_link_start(struct spw__sim_link *link, enum spw__sim_engine engine, uint64_t ready_ns, uint64_t bytes);

/* Ends what has ended by now_ns. */
void spw__sim_link_advance(struct spw__sim_link *link, uint64_t now_ns);

static inline bool spw__sim_link_is_busy(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    return link->lanes[engine].busy;
}

/* When the engine's copy ends if no other starts; of an idle engine, when its latest one ended. */
uint64_t spw__sim_link_due_ns(const struct spw__sim_link *link, enum spw__sim_engine engine);

#endif
