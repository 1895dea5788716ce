// SPDX-License-Identifier: Apache-2.0
// The loop that a reader of the paper would write, one element at a time: the baseline.
#include <math.h>

#include "kernels/adam_private.h"
#include "kernels/half.h"

void adam_step_scalar(const struct adam_arrays *a, const struct adam_hyper *h, size_t first,
                      size_t count) {
    for (size_t i = first; i < first + count; i++) {
        float g = a->gradients ? a->gradients[i] : half_from_bf16(a->gradients_bf16[i]);
        float m = h->beta1 * a->first[i] + h->one_minus_beta1 * g;
        float v = h->beta2 * a->second[i] + h->one_minus_beta2 * g * g;
        float denominator = sqrtf(v) * h->inverse_root + h->epsilon;
        a->first[i] = m;
        a->second[i] = v;
        a->parameters[i] = a->parameters[i] * h->decay - h->step * m / denominator;
        if (a->copy_bf16 != NULL)
            a->copy_bf16[i] = half_to_bf16(a->parameters[i]);
    }
}

void adam_rmw_scalar(const struct adam_arrays *a, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        float g = a->gradients ? a->gradients[i] : half_from_bf16(a->gradients_bf16[i]);
        a->first[i] += g;
        a->second[i] += g;
        a->parameters[i] += g;
        if (a->copy_bf16 != NULL)
            a->copy_bf16[i] = half_to_bf16(g);
    }
}

void adam_triad_scalar(float *to, const float *x, const float *y, float s, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = x[i] + s * y[i];
}
