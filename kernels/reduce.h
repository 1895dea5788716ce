// SPDX-License-Identifier: Apache-2.0
// Element-wise sum for collectives over host memory: to[i] = to[i] + from[i]. bf16 and fp16 add in
// fp32 and round to nearest even; int8 wraps.
#pragma once

#include "kernels/pattern.h"

void reduce_sum(enum pattern_type type, void *restrict to, const void *restrict from, size_t count);
