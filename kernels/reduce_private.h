// SPDX-License-Identifier: Apache-2.0
// The loops that are compiled for one instruction set.
#pragma once

#include "kernels/half.h"

#include <stddef.h>
#include <stdint.h>

static inline void reduce_tail_bf16(uint16_t *restrict to, const uint16_t *restrict from,
                                    size_t first, size_t count) {
    for (size_t i = first; i < count; i++)
        to[i] = half_to_bf16(half_from_bf16(to[i]) + half_from_bf16(from[i]));
}

static inline void reduce_tail_fp16(uint16_t *restrict to, const uint16_t *restrict from,
                                    size_t first, size_t count) {
    for (size_t i = first; i < count; i++)
        to[i] = half_to_fp16(half_from_fp16(to[i]) + half_from_fp16(from[i]));
}

void reduce_bf16_avx2(uint16_t *restrict to, const uint16_t *restrict from, size_t count);
void reduce_fp16_avx2(uint16_t *restrict to, const uint16_t *restrict from, size_t count);
