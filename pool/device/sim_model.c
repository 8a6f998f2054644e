/* The arithmetic of the modelled link: see sim_model.h. Neighbour: sim_engine.c, which makes threads keep to it. */
#include "pool/device/sim_model.h"

#include <math.h>

void spw__sim_link_init(struct spw__sim_link *link, const struct spw__sim_model *model, uint64_t now_ns)
{
    *link = (struct spw__sim_link){.model = *model, .now_ns = now_ns};
}

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_flowing(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    return link->lanes[engine].busy && link->lanes[engine].flow_ns <= link->now_ns;
}

/* Bytes per second of a direction while both flow; one without a limit counts as fast as both together. */
static double shared_rate(const struct spw__sim_model *model, double rate, double other)
{
    const double both = (double)model->duplex_bytes_per_s;
    const double mine = rate > 0 ? rate : both, others = other > 0 ? other : both;
    return mine + others > both ? both * mine / (mine + others) : mine;
}

static enum spw__sim_engine other_of(enum spw__sim_engine engine)
{
    return engine == SPW__SIM_H2D ? SPW__SIM_D2H : SPW__SIM_H2D;
}

/* The engine's bytes flow through the same link as those of the other direction. */
static bool shares(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    return engine != SPW__SIM_D2D && link->model.duplex_bytes_per_s && is_flowing(link, other_of(engine));
}

/* Bytes per nanosecond, alone or with the other direction; infinite without a limit. */
static double rate_when(const struct spw__sim_link *link, enum spw__sim_engine engine, bool shared)
{
    const struct spw__sim_model *model = &link->model;
    const double rates[] = {(double)model->h2d_bytes_per_s, (double)model->d2h_bytes_per_s,
                            (double)model->d2d_bytes_per_s};
    const double rate = shared ? shared_rate(model, rates[engine], rates[other_of(engine)]) : rates[engine];
    return rate > 0 ? rate / 1e9 : (double)INFINITY;
}

static double rate_of(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    return rate_when(link, engine, shares(link, engine));
}

/* Rounded up. (ceil would be all that the library needs of libm.) */
static uint64_t whole_ns(double ns)
{
    const uint64_t below = (uint64_t)ns;
    return below + ((double)below < ns);
}

/* When the lane's state changes next if nothing else does: its bytes begin to flow, or are all there. */
static uint64_t next_change(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    const struct spw__sim_lane *lane = &link->lanes[engine];
    if (!is_flowing(link, engine))
        return lane->flow_ns;
    return link->now_ns + whole_ns(lane->left / rate_of(link, engine));
}

/* To the next change of a busy lane, not beyond limit_ns. False at limit_ns, with nothing left to change there. */
static bool step(struct spw__sim_link *link, uint64_t limit_ns)
{
    uint64_t next_ns = UINT64_MAX, changes[SPW__SIM_ENGINES];
    bool flowing[SPW__SIM_ENGINES];
    double rates[SPW__SIM_ENGINES];
    for (enum spw__sim_engine engine = SPW__SIM_H2D; engine < SPW__SIM_ENGINES; engine++) {
        changes[engine] = link->lanes[engine].busy ? next_change(link, engine) : UINT64_MAX;
        flowing[engine] = is_flowing(link, engine);
        rates[engine] = rate_of(link, engine);
        if (changes[engine] < next_ns)
            next_ns = changes[engine];
    }
    const bool changed = next_ns <= limit_ns;
    if (!changed)
        next_ns = limit_ns;
    for (enum spw__sim_engine engine = SPW__SIM_H2D; engine < SPW__SIM_ENGINES; engine++) {
        struct spw__sim_lane *lane = &link->lanes[engine];
        if (!flowing[engine])
            continue;
        if (changes[engine] == next_ns) {
            lane->busy = false;
            lane->free_ns = next_ns;
        } else {
            lane->left -= rates[engine] * (double)(next_ns - link->now_ns);
        }
    }
    link->now_ns = next_ns;
    return changed;
}

void spw__sim_link_advance(struct spw__sim_link *link, uint64_t now_ns)
{
    while (link->now_ns <= now_ns && step(link, now_ns)) {
    }
}

static double bytes_in(double rate, double ns)
{
    return ns > 0 ? rate * ns : 0; /* the rate may be infinite */
}

/* A copy whose bytes began to flow in the past: they count as moved, and the other direction, which was taken to be
 * alone meanwhile, gives back what it had too much. */
static void catch_up(struct spw__sim_link *link, enum spw__sim_engine engine)
{
    struct spw__sim_lane *lane = &link->lanes[engine], *other = &link->lanes[other_of(engine)];
    const bool shared = shares(link, engine);
    const double passed = (double)(link->now_ns - lane->flow_ns);
    const double together = shared ? (double)(link->now_ns - max(lane->flow_ns, other->flow_ns)) : 0;
    const double moved =
        bytes_in(rate_when(link, engine, false), passed - together) + bytes_in(rate_when(link, engine, true), together);
    const double part = moved > lane->left ? lane->left / moved : 1; /* of the time: it may be over */
    if (shared)
        other->left += bytes_in(rate_when(link, other_of(engine), false) - rate_when(link, other_of(engine), true),
                                together * part);
    if (moved < lane->left) {
        lane->left -= moved;
    } else {
        lane->busy = false;
        lane->free_ns = lane->flow_ns + whole_ns(passed * part);
    }
}

void spw__sim_link_start(struct spw__sim_link *link, enum spw__sim_engine engine, uint64_t ready_ns, uint64_t bytes)
{
    struct spw__sim_lane *lane = &link->lanes[engine];
    const uint64_t start_ns = max(ready_ns, lane->free_ns);
    spw__sim_link_advance(link, start_ns);
    lane->busy = true;
    lane->flow_ns = start_ns + link->model.latency_ns;
    lane->left = (double)bytes;
    if (lane->flow_ns < link->now_ns)
        catch_up(link, engine);
}

uint64_t spw__sim_link_due_ns(const struct spw__sim_link *link, enum spw__sim_engine engine)
{
    struct spw__sim_link ahead = *link;
    while (ahead.lanes[engine].busy)
        (void)step(&ahead, UINT64_MAX);
    return ahead.lanes[engine].free_ns;
}
