// SPDX-License-Identifier: Apache-2.0
// A measured run as the planner's own model, cluster and recipe; docs/validation.md §mapping.
#pragma once

#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"
#include "judge/validate_row.h"

struct run_setup {
    struct model model;
    struct cluster cluster;
    struct recipe recipe; // resolved
};

// False with the reason when the row names something the planner has no words for.
bool validate_map_row(const struct run_row *row, struct arena *a, struct run_setup *out,
                      struct err *e);
