#include <spillway/spillway.h>
#include <stdio.h>

#define MUST(call) do { if ((call) != SPW_OK) { puts(spw_error_detail()->message); return 1; } } while (0)
enum { MIB = 1 << 20, PARTITIONS = 6 };

/* A hash join's build side, in raw memory: partitions that can be written to a file and built again. */
struct join {
    spw_manager *manager;
    spw_block partitions[PARTITIONS];
    int in_memory;
    FILE *file;
};

static uint64_t estimate(void *arg)
{
    return (uint64_t)((struct join *)arg)->in_memory * MIB;
}

static uint64_t reclaim(void *arg, uint64_t bytes)
{
    struct join *join = arg;
    uint64_t freed = 0;
    for (; freed < bytes && join->in_memory > 0; freed += MIB) {
        spw_block *last = &join->partitions[join->in_memory - 1];
        if (fwrite(last->ptr, 1, last->size, join->file) != last->size ||
            spw_pool_free(join->manager, last, NULL) != SPW_OK)
            break;
        join->in_memory--;
    }
    return freed;
}

int main(void)
{
    struct join join = {.file = tmpfile()};
    spw_options options;
    spw_task *task;
    spw_reclaimer_options reclaims;
    spw_reclaimer *reclaimer;
    spw_buffer *probe;
    uint64_t lacking;

    spw_options_init(&options);
    options.spec = "host=8M";
    MUST(spw_manager_create(&options, &join.manager));
    MUST(spw_task_create(join.manager, NULL, &task));
    MUST(spw_task_attach(task)); /* this thread works for the join from now on */

    for (; join.in_memory < PARTITIONS; join.in_memory++)
        MUST(spw_pool_alloc(join.manager, SPW_HOST, MIB, 0, NULL, NULL, &join.partitions[join.in_memory]));

    spw_reclaimer_options_init(&reclaims);
    reclaims.name = "build side";
    reclaims.place = SPW_HOST;
    reclaims.cost_ns_per_mib = 2000000; /* writing, reading and building a MiB again takes 2 ms */
    reclaims.estimate = estimate;
    reclaims.reclaim = reclaim;
    reclaims.arg = &join;
    MUST(spw_reclaimer_register(task, &reclaims, &reclaimer));

    /* Another library has a MiB of its own; with it, 2 MiB of 8 were free, and now 1. */
    MUST(spw_external_charge(join.manager, SPW_HOST, MIB, "image decoder"));

    /* The join itself needs 3 MiB. It waits, so its state may go: 2 MiB of it do. */
    MUST(spw_alloc(join.manager, SPW_HOST, 3 * MIB, NULL, &probe));
    if (join.in_memory != PARTITIONS - 2)
        return 1;

    /* Now and then a task that does not wait may ask whether others lack something. */
    MUST(spw_task_pressure(task, SPW_HOST, &lacking));
    if (lacking != 0)
        return 1;

    spw_buffer_release(probe);
    MUST(spw_external_charge(join.manager, SPW_HOST, -MIB, "image decoder"));
    MUST(spw_reclaimer_unregister(reclaimer));
    while (join.in_memory > 0)
        MUST(spw_pool_free(join.manager, &join.partitions[--join.in_memory], NULL));
    MUST(spw_task_detach(task));
    MUST(spw_task_destroy(task));
    MUST(spw_manager_destroy(join.manager));
    fclose(join.file);
    return 0;
}
