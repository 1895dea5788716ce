// SPDX-License-Identifier: Apache-2.0
// All results as one table for people.
#pragma once

#include "describe/measure.h"

#include <cjson/cJSON.h>
#include <stdio.h>

void table_print(FILE *out, const struct measurement *m);

// A shardplan.confirm/1 document: planned, measured, ratio per transfer.
void table_print_rehearse(FILE *out, const cJSON *rehearsal);
void table_print_confirm(FILE *out, const cJSON *confirm);
