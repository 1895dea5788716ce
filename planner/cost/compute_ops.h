// SPDX-License-Identifier: Apache-2.0
// What one unit executes for one micro-batch on one GPU: matmuls, attention, memory-bound traffic
// and kernel counts. Counting only, no hardware; docs/method.md §compute.
#pragma once

#include "cost/compute.h"

#include <stdbool.h>

struct unit_ops {
    struct gemm_shape gemms[COMPUTE_SHAPES_MAX]; // forward
    double trained[COMPUTE_SHAPES_MAX];          // share of the weights that get a gradient
    size_t gemm_count;
    double attention_flop;      // forward, causal and window pairs only
    double attention_math_flop; // forward as executed without a fused kernel (no causal saving)
    double score_bytes;         // forward traffic of the score matrix, math attention only
    double forward_bytes, backward_bytes;       // memory-bound kernels
    uint64_t forward_kernels, backward_kernels; // without the matmuls
};

void compute_ops_unit(const struct model *m, const struct recipe *r, const struct model_unit *u,
                      struct unit_ops *out);
bool compute_has_head(const struct model *m,
                      const struct model_unit *u); // the head's work is billed here
double compute_tokens(const struct recipe *r);     // per micro-batch and GPU
// Causal (query, key) pairs of one sequence, averaged over layers with and without a window.
double compute_attention_pairs(const struct model *m, const struct recipe *r);
// Share of one layer's forward that backward executes again: matmuls, attention, memory-bound.
void compute_recompute_shares(const struct recipe *r, double *gemm, double *attention,
                              double *memory);
