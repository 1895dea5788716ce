// SPDX-License-Identifier: Apache-2.0
// shardplan.fit/1 as JSON, and its table (docs/formats.md §fit).
#pragma once

#include "base/json.h"
#include "judge/calibrate.h"

#include <stdio.h>

cJSON *emit_fit_json(const struct calibration *c, const char *command, struct arena *a);
void emit_fit_table(const struct calibration *c, struct arena *a, FILE *out);
