// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/adam_private.h"

#define LANES 8
#define AHEAD 64 // elements: the prefetcher of the processor stops at page borders

static inline __m256 load_gradient(const struct adam_arrays *a, size_t i) {
    if (a->gradients != NULL)
        return _mm256_loadu_ps(a->gradients + i);
    __m128i half = _mm_loadu_si128((const __m128i *)(a->gradients_bf16 + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// Rounds to nearest even and keeps NaNs quiet, as half_to_bf16.
static inline void store_bf16(uint16_t *to, __m256 f) {
    __m256i u = _mm256_castps_si256(f);
    __m256i high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    __m256i chosen = _mm256_blendv_epi8(rounded, quiet, nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(chosen, chosen), 0x08);
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(packed));
}

static inline void step8(const struct adam_arrays *a, const struct adam_hyper *h, size_t i) {
    __m256 g = load_gradient(a, i);
    __m256 m = _mm256_loadu_ps(a->first + i), v = _mm256_loadu_ps(a->second + i);
    __m256 p = _mm256_loadu_ps(a->parameters + i);
    m = _mm256_fmadd_ps(_mm256_set1_ps(h->beta1), m,
                        _mm256_mul_ps(_mm256_set1_ps(h->one_minus_beta1), g));
    v = _mm256_fmadd_ps(_mm256_set1_ps(h->beta2), v,
                        _mm256_mul_ps(_mm256_set1_ps(h->one_minus_beta2), _mm256_mul_ps(g, g)));
    __m256 denominator = _mm256_fmadd_ps(_mm256_sqrt_ps(v), _mm256_set1_ps(h->inverse_root),
                                         _mm256_set1_ps(h->epsilon));
    p = _mm256_fnmadd_ps(_mm256_set1_ps(h->step), _mm256_div_ps(m, denominator),
                         _mm256_mul_ps(p, _mm256_set1_ps(h->decay)));
    _mm256_storeu_ps(a->first + i, m);
    _mm256_storeu_ps(a->second + i, v);
    _mm256_storeu_ps(a->parameters + i, p);
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

void adam_step_avx2(const struct adam_arrays *arrays, const struct adam_hyper *hyper, size_t first,
                    size_t count) {
    const struct adam_arrays a = *arrays; // stores through its members cannot change these copies
    const struct adam_hyper h = *hyper;
    size_t i = first, end = first + count;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
        prefetch(&a, i);
        step8(&a, &h, i);
        step8(&a, &h, i + LANES);
    }
    adam_reference(&a, &h, i, end - i);
}

void adam_rmw_avx2(const struct adam_arrays *arrays, size_t first, size_t count) {
    const struct adam_arrays a = *arrays;
    size_t i = first, end = first + count;
    for (; i + 2 * LANES <= end; i += 2 * LANES) {
        prefetch(&a, i);
        for (size_t j = i; j < i + 2 * LANES; j += LANES) {
            __m256 g = load_gradient(&a, j);
            _mm256_storeu_ps(a.first + j, _mm256_add_ps(_mm256_loadu_ps(a.first + j), g));
            _mm256_storeu_ps(a.second + j, _mm256_add_ps(_mm256_loadu_ps(a.second + j), g));
            _mm256_storeu_ps(a.parameters + j, _mm256_add_ps(_mm256_loadu_ps(a.parameters + j), g));
            if (a.copy_bf16 != NULL)
                store_bf16(a.copy_bf16 + j, g);
        }
    }
    adam_rmw_scalar(&a, i, end - i);
}

void adam_triad_avx2(float *to, const float *x, const float *y, float s, size_t count) {
    __m256 scale = _mm256_set1_ps(s);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(to + i,
                         _mm256_fmadd_ps(scale, _mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    adam_triad_scalar(to + i, x + i, y + i, s, count - i);
}
