// SPDX-License-Identifier: Apache-2.0
// shardplan.simulate/1, its tables and text Gantt, and the Chrome trace (docs/formats.md
// §simulate).
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "cost/memory.h"
#include "judge/compare.h"
#include "judge/jitter.h"
#include "plan/step.h"

#include <stdio.h>

struct emit_phase {
    const char *name;
    double start_s, end_s;
};

struct emit_simulation {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe;
    const struct step_time *time;
    const struct step_timeline *timeline;
    const struct memory *memory;         // as plan sees the same recipe
    const struct jitter_request *jitter; // NULL = not asked
    const struct jitter_result *jittered;
    const struct profile *profile; // NULL = no trace to compare with
    const struct comparison *profile_rows;
    const struct measured_table *measured; // NULL = the result names no nearest run
    const struct snapshot *snapshot;       // NULL = no snapshot to compare with
    const struct comparison *snapshot_rows;
    const char *command;
};

cJSON *emit_simulate_json(const struct emit_simulation *s, struct arena *a);
void emit_simulate_table(const struct emit_simulation *s, struct arena *a, FILE *out);
// Chrome and Perfetto trace: streams as threads, memory as a counter.
cJSON *emit_trace_json(const struct emit_simulation *s);
// Runs of one phase on the compute stream, in order of time. Returns their count.
size_t emit_phases(const struct step_timeline *t, struct arena *a, struct emit_phase **out);
double emit_peak_bytes(const struct step_timeline *t);
// "backward waits 41 % of its time for inter-node reduce_scatter of gradients"
const char *emit_wait_text(const struct step_wait *w, struct arena *a);
