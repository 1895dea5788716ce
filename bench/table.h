// SPDX-License-Identifier: Apache-2.0
// All results as one table for people.
#pragma once

#include "describe/measure.h"

#include <stdio.h>

void table_print(FILE *out, const struct measurement *m);
