/* The phases of the join. Neighbours: load.c, partition.c and pair.c do the work of one each;
 * sizing.c made the plan. */
#include "join.h"

#include <stdlib.h>
#include <string.h>

#include "crew.h"
#include "load.h"
#include "pair.h"
#include "partition.h"

struct join {
    const struct eng_plan *plan;
    struct eng_store store;
    struct eng_crew crew;
    struct eng_table tables[ENG_SIDES];
    struct eng_format formats[ENG_SIDES];
    struct eng_bin *bins[ENG_SIDES]; /* fanout each */
    struct work {
        struct eng_worker worker;
        struct eng_scatter scatter;
        struct eng_joiner joiner;
        struct input {
            struct eng_group *group; /* NULL: none */
            spw_view views[ENG_COLUMNS];
            unsigned mapped;         /* of them */
        } inputs[ENG_LANES];         /* the row group that each lane works on */
    } *work;                         /* of each thread; entry i is used by thread i only */
    uint32_t *order;                 /* partitions, largest first */
    atomic_uint next;                /* atomic: units of the running phase handed out */
};

/* Waits for what a lane does with its row group; the group's buffers are gone afterwards, also on failure. */
static int end_input(struct work *work, unsigned lane, struct eng_error *error)
{
    struct input *input = &work->inputs[lane];
    struct eng_group *group = input->group;
    int result = eng_worker_wait(&work->worker, lane, error);
    for (unsigned c = 0; group != NULL && c < ENG_COLUMNS; c++) {
        if (c < input->mapped)
            eng_store_unmap(group->columns[c], &input->views[c]);
        (void)spw_buffer_release(group->columns[c]);
        group->columns[c] = NULL;
    }
    input->group = NULL;
    return result;
}

/* Maps a row group for a lane that has none. */
static int begin_input(struct work *work, unsigned lane, struct eng_group *group, struct eng_error *error)
{
    struct input *input = &work->inputs[lane];
    input->group = group;
    for (input->mapped = 0; input->mapped < ENG_COLUMNS; input->mapped++) {
        if (eng_worker_map(&work->worker, lane, group->columns[input->mapped], &input->views[input->mapped], error) !=
            0)
            return -1;
    }
    return 0;
}

/* Groups are taken in the reverse order of loading: the newest are still in memory, and freeing them first makes room
 * without a write, while the oldest went to disk long ago. */
static struct eng_group *next_group(struct join *join, enum eng_side side, uint32_t *unit)
{
    uint32_t total = join->tables[ENG_PARTSUPP].n_groups + join->tables[ENG_LINEITEM].n_groups;
    uint32_t base = side == ENG_LINEITEM ? join->tables[ENG_PARTSUPP].n_groups : 0;
    if (*unit >= total || total - 1 - *unit < base || eng_crew_stopped(&join->crew))
        return NULL;
    struct eng_group *group = &join->tables[side].groups[total - 1 - *unit - base];
    *unit = atomic_fetch_add(&join->next, 1);
    return group;
}

/* Packs and scatters row groups; with two lanes, a group is brought while the one before it is worked on. */
static int partition_side(struct join *join, enum eng_side side, uint32_t *unit, unsigned worker,
                          struct eng_error *error)
{
    struct work *work = &join->work[worker];
    struct eng_scatter *scatter = &work->scatter;
    struct eng_group *group;
    struct eng_error ignored;
    unsigned lane = 0, lanes = work->worker.lanes;
    int result = 0;
    eng_scatter_begin(scatter, &work->worker, &join->formats[side], eng_table_name[side], join->bins[side],
                      join->plan->fanout, join->plan->chunk_bytes);
    for (; result == 0 && (group = next_group(join, side, unit)) != NULL; lane = (lane + 1) % lanes) {
        uint32_t rows = group->rows;
        if (lanes == 1)
            result = eng_scatter_complete(scatter, error);
        if (result == 0)
            result = end_input(work, lane, error);
        if (result == 0)
            result = begin_input(work, lane, group, error);
        if (result == 0)
            result = eng_scatter_complete(scatter, error);
        if (result == 0)
            result = eng_scatter_columns(scatter, lane, work->inputs[lane].views, rows, error);
        eng_crew_advance(&join->crew, rows);
    }
    if (result == 0)
        result = eng_scatter_complete(scatter, error);
    for (lane = 0; lane < lanes; lane++) {
        if (end_input(work, lane, result == 0 ? error : &ignored) != 0)
            result = -1;
    }
    return result == 0 ? eng_scatter_flush(scatter, error) : -1;
}

static int partition_job(void *arg, unsigned worker, struct eng_error *error)
{
    struct join *join = arg;
    uint32_t unit = atomic_fetch_add(&join->next, 1);
    if (partition_side(join, ENG_LINEITEM, &unit, worker, error) != 0)
        return -1;
    return partition_side(join, ENG_PARTSUPP, &unit, worker, error);
}

static uint64_t pair_rows(const struct join *join, uint32_t partition)
{
    return atomic_load(&join->bins[ENG_PARTSUPP][partition].rows) +
           atomic_load(&join->bins[ENG_LINEITEM][partition].rows);
}

static int join_job(void *arg, unsigned worker, struct eng_error *error)
{
    struct join *join = arg;
    struct work *work = &join->work[worker];
    struct eng_joiner *joiner = &work->joiner;
    int result = 0;
    joiner->worker = &work->worker;
    joiner->plan = join->plan;
    joiner->formats = join->formats;
    joiner->crew = &join->crew;
    joiner->scatter = &work->scatter;
    while (result == 0 && !eng_crew_stopped(&join->crew)) {
        uint32_t unit = atomic_fetch_add(&join->next, 1);
        if (unit >= join->plan->fanout)
            break;
        uint32_t p = join->order[unit];
        struct eng_bin *const sides[ENG_SIDES] = {&join->bins[ENG_PARTSUPP][p], &join->bins[ENG_LINEITEM][p]};
        result = eng_pair_join(joiner, sides, error);
        eng_crew_advance(&join->crew, pair_rows(join, p));
    }
    return result;
}

static int compare_sizes(const void *a, const void *b, void *arg)
{
    uint64_t x = pair_rows(arg, *(const uint32_t *)a), y = pair_rows(arg, *(const uint32_t *)b);
    return x > y ? -1 : x < y;
}

/* The largest pairs first, so that none of them is left to one thread at the end. */
static void order_pairs(struct join *join)
{
    for (uint32_t p = 0; p < join->plan->fanout; p++)
        join->order[p] = p;
    qsort_r(join->order, join->plan->fanout, sizeof *join->order, compare_sizes, join);
}

/* All threads' working memory is taken before anything is loaded: what the tables would have had of it until then would
 * have to go to disk for it, and more than that, since it is contiguous and they are not. */
static int take_work(struct join *join, struct eng_error *error)
{
    for (unsigned i = 0; i < join->plan->threads; i++) {
        if (eng_worker_init(&join->work[i].worker, &join->store, join->plan->work_bytes, error) != 0)
            return -1;
    }
    return 0;
}

/* Work on the device begins with the groups that lie there: brought in later, they would first have had to leave for
 * others. Groups are taken from the end. */
static void order_groups(struct join *join)
{
    for (unsigned side = 0; side < ENG_SIDES && join->plan->work == SPW_DEVICE; side++) {
        struct eng_group *groups = join->tables[side].groups;
        for (uint32_t i = 0, elsewhere = 0; i < join->tables[side].n_groups; i++) {
            if (spw_buffer_place(groups[i].columns[ENG_KEY1]) == SPW_DEVICE)
                continue;
            struct eng_group group = groups[i];
            groups[i] = groups[elsewhere];
            groups[elsewhere++] = group;
        }
    }
}

static int run_phases(struct join *join, struct eng_times *times, struct eng_error *error)
{
    const struct eng_source *partsupp = join->tables[ENG_PARTSUPP].source;
    const struct eng_source *lineitem = join->tables[ENG_LINEITEM].source;
    uint64_t rows = (uint64_t)partsupp->rows + (uint64_t)lineitem->rows;
    double start = eng_now();
    if (take_work(join, error) != 0)
        return -1;
    if (eng_load(join->tables, &join->store, &join->crew, error) != 0)
        return -1;
    double loaded = eng_now();
    times->load_s = loaded - start;
    order_groups(join);
    atomic_store(&join->next, 0);
    if (eng_crew_run(&join->crew, "partition", rows, partition_job, join, error) != 0)
        return -1;
    double partitioned = eng_now();
    times->partition_s = partitioned - loaded;
    order_pairs(join);
    atomic_store(&join->next, 0);
    if (eng_crew_run(&join->crew, "join", rows, join_job, join, error) != 0)
        return -1;
    times->join_s = eng_now() - partitioned;
    return 0;
}

static int set_up(struct join *join, const struct eng_source sources[ENG_SIDES], struct eng_error *error)
{
    const struct eng_plan *plan = join->plan;
    join->work = calloc(plan->threads, sizeof *join->work);
    join->order = calloc(plan->fanout, sizeof *join->order);
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        join->bins[side] = calloc(plan->fanout, sizeof *join->bins[side]);
        if (join->bins[side] == NULL || join->work == NULL || join->order == NULL)
            return eng_fail(error, ENG_FAILED, "out of memory for %u partitions", plan->fanout);
        eng_format_init(&join->formats[side], &sources[side]);
        if (eng_table_init(&join->tables[side], &sources[side], plan->group_rows, error) != 0)
            return -1;
    }
    return 0;
}

static void tear_down(struct join *join)
{
    for (unsigned i = 0; join->work != NULL && i < join->plan->threads; i++)
        eng_worker_finish(&join->work[i].worker);
    for (unsigned side = 0; side < ENG_SIDES; side++) {
        eng_table_finish(&join->tables[side]);
        for (uint32_t p = 0; join->bins[side] != NULL && p < join->plan->fanout; p++)
            eng_bin_discard(&join->bins[side][p]);
        free(join->bins[side]);
    }
    free(join->order);
    free(join->work);
}

int eng_join(spw_manager *manager, const struct eng_plan *plan, const struct eng_source sources[ENG_SIDES],
             const struct eng_join_options *options, struct eng_answer *answer, struct eng_times *times,
             struct eng_error *error)
{
    struct join join = {.plan = plan};
    eng_u128 rows = 0, products = 0, addend[ENG_SIDES] = {0, 0};
    atomic_init(&join.next, 0);
    memset(times, 0, sizeof *times);
    if (eng_crew_init(&join.crew, plan->threads, options->show_progress, options->interrupt, error) != 0)
        return -1;
    join.store = (struct eng_store){manager, plan->work, options->has_disk, join.crew.cancel};
    int result = set_up(&join, sources, error);
    if (result == 0)
        result = run_phases(&join, times, error);
    for (unsigned i = 0; result == 0 && i < plan->threads; i++) {
        const struct eng_totals_of_join *totals = &join.work[i].joiner.totals;
        rows += totals->rows;
        products += totals->products;
        addend[ENG_PARTSUPP] += totals->addend[ENG_PARTSUPP];
        addend[ENG_LINEITEM] += totals->addend[ENG_LINEITEM];
    }
    answer->rows = (__int128)rows;
    answer->sum_supplycost_x_quantity = (__int128)products;
    answer->sum_availqty = (__int128)addend[ENG_PARTSUPP];
    answer->sum_extendedprice = (__int128)addend[ENG_LINEITEM];
    tear_down(&join);
    eng_crew_finish(&join.crew);
    return result;
}

char *eng_number(__int128 value, char out[ENG_NUMBER_MAX])
{
    eng_u128 rest = value < 0 ? -(eng_u128)value : (eng_u128)value;
    char digits[ENG_NUMBER_MAX];
    size_t n = 0, at = 0;
    do {
        digits[n++] = (char)('0' + (int)(rest % 10));
        rest /= 10;
    } while (rest != 0);
    if (value < 0)
        out[at++] = '-';
    while (n > 0)
        out[at++] = digits[--n];
    out[at] = 0;
    return out;
}
