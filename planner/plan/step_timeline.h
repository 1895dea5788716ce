// SPDX-License-Identifier: Apache-2.0
// Private to plan/step*: a step as tasks, streams and memory over time, and as a graph file.
#pragma once

#include "plan/step_account.h"

void step_timeline_fill(struct step_builder *b, const struct sim_result *r,
                        const struct step_account *account, struct step_timeline *out);
// With the times of `run`, a run of the same graph.
void step_graph_fill(struct step_builder *b, const struct sim_result *run, struct graph *out);
// "layers.3", "embed_tokens".
const char *step_unit_name(const struct step_builder *b, uint32_t unit);
