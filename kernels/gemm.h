// SPDX-License-Identifier: Apache-2.0
// fp32 matrix product on the CPU, row-major: C[m,n] = A[m,k] B[k,n]. Blocked and packed; not a
// BLAS, but near what one core can do, so that a machine without a GPU has a figure.
#pragma once

#include <stddef.h>

// Rows [first, first + rows) of C. `panel` holds gemm_panel_floats(k) floats of scratch.
struct gemm {
    size_t m, n, k;
    const float *a, *b;
    float *c;
};
void gemm_rows(const struct gemm *g, size_t first, size_t rows, float *panel);
size_t gemm_panel_floats(size_t k);
