// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>
#include <stdint.h>

#define VECTOR __m512
#define LANES 16
#define V(op) _mm512_##op##_ps
#define ADAM(name) adam_##name##_avx512

static inline __m512 load_bf16(const uint16_t *from) {
    __m256i half = _mm256_loadu_si256((const __m256i *)from);
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

#include "kernels/adam_vector.h"
