// SPDX-License-Identifier: Apache-2.0
// "Offload, more bandwidth or more GPUs?": one table of ways out with step time, days and cost, the
// break-evens behind it and a sentence; docs/method.md §advise.
#pragma once

#include "judge/break_even.h"
#include "plan/sweep.h"

#define ADVISE_WAYS_MAX 16

enum advise_way_kind {
    WAY_AS_IS,     // the recipe as asked
    WAY_KNOBS,     // same hardware, no offload: micro-batch, recompute, loss, strategy
    WAY_OFFLOAD,   // same hardware, CPU or NVMe
    WAY_BANDWIDTH, // a faster network
    WAY_GPUS,      // more nodes
    WAY_KIND_COUNT
};
extern const char *const advise_way_names[WAY_KIND_COUNT];

struct advise_way {
    enum advise_way_kind kind;
    const char *title;      // "2 nodes", "400 Gb/s per GPU"
    struct cluster cluster; // as changed
    bool possible;          // some plan fits
    struct plan plan;       // the best one of this way
    double tokens_per_s, days, usd_per_billion_tokens;
    const char *sentence; // what it takes: knobs, host memory, rates; or why it isn't possible
};

// Its plan fits, but the upper estimate of what the allocator reserves does not.
bool advise_is_tight(const struct advise_way *w);

// Step time of one way's plan against inter-node bandwidth per GPU; flat for a single node.
#define ADVISE_CURVE_POINTS 9
struct advise_curve {
    const struct advise_way *way;
    double bytes_per_s[ADVISE_CURVE_POINTS], step_s[ADVISE_CURVE_POINTS];
};

// The recommended plan on more or fewer nodes, the batch per GPU unchanged (weak scaling).
#define ADVISE_SCALING_POINTS 7 // 1 to 64 nodes
struct advise_scaling {
    uint64_t nodes, gpus, sequences_per_step;
    bool fits;
    double step_s, tokens_per_s_per_gpu, exposed_comm_s; // NAN where it does not fit
};

struct advice {
    struct plan_set plans; // the recipes as asked and their offload variants
    struct advise_way ways[ADVISE_WAYS_MAX];
    size_t way_count;
    size_t best_way;
    struct advise_way hsdp; // best HSDP plan of the same hardware, for its curve; not possible when
                            // not asked for
    struct advise_way safe; // of the best way's hardware the best plan that surely fits; possible
                            // only where the best way's own is tight and another isn't
    struct break_even break_evens[BREAK_LINK_COUNT];
    struct sensitivity sensitivities[BREAK_LINK_COUNT];
    size_t sensitivity_count;
    struct advise_curve curves[ADVISE_WAYS_MAX];
    size_t curve_count;
    struct advise_scaling scaling[ADVISE_SCALING_POINTS];
    size_t scaling_count;
    double
        hiding_tokens_per_gpu; // per micro-step at which the network stops mattering; NAN = never
    const char *hiding_reason;
    double offload_tokens_per_step; // global batch (tokens) from which offload costs < 10 %; NAN =
                                    // never or unused
    double gib_worth_s; // step saved per GiB of GPU memory, from the next larger card size; NAN
    struct recommendation recommendation;
    const char *sentence;
    const char *precision_hint; // plan_precision_hint of the best way, or NULL
    const char *split_hint;     // where offload, more GPUs or nothing is advised: the sweep over
                                // tensor, pipeline and expert parallelism, and what it rests on
};

struct advise_request {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipes; // unresolved, as asked
    size_t recipe_count;
    uint64_t global_batch; // sequences; 0 = as the recipes give, at least one per GPU
    double tokens;         // training length for days; 0 = 1e9
};

bool advise(const struct advise_request *q, struct arena *a, struct advice *out, struct err *e);
