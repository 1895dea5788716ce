// SPDX-License-Identifier: Apache-2.0
// shardplan.check/1 and shardplan.explain/1 as JSON and as text (docs/formats.md §check, §explain).
#pragma once

#include "base/json.h"
#include "judge/check.h"
#include "judge/explain.h"

#include <stdio.h>

cJSON *emit_check_json(const struct check_request *q, const struct check_result *r,
                       const char *command);
void emit_check_table(const struct check_result *r, FILE *out);
cJSON *emit_explain_json(const struct explain_request *q, const struct explain_result *r,
                         const char *command);
void emit_explain_table(const struct explain_result *r, FILE *out);
