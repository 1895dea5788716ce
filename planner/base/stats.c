// SPDX-License-Identifier: Apache-2.0
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

void stats_sort(double *values, size_t n) {
    if (n > 1)
        qsort(values, n, sizeof *values, compare);
}

double stats_quantile_sorted(const double *values, size_t n, double q) {
    if (n == 0)
        return NAN;
    double position = fmin(fmax(q, 0), 1) * (double)(n - 1);
    size_t below = (size_t)position;
    if (below + 1 >= n)
        return values[n - 1];
    double share = position - (double)below;
    return values[below] + share * (values[below + 1] - values[below]);
}

double stats_quantile(double *values, size_t n, double q) {
    stats_sort(values, n);
    return stats_quantile_sorted(values, n, q);
}

double stats_median(double *values, size_t n) {
    return stats_quantile(values, n, 0.5);
}

// Kahan's sum: samples of one size differ by less than their sum's last bits.
double stats_mean(const double *values, size_t n) {
    double sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++) {
        double term = values[i] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    return n ? sum / (double)n : NAN;
}

double stats_stddev(const double *values, size_t n) {
    if (n < 2)
        return 0;
    double mean = stats_mean(values, n), squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return sqrt(squares / (double)(n - 1));
}

static double log_binomial_half(size_t n, size_t k) {
    int sign;
    return lgamma_r((double)n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
           lgamma_r((double)(n - k) + 1, &sign) - (double)n * log(2);
}

void stats_median_interval(const double *sorted, size_t n, double level, double *low,
                           double *high) {
    if (n == 0) {
        *low = *high = NAN;
        return;
    }
    // Order statistics k and n-1-k (from 0) cover with 1 - 2 P(Binomial(n, 1/2) <= k).
    size_t best = 0;
    double tail = 0;
    for (size_t k = 0; k < n / 2; k++) {
        tail += exp(log_binomial_half(n, k));
        if (2 * tail > 1 - level)
            break;
        best = k;
    }
    *low = sorted[best];
    *high = sorted[n - 1 - best];
}

// Philox-4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
static void philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

static uint64_t join(uint32_t low, uint32_t high) {
    return (uint64_t)high << 32 | low;
}

// The top 53 bits: every result is a multiple of 2^-53.
static double to_unit(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t stats_random_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    philox(seed, stream, counter, out);
    return join(out[0], out[1]);
}

double stats_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
    return to_unit(stats_random_u64(seed, stream, counter));
}

double stats_random_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t out[4];
    philox(seed, stream, counter, out);
    // Box and Muller, with the radius drawn from (0, 1] so that its logarithm is finite.
    double radius = sqrt(-2 * log(1 - to_unit(join(out[0], out[1]))));
    return radius * cos(2 * M_PI * to_unit(join(out[2], out[3])));
}
