// SPDX-License-Identifier: Apache-2.0
// Ranges of a sweep as users write them: --range NAME=V,V,... and a JSON file of the same names.
#pragma once

#include "base/err.h"
#include "base/opt.h"
#include "plan/sweep_space.h"

#include <stdbool.h>

// `texts` comes split at commas: "micro-batch=1", "2", "4" belong together.
bool sweep_ranges_parse(const struct opt_texts *texts, struct sweep_space *s, struct err *e);
bool sweep_ranges_read(const char *path, struct sweep_space *s, struct err *e);
