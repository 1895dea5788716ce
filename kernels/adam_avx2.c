// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>
#include <stdint.h>

#define VECTOR __m256
#define LANES 8
#define V(op) _mm256_##op##_ps
#define ADAM(name) adam_##name##_avx2

static inline __m256 load_bf16(const uint16_t *from) {
    __m128i half = _mm_loadu_si128((const __m128i *)from);
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

#include "kernels/adam_vector.h"
