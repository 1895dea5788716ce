// SPDX-License-Identifier: Apache-2.0
// Order statistics and counter-based random numbers: same seed, same numbers, on any thread count.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Linear-interpolated quantile (type 7) of n > 0 values; sorts `values` in place. q in [0, 1].
double stats_quantile(double *values, size_t n, double q);
double stats_quantile_sorted(const double *values, size_t n, double q);
double stats_median(double *values, size_t n);
double stats_mean(const double *values, size_t n);
double stats_stddev(const double *values, size_t n); // n - 1; 0 when n < 2
void stats_sort(double *values, size_t n);

// Distribution-free confidence interval of the median (binomial order statistics) at `level`.
void stats_median_interval(const double *sorted, size_t n, double level, double *low, double *high);

// Counter-based generator (Philox-4x32-10 or better): a pure function of its arguments.
uint64_t stats_random_u64(uint64_t seed, uint64_t stream, uint64_t counter);
double stats_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter); // [0, 1)
double stats_random_normal(uint64_t seed, uint64_t stream, uint64_t counter);  // mean 0, sd 1
