// SPDX-License-Identifier: Apache-2.0
// shardplan.accept/1 as JSON, JUnit XML, and a table (docs/formats.md §accept).
#pragma once

#include "base/json.h"
#include "judge/verdict.h"

#include <stdio.h>

cJSON *emit_accept_json(const struct verdict *v, const char *command, const struct cluster *c);
void emit_accept_table(const struct verdict *v, const struct cluster *c, FILE *out);
char *emit_accept_junit(const struct verdict *v); // malloc'd text; NULL when memory is exhausted
