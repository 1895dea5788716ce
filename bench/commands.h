// SPDX-License-Identifier: Apache-2.0
// The subcommands of shardbench. Each fills the run's sink; main prints.
#pragma once

#include "base/err.h"
#include "bench/run.h"

#include <stdbool.h>

bool command_collectives(struct run *r, const struct opt_texts *rest, struct err *e);
