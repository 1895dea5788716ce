// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include "kernels/half.h"

static void sum_fp32(float *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void sum_bf16(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = half_to_bf16(half_from_bf16(to[i]) + half_from_bf16(from[i]));
}

static void sum_fp16(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = half_to_fp16(half_from_fp16(to[i]) + half_from_fp16(from[i]));
}

static void sum_int8(uint8_t *restrict to, const uint8_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(to[i] + from[i]);
}

void reduce_sum(enum pattern_type type, void *restrict to, const void *restrict from,
                size_t count) {
    switch (type) {
    case PATTERN_FP32:
        sum_fp32(to, from, count);
        break;
    case PATTERN_BF16:
        sum_bf16(to, from, count);
        break;
    case PATTERN_FP16:
        sum_fp16(to, from, count);
        break;
    default:
        sum_int8(to, from, count);
    }
}
