// SPDX-License-Identifier: Apache-2.0
// A profiler trace or a memory snapshot of a real run beside the simulated step.
#pragma once

#include "base/arena.h"
#include "cost/memory.h"
#include "describe/profile.h"
#include "describe/snapshot.h"
#include "plan/step.h"

#include <stddef.h>

struct compare_row {
    const char *name, *unit;    // unit: "s", "bytes" or "calls"
    double predicted, measured; // NAN = has no counterpart
    double ratio;               // measured / predicted, NAN where either is missing or 0
};
struct comparison {
    struct compare_row *rows;
    size_t count;
};

// Per optimizer step: step, union of kernels, exposed parts, kernels by class, collectives by kind
// (seconds, calls, payload). The request's step, already simulated with its timeline.
bool compare_profile(const struct step_request *q, const struct step_time *time,
                     const struct step_timeline *timeline, const struct profile *p, struct arena *a,
                     struct comparison *out, struct err *e);
// Peak by class (at the peak, as both say), and reserved.
void compare_snapshot(const struct memory *m, const struct snapshot *s, struct arena *a,
                      struct comparison *out);
