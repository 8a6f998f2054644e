/* Many who wait for one place: what each costs to be served. Neighbour: reserve_bench.h. */
#include <stdlib.h>

#include <spillway/ticket.h>

#include "alloc_bench.h"
#include "reserve_bench.h"

#define WAITER_BYTES UINT64_C(4096)

/* A full tier for which n requests wait, without threads of their own; its holder gives back as much as one of them
 * needs, n times. Until the last one's result was seen. */
double waiter_served(unsigned n)
{
    spw_manager *manager = manager_of("host=512M; meta=2G");
    spw_ticket **tickets = calloc(n, sizeof(spw_ticket *));
    spw_reserve_options options;
    spw_reservation *held, *got;
    if (!tickets)
        abort();
    spw_reserve_options_init(&options);
    options.wait.timeout_ms = SPW_TIMEOUT_INFINITE;
    must(spw_reserve(manager, SPW_HOST, spw_budget(manager, SPW_HOST), NULL, &held));
    for (unsigned i = 0; i < n; i++)
        must(spw_reserve_start(manager, SPW_HOST, WAITER_BYTES, &options, &tickets[i]));
    const double start = now_ns();
    for (unsigned i = 0; i < n; i++)
        must(spw_reservation_shrink(held, WAITER_BYTES));
    for (unsigned i = 0; i < n; i++)
        must(spw_ticket_wait(tickets[i], NULL));
    const double served_ns = (now_ns() - start) / n;
    for (unsigned i = 0; i < n; i++) {
        must(spw_ticket_take_reservation(tickets[i], &got));
        must(spw_reservation_release(got));
        must(spw_ticket_destroy(tickets[i]));
    }
    must(spw_reservation_release(held));
    must(spw_manager_destroy(manager));
    free(tickets);
    return served_ns;
}
