// SPDX-License-Identifier: Apache-2.0
// Known laws are found again, with honest errors, also with outliers and a switch of algorithm.
#include "base/stats.h"
#include "base/units.h"
#include "judge/series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEEDS 1000
#define SIZES 14
#define REPEATS 3

struct truth {
    double latency_s, bytes_per_s, half_bytes, noise;
};

static size_t make(const struct truth *t, uint64_t seed, struct series_point *out) {
    size_t n = 0;
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < REPEATS; k++) {
            double payload = (double)UNITS_MIB / 16 * exp2(i), sent = payload * 7 / 8;
            double root = t->half_bytes > 0 ? sqrt(t->half_bytes / payload) : 0;
            double s = t->latency_s + sent / t->bytes_per_s * (1 + root);
            double noise = stats_random_normal(seed, 1, n);
            out[n++] = (struct series_point){sent, payload, s * (1 + t->noise * noise)};
        }
    return n;
}

static void synthetic_data(void **state) {
    static const struct truth t = {.latency_s = 40e-6, .bytes_per_s = 3.6e11, .noise = 0.02};
    double latency[SEEDS], bandwidth[SEEDS];
    size_t covered_latency = 0, covered_bandwidth = 0;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct series_point points[SIZES * REPEATS];
        struct series_fit f;
        struct err e = {0};
        struct arena *a = arena_create();
        size_t n = make(&t, seed, points);
        assert_true(series_fit(points, n, a, &f, &e));
        const struct series_law *l = &f.pieces[0], *last = &f.pieces[f.piece_count - 1];
        latency[seed] = fabs(l->latency_s / t.latency_s - 1);
        bandwidth[seed] = fabs(last->bytes_per_s / t.bytes_per_s - 1);
        covered_latency += fabs(log(l->latency_s / t.latency_s)) < 1.96 * l->latency_error;
        covered_bandwidth +=
            fabs(log(last->bytes_per_s / t.bytes_per_s)) < 1.96 * last->bandwidth_error;
        arena_destroy(a);
    }
    print_message("median |latency| error %.4f, bandwidth %.4f, coverage %.3f and %.3f\n",
                  stats_median(latency, SEEDS), stats_median(bandwidth, SEEDS),
                  (double)covered_latency / SEEDS, (double)covered_bandwidth / SEEDS);
    assert_true(stats_median(latency, SEEDS) <= 0.05);
    assert_true(stats_median(bandwidth, SEEDS) <= 0.01);
    assert_true(covered_latency >= 0.93 * SEEDS && covered_latency <= 0.97 * SEEDS);
    assert_true(covered_bandwidth >= 0.93 * SEEDS && covered_bandwidth <= 0.97 * SEEDS);
}

static void outliers_do_not_move_it(void **state) {
    static const struct truth t = {.latency_s = 40e-6, .bytes_per_s = 3.6e11, .noise = 0.01};
    struct series_point points[SIZES * REPEATS];
    struct series_fit f;
    struct err e = {0};
    struct arena *a = arena_create();
    (void)state;
    size_t n = make(&t, 7, points);
    for (size_t i = 4; i < n; i += 9)
        points[i].seconds *= 3; // a neighbour's job
    assert_true(series_fit(points, n, a, &f, &e));
    assert_true(fabs(f.pieces[f.piece_count - 1].bytes_per_s / t.bytes_per_s - 1) < 0.03);
    arena_destroy(a);
}

static void saturation_is_found(void **state) {
    static const struct truth t = {
        .latency_s = 40e-6, .bytes_per_s = 3.6e11, .half_bytes = 64e6, .noise = 0.01};
    struct series_point points[SIZES * REPEATS];
    struct series_fit f;
    struct err e = {0};
    struct arena *a = arena_create();
    (void)state;
    size_t n = make(&t, 3, points);
    assert_true(series_fit(points, n, a, &f, &e));
    assert_true(f.cross_validation < 0.03);
    arena_destroy(a);
}

static void two_algorithms(void **state) {
    static const struct truth low = {.latency_s = 10e-6, .bytes_per_s = 2e10, .noise = 0.005};
    static const struct truth high = {.latency_s = 90e-6, .bytes_per_s = 2e11, .noise = 0.005};
    struct series_point points[SIZES * REPEATS], other[SIZES * REPEATS];
    struct series_fit f;
    struct err e = {0};
    struct arena *a = arena_create();
    (void)state;
    size_t n = make(&low, 1, points);
    make(&high, 2, other);
    for (size_t i = 0; i < n; i++)
        if (other[i].seconds < points[i].seconds)
            points[i] = other[i];
    assert_true(series_fit(points, n, a, &f, &e));
    assert_int_equal(f.piece_count, 2);
    assert_true(fabs(f.pieces[1].bytes_per_s / 2e11 - 1) < 0.03);
    assert_true(fabs(f.pieces[0].latency_s / 10e-6 - 1) < 0.1);
    arena_destroy(a);
}

static void too_little_is_refused(void **state) {
    struct series_point points[4] = {
        {1e6, 1e6, 1e-4}, {1e6, 1e6, 1.1e-4}, {2e6, 2e6, 2e-4}, {2e6, 2e6, 2e-4}};
    struct series_fit f;
    struct err e = {0};
    struct arena *a = arena_create();
    (void)state;
    assert_false(series_fit(points, 4, a, &f, &e));
    assert_int_equal(e.kind, ERR_RESOURCE);
    arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synthetic_data),        cmocka_unit_test(outliers_do_not_move_it),
        cmocka_unit_test(saturation_is_found),   cmocka_unit_test(two_algorithms),
        cmocka_unit_test(too_little_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
