// SPDX-License-Identifier: Apache-2.0
// Admissible bounds of a point without simulating it: no simulated step is shorter, no estimated
// peak is smaller; docs/method.md §sweep.
#pragma once

#include "plan/sweep_space.h"

struct sweep_bounds;

// Tables for every family: compute time and kept activations by (micro-batch, recompute, loss),
// link time per micro-step, optimizer time and resident bytes.
bool sweep_bounds_build(const struct sweep_points *p, const struct sweep_basis *b, struct arena *a,
                        const struct sweep_bounds **out, struct err *e);

struct sweep_bound {
    double step_s;     // lower bound
    double peak_bytes; // lower bound
    double capacity_bytes;
};
// False where the point can't be: micro-batch does not divide the batch.
bool sweep_bound(const struct sweep_bounds *b, uint64_t point, struct sweep_bound *out);
