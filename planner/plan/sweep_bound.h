// SPDX-License-Identifier: Apache-2.0
// Admissible bounds of a point without simulating it: no simulated step is shorter, no estimated
// peak is smaller; docs/method.md §sweep.
#pragma once

#include "cost/zero3.h"
#include "plan/sweep_space.h"

struct sweep_bounds;

// Tables: compute and kept activations by (micro-batch, recompute, loss), serial work per stream
// by family and bucket, ZeRO-3's coordinator by its limits, least memory by cell.
bool sweep_bounds_build(const struct sweep_points *p, const struct sweep_basis *b, struct arena *a,
                        const struct sweep_bounds **out, struct err *e);

struct sweep_bound {
    double step_s;     // lower bound
    double peak_bytes; // lower bound
    double capacity_bytes;
    bool fits;      // false: neither GPU, host nor drives can hold it
    bool duplicate; // does what an earlier point does: another limit without effect
};
// False where the point can't be: micro-batch does not divide the batch.
bool sweep_bound(const struct sweep_bounds *b, uint64_t point, struct sweep_bound *out);

// The same for one point closer to, with its own limits of the coordinator; memory is exact. Slower
// by two orders, still far from a simulation. `scratch` may be reset afterwards.
bool sweep_bound_close(const struct sweep_bounds *b, uint64_t point, struct arena *scratch,
                       struct sweep_bound *out);
// The coordinator's figures for this point, for recipe.zero3; NULL below stage 3.
const struct zero3_traffic *sweep_bound_traffic(const struct sweep_bounds *b, uint64_t point);
