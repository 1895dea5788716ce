// SPDX-License-Identifier: Apache-2.0
// shardplan.advise/1 as JSON, and its table (docs/formats.md §advise).
#pragma once

#include "base/json.h"
#include "judge/advise.h"

#include <stdio.h>

cJSON *emit_advise_json(const struct advice *v, const struct advise_request *q, const char *command,
                        const struct recipe_origins *origins, struct arena *a);
void emit_advise_table(const struct advice *v, const struct advise_request *q, struct arena *a,
                       FILE *out);
