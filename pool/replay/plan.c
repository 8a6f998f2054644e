/* Planning pools: simulated annealing over specifications, each judged by a replay with the real range allocator.
 *
 * In a specification under trial every pool but the last has a size; the last, unlimited one is as large as needed, so
 * that each is feasible and has a cost: the bytes of all pools. What looks best is replayed once more with the last
 * pool cut to size before it counts, since placement may depend on where a range ends.
 * Several short searches from the single pool, then a long one from the best of them: over the five logs that this was
 * written with, the mean of range / peak was 1.22 to 1.24 for each of five seeds, against 1.25 and 1.26 for one search
 * of that length.
 *
 * Neighbour: replay.c.
 */
#include "pool/replay/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/error.h"
#include "pool/tier.h"

#define LIMIT_MAX      (UINT64_C(2) << 30) /* of the specification, as is the smallest pool */
#define POOL_MIN       UINT64_C(1024)
#define TRIALS_MAX     250000u
#define TRIALS_MIN     300u
#define OPS_MAX        UINT64_C(100000000) /* of all trials together, between these two, if none ended early */
#define RESTARTS       8u
#define RESTARTS_SHARE 0.6
/* Temperatures, as a part of the peak. */
#define HOT  0.03
#define WARM 0.01
#define COLD 0.001

struct specification {
    spw_spec_pool pools[SPW_SPEC_POOLS_MAX]; /* by limit, the last one unlimited */
    uint32_t n;
    uint64_t cost;
};

struct search {
    struct spw__replay *replay;
    uint32_t max_pools;
    uint64_t unit;   /* pool sizes are multiples of it */
    uint64_t *sizes; /* the different ones that are requested, and may be limits */
    size_t n_sizes;
    uint64_t random;
    uint32_t runs;
    struct specification best;
};

/* Randomness: xorshift, from the same seed always. */

static uint64_t random_bits(struct search *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

static uint32_t random_below(struct search *s, uint64_t n)
{
    return (uint32_t)((random_bits(s) >> 11) % n);
}

static double random_unit(struct search *s)
{
    return (double)(random_bits(s) >> 11) * 0x1p-53;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* From half of the peak down to e^-6 of that, every order of magnitude as likely as another. */
static uint64_t random_bytes(struct search *s)
{
    const double bytes = (double)spw__replay_peak(s->replay) / 2 * exp(-6 * random_unit(s));
    return round_up((uint64_t)bytes + 1, s->unit);
}

static uint64_t random_limit(struct search *s)
{
    return s->sizes[random_below(s, s->n_sizes)];
}

/* Judging */

static int replay(struct search *s, const struct specification *spec, struct spw__replay_result *result)
{
    const struct spw__replay_config config = {.pools = spec->pools, .n_pools = spec->n, .until_failure = true};
    s->runs++;
    return spw__replay_run(s->replay, &config, result);
}

static uint64_t sized_bytes(const struct specification *spec)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i + 1 < spec->n; i++)
        bytes += spec->pools[i].size_bytes;
    return bytes;
}

/* Whether spec serves the log for at most `allowed` bytes. Then its last pool has the size that it needs, and spec its
 * cost. Most trials end long before the end of the log, or before its begin. */
static int judge(struct search *s, struct specification *spec, uint64_t allowed, bool *serves)
{
    struct spw__replay_result result;
    spw_spec_pool *const last = &spec->pools[spec->n - 1];
    const uint64_t sized = sized_bytes(spec);
    *serves = false;
    if (sized + POOL_MIN > allowed)
        return SPW_OK;
    last->size_bytes = allowed - sized;
    const int rc = replay(s, spec, &result);
    last->size_bytes = round_up(result.high_bytes[spec->n - 1], s->unit);
    if (last->size_bytes < POOL_MIN)
        last->size_bytes = POOL_MIN;
    spec->cost = sized + last->size_bytes;
    *serves = result.failures == 0;
    return rc;
}

/* Keeps spec if it is the best so far and serves the log at its size. */
static int offer(struct search *s, const struct specification *spec)
{
    struct spw__replay_result result;
    if (spec->cost >= s->best.cost)
        return SPW_OK;
    const int rc = replay(s, spec, &result);
    if (rc == SPW_OK && result.failures == 0)
        s->best = *spec;
    return rc;
}

/* Changing */

/* Puts the pools in order and each within the bounds of a specification. */
static void settle(const struct search *s, struct specification *spec)
{
    for (uint32_t i = 0; i + 1 < spec->n; i++) {
        spw_spec_pool pool = spec->pools[i];
        if (pool.size_bytes < round_up(pool.limit_bytes, s->unit))
            pool.size_bytes = round_up(pool.limit_bytes, s->unit);
        uint32_t at = i;
        for (; at > 0 && spec->pools[at - 1].limit_bytes > pool.limit_bytes; at--)
            spec->pools[at] = spec->pools[at - 1];
        spec->pools[at] = pool;
    }
}

static void insert(struct search *s, struct specification *spec)
{
    spec->pools[spec->n] = spec->pools[spec->n - 1];
    spec->pools[spec->n - 1] = (spw_spec_pool){random_bytes(s), random_limit(s)};
    spec->n++;
}

static void drop(struct search *s, struct specification *spec)
{
    const uint32_t at = random_below(s, spec->n - 1);
    memmove(&spec->pools[at], &spec->pools[at + 1], (spec->n - 1 - at) * sizeof spec->pools[0]);
    spec->n--;
}

/* To the next larger or smaller size that is requested. */
static void step_limit(struct search *s, spw_spec_pool *pool)
{
    size_t at = 0;
    while (at + 1 < s->n_sizes && s->sizes[at] < pool->limit_bytes)
        at++;
    if (random_below(s, 2) && at + 1 < s->n_sizes)
        at++;
    else if (at > 0)
        at--;
    pool->limit_bytes = s->sizes[at];
}

static void resize(struct search *s, spw_spec_pool *pool)
{
    const uint64_t bytes = random_bytes(s);
    if (random_below(s, 2))
        pool->size_bytes += bytes;
    else
        pool->size_bytes = pool->size_bytes > bytes ? pool->size_bytes - bytes : s->unit;
}

static void transfer(struct search *s, spw_spec_pool *from, spw_spec_pool *to)
{
    const uint64_t bytes = random_bytes(s);
    if (from->size_bytes <= bytes)
        return;
    from->size_bytes -= bytes;
    to->size_bytes += bytes;
}

static void change(struct search *s, struct specification *spec)
{
    const uint32_t sized = spec->n - 1;
    const uint32_t what = sized == 0 ? 0 : random_below(s, 6);
    spw_spec_pool *const pool = &spec->pools[sized ? random_below(s, sized) : 0];
    switch (what) {
    case 0:
        if (spec->n < s->max_pools)
            insert(s, spec);
        break;
    case 1: drop(s, spec); break;
    case 2: pool->limit_bytes = random_limit(s); break;
    case 3: step_limit(s, pool); break;
    case 4: resize(s, pool); break;
    default: transfer(s, pool, &spec->pools[random_below(s, sized)]); break;
    }
    settle(s, spec);
}

/* Searching */

/* A worse specification is accepted by a bound that is drawn before it is judged, which comes to the same as judging
 * first, and is cheaper. */
static int anneal(struct search *s, struct specification current, uint32_t trials, double hot)
{
    const double peak = (double)spw__replay_peak(s->replay);
    int rc = SPW_OK;
    for (uint32_t i = 0; rc == SPW_OK && i < trials; i++) {
        const double temperature = peak * hot * pow(COLD / hot, (double)i / trials);
        const double worse = -log(random_unit(s) + 0x1p-54) * temperature;
        struct specification next = current;
        bool serves;
        change(s, &next);
        if (random_below(s, 2))
            change(s, &next);
        rc = judge(s, &next, current.cost + (uint64_t)worse, &serves);
        if (rc != SPW_OK || !serves)
            continue;
        current = next;
        rc = offer(s, &next);
    }
    return rc;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sizes that may be limits, each once. There is always one, so that limits can be drawn. */
static int collect_sizes(struct search *s)
{
    const struct spw__alloc_log *log = spw__replay_log(s->replay);
    s->sizes = malloc(((size_t)log->n_blocks + 1) * sizeof *s->sizes);
    if (!s->sizes)
        return spw__fail(SPW_ENOMETA, "out of memory");
    s->sizes[s->n_sizes++] = POOL_MIN;
    for (uint32_t i = 0; i < log->n_blocks; i++)
        if (log->sizes[i] > POOL_MIN && log->sizes[i] <= LIMIT_MAX)
            s->sizes[s->n_sizes++] = log->sizes[i];
    qsort(s->sizes, s->n_sizes, sizeof *s->sizes, compare);
    size_t n = 0;
    for (size_t i = 0; i < s->n_sizes; i++)
        if (n == 0 || s->sizes[i] != s->sizes[n - 1])
            s->sizes[n++] = s->sizes[i];
    s->n_sizes = n;
    return SPW_OK;
}

/* The single pool. Cut to what it used, it may need more: placement depends on where a range ends. */
static int find_single(struct search *s, struct specification *single)
{
    bool serves;
    *single = (struct specification){.n = 1};
    s->best.cost = UINT64_MAX;
    int rc = judge(s, single, spw__replay_peak(s->replay) * 64, &serves);
    while (rc == SPW_OK && s->best.cost == UINT64_MAX) {
        rc = offer(s, single);
        if (rc == SPW_OK && s->best.cost == UINT64_MAX)
            single->cost = single->pools[0].size_bytes += round_up(single->cost / 64, s->unit);
    }
    return rc;
}

/* Cuts each pool of the best to what it used, where the log still fits then. */
static int trim(struct search *s)
{
    struct spw__replay_result result;
    int rc = replay(s, &s->best, &result);
    for (uint32_t i = 0; rc == SPW_OK && i < s->best.n; i++) {
        struct specification cut = s->best;
        cut.pools[i].size_bytes = round_up(result.high_bytes[i], s->unit);
        settle(s, &cut);
        cut.cost = sized_bytes(&cut) + cut.pools[cut.n - 1].size_bytes;
        if (cut.pools[i].size_bytes >= POOL_MIN)
            rc = offer(s, &cut);
    }
    return rc;
}

static int search(struct search *s, const struct specification *single)
{
    const uint64_t ops = spw__replay_log(s->replay)->n_ops;
    uint64_t trials = OPS_MAX / ops;
    int rc = SPW_OK;
    trials = trials > TRIALS_MAX ? TRIALS_MAX : trials < TRIALS_MIN ? TRIALS_MIN : trials;
    /* A handful of trials is better spent in one place. */
    const uint32_t restarts = trials == TRIALS_MIN ? 1 : RESTARTS;
    const uint32_t each = (uint32_t)((double)trials * RESTARTS_SHARE / restarts);
    if (s->max_pools == 1)
        return SPW_OK;
    for (uint32_t i = 0; rc == SPW_OK && i < restarts; i++)
        rc = anneal(s, *single, each, HOT);
    if (rc == SPW_OK)
        rc = anneal(s, s->best, (uint32_t)trials - restarts * each, WARM);
    return rc == SPW_OK ? trim(s) : rc;
}

int spw__plan_search(struct spw__replay *replay, uint32_t max_pools, struct spw__plan *plan)
{
    struct search s = {.replay = replay, .max_pools = max_pools, .random = UINT64_C(88172645463325252)};
    struct specification single;
    /* Blocks of a tier begin at I/O blocks from some size on: finer pools would only waste their ends. */
    s.unit = spw__replay_peak(replay) >= 64 * (uint64_t)SPW__IO_BLOCK ? SPW__IO_BLOCK : POOL_MIN;
    int rc = collect_sizes(&s);
    if (rc == SPW_OK)
        rc = find_single(&s, &single);
    if (rc == SPW_OK)
        rc = search(&s, &single);
    free(s.sizes);
    if (rc != SPW_OK)
        return rc;
    *plan = (struct spw__plan){
        .n_pools = s.best.n, .total_bytes = s.best.cost, .single_bytes = single.cost, .runs = s.runs};
    memcpy(plan->pools, s.best.pools, s.best.n * sizeof plan->pools[0]);
    return SPW_OK;
}
