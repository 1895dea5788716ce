// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <string.h>

#if defined(__x86_64__)
#include "kernels/gemm_private.h"
#endif

#define COLUMNS 16 // of B in one packed panel

size_t gemm_panel_floats(size_t k) {
    return COLUMNS * k;
}

static void tile_plain(const struct gemm *g, size_t row, size_t rows, size_t column,
                       const float *panel) {
    size_t columns = g->n - column < COLUMNS ? g->n - column : COLUMNS;
    for (size_t i = row; i < row + rows; i++) {
        float sum[COLUMNS] = {0};
        for (size_t p = 0; p < g->k; p++)
            for (size_t j = 0; j < COLUMNS; j++)
                sum[j] += g->a[i * g->k + p] * panel[p * COLUMNS + j];
        memcpy(g->c + i * g->n + column, sum, columns * sizeof(float));
    }
}

// COLUMNS columns of B, one row after another, zeros past its edge.
static void pack(const struct gemm *g, size_t column, float *panel) {
    size_t columns = g->n - column < COLUMNS ? g->n - column : COLUMNS;
    for (size_t p = 0; p < g->k; p++) {
        memcpy(panel + p * COLUMNS, g->b + p * g->n + column, columns * sizeof(float));
        for (size_t j = columns; j < COLUMNS; j++)
            panel[p * COLUMNS + j] = 0;
    }
}

void gemm_rows(const struct gemm *g, size_t first, size_t rows, float *panel) {
    for (size_t column = 0; column < g->n; column += COLUMNS) {
        size_t row = first, end = first + rows;
        pack(g, column, panel);
#if defined(__x86_64__)
        if (gemm_tile_supported() && g->n - column >= COLUMNS)
            for (; row + GEMM_TILE_ROWS <= end; row += GEMM_TILE_ROWS)
                gemm_tile_avx2(g, row, column, panel);
#endif
        tile_plain(g, row, end - row, column, panel);
    }
}
