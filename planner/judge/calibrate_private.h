// SPDX-License-Identifier: Apache-2.0
// Between the files that calibrate.
#pragma once

#include "judge/calibrate.h"

// Wrong data, more ranks than processors, or several ranks on one GPU: calibrates nothing.
bool calibrate_usable(const struct measure_result *r);
// A fitted figure from the standard error of its logarithm, with the 95 % interval.
struct figure calibrate_figure(double value, double log_error, const char *source);
// One line of the table of rates (its `before` is filled here), and the new figure in its place.
void calibrate_set(struct calibration *c, struct figure *at, struct calibrated_rate r);

// Copies, NVMe, host memory, CPU Adam: the best setting measured.
void calibrate_rates(const struct measurement *m, size_t count, struct arena *a,
                     struct calibration *c);
// GPU memory and matrix products.
void calibrate_gpu(const struct measurement *m, size_t count, struct arena *a,
                   struct calibration *c);
