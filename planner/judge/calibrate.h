// SPDX-License-Identifier: Apache-2.0
// Measurements become a cluster's own coefficients, `fitted` with standard errors.
// docs/method.md §calibration-series, §calibration-gpu, §calibration-runs.
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
    const char *algorithm;    // of the measurement; NULL: not stated
    double cpu_s, measured_s; // sums over points whose CPU time was measured
    struct series_fit fit;
    struct series_point *points;
    size_t point_count;
    const char *refused; // why there is no fit; NULL = fitted
};

// One figure of the cluster or its GPU that measurements replaced.
struct calibrated_rate {
    const char *path, *unit; // "gpu.pcie_h2d_bytes_per_s"
    struct figure before, after;
    size_t samples;
    // Where several sizes were measured with the chosen setting (NVMe: block sizes; Adam: counts of
    // parameters): their number, and the mean error of a size predicted from the others.
    size_t sizes;
    double left_out;
};
#define CALIBRATE_RATES_MAX 48

// A law checked on what it was not fitted to. Median absolute relative errors; NAN: not asked.
struct calibrated_law {
    size_t points;
    double before, after; // with the figures as they were; on the points that it was fitted to
    double left_out;      // each point predicted from the others
    const char *refused;  // why the figures stay as they were; NULL = replaced
};

// Training runs; shares are medians of |predicted / measured - 1| over step times.
struct calibrated_runs {
    struct calibrated_law law;
    size_t folds;              // groups that were left out in turn
    size_t left_out;           // rows of another GPU, not scored, or not predicted
    const char *left_out_note; // the first reason
};

struct calibration {
    struct cluster cluster; // with the new figures and fits
    struct calibrated_series *series;
    size_t series_count;
    struct calibrated_rate rates[CALIBRATE_RATES_MAX];
    size_t rate_count;
    struct calibrated_law gemm;
    struct calibrated_runs runs;
    size_t left_out; // results that calibrate nothing: errors, oversubscribed, shared GPU
};

// ERR_RESOURCE when there are results and nothing could be fitted. No results: the cluster as it
// is.
bool calibrate(const struct cluster *c, const struct measurement *m, size_t count, struct arena *a,
               struct calibration *out, struct err *e);
// Adds the GPU's and host's constants, fitted to the training runs of a runs file (docs/formats.md
// §runs). They replace the figures only where left-out runs are predicted better than before.
// ERR_RESOURCE when no row can be used.
bool calibrate_runs(const char *path, struct arena *a, struct calibration *c, struct err *e);
