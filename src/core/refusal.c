/* What a refused request is told: see refusal.h. Neighbours: pressure.c decides, this says; arbiter.c names who holds
 * what. */
#include "src/core/refusal.h"

#include <stdio.h>

#include "pool/base/error.h"
#include "src/core/arbiter.h"
#include "src/core/group.h"
#include "src/core/loss.h"
#include "src/core/manager.h"
#include "src/core/reserve.h"

#define GIVE_BACK                                                                                                      \
    "every task waits: give back what you can (seal, unmap, mark spillable, release), call spw_task_wait_turn, and "   \
    "try again to get %s"
#define TAKE_LESS "every task waits and has given back what it can: try again with a part of %s"

/* The numbers of a refusal, for the detail of every error that leaves here. When a group refuses they are the group's,
 * and it is named. */
static spw_error_info numbers(const struct spw__request *request)
{
    struct spw_manager *manager = request->manager;
    struct spw__tier *tier = spw__tier_of(manager, request->lowest);
    const struct spw__gate *gate = &manager->root.gates[request->lowest];
    const uint32_t route = spw__tier_first_route(tier, request->bytes);
    spw_error_info info = {.place = SPW_PLACE(request->lowest, 0), .requested_bytes = request->bytes,
                           .pool = route < tier->n_pools ? tier->route[route] : 0, .free_bytes = spw__gate_free(gate),
                           .largest_free_bytes = spw__tier_largest_free_from(tier, route),
                           .limit_bytes = atomic_load(&gate->budget)};
    if (!request->reservation)
        (void)spw__group_describe(request->group, request->lowest, spw__request_charge(request, tier), &info);
    return info;
}

/* The pools of tier could hold the request, but a budget cannot: the place's, less what is set aside, or a group's. */
static int fail_budget(const struct spw__request *request, spw_tier tier)
{
    struct spw__tier *at = spw__tier_of(request->manager, tier);
    const uint64_t charge = spw__request_charge(request, at);
    const struct spw__group *lacking = spw__ledger_never_fits(request->group, tier, charge, at->set_aside);
    lacking = lacking ? lacking : &request->manager->root;
    const uint64_t mins = atomic_load(&lacking->child_mins[tier]);
    spw_error_info info = {.place = SPW_PLACE(tier, 0), .requested_bytes = request->bytes,
                           .free_bytes = spw__ledger_free_on_path(request->group, tier),
                           .limit_bytes = atomic_load(&lacking->gates[tier].budget),
                           .largest_free_bytes = spw__tier_largest_free(at)};
    char owed[80] = "";
    if (mins)
        (void)snprintf(owed, sizeof owed, ", of which groups have %llu as their minima", (unsigned long long)mins);
    if (!lacking->parent)
        return spw__fail_info(&info, SPW_ETOOBIG, "a request of %llu bytes can never fit under the budget of %s, %llu "
                                                  "bytes%s: its pools could hold it; raise the budget with "
                                                  "spw_set_budget", (unsigned long long)info.requested_bytes,
                              spw_tier_name(tier), (unsigned long long)info.limit_bytes, owed);
    (void)snprintf(info.group, sizeof info.group, "%s", lacking->name);
    info.group_committed_bytes = spw__ledger_committed(lacking, tier);
    return spw__fail_info(&info, SPW_ETOOBIG, "a request of %llu bytes can never fit under the maximum of the group "
                                              "\"%s\" in %s, %llu bytes%s; raise it with spw_group_set",
                          (unsigned long long)info.requested_bytes, info.group, spw_tier_name(tier),
                          (unsigned long long)info.limit_bytes, owed);
}

/* What ended the wait: the time, or that the arbiter asked in vain too often. */
static const char *until(const struct spw__request *request)
{
    struct spw_task *task = request->waiter.task;
    return task && atomic_exchange(&task->gave_up, false) ? "after its task was asked to give way as often as it may "
                                                            "be (asks_max)"
                                                          : "before the deadline";
}

/* Why what lies in the lowest tier does not make room, and what would help. */
static const char *why_stuck(const struct spw__request *request, const char **help)
{
    bool below = request->manager->store != NULL;
    for (spw_tier tier = request->lowest + 1; tier < SPW__MEMORY_TIERS; tier++)
        below |= spw__tier_of(request->manager, tier)->present;
    *help = below ? "seal, unmap or release something, wait longer" : "name one with disk=, release something";
    if (!below)
        return "nothing can be spilled from there, since there is no disk tier";
    return request->manager->store ? "what lies there is mapped, neither sealed nor spillable, raw, or was not spilled "
                                     "in time"
                                   : "what lies there is mapped, neither sealed nor spillable, raw, or finds no room "
                                     "below, where there is no disk tier (disk=)";
}

/* A group stands in the way: what others do does not help. */
static int refuse_by_group(const spw_error_info *info, int code)
{
    return spw__fail_info(info, code, "no room%s for %llu bytes in %s: the group \"%s\" may have %llu there, and has "
                                      "%llu%s raise its maximum with spw_group_set",
                          code == SPW_EAGAIN ? " at once" : " before the deadline",
                          (unsigned long long)info->requested_bytes, spw_tier_name(SPW_PLACE_TIER(info->place)),
                          info->group, (unsigned long long)info->limit_bytes,
                          (unsigned long long)info->group_committed_bytes,
                          code == SPW_EAGAIN ? ";" : ", mapped, neither sealed nor spillable, or raw: seal, unmap or "
                                                    "release something of it, or");
}

/* A reservation wants no memory, and there is no hole to speak of. */
static int refuse_reservation(const struct spw__request *request, int code)
{
    const char *tier = spw_tier_name(request->lowest);
    spw_error_info info = numbers(request);
    char what[160], holders[320];
    const char *help, *stuck = why_stuck(request, &help);
    info.largest_free_bytes = 0;
    if (info.group[0] && (code == SPW_ENOMEM || code == SPW_EAGAIN))
        return refuse_by_group(&info, code);
    (void)snprintf(what, sizeof what, "a reservation of %llu bytes of %s (budget %llu, free %llu)",
                   (unsigned long long)info.requested_bytes, tier, (unsigned long long)info.limit_bytes,
                   (unsigned long long)info.free_bytes);
    switch (code) {
    case SPW_ETOOBIG:
        if (!spw__ledger_never_fits(&request->manager->root, request->lowest, request->bytes,
                                    spw__tier_of(request->manager, request->lowest)->set_aside))
            return fail_budget(request, request->lowest);
        return spw__fail_info(&info, code, "%s can never be granted%s; raise the budget with spw_set_budget, or %s=",
                              what, spw__tier_of(request->manager, request->lowest)->set_aside
                                        ? ": a part of the budget is set aside for staging" : "", tier);
    case SPW_EAGAIN: return spw__fail_info(&info, code, "no room at once for %s", what);
    case SPW_ERETRY: return spw__fail_info(&info, code, GIVE_BACK, what);
    case SPW_ESPLIT: return spw__fail_info(&info, code, TAKE_LESS, what);
    case SPW_ENOMEM:
        spw__arbiter_describe(request->manager, request->lowest, holders, sizeof holders);
        return spw__fail_info(&info, code, "no room for %s %s: %llu bytes there are reserved, and %s; held by %s; %s, "
                                           "or raise %s=",
                              what, until(request),
                              (unsigned long long)spw__reservations_look(request->manager, request->lowest).bytes,
                              stuck, holders, help, tier);
    default: return spw__fail_info(&info, code, "the wait for %s ended: %s", what, spw_strerror(code));
    }
}

static int refuse(const struct spw__request *request, int code)
{
    const spw_error_info info = numbers(request);
    const char *tier = spw_tier_name(request->lowest);
    struct spw__tier *at = spw__tier_of(request->manager, request->lowest);
    const uint32_t route = spw__tier_first_route(at, request->bytes);
    char where[224], holders[320];
    const char *help, *stuck = why_stuck(request, &help);
    if (code == SPW_ECANCELED && spw__ledger_cancelled(spw__request_payer(request)))
        return spw__group_check(spw__request_payer(request));
    if (code == SPW_EDEVICE) {
        spw__loss_look(request->manager);
        return spw__loss_refuse(request->manager, request->bytes);
    }
    if (request->charge_only)
        return refuse_reservation(request, code);
    if (info.group[0] && (code == SPW_ENOMEM || code == SPW_EAGAIN))
        return refuse_by_group(&info, code);
    (void)snprintf(where, sizeof where,
                   "%llu bytes in %s%s, pool %u%s (budget %llu, free %llu; its pools: free %llu, largest hole %llu)",
                   (unsigned long long)info.requested_bytes, tier, request->first < request->lowest ? " or above" : "",
                   info.pool, route + 1 < at->n_pools ? " and up" : "", (unsigned long long)info.limit_bytes,
                   (unsigned long long)info.free_bytes, (unsigned long long)spw__tier_free_from(at, route),
                   (unsigned long long)info.largest_free_bytes);
    switch (code) {
    case SPW_ETOOBIG:
        for (spw_tier tried = request->first; tried <= request->lowest; tried++)
            if (request->bytes <= spw__tier_of(request->manager, tried)->largest_request)
                return fail_budget(request, tried);
        return spw__fail_info(&info, code, "a request of %s can never fit: no pool is that large%s, or admits that "
                                           "size; raise %s= or its pool limits", where,
                              at->set_aside ? " beside staging" : "", tier);
    case SPW_ENOMETA: return spw__fail_info(&info, code, "no metadata memory for a request of %s; raise meta=", where);
    case SPW_EAGAIN: return spw__fail_info(&info, code, "no room at once for %s", where);
    case SPW_ERETRY: return spw__fail_info(&info, code, GIVE_BACK, where);
    case SPW_ESPLIT: return spw__fail_info(&info, code, TAKE_LESS, where);
    case SPW_EFRAG:
        spw__arbiter_describe(request->manager, request->lowest, holders, sizeof holders);
        return spw__fail_info(&info, code, "no hole for %s before the deadline: what lies between is mapped, neither "
                                           "sealed nor spillable, or raw; held by %s; unmap or free it, or raise %s=",
                              where, holders, tier);
    case SPW_ENOMEM:
        spw__arbiter_describe(request->manager, request->lowest, holders, sizeof holders);
        return spw__fail_info(&info, code, "no room for %s %s: %s; held by %s; %s, or raise %s=", where, until(request),
                              stuck, holders, help, tier);
    case SPW_ECANCELED: return spw__fail_info(&info, code, "the wait for %s was cancelled", where);
    default: return spw__fail_info(&info, code, "the wait for %s ended: %s", where, spw_strerror(code));
    }
}

/* Spilling failed: the error of the write itself tells more than that a request was refused. */
static int fail_spill(const struct spw__request *request, int code)
{
    struct spw__pressure *pressure = &request->manager->pressure[request->lowest];
    spw__mutex_lock(&pressure->lock);
    spw_error_info info = pressure->failure;
    spw__mutex_unlock(&pressure->lock);
    if (info.code != code)
        return refuse(request, code);
    return spw__error_restore(&info);
}

int spw__request_conclude(const struct spw__request *request, int rc)
{
    if (rc == SPW_OK)
        return SPW_OK;
    if (request->spill_failed)
        return fail_spill(request, rc);
    if (rc == SPW_ETIMEDOUT) {
        spw__core_count(request->manager, SPW__CORE_WAIT_TIMEOUTS, 1);
        rc = request->failed == SPW_EFRAG ? SPW_EFRAG : SPW_ENOMEM;
    }
    return refuse(request, rc);
}
