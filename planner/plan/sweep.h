// SPDX-License-Identifier: Apache-2.0
// Search a space of recipes: bound every point, simulate those that can still win, in an order that
// does not depend on the number of threads.
#pragma once

#include "plan/plan.h"
#include "plan/sweep_space.h"

enum sweep_objective { SWEEP_TOKENS, SWEEP_COST, SWEEP_HEADROOM, SWEEP_OBJECTIVE_COUNT };
extern const char
    *const sweep_objective_names[SWEEP_OBJECTIVE_COUNT]; // "tokens", "cost", "headroom"

struct sweep_request {
    struct sweep_basis basis;
    struct sweep_space space;
    enum sweep_objective objective;
    size_t top;
    bool pareto;     // also the front of (step, peak, cost, GPUs)
    bool sure;       // only plans whose reserved memory, at its upper estimate, fits too
    bool exhaustive; // simulate every feasible point: for checking the pruning
    int threads;     // 0 = all cores
    void (*progress)(void *context, uint64_t done, uint64_t total); // may be NULL
    void *progress_context;
    bool (*stop)(void); // may be NULL; true = end early with what is done
};

struct sweep_plan {
    struct plan plan;
    uint64_t point, nodes, gpus;
    double tokens_per_s;           // of the whole job
    double usd_per_billion_tokens; // NAN where the price is unknown
};

struct sweep_result {
    struct sweep_space space;
    // Of `points`, those whose micro-batch divides the batch: `bounded`, and `duplicates` of
    // earlier ones, limits without effect. bounded = pruned + simulated; feasible: simulated ones
    // that fit.
    uint64_t points, bounded, duplicates, pruned, simulated, feasible;
    bool interrupted;
    struct sweep_plan *plans;
    size_t plan_count;
    struct sweep_plan *pareto;
    size_t pareto_count;
};

// The best plan of each strategy of the request, best first: what `r`, its result, has, and a
// search of its own for every other strategy. A sure fit is taken before a faster "perhaps". At
// most STRATEGY_COUNT; `point` counts within the strategy's own points.
bool sweep_each_strategy(const struct sweep_request *q, const struct sweep_result *r,
                         struct arena *a, struct sweep_plan **out, size_t *count, struct err *e);

bool sweep_run(const struct sweep_request *q, struct arena *a, struct sweep_result *out,
               struct err *e);
