/* Progress by the engine's own threads, with threads=0: spw_progress, and what blocked threads do meanwhile.
 * Neighbours: spill/mover has what is to be driven, pool/base/wait the deadlines, reclaim_serve.c the reclaimers. */
#include "pool/base/error.h"
#include "src/core/manager.h"

/* How long a blocked thread waits for a completion before it looks at what it waits for. */
#define DRIVE_NS 1000000

void spw__progress_drive(void *arg)
{
    struct spw_manager *manager = arg;
    spw_error_info kept; /* the moves of others end in there, in failure too */
    spw__error_save(&kept);
    (void)spw__mover_drive(manager->mover, DRIVE_NS);
    (void)spw__waitset_expire(&manager->waits);
    if (!spw__reclaim_inside(manager))
        spw__reclaim_serve(manager);
    spw__loop_changed(manager);
    (void)spw__error_restore(&kept);
}

int spw_progress(spw_manager *manager, uint64_t max_ns)
{
    if (!manager)
        return spw__fail(SPW_EINVAL, "spw_progress: manager is NULL");
    const int rc = spw__check_process(manager);
    if (rc != SPW_OK)
        return rc;
    const uint64_t begun = spw__clock_monotonic_ns();
    uint64_t passed = 0;
    spw_error_info kept; /* a move that fails in there is not an error of this call */
    spw__error_save(&kept);
    bool left = spw__mover_drive(manager->mover, 0);
    while (left && passed < max_ns) {
        left = spw__mover_drive(manager->mover, (int64_t)(max_ns - passed > INT64_MAX ? INT64_MAX : max_ns - passed));
        passed = spw__clock_monotonic_ns() - begun;
    }
    (void)spw__waitset_expire(&manager->waits);
    if (manager->waits.drive)
        spw__reclaim_serve_as_waiting(manager);
    left |= spw__mover_drive(manager->mover, 0); /* tickets whose time is up end at once */
    spw__loop_changed(manager);
    (void)spw__error_restore(&kept);
    return left ? 1 : 0;
}
