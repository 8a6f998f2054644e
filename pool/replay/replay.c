/* The replayer. Neighbours: alloc_log.c (what is replayed), replay_move.c (opening holes), plan.c (runs it thousands of
 * times). */
#include "pool/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/replay/replay_run.h"
#include "pool/tier.h"

/* A pool as large as needed begins at this many times the most that is live. More than any log here needs: first fit
 * alone needs at most log2(largest/smallest) times; a run that needs more grows it. */
#define ROOM          16u
#define MOVABLE_SLACK 32u /* a movable pool grows to 1 + 1/32 of the most that was live in it */

uint64_t spw__replay_align(uint64_t charge)
{
    return charge >= SPW__DIRECT_MIN_BYTES ? SPW__IO_BLOCK : 0;
}

/* Preparing */

int spw__replay_create(const struct spw__alloc_log *log, uint32_t granularity, struct spw__replay **out)
{
    const struct spw__tier tier = {.granularity = granularity};
    struct spw__replay *replay = calloc(1, sizeof *replay);
    uint64_t live = 0;
    *out = NULL;
    if (replay)
        replay->blocks = calloc(log->n_blocks, sizeof *replay->blocks);
    if (!replay || !replay->blocks) {
        free(replay);
        return spw__fail(SPW_ENOMETA, "out of memory");
    }
    replay->log = log;
    replay->granularity = granularity;
    for (uint32_t i = 0; i < log->n_blocks; i++)
        replay->blocks[i].charge = spw__tier_charge(&tier, log->sizes[i]);
    for (size_t i = 0; i < log->n_ops; i++) {
        const uint64_t charge = replay->blocks[spw__alloc_log_block(log->ops[i])].charge;
        live = spw__alloc_log_frees(log->ops[i]) ? live - charge : live + charge;
        if (replay->peak_bytes < live)
            replay->peak_bytes = live;
    }
    *out = replay;
    return SPW_OK;
}

void spw__replay_destroy(struct spw__replay *replay)
{
    if (!replay)
        return;
    free(replay->blocks);
    free(replay);
}

uint64_t spw__replay_peak(const struct spw__replay *replay)
{
    return replay->peak_bytes;
}

const struct spw__alloc_log *spw__replay_log(const struct spw__replay *replay)
{
    return replay->log;
}

/* Pools */

static uint64_t elastic_size(const struct spw__replay *replay, const struct spw__replay_pool *pool)
{
    if (!replay->config.movable)
        return replay->peak_bytes * ROOM;
    const uint64_t wanted = pool->peak_bytes + pool->peak_bytes / MOVABLE_SLACK;
    return (wanted + SPW__IO_BLOCK - 1) / SPW__IO_BLOCK * SPW__IO_BLOCK;
}

static int open_pools(struct spw__replay *replay)
{
    const struct spw__replay_config *config = &replay->config;
    for (uint32_t i = 0; i < config->n_pools; i++) {
        const spw_spec_pool *spec = &config->pools[i];
        struct spw__replay_pool *pool = &replay->pools[i];
        *pool = (struct spw__replay_pool){.limit = spec->limit_bytes ? spec->limit_bytes : UINT64_MAX};
        pool->elastic = spec->size_bytes == 0;
        pool->size =
            pool->elastic ? elastic_size(replay, pool) : spec->size_bytes / replay->granularity * replay->granularity;
        const int rc = spw__range_create(pool->size, replay->granularity, config->address_ordered, NULL, &pool->range);
        if (rc != SPW_OK)
            return rc;
        uint32_t at = i;
        for (; at > 0 && replay->pools[replay->route[at - 1]].limit > pool->limit; at--)
            replay->route[at] = replay->route[at - 1];
        replay->route[at] = i;
    }
    return SPW_OK;
}

static void close_pools(struct spw__replay *replay)
{
    for (uint32_t i = 0; i < replay->config.n_pools; i++) {
        spw__range_destroy(replay->pools[i].range);
        free(replay->pools[i].live);
        replay->pools[i] = (struct spw__replay_pool){.range = NULL};
    }
}

/* Blocks */

static int remember_live(struct spw__replay *replay, struct spw__replay_pool *pool, uint32_t block)
{
    if (!replay->config.movable)
        return SPW_OK;
    if (pool->n_live == pool->live_room) {
        const uint32_t room = pool->live_room ? pool->live_room * 2 : 256;
        uint32_t *live = reallocarray(pool->live, room, sizeof *live);
        if (!live)
            return spw__fail(SPW_ENOMETA, "out of memory");
        pool->live = live;
        pool->live_room = room;
    }
    replay->blocks[block].slot = pool->n_live;
    pool->live[pool->n_live++] = block;
    return SPW_OK;
}

static void forget_live(struct spw__replay *replay, struct spw__replay_pool *pool, uint32_t block)
{
    if (!replay->config.movable)
        return;
    const uint32_t last = pool->live[--pool->n_live];
    pool->live[replay->blocks[block].slot] = last;
    replay->blocks[last].slot = replay->blocks[block].slot;
}

static int take_in(struct spw__replay *replay, uint32_t index, uint32_t block)
{
    struct spw__replay_pool *pool = &replay->pools[index];
    struct spw__replay_block *b = &replay->blocks[block];
    const uint64_t end = b->offset + b->charge;
    b->pool = index;
    pool->live_bytes += b->charge;
    if (pool->peak_bytes < pool->live_bytes)
        pool->peak_bytes = pool->live_bytes;
    if (replay->result->high_bytes[index] < end)
        replay->result->high_bytes[index] = end;
    return remember_live(replay, pool, block);
}

/* A pool as large as needed is made so before it is asked: without moving it only ever has too little room when the
 * estimate of ROOM failed. */
static int make_room(struct spw__replay *replay, struct spw__replay_pool *pool, uint64_t charge)
{
    const uint64_t live = pool->live_bytes + charge;
    uint64_t size = pool->size;
    if (!pool->elastic)
        return SPW_OK;
    if (replay->config.movable && pool->peak_bytes < live) {
        pool->peak_bytes = live;
        size = elastic_size(replay, pool);
    } else if (!replay->config.movable && spw__range_largest_free(pool->range) < charge + SPW__IO_BLOCK) {
        size = pool->size * 2 + charge;
    }
    if (size <= pool->size)
        return SPW_OK;
    pool->size = size;
    return spw__range_grow(pool->range, size);
}

static int try_pool(struct spw__replay *replay, uint32_t index, uint32_t block, bool moving)
{
    struct spw__replay_pool *pool = &replay->pools[index];
    struct spw__replay_block *b = &replay->blocks[block];
    int rc = make_room(replay, pool, b->charge);
    if (rc == SPW_OK && moving)
        rc = spw__replay_open_hole(replay, pool, block);
    else if (rc == SPW_OK)
        rc = spw__range_alloc(pool->range, b->charge, spw__replay_align(b->charge), &b->node, &b->offset);
    return rc == SPW_OK ? take_in(replay, index, block) : rc;
}

/* All pools of the route as they are, and only then holes in them: moving costs a copy, falling upward does not. */
static int allocate(struct spw__replay *replay, uint32_t block)
{
    const uint64_t bytes = replay->log->sizes[block];
    uint32_t first = 0;
    while (first < replay->config.n_pools && replay->pools[replay->route[first]].limit < bytes)
        first++;
    for (int moving = 0; moving <= (int)replay->config.movable; moving++)
        for (uint32_t at = first; at < replay->config.n_pools; at++) {
            const int rc = try_pool(replay, replay->route[at], block, moving != 0);
            if (rc == SPW_OK)
                replay->result->fallbacks += at > first;
            if (rc != SPW_ENOMEM && rc != SPW_EFRAG)
                return rc;
        }
    replay->result->failures++;
    replay->blocks[block].pool = SPW__REPLAY_NOWHERE;
    return SPW_OK;
}

static int release(struct spw__replay *replay, uint32_t block)
{
    const struct spw__replay_block *b = &replay->blocks[block];
    if (b->pool == SPW__REPLAY_NOWHERE)
        return SPW_OK;
    struct spw__replay_pool *pool = &replay->pools[b->pool];
    pool->live_bytes -= b->charge;
    forget_live(replay, pool, block);
    return spw__range_free(pool->range, b->node);
}

int spw__replay_run(struct spw__replay *replay, const struct spw__replay_config *config,
                    struct spw__replay_result *result)
{
    const struct spw__alloc_log *log = replay->log;
    memset(result, 0, sizeof *result);
    replay->config = *config;
    replay->result = result;
    int rc = open_pools(replay);
    for (size_t i = 0; rc == SPW_OK && i < log->n_ops && !(config->until_failure && result->failures); i++) {
        const uint32_t block = spw__alloc_log_block(log->ops[i]);
        rc = spw__alloc_log_frees(log->ops[i]) ? release(replay, block) : allocate(replay, block);
    }
    close_pools(replay);
    for (uint32_t i = 0; i < config->n_pools; i++)
        result->range_bytes += result->high_bytes[i];
    return rc;
}
