// SPDX-License-Identifier: Apache-2.0
// Measures one point with one backend: verify, warm up, repeat until the median is known well
// enough or the time is up, verify again. docs/method.md §measuring.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "bench/backend.h"
#include "bench/ranks.h"
#include "bench/signals.h"

#include <stdbool.h>
#include <stddef.h>

struct harness_limits {
    double warmup_s;       // at least this long and at least one iteration
    double budget_s;       // for the timed iterations of one point
    size_t min_iterations; // however long they take
    size_t max_iterations;
    double target;     // half width of the median's 95 % interval over the median
    double settle_s;   // what runs twice this long reports the mean rate after it; 0 = never
    double least_s;    // of all timed iterations, unless the deadline or the most comes first
    double deadline_s; // of clock_now_s: a point that runs then ends with what it has; 0 = none
    bool verify;
    uint64_t seed; // of the verified contents
};

struct harness_limits harness_defaults(void);

struct harness {
    const struct backend *backend;
    void *state;
    const struct ranks *ranks;
    struct signals *signals;
    struct arena *arena; // receives the samples
};

// Identity of a point as a result without numbers: for resuming.
void harness_identify(const struct harness *h, const struct bench_point *p,
                      struct measure_result *r);

// Sets a point up on every rank. False: it does not fit or is not supported; already released.
bool harness_prepare(const struct harness *h, const struct bench_point *p, struct err *e);

// Measures a prepared point and releases it. Collective over the ranks. False with ERR_INTERRUPTED
// when a signal arrived, ERR_RESOURCE when a device failed. A verification mismatch is a result
// with errors > 0, not an error.
bool harness_run(const struct harness *h, const struct bench_point *p,
                 const struct harness_limits *limits, struct measure_result *out, struct err *e);
