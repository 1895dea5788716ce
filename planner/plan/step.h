// SPDX-License-Identifier: Apache-2.0
// The task graph of one optimizer step of one rank (all ranks are alike), per strategy and offload.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cost/memory.h"
#include "cost/volume.h"
#include "describe/cluster.h"
#include "describe/graph.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bound {
    BOUND_COMPUTE,
    BOUND_HOST_ISSUE,
    BOUND_INTRA_NODE,
    BOUND_INTER_NODE,
    BOUND_NETWORK_LATENCY,
    BOUND_PCIE,
    BOUND_NVME,
    BOUND_HOST_MEMORY,
    BOUND_CPU,
    BOUND_CAPACITY,
    BOUND_PIPELINE_BUBBLE,
    BOUND_COUNT
};
extern const char *const bound_names[BOUND_COUNT]; // "inter_node"
extern const char *const bound_words[BOUND_COUNT]; // "the inter-node network", for sentences

struct step_wait { // "backward waits 41 % of its time for inter-node reduce-scatter"
    const char *phase, *on;
    double seconds, fraction; // of the phase; a bubble's is of forward and backward
};

struct step_time {
    double step_s, step_low_s, step_high_s;
    double forward_s, backward_s, optimizer_s;
    // These add up to the step. The bubble (pp > 1) is part of forward and backward too.
    double compute_s, exposed_comm_s, exposed_offload_s, host_issue_s, bubble_s;
    double tokens_per_s_per_gpu, mfu, hfu, peak_flop_per_s;
    enum bound bound_by;
    struct step_wait waits[12];
    size_t wait_count;
    const char *reason; // why values are NAN, or NULL
};

// What-if multipliers on rates, for break-evens and sensitivities; 1 = as is, INFINITY allowed.
struct step_scale {
    double intra, inter, pcie, nvme, host_dram, cpu, compute;
};

struct step_request {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe;
    const struct step_scale *scale; // NULL = all 1
    bool want_timeline;             // fill step_timeline
    bool quick;                     // no interval (step_low_s and step_high_s are NAN) and no waits
};

struct step_timeline_task {
    const char *name, *stream, *phase;
    double start_s, end_s;
    bool exposed;
};
struct step_timeline_stream {
    const char *name;
    double busy_s, exposed_s;
};
struct step_memory_point {
    double time_s, allocated_bytes;
};
// Of a long accumulation the first and the last micro-steps are shown, those in between being
// alike: tasks and memory are then of a step of micro_steps < grad_accum; streams are of all.
struct step_timeline {
    uint64_t micro_steps;
    struct step_timeline_task *tasks;
    size_t task_count;
    struct step_timeline_stream *streams;
    size_t stream_count;
    struct step_memory_point *memory;
    size_t memory_count;
};

// Up to so many micro-steps a timeline holds all; graphs and draws take no more.
#define STEP_WHOLE_MICRO_STEPS 256

// Build the step's graph, run it, sum it up. `timeline` may be NULL.
bool step_simulate(const struct step_request *q, struct arena *a, struct step_time *out,
                   struct step_timeline *timeline, struct err *e);
// The same step's tasks as data (shardplan.graph/1).
bool step_graph(const struct step_request *q, struct arena *a, struct graph *out, struct err *e);

// Runs of one step with the duration of every task scaled by what `multiplier` returns for it
// (`compute`: a kernel, not a transfer or host work).
struct step_draws {
    uint64_t count;
    double (*multiplier)(void *context, uint64_t draw, uint32_t task, bool compute);
    void *context;
};
// Fills step_s[d->count]. The pipeline bubble of pp > 1 is not in it.
bool step_resample(const struct step_request *q, const struct step_draws *d, struct arena *a,
                   double *step_s, struct err *e);
