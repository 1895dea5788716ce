// SPDX-License-Identifier: Apache-2.0
// Constants of the compute-time laws, per GPU and kernel stack: the "kernels" block of
// models/gpus/*.json. Equations that use them: docs/method.md §gemm and §compute.
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "describe/cluster.h"

enum kernel_constant {
    KERNEL_GEMM_FRACTION,       // share of the dense peak a large 16-bit matmul sustains
    KERNEL_GEMM_BACKWARD_RATIO, // speed of the two backward matmuls over the forward one
    KERNEL_GEMM_FP8_RATIO,      // (fp8 rate / fp8 peak) over (16-bit rate / 16-bit peak)
    KERNEL_GEMM_HALF_K,         // inner dimension whose pipeline fill costs as much as its work
    KERNEL_GEMM_HALF_TILES,     // 128 x 256 output tiles at which half the SMs idle
    KERNEL_ATTENTION_FORWARD_FRACTION, // fused attention over the dense peak, causal FLOPs
    KERNEL_ATTENTION_BACKWARD_FRACTION,
    KERNEL_ATTENTION_OLD_FORWARD_RATIO,  // the first FlashAttention kernels, before torch 2.2, over
    KERNEL_ATTENTION_OLD_BACKWARD_RATIO, // the present ones
    KERNEL_HBM_FRACTION,                 // share of the HBM rate that memory-bound kernels sustain
    KERNEL_LAUNCH_S,     // GPU time of an empty kernel: launch gap, first and last wave
    KERNEL_ISSUE_S,      // host time per kernel
    KERNEL_UNIT_HOST_S,  // host time of a sharding wrapper's hooks, per unit and direction
    KERNEL_STEP_HOST_S,  // host time per optimizer step outside the model
    KERNEL_OVERLAP_LOSS, // compute speed lost while a collective runs beside it
    KERNEL_CONSTANT_COUNT
};
_Static_assert(KERNEL_CONSTANT_COUNT <= GPU_KERNEL_CONSTANTS, "grow GPU_KERNEL_CONSTANTS");

extern const char *const kernel_constant_names[KERNEL_CONSTANT_COUNT];
extern const char
    *const kernel_stack_keys[STACK_COUNT]; // keys of the block: eager, compiled, megatron

// Reads {"eager": {"gemm_fraction": {figure}, ...}, ...}. What is absent stays unknown.
bool gpu_kernels_read(struct json_node kernels, struct arena *a,
                      struct gpu_kernels out[STACK_COUNT], struct err *e);
void gpu_kernels_clear(struct gpu_kernels out[STACK_COUNT]); // all unknown
// The constant of this GPU and stack; where the catalog has none, the GPU's eager one for constants
// that do not depend on the stack, else the generation's default, provenance assumed.
struct figure gpu_kernel(const struct gpu *g, enum kernel_stack s, enum kernel_constant k);
