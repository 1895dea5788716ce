// SPDX-License-Identifier: Apache-2.0
// What the harness adds to an iteration: a bare loop and the harness around the same body, ABBA in
// one process. Fails above 1 us per iteration.
#include "bench/harness.h"

#include <stdio.h>
#include <string.h>

#include "base/stats.h"
#include "base/units.h"
#include "bench/clock.h"

#define TURNS 20000
#define PAIRS 11
#define LIMIT_S 1e-6

struct body {
    char from[4096], to[4096];
};

static bool copy(void *context, struct err *e) {
    struct body *b = context;
    (void)e;
    memcpy(b->to, b->from, sizeof(b->to));
    __asm__ volatile("" : : "r"(b->to) : "memory");
    return true;
}

static bool prepare(void *state, const struct bench_point *p, struct err *e) {
    (void)state, (void)p, (void)e;
    return true;
}

static void release(void *state) {
    (void)state;
}

static bool sample(void *state, size_t count, double *samples_s, struct err *e) {
    return clock_time(copy, state, count, samples_s, e);
}

static const struct backend backend = {
    .name = "copy", .prepare = prepare, .release = release, .sample = sample};

static double bare_s(struct body *b) {
    double before = clock_now_s();
    for (int i = 0; i < TURNS; i++)
        copy(b, NULL);
    return (clock_now_s() - before) / TURNS;
}

static double harness_s(const struct harness *h, struct err *e) {
    struct harness_limits l = harness_defaults();
    struct bench_point p = {.kind = "copy", .payload_bytes = 4096};
    struct measure_result r;
    l.warmup_s = 0;
    l.min_iterations = l.max_iterations = TURNS;
    double before = clock_now_s();
    if (!harness_prepare(h, &p, e) || !harness_run(h, &p, &l, &r, e))
        return -1;
    return (clock_now_s() - before) / TURNS;
}

int main(void) {
    struct body body = {.from = {1}};
    struct signals signals;
    struct err e = {0};
    double added[2 * PAIRS];
    struct harness h = {.backend = &backend, .state = &body, .signals = &signals};
    h.arena = arena_create();
    if (!signals_init(&signals, &e) || !ranks_open(false, &h.ranks, &e))
        return 4;
    for (int i = 0; i < PAIRS; i++) {
        double a = bare_s(&body), b = harness_s(&h, &e), c = harness_s(&h, &e), d = bare_s(&body);
        added[2 * i] = b - a;
        added[2 * i + 1] = c - d;
    }
    double median = stats_median(added, 2 * PAIRS);
    printf("{\"benchmark\":\"harness\",\"added_s_per_iteration\":%.3g,\"limit_s\":%.3g}\n", median,
           LIMIT_S);
    signals_finish(&signals);
    arena_destroy(h.arena);
    return median <= LIMIT_S ? 0 : 1;
}
