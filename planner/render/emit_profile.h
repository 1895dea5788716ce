// SPDX-License-Identifier: Apache-2.0
// Imported profiler traces and memory snapshots: alone (shardplan.profile/1, shardplan.snapshot/1)
// and beside the simulation (docs/formats.md §profile, §snapshot).
#pragma once

#include "base/json.h"
#include "judge/compare.h"

#include <stdio.h>

void emit_profile_fill(cJSON *o, const struct profile *p);
void emit_snapshot_fill(cJSON *o, const struct snapshot *s);
void emit_comparison(cJSON *o, const struct comparison *c); // adds "comparison"
void emit_profile_table(const struct profile *p, FILE *out);
void emit_snapshot_table(const struct snapshot *s, FILE *out);
void emit_comparison_table(const struct comparison *c, FILE *out);
