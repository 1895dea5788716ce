// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce_private.h"

#include <immintrin.h>

#define LANES 8

static __m256 load_bf16(const uint16_t *from) {
    __m128i half = _mm_loadu_si128((const __m128i *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// Rounds to nearest even and keeps NaNs quiet, as half_to_bf16.
static __m256i round_bf16(__m256 f) {
    __m256i u = _mm256_castps_si256(f);
    __m256i high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}

void reduce_bf16_avx2(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    size_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        __m256 low = _mm256_add_ps(load_bf16(to + i), load_bf16(from + i));
        __m256 high = _mm256_add_ps(load_bf16(to + i + LANES), load_bf16(from + i + LANES));
        __m256i packed = _mm256_packus_epi32(round_bf16(low), round_bf16(high));
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_permute4x64_epi64(packed, 0xD8));
    }
    reduce_tail_bf16(to, from, i, count);
}

static __m256 load_fp16(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

// The conversion keeps a NaN's upper bits; half_to_fp16 keeps its sign alone.
static __m128i round_fp16(__m256 f) {
    __m128i rounded = _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT);
    __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    __m128i nan = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    __m128i sign = _mm_and_si128(rounded, _mm_set1_epi16((short)0x8000));
    __m128i quiet = _mm_or_si128(sign, _mm_set1_epi16(0x7E00));
    return _mm_blendv_epi8(rounded, quiet, nan);
}

void reduce_fp16_avx2(uint16_t *restrict to, const uint16_t *restrict from, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256 sum = _mm256_add_ps(load_fp16(to + i), load_fp16(from + i));
        _mm_storeu_si128((__m128i *)(to + i), round_fp16(sum));
    }
    reduce_tail_fp16(to, from, i, count);
}
