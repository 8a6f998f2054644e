/* What the parts of bench_alloc share: the load, which is the same for every allocator, and how times are summed up
 * (for bench_reserve too). Neighbours: bench_alloc.c (the program), alloc_load.c, alloc_peer.c (malloc, whichever it
 * is), alloc_use.c (how full a range gets), alloc_glibc.c (the child process without jemalloc). */
#ifndef SPW_BENCH_ALLOC_BENCH_H
#define SPW_BENCH_ALLOC_BENCH_H

#include <stddef.h>
#include <stdint.h>

#define SIZE_MIN 256.0
#define SIZE_MAX_MIXED (4.0 * 1024 * 1024)
#define CHUNK_PAIRS 5000u

/* Pairs to play, over and over: in step i the live object victims[i] is freed and one of sizes[i] takes its place.
 * Sizes are log-uniform; everything follows from the seed. */
struct load {
    size_t live;
    size_t length; /* more than twice live, so that few objects of the same origin live at once */
    uint32_t *sizes;
    uint32_t *victims;
};

struct random {
    uint64_t state;
};

/* Times of pairs: the median of the means of many chunks, and the 99th percentile of single pairs without the clock. */
struct times {
    double mean_ns;
    double p99_ns;
};

uint64_t random_bits(struct random *random);
double random_unit(struct random *random); /* in [0, 1) */
double random_normal(struct random *random);
double random_log_uniform(struct random *random, double low, double high);
double log_uniform_mean(double low, double high);

void load_make(struct load *load, size_t live, uint64_t seed);
void load_free(struct load *load);

double now_ns(void);
double clock_cost_ns(void);
/* Sorts; fraction in [0, 1]. */
double quantile(double *values, size_t n, double fraction);

/* A line of text: the processor, how many, and the system. */
void machine_line(char *line, size_t size);
void print_machine(void);

/* malloc and free, after warm_up pairs. chunks means are taken, and single pairs timed. 0, or -1: memory ran out. */
int peer_times(const struct load *load, size_t warm_up, unsigned chunks, size_t singles, struct times *times);

/* Raw memory: two threads, each with live blocks of its own in one pool, through the tier. Wall time over pairs, the
 * mean of both: a median of chunks would show the ones that a thread had for itself. (alloc_tier.c) */
double pair_ns_2t(uint64_t region, size_t live, size_t warm_up, size_t pairs, uint64_t seed);

/* Small objects, 64 B to 64 KiB: two threads with 2000 live ones each on one pool of 1 GiB. The median of the means of
 * many chunks. (alloc_small.c) */
double small_ns_2t(unsigned chunks, uint64_t seed);

/* How full one range, or eight with overflow upward, gets: live bytes / all bytes, on average over failures. */
enum use { USE_LOGNORMAL, USE_POW2_64, USE_UNIFORM, USE_SMALL };
double use_of(enum use use, unsigned pools, unsigned failures);
uint64_t use_region_bytes(enum use use);

#endif
