// SPDX-License-Identifier: Apache-2.0
// One line that overwrites itself, for people who wait at a terminal.
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "describe/measure.h"

void progress_show(FILE *to, const struct measure_result *point, size_t done, size_t total);
void progress_clear(FILE *to); // NULL is fine in both: nothing is shown
