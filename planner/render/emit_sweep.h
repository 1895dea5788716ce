// SPDX-License-Identifier: Apache-2.0
// shardplan.sweep/1 as JSON and CSV, and its table (docs/formats.md §sweep).
#pragma once

#include "base/json.h"
#include "plan/sweep.h"

#include <stdio.h>

struct emit_sweep_context {
    const struct sweep_request *request;
    const char *command;
    double elapsed_s;
    double tokens;                       // training length for days and cost; 0 = not asked
    const struct plan_set *best;         // the best plan alone, with what it rests on; NULL = none
    const struct sweep_plan *strategies; // sweep_each_strategy's
    size_t strategy_count;
    const struct recipe_origins *origins; // what was given; may be NULL
};

cJSON *emit_sweep_json(const struct sweep_result *r, const struct emit_sweep_context *x,
                       struct arena *a);
void emit_sweep_table(const struct sweep_result *r, const struct emit_sweep_context *x,
                      struct arena *a, FILE *out);
// RFC 4180; one row per plan, then per member of the front. malloc'd text.
char *emit_sweep_csv(const struct sweep_result *r, struct arena *a);
