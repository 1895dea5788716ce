// SPDX-License-Identifier: Apache-2.0
// The vector form of the Adam kernels, once for every width. The including file defines VECTOR (the
// register type), LANES, V(op) (the intrinsic of an operation on floats), ADAM(name) (the name of a
// kernel), load_bf16 and store_bf16; without them this header is empty.
#pragma once

#ifdef VECTOR

#include <immintrin.h>

#include "kernels/adam_private.h"

#define LINE 16  // elements of one pass: a cache line of floats
#define AHEAD 64 // elements: the prefetcher of the processor stops at page borders

static inline VECTOR load_gradient(const struct adam_arrays *a, size_t i) {
    return a->gradients != NULL ? V(loadu)(a->gradients + i) : load_bf16(a->gradients_bf16 + i);
}

static inline void step_vector(const struct adam_arrays *a, const struct adam_hyper *h, size_t i) {
    VECTOR g = load_gradient(a, i);
    VECTOR m = V(loadu)(a->first + i), v = V(loadu)(a->second + i), p = V(loadu)(a->parameters + i);
    m = V(fmadd)(V(set1)(h->beta1), m, V(mul)(V(set1)(h->one_minus_beta1), g));
    v = V(fmadd)(V(set1)(h->beta2), v, V(mul)(V(set1)(h->one_minus_beta2), V(mul)(g, g)));
    VECTOR denominator = V(fmadd)(V(sqrt)(v), V(set1)(h->inverse_root), V(set1)(h->epsilon));
    p = V(fnmadd)(V(set1)(h->step), V(div)(m, denominator), V(mul)(p, V(set1)(h->decay)));
    V(storeu)(a->first + i, m);
    V(storeu)(a->second + i, v);
    V(storeu)(a->parameters + i, p);
    if (a->copy_bf16 != NULL)
        store_bf16(a->copy_bf16 + i, p);
}

static inline void prefetch(const struct adam_arrays *a, size_t i) {
    _mm_prefetch((const char *)(a->parameters + i + AHEAD), _MM_HINT_T0);
    _mm_prefetch((const char *)(a->first + i + AHEAD), _MM_HINT_T0);
    _mm_prefetch((const char *)(a->second + i + AHEAD), _MM_HINT_T0);
    if (a->gradients != NULL)
        _mm_prefetch((const char *)(a->gradients + i + AHEAD), _MM_HINT_T0);
    else
        _mm_prefetch((const char *)(a->gradients_bf16 + i + AHEAD), _MM_HINT_T0);
}

void ADAM(step)(const struct adam_arrays *arrays, const struct adam_hyper *hyper, size_t first,
                size_t count) {
    const struct adam_arrays a = *arrays; // stores through its members cannot change these copies
    const struct adam_hyper h = *hyper;
    size_t i = first, end = first + count;
    for (; i + LINE <= end; i += LINE) {
        prefetch(&a, i);
        for (size_t j = i; j < i + LINE; j += LANES)
            step_vector(&a, &h, j);
    }
    adam_reference(&a, &h, i, end - i);
}

void ADAM(rmw)(const struct adam_arrays *arrays, size_t first, size_t count) {
    const struct adam_arrays a = *arrays;
    size_t i = first, end = first + count;
    for (; i + LINE <= end; i += LINE) {
        prefetch(&a, i);
        for (size_t j = i; j < i + LINE; j += LANES) {
            VECTOR g = load_gradient(&a, j);
            V(storeu)(a.first + j, V(add)(V(loadu)(a.first + j), g));
            V(storeu)(a.second + j, V(add)(V(loadu)(a.second + j), g));
            V(storeu)(a.parameters + j, V(add)(V(loadu)(a.parameters + j), g));
            if (a.copy_bf16 != NULL)
                store_bf16(a.copy_bf16 + j, g);
        }
    }
    adam_rmw_scalar(&a, i, end - i);
}

void ADAM(triad)(float *to, const float *x, const float *y, float s, size_t count) {
    VECTOR scale = V(set1)(s);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(storeu)(to + i, V(fmadd)(scale, V(loadu)(y + i), V(loadu)(x + i)));
    adam_triad_scalar(to + i, x + i, y + i, s, count - i);
}

#endif
