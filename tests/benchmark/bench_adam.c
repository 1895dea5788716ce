// SPDX-License-Identifier: Apache-2.0
// CPU Adam against what the memory can do (triad with its write-allocate, four-stream
// read-modify-write) and against a scalar loop with the same threads, with one thread and with one
// per processor: alternated in one process, medians of ratios of neighbours. Fails below 0.95 of
// the ceiling or 3 times the scalar loop. Memory bounds the gain: `ceiling_times_scalar` is the
// most there can be.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/units.h"
#include "bench/clock.h"
#include "bench/inventory.h"
#include "bench/pages.h"
#include "bench/team.h"
#include "kernels/adam.h"

#define TURNS 45
#define GRAIN 4096

enum what { WHAT_ADAM, WHAT_RMW, WHAT_TRIAD, WHAT_SCALAR, WHAT_COUNT };

struct job {
    enum what what;
    size_t n;
    struct adam_arrays arrays;
    struct adam_hyper hyper;
};

static void slice(void *context, size_t member, size_t size) {
    struct job *j = context;
    struct team_part p = team_slice(j->n, GRAIN, member, size);
    const struct adam_variant *best = adam_best();
    if (j->what == WHAT_ADAM)
        best->step(&j->arrays, &j->hyper, p.first, p.count);
    else if (j->what == WHAT_RMW)
        best->rmw(&j->arrays, p.first, p.count);
    else if (j->what == WHAT_TRIAD)
        best->triad(j->arrays.parameters + p.first, j->arrays.first + p.first,
                    j->arrays.second + p.first, 0.5f, p.count);
    else
        adam_find("scalar")->step(&j->arrays, &j->hyper, p.first, p.count);
}

static void fill(void *context, size_t member, size_t size) {
    struct job *j = context;
    struct team_part p = team_slice(j->n, GRAIN, member, size);
    for (size_t i = p.first; i < p.first + p.count; i++) {
        j->arrays.parameters[i] = 1;
        j->arrays.first[i] = 0.01f;
        j->arrays.second[i] = 0.01f;
        ((float *)j->arrays.gradients)[i] = 0.1f;
    }
}

static double rate(struct team *team, struct job *j, enum what what) {
    double bytes = what == WHAT_TRIAD ? 16 : adam_bytes_per_parameter(false, false);
    double before = clock_now_s();
    j->what = what;
    team_run(team, slice, j);
    return bytes * (double)j->n / (clock_now_s() - before);
}

// Of neighbours in time: what another load does to one turn, it mostly does to the next as well.
// Adam's first run of a turn stands beside the scalar loop's second, and the other way round.
struct ratio {
    double median, low, high; // 95 % interval of the median
};

static struct ratio ratio_of(const double *x, const double *y, size_t crossed) {
    double each[2 * TURNS];
    struct ratio r;
    for (size_t i = 0; i < 2 * TURNS; i++)
        each[i] = x[i] / y[i ^ crossed];
    stats_sort(each, 2 * TURNS);
    r.median = stats_quantile_sorted(each, 2 * TURNS, 0.5);
    stats_median_interval(each, 2 * TURNS, 0.95, &r.low, &r.high);
    return r;
}

// Both ceilings were measured in every turn; the higher one counts, over all turns.
static bool judge(double rates[WHAT_COUNT][2 * TURNS], size_t threads, size_t n) {
    double median[WHAT_COUNT];
    for (int w = 0; w < WHAT_COUNT; w++) {
        double sorted[2 * TURNS];
        memcpy(sorted, rates[w], sizeof(sorted));
        median[w] = stats_median(sorted, 2 * TURNS);
    }
    enum what top = median[WHAT_RMW] > median[WHAT_TRIAD] ? WHAT_RMW : WHAT_TRIAD;
    struct ratio share = ratio_of(rates[WHAT_ADAM], rates[top], 0);
    struct ratio gain = ratio_of(rates[WHAT_ADAM], rates[WHAT_SCALAR], 1);
    printf("{\"benchmark\":\"adam\",\"variant\":\"%s\",\"threads\":%zu,\"parameters\":%zu,"
           "\"adam_bytes_per_s\":%.4g,\"rmw_bytes_per_s\":%.4g,\"triad_bytes_per_s\":%.4g,"
           "\"scalar_bytes_per_s\":%.4g,\"of_ceiling\":%.3f,\"of_ceiling_interval\":[%.3f,%.3f],"
           "\"times_scalar\":%.2f,\"times_scalar_interval\":[%.2f,%.2f],"
           "\"ceiling_times_scalar\":%.2f}\n",
           adam_best()->name, threads, n, median[WHAT_ADAM], median[WHAT_RMW], median[WHAT_TRIAD],
           median[WHAT_SCALAR], share.median, share.low, share.high, gain.median, gain.low,
           gain.high, median[top] / median[WHAT_SCALAR]);
    return share.median >= 0.95 && gain.median >= 3;
}

static bool measure(struct job *j, size_t threads) {
    struct team *team = team_create(threads);
    double rates[WHAT_COUNT][2 * TURNS];
    team_run(team, fill, j);
    for (int t = 0; t < TURNS; t++)
        for (int w = 0; w < WHAT_COUNT; w++) {
            // Adam scalar rmw triad triad rmw scalar Adam: slow drift hits all alike.
            rates[w][2 * t] = rate(team, j, (enum what)w);
            int back = WHAT_COUNT - 1 - w;
            rates[back][2 * t + 1] = rate(team, j, (enum what)back);
        }
    bool well = judge(rates, team_size(team), j->n);
    team_destroy(team);
    return well;
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? (size_t)atoi(argv[1]) : 0;
    struct job j = {.n = units_ceil_to(8 * inventory_last_level_cache_bytes() / 28, UNITS_MIB)};
    j.hyper = adam_hyper_at((struct adam_settings){1e-3, 0.9, 0.999, 1e-8, 0.01}, 10);
    float *base = pages_map(16 * j.n);
    if (base == NULL)
        return 4;
    j.arrays = (struct adam_arrays){.parameters = base,
                                    .first = base + j.n,
                                    .second = base + 2 * j.n,
                                    .gradients = base + 3 * j.n};
    bool well = true;
    if (argc <= 1 && inventory_processors() > 1)
        well = measure(&j, 1);
    well = measure(&j, threads) && well;
    pages_unmap(base, 16 * j.n);
    return well ? 0 : 1;
}
