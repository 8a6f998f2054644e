/* The same pairs through malloc: jemalloc in bench_alloc, glibc in bench_alloc_glibc. Neighbour: alloc_bench.h. */
#include <stdlib.h>

#include "alloc_bench.h"

struct peer {
    const struct load *load;
    void **live;
    size_t step;
    int failed;
};

static void pair(struct peer *peer)
{
    const size_t i = peer->step;
    peer->step = i + 1 == peer->load->length ? 0 : i + 1;
    void **slot = &peer->live[peer->load->victims[i]];
    free(*slot);
    *slot = malloc(peer->load->sizes[i]);
    peer->failed |= !*slot;
}

static void chunk(struct peer *peer, size_t pairs)
{
    while (pairs-- > 0)
        pair(peer);
}

int peer_times(const struct load *load, size_t warm_up, unsigned chunks, size_t singles, struct times *times)
{
    struct peer peer = {load, malloc(load->live * sizeof(void *)), 0, 0};
    double *means = malloc(chunks * sizeof *means), *single = malloc(singles * sizeof *single);
    if (!peer.live || !means || !single)
        abort();
    for (size_t i = 0; i < load->live; i++) {
        peer.live[i] = malloc(load->sizes[i]);
        peer.failed |= !peer.live[i];
    }
    chunk(&peer, warm_up);
    for (unsigned i = 0; i < chunks; i++) {
        const double start = now_ns();
        chunk(&peer, CHUNK_PAIRS);
        means[i] = (now_ns() - start) / CHUNK_PAIRS;
    }
    for (size_t i = 0; i < singles; i++) {
        const double start = now_ns();
        pair(&peer);
        single[i] = now_ns() - start;
    }
    times->mean_ns = quantile(means, chunks, 0.5);
    times->p99_ns = quantile(single, singles, 0.99) - clock_cost_ns();
    for (size_t i = 0; i < load->live; i++)
        free(peer.live[i]);
    free(peer.live);
    free(means);
    free(single);
    return peer.failed ? -1 : 0;
}
