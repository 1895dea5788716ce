// SPDX-License-Identifier: Apache-2.0
// The planner against measured runs and measured collectives: errors, bias, coverage, by group;
// docs/validation.md §rules, shardplan.validate/1 in docs/formats.md.
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cost/memory.h"
#include "describe/measured.h"
#include "judge/validate_row.h"

enum validate_metric { METRIC_STEP_TIME, METRIC_MEMORY, METRIC_BUSBW, METRIC_COUNT };
extern const char *const validate_metric_names[METRIC_COUNT]; // "step_time", "memory", "busbw"

// One comparison. Seconds, bytes or bytes/s; ape and the interval are NAN when nothing was
// predicted.
struct validate_point {
    const char *id, *source,
        *group;       // group: data_parallel, ...; all_gather_large, ... for collectives
    const char *part; // "fsdp1/fsdp1" (stack/strategy); cluster for collectives
    enum validate_metric metric;
    double measured, predicted, low, high, ape;
    double exposed_fraction; // of the predicted step: communication and offload
    bool scored;
    const char *reason;      // why not scored or not predicted
    struct measured_key run; // what ran, in the planner's own words; gpu NULL = no words for it
};

struct validate_score {
    size_t n;
    double mape, macro_mape, median_ape, p90_ape, max_ape, bias; // fractions; NAN when n = 0
};

struct validate_group {
    const char *name, *by; // by: "group", "stack/strategy", "exposed", "cluster"
    enum validate_metric metric;
    struct validate_score score;
};
#define VALIDATE_GROUPS_MAX 96

struct validate_result {
    struct validate_point *points;
    size_t point_count;
    struct validate_score step_time, memory, collectives; // step_time: the data_parallel group
    size_t unscored_collectives;
    size_t fits_n, false_fit, false_oom;
    double coverage_step_time, coverage_memory, median_half_width; // over data_parallel step times
    struct validate_group groups[VALIDATE_GROUPS_MAX];
    size_t group_count;
};

bool validate_runs(const char *path, struct arena *a, struct validate_result *out, struct err *e);
// hardware.json's form: {"measured_collectives": [{what, cluster, nodes, gpus, message_bytes,
// busbw_GBps}]}.
bool validate_collectives(const char *path, struct arena *a, struct validate_result *out,
                          struct err *e);

// Scores over the points of one metric that `keep` accepts (NULL: all). Exposed for tests.
struct validate_score validate_score_of(const struct validate_point *p, size_t n,
                                        enum validate_metric metric, const char *group,
                                        struct arena *a);
