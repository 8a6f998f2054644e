/* What others cost a group: their buffers, when a victim is sought in it, and their waiters, when something is released
 * in it. Neighbour: reserve_bench.h. */
#include <stdlib.h>

#include "alloc_bench.h"
#include "reserve_bench.h"

#define OWN_BYTES ((size_t)4096)
#define OWN_BUFFERS 2u
#define OTHER_GROUPS 100u

static spw_group *group_of(spw_manager *manager, uint64_t max_bytes)
{
    spw_group_options options;
    spw_group *group;
    spw_group_options_init(&options);
    options.shares[SPW_TIER_HOST].max_bytes = max_bytes;
    must(spw_group_create(manager, &options, &group));
    return group;
}

static spw_buffer *sealed_in(spw_manager *manager, spw_group *group)
{
    spw_admit_options options;
    spw_buffer *buffer;
    spw_admit_options_init(&options);
    options.group = group;
    must(spw_admit(manager, OWN_BYTES, &options, &buffer));
    must(spw_buffer_seal(buffer));
    return buffer;
}

/* A group that has what it may have, all of it mapped, asks for more, and is refused: nothing of its own can go. */
static double refusal_ns(spw_manager *manager, spw_group *group, unsigned times)
{
    spw_alloc_options options;
    spw_buffer *none;
    spw_alloc_options_init(&options);
    options.group = group;
    options.wait.timeout_ms = 0;
    const double start = now_ns();
    for (unsigned i = 0; i < times; i++)
        if (spw_alloc(manager, SPW_HOST, OWN_BYTES, &options, &none) != SPW_ENOMEM)
            abort();
    return (now_ns() - start) / times;
}

double victim_sought(unsigned n_others)
{
    spw_manager *manager = manager_of("host=6G; meta=3G");
    spw_group *others = group_of(manager, SPW_NO_LIMIT), *group = group_of(manager, OWN_BUFFERS * OWN_BYTES);
    spw_buffer **buffers = calloc(n_others, sizeof(spw_buffer *)), *own[OWN_BUFFERS];
    spw_view views[OWN_BUFFERS];
    if (!buffers)
        abort();
    for (unsigned i = 0; i < n_others; i++)
        buffers[i] = sealed_in(manager, others);
    for (unsigned i = 0; i < OWN_BUFFERS; i++) {
        own[i] = sealed_in(manager, group);
        must(spw_map(own[i], SPW_HOST, SPW_MAP_READ, NULL, &views[i]));
    }
    (void)refusal_ns(manager, group, 20);
    const double ns = refusal_ns(manager, group, 200);
    for (unsigned i = 0; i < OWN_BUFFERS; i++) {
        must(spw_unmap(own[i], &views[i], NULL));
        must(spw_buffer_release(own[i]));
    }
    for (unsigned i = 0; i < n_others; i++)
        must(spw_buffer_release(buffers[i]));
    free(buffers);
    must(spw_group_destroy(group));
    must(spw_group_destroy(others));
    must(spw_manager_destroy(manager));
    return ns;
}

static spw_ticket *wait_in(spw_manager *manager, spw_group *group)
{
    spw_reserve_options options;
    spw_ticket *ticket;
    spw_reserve_options_init(&options);
    options.group = group;
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    must(spw_reserve_start(manager, SPW_HOST, OWN_BYTES, &options, &ticket));
    return ticket;
}

static spw_reservation *granted(spw_ticket *ticket)
{
    spw_reservation *reservation;
    must(spw_ticket_wait(ticket, NULL));
    must(spw_ticket_take_reservation(ticket, &reservation));
    must(spw_ticket_destroy(ticket));
    return reservation;
}

double waiter_beside(unsigned n_others)
{
    enum { ROUNDS = 200 };
    spw_manager *manager = manager_of("host=512M; meta=2G");
    spw_group *others[OTHER_GROUPS], *group = group_of(manager, OWN_BYTES);
    spw_reservation *held[OTHER_GROUPS], *own = granted(wait_in(manager, group));
    spw_ticket **tickets = calloc(n_others, sizeof(spw_ticket *));
    if (!tickets)
        abort();
    for (unsigned i = 0; i < OTHER_GROUPS; i++) {
        others[i] = group_of(manager, OWN_BYTES);
        held[i] = granted(wait_in(manager, others[i]));
    }
    for (unsigned i = 0; i < n_others; i++)
        tickets[i] = wait_in(manager, others[i % OTHER_GROUPS]);
    const double start = now_ns();
    for (unsigned i = 0; i < ROUNDS; i++) {
        spw_ticket *next = wait_in(manager, group);
        must(spw_reservation_release(own));
        own = granted(next);
    }
    const double ns = (now_ns() - start) / ROUNDS;
    must(spw_reservation_release(own));
    for (unsigned i = 0; i < n_others; i++)
        must(spw_ticket_cancel(tickets[i]));
    for (unsigned i = 0; i < n_others; i++) {
        if (spw_ticket_wait(tickets[i], NULL) != SPW_ECANCELED)
            abort();
        must(spw_ticket_destroy(tickets[i]));
    }
    free(tickets);
    for (unsigned i = 0; i < OTHER_GROUPS; i++) {
        must(spw_reservation_release(held[i]));
        must(spw_group_destroy(others[i]));
    }
    must(spw_group_destroy(group));
    must(spw_manager_destroy(manager));
    return ns;
}
