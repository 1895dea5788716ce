// SPDX-License-Identifier: Apache-2.0
// Expected step time when ranks vary: each kernel's slowest rank holds the others at the next
// collective; docs/method.md §jitter.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "plan/step.h"

#include <stdbool.h>
#include <stdint.h>

struct jitter_request {
    struct step_request step;
    uint64_t ranks; // that wait for each other; 0 = the recipe's world
    uint64_t draws, seed;
    double relative_sd;        // of one kernel group's duration on one rank
    double straggler_rate;     // chance that a rank is a straggler during a step
    double straggler_slowdown; // its kernels take this many times as long; >= 1
};

struct jitter_result {
    double base_s;                      // without jitter
    double mean_s, p50_s, p95_s, p99_s; // over the draws
    double straggler_share;             // of the draws with at least one straggler
};

bool jitter_estimate(const struct jitter_request *q, struct arena *a, struct jitter_result *out,
                     struct err *e);
// Standard normal value that a share `upper_tail` of draws exceeds; upper_tail in (0, 1).
double jitter_normal_quantile(double upper_tail);
