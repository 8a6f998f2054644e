/* bench_alloc_glibc LIVE SEED WARM_UP CHUNKS SINGLES: the pairs of bench_alloc through the system's malloc, in a
 * process that jemalloc is not linked into. Prints mean and 99th percentile in ns. Neighbour:
 * bench_alloc.c starts it. */
#include <stdio.h>
#include <stdlib.h>

#include "alloc_bench.h"

int main(int argc, char **argv)
{
    struct load load;
    struct times times;
    if (argc != 6) {
        (void)fprintf(stderr, "usage: bench_alloc_glibc LIVE SEED WARM_UP CHUNKS SINGLES\n");
        return 2;
    }
    load_make(&load, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
    const int failed = peer_times(&load, strtoull(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10),
                                  strtoull(argv[5], NULL, 10), &times);
    load_free(&load);
    if (failed)
        return 1;
    printf("%.1f %.1f\n", times.mean_ns, times.p99_ns);
    return 0;
}
