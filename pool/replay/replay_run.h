/* The state of one run of a replay: what replay.c drives and replay_move.c opens holes in. For these two only. */
#ifndef SPW_POOL_REPLAY_REPLAY_RUN_H
#define SPW_POOL_REPLAY_REPLAY_RUN_H

#include "pool/range.h"
#include "pool/replay/replay.h"

#define SPW__REPLAY_NOWHERE UINT32_MAX

/* A block of the log while it lives. */
struct spw__replay_block {
    uint64_t charge;
    uint64_t offset;
    uint32_t pool; /* NOWHERE: not live */
    uint32_t node;
    uint32_t slot; /* in the pool's list of live blocks */
};

struct spw__replay_pool {
    struct spw__range *range;
    uint64_t size;
    uint64_t limit; /* UINT64_MAX: unlimited */
    uint64_t live_bytes;
    uint64_t peak_bytes;
    uint32_t *live; /* blocks, in no order; kept with movable only */
    uint32_t n_live;
    uint32_t live_room;
    bool elastic; /* as large as needed */
};

struct spw__replay {
    const struct spw__alloc_log *log;
    struct spw__replay_block *blocks;
    uint32_t granularity;
    uint64_t peak_bytes; /* charged */
    struct spw__replay_config config;
    struct spw__replay_result *result;
    struct spw__replay_pool pools[SPW_SPEC_POOLS_MAX];
    uint32_t route[SPW_SPEC_POOLS_MAX]; /* pool numbers, smallest limit first */
};

/* The alignment of a block of charge bytes, as a tier aligns it. */
uint64_t spw__replay_align(uint64_t charge);

/* Gives block a place in the pool, if need be by moving others. SPW_ENOMEM: too few bytes are free; SPW_ENOMETA. */
int spw__replay_open_hole(struct spw__replay *replay, struct spw__replay_pool *pool, uint32_t block);

#endif
