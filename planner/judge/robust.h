// SPDX-License-Identifier: Apache-2.0
// Robust non-linear least squares on relative residuals: GSL's trust region, Huber weights, Huber's
// standard errors. docs/method.md §calibration-series.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define ROBUST_PARAMETERS_MAX 8

struct robust_problem {
    size_t points, parameters;
    // Predicted over measured value of a point at parameters x. Residual: ratio - 1.
    double (*ratio)(const double *x, size_t point, const void *context);
    // Its derivatives; NULL: by differences.
    void (*gradient)(const double *x, size_t point, const void *context, double *out);
    const void *context;
    // What was believed before, per parameter, with standard deviations; NULL: nothing.
    const double *prior, *prior_sd;
    double least_scatter; // relative error that no measurement is below; 0: none
    double tolerance;     // relative, of the parameters; 0: 1e-9
};

struct robust_result {
    double errors[ROBUST_PARAMETERS_MAX]; // standard errors of x
    double scatter;                       // robust relative residual (1.48 x median absolute)
};

// x: start in, solution out. False when it does not converge to finite parameters.
bool robust_fit(const struct robust_problem *p, double *x, struct robust_result *out);
