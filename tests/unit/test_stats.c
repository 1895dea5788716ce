// SPDX-License-Identifier: Apache-2.0
#include "base/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// R: quantile(c(1, 2, 4, 8, 16), c(.1, .25, .5, .9), type = 7)
static void quantiles_are_type_seven(void **state) {
    (void)state;
    double v[] = {16, 1, 8, 2, 4};
    assert_true(fabs(stats_quantile(v, 5, 0.1) - 1.4) < 1e-12);
    assert_true(stats_quantile(v, 5, 0.25) == 2);
    assert_true(stats_median(v, 5) == 4);
    assert_true(fabs(stats_quantile(v, 5, 0.9) - 12.8) < 1e-12);
    assert_true(stats_quantile(v, 5, 0) == 1 && stats_quantile(v, 5, 1) == 16);
    double one[] = {3};
    assert_true(stats_quantile(one, 1, 0.7) == 3);
    double even[] = {4, 1};
    assert_true(stats_median(even, 2) == 2.5);
    assert_true(isnan(stats_median(even, 0)));
}

static void moments_match_the_textbook(void **state) {
    (void)state;
    const double v[] = {2, 4, 4, 4, 5, 5, 7, 9};
    assert_true(stats_mean(v, 8) == 5);
    assert_true(fabs(stats_stddev(v, 8) - sqrt(32.0 / 7)) < 1e-12);
    assert_true(stats_stddev(v, 1) == 0);
}

// Conover, Practical Nonparametric Statistics: n = 10 gives x(2)..x(9) with 97.9 % cover.
static void median_interval_uses_order_statistics(void **state) {
    (void)state;
    double v[100], low, high;
    for (int i = 0; i < 100; i++)
        v[i] = i + 1;
    stats_median_interval(v, 10, 0.95, &low, &high);
    assert_true(low == 2 && high == 9);
    stats_median_interval(v, 100, 0.95, &low, &high);
    assert_true(low == 40 && high == 61);
    stats_median_interval(v, 3, 0.95, &low, &high);
    assert_true(low == 1 && high == 3);
}

// Random123's kat_vectors, philox4x32 10 rounds; the first two words of each.
static void philox_gives_the_published_numbers(void **state) {
    (void)state;
    assert_true(stats_random_u64(0, 0, 0) == 0xe169c58d6627e8d5ULL);
    assert_true(stats_random_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == 0x41c83b0e408f276dULL);
    assert_true(stats_random_u64(0x299f31d0a4093822ULL, 0x0370734413198a2eULL,
                                 0x85a308d3243f6a88ULL) == 0x94fdccebd16cfe09ULL);
}

static void random_numbers_have_their_moments(void **state) {
    (void)state;
    enum { N = 20000 };
    static double u[N], z[N];
    for (int i = 0; i < N; i++) {
        u[i] = stats_random_uniform(7, 1, (uint64_t)i);
        z[i] = stats_random_normal(7, 2, (uint64_t)i);
        assert_true(u[i] >= 0 && u[i] < 1);
    }
    assert_true(fabs(stats_mean(u, N) - 0.5) < 0.01);
    assert_true(fabs(stats_stddev(u, N) - sqrt(1.0 / 12)) < 0.01);
    assert_true(fabs(stats_mean(z, N)) < 0.03);
    assert_true(fabs(stats_stddev(z, N) - 1) < 0.03);
    assert_true(fabs(stats_quantile(z, N, 0.975) - 1.96) < 0.06);
    assert_true(stats_random_u64(7, 1, 0) != stats_random_u64(7, 2, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_type_seven),
        cmocka_unit_test(moments_match_the_textbook),
        cmocka_unit_test(median_interval_uses_order_statistics),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(random_numbers_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
