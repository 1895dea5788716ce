// SPDX-License-Identifier: Apache-2.0
// Between the files of the matrix product.
#pragma once

#include <stdbool.h>

#include "kernels/gemm.h"

#define GEMM_TILE_ROWS 6 // 6 x 16 accumulators fill twelve of sixteen vector registers

bool gemm_tile_supported(void); // AVX2 and FMA
void gemm_tile_avx2(const struct gemm *g, size_t row, size_t column, const float *panel);
