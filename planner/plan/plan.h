// SPDX-License-Identifier: Apache-2.0
// One plan = one resolved recipe judged on one cluster: memory, bytes, time, verdict.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cost/memory.h"
#include "cost/volume.h"
#include "describe/measured.h"
#include "plan/step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum proof { PROOF_ORACLE, PROOF_MEASURED, PROOF_RULE, PROOF_UNPROVEN, PROOF_COUNT };
enum choice {
    CHOICE_AS_IS,
    CHOICE_CHANGE_KNOBS,
    CHOICE_OFFLOAD,
    CHOICE_MORE_BANDWIDTH,
    CHOICE_MORE_GPUS,
    CHOICE_IMPOSSIBLE,
    CHOICE_COUNT
};

struct plan {
    struct recipe recipe;
    struct memory memory;
    struct volume volume;
    struct step_time time;
    uint64_t min_gpus; // fewest that fit; 0 = none found
    bool fits;         // GPU, host and NVMe
    enum proof proven_memory, proven_volume, proven_time;
    const char *reason; // why it could not be planned, or NULL
};

struct plan_input { // for inputs[] and assumed_that_matter[]
    const char *path, *unit;
    struct figure figure;
    const char *text; // for values that are not numbers
};
struct assumption {
    const char *path, *effect, *measure_with;
    double effect_fraction; // change of step time over the figure's interval
};

struct recommendation {
    size_t plan_index;
    enum choice choice;
    const char *reason;
    const char *actions[8];
    size_t action_count;
};

struct plan_set {
    const struct model *model;
    const struct cluster *cluster;
    struct plan *plans;
    size_t plan_count;
    struct plan_input *inputs;
    size_t input_count;
    struct assumption assumptions[8];
    size_t assumption_count;
    struct recommendation recommendation;
    const struct measured_table *measured; // set by the caller; NULL = results name no nearest run
};

extern const char *const proof_names[PROOF_COUNT];
extern const char *const choice_names[CHOICE_COUNT];

// Resolve and evaluate one recipe. A recipe that can't run fills plan->reason and is not an error.
// Time that is not asked for is NAN with its reason. IF_FITS is for searches: no interval, no
// waits.
enum plan_time { PLAN_TIME_NEVER, PLAN_TIME_IF_FITS, PLAN_TIME_ALWAYS };
// Scratch memory and the coordinator's replays, shared by the plans of one thread. The models asked
// about must outlive it.
struct plan_workspace;
struct plan_workspace *plan_workspace_create(void);
void plan_workspace_destroy(struct plan_workspace *w); // NULL is fine

struct plan_question {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe; // unresolved
    enum plan_time time;
    struct plan_workspace *workspace;
};
// Many plans in a row are cheaper with a workspace of their own; plan_evaluate makes one each time.
bool plan_answer(const struct plan_question *q, struct arena *a, struct plan *out, struct err *e);
bool plan_evaluate(const struct model *m, const struct cluster *c, const struct recipe *r,
                   enum plan_time time, struct arena *a, struct plan *out, struct err *e);
// Searches for the fewest GPUs stop here.
#define PLAN_GPUS_MAX 65536

enum plan_offload { PLAN_OFFLOAD_NEVER, PLAN_OFFLOAD_IF_NEEDED, PLAN_OFFLOAD_ALWAYS };

struct plan_request {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipes; // unresolved
    size_t recipe_count;
    enum plan_offload offload; // add CPU and NVMe variants (zero2, zero3, fsdp1, fsdp2)
};

// Evaluate every recipe, add offload variants as asked, recommend, collect inputs and assumptions.
bool plan_all(const struct plan_request *q, struct arena *a, struct plan_set *out, struct err *e);

// What measured runs are compared by; docs/method.md §nearest. The recipe is resolved.
struct measured_key plan_measured_key(const struct model *m, const struct cluster *c,
                                      const struct recipe *r);

// What to train with instead where the GPU computes the recipe's bf16 without matrix units; else
// NULL. The recipe is resolved.
const char *plan_precision_hint(const struct cluster *c, const struct recipe *r, struct arena *a);

// "zero3 + optimizer nvme + params cpu": how people name a plan.
char *plan_title(const struct plan *p, struct arena *a);
