// SPDX-License-Identifier: Apache-2.0
// The AdamW step of one element: the definition that every variant follows to the bit, on hosts and
// on GPUs. Needs correctly rounded division and square root, and no contraction.
#pragma once

#include "kernels/adam.h"
#include "kernels/half.h"
#include "kernels/inline.h"

#include <math.h>

KERNELS_INLINE void adam_element(const struct adam_arrays *a, const struct adam_hyper *h,
                                 size_t i) {
    float g = a->gradients ? a->gradients[i] : half_from_bf16(a->gradients_bf16[i]);
    float m = fmaf(h->beta1, a->first[i], h->one_minus_beta1 * g);
    float v = fmaf(h->beta2, a->second[i], h->one_minus_beta2 * (g * g));
    float denominator = fmaf(sqrtf(v), h->inverse_root, h->epsilon);
    float p = fmaf(-h->step, m / denominator, a->parameters[i] * h->decay);
    a->first[i] = m;
    a->second[i] = v;
    a->parameters[i] = p;
    if (a->copy_bf16 != NULL)
        a->copy_bf16[i] = half_to_bf16(p);
}
