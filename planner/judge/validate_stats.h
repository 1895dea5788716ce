// SPDX-License-Identifier: Apache-2.0
// Sums over compared points, for validate*.c.
#pragma once

#include "judge/validate.h"

void validate_stats_runs(struct validate_result *r, struct arena *a);
void validate_stats_collectives(struct validate_result *r, struct arena *a);
