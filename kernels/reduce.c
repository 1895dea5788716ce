// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include "kernels/reduce_private.h"

#if defined(__x86_64__) && defined(__clang__)
#include <cpuid.h>
#endif

static void sum_fp32(float *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void sum_bf16(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    reduce_tail_bf16(to, from, 0, count);
}

static void sum_fp16(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    reduce_tail_fp16(to, from, 0, count);
}

static void sum_int8(uint8_t *restrict to, const uint8_t *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)(to[i] + from[i]);
}

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
static bool has_f16c(void) {
#if defined(__clang__) // whose builtin does not know the name
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
#else
    return __builtin_cpu_supports("f16c");
#endif
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && has_f16c();
}
#endif

const struct reduce_variant reduce_variants[] = {
#if defined(__x86_64__)
    {"avx2", has_avx2, reduce_bf16_avx2, reduce_fp16_avx2},
#endif
    {"portable", always, sum_bf16, sum_fp16},
    {.name = NULL},
};

void reduce_sum(enum pattern_type type, void *restrict to, const void *restrict from,
                size_t count) {
    const struct reduce_variant *v = reduce_variants;
    while (!v->supported())
        v++;
    switch (type) {
    case PATTERN_FP32:
        sum_fp32(to, from, count);
        break;
    case PATTERN_BF16:
        v->sum_bf16(to, from, count);
        break;
    case PATTERN_FP16:
        v->sum_fp16(to, from, count);
        break;
    default:
        sum_int8(to, from, count);
    }
}
