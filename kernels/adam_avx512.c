// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/adam_private.h"

#define LANES 16
#define AHEAD 64

static inline __m512 load_gradient(const struct adam_arrays *a, size_t i) {
    if (a->gradients != NULL)
        return _mm512_loadu_ps(a->gradients + i);
    __m256i half = _mm256_loadu_si256((const __m256i *)(a->gradients_bf16 + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Rounds to nearest even and keeps NaNs quiet, as half_to_bf16.
static inline void store_bf16(uint16_t *to, __m512 f) {
    __m512i u = _mm512_castps_si512(f);
    __m512i high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
    __m512i chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(chosen));
}

static inline void step16(const struct adam_arrays *a, const struct adam_hyper *h, size_t i) {
    __m512 g = load_gradient(a, i);
    __m512 m = _mm512_loadu_ps(a->first + i), v = _mm512_loadu_ps(a->second + i);
    __m512 p = _mm512_loadu_ps(a->parameters + i);
    m = _mm512_fmadd_ps(_mm512_set1_ps(h->beta1), m,
                        _mm512_mul_ps(_mm512_set1_ps(h->one_minus_beta1), g));
    v = _mm512_fmadd_ps(_mm512_set1_ps(h->beta2), v,
                        _mm512_mul_ps(_mm512_set1_ps(h->one_minus_beta2), _mm512_mul_ps(g, g)));
    __m512 denominator = _mm512_fmadd_ps(_mm512_sqrt_ps(v), _mm512_set1_ps(h->inverse_root),
                                         _mm512_set1_ps(h->epsilon));
    p = _mm512_fnmadd_ps(_mm512_set1_ps(h->step), _mm512_div_ps(m, denominator),
                         _mm512_mul_ps(p, _mm512_set1_ps(h->decay)));
    _mm512_storeu_ps(a->first + i, m);
    _mm512_storeu_ps(a->second + i, v);
    _mm512_storeu_ps(a->parameters + i, p);
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

void adam_step_avx512(const struct adam_arrays *arrays, const struct adam_hyper *hyper,
                      size_t first, size_t count) {
    const struct adam_arrays a = *arrays; // stores through its members cannot change these copies
    const struct adam_hyper h = *hyper;
    size_t i = first, end = first + count;
    for (; i + LANES <= end; i += LANES) {
        prefetch(&a, i);
        step16(&a, &h, i);
    }
    adam_reference(&a, &h, i, end - i);
}

void adam_rmw_avx512(const struct adam_arrays *arrays, size_t first, size_t count) {
    const struct adam_arrays a = *arrays;
    size_t i = first, end = first + count;
    for (; i + LANES <= end; i += LANES) {
        prefetch(&a, i);
        __m512 g = load_gradient(&a, i);
        _mm512_storeu_ps(a.first + i, _mm512_add_ps(_mm512_loadu_ps(a.first + i), g));
        _mm512_storeu_ps(a.second + i, _mm512_add_ps(_mm512_loadu_ps(a.second + i), g));
        _mm512_storeu_ps(a.parameters + i, _mm512_add_ps(_mm512_loadu_ps(a.parameters + i), g));
        if (a.copy_bf16 != NULL)
            store_bf16(a.copy_bf16 + i, g);
    }
    adam_rmw_scalar(&a, i, end - i);
}

void adam_triad_avx512(float *to, const float *x, const float *y, float s, size_t count) {
    __m512 scale = _mm512_set1_ps(s);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm512_storeu_ps(to + i,
                         _mm512_fmadd_ps(scale, _mm512_loadu_ps(y + i), _mm512_loadu_ps(x + i)));
    adam_triad_scalar(to + i, x + i, y + i, s, count - i);
}
