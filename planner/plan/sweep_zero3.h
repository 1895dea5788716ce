// SPDX-License-Identifier: Apache-2.0
// ZeRO-3's coordinator for every limit of a sweep, replayed once; docs/method.md §sweep.
#pragma once

#include "cost/zero3.h"
#include "plan/sweep_space.h"

struct sweep_coordinator {
    struct zero3_traffic traffic;
    uint64_t first_elements;   // of the gather that the first unit waits for
    uint64_t largest_elements; // no gather is larger
    uint64_t trace;            // hash of every hook: equal traces give equal steps
    bool gathered;             // scratch: some gather was seen
    bool duplicate;            // an earlier (prefetch, live) of the same recompute has this trace
};

struct sweep_coordinators;

bool sweep_coordinators_build(const struct sweep_points *p, const struct sweep_basis *b,
                              struct arena *a, const struct sweep_coordinators **out,
                              struct err *e);
// Of one place of a stage-3 family.
const struct sweep_coordinator *sweep_coordinator_at(const struct sweep_coordinators *c,
                                                     size_t family, const struct sweep_place *x);
// The least of each figure over the prefetch and live limits of one recompute mode.
const struct sweep_coordinator *sweep_coordinator_least(const struct sweep_coordinators *c,
                                                        size_t family, size_t recompute);
