/* The load of bench_alloc, its clock, and what it says of the machine. Neighbour: alloc_bench.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "alloc_bench.h"

#define LENGTH_MIN 300000u

uint64_t random_bits(struct random *random)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = random->state;
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

double random_unit(struct random *random)
{
    return (double)(random_bits(random) >> 11) * 0x1p-53;
}

double random_normal(struct random *random)
{
    const double radius = sqrt(-2 * log(1 - random_unit(random)));
    return radius * cos(2 * M_PI * random_unit(random));
}

double random_log_uniform(struct random *random, double low, double high)
{
    return low * exp(log(high / low) * random_unit(random));
}

double log_uniform_mean(double low, double high)
{
    return (high - low) / log(high / low);
}

void load_make(struct load *load, size_t live, uint64_t seed)
{
    struct random random = {seed};
    const size_t length = live > LENGTH_MIN / 3 ? 3 * live : LENGTH_MIN;
    *load = (struct load){live, length, malloc(length * sizeof(uint32_t)), malloc(length * sizeof(uint32_t))};
    if (!load->sizes || !load->victims)
        abort();
    for (size_t i = 0; i < length; i++) {
        load->sizes[i] = (uint32_t)random_log_uniform(&random, SIZE_MIN, SIZE_MAX_MIXED);
        load->victims[i] = (uint32_t)(random_unit(&random) * (double)live);
    }
}

void load_free(struct load *load)
{
    free(load->sizes);
    free(load->victims);
}

double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double quantile(double *values, size_t n, double fraction)
{
    qsort(values, n, sizeof *values, compare);
    return values[(size_t)(fraction * (double)(n - 1))];
}

double clock_cost_ns(void)
{
    enum { READS = 10000 };
    static double costs[READS];
    for (unsigned i = 0; i < READS; i++) {
        const double start = now_ns();
        costs[i] = now_ns() - start;
    }
    return quantile(costs, READS, 0.5);
}

void machine_line(char *line, size_t size)
{
    struct utsname host;
    char cpu[128] = "unknown processor", text[256];
    FILE *info = fopen("/proc/cpuinfo", "r");
    while (info && fgets(text, sizeof text, info))
        if (sscanf(text, "model name : %127[^\n]", cpu) == 1)
            break;
    if (info)
        (void)fclose(info);
    (void)uname(&host);
    (void)snprintf(line, size, "%s, %ld processors, %s %s", cpu, sysconf(_SC_NPROCESSORS_ONLN), host.sysname,
                   host.release);
}

void print_machine(void)
{
    char line[320];
    machine_line(line, sizeof line);
    puts(line);
}
