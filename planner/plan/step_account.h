// SPDX-License-Identifier: Apache-2.0
// Private to plan/step*: where the time of a simulated step went; docs/method.md §exposed.
#pragma once

#include "plan/step_build.h"

enum step_cost_kind { // what a second of the step was spent on
    COST_COMPUTE,
    COST_HOST,
    COST_INTRA,
    COST_INTER,
    COST_LATENCY,
    COST_PCIE,
    COST_NVME,
    COST_DRAM,
    COST_CPU,
    STEP_COST_COUNT
};

// Seconds of the step, summed so that all fields of `by_phase` add up to the end of the run.
struct step_sums {
    double by_phase[STEP_PHASE_COUNT];
    double by_kind[STEP_COST_COUNT];
};
struct step_account {
    double by_phase[STEP_PHASE_COUNT];
    double by_kind[STEP_COST_COUNT];
    struct step_sums second; // of these, the second of three micro-steps or more
    double contention_s;     // compute made slower by what ran beside it; within by_kind
    struct step_wait *waits; // largest first; in the arena
    size_t wait_count;
    bool *exposed; // per task: some of it held the compute stream up
    double *stream_exposed_s;
    // Change of the longest chain over the constants' intervals: links and kernels at their fast
    // end; kernels alone at their slow end.
    double critical_low_s, critical_high_s;
};

void step_account(struct step_builder *b, const struct sim_result *r, struct step_account *out);
