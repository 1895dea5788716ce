// SPDX-License-Identifier: Apache-2.0
// Element-wise sum for collectives over host memory: to[i] = to[i] + from[i]. bf16 and fp16 add in
// fp32 and round to nearest even, a NaN of fp16 becomes the quiet one of its sign; int8 wraps.
#pragma once

#include "kernels/pattern.h"

#include <stdbool.h>
#include <stdint.h>

void reduce_sum(enum pattern_type type, void *restrict to, const void *restrict from, size_t count);

// How the 16-bit types are summed; every way gives the same bits.
struct reduce_variant {
    const char *name;
    bool (*supported)(void); // by this processor
    void (*sum_bf16)(uint16_t *restrict to, const uint16_t *restrict from, size_t count);
    void (*sum_fp16)(uint16_t *restrict to, const uint16_t *restrict from, size_t count);
};

// Fastest first; the last one, "portable", runs everywhere. NULL-named end.
extern const struct reduce_variant reduce_variants[];
