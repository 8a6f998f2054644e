/* bench_reserve: what it costs to be given memory, and to hold it: reservations, admission, maps, waiting, and the
 * primitives to compare with in the same run. Neighbours: reserve_bench.h and its parts. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_bench.h"
#include "reserve_bench.h"

enum { TURNS = 64, SCALES = 4 };

struct result {
    struct figure by_depth[DEPTH_MAX + 1]; /* from 0: no group */
    struct figure by_threads[THREADS_MAX];
    double waiters_ns[SCALES]; /* of 100 times 10 to the power of the index */
    double victims_ns[SCALES + 1], beside_ns[SCALES + 1]; /* of none, of 1000 or 100 times 10 to the power of the
                                                             index, less one */
    unsigned n_scales;
    struct figure admit, admit_seal, map, map_turns, map_unsealed;
    struct figure malloc_free, lock, add;
};

void must(int rc)
{
    if (rc == SPW_OK)
        return;
    (void)fprintf(stderr, "bench_reserve: %s: %s\n", spw_strerror(rc), spw_error_detail()->message);
    exit(1);
}

spw_manager *manager_of(const char *spec)
{
    spw_options options;
    spw_manager *manager;
    spw_options_init(&options);
    options.spec = spec;
    must(spw_manager_create(&options, &manager));
    return manager;
}

struct figure figure_from(double *means, unsigned n)
{
    return (struct figure){quantile(means, n, 0.5), quantile(means, n, 0.1), quantile(means, n, 0.9)};
}

struct figure figure_of(void (*pairs)(void *arg, unsigned n), void *arg, const struct plan *plan)
{
    double *means = malloc(plan->chunks * sizeof *means);
    if (!means)
        abort();
    pairs(arg, plan->warm_up);
    for (unsigned i = 0; i < plan->chunks; i++) {
        const double start = now_ns();
        pairs(arg, plan->per_chunk);
        means[i] = (now_ns() - start) / plan->per_chunk;
    }
    const struct figure figure = figure_from(means, plan->chunks);
    free(means);
    return figure;
}

static void measure(struct result *r, const struct plan *plan, const struct plan *threads_plan)
{
    unsigned n = 100;
    for (unsigned depth = 0; depth <= DEPTH_MAX; depth++)
        r->by_depth[depth] = reserve_release(plan, depth);
    for (unsigned i = 0; i < THREADS_MAX; i++)
        r->by_threads[i] = reserve_release_threads(threads_plan, i + 1);
    for (unsigned i = 0; i < r->n_scales; i++, n *= 10)
        r->waiters_ns[i] = waiter_served(n);
    r->victims_ns[0] = victim_sought(0);
    r->beside_ns[0] = waiter_beside(0);
    for (unsigned i = 0, others = 100; i < r->n_scales; i++, others *= 10) {
        r->victims_ns[i + 1] = victim_sought(10 * others);
        r->beside_ns[i + 1] = waiter_beside(others);
    }
    r->add = add_sub(plan);
    r->lock = lock_unlock(plan);
    r->malloc_free = malloc_free(plan);
    r->admit = admit_release(plan);
    r->admit_seal = admit_seal_release(plan);
    r->map = map_unmap(plan, 1, true);
    r->map_turns = map_unmap(plan, TURNS, true);
    r->map_unsealed = map_unmap(plan, 1, false);
}

static void json_figure(const char *key, const struct figure *figure, const char *end)
{
    printf("\"%s\":%.1f,\"%s_spread\":[%.1f,%.1f]%s", key, figure->median, key, figure->low, figure->high, end);
}

/* Of none, and then of ten to the power of first and up. */
static void json_curve(const char *key, const double *ns, unsigned first, unsigned n)
{
    printf("\"%s\":{\"0\":%.1f", key, ns[0]);
    for (unsigned i = 0; i < n; i++)
        printf(",\"1e%u\":%.1f", first + i, ns[i + 1]);
    printf("},");
}

static void print_json(const struct result *r)
{
    putchar('{');
    json_figure("reserve_release_ns_1t", &r->by_depth[0], ",");
    json_figure("reserve_release_ns_2t", &r->by_threads[1], ",");
    json_figure("admit_release_ns", &r->admit, ",");
    json_figure("admit_seal_release_ns", &r->admit_seal, ",");
    json_figure("map_unmap_ns", &r->map, ",");
    json_figure("map_unmap_turns_ns", &r->map_turns, ",");
    json_figure("map_unmap_unsealed_ns", &r->map_unsealed, ",");
    printf("\"by_threads\":{");
    for (unsigned i = 0; i < THREADS_MAX; i++)
        printf("\"%u\":%.1f%s", i + 1, r->by_threads[i].median, i + 1 < THREADS_MAX ? "," : "},");
    printf("\"by_depth\":{");
    for (unsigned depth = 1; depth <= DEPTH_MAX; depth++)
        printf("\"%u\":%.1f%s", depth, r->by_depth[depth].median, depth < DEPTH_MAX ? "," : "},");
    printf("\"waiters\":{");
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("\"1e%u\":%.1f%s", i + 2, r->waiters_ns[i], i + 1 < r->n_scales ? "," : "},");
    json_curve("victims_by_group", r->victims_ns, 3, r->n_scales);
    json_curve("waiters_by_group", r->beside_ns, 2, r->n_scales);
    printf("\"baseline\":{");
    json_figure("malloc_free_ns", &r->malloc_free, ",");
    json_figure("mutex_ns", &r->lock, ",");
    json_figure("atomic_ns", &r->add, "}}\n");
}

static void print_figure(const char *what, const struct figure *figure)
{
    printf("%-42s %8.1f ns  (%.1f to %.1f)\n", what, figure->median, figure->low, figure->high);
}

static void print_text(const struct result *r, const struct plan *plan)
{
    char line[64];
    print_machine();
    printf("buffers of 1 MiB in a host tier of 256 MiB; warm-up %u pairs, median (10th to 90th percentile) of %u "
           "chunks of %u pairs\n", plan->warm_up, plan->chunks, plan->per_chunk);
    print_figure("reserve, release", &r->by_depth[0]);
    for (unsigned depth = 1; depth <= DEPTH_MAX; depth++) {
        (void)snprintf(line, sizeof line, "  under %u group%s", depth, depth > 1 ? "s" : "");
        print_figure(line, &r->by_depth[depth]);
    }
    for (unsigned i = 1; i < THREADS_MAX; i++) {
        (void)snprintf(line, sizeof line, "  by %u threads, as each sees it", i + 1);
        print_figure(line, &r->by_threads[i]);
    }
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("1e%u requests that wait: served in %.1f ns each\n", i + 2, r->waiters_ns[i]);
    printf("no victim in a group: %.1f ns", r->victims_ns[0]);
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("; beside 1e%u of another's %.1f ns", i + 3, r->victims_ns[i + 1]);
    printf("\none that waits, and is served, in a group: %.1f ns", r->beside_ns[0]);
    for (unsigned i = 0; i < r->n_scales; i++)
        printf("; beside 1e%u in 100 others %.1f ns", i + 2, r->beside_ns[i + 1]);
    putchar('\n');
    print_figure("admit, release", &r->admit);
    print_figure("admit, seal, release", &r->admit_seal);
    print_figure("map, unmap: one sealed buffer", &r->map);
    print_figure("map, unmap: 64 sealed buffers in turn", &r->map_turns);
    print_figure("map, unmap: one unsealed buffer", &r->map_unsealed);
    print_figure("malloc, free of 1 MiB", &r->malloc_free);
    print_figure("a mutex locked and unlocked", &r->lock);
    print_figure("an atomic counter raised and lowered", &r->add);
}

int main(int argc, char **argv)
{
    struct plan plan = {.warm_up = 100000, .chunks = 2000, .per_chunk = 1000};
    /* Long enough that threads beyond the processors take turns within a chunk. */
    struct plan threads_plan = {.warm_up = 100000, .chunks = 20, .per_chunk = 200000};
    struct result result = {.n_scales = SCALES};
    bool json = false;
    for (int i = 1; i < argc; i++) {
        const bool quick = strcmp(argv[i], "--quick") == 0;
        json |= strcmp(argv[i], "--json") == 0;
        if (quick) {
            plan = threads_plan = (struct plan){.warm_up = 1000, .chunks = 20, .per_chunk = 500};
            result.n_scales = 1;
        } else if (strcmp(argv[i], "--json") != 0) {
            (void)fprintf(stderr, "usage: bench_reserve [--json] [--quick]\n");
            return 2;
        }
    }
    measure(&result, &plan, &threads_plan);
    if (json)
        print_json(&result);
    else
        print_text(&result, &plan);
    return 0;
}
