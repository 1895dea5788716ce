// SPDX-License-Identifier: Apache-2.0
// shardplan.validate/1 as JSON, and its table (docs/formats.md §validate).
#pragma once

#include "base/json.h"
#include "judge/validate.h"

#include <stdio.h>

cJSON *emit_validate_json(const struct validate_result *r, const char *command, const char *input);
void emit_validate_table(const struct validate_result *r, bool rows, FILE *out);
