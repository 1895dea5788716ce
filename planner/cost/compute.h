// SPDX-License-Identifier: Apache-2.0
// Time, FLOPs and bytes of compute: GEMM law, attention, memory-bound kernels, host issue,
// optimizers.
#pragma once

#include "base/kinds.h"
#include "describe/cluster.h"
#include "describe/model.h"
#include "describe/recipe.h"

#include <stddef.h>
#include <stdint.h>

struct gemm_shape {
    uint64_t m, n, k, count;
    enum dtype dtype;
};
#define COMPUTE_SHAPES_MAX 32

// One unit instance in one direction for one micro-batch. Tensor- and context-parallel exchanges
// are tasks of their own (plan/step).
struct unit_cost {
    double duration_s, low_s, high_s; // GPU time of the kernels, back to back
    double gemm_s, attention_s;       // parts of duration_s; the rest is memory-bound kernels
    double issue_s;                   // host time to issue them, wrapper hooks included
    double flop;                      // executed, recompute included
    double model_flop;                // without recompute, causal attention (DESIGN mfu)
    double memory_bytes;              // HBM traffic of the memory-bound kernels
    uint64_t kernels;
    struct gemm_shape shapes[COMPUTE_SHAPES_MAX];
    size_t shape_count;
};

struct compute_context {
    const struct model *model;
    const struct cluster *cluster;
    const struct recipe *recipe;
};

// Forward and backward (backward includes the recipe's recompute) of a unit class; docs/method.md
// §compute. Loss head beyond the head GEMM is part of UNIT_HEAD (for tied models: the final norm's
// successor head too).
void compute_unit(const struct compute_context *x, const struct model_unit *u,
                  struct unit_cost *forward, struct unit_cost *backward);
// Forward matmul, `count` launches; docs/method.md §gemm.
double compute_gemm_s(const struct gpu *g, enum kernel_stack s, const struct gemm_shape *shape);
// One memory-bound kernel that reads and writes `bytes` in total.
double compute_memory_bound_s(const struct gpu *g, enum kernel_stack s, double bytes);
// Share of its speed that compute loses while a collective runs on the same GPU (SMs and HBM).
double compute_overlap_loss(const struct gpu *g, enum kernel_stack s);
// Host time per optimizer step outside the model: data, logging, zeroing, scheduler.
double compute_step_host_s(const struct cluster *c, const struct recipe *r);
// GPU optimizer step over n elements held by this rank (foreach, fused), seconds. Clipping comes
// apart.
double compute_optimizer_s(const struct cluster *c, const struct recipe *r, double elements);
// CPU Adam over `elements` of the WHOLE node (all its ranks together), seconds; floor 28 B /
// STREAM.
struct figure compute_cpu_adam_s(const struct cluster *c, const struct recipe *r, double elements);
// Model FLOPs of one optimizer step per GPU (DESIGN §5 "mfu"; hfu with recompute).
double compute_model_flop(const struct model *m, const struct recipe *r, bool with_recompute);
// The type whose peak figure stands for the recipe's compute type: bf16 before compute capability
// 8.0 runs at the fp32 rate.
enum dtype compute_peak_dtype(const struct gpu *g, const struct recipe *r);
// Dense peak of the compute type; NAN where the GPU states none.
double compute_peak_flop_per_s(const struct gpu *g, const struct recipe *r);
