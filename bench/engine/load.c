/* Loading tables. Neighbours: source.c below, partition.c (consumes the groups). */
#include "load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_ROWS 8192 /* 64 KiB a column, the detour of what goes to a device */

struct loading {
    struct eng_table *tables;
    const struct eng_store *store;
    struct eng_crew *crew;
    atomic_uint next; /* atomic: groups handed out, of both tables */
};

struct loader {
    const struct eng_store *store;
    struct eng_reader readers[ENG_SIDES];
    char *scratch; /* SCRATCH_ROWS * 8 bytes for each column, allocated when first needed */
};

int eng_table_init(struct eng_table *table, const struct eng_source *source, uint32_t group_rows,
                   struct eng_error *error)
{
    int64_t n = (source->rows + group_rows - 1) / group_rows;
    table->source = source;
    table->n_groups = 0;
    if (n > INT32_MAX)
        return eng_fail(error, ENG_FAILED, "%s has %" PRId64 " rows, too many for groups of %" PRIu32 " rows",
                        eng_table_name[source->side], source->rows, group_rows);
    table->groups = calloc((size_t)n + 1, sizeof *table->groups);
    if (table->groups == NULL)
        return eng_fail(error, ENG_FAILED, "out of memory for %" PRId64 " row groups", n);
    table->n_groups = (uint32_t)n;
    for (uint32_t i = 0; i < table->n_groups; i++) {
        int64_t left = source->rows - (int64_t)i * group_rows;
        table->groups[i].first = (int64_t)i * group_rows;
        table->groups[i].rows = left < group_rows ? (uint32_t)left : group_rows;
    }
    return 0;
}

void eng_table_finish(struct eng_table *table)
{
    for (uint32_t i = 0; i < table->n_groups; i++) {
        for (unsigned c = 0; c < ENG_COLUMNS; c++)
            (void)spw_buffer_release(table->groups[i].columns[c]);
    }
    free(table->groups);
    table->groups = NULL;
    table->n_groups = 0;
}

/* Opens a view of each column that the CPU can write to; data stays NULL for those that lie on the device. */
static int map_columns(struct loader *loader, struct eng_group *group, spw_view views[ENG_COLUMNS], int *detour,
                       struct eng_error *error)
{
    spw_map_options options;
    spw_map_options_init(&options);
    options.wait.cancel = loader->store->cancel;
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        spw_buffer *buffer = group->columns[c];
        if (SPW_PLACE_TIER(spw_buffer_place(buffer)) == SPW_TIER_DEVICE) {
            *detour = 1;
            continue;
        }
        int code = spw_map(buffer, loader->store->work, SPW_MAP_WRITE | SPW_MAP_DISCARD | SPW_MAP_HERE, &options,
                           &views[c]);
        if (code != 0) {
            views[c].data = NULL;
            return eng_store_fail(loader->store, code, "map", spw_buffer_tag(buffer), error);
        }
    }
    if (*detour && loader->scratch == NULL) {
        loader->scratch = malloc((size_t)ENG_COLUMNS * SCRATCH_ROWS * 8);
        if (loader->scratch == NULL)
            return eng_fail(error, ENG_FAILED, "out of memory while loading");
    }
    return 0;
}

/* Fills the group's columns slice by slice: all of it at once when every column can be written directly. */
static int fill_columns(struct loader *loader, const struct eng_source *source, struct eng_group *group,
                        const spw_view views[ENG_COLUMNS], int detour, struct eng_error *error)
{
    int64_t slice = detour ? SCRATCH_ROWS : group->rows;
    for (int64_t done = 0; done < group->rows; done += slice) {
        int64_t n = group->rows - done < slice ? group->rows - done : slice;
        void *out[ENG_COLUMNS];
        for (unsigned c = 0; c < ENG_COLUMNS; c++)
            out[c] = views[c].data != NULL ? (char *)views[c].data + (size_t)done * source->width[c]
                                           : loader->scratch + (size_t)c * SCRATCH_ROWS * 8;
        if (eng_reader_read(&loader->readers[source->side], group->first + done, n, out, error) != 0)
            return -1;
        for (unsigned c = 0; c < ENG_COLUMNS; c++) {
            size_t width = source->width[c];
            if (views[c].data != NULL)
                continue;
            int code = spw_buffer_write(group->columns[c], (size_t)done * width, out[c], (size_t)n * width);
            if (code != 0)
                return eng_store_fail(loader->store, code, "fill", spw_buffer_tag(group->columns[c]), error);
        }
    }
    return 0;
}

static int load_group(struct loader *loader, const struct eng_source *source, struct eng_group *group,
                      struct eng_error *error)
{
    spw_view views[ENG_COLUMNS];
    int detour = 0, result = 0;
    memset(views, 0, sizeof views);
    for (unsigned c = 0; c < ENG_COLUMNS && result == 0; c++)
        result = eng_store_admit(loader->store, eng_column_name[source->side][c],
                                 (size_t)group->rows * source->width[c], &group->columns[c], error);
    if (result == 0)
        result = map_columns(loader, group, views, &detour, error);
    if (result == 0)
        result = fill_columns(loader, source, group, views, detour, error);
    for (unsigned c = 0; c < ENG_COLUMNS; c++) {
        if (views[c].data != NULL)
            eng_store_unmap(group->columns[c], &views[c]);
    }
    for (unsigned c = 0; c < ENG_COLUMNS && result == 0; c++) {
        int code = spw_buffer_seal(group->columns[c]);
        if (code != 0)
            result = eng_store_fail(loader->store, code, "seal", spw_buffer_tag(group->columns[c]), error);
    }
    return result;
}

static int load_job(void *arg, unsigned worker, struct eng_error *error)
{
    struct loading *loading = arg;
    struct loader loader = {.store = loading->store};
    uint32_t first_lineitem = loading->tables[ENG_PARTSUPP].n_groups;
    uint32_t total = first_lineitem + loading->tables[ENG_LINEITEM].n_groups;
    int result = 0;
    (void)worker;
    for (unsigned side = 0; side < ENG_SIDES; side++)
        eng_reader_init(&loader.readers[side], loading->tables[side].source);
    while (result == 0 && !eng_crew_stopped(loading->crew)) {
        uint32_t g = atomic_fetch_add(&loading->next, 1);
        if (g >= total)
            break;
        struct eng_table *table = &loading->tables[g < first_lineitem ? ENG_PARTSUPP : ENG_LINEITEM];
        struct eng_group *group = &table->groups[g < first_lineitem ? g : g - first_lineitem];
        result = load_group(&loader, table->source, group, error);
        eng_crew_advance(loading->crew, group->rows);
    }
    for (unsigned side = 0; side < ENG_SIDES; side++)
        eng_reader_finish(&loader.readers[side]);
    free(loader.scratch);
    return result;
}

int eng_load(struct eng_table tables[ENG_SIDES], const struct eng_store *store, struct eng_crew *crew,
             struct eng_error *error)
{
    struct loading loading = {.tables = tables, .store = store, .crew = crew};
    uint64_t rows = (uint64_t)tables[ENG_PARTSUPP].source->rows + (uint64_t)tables[ENG_LINEITEM].source->rows;
    atomic_init(&loading.next, 0);
    return eng_crew_run(crew, "load", rows, load_job, &loading, error);
}
