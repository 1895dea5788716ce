// SPDX-License-Identifier: Apache-2.0
// Measurements become a cluster's own coefficients, `fitted` with standard errors.
// docs/method.md §calibration. With series.c the only user of GSL.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "describe/cluster.h"
#include "describe/measure.h"
#include "judge/series.h"

#include <stdbool.h>
#include <stddef.h>

// One collective's fit, for the table, the plot of residuals and the cluster file.
struct calibrated_series {
    enum collective collective;
    uint64_t nodes, ranks;
    struct series_fit fit;
    struct series_point *points;
    size_t point_count;
    const char *refused; // why there is no fit; NULL = fitted
};

// One rate of the cluster that measurements replaced.
struct calibrated_rate {
    const char *path, *unit; // "gpu.pcie_h2d_bytes_per_s"
    struct figure before, after;
    size_t samples;
};
#define CALIBRATE_RATES_MAX 16

struct calibration {
    struct cluster cluster; // with the new figures and fits
    struct calibrated_series *series;
    size_t series_count;
    struct calibrated_rate rates[CALIBRATE_RATES_MAX];
    size_t rate_count;
    size_t left_out; // results that calibrate nothing: errors, oversubscribed, shared GPU
};

// ERR_RESOURCE when nothing could be fitted.
bool calibrate(const struct cluster *c, const struct measurement *m, size_t count, struct arena *a,
               struct calibration *out, struct err *e);
