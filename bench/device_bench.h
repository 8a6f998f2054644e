/* What the parts of bench_device share. Neighbours: bench_device.c (the program), device_plain.c (the driver itself, to
 * compare with), device_moves.c (Spillway), device_report.c (table and JSON). */
#ifndef SPW_BENCH_DEVICE_BENCH_H
#define SPW_BENCH_DEVICE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <spillway/spillway.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PIECE_BYTES (16 * MIB) /* what Spillway moves in one copy, and the plain copies too */

enum { REPEATS_MAX = 64, RELOADS = 3 };

struct options {
    bool cuda, json, quick;
    const char *json_file; /* NULL: none */
    double at_least; /* of the driver's own rate; 0: whatever it is */
    unsigned device;
    size_t bytes; /* moved in one direction at a time */
    unsigned warm_up, repeats, pairs;
};

/* The median, the 10th and the 90th percentile; nanoseconds. median 0: not measured. */
struct figure {
    double median, low, high;
};

/* Everything that is measured twice, by Spillway and without it. */
struct costs {
    struct figure h2d, d2h; /* of options.bytes */
    struct figure both;     /* of options.bytes each way */
    struct figure pair;     /* 1 MiB of device memory, allocated and freed */
    struct figure reload[RELOADS];
};

extern const size_t reload_bytes[RELOADS];

struct result {
    char machine[320], device[128];
    int driver_version; /* 1000 * major + 10 * minor; 0: simulated */
    bool allocated;     /* the plain copies' host memory is the driver's own; else it is registered */
    struct costs spillway, plain;
};

/* Sorts. */
struct figure figure_from(double *ns, unsigned n);

/* The driver itself, with what it needs for options.bytes each way. False, and why: there is none, or no device. */
struct plain;
bool plain_open(const struct options *options, struct result *result, struct plain **out, char why[256]);
void plain_measure(struct plain *plain, const struct options *options, struct costs *times);
void plain_close(struct plain *plain);

/* Makes a manager, measures, destroys it. False, with why: there is no such device. */
bool moves_measure(const struct options *options, struct costs *times, char why[256]);

void report_table(const struct result *result, const struct options *options);
void report_json(const struct result *result, const struct options *options, FILE *out);

#endif
