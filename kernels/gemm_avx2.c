// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/gemm_private.h"

bool gemm_tile_supported(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

void gemm_tile_avx2(const struct gemm *g, size_t row, size_t column, const float *panel) {
    __m256 low[GEMM_TILE_ROWS], high[GEMM_TILE_ROWS];
    const float *a = g->a + row * g->k;
    for (int i = 0; i < GEMM_TILE_ROWS; i++)
        low[i] = high[i] = _mm256_setzero_ps();
    for (size_t p = 0; p < g->k; p++, panel += 16) {
        __m256 b0 = _mm256_loadu_ps(panel), b1 = _mm256_loadu_ps(panel + 8);
        for (int i = 0; i < GEMM_TILE_ROWS; i++) {
            __m256 x = _mm256_broadcast_ss(a + (size_t)i * g->k + p);
            low[i] = _mm256_fmadd_ps(x, b0, low[i]);
            high[i] = _mm256_fmadd_ps(x, b1, high[i]);
        }
    }
    for (int i = 0; i < GEMM_TILE_ROWS; i++) {
        float *c = g->c + (row + (size_t)i) * g->n + column;
        _mm256_storeu_ps(c, low[i]);
        _mm256_storeu_ps(c + 8, high[i]);
    }
}
