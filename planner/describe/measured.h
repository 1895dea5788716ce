// SPDX-License-Identifier: Apache-2.0
// The public training runs that ship with the catalog (models/measured/table.json), what was
// measured and what this program predicts for each; docs/method.md §nearest.
#pragma once

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What makes runs alike.
struct measured_key {
    const char *gpu, *sm;              // catalog id, "sm_90"
    const char *framework, *strategy;  // as recipes name them
    double parameters, tokens_per_gpu; // tokens: of one optimizer step
    uint64_t gpus;
    bool offload, fp8;
};

struct measured_run {
    struct measured_key key;
    const char *id, *source;
    double measured_s, predicted_s;
};

struct measured_table {
    struct measured_run *runs;
    size_t count;
};

// The runs themselves, in the form that validate reads.
const char *measured_runs_path(struct arena *a);

// An absent file is an empty table.
bool measured_load(struct arena *a, struct measured_table *out, struct err *e);

struct measured_nearest {
    const struct measured_run *run; // NULL = the table is empty
    double distance;                // 0 = alike; docs/method.md §nearest
    const char *differs;            // "other GPU; 2.1 x the parameters", or NULL
    double error;                   // predicted / measured - 1
    size_t group_n;                 // runs of the same GPU and strategy as the nearest
    double group_error;             // their mean absolute relative error
};
void measured_find(const struct measured_table *t, const struct measured_key *k, struct arena *a,
                   struct measured_nearest *out);
