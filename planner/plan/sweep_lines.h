// SPDX-License-Identifier: Apache-2.0
// What a strategy adds to a step beside its units' compute, as serial work per stream, summed from
// the builders' own constants without a graph; docs/method.md §sweep.
#pragma once

#include "plan/step_build.h"
#include "plan/sweep_zero3.h"

// Seconds of one micro-step, each no more than the simulated step holds.
struct sweep_micro {
    double link_s;       // collectives of the shard communicator, one after the other
    double sm_s;         // multiprocessors of the GPU that collectives hold
    double inline_s;     // on the compute stream beside the units
    double first_s;      // before the first unit may start
    double ahead_s;      // gathers behind that one, before the unit after the first may start
    double last_s;       // after the last unit's backward until compute may go on
    double turn_s;       // from there to the first unit of a next micro-step, at least
    double reductions_s; // one after the other on their stream, after the head's backward
    double gathers_s;    // one after the other on the gather stream
};

struct sweep_lines {
    struct sweep_micro plain, boundary; // accumulating; with the step's reductions
    double between_s;  // compute stream, in micro-steps that are neither first nor last
    double idle_share; // of the multiprocessors while compute waits
};

// Of a resolved recipe. `z`: its coordinator, or the least of several; NULL below stage 3.
void sweep_lines_fill(struct step_builder *b, const struct sweep_coordinator *z,
                      struct sweep_lines *out);
// From the end of the last backward to the end of the step, at least. Adds its tasks to `b`.
double sweep_lines_optimizer_s(struct step_builder *b, const struct sweep_coordinator *z);
