// SPDX-License-Identifier: Apache-2.0
// One AdamW step over arrays of fp32 parameters and moments, with fp32 or bf16 gradients and an
// optional fused bf16 copy of the new parameters. Every variant gives the same bits: the operations
// and their order are those of adam_reference. docs/method.md §adam.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct adam_hyper {
    float beta1, beta2, one_minus_beta1, one_minus_beta2;
    float epsilon;
    float step;         // lr / (1 - beta1^t)
    float inverse_root; // 1 / sqrt(1 - beta2^t)
    float decay;        // 1 - lr * weight_decay
};

struct adam_settings {
    double lr, beta1, beta2, epsilon, weight_decay;
};

// At step t >= 1, computed in double.
struct adam_hyper adam_hyper_at(struct adam_settings s, uint64_t t);

struct adam_arrays {
    float *parameters, *first, *second; // master weights, m, v
    const float *gradients;             // fp32 gradients, or NULL
    const uint16_t *gradients_bf16;     // bf16 gradients, when gradients is NULL
    uint16_t *copy_bf16;                // receives the new parameters in bf16, or NULL
};

typedef void adam_function(const struct adam_arrays *a, const struct adam_hyper *h, size_t first,
                           size_t count);

// Memory traffic with next to no arithmetic, for ceilings. rmw reads four arrays and writes three,
// as Adam does; triad is STREAM's: to = x + s y.
typedef void adam_rmw_function(const struct adam_arrays *a, size_t first, size_t count);
typedef void adam_triad_function(float *to, const float *x, const float *y, float s, size_t count);

struct adam_variant {
    const char *name;
    bool (*supported)(void); // by this processor
    adam_function *step;
    adam_rmw_function *rmw;
    adam_triad_function *triad;
};

// "reference" (scalar, fmaf), "scalar" (what a plain C loop gives: not bit-equal), then "avx2" and
// "avx512" where the compiler targets x86-64. NULL-terminated by name.
extern const struct adam_variant adam_variants[];
const struct adam_variant *adam_find(const char *name); // NULL if unknown or unsupported here
const struct adam_variant *adam_best(void);

// DRAM bytes of one step per parameter when nothing stays in cache: 28 with fp32 gradients and no
// copy, 14 read and 12 or 14 written with bf16 gradients (plus 2 for the write-allocate of the
// copy).
double adam_bytes_per_parameter(bool gradients_bf16, bool copy_bf16);
