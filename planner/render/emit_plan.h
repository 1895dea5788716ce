// SPDX-License-Identifier: Apache-2.0
// shardplan.plan/1 as JSON, and the same as tables for people (docs/formats.md §plan).
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "plan/plan.h"

#include <stdio.h>

cJSON *emit_plan_json(const struct plan_set *s, const char *command,
                      const struct recipe_origins *origins, struct arena *a);
void emit_plan_table(const struct plan_set *s, struct arena *a, FILE *out);

// Blocks that other results share.
void emit_plan_entry(cJSON *plans, const struct plan *p, const struct plan_set *s, struct arena *a);
void emit_time(cJSON *parent, const char *key, const struct step_time *t);
void emit_recipe(cJSON *parent, const char *key, const struct recipe *r);
void emit_model_cluster(cJSON *root, const struct model *m, const struct cluster *c,
                        const struct recipe *r);
// "nearest_measured": the run of the table that is most like this one, and how far off it was
// predicted; null without a table.
void emit_nearest(cJSON *o, const struct measured_table *t, const struct measured_key *k,
                  struct arena *a);
// "inputs": every figure the plans used and where it came from, and the settings that were given.
void emit_inputs(cJSON *root, const struct plan_set *s, const struct recipe_origins *origins);
// "assumed_that_matter": the assumed figures among them that change the answer.
void emit_assumed(cJSON *root, const struct plan_set *s);
void emit_recommendation(cJSON *root, const struct recommendation *r);
