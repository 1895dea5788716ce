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
struct step_bucket { // what was waited for, in which phase
    enum step_phase phase;
    enum step_cost_kind kind;
    enum step_op op;
    uint8_t collective;
    bool spans_nodes;
    double seconds;
};
#define STEP_BUCKETS_MAX 64

struct step_account {
    struct step_sums sums;
    struct step_sums second; // of these, the second of three micro-steps or more
    double contention_s;     // compute made slower by what ran beside it; within by_kind
    struct step_bucket buckets[STEP_BUCKETS_MAX];
    uint32_t bucket_count;
    bool *exposed; // per task: some of it held the compute stream up
    double stream_busy_s[STEP_STREAM_COUNT], stream_exposed_s[STEP_STREAM_COUNT];
    // Change of the longest chain over the constants' intervals: everything at its fast end, per
    // class; kernels alone at their slow end.
    double critical_low_s[CLASS_COUNT], critical_high_s;
    double slow_links_s; // end of a run with links and host tasks at their slow end
};

// All but slow_links_s.
void step_account(struct step_builder *b, const struct sim_result *r, struct step_account *out);
// `x` is of a step of n micro-steps and `shorter` of one less; afterwards `x` is of n + more of
// them. shorter == NULL: the sums alone, by what the second of three took.
void step_account_lengthen(struct step_account *x, const struct step_account *shorter, double more);
// The waits worth a line, largest first; at most `room`. Texts live in the arena.
size_t step_account_waits(const struct step_account *x, struct arena *a, struct step_wait *out,
                          size_t room);
